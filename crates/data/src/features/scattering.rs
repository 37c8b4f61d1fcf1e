//! The scattering transform of one plane of an image.

use sordino_nn::PatchProduct;

use super::morlet::{ORIENTATIONS, Support, gaussian, morlet_bank};

/// The number of paths of a scattering transform with J = 2 and L = 8: the mean, 8 orientations at each of two scales, and 64 pairs of orientations.
pub(super) const PATHS: usize = 1 + 2 * ORIENTATIONS + ORIENTATIONS * ORIENTATIONS;

/// The factor by which height and width shrink, `2^J`.
pub(super) const SHRINK: usize = 4;

/// The number of pixels by which planes are continued on each side.
const PAD: usize = 8;

/// Where the outputs of a transform lie on the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grid {
    /// Output `i` lies at pixel `4 i`, as in Kymatio.
    Corner,
    /// Output `i` lies in the middle of pixels `4 i` to `4 i + 3`. Mirroring an image mirrors the grid.
    Mirror,
}

/// The radii of the kernels: those of wavelets, in pixels of their input, and those of the low-pass filters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Radii {
    pub(super) fine: usize,
    pub(super) coarse: usize,
    pub(super) low: usize,
    pub(super) low_of_half: usize,
}

/// Kernels end where the envelope has fallen to 4 % of its maximum or less.
pub(super) const RADII: [Radii; 2] = [
    Radii { fine: 4, coarse: 8, low: 5, low_of_half: 3 },
    Radii { fine: 4, coarse: 8, low: 6, low_of_half: 3 },
];

/// The scattering transform of planes of one size.
///
/// With the wavelets `w_j,t` of scale `2^j` and orientation `t` and the Gaussian `g` with a standard deviation of 1.6 pixels (`*` is a convolution in
/// space):
///
/// ```text
/// S0     = x * g                           sampled at every 4th pixel
/// S1_j,t = |x * w_j,t| * g                 j = 0, 1
/// S2_t,r = ||x * w_0,t| * w_1,r| * g
/// ```
///
/// `|x * w_1,t|` and `||x * w_0,t| * w_1,r|` are sampled at every second pixel, where a Gaussian with a standard deviation of 0.8
/// samples has the same width. Before each convolution a plane is continued by reflection without repeating its border.
#[derive(Debug)]
pub(super) struct Scattering {
    pad: Padding,
    fine: PatchProduct,
    coarse: PatchProduct,
    second: PatchProduct,
    low: LowPass,
    low_of_half: LowPass,
    pixels: usize,
    halves: usize,
    outputs: usize,
}

/// Buffers of one thread.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    padded: Vec<f32>,
    complex: Vec<f32>,
    fine: Vec<f32>,
    half: Vec<f32>,
    rows: Vec<f32>,
    low: Vec<f32>,
}

impl Scattering {
    /// For planes of this size: multiples of 4, at least 12.
    pub(super) fn new(height: usize, width: usize, grid: Grid) -> Scattering {
        Self::with_radii(height, width, grid, RADII[grid as usize])
    }

    /// With kernels of other radii.
    pub(super) fn with_radii(height: usize, width: usize, grid: Grid, radii: Radii) -> Scattering {
        let support = |radius, stride| match grid {
            Grid::Corner => Support::centred(radius),
            Grid::Mirror => Support::between(radius, stride),
        };
        let reach = PAD.max(radii.coarse);
        let pad = Padding::new(height, width, reach);
        // At full resolution the kernels of wavelets have odd size on both grids.
        let (fine, coarse) = (Support::centred(radii.fine), support(radii.coarse, 2));
        Scattering {
            fine: pad.convolution(0, fine, 1, 1),
            coarse: pad.convolution(1, coarse, 2, 1),
            second: pad.convolution(1, coarse, 2, ORIENTATIONS),
            low: LowPass::new(height, width, 4, 1.6, support(radii.low, 4)),
            low_of_half: LowPass::new(height / 2, width / 2, 2, 0.8, support(radii.low_of_half, 2)),
            pad,
            pixels: height * width,
            halves: height * width / 4,
            outputs: height / SHRINK * (width / SHRINK),
        }
    }

    /// Transforms a plane. Path `p` at position `i` becomes `output[i * stride + p]`.
    pub(super) fn apply(&self, plane: &[f32], output: &mut [f32], stride: usize, scratch: &mut Scratch) {
        let Scratch { padded, complex, fine, half, rows, low } = scratch;
        let mut store = |from: &[f32], paths: usize, first: usize| {
            for (to, from) in output.chunks_mut(stride).zip(from.chunks_exact(paths)) {
                to[first..first + paths].copy_from_slice(from);
            }
        };
        padded.resize(ORIENTATIONS * self.pad.size(), 0.0);
        complex.resize(2 * ORIENTATIONS * self.pixels.max(ORIENTATIONS * self.halves), 0.0);
        fine.resize(ORIENTATIONS * self.pixels, 0.0);
        half.resize(ORIENTATIONS * ORIENTATIONS * self.halves, 0.0);
        low.resize(ORIENTATIONS * ORIENTATIONS * self.outputs, 0.0);

        self.low.apply(plane, 1, rows, &mut low[..self.outputs]);
        store(&low[..self.outputs], 1, 0);

        self.pad.fill(plane, 1, 0, &mut padded[..self.pad.size()]);
        self.fine.apply(padded, complex);
        moduli(&complex[..2 * ORIENTATIONS * self.pixels], fine, ORIENTATIONS);
        let eight = &mut low[..ORIENTATIONS * self.outputs];
        self.low.apply(fine, ORIENTATIONS, rows, eight);
        store(eight, ORIENTATIONS, 1);

        let coarse = &mut half[..ORIENTATIONS * self.halves];
        self.coarse.apply(padded, complex);
        moduli(&complex[..2 * ORIENTATIONS * self.halves], coarse, ORIENTATIONS);
        self.low_of_half.apply(coarse, ORIENTATIONS, rows, eight);
        store(eight, ORIENTATIONS, 1 + ORIENTATIONS);

        for (orientation, padded) in padded.chunks_exact_mut(self.pad.size()).enumerate() {
            self.pad.fill(fine, ORIENTATIONS, orientation, padded);
        }
        self.second.apply(padded, complex);
        let pairs = ORIENTATIONS * ORIENTATIONS;
        for (orientation, complex) in
            complex.chunks_exact(2 * ORIENTATIONS * self.halves).take(ORIENTATIONS).enumerate()
        {
            moduli(complex, &mut half[orientation * ORIENTATIONS..], pairs);
        }
        self.low_of_half.apply(half, pairs, rows, low);
        store(low, pairs, 1 + 2 * ORIENTATIONS);
    }
}

/// The moduli of complex numbers: 8 real parts and 8 imaginary parts for each position become 8 numbers, `stride` apart.
fn moduli(complex: &[f32], out: &mut [f32], stride: usize) {
    for (out, parts) in out.chunks_mut(stride).zip(complex.as_chunks::<{ 2 * ORIENTATIONS }>().0) {
        for (orientation, out) in out[..ORIENTATIONS].iter_mut().enumerate() {
            let (real, imaginary) = (parts[orientation], parts[ORIENTATIONS + orientation]);
            *out = (real * real + imaginary * imaginary).sqrt();
        }
    }
}

/// The index that continuation by reflection, without repeating the border, puts at position `at`.
fn reflected(at: isize, length: usize) -> usize {
    let period = 2 * (length as isize - 1);
    let at = at.rem_euclid(period);
    at.min(period - at) as usize
}

/// Planes continued by reflection.
#[derive(Debug)]
struct Padding {
    height: usize,
    width: usize,
    reach: usize,
    /// For each position of a continued plane, the pixel that it repeats.
    sources: Vec<u32>,
}

impl Padding {
    fn new(height: usize, width: usize, reach: usize) -> Padding {
        let along = move |length: usize| {
            let reach = reach as isize;
            (-reach..length as isize + reach).map(move |at| reflected(at, length))
        };
        let sources = along(height)
            .flat_map(|row| along(width).map(move |column| (row * width + column) as u32))
            .collect();
        Padding { height, width, reach, sources }
    }

    /// The number of values in a continued plane.
    fn size(&self) -> usize {
        self.sources.len()
    }

    /// Continues plane `lane` of `lanes` interleaved ones.
    fn fill(&self, planes: &[f32], lanes: usize, lane: usize, padded: &mut [f32]) {
        for (padded, source) in padded.iter_mut().zip(&self.sources) {
            *padded = planes[*source as usize * lanes + lane];
        }
    }

    /// The convolution of several continued planes with the wavelets of scale `2^j`.
    fn convolution(&self, j: i32, support: Support, stride: usize, planes: usize) -> PatchProduct {
        let across = self.width + 2 * self.reach;
        let first = (self.reach as isize + support.first) as usize;
        let (rows, columns) = (self.height / stride, self.width / stride);
        let start = |plane: usize, row: usize, column: usize| {
            plane * self.size() + (first + row * stride) * across + first + column * stride
        };
        let starts: Vec<usize> = (0..planes)
            .flat_map(|plane| (0..rows).map(move |row| (plane, row)))
            .flat_map(|(plane, row)| (0..columns).map(move |column| start(plane, row, column)))
            .collect();
        let parts: Vec<_> = (0..support.size).map(|row| row * across..row * across + support.size).collect();
        let bank: Vec<f32> = morlet_bank(j, support).into_iter().map(|tap| tap as f32).collect();
        PatchProduct::new(&starts, &parts, &bank, 2 * ORIENTATIONS)
    }
}

/// A Gaussian low-pass filter, sampled at every `stride`-th pixel.
#[derive(Debug)]
struct LowPass {
    width: usize,
    taps: Vec<f32>,
    /// The rows and columns that each output reads, one for each tap.
    rows: Vec<usize>,
    columns: Vec<usize>,
}

impl LowPass {
    fn new(height: usize, width: usize, stride: usize, deviation: f64, support: Support) -> LowPass {
        let sources = |length: usize| {
            let starts = (0..length / stride).map(|at| (at * stride) as isize + support.first);
            starts
                .flat_map(|start| (0..support.size as isize).map(move |tap| reflected(start + tap, length)))
                .collect()
        };
        LowPass {
            width,
            taps: gaussian(deviation, support).into_iter().map(|tap| tap as f32).collect(),
            rows: sources(height),
            columns: sources(width),
        }
    }

    /// Filters interleaved planes, along columns and then along rows.
    fn apply(&self, planes: &[f32], lanes: usize, between: &mut Vec<f32>, out: &mut [f32]) {
        let line = self.width * lanes;
        between.resize(self.rows.len() / self.taps.len() * line, 0.0);
        for (out, rows) in between.chunks_exact_mut(line).zip(self.rows.chunks_exact(self.taps.len())) {
            let sources = rows.iter().map(|row| &planes[row * line..][..line]);
            weighted_sum(out, &self.taps, sources);
        }
        let outputs = self.columns.len() / self.taps.len() * lanes;
        for (out, row) in out.chunks_exact_mut(outputs).zip(between.chunks_exact(line)) {
            for (out, columns) in out.chunks_exact_mut(lanes).zip(self.columns.chunks_exact(self.taps.len()))
            {
                let sources = columns.iter().map(|column| &row[column * lanes..][..lanes]);
                weighted_sum(out, &self.taps, sources);
            }
        }
    }
}

fn weighted_sum<'a>(out: &mut [f32], weights: &[f32], sources: impl Iterator<Item = &'a [f32]>) {
    out.fill(0.0);
    for (weight, source) in weights.iter().zip(sources) {
        out.iter_mut().zip(source).for_each(|(out, value)| *out += weight * value);
    }
}
