//! Sums, dot products and scaled additions of vectors.

use super::isa::{by_register, multiversion};
use super::lanes::{Register, WIDTH, fma};

/// `sum x^2`: short stretches in single precision, added up in double; all in double where single precision would
/// underflow or overflow.
pub(crate) fn squared_norm(x: &[f32]) -> f64 {
    in_range(dot(x, x), x)
}

/// A sum of squares, or the sum in double precision if single precision may have lost some of it.
#[inline(always)]
fn in_range(sum: f64, x: &[f32]) -> f64 {
    match (1e-24..1e36).contains(&sum) {
        true => sum,
        false => x.iter().map(|x| f64::from(*x) * f64::from(*x)).sum(),
    }
}

by_register! {
    /// `sum x y`: short stretches in single precision, added up in double.
    pub(crate) fn dot(x: &[f32], y: &[f32]) -> f64 = dot_body
}

/// Floats that are added up in single precision before the sum moves to double: each lane adds 4, then 4 x 16 lanes add up
/// pairwise.
const STRETCH: usize = 16 * WIDTH;

/// # Safety
/// The processor has the instructions.
#[inline(always)]
unsafe fn dot_body<R: Register>(x: &[f32], y: &[f32]) -> f64 {
    let n = x.len().min(y.len());
    let (x, y) = (x.as_ptr(), y.as_ptr());
    let mut total = 0.0;
    let mut from = 0;
    // SAFETY: guaranteed by the caller, and indices below `n`.
    unsafe {
        while from < n {
            let to = n.min(from + STRETCH);
            let (mut first, mut second, mut third, mut fourth) = (R::zero(), R::zero(), R::zero(), R::zero());
            while from + 4 * WIDTH <= to {
                let at = |k: usize| (R::load(x.add(from + k * WIDTH)), R::load(y.add(from + k * WIDTH)));
                let [(a, b), (c, d), (e, f), (g, h)] = [at(0), at(1), at(2), at(3)];
                first = first.add_product(a, b);
                second = second.add_product(c, d);
                third = third.add_product(e, f);
                fourth = fourth.add_product(g, h);
                from += 4 * WIDTH;
            }
            while from + WIDTH <= to {
                first = first.add_product(R::load(x.add(from)), R::load(y.add(from)));
                from += WIDTH;
            }
            let mut tail = 0.0f32;
            while from < to {
                tail += *x.add(from) * *y.add(from);
                from += 1;
            }
            total += f64::from(first.add(second).add(third.add(fourth)).sum()) + f64::from(tail);
        }
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

by_register! {
    /// `out = |row|^2` for each row.
    pub(crate) fn squared_norms_of_rows(x: &[f32], rows: Strided, out: &mut [f64]) = squared_norms_of_rows_body
}

/// # Safety
/// The processor has the instructions.
#[inline(always)]
unsafe fn squared_norms_of_rows_body<R: Register>(x: &[f32], rows: Strided, out: &mut [f64]) {
    for (index, out) in out.iter_mut().enumerate() {
        let row = &x[rows.row(index)];
        // SAFETY: guaranteed by the caller.
        *out = in_range(unsafe { dot_body::<R>(row, row) }, row);
    }
}

multiversion! {
    /// `y = weight x` for each row; each weight applies to `each` consecutive rows.
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
    /// `sum += weight x` over all rows; each weight applies to `each` consecutive rows.
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
    /// `y += x`, with `x` rounded to a multiple of `step`, a power of two; without rounding if `step` is 0.
    pub(crate) fn add_rounded(y: &mut [f64], x: &[f32], step: f64) = add_rounded_body
}

#[inline(always)]
fn add_rounded_body<const FMA: bool>(y: &mut [f64], x: &[f32], step: f64) {
    if step > 0.0 {
        let per_step = 1.0 / step;
        for (y, x) in y.iter_mut().zip(x) {
            *y += whole(f64::from(*x) * per_step) * step;
        }
    } else {
        for (y, x) in y.iter_mut().zip(x) {
            *y += f64::from(*x);
        }
    }
}

multiversion! {
    /// The sum of rows, each as long as `sum`.
    pub(crate) fn sum_in_doubles(sum: &mut [f64], rows: &[&[f32]]) = sum_in_doubles_body
}

#[inline(always)]
fn sum_in_doubles_body<const FMA: bool>(sum: &mut [f64], rows: &[&[f32]]) {
    let whole = sum.len() - sum.len() % WIDTH;
    for (index, sum) in sum[..whole].chunks_exact_mut(WIDTH).enumerate() {
        let mut own = [0.0; WIDTH];
        for row in rows {
            let row = &row[index * WIDTH..][..WIDTH];
            own.iter_mut().zip(row).for_each(|(own, x)| *own += f64::from(*x));
        }
        sum.copy_from_slice(&own);
    }
    for (index, sum) in sum.iter_mut().enumerate().skip(whole) {
        *sum = rows.iter().map(|row| f64::from(row[index])).sum();
    }
}

multiversion! {
    /// `sum x^2`.
    pub(crate) fn squared_norm_of_doubles(x: &[f64]) -> f64 = squared_norm_of_doubles_body
}

#[inline(always)]
fn squared_norm_of_doubles_body<const FMA: bool>(x: &[f64]) -> f64 {
    let (mut sums, parts) = ([0.0; WIDTH], x.chunks_exact(WIDTH));
    let rest: f64 = parts.remainder().iter().map(|x| x * x).sum();
    for x in parts {
        sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += x * x);
    }
    let mut lanes = WIDTH;
    while lanes > 1 {
        lanes /= 2;
        (0..lanes).for_each(|lane| sums[lane] += sums[lane + lanes]);
    }
    sums[0] + rest
}

multiversion! {
    /// `y += c x`, with the product in double precision.
    pub(crate) fn add_scaled_doubles(y: &mut [f32], c: f32, x: &[f64]) = add_scaled_doubles_body
}

#[inline(always)]
fn add_scaled_doubles_body<const FMA: bool>(y: &mut [f32], c: f32, x: &[f64]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += (f64::from(c) * x) as f32;
    }
}

/// The nearest whole number, for numbers below 2^51.
#[inline(always)]
fn whole(x: f64) -> f64 {
    // A double of this size has no fractional digits.
    const LARGE: f64 = 1.5 * (1_u64 << 52) as f64;
    (x + LARGE) - LARGE
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
    fn sums_on_a_lattice_are_exact_in_any_order() {
        let step = 2f64.powi(-30);
        let parts: Vec<Vec<f32>> = (0..50).map(|seed| numbers(33, seed)).collect();
        let sum = |order: &mut dyn Iterator<Item = &Vec<f32>>| {
            let mut sum = vec![0.0; 33];
            order.for_each(|part| add_rounded(&mut sum, part, step));
            sum
        };
        let forward = sum(&mut parts.iter());
        assert_eq!(forward, sum(&mut parts.iter().rev()));
        assert!(forward.iter().all(|value| (value / step).fract() == 0.0));
        let truth: f64 = parts.iter().map(|part| f64::from(part[7])).sum();
        assert!((forward[7] - truth).abs() <= 25.0 * step);
        // Without a step nothing is rounded.
        let mut sum = [0.5];
        add_rounded(&mut sum, &[1e-20], 0.0);
        add_rounded(&mut sum, &[-0.5], 0.0);
        assert_eq!(sum, [0.0]);
        add_rounded(&mut sum, &[1e-20], 0.0);
        assert_eq!(sum, [f64::from(1e-20_f32)]);
    }

    #[test]
    fn doubles_are_squared_and_added() {
        for len in [0, 1, 15, 16, 17, 100] {
            let (x, mut y) = (numbers(len, 7), numbers(len, 8));
            let wide: Vec<f64> = x.iter().map(|x| f64::from(*x) / 3.0).collect();
            let squares: f64 = wide.iter().map(|x| x * x).sum();
            assert!((squared_norm_of_doubles(&wide) - squares).abs() <= 1e-14 * squares);
            let expected: Vec<f32> =
                y.iter().zip(&wide).map(|(y, x)| y + (f64::from(0.7_f32) * x) as f32).collect();
            add_scaled_doubles(&mut y, 0.7, &wide);
            assert_eq!(y, expected);
            let mut sum = vec![7.0; len];
            sum_in_doubles(&mut sum, &[&x, &y, &x]);
            let wide = |i: usize| f64::from(x[i]) + f64::from(y[i]) + f64::from(x[i]);
            assert!(sum.iter().enumerate().all(|(i, sum)| *sum == wide(i)));
        }
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
