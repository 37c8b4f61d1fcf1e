//! The theorems of the papers as calculators: pure functions of public numbers.

pub mod dp_nsgd;
