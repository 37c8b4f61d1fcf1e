//! Norms and weighted sums of the gradients of records and bags, in two forms.
//!
//! - [`Factored`]: a weight matrix; the gradient of a record is `sum_t b_t a_t^T` over its positions. A bag is like a record with the positions of
//!   all its records.
//! - [`direct`]: few parameters (norms); the gradient of each record is written out.
//! - Convolutions and embeddings have their own code in their layers, based on these.

pub(crate) mod direct;
mod factored;
mod norm;
mod stacked;

pub(crate) use factored::{Block, Factor, Factored, gram_is_cheaper};
pub(crate) use norm::{Right, norm_of_outer};
pub(crate) use stacked::RecordRows;
