//! Exponential moments of composed privacy losses, which determine the tilt and the length of the window.

use super::{
    ladder::StepGroup,
    polygon::{Direction, LossDistribution, Polygon},
};
use crate::{
    number::{real, real_index, signed},
    search::minimum,
};

/// Which bound a composition computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Upper,
    Lower,
}

/// The question that a composition answers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    /// The delta at this epsilon.
    Epsilon(f64),
    /// The epsilon at this delta.
    Delta(f64),
}

/// The polygons of one rung: at the rung itself and at the far end of its interval.
pub(super) struct RungPolygons {
    pub near: Polygon,
    pub far: Option<Polygon>,
}

impl RungPolygons {
    /// Puts both polygons on the same grid, which mixing them requires. If one of them is the polygon of two equal distributions, which
    /// has a grid of its own, it replaces the other one. For lower bounds that is always valid.
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

/// The polygons of all rungs, on grids of the same width.
pub(super) struct Polygons {
    pub width: f64,
    /// The smallest `mu` of all rungs, on which the accuracy of the masses depends.
    pub least_mu: f64,
    /// Whether some rungs are about groups of records, whose masses are less accurate.
    pub has_record_groups: bool,
    pub rungs: Vec<RungPolygons>,
}

/// The privacy losses of one rung in one direction.
pub(super) struct RungLosses {
    pub near: LossDistribution,
    pub far: Option<LossDistribution>,
}

/// The privacy losses of all steps in one direction, for one of the two bounds.
pub(super) struct StepLosses<'a> {
    pub rungs: Vec<RungLosses>,
    pub step_groups: &'a [StepGroup],
    pub side: Side,
    pub width: f64,
    pub least_mu: f64,
    pub has_record_groups: bool,
}

/// The tilt of all steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tilt {
    pub lambda: f64,
    /// The additional tilt that minimises [`chernoff_quantile`](StepLosses::chernoff_quantile).
    pub chernoff_tilt: f64,
    /// The Renyi bound on the target, as a first estimate.
    pub renyi_bound: f64,
    /// By how much tilted mass must decrease, as a logarithm, before it may wrap around to the other end of the window.
    pub fall: f64,
}

/// The exponentials of one tilt at all grid points, shared by all rungs.
enum Exponentials {
    /// `e^(lambda k width) - 1` for `k = first, first + 1, ...`. Moments are 1 plus a small number, which has a high relative accuracy in
    /// this form. The rounding errors of many steps then add up to a multiple of their [`drift`](LossDistribution::drift).
    Growth { lambda: f64, first: i64, values: Vec<f64> },
    /// `e^(-|lambda| k width)` for `k = 0, 1, ...`, where the first form would overflow.
    Decay { lambda: f64, width: f64, values: Vec<f64> },
}

/// The largest product of a tilt and a loss for which the first form is used.
const MAX_GROWTH: f64 = 30.0;

/// The largest contribution of one unit of tilted mass to delta, `max_l e^(-lambda l) (1 - e^(-l))`, as a logarithm. It is below 0
/// because losses just above epsilon contribute little.
///
/// With `lambda = alpha - 1` this is the difference between the improved conversion of Renyi divergences and Chernoff's bound.
pub(super) fn ln_overshoot(lambda: f64) -> f64 {
    -lambda * (1.0 / lambda).ln_1p() - lambda.ln_1p()
}

impl StepGroup {
    pub(super) fn steps(&self) -> f64 {
        real(self.count)
    }

    /// The position between the rung and its far end, rounded to the safe side.
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
            // Relative to the outermost loss, to prevent overflow.
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

    /// `E|e^(lambda l) - 1|`, or `None` where moments are not computed by [`Exponentials::Growth`]. If every mass has a relative error of
    /// at most `r`, the moment of the distribution, normalised to total mass 1, has an error of at most `2 r` times this.
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

    /// The number of grid points of the longest distribution.
    pub(super) fn longest(&self) -> i64 {
        let all = self.rungs.iter().flat_map(|rung| std::iter::once(&rung.near).chain(&rung.far));
        signed(all.map(|losses| losses.mass.len()).max().unwrap_or(0))
    }

    /// The logarithms of the moments of every rung, near and far.
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

    /// The logarithm of the moment of one step.
    pub(super) fn ln_blended(&self, group: &StepGroup, ln_moments: &[(f64, f64)]) -> f64 {
        let (near, far) = ln_moments[group.rung];
        let s = group.blend(self.side);
        if s <= 0.0 { near } else { near + (s * (far - near).exp_m1()).ln_1p() }
    }

    /// `Lambda(lambda)`, the logarithm of the moment of the composed loss.
    pub(super) fn ln_moment(&self, lambda: f64) -> f64 {
        let ln_moments = self.ln_moments(lambda);
        self.step_groups.iter().map(|group| group.steps() * self.ln_blended(group, &ln_moments)).sum()
    }

    /// The variance of the composed loss under a tilt, from a second difference.
    fn variance(&self, lambda: f64, step: f64) -> f64 {
        let ends = self.ln_moment(lambda + step) + self.ln_moment(lambda - step);
        ((ends - 2.0 * self.ln_moment(lambda)) / (step * step)).max(1e-30)
    }

    /// The same steps on a coarser grid, which is accurate enough for choosing tilts.
    pub(super) fn coarsened(&self) -> Self {
        const COARSENING: i64 = 8;
        let merge = |losses: &LossDistribution| {
            let first = losses.first.div_euclid(COARSENING);
            let mut mass = vec![0.0; losses.mass.len() / 8 + 3];
            for (index, p) in (losses.first..).zip(&losses.mass) {
                // Split between the two neighbouring coarse grid points, which preserves the mean.
                let below = usize::try_from(index.div_euclid(COARSENING) - first).expect("indices ascend");
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

    /// The tilt that minimises the Renyi bound on the target (epsilon, or the logarithm of delta), and that bound.
    fn renyi(&self, target: Target) -> (f64, f64) {
        // About the best tilt of a Gaussian with the same variance.
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

    /// The largest tilt. Beyond it nearly all tilted mass is at the largest loss of the grid, and the bound has no minimum.
    fn steepest(&self) -> f64 {
        10.0 / self.width
    }

    /// The tilt with the shortest window, among that of the Renyi bound and a few smaller ones. A larger tilt emphasises rare large
    /// losses, which lengthen the window but hardly contribute to delta. A smaller tilt amplifies all errors, so the amplification is
    /// limited.
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
            let window =
                (self.chernoff_quantile(lambda, chernoff_tilt, outside) - epsilon).max(fall / lambda);
            Some((window, Tilt { lambda, chernoff_tilt, renyi_bound, fall }))
        });
        let shortest = candidates.into_iter().flatten().min_by(|(a, _), (b, _)| a.total_cmp(b));
        shortest.expect("the first candidate is always there").1
    }

    /// The tilt in addition to `lambda` that minimises [`chernoff_quantile`](Self::chernoff_quantile).
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

    /// A loss that the tilted sum exceeds with probability at most `outside`, by Chernoff's bound
    /// `Pr[S >= s] <= e^(Lambda(lambda + t) - Lambda(lambda) - t s)`.
    pub(super) fn chernoff_quantile(&self, lambda: f64, tilt: f64, outside: f64) -> f64 {
        (self.ln_moment(lambda + tilt) - self.ln_moment(lambda) - outside.ln()) / tilt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overshoot_is_the_largest_contribution() {
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
