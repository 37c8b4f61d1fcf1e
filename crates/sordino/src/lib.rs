//! Training with differential privacy, and guarantees that hold.
#![forbid(unsafe_code)]

pub mod comparison;
pub mod report;
