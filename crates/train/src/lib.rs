//! The training loop: runs, checkpoints, resuming.
#![forbid(unsafe_code)]
