//! Exponential moments of composed privacy losses: where to tilt, and how far the tilted loss reaches.

use super::{
    ladder::StepGroup,
    polygon::{Direction, LossDistribution, Polygon},
};
use crate::{
    number::{real, real_index, signed},
    search::minimum,
};

/// Which end of the bracket a composition serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Upper,
    Lower,
}

/// What is asked of a composition.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    /// The delta at this epsilon.
    Epsilon(f64),
    /// The epsilon at this delta.
    Delta(f64),
}

/// The polygons of one rung: at the rung itself, and at the far end of its interval.
pub(super) struct RungPolygons {
    pub near: Polygon,
    pub far: Option<Polygon>,
}

impl RungPolygons {
    /// Blending needs both polygons on the same marks. One that has collapsed to loss 0 is not, and takes the other one with
    /// it: from below, that is always permitted.
    pub(super) fn on_one_grid(mut self) -> Self {
        if let Some(far) = &mut self.far {
            if self.near.is_indistinguishable() {
                *far = self.near.clone();
            } else if far.is_indistinguishable() {
                self.near = far.clone();
            }
        }
        self
    }
}

/// All rungs' polygons on grids of one width.
pub(super) struct Polygons {
    pub width: f64,
    /// The least `mu` of all rungs, and whether any of them is of a group: how accurate masses are depends on both.
    pub least_mu: f64,
    pub has_record_groups: bool,
    pub rungs: Vec<RungPolygons>,
}

/// One rung's privacy losses in one direction.
pub(super) struct RungLosses {
    pub near: LossDistribution,
    pub far: Option<LossDistribution>,
}

/// All steps in one direction, at one side of the bracket.
pub(super) struct StepLosses<'a> {
    pub rungs: Vec<RungLosses>,
    pub step_groups: &'a [StepGroup],
    pub side: Side,
    pub width: f64,
    pub least_mu: f64,
    pub has_record_groups: bool,
}

/// How to tilt all steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tilt {
    pub lambda: f64,
    /// The tilt on top of it with which Chernoff's bound reaches least far.
    pub chernoff_tilt: f64,
    /// Renyi's bound on the target, for a first idea of the answer.
    pub renyi_bound: f64,
    /// How far tilted mass must fall, as a logarithm, before it may come back at the window's other end.
    pub fall: f64,
}

/// Exponentials of one tilt at all marks, shared by all rungs.
enum Exponentials {
    /// `e^(lambda k width) - 1` for `k = first, first + 1, ...`: moments are 1 plus a small number, and that number keeps its
    /// relative accuracy. What the rounding of a step adds up to over many steps is then relative to its [`drift`](LossDistribution::drift).
    Growth { lambda: f64, first: i64, values: Vec<f64> },
    /// `e^(-|lambda| k width)` for `k = 0, 1, ...`, where the others would overflow.
    Decay { lambda: f64, width: f64, values: Vec<f64> },
}

/// A tilt times a loss up to which exponentials are formed by growth.
const MAX_GROWTH: f64 = 30.0;

/// The most that one unit of tilted mass can add to delta, `max_l e^(-lambda l) (1 - e^(-l))`, as a logarithm: a loss
/// just above epsilon hardly counts.
///
/// With `lambda = alpha - 1` this is what separates the improved conversion of Renyi divergences from Chernoff's
/// bound.
pub(super) fn ln_overshoot(lambda: f64) -> f64 {
    -lambda * (1.0 / lambda).ln_1p() - lambda.ln_1p()
}

impl StepGroup {
    pub(super) fn steps(&self) -> f64 {
        real(self.count)
    }

    /// The position on the way to the rung's far end.
    pub(super) fn blend(&self, side: Side) -> f64 {
        match side {
            Side::Upper => self.blend_high,
            Side::Lower => self.blend_low,
        }
    }
}

impl LossDistribution {
    /// `ln sum_i mass_i e^(lambda l_i)`, for a total mass of 1.
    fn ln_moment(&self, exponentials: &Exponentials) -> f64 {
        let weigh = |(mass, value): (&f64, &f64)| mass * value;
        match exponentials {
            Exponentials::Growth { lambda, first, values } => {
                let start =
                    usize::try_from(self.first - first).expect("the table begins with the lowest losses");
                let sum: f64 = self.mass.iter().zip(&values[start..]).map(weigh).sum();
                let shift = lambda * self.offset;
                (shift.exp_m1() + shift.exp() * sum).ln_1p()
            }
            // Relative to the outermost loss, so that nothing overflows.
            Exponentials::Decay { lambda, width, values } => {
                let (sum, outermost): (f64, i64) = if *lambda > 0.0 {
                    (
                        self.mass.iter().rev().zip(values).map(weigh).sum(),
                        self.first + signed(self.mass.len()) - 1,
                    )
                } else {
                    (self.mass.iter().zip(values).map(weigh).sum(), self.first)
                };
                sum.ln() + lambda * (self.offset + real_index(outermost) * width)
            }
        }
    }

    /// The largest absolute loss on the grid.
    fn extreme(&self, width: f64) -> f64 {
        let loss = |index: i64| (self.offset + real_index(index) * width).abs();
        loss(self.first).max(loss(self.first + signed(self.mass.len()) - 1))
    }

    /// `E|e^(lambda l) - 1|`, and none where moments are not formed by growth. If every mass is off by a relative error of `r`, the
    /// moment of the losses with total mass 1 is off by at most `2 r` times this.
    pub(super) fn drift(&self, lambda: f64, width: f64) -> Option<f64> {
        let growth = |(index, mass): (i64, &f64)| {
            mass * (lambda * (self.offset + real_index(index) * width)).exp_m1().abs()
        };
        (lambda * self.extreme(width) <= MAX_GROWTH).then(|| (self.first..).zip(&self.mass).map(growth).sum())
    }
}

impl<'a> StepLosses<'a> {
    pub(super) fn new(
        polygons: &Polygons,
        step_groups: &'a [StepGroup],
        direction: Direction,
        side: Side,
    ) -> Self {
        let rungs = |rung: &RungPolygons| RungLosses {
            near: rung.near.losses(direction),
            far: rung.far.as_ref().map(|far| far.losses(direction)),
        };
        let Polygons { width, least_mu, has_record_groups, .. } = *polygons;
        Self {
            rungs: polygons.rungs.iter().map(rungs).collect(),
            step_groups,
            side,
            width,
            least_mu,
            has_record_groups,
        }
    }

    /// The number of steps.
    pub(super) fn count(&self) -> f64 {
        self.step_groups.iter().map(StepGroup::steps).sum()
    }

    /// The number of marks of the longest losses.
    pub(super) fn longest(&self) -> i64 {
        let all = self.rungs.iter().flat_map(|rung| std::iter::once(&rung.near).chain(&rung.far));
        signed(all.map(|losses| losses.mass.len()).max().unwrap_or(0))
    }

    /// The logarithms of all rungs' moments, rung by rung, near and far.
    pub(super) fn ln_moments(&self, lambda: f64) -> Vec<(f64, f64)> {
        let exponentials = self.exponentials(lambda);
        let far = |rung: &RungLosses| {
            rung.far.as_ref().map_or(f64::NEG_INFINITY, |far| far.ln_moment(&exponentials))
        };
        self.rungs.iter().map(|rung| (rung.near.ln_moment(&exponentials), far(rung))).collect()
    }

    fn exponentials(&self, lambda: f64) -> Exponentials {
        let all = || self.rungs.iter().flat_map(|rung| std::iter::once(&rung.near).chain(&rung.far));
        let extreme = all().map(|losses| losses.extreme(self.width)).fold(0.0, f64::max);
        if lambda.abs() * extreme <= MAX_GROWTH {
            let first = all().map(|losses| losses.first).min().unwrap_or(0);
            let end = all().map(|losses| losses.first + signed(losses.mass.len())).max().unwrap_or(0);
            let values = (first..end).map(|k| (lambda * real_index(k) * self.width).exp_m1()).collect();
            return Exponentials::Growth { lambda, first, values };
        }
        let values =
            (0..self.longest()).map(|k| (-lambda.abs() * real_index(k) * self.width).exp()).collect();
        Exponentials::Decay { lambda, width: self.width, values }
    }

    /// The logarithm of one step's moment.
    pub(super) fn ln_blended(&self, group: &StepGroup, ln_moments: &[(f64, f64)]) -> f64 {
        let (near, far) = ln_moments[group.rung];
        let s = group.blend(self.side);
        if s <= 0.0 { near } else { near + (s * (far - near).exp_m1()).ln_1p() }
    }

    /// `Lambda(lambda)`, the logarithm of the composed loss' moment.
    pub(super) fn ln_moment(&self, lambda: f64) -> f64 {
        let ln_moments = self.ln_moments(lambda);
        self.step_groups.iter().map(|group| group.steps() * self.ln_blended(group, &ln_moments)).sum()
    }

    /// The variance of the composed loss under a tilt, from a second difference.
    fn variance(&self, lambda: f64, step: f64) -> f64 {
        let ends = self.ln_moment(lambda + step) + self.ln_moment(lambda - step);
        ((ends - 2.0 * self.ln_moment(lambda)) / (step * step)).max(1e-30)
    }

    /// The same steps on a coarser grid, good enough to choose tilts with.
    pub(super) fn coarsened(&self) -> Self {
        const COARSENING: i64 = 8;
        let merge = |losses: &LossDistribution| {
            let first = losses.first.div_euclid(COARSENING);
            let mut mass = vec![0.0; losses.mass.len() / 8 + 3];
            for (index, p) in (losses.first..).zip(&losses.mass) {
                // Split between the two neighbouring coarse marks, which keeps the mean.
                let below = usize::try_from(index.div_euclid(COARSENING) - first).expect("marks ascend");
                let part = real_index(index.rem_euclid(COARSENING)) / real_index(COARSENING);
                mass[below] += p * (1.0 - part);
                mass[below + 1] += p * part;
            }
            LossDistribution { offset: losses.offset, first, mass, lost: losses.lost }
        };
        let rungs = self
            .rungs
            .iter()
            .map(|rung| RungLosses { near: merge(&rung.near), far: rung.far.as_ref().map(merge) });
        Self { rungs: rungs.collect(), width: self.width * real_index(COARSENING), ..*self }
    }

    /// The tilt at which Renyi's bound on the target (on epsilon, or on the logarithm of delta) is lowest, and that
    /// bound.
    fn renyi(&self, target: Target) -> (f64, f64) {
        // A Gaussian with the same variance would want about this tilt.
        let deviation = self.variance(0.0, 1e-4 / self.width).sqrt();
        let start = match target {
            Target::Delta(delta) => (1.0 - 2.0 * delta.ln()).sqrt() / deviation,
            Target::Epsilon(epsilon) => (epsilon / deviation).max(1.0) / deviation,
        };
        let bound = |lambda: f64| {
            if lambda > self.steepest() {
                return f64::INFINITY;
            }
            let ln_worst = self.ln_moment(lambda) + ln_overshoot(lambda);
            match target {
                Target::Delta(delta) => (ln_worst - delta.ln()) / lambda,
                Target::Epsilon(epsilon) => ln_worst - lambda * epsilon,
            }
        };
        minimum(bound, start.min(self.steepest()), 0.1)
    }

    /// A tilt beyond which only the largest loss on the grid would be left; bounded losses would ask for ever more.
    fn steepest(&self) -> f64 {
        10.0 / self.width
    }

    /// The tilt with which the window can be shortest, among Renyi's and a few below it. A larger tilt makes more of rare
    /// large losses, which need room without mattering to delta; a smaller one makes more of all errors, and may not make
    /// too much of them.
    pub(super) fn tilt(&self, target: Target, ln_wrapped: f64, outside: f64) -> Tilt {
        const LN_AMPLIFIED: f64 = 5.0;
        let (lambda, renyi_bound) = self.renyi(target);
        let (ln_delta, epsilon) = match target {
            Target::Delta(delta) => (delta.ln(), renyi_bound),
            Target::Epsilon(epsilon) => (renyi_bound.min(0.0), epsilon),
        };
        let fall = -(ln_delta + ln_wrapped);
        let candidates = [1.0, 0.7, 0.5, 0.35].map(|factor| {
            let lambda = factor * lambda;
            let ln_amplified = self.ln_moment(lambda) + ln_overshoot(lambda) - lambda * epsilon - ln_delta;
            if factor < 1.0 && !(ln_amplified < LN_AMPLIFIED) {
                return None;
            }
            let chernoff_tilt = self.chernoff_tilt(lambda, outside);
            let extent =
                (self.chernoff_quantile(lambda, chernoff_tilt, outside) - epsilon).max(fall / lambda);
            Some((extent, Tilt { lambda, chernoff_tilt, renyi_bound, fall }))
        });
        let shortest = candidates.into_iter().flatten().min_by(|(a, _), (b, _)| a.total_cmp(b));
        shortest.expect("the first candidate is always there").1
    }

    /// The tilt on top of `lambda` with which Chernoff's bound reaches least far.
    fn chernoff_tilt(&self, lambda: f64, outside: f64) -> f64 {
        let start = (-2.0 * outside.ln() / self.variance(lambda, 0.01 * lambda)).sqrt();
        let ln_scale = self.ln_moment(lambda);
        let quantile = |t: f64| {
            if t > self.steepest() {
                f64::INFINITY
            } else {
                (self.ln_moment(lambda + t) - ln_scale - outside.ln()) / t
            }
        };
        minimum(quantile, start.min(self.steepest()), 0.2).0
    }

    /// A loss that the tilted sum exceeds with probability at most `outside`: Chernoff's
    /// `Pr[S >= s] <= e^(Lambda(lambda + t) - Lambda(lambda) - t s)`.
    pub(super) fn chernoff_quantile(&self, lambda: f64, tilt: f64, outside: f64) -> f64 {
        (self.ln_moment(lambda + tilt) - self.ln_moment(lambda) - outside.ln()) / tilt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overshoot_is_the_largest_weight() {
        for lambda in [0.01, 0.7, 3.0, 500.0_f64] {
            let weight = |l: f64| -lambda * l + (-(-l).exp_m1()).ln();
            let largest =
                (1..200_000).map(|i| weight(f64::from(i) * 1e-4 / lambda.min(1.0))).fold(f64::MIN, f64::max);
            assert!(
                (ln_overshoot(lambda) - largest).abs() < 1e-3,
                "{lambda}: {} {largest}",
                ln_overshoot(lambda)
            );
            assert!(ln_overshoot(lambda) >= largest - 1e-12);
        }
    }
}
