//! Opponent colours.

/// Replaces red, green and blue by brightness, red minus blue, and red and blue minus green:
/// `(R + G + B) / sqrt 3`, `(R - B) / sqrt 2`, `(R - 2 G + B) / sqrt 6`. The matrix is orthogonal.
///
/// The colours of natural images vary along these axes almost independently (Ruderman, Cronin and Chiao 1998).
pub(super) fn to_opponent(image: &mut [f32]) {
    let (red, rest) = image.split_at_mut(image.len() / 3);
    let (green, blue) = rest.split_at_mut(rest.len() / 2);
    for ((red, green), blue) in red.iter_mut().zip(green).zip(blue) {
        let (r, g, b) = (*red, *green, *blue);
        *red = (r + g + b) * 0.577_350_26;
        *green = (r - b) * std::f32::consts::FRAC_1_SQRT_2;
        *blue = (r - 2.0 * g + b) * 0.408_248_3;
    }
}
