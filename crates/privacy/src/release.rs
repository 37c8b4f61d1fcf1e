//! Values that may leave the vault: they have noise and are charged to the ledger.

use std::ops::Deref;

/// A value that has noise and was charged to the ledger, or was [disclosed](crate::Round::disclose). Only methods of
/// [`Round`](crate::Round) and [`Vault::measure`](crate::Vault::measure) create one.
///
/// Values computed from releases and public values alone have no further cost, because differential privacy is closed under
/// post-processing. So a release can be read, changed and stored.
#[must_use = "a release has been charged to the ledger"]
#[derive(Debug)]
pub struct Release<T> {
    value: T,
    noise_std: f64,
}

impl<T> Release<T> {
    pub(crate) fn new(value: T, noise_std: f64) -> Self {
        Self { value, noise_std }
    }

    /// The standard deviation of the noise in each trained coordinate, including the noise of vectors that were
    /// [added](Release::plus). It is public: it follows from the plan. It is 0 for a disclosed value.
    pub fn noise_std(&self) -> f64 {
        self.noise_std
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl Release<Vec<f32>> {
    /// The vector plus a public factor times a public vector. A vector that was released earlier is also public; `noise_std` is the
    /// standard deviation of its noise.
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

    /// The vector and its noise, times a public factor. One over the *expected* batch size turns a sum into a mean gradient.
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
