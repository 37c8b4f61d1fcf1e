//! Morlet wavelets and Gaussian low-pass filters, as kernels in space.

use std::f64::consts::PI;

/// The number of orientations, L.
pub(super) const ORIENTATIONS: usize = 8;

/// Where the kernel of a convolution lies: output `i` reads the inputs from `stride i + first` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Support {
    pub(super) first: isize,
    pub(super) size: usize,
}

impl Support {
    /// A kernel of odd size around input `stride i`.
    pub(super) fn centred(radius: usize) -> Support {
        Support { first: -(radius as isize), size: 2 * radius + 1 }
    }

    /// A kernel of even size around the middle of the `stride` inputs from `stride i` on, for an even stride. If the number of inputs is
    /// a multiple of the stride, mirroring them mirrors the outputs.
    pub(super) fn between(radius: usize, stride: usize) -> Support {
        Support { first: (stride / 2) as isize - radius as isize, size: 2 * radius }
    }

    /// The distances of the inputs from the centre of the kernel.
    fn offsets(self) -> impl Iterator<Item = f64> + Clone {
        let middle = (self.size - 1) as f64 / 2.0;
        (0..self.size).map(move |tap| tap as f64 - middle)
    }
}

/// The angle of orientation `t`, from the vertical axis: `(3 - t) pi / 8`, in Kymatio's order.
fn angle(orientation: usize) -> f64 {
    (ORIENTATIONS as f64 / 2.0 - 1.0 - orientation as f64) * PI / ORIENTATIONS as f64
}

/// The number of the orientation of a mirrored image: left and right are exchanged.
pub(super) fn mirrored(orientation: usize) -> usize {
    (2 * ORIENTATIONS - 2 - orientation) % ORIENTATIONS
}

/// The wavelets of scale `2^j` in all orientations, real and imaginary part: `bank[tap][part * 8 + orientation]`, taps row by row.
///
/// With `u` along the wave and `v` across it, a wavelet is `g(x) (e^(i xi u) - K) / (2 pi s^2 / slant)` with
/// `g(x) = exp(-(u^2 + slant^2 v^2) / (2 s^2))`, `s = 0.8 2^j`, `xi = 3 pi / (4 2^j)`, `slant = 1/2`. K makes the sum of the kernel zero.
/// A convolution reverses the kernel, so the tap at `x` has the value of the wavelet at `-x`, which is the complex conjugate. The modulus is
/// the same.
pub(super) fn morlet_bank(j: i32, support: Support) -> Vec<f64> {
    let scale = libm::exp2(f64::from(j));
    let (width, frequency, slant) = (0.8 * scale, 0.75 * PI / scale, 4.0 / ORIENTATIONS as f64);
    let mut bank = vec![0.0; support.size * support.size * 2 * ORIENTATIONS];
    for orientation in 0..ORIENTATIONS {
        let (sin, cos) = libm::sincos(angle(orientation));
        let taps: Vec<(f64, f64, f64)> = support
            .offsets()
            .flat_map(|row| support.offsets().map(move |column| (row, column)))
            .map(|(row, column)| {
                let (u, v) = (cos * row + sin * column, cos * column - sin * row);
                let envelope = libm::exp(-(u * u + slant * slant * v * v) / (2.0 * width * width));
                let (odd, even) = libm::sincos(frequency * u);
                (envelope, envelope * even, envelope * odd)
            })
            .collect();
        let total = |part: fn(&(f64, f64, f64)) -> f64| taps.iter().map(part).sum::<f64>();
        // The imaginary parts of opposite taps cancel.
        let mean = total(|tap| tap.1) / total(|tap| tap.0);
        let norm = 2.0 * PI * width * width / slant;
        for (tap, (envelope, even, odd)) in taps.into_iter().enumerate() {
            let row = &mut bank[tap * 2 * ORIENTATIONS..][..2 * ORIENTATIONS];
            row[orientation] = (even - mean * envelope) / norm;
            row[ORIENTATIONS + orientation] = odd / norm;
        }
    }
    bank
}

/// A Gaussian of this standard deviation in one dimension, whose sum is 1.
pub(super) fn gaussian(deviation: f64, support: Support) -> Vec<f64> {
    let taps = support.offsets().map(|x| libm::exp(-x * x / (2.0 * deviation * deviation)));
    let total: f64 = taps.clone().sum();
    taps.map(|tap| tap / total).collect()
}
