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

impl<'r> Sensitive<'r, Vec<f64>> {
    /// The same in single precision.
    #[expect(clippy::cast_possible_truncation, reason = "rounded")]
    pub(crate) fn narrow(self) -> Sensitive<'r, Vec<f32>> {
        Sensitive { value: self.value.into_iter().map(|value| value as f32).collect(), brand: self.brand }
    }
}

/// A sum that moves by at most a known distance when one record is removed: this crate has seen to it.
///
/// It belongs to its round `'r`: it can be released in that round, once, and nowhere else.
#[must_use = "nothing is released before Round::release"]
pub struct Bounded<'r> {
    pub(crate) value: Sensitive<'r, Vec<f64>>,
    pub(crate) sensitivity: f64,
    pub(crate) kind: Kind,
}

/// What a bounded sum adds up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// Gradients: a sum over parameters, of which frozen ones bear no noise.
    Gradients,
    /// The same, with what earlier steps left behind. What this step leaves behind is already in the memory, so nothing else
    /// may be released in its place.
    Fed {
        /// How many releases the sensitivity is for, together.
        releases: u64,
    },
    /// Counts of norms.
    Counts,
}

impl<'r> Bounded<'r> {
    /// The same sum, about which nothing is known any more: it can only be [disclosed](crate::Round::disclose).
    pub fn unbounded(self) -> Sensitive<'r, Vec<f32>> {
        self.value.narrow()
    }

    /// How far it can move when one record is removed. Public: it comes from the rule.
    pub fn sensitivity(&self) -> f64 {
        self.sensitivity
    }
}
