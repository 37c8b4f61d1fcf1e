//! Sums of outer products: the weight gradients of linear layers, recurrent layers and convolutions.

mod copies;

use copies::{TILE, panels};

use super::isa::{Isa, tiles};
#[cfg(target_arch = "x86_64")]
use super::lanes::{Avx2, Avx512};
use super::lanes::{PORTABLE_ROWS, Portable, Register, WIDTH, store_rows};

/// The pairs of rows: `starts.len()` runs of `len` pairs each.
///
/// Pair `t` of a run that starts at `(p, q)` is the left row at `p + t * left_step` and the right row at
/// `q + t * right_step`. A matrix is one run; an image has one for each row of output positions.
#[derive(Clone, Copy)]
pub(crate) struct Runs<'a> {
    /// The start of each run in the left and in the right operand.
    pub(crate) starts: &'a [(usize, usize)],
    /// Pairs in each run.
    pub(crate) len: usize,
    /// Floats from one left row to the next.
    pub(crate) left_step: usize,
    /// Floats from one right row to the next.
    pub(crate) right_step: usize,
    /// Pairs in a unit: either a multiple of `len`, so that a unit is several runs, or less, so that a run is cut into
    /// units (the last one may be shorter). A unit is summed from zero and then added to the result, so that its sum does not depend
    /// on any other unit.
    pub(crate) unit: usize,
}

/// `c[i * stride + j] (+)= sum over pairs of left[i] right[j]`, for `i < m` and `j < n`.
///
/// Several pairs of operands of equal layout give the sum over all of them, unit by unit: a unit is summed over all operands before
/// it is added to the result.
///
/// The right operand may be read up to the next multiple of sixteen columns; the values beyond its columns are not used.
pub(crate) fn outer_sum(
    (m, n): (usize, usize),
    operands: &[(&[f32], &[f32])],
    runs: Runs<'_>,
    c: &mut [f32],
    stride: usize,
    accumulate: bool,
) {
    if m == 0 || n == 0 {
        return;
    }
    let pairs = runs.len.saturating_sub(1);
    let wide = n.next_multiple_of(WIDTH);
    for (left, right) in operands {
        for &(p, q) in runs.starts {
            assert!(p + pairs * runs.left_step + m <= left.len(), "the left rows lie within their operand");
            assert!(
                q + pairs * runs.right_step + wide <= right.len(),
                "the right rows lie within their operand"
            );
        }
    }
    assert!((m - 1) * stride + n <= c.len(), "the result is large enough");
    assert!(runs.unit > 0, "a unit has at least one pair");
    let mut job = OuterSum { m, n, operands, runs, c: c.as_mut_ptr(), stride, accumulate, copied: None };
    let copies = job.is_worth_copying();
    // Few enough pairs at a time that a panel of the right operand stays in the first-level cache, or that a panel of its copy stays in
    // the second-level cache.
    let longest = if copies { 1024 } else { 128 };
    let mut part = |starts: &[(usize, usize)], len: usize| {
        let part = OuterSum { runs: Runs { starts, len, ..runs }, ..job };
        if copies {
            part.run_on_copies()
        } else {
            part.run()
        }
        job.accumulate = true;
    };
    if let &[(p, q)] = runs.starts
        && runs.unit < runs.len
    {
        let most = (longest / runs.unit).max(1) * runs.unit;
        for first in (0..runs.len).step_by(most) {
            let start = (p + first * runs.left_step, q + first * runs.right_step);
            part(&[start], most.min(runs.len - first));
        }
    } else {
        let unit = (runs.unit / runs.len.max(1)).max(1);
        let most = (longest / (unit * runs.len).max(1)).max(1) * unit;
        runs.starts.chunks(most).for_each(|starts| part(starts, runs.len));
    }
}

/// A sum whose bounds have been checked: every row of all operands, and the result.
struct OuterSum<'a> {
    m: usize,
    n: usize,
    operands: &'a [(&'a [f32], &'a [f32])],
    runs: Runs<'a>,
    c: *mut f32,
    stride: usize,
    accumulate: bool,
    /// The number of pairs, if the operands are [copies].
    copied: Option<usize>,
}

impl OuterSum<'_> {
    /// Rows of the result.
    fn height(&self) -> usize {
        self.m
    }

    fn run(&self) {
        match Isa::current() {
            // SAFETY: `current` names a set only if this processor has it; `outer_sum` checked what `OuterSum` guarantees.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => unsafe { self.avx512() },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { self.avx2() },
            // SAFETY: as above.
            _ => unsafe { self.portable() },
        }
    }

    tiles!(columns_portable, tile_portable, Portable);
    #[cfg(target_arch = "x86_64")]
    tiles!(columns_avx2, tile_avx2, Avx2, "avx2,fma");
    #[cfg(target_arch = "x86_64")]
    tiles!(columns_avx512, tile_avx512, Avx512, "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma");

    #[cfg(target_arch = "x86_64")]
    unsafe fn avx512(&self) {
        for (column, width) in panels(self.n) {
            // SAFETY: the caller has detected AVX-512; the rest is guaranteed by the job.
            unsafe {
                match (width / WIDTH, self.copied) {
                    (4, _) => self.columns_avx512::<TILE, 4>(column),
                    (2, None) => self.columns_avx512::<12, 2>(column),
                    (2, Some(_)) => self.columns_avx512::<TILE, 2>(column),
                    (_, None) => self.columns_avx512::<12, 1>(column),
                    (_, Some(_)) => self.columns_avx512::<TILE, 1>(column),
                }
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    unsafe fn avx2(&self) {
        for (column, _) in panels(self.n) {
            // SAFETY: the caller has detected AVX2; the rest is guaranteed by the job.
            unsafe { self.columns_avx2::<TILE, 1>(column) }
        }
    }

    unsafe fn portable(&self) {
        for (column, _) in panels(self.n) {
            // SAFETY: guaranteed by the job.
            unsafe { self.columns_portable::<PORTABLE_ROWS, 1>(column) }
        }
    }

    /// # Safety
    /// `row + MR <= m`, and columns up to the next multiple of sixteen can be read in the right operand.
    #[inline(always)]
    unsafe fn tile<R: Register, const MR: usize, const P: usize>(&self, row: usize, column: usize) {
        let Runs { starts, len, left_step, right_step, unit } = self.runs;
        let (left_at, right_at, right_step) = match self.copied {
            None => (row, column, right_step),
            Some(pairs) => (row / TILE * TILE * pairs + row % TILE, column * pairs, P * WIDTH),
        };
        // A large result has left the caches since the last pairs were added. It is loaded while these pairs are multiplied.
        for i in 0..MR {
            for p in 0..P {
                // SAFETY: the caller has detected the instructions.
                unsafe { R::prefetch(self.c.wrapping_add((row + i) * self.stride + column + p * WIDTH)) };
            }
        }
        let mut accumulate = self.accumulate;
        for starts in starts.chunks((unit / len.max(1)).max(1)) {
            let mut first = 0;
            loop {
                let count = unit.min(len - first);
                // SAFETY: the caller has detected the instructions.
                let mut acc = [[unsafe { R::zero() }; P]; MR];
                for (left, right) in self.operands {
                    for &(p, q) in starts {
                        let mut left = left.as_ptr().wrapping_add(p + left_at + first * left_step);
                        let mut right = right.as_ptr().wrapping_add(q + right_at + first * right_step);
                        for _ in 0..count {
                            // SAFETY: the rows lie in their operands (guaranteed by the job).
                            unsafe {
                                let columns: [R; P] = std::array::from_fn(|p| R::load(right.add(p * WIDTH)));
                                for i in 0..MR {
                                    for p in 0..P {
                                        acc[i][p] = acc[i][p].add_scaled(left.add(i), columns[p]);
                                    }
                                }
                            }
                            // After the last row the pointer may lie outside the operand, hence a wrapping addition.
                            left = left.wrapping_add(left_step);
                            right = right.wrapping_add(right_step);
                        }
                    }
                }
                // SAFETY: guaranteed by the job.
                unsafe { self.store::<R, MR, P>(acc, row, column, accumulate) };
                accumulate = true;
                first += count;
                if first >= len {
                    break;
                }
            }
        }
    }

    /// Adds the sum of a unit to the result, or replaces it.
    ///
    /// # Safety
    /// As for `tile`.
    #[inline(always)]
    unsafe fn store<R: Register, const MR: usize, const P: usize>(
        &self,
        acc: [[R; P]; MR],
        row: usize,
        column: usize,
        accumulate: bool,
    ) {
        // The floats of the last panel.
        let last = (self.n - column).min(P * WIDTH) - (P - 1) * WIDTH;
        // SAFETY: the result holds `n` floats in each of `m` rows (guaranteed by the job).
        unsafe {
            let c: [*mut f32; MR] = std::array::from_fn(|i| self.c.add((row + i) * self.stride + column));
            match last < WIDTH {
                true => store_rows::<R, MR, P, true>(acc, c, last, accumulate),
                false => store_rows::<R, MR, P, false>(acc, c, last, accumulate),
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
        for (m, n, len) in [
            (1, 1, 1),
            (5, 10, 3),
            (8, 16, 14),
            (17, 48, 9),
            (30, 70, 5),
            (12, 129, 2),
            (3, 33, 7),
            (67, 307, 5),
        ] {
            let (left_step, right_step) = (m + 2, n + 1);
            let left = numbers(3 * len * left_step + 16, 1);
            let right = numbers(3 * len * right_step + 160, 2);
            let starts = [(0, 0), (2 * len * left_step, len * right_step)];
            for (accumulate, unit) in [(false, len), (true, len), (false, 2 * len), (true, 1), (false, 4)] {
                let runs = Runs { starts: &starts, len, left_step, right_step, unit };
                let before = numbers(m * (n + 3), 3);
                let mut c = before.clone();
                outer_sum((m, n), &[(&left, &right)], runs, &mut c, n + 3, accumulate);
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
        let runs = Runs { starts: &[(0, 0)], len: 2, left_step: 4, right_step: 4, unit: 2 };
        outer_sum((4, 4), &[(&[0.0; 8], &[0.0; 8])], runs, &mut [0.0; 16], 4, false);
    }

    /// Units of one operand and of two, in runs of their own or cut from one run, with and without copies.
    #[test]
    fn the_sum_of_a_unit_does_not_depend_on_other_units() {
        for (len, records, m, n) in
            [(300, 3, 7, 37), (40, 7, 7, 37), (1, 9, 7, 37), (600, 3, 65, 257), (40, 30, 65, 257)]
        {
            let (left, right) = (numbers(len * records * m, 4), numbers(len * records * n + 16, 5));
            let (others, more) = (numbers(len * records * m, 6), numbers(len * records * n + 16, 7));
            for operands in [&[(&left[..], &right[..])][..], &[(&left, &right), (&others, &more)]] {
                let sum = |starts: &[(usize, usize)]| {
                    let mut c = vec![0.0; m * n];
                    let runs = Runs { starts, len, left_step: m, right_step: n, unit: len };
                    outer_sum((m, n), operands, runs, &mut c, n, false);
                    c
                };
                let starts: Vec<_> =
                    (0..records).map(|record| (record * len * m, record * len * n)).collect();
                let mut expected = sum(&starts[..1]);
                for start in &starts[1..] {
                    expected.iter_mut().zip(sum(&[*start])).for_each(|(sum, own)| *sum += own);
                }
                assert_eq!(sum(&starts), expected, "{len} pairs");
                let mut cut = vec![0.0; m * n];
                let runs =
                    Runs { starts: &[(0, 0)], len: len * records, left_step: m, right_step: n, unit: len };
                outer_sum((m, n), operands, runs, &mut cut, n, false);
                assert_eq!(cut, expected, "{len} pairs");
            }
        }
    }
}
