//! Encloses a hockey-stick curve between two polygons with corners on a grid, one above the curve and one below.
//!
//! A polygon with corners at `y_i = e^(i h)` is the hockey-stick curve of a pair of distributions whose privacy loss takes only
//! the values `i h`: the change of slope at a corner, times `y_i`, is the mass of `P` there. If one curve is above (below)
//! another, its pair is easier (harder) to distinguish, and this is preserved under composition.
//!
//! - **Above**: connect the dots. The chords of a convex curve are above it.
//! - **Below**: connect points on tangents. The tangent at the middle of a cell is below the curve. Each corner takes the lower
//!   of the two neighbouring tangents, so every side of the polygon is below the tangent of its cell. Where that polygon is not
//!   convex, its lower convex hull is used.
//!
//! The errors of both are of the order of the squared cell width, in opposite directions, which makes the bracket narrow.
//!
//! # References
//! Doroshenko, Ghazi, Kamath, Kumar and Manurangsi, "Connect the Dots: Tighter Discrete Approximations of Privacy
//! Loss Distributions" (2022), for the polygon above and the meaning of corners.

use super::pair::Point;
use crate::{
    gaussian::positive_part,
    number::{real_index, real_length, signed},
};

/// The order of the two hypotheses. Both orders must be composed, because neither is always the worse one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// The privacy loss under the data set with the record, relative to the one without it.
    Remove,
    /// The privacy loss under the data set without the record, relative to the one with it.
    Add,
}

/// The losses `offset + i width`, at which polygons have their corners.
///
/// All steps have the same width. Offsets may differ from step to step, because offsets add up.
#[derive(Debug, Clone, Copy)]
pub(super) struct LossGrid {
    pub width: f64,
    pub offset: f64,
}

impl LossGrid {
    /// A grid with a point where most of the mass is. If rare large losses force wide cells, nearly all mass is inside a single
    /// cell, and a grid point at the centre of that mass keeps the discretisation accurate.
    pub(super) fn fitted(curve: impl Fn(f64) -> Point, width: f64) -> Self {
        let middle = 0.5 * width;
        let Point { left, below, .. } = curve(middle);
        // P(L <= l) = y Q(L <= l) - left(y).
        let offset = (middle.exp() - left / below).ln();
        Self { width, offset: if offset.is_finite() { offset } else { 0.0 } }
    }

    fn loss(&self, index: i64) -> f64 {
        self.offset + real_index(index) * self.width
    }

    /// The losses of the grid points from index `first` to index `last`.
    pub(super) fn losses(self, first: i64, last: i64) -> impl Iterator<Item = f64> {
        (first..=last).map(move |index| self.loss(index))
    }

    /// The middles of all cells around these grid points. There is one more than there are grid points.
    pub(super) fn cell_middles(self, first: i64, last: i64) -> impl Iterator<Item = f64> {
        (first..=last + 1).map(move |index| self.loss(index) - 0.5 * self.width)
    }

    /// The indices of the grid points just outside an interval that contains `low`, `high` and 0.
    #[expect(clippy::cast_possible_truncation, reason = "callers limit the number of grid points")]
    pub(super) fn around(&self, low: f64, high: f64) -> (i64, i64) {
        let position = |loss: f64| (loss - self.offset) / self.width;
        (position(low.min(0.0)).floor() as i64 - 1, position(high.max(0.0)).ceil() as i64 + 1)
    }
}

/// The distribution of a privacy loss on a grid: `mass[i]` at loss `offset + (first + i) width`, and `lost` at infinity.
#[derive(Debug, Clone)]
pub(super) struct LossDistribution {
    pub offset: f64,
    pub first: i64,
    pub mass: Vec<f64>,
    pub lost: f64,
}

/// A polygon, stored as the masses of its corners.
#[derive(Debug, Clone)]
pub(super) struct Polygon {
    grid: LossGrid,
    first: i64,
    /// The mass of `P` at each corner.
    mass: Vec<f64>,
    /// The mass of `P` where `Q` has none.
    lost_above: f64,
    /// The mass of `Q` where `P` has none.
    lost_below: f64,
}

/// The corners of a polygon, in the two forms of a [`Point`].
struct Corners {
    grid: LossGrid,
    first: i64,
    right: Vec<f64>,
    left: Vec<f64>,
}

/// The polygon above the curve, given the curve at the grid points from index `first` on.
pub(super) fn above(at_points: impl Iterator<Item = Point>, grid: LossGrid, first: i64) -> Polygon {
    let (right, left) =
        at_points.map(|Point { right, left, .. }| (positive_part(right), positive_part(left))).unzip();
    let corners = Corners { grid, first, right, left };
    let all = (0..corners.right.len()).collect();
    corners.polygon(all)
}

/// The polygon below the curve, given the curve at the middles of all cells around the grid points from index `first` on.
pub(super) fn below(at_middles: impl Iterator<Item = Point>, grid: LossGrid, first: i64) -> Polygon {
    let middles = (first..).map(|index| (grid.loss(index) - 0.5 * grid.width).exp());
    let tangents: Vec<(f64, Point)> = middles.zip(at_middles).collect();
    let (back, forth) = ((-0.5 * grid.width).exp_m1(), (0.5 * grid.width).exp_m1());
    let mut right = Vec::with_capacity(tangents.len());
    let mut left = Vec::with_capacity(tangents.len());
    for cells in tangents.windows(2) {
        let ((y0, before), (y1, after)) = (cells[0], cells[1]);
        let rightwards =
            (difference(before.right, y0 * forth * before.above), after.right - y1 * back * after.above);
        right.push(rightwards.0.min(rightwards.1));
        let leftwards =
            (before.left + y0 * forth * before.below, difference(after.left, -y1 * back * after.below));
        left.push(leftwards.0.min(leftwards.1));
    }
    let mut corners = Corners { grid, first, right, left };
    if !corners.close_ends() {
        return Polygon::indistinguishable(grid.width);
    }
    let hull = corners.hull();
    corners.polygon(hull)
}

/// `a - b` for positive numbers, and exactly 0 if the difference is only a rounding error.
fn difference(a: f64, b: f64) -> f64 {
    let difference = a - b;
    if difference.abs() <= 8.0 * f64::EPSILON * a { 0.0 } else { difference }
}

impl Corners {
    fn loss(&self, corner: usize) -> f64 {
        self.grid.loss(self.first + signed(corner))
    }

    /// Ends the polygon below the curve on both sides, before it falls below `max(0, 1 - y)`: at a corner on this line if there is
    /// one, and otherwise by lowering the last corner above it. Lowering a corner keeps both of its sides below their tangents.
    ///
    /// Returns false if there is nothing between the ends: on this grid the two distributions cannot be distinguished.
    fn close_ends(&mut self) -> bool {
        let corners = 0..self.right.len();
        let positive = |i: &usize| self.left[*i] > 0.0 && self.right[*i] > 0.0;
        let (Some(mut first), Some(mut last)) =
            (corners.clone().find(positive), corners.clone().rev().find(positive))
        else {
            return false;
        };
        if !(first..=last).all(|i| positive(&i)) {
            return false;
        }
        let on_axis = |value: f64| value.abs() <= 0.0;
        if first > 0 && on_axis(self.left[first - 1]) {
            first -= 1;
        }
        if last + 1 < corners.end && on_axis(self.right[last + 1]) {
            last += 1;
        }
        if !(self.loss(first) < 0.0 && self.loss(last) > 0.0) {
            return false;
        }
        self.right[last] = 0.0;
        self.left[last] = self.loss(last).exp_m1();
        self.left[first] = 0.0;
        self.right[first] = -self.loss(first).exp_m1();
        self.right = self.right[first..=last].to_vec();
        self.left = self.left[first..=last].to_vec();
        self.first += signed(first);
        true
    }

    /// The slope between two corners times the `y` of the corner `at`, which is one of the two. It is computed from the form with the
    /// smaller numbers. The second value is 1 for the left form, whose slope is larger by one, and 0 for the right form.
    fn slope(&self, from: usize, to: usize, at: usize) -> (f64, f64) {
        let (values, left) =
            if self.right[from] <= self.left[to] { (&self.right, 0.0) } else { (&self.left, 1.0) };
        let distance = real_length(to - from) * self.grid.width;
        let run = if at == from { distance.exp_m1() } else { -(-distance).exp_m1() };
        ((values[to] - values[from]) / run, left)
    }

    /// The mass of corner `b` between corners `a` and `c`. It is negative where the polygon is not convex.
    fn mass(&self, a: Option<usize>, b: usize, c: Option<usize>) -> f64 {
        let (into, into_left) = a.map_or((self.left[b], 1.0), |a| self.slope(a, b, b));
        let (out, out_left) = c.map_or((0.0, 0.0), |c| self.slope(b, c, b));
        out - into + (into_left - out_left) * self.loss(b).exp()
    }

    /// The corners of the lower convex hull.
    fn hull(&self) -> Vec<usize> {
        let mut kept: Vec<usize> = Vec::with_capacity(self.right.len());
        for corner in 0..self.right.len() {
            while let [.., a, b] = kept[..] {
                if self.mass(Some(a), b, Some(corner)) >= 0.0 {
                    break;
                }
                kept.pop();
            }
            kept.push(corner);
        }
        kept
    }

    fn polygon(self, kept: Vec<usize>) -> Polygon {
        let mut mass = vec![0.0; self.right.len()];
        for (i, &corner) in kept.iter().enumerate() {
            let before = i.checked_sub(1).map(|i| kept[i]);
            // Rounding may make a mass of 0 slightly negative.
            mass[corner] = positive_part(self.mass(before, corner, kept.get(i + 1).copied()));
        }
        Polygon {
            grid: self.grid,
            first: self.first,
            mass,
            lost_above: *self.right.last().expect("a polygon has a corner"),
            lost_below: self.left[0] / self.loss(0).exp(),
        }
    }
}

impl Polygon {
    /// The polygon of two equal distributions: all mass is at loss 0.
    fn indistinguishable(width: f64) -> Self {
        let grid = LossGrid { width, offset: 0.0 };
        Self { grid, first: 0, mass: vec![1.0], lost_above: 0.0, lost_below: 0.0 }
    }

    /// Whether this is the polygon of two equal distributions, which has its own grid.
    pub(super) fn is_indistinguishable(&self) -> bool {
        self.mass.len() == 1
    }

    /// Whether both distributions have a total mass of 1. If not, there was a numerical failure.
    pub(super) fn is_whole(&self) -> bool {
        [Direction::Remove, Direction::Add].into_iter().all(|direction| {
            let losses = self.losses(direction);
            (losses.mass.iter().sum::<f64>() + losses.lost - 1.0).abs() < 1e-9
        })
    }

    /// The privacy loss distribution in one direction. Swapping `P` and `Q` turns a mass `p` at loss `l` into a mass `p e^-l` at
    /// `-l`.
    pub(super) fn losses(&self, direction: Direction) -> LossDistribution {
        match direction {
            Direction::Remove => LossDistribution {
                offset: self.grid.offset,
                first: self.first,
                mass: self.mass.clone(),
                lost: self.lost_above,
            },
            Direction::Add => {
                let swapped = (self.first..).zip(&self.mass).map(|(i, p)| p * (-self.grid.loss(i)).exp());
                let mut mass: Vec<f64> = swapped.collect();
                mass.reverse();
                let last = self.first + signed(mass.len()) - 1;
                LossDistribution { offset: -self.grid.offset, first: -last, mass, lost: self.lost_below }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pld::pair::Pair;

    fn enclose(pair: &Pair, grid: LossGrid, (first, last): (i64, i64)) -> (Polygon, Polygon) {
        let up = above(grid.losses(first, last).map(|l| pair.at(l)), grid, first);
        (up, below(grid.cell_middles(first, last).map(|l| pair.at(l)), grid, first))
    }

    /// The hockey-stick curve of the polygon at any loss, from its masses.
    fn curve(losses: &LossDistribution, width: f64, at: f64) -> f64 {
        let grid = LossGrid { width, offset: losses.offset };
        let terms =
            (losses.first..).zip(&losses.mass).map(|(i, p)| p * (1.0 - (at - grid.loss(i)).exp()).max(0.0));
        terms.sum::<f64>() + losses.lost
    }

    #[test]
    fn polygons_enclose_the_curve_in_both_directions() {
        for pair in [
            Pair { rate: 0.01, mu: 1.0, group: 1 },
            Pair { rate: 0.2, mu: 2.0, group: 1 },
            Pair { rate: 0.001, mu: 3.0, group: 1 },
            Pair { rate: 0.01, mu: 10.0, group: 1 },
            Pair { rate: 1.0, mu: 0.5, group: 1 },
            Pair { rate: 0.05, mu: 0.01, group: 1 },
            Pair { rate: 0.1, mu: 0.5, group: 2 },
        ] {
            let (low, high) = pair.support(1e-13);
            for cells in [3.0, 20.0, 300.0, 30_000.0] {
                let width = (high - low) / cells;
                let grid = LossGrid::fitted(|l| pair.at(l), width);
                let (up, down) = enclose(&pair, grid, grid.around(low, high));
                for (direction, sign) in [(Direction::Remove, 1.0), (Direction::Add, -1.0)] {
                    let (up, down) = (up.losses(direction), down.losses(direction));
                    assert!((up.mass.iter().sum::<f64>() + up.lost - 1.0).abs() < 1e-9);
                    assert!(down.mass.iter().sum::<f64>() <= 1.0 + 1e-9);
                    for i in -40..=40 {
                        let at = low + (high - low) * f64::from(i + 40) / 80.0;
                        let point = pair.at(sign * at);
                        // delta_add(l) = 1 - e^l + e^l h(e^-l).
                        let exact = if sign > 0.0 { point.right } else { point.left * at.exp() };
                        let (lower, upper) = (curve(&down, width, at), curve(&up, width, at));
                        let rounding = 1e-9 * exact + 1e-25;
                        assert!(
                            lower <= exact + rounding,
                            "{pair:?} {cells} {direction:?} {at}: {lower} > {exact}"
                        );
                        assert!(
                            upper >= exact - rounding,
                            "{pair:?} {cells} {direction:?} {at}: {upper} < {exact}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn the_gap_between_polygons_falls_quadratically() {
        let pair = Pair { rate: 0.1, mu: 1.0, group: 1 };
        let gap = |width: f64| {
            let grid = LossGrid { width, offset: 0.0 };
            let (up, down) = enclose(&pair, grid, grid.around(-0.2, 6.0));
            let (up, down) = (up.losses(Direction::Remove), down.losses(Direction::Remove));
            let at = 0.4 + 0.3 * width;
            curve(&up, width, at) - curve(&down, width, at)
        };
        let (coarse, fine) = (gap(0.02), gap(0.005));
        assert!(fine < coarse / 10.0, "{coarse} {fine}");
    }

    #[test]
    fn wide_cells_keep_rare_large_losses() {
        // Nearly all mass is in (ln 0.999, 0), a thousandth of a cell.
        let pair = Pair { rate: 0.001, mu: 3.0, group: 1 };
        let grid = LossGrid::fitted(|l| pair.at(l), 1.0);
        let (_, down) = enclose(&pair, grid, grid.around(-0.001, 30.0));
        let down = down.losses(Direction::Remove);
        assert!(curve(&down, 1.0, 3.0) > 0.7 * pair.at(3.0).right);
    }

    /// dp_accounting 0.6.0, privacy_loss_distribution_test.py, connect-the-dots with interval 1.
    #[test]
    fn masses_match_a_published_example() {
        let pair = Pair { rate: 0.8, mu: 1.0, group: 1 };
        let grid = LossGrid { width: 1.0, offset: 0.0 };
        let (up, _) = enclose(&pair, grid, (-1, 2));
        let losses = up.losses(Direction::Remove);
        for (got, expected) in
            losses.mass.iter().zip([0.164_817_973, 0.398_104_072, 0.314_081_995, 0.112_267_164])
        {
            assert!((got - expected).abs() < 1e-7, "{got} {expected}");
        }
        assert!((losses.lost - 0.010_728_796).abs() < 1e-7);
    }
}
