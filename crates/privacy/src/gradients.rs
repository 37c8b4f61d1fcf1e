//! What the base asks of an engine, and what it trusts it to do.

/// Records and the gradients that they give rise to.
///
/// The base asks for sums of gradients, each record with a weight of the base's choosing, and never sees a gradient.
///
/// **What is trusted.** What a record adds to a sum does not depend on other records. The norms that a [rule](WeightRule) is given are at
/// least the norms of what the record adds with weight 1, but for a few parts in a million. A record whose loss or gradient is not finite adds exactly
/// nothing. Sums are zero outside of [`trainable`](Gradients::trainable), and an empty batch sums to zero. Two sums over batches that
/// differ in one record differ by what that record adds, by [`rounding`](Gradients::rounding) times the bound on it, and by at most six
/// roundings of a vector to the [step](Sum::step) of the sum.
pub trait Gradients {
    /// Where gradients are taken: the parameters of a model, a list of numbers.
    type Point: Clone + AsRef<[f32]> + AsMut<[f32]>;
    /// Why a pass can fail. It must not depend on the records, only on their public shape.
    type Error: std::error::Error + Send + Sync + 'static;

    /// The public number of records.
    fn records(&self) -> usize;

    /// The length of a sum.
    fn dimension(&self) -> usize;

    /// The stretches of a sum that can differ from zero.
    fn trainable(&self) -> Vec<std::ops::Range<usize>>;

    /// The number of layers that can be clipped separately.
    fn layers(&self) -> usize;

    /// How far two sums over batches that differ in one record can be apart beyond what that record adds, because sums are rounded;
    /// relative to the bound on what a record adds. `differences` is true for a pass with an anchor.
    fn rounding(&self, differences: bool) -> f64;

    /// Adds up the gradients of the chosen records, which are in ascending order: each of `sums` becomes a sum of `weight * gradient`
    /// with weights of its own, whatever it held before. With an anchor, each record's gradient there is subtracted from its gradient
    /// first.
    ///
    /// `rule` chooses the weights; without it every weight is 1. `key` is fresh randomness:
    /// the dropout mask of a record is a function of the key and the record's place in the data set alone.
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

/// A sum of gradients that the engine computes for the base.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sum {
    /// All values are multiples of this power of two, so that parts of the sum are added up exactly; 0 for no such restriction.
    pub step: f64,
    /// The sum.
    pub values: Vec<f64>,
}

impl Sum {
    /// The step of a sum over at most `records` records that add at most `sensitivity` each: finer than `sensitivity` by a factor of 2^30, or as fine
    /// as exact sums in double precision permit.
    pub(crate) fn step_for(sensitivity: f64, records: usize) -> f64 {
        #[expect(clippy::cast_possible_truncation, reason = "the exponent of a positive number")]
        let exponent = sensitivity.log2().floor() as i32;
        #[expect(clippy::cast_possible_wrap, reason = "at most 64")]
        let digits = (usize::BITS - records.leading_zeros()) as i32;
        2.0_f64.powi(exponent - 30.min(49 - digits))
    }
}

/// Chooses the weights of one record's gradient.
///
/// It is called once for each record whose gradient is finite, from any thread. The first argument has the norm of each layer. The second
/// has the weights sum by sum, `weights[sum * layers + layer]`, all 0 before the call.
pub type WeightRule<'a> = dyn Fn(&[f64], &mut [f32]) + Sync + 'a;
