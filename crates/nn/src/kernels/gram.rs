//! Dot products between the rows of matrices.

use super::isa::Isa;
#[cfg(target_arch = "x86_64")]
use super::lanes::{Avx2, Avx512};
use super::lanes::{Portable, Register, WIDTH};

/// Rows of floats: `count` of them, `width` long, `stride` apart.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) count: usize,
    pub(crate) width: usize,
    pub(crate) stride: usize,
}

impl<'a> Matrix<'a> {
    /// The `index`-th row.
    pub(crate) fn row(&self, index: usize) -> &'a [f32] {
        &self.data[index * self.stride..][..self.width]
    }

    fn check(&self) {
        assert!(
            self.count == 0 || (self.count - 1) * self.stride + self.width <= self.data.len(),
            "rows have room"
        );
    }
}

/// `out[t * right.count + s] = left_t . right_s`.
pub(crate) fn dots(left: Matrix<'_>, right: Matrix<'_>, out: &mut [f32]) {
    left.check();
    right.check();
    assert_eq!(left.width, right.width, "rows of one length");
    assert!(left.count * right.count <= out.len(), "the result is large enough");
    each_dot(left, right, false, out);
}

/// `out[t * rows.count + s] = rows_t . rows_s`, at half the cost.
pub(crate) fn gram(rows: Matrix<'_>, out: &mut [f32]) {
    rows.check();
    assert!(rows.count * rows.count <= out.len(), "the result is large enough");
    each_dot(rows, rows, true, out);
}

fn each_dot(left: Matrix<'_>, right: Matrix<'_>, symmetric: bool, out: &mut [f32]) {
    match Isa::current() {
        // SAFETY: `current` names a set only if this processor has it; `check` was called.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { dots_avx512(left, right, symmetric, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { dots_avx2(left, right, symmetric, out) },
        // SAFETY: as above.
        _ => unsafe { dots_portable(left, right, symmetric, out) },
    }
}

/// All tiles, compiled for one instruction set; a tile is a separate function, as in products.
macro_rules! tiles {
    ($dots:ident, $tile:ident, $register:ty, $rows:literal, $columns:literal $(, $features:literal)?) => {
        #[inline(never)]
        $(#[target_feature(enable = $features)])?
        unsafe fn $tile<const MR: usize, const NR: usize>(
            left: Matrix<'_>,
            right: Matrix<'_>,
            row: usize,
            column: usize,
        ) -> [[f32; NR]; MR] {
            // SAFETY: guaranteed by the caller.
            unsafe { tile::<$register, MR, NR>(left, right, row, column) }
        }

        /// # Safety
        /// The processor has the instructions, and rows lie in their slices.
        unsafe fn $dots(left: Matrix<'_>, right: Matrix<'_>, symmetric: bool, out: &mut [f32]) {
            let mut row = 0;
            while row < left.count {
                let rows = if row + $rows <= left.count { $rows } else { 1 };
                // For a symmetric matrix, only tiles on and above the diagonal are computed.
                let mut column = if symmetric { row } else { 0 };
                while column < right.count {
                    let columns = if column + $columns <= right.count { $columns } else { 1 };
                    let mut keep = |i: usize, j: usize, dot: f32| {
                        out[(row + i) * right.count + column + j] = dot;
                        if symmetric {
                            out[(column + j) * right.count + row + i] = dot;
                        }
                    };
                    // SAFETY: guaranteed by the caller, and these rows exist.
                    unsafe {
                        match (rows > 1, columns > 1) {
                            (true, true) => each(&$tile::<$rows, $columns>(left, right, row, column), &mut keep),
                            (true, false) => each(&$tile::<$rows, 1>(left, right, row, column), &mut keep),
                            (false, true) => each(&$tile::<1, $columns>(left, right, row, column), &mut keep),
                            (false, false) => each(&$tile::<1, 1>(left, right, row, column), &mut keep),
                        }
                    }
                    column += columns;
                }
                row += rows;
            }
        }
    };
}

tiles!(dots_portable, tile_portable, Portable, 2, 2);
#[cfg(target_arch = "x86_64")]
tiles!(dots_avx2, tile_avx2, Avx2, 2, 3, "avx2,fma");
#[cfg(target_arch = "x86_64")]
tiles!(dots_avx512, tile_avx512, Avx512, 6, 4, "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma");

fn each<const MR: usize, const NR: usize>(tile: &[[f32; NR]; MR], keep: &mut impl FnMut(usize, usize, f32)) {
    for (i, row) in tile.iter().enumerate() {
        for (j, dot) in row.iter().enumerate() {
            keep(i, j, *dot);
        }
    }
}

/// # Safety
/// The processor has the instructions; `row + MR` and `column + NR` rows exist and lie in their slices.
#[inline(always)]
unsafe fn tile<R: Register, const MR: usize, const NR: usize>(
    left: Matrix<'_>,
    right: Matrix<'_>,
    row: usize,
    column: usize,
) -> [[f32; NR]; MR] {
    let width = left.width;
    let whole = width / WIDTH * WIDTH;
    let mut sums = [[0.0f32; NR]; MR];
    // SAFETY: guaranteed by the caller; `k + 16 <= width` in the loop.
    unsafe {
        let x: [*const f32; MR] = std::array::from_fn(|i| left.data.as_ptr().add((row + i) * left.stride));
        let y: [*const f32; NR] =
            std::array::from_fn(|j| right.data.as_ptr().add((column + j) * right.stride));
        let mut acc = [[R::zero(); NR]; MR];
        let mut k = 0;
        while k < whole {
            let y: [R; NR] = std::array::from_fn(|j| R::load(y[j].add(k)));
            for i in 0..MR {
                let x = R::load(x[i].add(k));
                for j in 0..NR {
                    acc[i][j] = acc[i][j].add_product(x, y[j]);
                }
            }
            k += WIDTH;
        }
        for i in 0..MR {
            for j in 0..NR {
                sums[i][j] = acc[i][j].sum();
            }
        }
        for k in whole..width {
            for i in 0..MR {
                for j in 0..NR {
                    sums[i][j] += *x[i].add(k) * *y[j].add(k);
                }
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::vector::tests::numbers;

    #[test]
    fn dots_equal_their_definition() {
        for (t, s, width) in [(1, 1, 1), (4, 4, 16), (5, 9, 33), (12, 3, 70), (7, 6, 15)] {
            let (x, y) = (numbers(t * (width + 2), 1), numbers(s * (width + 2), 2));
            let left = Matrix { data: &x, count: t, width, stride: width + 2 };
            let right = Matrix { data: &y, count: s, width, stride: width + 2 };
            let truth = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
            let (mut out, mut square) = (vec![0.0; t * s], vec![0.0; t * t]);
            dots(left, right, &mut out);
            gram(left, &mut square);
            for i in 0..t {
                for j in 0..s {
                    assert!((f64::from(out[i * s + j]) - truth(left.row(i), right.row(j))).abs() < 1e-5);
                }
                for j in 0..t {
                    assert!((f64::from(square[i * t + j]) - truth(left.row(i), left.row(j))).abs() < 1e-5);
                }
            }
        }
    }
}
