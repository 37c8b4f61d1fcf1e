//! Sums, dot products and scaled additions of vectors.

use super::isa::multiversion;
use super::lanes::{Lanes, WIDTH, fma};

multiversion! {
    /// `sum x^2`: short stretches in single precision, added up in double.
    pub(crate) fn squared_norm(x: &[f32]) -> f64 = squared_norm_body
}

#[inline(always)]
fn squared_norm_body<const FMA: bool>(x: &[f32]) -> f64 {
    dot_body::<FMA>(x, x)
}

multiversion! {
    /// `sum x y`: short stretches in single precision, added up in double.
    pub(crate) fn dot(x: &[f32], y: &[f32]) -> f64 = dot_body
}

/// Floats that are added up in single precision before the sum moves to double: the relative error of a sum of squares
/// is at most that of 64 / 16 additions to one lane and of one pairwise sum over the lanes.
const STRETCH: usize = 16 * WIDTH;

#[inline(always)]
fn dot_body<const FMA: bool>(x: &[f32], y: &[f32]) -> f64 {
    let mut total = 0.0;
    for (x, y) in x.chunks(STRETCH).zip(y.chunks(STRETCH)) {
        let mut acc = [Lanes::ZERO; 4];
        let (long_x, long_y) = (x.chunks_exact(4 * WIDTH), y.chunks_exact(4 * WIDTH));
        let (rest_x, rest_y) = (long_x.remainder(), long_y.remainder());
        for (x, y) in long_x.zip(long_y) {
            for q in 0..4 {
                for j in 0..WIDTH {
                    acc[q].0[j] = fma::<FMA>(x[q * WIDTH + j], y[q * WIDTH + j], acc[q].0[j]);
                }
            }
        }
        let (wide_x, wide_y) = (rest_x.chunks_exact(WIDTH), rest_y.chunks_exact(WIDTH));
        let (tail_x, tail_y) = (wide_x.remainder(), wide_y.remainder());
        for (x, y) in wide_x.zip(wide_y) {
            for j in 0..WIDTH {
                acc[0].0[j] = fma::<FMA>(x[j], y[j], acc[0].0[j]);
            }
        }
        for q in 1..4 {
            let other = acc[q];
            acc[0].add(&other);
        }
        let tail: f32 = tail_x.iter().zip(tail_y).map(|(x, y)| x * y).sum();
        total += f64::from(acc[0].sum()) + f64::from(tail);
    }
    total
}

/// Rows of `width` floats, `stride` apart.
#[derive(Clone, Copy)]
pub(crate) struct Strided {
    pub(crate) width: usize,
    pub(crate) stride: usize,
}

impl Strided {
    #[inline(always)]
    fn row(self, index: usize) -> std::ops::Range<usize> {
        index * self.stride..index * self.stride + self.width
    }
}

multiversion! {
    /// `out = |row|^2` for each row.
    pub(crate) fn squared_norms_of_rows(x: &[f32], rows: Strided, out: &mut [f64]) = squared_norms_of_rows_body
}

#[inline(always)]
fn squared_norms_of_rows_body<const FMA: bool>(x: &[f32], rows: Strided, out: &mut [f64]) {
    for (index, out) in out.iter_mut().enumerate() {
        let row = &x[rows.row(index)];
        *out = if let [single] = row { f64::from(*single).powi(2) } else { dot_body::<FMA>(row, row) };
    }
}

multiversion! {
    /// `y = weight x` for each row; a weight serves `each` rows.
    pub(crate) fn scale_rows(y: &mut [f32], x: &[f32], rows: Strided, each: usize, weights: &[f32]) = scale_rows_body
}

#[inline(always)]
fn scale_rows_body<const FMA: bool>(y: &mut [f32], x: &[f32], rows: Strided, each: usize, weights: &[f32]) {
    for (record, weight) in weights.iter().enumerate() {
        for index in record * each..(record + 1) * each {
            for (y, x) in y[rows.row(index)].iter_mut().zip(&x[rows.row(index)]) {
                *y = weight * x;
            }
        }
    }
}

multiversion! {
    /// `sum += weight x` over all rows; a weight serves `each` rows.
    pub(crate) fn add_rows(sum: &mut [f32], x: &[f32], rows: Strided, each: usize, weights: &[f32]) = add_rows_body
}

#[inline(always)]
fn add_rows_body<const FMA: bool>(sum: &mut [f32], x: &[f32], rows: Strided, each: usize, weights: &[f32]) {
    for (record, weight) in weights.iter().enumerate() {
        for index in record * each..(record + 1) * each {
            for (sum, x) in sum[..rows.width].iter_mut().zip(&x[rows.row(index)]) {
                *sum = fma::<FMA>(*weight, *x, *sum);
            }
        }
    }
}

multiversion! {
    /// `y += c x`.
    pub(crate) fn add_scaled(y: &mut [f32], c: f32, x: &[f32]) = add_scaled_body
}

#[inline(always)]
fn add_scaled_body<const FMA: bool>(y: &mut [f32], c: f32, x: &[f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = fma::<FMA>(c, *x, *y);
    }
}

multiversion! {
    /// `y += x`.
    pub(crate) fn add(y: &mut [f32], x: &[f32]) = add_body
}

#[inline(always)]
fn add_body<const FMA: bool>(y: &mut [f32], x: &[f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += x;
    }
}

multiversion! {
    /// `y = c x`.
    pub(crate) fn scaled(y: &mut [f32], c: f32, x: &[f32]) = scaled_body
}

#[inline(always)]
fn scaled_body<const FMA: bool>(y: &mut [f32], c: f32, x: &[f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = c * x;
    }
}

multiversion! {
    /// `x -= y`.
    pub(crate) fn subtract(x: &mut [f32], y: &[f32]) = subtract_body
}

#[inline(always)]
fn subtract_body<const FMA: bool>(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x -= y;
    }
}

multiversion! {
    /// `y = x - y`.
    pub(crate) fn subtract_from(y: &mut [f32], x: &[f32]) = subtract_from_body
}

#[inline(always)]
fn subtract_from_body<const FMA: bool>(y: &mut [f32], x: &[f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = x - *y;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Reproducible numbers in (-1, 1).
    pub(crate) fn numbers(count: usize, seed: u64) -> Vec<f32> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        (0..count)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ((state >> 40) as f32) / (1u64 << 23) as f32 - 1.0
            })
            .collect()
    }

    #[test]
    fn long_sums_keep_their_accuracy() {
        for len in [0, 1, 15, 16, 17, 63, 64, 65, 255, 1000, 100_001] {
            let (x, y) = (numbers(len, 7), numbers(len, 8));
            let truth: f64 = x.iter().zip(&y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
            assert!((dot(&x, &y) - truth).abs() <= 1e-6 * (1.0 + (len as f64).sqrt()), "{len}");
            let squares: f64 = x.iter().map(|x| f64::from(*x).powi(2)).sum();
            assert!((squared_norm(&x) - squares).abs() <= 3e-7 * squares, "{len}");
        }
    }
}
