//! Reading epsilon and delta off a composed privacy loss, with every error charged to the safe side.

use super::moments::{Side, float};

/// A composed privacy loss from `floor` on: `tilted[i]` belongs to loss `offset + (first + i) width`.
pub(super) struct Composed {
    pub floor: f64,
    pub width: f64,
    pub offset: f64,
    pub first: i64,
    pub tilted: Vec<f64>,
    pub lambda: f64,
    pub ln_scale: f64,
    /// The most that a unit of worth counts.
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

impl Composed {
    #[expect(clippy::cast_possible_wrap, reason = "an index of a vector")]
    fn loss(&self, index: usize) -> f64 {
        self.offset + float(self.first + index as i64) * self.width
    }

    /// What one unit of tilted mass at this loss weighs.
    fn worth(&self, loss: f64) -> f64 {
        (self.ln_scale - self.lambda * loss).exp()
    }

    /// Delta at `epsilon` from the mass above it, with every error charged; `worth` is that at `epsilon`.
    fn charged(&self, epsilon: f64, worth: f64, tail: &Tail) -> f64 {
        let plain = tail.delta(epsilon);
        let errors = worth * self.overshoot * self.slack + self.wrapped;
        match self.side {
            Side::Upper => (plain + errors) * (1.0 + self.rounding) + self.lost,
            Side::Lower => (plain - errors) * (1.0 - self.rounding),
        }
    }

    /// All losses of the window from the largest to the smallest, each with its worth and its mass.
    fn descending(&self) -> impl Iterator<Item = (f64, f64, f64)> {
        // The worth grows by the same factor from mark to mark; now and then, and where it might have underflowed, it is
        // computed afresh.
        let factor = (self.lambda * self.width).exp();
        let mut worth = 0.0;
        self.tilted.iter().enumerate().rev().map(move |(i, tilted)| {
            let loss = self.loss(i);
            worth = if worth < 1e-200 || i % 256 == 0 { self.worth(loss) } else { worth * factor };
            (loss, worth, tilted * worth)
        })
    }

    /// This side's bound on the delta at an epsilon of at least `floor`.
    pub(super) fn delta(&self, epsilon: f64) -> f64 {
        let mut tail = Tail::new(self.width);
        for (loss, _, mass) in self.descending().take_while(|(loss, ..)| *loss > epsilon) {
            tail.include(loss, mass);
        }
        self.charged(epsilon, self.worth(epsilon), &tail).clamp(0.0, 1.0)
    }

    /// This side's bound on the epsilon at `delta`: the largest epsilon at which the bound on delta exceeds `delta`. None
    /// if that lies outside of the window.
    pub(super) fn epsilon(&self, delta: f64) -> Option<f64> {
        let mut tail = Tail::new(self.width);
        let mut above = None;
        for (loss, worth, mass) in self.descending() {
            let (epsilon, worth) =
                if loss >= self.floor { (loss, worth) } else { (self.floor, self.worth(self.floor)) };
            if self.charged(epsilon, worth, &tail) > delta {
                // Even at the top of the window it may be exceeded; otherwise it is crossed just above this loss.
                return above.map(|high| self.crossing(epsilon, high, &tail, delta));
            }
            above = Some(epsilon);
            tail.include(loss, mass);
        }
        // Not exceeded anywhere: the answer is 0 if the window reaches down to it.
        (self.floor <= 0.0).then_some(0.0)
    }

    /// The epsilon in `[low, high]` at which the bound falls to `delta`, to the safe side.
    fn crossing(&self, mut low: f64, mut high: f64, tail: &Tail, delta: f64) -> f64 {
        for _ in 0..60 {
            let mid = 0.5 * (low + high);
            if self.charged(mid, self.worth(mid), tail) > delta { low = mid } else { high = mid }
        }
        match self.side {
            Side::Upper => high,
            Side::Lower => low,
        }
    }
}

/// All mass from some loss on upwards, mark by mark, and the delta it makes. Only positive numbers are added, so that
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

    /// Adds the mass one mark below all others.
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
