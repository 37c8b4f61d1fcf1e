//! The discretisation of all steps of a plan, from above and from below.

use rayon::prelude::*;

use super::{
    compose,
    ladder::{FarEnd, Ladder, Rung, ladder},
    moments::{Polygons, RungPolygons, Target},
    out_of_reach,
    pair::Pair,
    polygon::{self, Direction, LossGrid, Polygon},
};
use crate::{AccountingError, Bracket, number::real};

/// The cell width of the first grid, relative to the root mean square of the steps' standard deviations.
const FIRST_WIDTH: f64 = 0.055;
/// How much wider the cells of the lower bound are. Its polygons are closer to the curve, and the upper bound is the one to report.
const LOWER_WIDTH: f64 = 2.0;
/// The relative distance of the rungs of the first ladder.
pub(super) const FIRST_SPACING: f64 = 0.02;
/// The mass of all steps outside their grids, relative to delta.
const TRUNCATED: f64 = 1e-6;
/// The largest loss of a step. Beyond it the likelihood ratio would overflow.
const MAX_LOSS: f64 = 600.0;
/// The largest number of grid points of all rungs together: about a second of work.
const MAX_CORNERS: f64 = 6e6;
/// The smallest cell width. Losses of narrower cells cannot be distinguished from 0 in floating point.
const MIN_WIDTH: f64 = 1e-12;

/// All rungs of a ladder, discretised from above and from below.
pub(super) struct Discretisation {
    pub ladder: Ladder,
    pub upper: Polygons,
    pub lower: Polygons,
}

impl Discretisation {
    pub(super) fn new(
        pairs: &[(Pair, u64)],
        width: f64,
        spacing: f64,
        target: Target,
    ) -> Result<Self, AccountingError> {
        let ladder = ladder(pairs, spacing);
        let tail = tail(pairs, target);
        check_limits(&ladder, tail, width)?;
        let grid_around = |rung: &Rung, width: f64| {
            let grid = LossGrid::fitted(|loss| rung.pair.at(loss), width);
            // The far end has the larger losses, so its support covers both.
            let (low, high) = rung.far.map_or(rung.pair, |far| far.pair).support(tail);
            let (first, last) = grid.around(low.min(rung.pair.support(tail).0), high);
            (grid, first, last)
        };
        let upper = |rung: &Rung| {
            let (grid, first, last) = grid_around(rung, width);
            let above =
                |pair: Pair| polygon::above(grid.losses(first, last).map(|loss| pair.at(loss)), grid, first);
            RungPolygons { near: above(rung.pair), far: rung.far.map(|far| above(far.pair)) }
        };
        let lower = |rung: &Rung| {
            let near = rung.pair;
            let (grid, first, last) = grid_around(rung, LOWER_WIDTH * width);
            let points: Vec<_> = grid.cell_middles(first, last).map(|loss| (loss, near.at(loss))).collect();
            let tangent = |far: FarEnd| {
                let stretched = points.iter().map(|&(loss, point)| near.stretched(point, loss, far.stretch));
                polygon::below(stretched, grid, first)
            };
            let below = polygon::below(points.iter().map(|&(_, point)| point), grid, first);
            RungPolygons { near: below, far: rung.far.map(tangent) }.on_one_grid()
        };
        let (upper, lower) = rayon::join(
            || ladder.rungs.par_iter().map(upper).collect::<Vec<_>>(),
            || ladder.rungs.par_iter().map(lower).collect::<Vec<_>>(),
        );
        let polygons =
            upper.iter().chain(&lower).flat_map(|rung| std::iter::once(&rung.near).chain(&rung.far));
        if !polygons.into_iter().all(Polygon::is_whole) {
            return Err(out_of_reach("the discretised mass of a step is not 1".to_owned()));
        }
        let least_mu = ladder.rungs.iter().map(|rung| rung.pair.mu).fold(f64::INFINITY, f64::min);
        let has_record_groups = ladder.rungs.iter().any(|rung| rung.pair.group > 1);
        let polygons = |width, rungs| Polygons { width, least_mu, has_record_groups, rungs };
        let (upper, lower) = (polygons(width, upper), polygons(LOWER_WIDTH * width, lower));
        Ok(Self { ladder, upper, lower })
    }

    /// The bracket of the worse direction: the larger of the two lower and of the two upper bounds.
    pub(super) fn bracket(&self, target: Target) -> Result<Bracket<f64>, AccountingError> {
        let one = |direction| compose::bracket(&self.ladder, &self.upper, &self.lower, direction, target);
        let (remove, add) = rayon::join(|| one(Direction::Remove), || one(Direction::Add));
        let (remove, add) = (remove?, add?);
        Ok(Bracket { lower: remove.lower.max(add.lower), upper: remove.upper.max(add.upper) })
    }
}

impl Discretisation {
    /// Upper bounds on delta at these ascending epsilons, in the worse direction.
    pub(super) fn upper_deltas(&self, epsilons: &[f64]) -> Result<Vec<f64>, AccountingError> {
        let one = |direction| compose::upper_deltas(&self.ladder, &self.upper, direction, epsilons);
        let (remove, add) = rayon::join(|| one(Direction::Remove), || one(Direction::Add));
        Ok(remove?.into_iter().zip(add?).map(|(remove, add)| remove.max(add)).collect())
    }
}

/// Refuses losses that would overflow, and grids that are too long or too fine.
fn check_limits(ladder: &Ladder, tail: f64, width: f64) -> Result<(), AccountingError> {
    for Rung { pair, .. } in &ladder.rungs {
        let (_, high) = pair.support(tail);
        if !(high <= MAX_LOSS) {
            return Err(out_of_reach(format!(
                "a single step with noise multiplier {:.4} has privacy losses up to {high:.1}; the limit is {MAX_LOSS}",
                1.0 / pair.mu
            )));
        }
    }
    let corners = ladder.rungs.iter().map(|rung| rung.work(tail)).sum::<f64>() / width;
    if !(corners <= 1.01 * MAX_CORNERS && width >= MIN_WIDTH) {
        return Err(out_of_reach(format!(
            "it would need {corners:.1e} grid points of width {width:.1e}; the limits are {MAX_CORNERS:.1e} points \
             and a width of {MIN_WIDTH:.1e}"
        )));
    }
    Ok(())
}

/// The mass that may be outside each end of the grid of a step.
fn tail(pairs: &[(Pair, u64)], target: Target) -> f64 {
    let steps: f64 = pairs.iter().map(|(_, count)| real(*count)).sum();
    let delta = match target {
        Target::Delta(delta) => delta,
        // Delta is not known yet. This value is below every delta that matters.
        Target::Epsilon(_) => 1e-20,
    };
    TRUNCATED * delta / steps
}

impl Rung {
    /// The number of grid points of this rung times the cell width, weighted by the work per point.
    fn work(&self, tail: f64) -> f64 {
        let (low, high) = self.far.map_or(self.pair, |far| far.pair).support(tail);
        // For groups of records the loss is inverted numerically at every point.
        let effort = if self.pair.group > 1 { 5.0 * f64::from(self.pair.group) } else { 1.0 };
        (high - low) * effort * if self.far.is_some() { 3.0 } else { 1.5 }
    }
}

/// The cell width of the first grid: a fraction of the root mean square of the steps' standard deviations.
pub(super) fn first_width(pairs: &[(Pair, u64)]) -> f64 {
    let steps: f64 = pairs.iter().map(|(_, count)| real(*count)).sum();
    let variance = |pair: &Pair| {
        let (low, high) = pair.support(1e-9);
        let shift = f64::from(pair.group) * pair.mu;
        (pair.rate.powi(2) * (shift * shift).exp_m1()).min(((high - low) / 8.0).powi(2))
    };
    // With few steps, narrower cells have no noticeable cost.
    let narrowing = (steps / 1e4).powf(0.2).clamp(0.5, 1.0);
    narrowing
        * FIRST_WIDTH
        * (pairs.iter().map(|(pair, count)| real(*count) * variance(pair)).sum::<f64>() / steps).sqrt()
}

/// The smallest cell width that the limit on the number of grid points permits.
pub(super) fn least_width(pairs: &[(Pair, u64)], target: Target) -> f64 {
    let rungs = ladder(pairs, FIRST_SPACING).rungs;
    rungs.iter().map(|rung| rung.work(tail(pairs, target))).sum::<f64>() / MAX_CORNERS
}
