//! Readers for records: CSV, IDX, NPY and NPZ, SVMLight, each with its public schema.
#![forbid(unsafe_code)]
