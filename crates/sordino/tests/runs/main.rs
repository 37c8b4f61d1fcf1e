//! Commands that make and read runs, as a user gives them.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

mod algorithms;
mod audit;
mod bad_files;
mod data;
mod features;
mod federate;
mod images;
mod loss;
mod measured;
mod place;
mod predict;
mod report;
mod reproduce;
mod texts;
mod train;
mod trust;
mod tune;
mod units;
