//! Dot products between the rows of two matrices, and their weighted sums: norms without gradients.

use super::isa::multiversion;
use super::lanes::{Lanes, WIDTH, fma};

/// Rows of floats: `count` of them, `width` long, `stride` apart.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) count: usize,
    pub(crate) width: usize,
    pub(crate) stride: usize,
}

impl<'a> Matrix<'a> {
    /// The `index`-th row.
    pub(crate) fn row(&self, index: usize) -> &'a [f32] {
        &self.data[index * self.stride..][..self.width]
    }

    fn check(&self) {
        assert!(self.count == 0 || (self.count - 1) * self.stride + self.width <= self.data.len(), "rows have room");
    }
}

/// `out[t * right.count + s] = left_t . right_s`.
pub(crate) fn dots(left: Matrix<'_>, right: Matrix<'_>, out: &mut [f32]) {
    left.check();
    right.check();
    assert_eq!(left.width, right.width, "rows of one length");
    assert!(left.count * right.count <= out.len(), "the result has room");
    let _ = each_dot(left, right, Use::Keep(out));
}

/// `sum_{t,s} weights[t * right.count + s] (left_t . right_s)`, added up in double precision.
pub(crate) fn dots_against(left: Matrix<'_>, right: Matrix<'_>, weights: &[f32]) -> f64 {
    left.check();
    right.check();
    assert_eq!(left.width, right.width, "rows of one length");
    assert!(left.count * right.count <= weights.len(), "one weight for each pair");
    each_dot(left, right, Use::Weigh(weights))
}

/// What becomes of a dot product.
enum Use<'a> {
    Keep(&'a mut [f32]),
    Weigh(&'a [f32]),
}

multiversion! {
    fn each_dot(left: Matrix<'_>, right: Matrix<'_>, purpose: Use<'_>) -> f64 = each_dot_body
}

#[inline(always)]
fn each_dot_body<const FMA: bool>(left: Matrix<'_>, right: Matrix<'_>, mut purpose: Use<'_>) -> f64 {
    let mut total = 0.0;
    let mut row = 0;
    while row + 4 <= left.count {
        total += rows_body::<FMA, 4>(left, right, row, &mut purpose);
        row += 4;
    }
    while row < left.count {
        total += rows_body::<FMA, 1>(left, right, row, &mut purpose);
        row += 1;
    }
    total
}

#[inline(always)]
fn rows_body<const FMA: bool, const MR: usize>(
    left: Matrix<'_>,
    right: Matrix<'_>,
    row: usize,
    purpose: &mut Use<'_>,
) -> f64 {
    let mut total = 0.0;
    let mut column = 0;
    while column < right.count {
        if column + 4 <= right.count {
            total += tile_body::<FMA, MR, 4>(left, right, row, column, purpose);
            column += 4;
        } else {
            total += tile_body::<FMA, MR, 1>(left, right, row, column, purpose);
            column += 1;
        }
    }
    total
}

#[inline(always)]
fn tile_body<const FMA: bool, const MR: usize, const NR: usize>(
    left: Matrix<'_>,
    right: Matrix<'_>,
    row: usize,
    column: usize,
    purpose: &mut Use<'_>,
) -> f64 {
    let x: [&[f32]; MR] = std::array::from_fn(|i| left.row(row + i));
    let y: [&[f32]; NR] = std::array::from_fn(|j| right.row(column + j));
    let mut acc = [[Lanes::ZERO; NR]; MR];
    let whole = left.width / WIDTH * WIDTH;
    let mut k = 0;
    while k < whole {
        // SAFETY: every row has `width >= k + 16` floats.
        let y: [Lanes; NR] = std::array::from_fn(|j| unsafe { Lanes::load(y[j].as_ptr().add(k)) });
        for i in 0..MR {
            // SAFETY: as above.
            let x = unsafe { Lanes::load(x[i].as_ptr().add(k)) };
            for j in 0..NR {
                acc[i][j].add_product::<FMA>(&x, &y[j]);
            }
        }
        k += WIDTH;
    }
    let mut total = 0.0;
    for i in 0..MR {
        for j in 0..NR {
            let mut dot = acc[i][j].sum();
            for k in whole..left.width {
                dot = fma::<FMA>(x[i][k], y[j][k], dot);
            }
            let at = (row + i) * right.count + column + j;
            match purpose {
                Use::Keep(out) => out[at] = dot,
                Use::Weigh(weights) => total += f64::from(dot) * f64::from(weights[at]),
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::vector::tests::numbers;

    #[test]
    fn dots_equal_their_definition() {
        for (t, s, width) in [(1, 1, 1), (4, 4, 16), (5, 9, 33), (12, 3, 70), (7, 6, 15)] {
            let (x, y) = (numbers(t * (width + 2), 1), numbers(s * (width + 2), 2));
            let left = Matrix { data: &x, count: t, width, stride: width + 2 };
            let right = Matrix { data: &y, count: s, width, stride: width + 2 };
            let mut out = vec![0.0; t * s];
            dots(left, right, &mut out);
            let weights = numbers(t * s, 3);
            let mut sum = 0.0;
            for i in 0..t {
                for j in 0..s {
                    let dot: f64 =
                        left.row(i).iter().zip(right.row(j)).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                    assert!((f64::from(out[i * s + j]) - dot).abs() < 1e-5);
                    sum += dot * f64::from(weights[i * s + j]);
                }
            }
            assert!((dots_against(left, right, &weights) - sum).abs() < 1e-4);
        }
    }
}
