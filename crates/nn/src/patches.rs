//! Products of patches of an array with a public matrix, for transforms of records outside networks.

use std::{fmt, ops::Range};

use crate::kernels::{Packed, Rows, Segment, Starts, Store, product};

/// A fixed matrix by which patches of an array are multiplied: a convolution with fixed filters, or an ordinary product.
///
/// Patch `i` begins at `starts[i]` and consists of the same parts, relative to its start, in every patch. The result has a row for each
/// patch and a column for each filter: `output[i][j] = sum_k patch_i[k] matrix[k][j]`.
///
/// **Guarantees.** On one processor, a row of the result depends only on its patch and on the matrix, bit for bit. Processors with other vector
/// instructions may round differently.
///
/// ```
/// use sordino_nn::PatchProduct;
///
/// // Sums and differences of neighbours.
/// let product = PatchProduct::new(&[0, 1, 2], &[0..2], &[1.0, 1.0, 1.0, -1.0], 2);
/// let mut output = [0.0; 6];
/// product.apply(&[1.0, 2.0, 4.0, 8.0], &mut output);
/// assert_eq!(output, [3.0, -1.0, 6.0, -2.0, 12.0, -4.0]);
/// ```
pub struct PatchProduct {
    matrix: Packed,
    starts: Starts,
    parts: Vec<Segment>,
    patches: usize,
}

impl PatchProduct {
    /// A product with this matrix, which has `columns` columns and a row for each value of a patch.
    ///
    /// # Panics
    /// If the matrix has another size.
    pub fn new(starts: &[usize], parts: &[Range<usize>], matrix: &[f32], columns: usize) -> PatchProduct {
        let parts: Vec<Segment> =
            parts.iter().map(|part| Segment { offset: part.start, len: part.len() }).collect();
        let rows = parts.iter().map(|part| part.len).sum();
        assert_eq!(matrix.len(), rows * columns, "the matrix has a row for each value of a patch");
        let mut packed = Packed::default();
        packed.fill_rows(rows, columns, matrix, columns);
        PatchProduct { matrix: packed, starts: Starts::new(starts, 0, 1), parts, patches: starts.len() }
    }

    /// The product with the rows of a matrix: `output = rows matrix`.
    ///
    /// # Panics
    /// If the matrix does not have `width` rows.
    pub fn of_rows(rows: usize, width: usize, matrix: &[f32], columns: usize) -> PatchProduct {
        let starts: Vec<usize> = (0..rows).map(|row| row * width).collect();
        Self::new(&starts, std::slice::from_ref(&(0..width)), matrix, columns)
    }

    /// Multiplies the patches of this array. `output` is overwritten.
    ///
    /// # Panics
    /// If the array or the output is too small.
    pub fn apply(&self, array: &[f32], output: &mut [f32]) {
        let out = Rows::Every { count: self.patches, stride: self.matrix.n() };
        product(array, self.starts.of(1), &self.parts, &self.matrix, output, out, Store::default());
    }
}

impl fmt::Debug for PatchProduct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PatchProduct")
            .field("patches", &self.patches)
            .field("values", &self.matrix.k())
            .field("columns", &self.matrix.n())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_convolution_equals_its_definition() {
        let (height, width, size, stride, filters) = (9, 11, 3, 2, 5);
        let image: Vec<f32> = (0..height * width).map(|i| ((i * 37) % 19) as f32 - 9.0).collect();
        let matrix: Vec<f32> = (0..size * size * filters).map(|i| ((i * 29) % 13) as f32 - 6.0).collect();
        let (rows, columns) = ((height - size) / stride + 1, (width - size) / stride + 1);
        let start = |i: usize| (i / columns * width + i % columns) * stride;
        let starts: Vec<usize> = (0..rows * columns).map(start).collect();
        let parts: Vec<Range<usize>> = (0..size).map(|row| row * width..row * width + size).collect();
        let mut output = vec![f32::NAN; starts.len() * filters];
        PatchProduct::new(&starts, &parts, &matrix, filters).apply(&image, &mut output);
        for (i, start) in starts.iter().enumerate() {
            for j in 0..filters {
                let taps = (0..size * size)
                    .map(|tap| image[start + tap / size * width + tap % size] * matrix[tap * filters + j]);
                assert_eq!(output[i * filters + j], taps.sum::<f32>());
            }
        }
    }
}
