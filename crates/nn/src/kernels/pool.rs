//! Pooling, pixel by pixel; the channels of a pixel are adjacent.

use super::isa::multiversion;

multiversion! {
    /// `y = max(y, x)`; a NaN is kept.
    pub(crate) fn take_greater(y: &mut [f32], x: &[f32]) = take_greater_body
}

#[inline(always)]
fn take_greater_body<const FMA: bool>(y: &mut [f32], x: &[f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = if *x <= *y || y.is_nan() { *y } else { *x };
    }
}

multiversion! {
    /// Where `x` equals the window's maximum `y`, moves what is left of the window's gradient to `dx`.
    pub(crate) fn give_to_winner(x: &[f32], y: &[f32], left: &mut [f32], dx: &mut [f32]) = give_to_winner_body
}

#[inline(always)]
fn give_to_winner_body<const FMA: bool>(x: &[f32], y: &[f32], left: &mut [f32], dx: &mut [f32]) {
    let n = x.len().min(y.len()).min(left.len()).min(dx.len());
    let (x, y, left, dx) = (&x[..n], &y[..n], &mut left[..n], &mut dx[..n]);
    for i in 0..n {
        let won = x[i] == y[i];
        dx[i] += if won { left[i] } else { 0.0 };
        left[i] = if won { 0.0 } else { left[i] };
    }
}
