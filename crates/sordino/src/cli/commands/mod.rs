//! One file for each command: its arguments, and its output as text.

pub(crate) mod algorithms;
pub(crate) mod audit;
pub(crate) mod compare;
pub(crate) mod data;
pub(crate) mod epsilon;
pub(crate) mod export;
pub(crate) mod federate;
pub(crate) mod noise;
pub(crate) mod predict;
pub(crate) mod profile;
pub(crate) mod published;
pub(crate) mod report;
pub(crate) mod reproduce;
pub(crate) mod schedule;
pub(crate) mod show;
pub(crate) mod theory;
pub(crate) mod train;
pub(crate) mod tune;
