//! The arithmetic: products, outer sums, Gram sums and elementwise functions on slices.
//!
//! This is the only module of Sordino with `unsafe` code. Every function that the rest of the crate sees is safe: it
//! checks the bounds of its slices before it forms a pointer. Each kernel is written once, in plain Rust on lanes of
//! sixteen floats, and compiled three times ([`isa`]): for AVX-512, for AVX2 with FMA, and for any processor.
#![expect(unsafe_code, reason = "vector kernels; each block states why it is sound")]
#![expect(
    clippy::needless_range_loop,
    reason = "the compiler unrolls indexed loops of constant length over registers"
)]

mod aligned;
mod gram;
pub(crate) mod isa;
mod lanes;
pub(crate) mod math;
pub(crate) mod norm;
mod outer;
mod packed;
pub(crate) mod pool;
mod product;
pub(crate) mod vector;
pub(crate) mod winograd;

pub(crate) use aligned::Aligned;
pub(crate) use gram::{Matrix, dots, gram};
pub(crate) use lanes::WIDTH;
pub(crate) use outer::{Runs, outer_sum};
pub(crate) use packed::Packed;
pub(crate) use product::{Rows, Segment, Starts, Store, product};
