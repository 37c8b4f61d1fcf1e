//! Partial whitening by the statistics of synthetic images.

use rayon::prelude::*;
use sordino_nn::PatchProduct;

use super::dead_leaves::dead_leaves;
use super::jacobi::power;
use super::mirror::mirrored_channel;

/// The number of synthetic images of up to 32 x 32 pixels. Larger images are fewer, so that the total number of pixels is the same,
/// but at least 100.
const IMAGES: usize = 2500;

/// The number of images whose sums are added in single precision.
const BLOCK: usize = 25;

/// Added to the eigenvalues of a covariance, relative to their mean.
const RIDGE: f64 = 0.01;

/// Channels with less variance than this are not divided by their standard deviation.
const SMALLEST_VARIANCE: f64 = 1e-12;

/// Whitens channels in part, and smooths positions in part, by the statistics of synthetic images.
///
/// With the means `m`, the standard deviations `d` and the correlations `R` of channels, the channels `f` of a position become
/// `(R + 0.01)^(-whiten) ((f - m) / d)`. Then rows and columns of positions are multiplied by the power `smooth` of their covariances, so that
/// patterns that extend over several positions gain weight. Full whitening (`whiten` = 1/2) would give
/// directions that contain only noise the same weight as all others.
#[derive(Debug)]
pub(super) struct Whitening {
    /// The means of the channels, and the matrix by which they are multiplied; none without whitening.
    channels: Option<(Vec<f32>, PatchProduct)>,
    /// Matrices by which rows and columns of positions are multiplied; none without smoothing.
    positions: Option<[Vec<f32>; 2]>,
    height: usize,
    width: usize,
}

/// The size of maps: `channels` numbers for each of `height x width` positions.
#[derive(Debug, Clone, Copy)]
pub(super) struct MapSize {
    pub(super) channels: usize,
    pub(super) height: usize,
    pub(super) width: usize,
}

/// Sums over synthetic images.
struct Sums {
    means: Vec<f64>,
    channels: Vec<f64>,
}

impl Whitening {
    /// The whitening of the maps that `transform` computes from images of this shape. If the map of a mirrored image is the mirrored map, this also
    /// holds after whitening.
    pub(super) fn new(
        transform: impl Fn(&[f32]) -> Vec<f32> + Sync,
        image: (usize, usize, usize),
        map: MapSize,
        whiten: f64,
        smooth: f64,
        is_mirrored: bool,
    ) -> Whitening {
        let (channels, height, width) = image;
        let images = (IMAGES * 1024 / (height * width)).clamp(100, IMAGES);
        let maps: Vec<Vec<f32>> = (0..images as u64)
            .into_par_iter()
            .map(|number| transform(&dead_leaves(number, channels, height, width)))
            .collect();
        let channels = (whiten > 0.0).then(|| {
            let (means, matrix) = channel_matrix(&maps, map.channels, whiten, is_mirrored);
            (means, PatchProduct::of_rows(map.height * map.width, map.channels, &matrix, map.channels))
        });
        let mut whitening = Whitening { channels, positions: None, height: map.height, width: map.width };
        if smooth > 0.0 {
            whitening.positions = Some(whitening.smoothing(&maps, smooth, is_mirrored));
        }
        whitening
    }

    /// The matrices for rows and columns of positions.
    fn smoothing(&self, maps: &[Vec<f32>], smooth: f64, is_mirrored: bool) -> [Vec<f32>; 2] {
        let (height, width) = (self.height, self.width);
        let whitened = maps.par_chunks(BLOCK).map(|block| {
            let (mut rows, mut columns) = (vec![0.0; height * height], vec![0.0; width * width]);
            for map in block {
                let mut map = map.clone();
                self.apply(&mut map, &mut Vec::new());
                let line = map.len() / height;
                products(&map, height, line, &mut rows);
                map.chunks_exact(line).for_each(|row| products(row, width, line / width, &mut columns));
            }
            [rows, columns]
        });
        let whitened: Vec<[Vec<f64>; 2]> = whitened.collect();
        let total = |axis: usize, size: usize| {
            let mut total = vec![0.0; size * size];
            whitened.iter().for_each(|sums| add(&mut total, &sums[axis]));
            if is_mirrored {
                let reversed: Vec<f64> = total.iter().rev().copied().collect();
                total.iter_mut().zip(reversed).for_each(|(total, other)| *total = (*total + other) / 2.0);
            }
            single(&power(&total, size, smooth, RIDGE))
        };
        [total(0, height), total(1, width)]
    }

    /// Whitens a map, with `channels` numbers for each position.
    pub(super) fn apply(&self, map: &mut Vec<f32>, other: &mut Vec<f32>) {
        other.resize(map.len(), 0.0);
        if let Some((means, matrix)) = &self.channels {
            for position in map.chunks_exact_mut(means.len()) {
                position.iter_mut().zip(means).for_each(|(value, mean)| *value -= mean);
            }
            matrix.apply(map, other);
            std::mem::swap(map, other);
        }
        if let Some([rows, columns]) = &self.positions {
            let line = map.len() / self.height;
            multiply(rows, self.height, map, other);
            for (from, to) in other.chunks_exact(line).zip(map.chunks_exact_mut(line)) {
                multiply(columns, self.width, from, to);
            }
        }
    }
}

/// The means of the channels and the matrix `diag(1 / d) (R + 0.01)^(-whiten)`, by which rows of channels are multiplied from the right.
fn channel_matrix(
    maps: &[Vec<f32>],
    channels: usize,
    whiten: f64,
    is_mirrored: bool,
) -> (Vec<f32>, Vec<f32>) {
    let Sums { mut means, channels: mut covariance } = sums(maps, channels);
    let count = maps.iter().map(|map| map.len() / channels).sum::<usize>() as f64;
    means.iter_mut().for_each(|mean| *mean /= count);
    covariance.iter_mut().for_each(|sum| *sum /= count);
    if is_mirrored {
        means = symmetric(&means, 1, channels);
        covariance = symmetric(&covariance, channels, channels);
    }
    for (row, mean) in covariance.chunks_exact_mut(channels).zip(&means) {
        row.iter_mut().zip(&means).for_each(|(covariance, other)| *covariance -= mean * other);
    }
    let deviations: Vec<f64> = (0..channels)
        .map(|channel| covariance[channel * (channels + 1)].max(SMALLEST_VARIANCE).sqrt())
        .collect();
    for (row, deviation) in covariance.chunks_exact_mut(channels).zip(&deviations) {
        row.iter_mut().zip(&deviations).for_each(|(covariance, other)| *covariance /= deviation * other);
    }
    let mut matrix = power(&covariance, channels, -whiten, RIDGE);
    for (row, deviation) in matrix.chunks_exact_mut(channels).zip(&deviations) {
        row.iter_mut().for_each(|entry| *entry /= deviation);
    }
    (single(&means), single(&matrix))
}

/// `out[i] = sum_j matrix[i][j] from[j]` for vectors `from[j]`.
fn multiply(matrix: &[f32], size: usize, from: &[f32], out: &mut [f32]) {
    let line = from.len() / size;
    out.fill(0.0);
    for (out, weights) in out.chunks_exact_mut(line).zip(matrix.chunks_exact(size)) {
        for (from, weight) in from.chunks_exact(line).zip(weights) {
            out.iter_mut().zip(from).for_each(|(out, from)| *out += weight * from);
        }
    }
}

/// Adds the inner products of `size` vectors of `line` numbers to `sums`.
fn products(vectors: &[f32], size: usize, line: usize, sums: &mut [f64]) {
    for (i, first) in vectors.chunks_exact(line).enumerate() {
        for (j, second) in vectors.chunks_exact(line).enumerate().take(i + 1) {
            let mut lanes = [0.0_f32; 16];
            for (first, second) in first.chunks(16).zip(second.chunks(16)) {
                for (lane, (first, second)) in lanes.iter_mut().zip(first.iter().zip(second)) {
                    *lane += first * second;
                }
            }
            let product = f64::from(lanes.iter().sum::<f32>());
            sums[i * size + j] += product;
            if i != j {
                sums[j * size + i] += product;
            }
        }
    }
}

/// The sums and the sums of products of channels, over all positions of all maps. Blocks are added in their order, whatever the number of
/// threads.
fn sums(maps: &[Vec<f32>], channels: usize) -> Sums {
    let block = |block: &[Vec<f32>]| {
        let mut sums = Sums { means: vec![0.0; channels], channels: vec![0.0; channels * channels] };
        let mut products = vec![0.0_f32; channels * channels];
        for map in block {
            let positions = map.len() / channels;
            for position in map.chunks_exact(channels) {
                sums.means.iter_mut().zip(position).for_each(|(sum, value)| *sum += f64::from(*value));
            }
            let transposed: Vec<f32> =
                (0..map.len()).map(|at| map[at % positions * channels + at / positions]).collect();
            PatchProduct::of_rows(channels, positions, map, channels).apply(&transposed, &mut products);
            sums.channels.iter_mut().zip(&products).for_each(|(sum, product)| *sum += f64::from(*product));
        }
        sums
    };
    let blocks: Vec<Sums> = maps.par_chunks(BLOCK).map(block).collect();
    let mut total = Sums { means: vec![0.0; channels], channels: vec![0.0; channels * channels] };
    for block in blocks {
        add(&mut total.means, &block.means);
        add(&mut total.channels, &block.channels);
    }
    total
}

fn add(total: &mut [f64], more: &[f64]) {
    total.iter_mut().zip(more).for_each(|(total, more)| *total += more);
}

/// The mean of a matrix and of the matrix with mirrored orientations.
fn symmetric(matrix: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    let row = |row: usize| if rows == 1 { row } else { mirrored_channel(row) };
    let mirrored = |at: usize| matrix[row(at / columns) * columns + mirrored_channel(at % columns)];
    (0..rows * columns).map(|at| (matrix[at] + mirrored(at)) / 2.0).collect()
}

fn single(numbers: &[f64]) -> Vec<f32> {
    numbers.iter().map(|number| *number as f32).collect()
}
