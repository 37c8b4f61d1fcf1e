//! The interface between the base and an engine, and what the base trusts an engine to do.

/// Private records, and an engine that computes sums of their gradients.
///
/// The base chooses the weight of each record and receives weighted sums. It never sees the gradient of one record.
///
/// **What is trusted.** What a record adds to a sum does not depend on other records. The norms that a [`WeightRule`] is given are at
/// least the norms of what the record adds with weight 1, up to a few parts in a million. A record whose loss or gradient is not finite
/// adds exactly nothing. Sums are zero outside [`trainable`](Gradients::trainable), and an empty batch sums to zero. Two sums over
/// batches that differ in one record differ by what that record adds, by [`rounding`](Gradients::rounding) times the bound on it, and by
/// at most six roundings of a vector to the [step](Sum::step) of the sum.
pub trait Gradients {
    /// Where gradients are computed: the parameters of a model, as a list of numbers.
    type Point: Clone + AsRef<[f32]> + AsMut<[f32]>;
    /// Why a pass can fail. It must not depend on the values of records, only on their public shape.
    type Error: std::error::Error + Send + Sync + 'static;

    /// The public number of records.
    fn records(&self) -> usize;

    /// The length of a sum.
    fn dimension(&self) -> usize;

    /// The ranges of a sum that can differ from zero.
    fn trainable(&self) -> Vec<std::ops::Range<usize>>;

    /// The number of layers that can be clipped separately.
    fn layers(&self) -> usize;

    /// How far rounding can move two sums apart, in addition to what one record adds, if their batches differ in that record. It is
    /// relative to the bound on what a record adds. `differences` is true for a pass with an anchor.
    fn rounding(&self, differences: bool) -> f64;

    /// Adds `weight * gradient` of the chosen records, which are in ascending order, to each of `sums`, with different weights
    /// for each sum. With an anchor, each record's gradient at the anchor is subtracted from its gradient first.
    ///
    /// All sums have length [`dimension`](Self::dimension) and are 0 before the call. `rule` chooses the weights; without it every weight
    /// is 1. `key` is fresh randomness: the dropout mask of a record depends only on the key and on the record's index in
    /// the data set.
    ///
    /// # Errors
    /// As the engine documents.
    fn pass(
        &mut self,
        at: &Self::Point,
        anchor: Option<&Self::Point>,
        chosen: &[usize],
        rule: Option<&WeightRule<'_>>,
        key: [u8; 32],
        sums: &mut [Sum],
    ) -> Result<(), Self::Error>;
}

/// Chooses the weights of one record's gradient.
///
/// It is called once for each chosen record whose gradient is finite, from any thread. `norms[layer]` is the norm of each layer.
/// `weights[sum * layers + layer]` is 0 before the call.
pub type WeightRule<'a> = dyn Fn(&[f64], &mut [f32]) + Sync + 'a;

/// A sum of gradients that the engine computes for the base.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sum {
    /// All values are multiples of this power of two, so that parts of the sum can be added exactly; 0 for no such restriction.
    pub step: f64,
    /// The sum.
    pub values: Vec<f64>,
}

impl Sum {
    /// The step of a sum over at most `records` records that add at most `sensitivity` each: finer than `sensitivity` by a factor of
    /// 2^30, or as fine as exact sums in double precision permit.
    pub(crate) fn step_for(sensitivity: f64, records: usize) -> f64 {
        #[expect(clippy::cast_possible_truncation, reason = "the exponent of a positive number")]
        let exponent = sensitivity.log2().floor() as i32;
        #[expect(clippy::cast_possible_wrap, reason = "at most 64")]
        let digits = (usize::BITS - records.leading_zeros()) as i32;
        2.0_f64.powi(exponent - 30.min(49 - digits))
    }
}
