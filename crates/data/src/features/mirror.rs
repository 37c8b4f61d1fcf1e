//! Folding: an image and its mirror image have the same features.

use super::morlet::{ORIENTATIONS, mirrored};
use super::scattering::PATHS;

/// The path that has the values of this path after the image was mirrored.
pub(super) fn mirrored_path(path: usize) -> usize {
    let first = 1 + 2 * ORIENTATIONS;
    match path {
        0 => 0,
        _ if path < first => {
            let (scale, orientation) = ((path - 1) / ORIENTATIONS, (path - 1) % ORIENTATIONS);
            1 + scale * ORIENTATIONS + mirrored(orientation)
        }
        _ => {
            let (outer, inner) = ((path - first) / ORIENTATIONS, (path - first) % ORIENTATIONS);
            first + mirrored(outer) * ORIENTATIONS + mirrored(inner)
        }
    }
}

/// The same for the channels of several colours.
pub(super) fn mirrored_channel(channel: usize) -> usize {
    channel / PATHS * PATHS + mirrored_path(channel % PATHS)
}

/// The number of columns that remain of `width` columns. A column in the middle is kept.
pub(super) fn folded_width(width: usize) -> usize {
    width.div_ceil(2)
}

/// The sum of a map and of the map of the mirrored image, divided by the square root of 2, in the left half.
///
/// On the mirror grid the map of the mirrored image is the map with mirrored columns and orientations. So the right half of the sum has the
/// numbers of the left half in another order, and is left out. `map` has `channels` numbers for each position.
pub(super) fn fold(map: &[f32], channels: usize, width: usize, out: &mut Vec<f32>) {
    out.clear();
    for row in map.chunks_exact(width * channels) {
        for column in 0..folded_width(width) {
            let (here, there) = (&row[column * channels..], &row[(width - 1 - column) * channels..]);
            out.extend((0..channels).map(|channel| {
                (here[channel] + there[mirrored_channel(channel)]) * std::f32::consts::FRAC_1_SQRT_2
            }));
        }
    }
}
