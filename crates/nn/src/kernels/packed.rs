//! A right operand packed once and used for many products.

use rayon::prelude::*;

use super::aligned::Aligned;
use super::lanes::WIDTH;

/// A matrix `k x n` as panels of sixteen columns, each `k` rows of sixteen floats; missing columns are zero.
#[derive(Default)]
pub(crate) struct Packed {
    panels: Aligned,
    k: usize,
    n: usize,
}

impl Packed {
    /// Replaces the contents by rows `row * stride ..` of `source`, each of which holds `n` columns.
    pub(crate) fn fill_rows(&mut self, k: usize, n: usize, source: &[f32], stride: usize) {
        self.resize(k, n);
        for panel in 0..n.div_ceil(WIDTH) {
            let (first, width) = (panel * WIDTH, (n - panel * WIDTH).min(WIDTH));
            let out = &mut self.panels[panel * k * WIDTH..][..k * WIDTH];
            for (row, out) in out.chunks_exact_mut(WIDTH).enumerate() {
                let (filled, missing) = out.split_at_mut(width);
                filled.copy_from_slice(&source[row * stride + first..][..width]);
                missing.fill(0.0);
            }
        }
    }

    /// Replaces the contents by the transpose of `n` rows of `source`, each of which holds `k` floats.
    pub(crate) fn fill_columns(&mut self, k: usize, n: usize, source: &[f32], stride: usize) {
        self.resize(k, n);
        let panels = &mut self.panels[..n.div_ceil(WIDTH) * k * WIDTH];
        let one = |(panel, out): (usize, &mut [f32])| {
            let width = (n - panel * WIDTH).min(WIDTH);
            transpose(&source[panel * WIDTH * stride..], stride, width, out);
        };
        // Distributing small matrices is not worth the overhead.
        match k * n < 1 << 16 {
            true => panels.chunks_exact_mut(k * WIDTH).enumerate().for_each(one),
            false => panels.par_chunks_exact_mut(k * WIDTH).enumerate().for_each(one),
        }
    }

    /// The panels of a `k x n` matrix, to be overwritten.
    pub(super) fn panels_mut(&mut self, k: usize, n: usize) -> &mut [f32] {
        self.resize(k, n);
        &mut self.panels[..n.div_ceil(WIDTH) * k * WIDTH]
    }

    fn resize(&mut self, k: usize, n: usize) {
        self.panels.reserve(n.div_ceil(WIDTH) * k * WIDTH);
        (self.k, self.n) = (k, n);
    }

    /// The number of rows.
    pub(crate) fn k(&self) -> usize {
        self.k
    }

    /// The number of columns.
    pub(crate) fn n(&self) -> usize {
        self.n
    }

    /// All panels: `n / 16` rounded up, each of `16 k` floats.
    pub(super) fn panels(&self) -> &[f32] {
        &self.panels
    }
}

/// `out[i][j] = source[j][i]` for `width` rows of the source; missing columns are zero.
fn transpose(source: &[f32], stride: usize, width: usize, out: &mut [f32]) {
    let k = out.len() / WIDTH;
    if width < WIDTH {
        out.fill(0.0);
        for j in 0..width {
            for (out, value) in out.chunks_exact_mut(WIDTH).zip(&source[j * stride..][..k]) {
                out[j] = *value;
            }
        }
        return;
    }
    // A whole line of each of sixteen rows at a time.
    let rows: [&[f32]; WIDTH] = std::array::from_fn(|j| &source[j * stride..][..k]);
    for (block, out) in out.chunks_mut(WIDTH * WIDTH).enumerate() {
        let first = block * WIDTH;
        for (i, out) in out.chunks_exact_mut(WIDTH).enumerate() {
            for (out, row) in out.iter_mut().zip(&rows) {
                *out = row[first + i];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_packing_agree() {
        for (k, n) in [(1, 1), (3, 16), (8, 17), (5, 40), (20, 31)] {
            let matrix: Vec<f32> = (0..k * n).map(|i| i as f32).collect();
            let transposed: Vec<f32> = (0..k * n).map(|i| matrix[(i % k) * n + i / k]).collect();
            let [mut rows, mut columns] = [Packed::default(), Packed::default()];
            rows.fill_rows(k, n, &matrix, n);
            columns.fill_columns(k, n, &transposed, k);
            assert_eq!(rows.panels(), columns.panels());
            assert_eq!(rows.panels()[..n.min(16)], matrix[..n.min(16)]);
        }
    }
}
