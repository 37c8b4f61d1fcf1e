//! Values that cannot be read.

use std::marker::PhantomData;

/// A value computed from private records without noise. It cannot be read, printed, copied or stored. It belongs to its round `'r`, so
/// that only its own vault can disclose it.
pub struct Sensitive<'r, T> {
    pub(crate) value: T,
    pub(crate) brand: Brand<'r>,
}

/// Ties a value to its round: no two rounds have the same `'r`, and one lifetime cannot be shortened to another.
pub(crate) type Brand<'r> = PhantomData<fn(&'r ()) -> &'r ()>;

impl<'r> Sensitive<'r, Vec<f64>> {
    /// The same value in single precision.
    #[expect(clippy::cast_possible_truncation, reason = "rounded")]
    pub(crate) fn narrow(self) -> Sensitive<'r, Vec<f32>> {
        Sensitive { value: self.value.into_iter().map(|value| value as f32).collect(), brand: self.brand }
    }
}

/// A sum whose sensitivity this crate has bounded: it moves by at most [`sensitivity`](Self::sensitivity) when one record is removed.
///
/// It belongs to its round `'r`. It can be released once, in that round.
#[must_use = "nothing is released before Round::release"]
pub struct Bounded<'r> {
    pub(crate) value: Sensitive<'r, Vec<f64>>,
    pub(crate) sensitivity: f64,
    pub(crate) kind: SumKind,
}

/// What a bounded sum adds up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum SumKind {
    /// Gradients: a sum over parameters. Frozen parameters get no noise.
    Gradients,
    /// Gradients, combined with sums of earlier steps. The memory has already stored a sum of this step, so no other sum may be
    /// released in this step. The sensitivity is that of this many releases together.
    Banded { releases: u64 },
    /// Counts of norms.
    Counts,
}

impl<'r> Bounded<'r> {
    /// The same sum without its bound. It can only be [disclosed](crate::Round::disclose).
    pub fn unbounded(self) -> Sensitive<'r, Vec<f32>> {
        self.value.narrow()
    }

    /// How far the sum can move when one record is removed. It is public: it follows from the rule.
    pub fn sensitivity(&self) -> f64 {
        self.sensitivity
    }
}
