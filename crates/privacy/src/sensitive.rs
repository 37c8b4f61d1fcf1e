//! Values that nobody may read.

use std::marker::PhantomData;

/// A value computed from private records without noise. It cannot be read, printed, copied or stored, and it belongs to its
/// round `'r`, so that only its own vault can disclose it.
pub struct Sensitive<'r, T> {
    pub(crate) value: T,
    pub(crate) brand: Brand<'r>,
}

/// Ties a value to its round: no two rounds have the same `'r`, and none can be shortened to another.
pub(crate) type Brand<'r> = PhantomData<fn(&'r ()) -> &'r ()>;

/// A sum that moves by at most a known distance when one record is removed: this crate has seen to it.
///
/// It belongs to its round `'r`: it can be released in that round, once, and nowhere else.
#[must_use = "nothing is released before Round::release"]
pub struct Bounded<'r, T = Vec<f32>> {
    pub(crate) value: Sensitive<'r, T>,
    pub(crate) sensitivity: f64,
    /// Whether it is a sum over parameters, of which frozen ones bear no noise.
    pub(crate) of_parameters: bool,
}

impl<T> Bounded<'_, T> {
    /// How far it can move when one record is removed. Public: it comes from the rule.
    pub fn sensitivity(&self) -> f64 {
        self.sensitivity
    }
}
