//! Elementwise functions that the compiler turns into vector code. A NaN stays a NaN.

use super::isa::multiversion;
use super::lanes::fma;

/// `e^x` to about two units in the last place. The argument is limited to [-87.3, 88.3].
#[inline(always)]
fn exp<const FMA: bool>(x: f32) -> f32 {
    // Comparisons, because `clamp`, `min` and `max` would turn a NaN into a number.
    let x = if x > 88.3 { 88.3 } else { x };
    let x = if x < -87.3 { -87.3 } else { x };
    // Adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let shifted = fma::<FMA>(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    // ln 2 in two parts, the first of which has few enough bits that its multiples are exact.
    let r = fma::<FMA>(n, -0.693_359_4, x);
    let r = fma::<FMA>(n, 2.121_944_4e-4, r);
    let mut p = 1.388_889e-3;
    for c in [8.333_334e-3, 4.166_666_8e-2, 0.166_666_67, 0.5, 1.0, 1.0] {
        p = fma::<FMA>(p, r, c);
    }
    let power = f32::from_bits((shifted.to_bits().wrapping_add(127)) << 23);
    p * power
}

#[inline(always)]
fn sigmoid<const FMA: bool>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<FMA>(-x))
}

/// `tanh x = 2 / (1 + e^{-2x}) - 1`, and its series where that would cancel.
#[inline(always)]
fn tanh<const FMA: bool>(x: f32) -> f32 {
    let far = fma::<FMA>(2.0, sigmoid::<FMA>(2.0 * x), -1.0);
    let s = x * x;
    let mut series = 62.0 / 2835.0;
    for c in [-17.0 / 315.0, 2.0 / 15.0, -1.0 / 3.0, 1.0] {
        series = fma::<FMA>(series, s, c);
    }
    if s < 0.04 { x * series } else { far }
}

multiversion! {
    /// `y = e^{scale (y - shift)}`; returns the sum.
    pub(crate) fn exp_shifted(y: &mut [f32], shift: f32, scale: f32) -> f32 = exp_shifted_body
}

#[inline(always)]
fn exp_shifted_body<const FMA: bool>(y: &mut [f32], shift: f32, scale: f32) -> f32 {
    let mut sums = [0.0f32; 16];
    let mut lines = y.chunks_exact_mut(16);
    for line in &mut lines {
        for (y, sum) in line.iter_mut().zip(&mut sums) {
            *y = exp::<FMA>(scale * (*y - shift));
            *sum += *y;
        }
    }
    let mut total: f32 = sums.iter().sum();
    for y in lines.into_remainder() {
        *y = exp::<FMA>(scale * (*y - shift));
        total += *y;
    }
    total
}

multiversion! {
    /// `y = tanh y`.
    pub(crate) fn tanh_all(y: &mut [f32]) = tanh_all_body
}

#[inline(always)]
fn tanh_all_body<const FMA: bool>(y: &mut [f32]) {
    for y in y {
        *y = tanh::<FMA>(*y);
    }
}

multiversion! {
    /// `y = scale / (1 + e^{-temperature y}) - offset`.
    pub(crate) fn tempered_sigmoid_all(y: &mut [f32], scale: f32, temperature: f32, offset: f32) = tempered_sigmoid_body
}

#[inline(always)]
fn tempered_sigmoid_body<const FMA: bool>(y: &mut [f32], scale: f32, temperature: f32, offset: f32) {
    for y in y {
        *y = scale * sigmoid::<FMA>(temperature * *y) - offset;
    }
}

multiversion! {
    /// `y = max(y, 0)`.
    pub(crate) fn relu_all(y: &mut [f32]) = relu_all_body
}

#[inline(always)]
fn relu_all_body<const FMA: bool>(y: &mut [f32]) {
    for y in y {
        // Written so that a NaN stays a NaN.
        *y = if *y < 0.0 { 0.0 } else { *y };
    }
}

multiversion! {
    /// `dy = dy` where `y > 0`, else 0.
    pub(crate) fn relu_gradient(y: &[f32], dy: &mut [f32]) = relu_gradient_body
}

#[inline(always)]
fn relu_gradient_body<const FMA: bool>(y: &[f32], dy: &mut [f32]) {
    for (dy, y) in dy.iter_mut().zip(y) {
        *dy = if *y <= 0.0 { 0.0 } else { *dy };
    }
}

multiversion! {
    /// `y = y Phi(y)`; `slope` becomes the derivative.
    pub(crate) fn gelu_all(y: &mut [f32], slope: &mut [f32]) = gelu_all_body
}

#[inline(always)]
fn gelu_all_body<const FMA: bool>(y: &mut [f32], slope: &mut [f32]) {
    for (y, slope) in y.iter_mut().zip(slope) {
        let x = *y;
        let (tail, density) = upper_tail::<FMA>(x.abs());
        let phi = if x < 0.0 { tail } else { 1.0 - tail };
        *y = x * phi;
        *slope = fma::<FMA>(x, density, phi);
    }
}

multiversion! {
    /// `y = y (1 + tanh(c (y + 0.044715 y^3))) / 2` with `c = sqrt(2 / pi)`; `slope` becomes the derivative.
    pub(crate) fn gelu_tanh_all(y: &mut [f32], slope: &mut [f32]) = gelu_tanh_all_body
}

#[inline(always)]
fn gelu_tanh_all_body<const FMA: bool>(y: &mut [f32], slope: &mut [f32]) {
    const C: f32 = 0.797_884_6;
    for (y, slope) in y.iter_mut().zip(slope) {
        let x = *y;
        // Beyond 10 the sigmoid is 0 or 1 and the cube could overflow. Comparisons keep a NaN.
        let near = if x > 10.0 { 10.0 } else { x };
        let near = if near < -10.0 { -10.0 } else { near };
        let square = near * near;
        // (1 + tanh u) / 2 is the sigmoid of 2 u, and `e share` is 1 - share without cancellation.
        let e = exp::<FMA>(-2.0 * C * near * fma::<FMA>(0.044_715, square, 1.0));
        let share = 1.0 / (1.0 + e);
        let inner = C * fma::<FMA>(3.0 * 0.044_715, square, 1.0);
        *y = x * share;
        *slope = fma::<FMA>(2.0 * near * inner, share * (e * share), share);
    }
}

/// `(1 - Phi(x), phi(x))` of the standard normal for `x >= 0`, to an absolute error of 2e-7.
///
/// Abramowitz and Stegun (1964), formula 7.1.26, for erfc at `x / sqrt 2`.
#[inline(always)]
fn upper_tail<const FMA: bool>(x: f32) -> (f32, f32) {
    let e = exp::<FMA>(-0.5 * x * x);
    let t = 1.0 / fma::<FMA>(x, 0.327_591_1 * std::f32::consts::FRAC_1_SQRT_2, 1.0);
    let mut p = 1.061_405_4;
    for c in [-1.453_152, 1.421_413_8, -0.284_496_74, 0.254_829_6] {
        p = fma::<FMA>(p, t, c);
    }
    (0.5 * p * t * e, 0.398_942_3 * e)
}

/// States and gradients of recurrent layers that are smaller than this are set to 0. Products of such numbers can be
/// subnormal, and arithmetic with subnormal numbers is ten times slower. Saturated gates produce such numbers at every step.
const NEGLIGIBLE: f32 = 1.0 / (1_u64 << 60) as f32;

#[inline(always)]
fn without_negligible(x: f32) -> f32 {
    // A NaN stays a NaN.
    if x.abs() < NEGLIGIBLE { 0.0 } else { x }
}

multiversion! {
    /// One step of an LSTM: gates `i f g o` (pre-activations, which become activations), the old cell, the new cell, `tanh` of it,
    /// and the new hidden state.
    pub(crate) fn lstm_step(gates: &mut [f32], old: &[f32], cell: &mut [f32], squashed: &mut [f32], hidden: &mut [f32])
        = lstm_step_body
}

#[inline(always)]
fn lstm_step_body<const FMA: bool>(
    gates: &mut [f32],
    old: &[f32],
    cell: &mut [f32],
    squashed: &mut [f32],
    hidden: &mut [f32],
) {
    let h = hidden.len();
    let (i, rest) = gates.split_at_mut(h);
    let (f, rest) = rest.split_at_mut(h);
    let (g, o) = rest.split_at_mut(h);
    let o = &mut o[..h];
    let (old, cell, squashed) = (&old[..h], &mut cell[..h], &mut squashed[..h]);
    for j in 0..h {
        (i[j], f[j], g[j], o[j]) =
            (sigmoid::<FMA>(i[j]), sigmoid::<FMA>(f[j]), tanh::<FMA>(g[j]), sigmoid::<FMA>(o[j]));
        cell[j] = without_negligible(fma::<FMA>(f[j], old[j], i[j] * g[j]));
        squashed[j] = tanh::<FMA>(cell[j]);
        hidden[j] = without_negligible(o[j] * squashed[j]);
    }
}

multiversion! {
    /// The gradient of [`lstm_step`]: gates become the gradients of the pre-activations, `dc` the old cell's gradient.
    pub(crate) fn lstm_step_gradient(gates: &mut [f32], old: &[f32], squashed: &[f32], dh: &[f32], dc: &mut [f32])
        = lstm_step_gradient_body
}

#[inline(always)]
fn lstm_step_gradient_body<const FMA: bool>(
    gates: &mut [f32],
    old: &[f32],
    squashed: &[f32],
    dh: &[f32],
    dc: &mut [f32],
) {
    let h = dc.len();
    let (gi, rest) = gates.split_at_mut(h);
    let (gf, rest) = rest.split_at_mut(h);
    let (gg, go) = rest.split_at_mut(h);
    let go = &mut go[..h];
    let (old, squashed, dh) = (&old[..h], &squashed[..h], &dh[..h]);
    for j in 0..h {
        let (i, f, g, o, s) = (gi[j], gf[j], gg[j], go[j], squashed[j]);
        let d = fma::<FMA>(dh[j] * o, 1.0 - s * s, dc[j]);
        gi[j] = without_negligible(d * g * i * (1.0 - i));
        gf[j] = without_negligible(d * old[j] * f * (1.0 - f));
        gg[j] = without_negligible(d * i * (1.0 - g * g));
        go[j] = without_negligible(dh[j] * s * o * (1.0 - o));
        dc[j] = without_negligible(d * f);
    }
}

multiversion! {
    /// One step of a GRU from the two halves of its gates `r z n`: the input's (which becomes the gates' values) and the
    /// hidden state's (whose part `n` is kept).
    pub(crate) fn gru_step(input: &mut [f32], state: &[f32], old: &[f32], hidden: &mut [f32]) = gru_step_body
}

#[inline(always)]
fn gru_step_body<const FMA: bool>(input: &mut [f32], state: &[f32], old: &[f32], hidden: &mut [f32]) {
    let h = hidden.len();
    let (r, rest) = input.split_at_mut(h);
    let (z, n) = rest.split_at_mut(h);
    let n = &mut n[..h];
    let (sr, sz, sn, old) = (&state[..h], &state[h..2 * h], &state[2 * h..3 * h], &old[..h]);
    for j in 0..h {
        r[j] = sigmoid::<FMA>(r[j] + sr[j]);
        z[j] = sigmoid::<FMA>(z[j] + sz[j]);
        n[j] = tanh::<FMA>(fma::<FMA>(r[j], sn[j], n[j]));
        hidden[j] = fma::<FMA>(z[j], old[j] - n[j], n[j]);
    }
}

multiversion! {
    /// The gradient of [`gru_step`]: `gates` (`r z n`) become the input's gradients, `state` (whose part `n` is read) the
    /// state's, and `dh` the part of the old state's gradient that bypasses the gates.
    pub(crate) fn gru_step_gradient(gates: &mut [f32], state: &mut [f32], old: &[f32], dh: &mut [f32])
        = gru_step_gradient_body
}

#[inline(always)]
fn gru_step_gradient_body<const FMA: bool>(
    gates: &mut [f32],
    state: &mut [f32],
    old: &[f32],
    dh: &mut [f32],
) {
    let h = dh.len();
    let (gr, rest) = gates.split_at_mut(h);
    let (gz, gn) = rest.split_at_mut(h);
    let (sr, rest) = state.split_at_mut(h);
    let (sz, sn) = rest.split_at_mut(h);
    let (gn, sn, old) = (&mut gn[..h], &mut sn[..h], &old[..h]);
    for j in 0..h {
        let (r, z, n) = (gr[j], gz[j], gn[j]);
        let dn = without_negligible(dh[j] * (1.0 - z) * (1.0 - n * n));
        let dr = without_negligible(dn * sn[j] * r * (1.0 - r));
        let dz = without_negligible(dh[j] * (old[j] - n) * z * (1.0 - z));
        (gr[j], gz[j], gn[j]) = (dr, dz, dn);
        (sr[j], sz[j], sn[j]) = (dr, dz, without_negligible(dn * r));
        dh[j] = without_negligible(dh[j] * z);
    }
}

multiversion! {
    /// The gradient of a softmax over `p`: `dp = scale p (dp - p . dp)`.
    pub(crate) fn softmax_gradient(p: &[f32], dp: &mut [f32], scale: f32) = softmax_gradient_body
}

#[inline(always)]
fn softmax_gradient_body<const FMA: bool>(p: &[f32], dp: &mut [f32], scale: f32) {
    let n = p.len();
    let dp = &mut dp[..n];
    let mut lanes = [0.0f32; 16];
    let whole = n / 16 * 16;
    for start in (0..whole).step_by(16) {
        for j in 0..16 {
            lanes[j] = fma::<FMA>(p[start + j], dp[start + j], lanes[j]);
        }
    }
    let mut dot: f32 = lanes.iter().sum();
    for i in whole..n {
        dot += p[i] * dp[i];
    }
    for i in 0..n {
        dp[i] = scale * p[i] * (dp[i] - dot);
    }
}

multiversion! {
    /// `dy *= slope`.
    pub(crate) fn times(dy: &mut [f32], slope: &[f32]) = times_body
}

#[inline(always)]
fn times_body<const FMA: bool>(dy: &mut [f32], slope: &[f32]) {
    for (dy, slope) in dy.iter_mut().zip(slope) {
        *dy *= slope;
    }
}

multiversion! {
    /// `dy *= 1 - y^2`.
    pub(crate) fn tanh_gradient(y: &[f32], dy: &mut [f32]) = tanh_gradient_body
}

#[inline(always)]
fn tanh_gradient_body<const FMA: bool>(y: &[f32], dy: &mut [f32]) {
    for (dy, y) in dy.iter_mut().zip(y) {
        *dy *= 1.0 - y * y;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Vec<f32> {
        (-4000..=4000).map(|i| i as f32 * 0.02).chain([1e-8, -1e-8, 0.0, 1e-3, 0.2, -0.2]).collect()
    }

    #[test]
    fn elementwise_functions_are_accurate() {
        for x in grid() {
            let wide = f64::from(x);
            let close = |got: f32, truth: f64, absolute: f64| {
                assert!(
                    (f64::from(got) - truth).abs() <= 4e-7 * truth.abs() + absolute,
                    "{x}: {got} {truth}"
                );
            };
            let mut y = [x];
            exp_shifted(&mut y, 0.0, 1.0);
            close(y[0], wide.exp(), 1e-37);
            let mut y = [x];
            tanh_all(&mut y);
            close(y[0], wide.tanh(), 2e-7);
            if x.abs() < 1.0 {
                close(y[0], wide.tanh(), 1e-7);
            }
            let mut y = [x];
            tempered_sigmoid_all(&mut y, 2.0, 3.0, 0.5);
            close(y[0], 2.0 / (1.0 + (-3.0 * wide).exp()) - 0.5, 4e-7);
            let (mut y, mut slope) = ([x], [0.0]);
            gelu_all(&mut y, &mut slope);
            // Numerical integration is an independent reference.
            let phi = normal(wide);
            close(y[0], wide * phi, 3e-7 * (1.0 + wide.abs().min(4.0)));
            let density = (-0.5 * wide * wide).exp() / (2.0 * std::f64::consts::PI).sqrt();
            close(slope[0], phi + wide * density, 6e-7);
            let (mut y, mut slope) = ([x], [0.0]);
            gelu_tanh_all(&mut y, &mut slope);
            let (value, derivative) = gelu_tanh(wide);
            close(y[0], value, 3e-7 * (1.0 + wide.abs().min(4.0)));
            close(slope[0], derivative, 6e-7);
        }
    }

    fn gelu_tanh(x: f64) -> (f64, f64) {
        let c = (2.0 / std::f64::consts::PI).sqrt();
        let t = (c * (x + 0.044_715 * x.powi(3))).tanh();
        let inner = c * (1.0 + 3.0 * 0.044_715 * x * x);
        (0.5 * x * (1.0 + t), 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner)
    }

    #[test]
    fn gelu_of_a_huge_number_is_the_number_or_zero() {
        let (mut y, mut slope) = ([1e30, -1e30], [0.0; 2]);
        gelu_tanh_all(&mut y, &mut slope);
        assert_eq!((y[0], slope[0]), (1e30, 1.0));
        assert!(y[1].abs() <= 1.0 && slope[1].abs() <= 1e-30, "{y:?} {slope:?}");
    }

    fn normal(x: f64) -> f64 {
        let steps = 400;
        let (from, width) = (0.0, x.clamp(-9.0, 9.0) / f64::from(steps));
        let density = |t: f64| (-0.5 * t * t).exp() / (2.0 * std::f64::consts::PI).sqrt();
        // Simpson's rule from 0.
        let sum: f64 = (0..=steps)
            .map(|i| {
                let weight = if i == 0 || i == steps {
                    1.0
                } else if i % 2 == 1 {
                    4.0
                } else {
                    2.0
                };
                weight * density(from + f64::from(i) * width)
            })
            .sum();
        0.5 + sum * width / 3.0
    }

    #[test]
    fn a_nan_stays_a_nan() {
        let mut y = [f32::NAN; 20];
        relu_all(&mut y);
        assert!(y.iter().all(|y| y.is_nan()));
        tanh_all(&mut y);
        tempered_sigmoid_all(&mut y, 1.0, 1.0, 0.0);
        assert!(y.iter().all(|y| y.is_nan()));
        gelu_all(&mut y, &mut [0.0; 20]);
        gelu_tanh_all(&mut y, &mut [0.0; 20]);
        assert!(exp_shifted(&mut y, 0.0, 1.0).is_nan());
        assert!(y.iter().all(|y| y.is_nan()));
    }
}
