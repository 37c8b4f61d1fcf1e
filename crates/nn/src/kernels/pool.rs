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
        // A mask of all ones or all zeros. With a condition, the compiler generates two masked stores, and the next load waits for both.
        let won = u32::from(x[i] == y[i]).wrapping_neg();
        dx[i] += f32::from_bits(left[i].to_bits() & won);
        left[i] = f32::from_bits(left[i].to_bits() & !won);
    }
}

/// The windows in one row of pixels.
#[derive(Clone, Copy)]
pub(crate) struct Windows {
    /// Floats of a pixel.
    pub(crate) channels: usize,
    /// Pixels of a window.
    pub(crate) width: usize,
    /// Pixels from one window to the next.
    pub(crate) stride: usize,
}

multiversion! {
    /// `y` is `share` times the sum of the pixels of each window of `x`.
    pub(crate) fn sum_windows(y: &mut [f32], share: f32, x: &[f32], windows: Windows) = sum_windows_body
}

#[inline(always)]
fn sum_windows_body<const FMA: bool>(y: &mut [f32], share: f32, x: &[f32], windows: Windows) {
    let Windows { channels, width, stride } = windows;
    for (index, y) in y.chunks_exact_mut(channels).enumerate() {
        let x = &x[index * stride * channels..][..width * channels];
        for (c, y) in y.iter_mut().enumerate() {
            *y = share * (0..width).map(|pixel| x[pixel * channels + c]).sum::<f32>();
        }
    }
}

multiversion! {
    /// Adds `share` times the value of each window to all its pixels in `dx`.
    pub(crate) fn spread_windows(dx: &mut [f32], share: f32, dy: &[f32], windows: Windows) = spread_windows_body
}

#[inline(always)]
fn spread_windows_body<const FMA: bool>(dx: &mut [f32], share: f32, dy: &[f32], windows: Windows) {
    let Windows { channels, width, stride } = windows;
    for (index, dy) in dy.chunks_exact(channels).enumerate() {
        let dx = &mut dx[index * stride * channels..][..width * channels];
        for pixel in dx.chunks_exact_mut(channels) {
            for (dx, dy) in pixel.iter_mut().zip(dy) {
                *dx += share * dy;
            }
        }
    }
}
