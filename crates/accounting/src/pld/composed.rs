//! Reading epsilon and delta off a composed privacy loss, with every error with_errors to the safe side.

use super::moments::Side;
use crate::{
    gaussian::positive_part,
    number::{real_index, signed},
};

/// What is computed from a composed privacy loss.
pub(super) trait PrivacyBounds {
    /// This side's bound on the delta at an epsilon of at least the window's floor.
    fn delta(&self, epsilon: f64) -> f64;
    /// This side's bound on the epsilon at `delta`. None if it lies outside of the window.
    fn epsilon(&self, delta: f64) -> Option<f64>;
}

/// All errors of a composition, with_errors to the safe side.
pub(super) struct NumericalErrors {
    pub lambda: f64,
    pub ln_scale: f64,
    /// The most that a unit of weight counts.
    pub overshoot: f64,
    /// The relative rounding of the masses and of their moments.
    pub rounding: f64,
    /// Mass at infinity.
    pub lost: f64,
    /// Mass from below the window, as a part of delta.
    pub wrapped: f64,
    /// The bound on all other errors of the tilted masses together.
    pub slack: f64,
    pub side: Side,
}

impl NumericalErrors {
    /// What one unit of tilted mass at this loss weighs.
    pub(super) fn weight(&self, loss: f64) -> f64 {
        (self.ln_scale - self.lambda * loss).exp()
    }

    /// This delta with every error with_errors; `weight` is that at the epsilon it belongs to.
    pub(super) fn with_errors(&self, delta: f64, weight: f64) -> f64 {
        let errors = weight * self.overshoot * self.slack + self.wrapped;
        match self.side {
            Side::Upper => (delta + errors) * (1.0 + self.rounding) + self.lost,
            // Two negative factors would give a bound that is not proved.
            Side::Lower => positive_part(delta - errors) * positive_part(1.0 - self.rounding),
        }
    }

    /// The epsilon in `[low, high]` at which `bound` falls to `delta`, to the safe side.
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

/// A composed privacy loss from `floor` on: `tilted[i]` belongs to loss `offset + (first + i) width`.
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

    /// All losses of the window from the largest to the smallest, each with its weight and its mass.
    fn descending(&self) -> impl Iterator<Item = (f64, f64, f64)> {
        // The weight grows by the same factor from index to index; now and then, and where it might have underflowed, it is
        // computed afresh.
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
                // Even at the top of the window it may be exceeded; otherwise it is crossed just above this loss.
                let bound = |epsilon| errors.with_errors(tail.delta(epsilon), errors.weight(epsilon));
                return above.map(|high| errors.crossing(epsilon, high, delta, bound));
            }
            above = Some(epsilon);
            tail.include(loss, mass);
        }
        // Not exceeded anywhere: the answer is 0 if the window reaches down to it.
        (self.floor <= 0.0).then_some(0.0)
    }
}

/// All mass from some loss on upwards, index by index, and the delta it makes. Only positive numbers are added, so that
/// nothing cancels however narrow the marks are.
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

    /// Adds the mass one index below all others.
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
    fn errors_beyond_all_measure_leave_no_lower_bound() {
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
    fn tails_of_huge_losses_neither_over_nor_underflow() {
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
