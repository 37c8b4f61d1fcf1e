//! Sums of outer products: the weight gradients of linear layers, recurrent layers and convolutions.

use super::isa::{Isa, tiles};
#[cfg(target_arch = "x86_64")]
use super::lanes::{Avx2, Avx512};
use super::lanes::{Lanes, Register, WIDTH};

/// Which pairs of rows take part: `starts.len()` runs of `len` pairs each.
///
/// Pair `t` of a run that starts at `(p, q)` is the left row at `p + t * left_step` and the right row at
/// `q + t * right_step`. A matrix is one run; an image has one for each row of output positions.
#[derive(Clone, Copy)]
pub(crate) struct Runs<'a> {
    /// Where each run starts in the left and in the right operand.
    pub(crate) starts: &'a [(usize, usize)],
    /// Pairs in each run.
    pub(crate) len: usize,
    /// Floats from one left row to the next.
    pub(crate) left_step: usize,
    /// Floats from one right row to the next.
    pub(crate) right_step: usize,
}

/// `c[i * stride + j] (+)= sum over pairs of left[i] right[j]`, for `i < m` and `j < n`.
///
/// The right operand may be read up to the next multiple of sixteen columns; what is read there is not used.
pub(crate) fn outer_sum(
    (m, n): (usize, usize),
    left: &[f32],
    right: &[f32],
    runs: Runs<'_>,
    c: &mut [f32],
    stride: usize,
    accumulate: bool,
) {
    if m == 0 || n == 0 {
        return;
    }
    let pairs = runs.len.saturating_sub(1);
    for &(p, q) in runs.starts {
        assert!(p + pairs * runs.left_step + m <= left.len(), "the left rows lie within their operand");
        let wide = n.next_multiple_of(WIDTH);
        assert!(q + pairs * runs.right_step + wide <= right.len(), "the right rows lie within their operand");
    }
    assert!((m - 1) * stride + n <= c.len(), "the result has room");
    let job = Job { m, n, left, right, runs, c: c.as_mut_ptr(), stride, accumulate };
    // A long run is cut, so that a panel of the right operand stays in the nearest cache.
    if let (&[(p, q)], true) = (runs.starts, runs.len > 3 * LONGEST / 2) {
        for first in (0..runs.len).step_by(LONGEST) {
            let starts = [(p + first * runs.left_step, q + first * runs.right_step)];
            let len = (runs.len - first).min(LONGEST);
            job.part(Runs { starts: &starts, len, ..runs }, accumulate || first > 0);
        }
    } else {
        job.part(runs, accumulate);
    }
}

/// Pairs of rows that are summed before the result is touched.
const LONGEST: usize = 128;

/// A sum whose reach has been checked: every row of both operands, and the result.
struct Job<'a> {
    m: usize,
    n: usize,
    left: &'a [f32],
    right: &'a [f32],
    runs: Runs<'a>,
    c: *mut f32,
    stride: usize,
    accumulate: bool,
}

impl Job<'_> {
    /// Rows of the result.
    fn height(&self) -> usize {
        self.m
    }

    /// Adds some of the pairs.
    fn part(&self, runs: Runs<'_>, accumulate: bool) {
        let job = Job { runs, accumulate, ..*self };
        match Isa::current() {
            // SAFETY: `current` names a set only if this processor has it; `outer_sum` checked what `Job` promises.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => unsafe { job.avx512() },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { job.avx2() },
            // SAFETY: as above.
            _ => unsafe { job.portable() },
        }
    }

    tiles!(columns_portable, tile_portable, Lanes);
    #[cfg(target_arch = "x86_64")]
    tiles!(columns_avx2, tile_avx2, Avx2, "avx2,fma");
    #[cfg(target_arch = "x86_64")]
    tiles!(columns_avx512, tile_avx512, Avx512, "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma");

    #[cfg(target_arch = "x86_64")]
    unsafe fn avx512(&self) {
        let mut column = 0;
        // SAFETY: the caller has found AVX-512; the rest is the job's promise.
        unsafe {
            while column + 3 * WIDTH < self.n {
                self.columns_avx512::<6, 4>(column);
                column += 4 * WIDTH;
            }
            if column + WIDTH < self.n {
                self.columns_avx512::<12, 2>(column);
                column += 2 * WIDTH;
            }
            if column < self.n {
                self.columns_avx512::<12, 1>(column);
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    unsafe fn avx2(&self) {
        for column in (0..self.n).step_by(WIDTH) {
            // SAFETY: the caller has found AVX2; the rest is the job's promise.
            unsafe { self.columns_avx2::<6, 1>(column) }
        }
    }

    unsafe fn portable(&self) {
        for column in (0..self.n).step_by(WIDTH) {
            // SAFETY: the job's promise.
            unsafe { self.columns_portable::<3, 1>(column) }
        }
    }

    /// # Safety
    /// `row + MR <= m`, and columns up to the next multiple of sixteen can be read in the right operand.
    #[inline(always)]
    unsafe fn tile<R: Register, const MR: usize, const P: usize>(&self, row: usize, column: usize) {
        let Runs { starts, len, left_step, right_step } = self.runs;
        // SAFETY: the caller has found the instructions.
        let mut acc = [[unsafe { R::zero() }; P]; MR];
        // SAFETY: the rows lie in their operands (the job's promise).
        unsafe {
            for &(p, q) in starts {
                let mut left = self.left.as_ptr().add(p + row);
                let mut right = self.right.as_ptr().add(q + column);
                for _ in 0..len {
                    let columns: [R; P] = std::array::from_fn(|p| R::load(right.add(p * WIDTH)));
                    for i in 0..MR {
                        for p in 0..P {
                            acc[i][p] = acc[i][p].add_scaled(left.add(i), columns[p]);
                        }
                    }
                    // The last step may leave the operand, which only a wrapping pointer may do.
                    left = left.wrapping_add(left_step);
                    right = right.wrapping_add(right_step);
                }
            }
        }
        let width = (self.n - column).min(P * WIDTH);
        // Short loops of constant length, as in a product: the accumulators stay in registers.
        // SAFETY: the result has room for `n` floats in each of `m` rows (the job's promise).
        unsafe {
            let c: [*mut f32; MR] = std::array::from_fn(|i| self.c.add((row + i) * self.stride + column));
            if width < P * WIDTH {
                let mut whole = [[Lanes::ZERO; P]; MR];
                for i in 0..MR {
                    for p in 0..P {
                        acc[i][p].store(whole[i][p].0.as_mut_ptr());
                    }
                }
                return self.store_part(whole.as_flattened(), &c, width);
            }
            if self.accumulate {
                for i in 0..MR {
                    for p in 0..P {
                        acc[i][p] = acc[i][p].add(R::load(c[i].add(p * WIDTH)));
                    }
                }
            }
            for i in 0..MR {
                for p in 0..P {
                    acc[i][p].store(c[i].add(p * WIDTH));
                }
            }
        }
    }

    /// Stores rows of a tile whose last panel is not full.
    ///
    /// # Safety
    /// `width` floats may be written to each row of `c`.
    #[inline(never)]
    unsafe fn store_part(&self, tile: &[Lanes], c: &[*mut f32], width: usize) {
        for (row, &c) in tile.chunks_exact(tile.len() / c.len()).zip(c) {
            for j in 0..width {
                // SAFETY: the caller's promise.
                unsafe {
                    let before = if self.accumulate { *c.add(j) } else { 0.0 };
                    *c.add(j) = before + row[j / WIDTH].0[j % WIDTH];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::vector::tests::numbers;

    #[test]
    fn an_outer_sum_equals_its_definition_for_every_shape() {
        for (m, n, len) in
            [(1, 1, 1), (5, 10, 3), (8, 16, 14), (17, 48, 9), (30, 70, 5), (12, 129, 2), (3, 33, 7)]
        {
            let (left_step, right_step) = (m + 2, n + 1);
            let left = numbers(3 * len * left_step + 16, 1);
            let right = numbers(3 * len * right_step + 160, 2);
            let starts = [(0, 0), (2 * len * left_step, len * right_step)];
            let runs = Runs { starts: &starts, len, left_step, right_step };
            for accumulate in [false, true] {
                let before = numbers(m * (n + 3), 3);
                let mut c = before.clone();
                outer_sum((m, n), &left, &right, runs, &mut c, n + 3, accumulate);
                for i in 0..m {
                    for j in 0..n + 3 {
                        let at = i * (n + 3) + j;
                        let sum: f64 = starts
                            .iter()
                            .flat_map(|&(p, q)| {
                                (0..len).map(move |t| (p + t * left_step + i, q + t * right_step + j))
                            })
                            .map(|(p, q)| f64::from(left[p]) * f64::from(right[q]))
                            .sum();
                        let start = f64::from(before[at]);
                        let truth = if j >= n { start } else { sum + if accumulate { start } else { 0.0 } };
                        assert!((f64::from(c[at]) - truth).abs() < 1e-4, "{m}x{n}, {len} at {i},{j}");
                    }
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "the right rows lie within their operand")]
    fn a_reach_beyond_the_right_operand_is_refused() {
        let runs = Runs { starts: &[(0, 0)], len: 2, left_step: 4, right_step: 4 };
        outer_sum((4, 4), &[0.0; 8], &[0.0; 8], runs, &mut [0.0; 16], 4, false);
    }
}
