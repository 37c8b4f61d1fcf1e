//! What may leave: values that carry their noise and are paid for.

use std::ops::Deref;

/// A value that was noised and charged to the ledger. Only [`Round::release`](crate::Round::release) and
/// [`Round::disclose`](crate::Round::disclose) make one.
///
/// Whatever is computed from releases and public values alone costs nothing more: differential privacy is closed under
/// post-processing. So a release can be read, changed and kept at will.
#[must_use = "a release was paid for when it was made"]
#[derive(Debug)]
pub struct Release<T> {
    value: T,
    noise_std: f64,
}

impl<T> Release<T> {
    pub(crate) fn new(value: T, noise_std: f64) -> Self {
        Self { value, noise_std }
    }

    /// The standard deviation of the noise in each trained coordinate: public, from the plan. Zero for what was disclosed, and
    /// together with that of whatever was [added](Release::plus).
    pub fn noise_std(&self) -> f64 {
        self.noise_std
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl Release<Vec<f32>> {
    /// The vector plus a public one, times a public factor. Whatever can be read is public, or was released before; then it
    /// carries noise of its own, with this standard deviation.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn plus(mut self, factor: f32, public: &[f32], noise_std: f64) -> Self {
        assert_eq!(self.value.len(), public.len(), "vectors of one model have one length");
        for (value, public) in self.value.iter_mut().zip(public) {
            *value += factor * public;
        }
        self.noise_std = self.noise_std.hypot(f64::from(factor) * noise_std);
        self
    }

    /// The vector and its noise, times a public factor: one over the *expected* batch size makes a mean gradient of a sum.
    pub fn scaled(mut self, factor: f32) -> Self {
        for value in &mut self.value {
            *value *= factor;
        }
        self.noise_std *= f64::from(factor.abs());
        self
    }
}

impl<T> Deref for Release<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}
