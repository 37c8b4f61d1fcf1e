//! Rows of normalisation layers.

use super::isa::multiversion;
use super::lanes::{Lanes, WIDTH, fma};
use super::vector;

multiversion! {
    /// `sum += x`, `product += x y`, lane by lane.
    pub(crate) fn add_moments(sum: &mut [f32], product: &mut [f32], x: &[f32], y: &[f32]) = add_moments_body
}

#[inline(always)]
fn add_moments_body<const FMA: bool>(sum: &mut [f32], product: &mut [f32], x: &[f32], y: &[f32]) {
    let n = x.len();
    let (sum, product, y) = (&mut sum[..n], &mut product[..n], &y[..n]);
    for i in 0..n {
        sum[i] += x[i];
        product[i] = fma::<FMA>(x[i], y[i], product[i]);
    }
}

multiversion! {
    /// `sum += (x - mean)^2`, lane by lane.
    pub(crate) fn add_squared_deviations(sum: &mut [f32], x: &[f32], mean: &[f32]) = add_squared_deviations_body
}

#[inline(always)]
fn add_squared_deviations_body<const FMA: bool>(sum: &mut [f32], x: &[f32], mean: &[f32]) {
    for ((sum, x), mean) in sum.iter_mut().zip(x).zip(mean) {
        let d = x - mean;
        *sum = fma::<FMA>(d, d, *sum);
    }
}

multiversion! {
    /// `y = scale x + offset`, lane by lane.
    pub(crate) fn scale_and_offset(y: &mut [f32], x: &[f32], scale: &[f32], offset: &[f32]) = scale_and_offset_body
}

#[inline(always)]
fn scale_and_offset_body<const FMA: bool>(y: &mut [f32], x: &[f32], scale: &[f32], offset: &[f32]) {
    let n = y.len();
    let (x, scale, offset) = (&x[..n], &scale[..n], &offset[..n]);
    for i in 0..n {
        y[i] = fma::<FMA>(x[i], scale[i], offset[i]);
    }
}

multiversion! {
    /// `dx = p dy + q x + r`, lane by lane; `[p, q, r]` are parts of `coefficients`.
    pub(crate) fn combine(dx: &mut [f32], dy: &[f32], x: &[f32], coefficients: [&[f32]; 3]) = combine_body
}

#[inline(always)]
fn combine_body<const FMA: bool>(dx: &mut [f32], dy: &[f32], x: &[f32], [p, q, r]: [&[f32]; 3]) {
    let n = dx.len();
    let (dy, x, p, q, r) = (&dy[..n], &x[..n], &p[..n], &q[..n], &r[..n]);
    for i in 0..n {
        dx[i] = fma::<FMA>(dy[i], p[i], fma::<FMA>(x[i], q[i], r[i]));
    }
}

multiversion! {
    /// `sum x`, in lanes.
    fn sum(x: &[f32]) -> f32 = sum_body
}

#[inline(always)]
fn sum_body<const FMA: bool>(x: &[f32]) -> f32 {
    let mut acc = Lanes::ZERO;
    let lines = x.chunks_exact(WIDTH);
    let rest: f32 = lines.remainder().iter().sum();
    for line in lines {
        for j in 0..WIDTH {
            acc.0[j] += line[j];
        }
    }
    acc.sum() + rest
}

/// Normalises a row to mean 0 and variance 1, scales and shifts it; returns the mean and the inverse deviation.
pub(crate) fn layer_norm(x: &[f32], y: &mut [f32], gamma: &[f32], beta: &[f32], epsilon: f32) -> (f32, f32) {
    let n = x.len() as f32;
    let mean = sum(x) / n;
    for (y, x) in y.iter_mut().zip(x) {
        *y = x - mean;
    }
    let variance = (vector::squared_norm(y) as f32) / n;
    // With an infinite variance every value would become 0. A NaN marks the record instead.
    let inverse = if variance < f32::INFINITY { 1.0 / (variance + epsilon).sqrt() } else { f32::NAN };
    layer_norm_apply(y, gamma, beta, inverse);
    (mean, inverse)
}

multiversion! {
    fn layer_norm_apply(y: &mut [f32], gamma: &[f32], beta: &[f32], inverse: f32) = layer_norm_apply_body
}

#[inline(always)]
fn layer_norm_apply_body<const FMA: bool>(y: &mut [f32], gamma: &[f32], beta: &[f32], inverse: f32) {
    let n = y.len();
    let (gamma, beta) = (&gamma[..n], &beta[..n]);
    for i in 0..n {
        y[i] = fma::<FMA>(y[i] * inverse, gamma[i], beta[i]);
    }
}

multiversion! {
    /// The gradient of [`layer_norm`]: `dx`, and the additions to the gradients of gamma and beta.
    pub(crate) fn layer_norm_gradient(
        x: &[f32], dy: &[f32], gamma: &[f32], moments: (f32, f32), dgamma: &mut [f32], dbeta: &mut [f32], dx: &mut [f32],
    ) = layer_norm_gradient_body
}

#[inline(always)]
fn layer_norm_gradient_body<const FMA: bool>(
    x: &[f32],
    dy: &[f32],
    gamma: &[f32],
    (mean, inverse): (f32, f32),
    dgamma: &mut [f32],
    dbeta: &mut [f32],
    dx: &mut [f32],
) {
    let n = x.len();
    let (dy, gamma, dgamma, dbeta) = (&dy[..n], &gamma[..n], &mut dgamma[..n], &mut dbeta[..n]);
    let (mut first, mut second) = (Lanes::ZERO, Lanes::ZERO);
    let whole = n / WIDTH * WIDTH;
    for start in (0..whole).step_by(WIDTH) {
        for j in 0..WIDTH {
            let i = start + j;
            let normal = (x[i] - mean) * inverse;
            dgamma[i] = fma::<FMA>(dy[i], normal, dgamma[i]);
            dbeta[i] += dy[i];
            let d = dy[i] * gamma[i];
            first.0[j] += d;
            second.0[j] = fma::<FMA>(d, normal, second.0[j]);
        }
    }
    let (mut first, mut second) = (first.sum(), second.sum());
    for i in whole..n {
        let normal = (x[i] - mean) * inverse;
        dgamma[i] = fma::<FMA>(dy[i], normal, dgamma[i]);
        dbeta[i] += dy[i];
        first += dy[i] * gamma[i];
        second += dy[i] * gamma[i] * normal;
    }
    let (first, second) = (first / n as f32, second / n as f32);
    if dx.is_empty() {
        return;
    }
    let dx = &mut dx[..n];
    for i in 0..n {
        let normal = (x[i] - mean) * inverse;
        dx[i] = inverse * (dy[i] * gamma[i] - first - normal * second);
    }
}
