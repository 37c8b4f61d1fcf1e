//! A pass over a batch: its inputs and its outcome.

use crate::batch::Records;
use crate::loss::Target;
use crate::params::Params;

/// A pass over a batch: parameters, records, and the weights of their gradients.
///
/// What is said about a record holds for a slot if records are in [units](Records::in_units): its gradient is the sum or the mean of the
/// gradients of all its records.
#[derive(Clone, Copy)]
pub struct Pass<'a> {
    pub(crate) at: &'a Params,
    pub(crate) anchor: Option<&'a Params>,
    pub(crate) records: &'a Records<'a>,
    pub(crate) chosen: &'a [usize],
    pub(crate) dropout: Option<[u8; 32]>,
    pub(crate) steps: &'a [f64],
    pub(crate) rule: Option<&'a WeightRule<'a>>,
    /// A factor for the loss of each class; empty for none.
    pub(crate) class_weights: &'a [f32],
}

/// Chooses the weights of one record, given the norms of its gradient: `rule(norms, weights)`.
///
/// `norms[layer]` is the norm over the parameters of one layer, in the order of [`Network::layers`](crate::Network::layers).
/// `weights[sum * layers + layer]` is the weight of that layer's gradient in a sum. All weights are 0 before the call. A weight
/// that is not finite counts as 0.
///
/// The rule is called once for each record with a finite gradient. Calls come from several threads, in no
/// particular order.
///
/// **Guarantees.** A norm is that of what the record adds to a sum with weight 1, to a few parts in a million. Where it comes
/// from Gram matrices, whose terms may cancel, the worst rounding error is added, so that it may be too large but not too
/// small. Records with norms above 1e18 count as not finite, and the rule is not called for them.
///
/// A caller that clips to a bound `C` with weight `C / norm` should leave a thousandth of `C` for the rounding of the weight
/// to single precision, and of the sum where a record's positions cancel.
pub type WeightRule<'a> = dyn Fn(&[f64], &mut [f32]) + Sync + 'a;

impl<'a> Pass<'a> {
    /// The gradients of the chosen slots, in ascending order, at these parameters, each with weight 1 in one sum.
    pub fn new(at: &'a Params, records: &'a Records<'a>, chosen: &'a [usize]) -> Pass<'a> {
        Pass { at, anchor: None, records, chosen, dropout: None, steps: &[], rule: None, class_weights: &[] }
    }

    /// Replaces gradients by differences: each record's gradient minus its gradient at the anchor.
    ///
    /// With activations `a`, `a'` and output gradients `b`, `b'`, the difference is `(a - a') b + a' (b - b')`. Norms and
    /// sums come from these factors, so they keep their accuracy when the two points are close.
    #[must_use]
    pub fn minus(self, anchor: &'a Params) -> Pass<'a> {
        Pass { anchor: Some(anchor), ..self }
    }

    /// Sets the weights of each record by a rule.
    #[must_use]
    pub fn weighed_by(self, rule: &'a WeightRule<'a>) -> Pass<'a> {
        Pass { rule: Some(rule), ..self }
    }

    /// Multiplies the loss of a record, and so its gradient, by the weight of its class, before norms are computed. Classes without a
    /// weight, and other targets, are not changed.
    #[must_use]
    pub fn with_class_weights(self, weights: &'a [f32]) -> Pass<'a> {
        Pass { class_weights: weights, ..self }
    }

    /// Turns dropout and [views](Records::with_views) on. Masks and views of a record are functions of this key, of the record's place in the data
    /// set and of the number of the view alone.
    #[must_use]
    pub fn with_dropout(self, key: [u8; 32]) -> Pass<'a> {
        Pass { dropout: Some(key), ..self }
    }

    /// Rounds the `i`-th sum of each piece of the batch to multiples of `steps[i]`, a power of two, before the pieces are added up.
    ///
    /// As long as no sum reaches 2^51 steps, pieces are then added up exactly, and sums do not depend on the number of workers.
    /// Without steps, or with a step of 0, pieces are added up in double precision.
    ///
    /// # Panics
    /// If a step is neither 0 nor a power of two.
    #[must_use]
    pub fn rounded_to(self, steps: &'a [f64]) -> Pass<'a> {
        let permitted = |step: f64| step == 0.0 || step > 0.0 && step.to_bits() << 12 == 0;
        assert!(steps.iter().all(|step| permitted(*step)), "steps must be powers of two or 0, got {steps:?}");
        Pass { steps, ..self }
    }

    /// The factor for the loss of a record with this target, if it has one.
    pub(crate) fn class_weight(&self, target: &Target<'_>) -> Option<f32> {
        match target {
            Target::Class(class) => self.class_weights.get(*class as usize).copied(),
            _ => None,
        }
    }

    /// The step of a sum's lattice; 0 for none.
    pub(crate) fn step(&self, sum: usize) -> f64 {
        self.steps.get(sum).copied().unwrap_or(0.0)
    }
}

/// The results of a pass, in the order of the chosen slots. All of them are as private as the records.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// The loss of each record, and the mean loss of the records of a unit; for differences, the loss at the first point.
    pub losses: Vec<f64>,
    /// The gradient norm of each record; empty in a pass without a weight rule.
    pub norms: Vec<f64>,
    /// The places in the batch of records whose loss or gradient was not finite. They added nothing. A unit with one such record adds nothing.
    pub non_finite: Vec<usize>,
}
