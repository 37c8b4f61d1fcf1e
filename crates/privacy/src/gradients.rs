//! What the base asks of an engine, and what it trusts it to do.

/// Records and the gradients that they give rise to.
///
/// The base asks for sums of gradients, each record with a weight of the base's choosing, and never sees a gradient.
///
/// **What is trusted.** That gradients of different records do not depend on each other; that
/// [`norm`](RecordGradient::norm) is at least the norm of what the record adds with weight 1, but for a few parts in a
/// million; that a record whose loss or gradient is not finite adds exactly nothing; that sums are zero outside of
/// [`trainable`](Gradients::trainable) and an empty batch sums to zero.
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

    /// Adds up the gradients of the chosen records: each of `sums` becomes a sum of `weight * gradient` with weights of its own,
    /// whatever it held before. With an anchor, each record's gradient there is subtracted from its gradient first.
    ///
    /// `weigh` is called once for every record whose gradient is finite; without it every weight is 1. `seed` is fresh
    /// randomness for dropout.
    ///
    /// # Errors
    /// As the engine documents.
    fn pass(
        &mut self,
        at: &Self::Point,
        anchor: Option<&Self::Point>,
        chosen: &[usize],
        weigh: Option<&Weigh<'_>>,
        seed: u64,
        sums: &mut [Vec<f32>],
    ) -> Result<(), Self::Error>;
}

/// Chooses the weights of one record.
pub type Weigh<'a> = dyn Fn(&mut dyn RecordGradient) + Sync + 'a;

/// One record's gradient during a pass: its norms can be seen, its weights set.
pub trait RecordGradient {
    /// The norm over the parameters of one layer.
    fn norm(&self, layer: usize) -> f64;

    /// Sets the weight in one of the sums for one layer. Layers whose weight is not set have weight 0.
    fn weigh(&mut self, sum: usize, layer: usize, weight: f32);
}
