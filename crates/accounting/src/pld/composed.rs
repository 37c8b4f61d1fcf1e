//! Computes epsilon and delta from a composed privacy loss. All numerical errors are counted on the safe side.

use super::moments::Side;
use crate::{
    gaussian::positive_part,
    number::{real_index, signed},
};

/// A bound on the privacy profile of a composed privacy loss, from above or from below.
pub(super) trait PrivacyBounds {
    /// The bound on delta at an epsilon that is not below the floor of the window.
    fn delta(&self, epsilon: f64) -> f64;
    /// The bound on epsilon at `delta`, or `None` if it is outside the window.
    fn epsilon(&self, delta: f64) -> Option<f64>;
}

/// The bounds on all numerical errors of a composition.
pub(super) struct NumericalErrors {
    pub lambda: f64,
    pub ln_scale: f64,
    /// The largest contribution to delta of tilted mass, relative to its weight.
    pub overshoot: f64,
    /// The relative error of the masses and of their moments.
    pub rounding: f64,
    /// The mass at infinity, which counts as delta.
    pub lost: f64,
    /// The contribution to delta of mass that wraps around from below the window.
    pub wrapped: f64,
    /// The sum of all other errors of the tilted masses.
    pub slack: f64,
    pub side: Side,
}

impl NumericalErrors {
    /// The mass that one unit of tilted mass at this loss stands for.
    pub(super) fn weight(&self, loss: f64) -> f64 {
        (self.ln_scale - self.lambda * loss).exp()
    }

    /// The bound on delta: the computed value plus or minus all errors. `weight` is the weight at its epsilon.
    pub(super) fn with_errors(&self, delta: f64, weight: f64) -> f64 {
        let errors = weight * self.overshoot * self.slack + self.wrapped;
        match self.side {
            Side::Upper => (delta + errors) * (1.0 + self.rounding) + self.lost,
            // The product of two negative factors would be positive, which is not a lower bound.
            Side::Lower => positive_part(delta - errors) * positive_part(1.0 - self.rounding),
        }
    }

    /// The epsilon in `[low, high]` at which `bound` falls to `delta`, rounded to the safe side.
    pub(super) fn crossing(
        &self,
        mut low: f64,
        mut high: f64,
        delta: f64,
        bound: impl Fn(f64) -> f64,
    ) -> f64 {
        for _ in 0..60 {
            let mid = 0.5 * (low + high);
            if bound(mid) > delta { low = mid } else { high = mid }
        }
        match self.side {
            Side::Upper => high,
            Side::Lower => low,
        }
    }
}

/// A composed privacy loss at and above `floor`. `tilted[i]` is the tilted mass at loss `offset + (first + i) width`.
pub(super) struct Composed {
    pub errors: NumericalErrors,
    pub floor: f64,
    pub width: f64,
    pub offset: f64,
    pub first: i64,
    pub tilted: Vec<f64>,
}

impl Composed {
    fn loss(&self, index: usize) -> f64 {
        self.offset + real_index(self.first + signed(index)) * self.width
    }

    /// All losses of the window in descending order, each with its weight and its mass.
    fn descending(&self) -> impl Iterator<Item = (f64, f64, f64)> {
        // The weight grows by a constant factor from one grid point to the next. It is recomputed at regular intervals and where it
        // might have underflowed.
        let factor = (self.errors.lambda * self.width).exp();
        let mut weight = 0.0;
        self.tilted.iter().enumerate().rev().map(move |(i, tilted)| {
            let loss = self.loss(i);
            weight = if weight < 1e-200 || i % 256 == 0 { self.errors.weight(loss) } else { weight * factor };
            (loss, weight, tilted * weight)
        })
    }
}

impl PrivacyBounds for Composed {
    fn delta(&self, epsilon: f64) -> f64 {
        let mut tail = Tail::new(self.width);
        for (loss, _, mass) in self.descending().take_while(|(loss, ..)| *loss > epsilon) {
            tail.include(loss, mass);
        }
        self.errors.with_errors(tail.delta(epsilon), self.errors.weight(epsilon)).clamp(0.0, 1.0)
    }

    /// The largest epsilon at which the bound on delta exceeds `delta`.
    fn epsilon(&self, delta: f64) -> Option<f64> {
        let errors = &self.errors;
        let mut tail = Tail::new(self.width);
        let mut above = None;
        for (loss, weight, mass) in self.descending() {
            let (epsilon, weight) =
                if loss >= self.floor { (loss, weight) } else { (self.floor, errors.weight(self.floor)) };
            if errors.with_errors(tail.delta(epsilon), weight) > delta {
                // The bound crosses `delta` just above this loss, unless it already exceeds it at the top of the window.
                let bound = |epsilon| errors.with_errors(tail.delta(epsilon), errors.weight(epsilon));
                return above.map(|high| errors.crossing(epsilon, high, delta, bound));
            }
            above = Some(epsilon);
            tail.include(loss, mass);
        }
        // The bound exceeds `delta` nowhere, so epsilon is 0 if the window contains 0.
        (self.floor <= 0.0).then_some(0.0)
    }
}

/// All mass at and above some loss, accumulated in descending order, and its contribution to delta. Only positive numbers are added,
/// so there is no cancellation, however narrow the grid is.
struct Tail {
    width: f64,
    lowest: f64,
    mass: f64,
    /// `sum p (1 - e^(lowest - l))`.
    delta_at_lowest: f64,
}

impl Tail {
    fn new(width: f64) -> Self {
        Self { width, lowest: 0.0, mass: 0.0, delta_at_lowest: 0.0 }
    }

    /// Adds the mass of the grid point just below all others.
    fn include(&mut self, loss: f64, mass: f64) {
        self.delta_at_lowest = self.delta_below(self.width);
        self.lowest = loss;
        self.mass += mass;
    }

    /// `sum p (1 - e^(epsilon - l))` at an epsilon of at most the lowest loss.
    fn delta(&self, epsilon: f64) -> f64 {
        self.delta_below(self.lowest - epsilon)
    }

    /// The same at `distance` below the lowest loss.
    fn delta_below(&self, distance: f64) -> f64 {
        -(-distance).exp_m1() * self.mass + (-distance).exp() * self.delta_at_lowest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_errors_leave_no_lower_bound() {
        let errors = |slack, rounding| NumericalErrors {
            lambda: 1.0,
            ln_scale: 0.0,
            overshoot: 1.0,
            rounding,
            lost: 0.0,
            wrapped: 0.0,
            slack,
            side: Side::Lower,
        };
        assert!(errors(0.1, 0.5).with_errors(1.0, 1.0) > 0.0);
        for (slack, rounding) in [(2.0, 0.5), (0.1, 1.5), (2.0, 1.5)] {
            assert!(errors(slack, rounding).with_errors(1.0, 1.0) <= 0.0);
        }
    }

    #[test]
    fn tails_of_huge_losses_do_not_overflow_or_underflow() {
        let (losses, masses) = ([5000.3, 5000.2, 5000.1], [0.1, 0.2, 0.3]);
        let mut tail = Tail::new(0.1);
        for (loss, mass) in losses.iter().zip(masses) {
            tail.include(*loss, mass);
        }
        let epsilon = 4999.9_f64;
        let naive: f64 = losses.iter().zip(masses).map(|(l, p)| p * (1.0 - (epsilon - l).exp())).sum();
        assert!((tail.delta(epsilon) - naive).abs() < 1e-12);
    }
}
