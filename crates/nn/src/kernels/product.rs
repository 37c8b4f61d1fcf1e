//! Products with a packed right operand: linear layers, recurrent steps, attention, and convolutions without im2col.

use super::isa::{Isa, tiles};
#[cfg(target_arch = "x86_64")]
use super::lanes::{Avx2, Avx512};
use super::lanes::{PORTABLE_ROWS, Portable, Register, WIDTH, store_rows};
use super::packed::Packed;

/// The starts of rows.
#[derive(Clone, Copy)]
pub(crate) enum Rows<'a> {
    /// `count` rows, `stride` floats apart.
    Every {
        /// The number of rows.
        count: usize,
        /// Floats from one to the next.
        stride: usize,
    },
    /// Rows at listed starts, such as the positions of an image.
    At(At<'a>),
}

/// Rows at listed starts in several records, made by [`Starts::of`].
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    starts: &'a [u32],
    reach: usize,
}

/// The starts of rows in each of several consecutive records.
#[derive(Debug, Clone)]
pub(crate) struct Starts {
    list: Vec<u32>,
    each: usize,
    record: usize,
    reach: usize,
}

impl Starts {
    /// The same starts in each of `records` records of `record` floats.
    pub(crate) fn new(starts: &[usize], record: usize, records: usize) -> Starts {
        let shifted = |r: usize| starts.iter().map(move |start| r * record + start);
        let narrow =
            |start: usize| u32::try_from(start).expect("a chunk of images has fewer than 2^32 floats");
        Starts {
            list: (0..records).flat_map(shifted).map(narrow).collect(),
            each: starts.len(),
            record,
            reach: starts.iter().copied().max().unwrap_or(0),
        }
    }

    /// The rows of the first `records` records.
    pub(crate) fn of(&self, records: usize) -> Rows<'_> {
        let reach = self.reach + records.saturating_sub(1) * self.record;
        Rows::At(At { starts: &self.list[..records * self.each], reach })
    }
}

impl Rows<'_> {
    fn count(self) -> usize {
        match self {
            Rows::Every { count, .. } => count,
            Rows::At(at) => at.starts.len(),
        }
    }

    #[inline(always)]
    fn start(self, row: usize) -> usize {
        match self {
            Rows::Every { stride, .. } => row * stride,
            Rows::At(at) => at.starts[row] as usize,
        }
    }

    /// The largest start.
    fn reach(self) -> usize {
        match self {
            Rows::Every { count, stride } => count.saturating_sub(1) * stride,
            Rows::At(at) => at.reach,
        }
    }
}

/// A contiguous part of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Floats from the row's start.
    pub(crate) offset: usize,
    /// Floats in it.
    pub(crate) len: usize,
}

/// What a product does with its result.
#[derive(Clone, Copy, Default)]
pub(crate) struct Store<'a> {
    /// Add to the current values.
    pub(crate) accumulate: bool,
    /// Add this to every row.
    pub(crate) bias: Option<&'a [f32]>,
}

/// `c[out(i)][j] = sum_k a[rows(i)][k] b[k][j]`, where `k` runs through the segments in order.
///
/// A row of the left operand is a list of segments at fixed offsets from its start. A dense matrix has one; a position of
/// a padded image has one for each row of the filter, so a convolution does not copy its patches.
pub(crate) fn product(
    a: &[f32],
    rows: Rows<'_>,
    segments: &[Segment],
    b: &Packed,
    c: &mut [f32],
    out: Rows<'_>,
    store: Store<'_>,
) {
    let (k, n) = (b.k(), b.n());
    assert_eq!(
        segments.iter().map(|s| s.len).sum::<usize>(),
        k,
        "the segments are the rows of the packed matrix"
    );
    assert_eq!(rows.count(), out.count(), "as many rows come out as go in");
    assert!(store.bias.is_none_or(|bias| bias.len() >= n), "one bias for each column");
    if rows.count() == 0 || n == 0 {
        return;
    }
    let segment_reach = segments.iter().map(|s| s.offset + s.len).max().unwrap_or(0);
    assert!(rows.reach() + segment_reach <= a.len(), "every segment lies within the left operand");
    assert!(out.reach() + n <= c.len(), "every row of the result fits");
    assert!(b.panels().len() >= n.div_ceil(WIDTH) * k * WIDTH, "the right operand is packed");
    let job = Product { a, rows, segments, b, c: c.as_mut_ptr(), out, store };
    match Isa::current() {
        // SAFETY: `current` names a set only if this processor has it; the assertions above check what `Product` guarantees.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { job.avx512() },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { job.avx2() },
        // SAFETY: as above.
        _ => unsafe { job.portable() },
    }
}

/// A product whose bounds have been checked: every start plus every segment lies in `a`, every result row in `c`.
struct Product<'a> {
    a: &'a [f32],
    rows: Rows<'a>,
    segments: &'a [Segment],
    b: &'a Packed,
    c: *mut f32,
    out: Rows<'a>,
    store: Store<'a>,
}

impl Product<'_> {
    /// Rows of the result.
    fn height(&self) -> usize {
        self.rows.count()
    }

    tiles!(columns_portable, tile_portable, Portable);
    #[cfg(target_arch = "x86_64")]
    tiles!(columns_avx2, tile_avx2, Avx2, "avx2,fma");
    #[cfg(target_arch = "x86_64")]
    tiles!(columns_avx512, tile_avx512, Avx512, "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma");

    #[cfg(target_arch = "x86_64")]
    unsafe fn avx512(&self) {
        // Four panels against six rows need the fewest loads for each multiply-add. Fewer panels run against twelve rows.
        let panels = self.b.n().div_ceil(WIDTH);
        let mut panel = 0;
        // SAFETY: the caller has detected AVX-512, which comes with AVX2; the rest is guaranteed by the job.
        unsafe {
            while panel + 4 <= panels {
                self.columns_avx512::<6, 4>(panel);
                panel += 4;
            }
            if panel + 2 <= panels {
                self.columns_avx512::<12, 2>(panel);
                panel += 2;
            }
            if panel < panels {
                self.columns_avx512::<12, 1>(panel);
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    unsafe fn avx2(&self) {
        for panel in 0..self.b.n().div_ceil(WIDTH) {
            // SAFETY: the caller has detected AVX2; the rest is guaranteed by the job.
            unsafe { self.columns_avx2::<6, 1>(panel) }
        }
    }

    unsafe fn portable(&self) {
        for panel in 0..self.b.n().div_ceil(WIDTH) {
            // SAFETY: guaranteed by the job.
            unsafe { self.columns_portable::<PORTABLE_ROWS, 1>(panel) }
        }
    }

    /// # Safety
    /// `row + MR` rows and `panel + P` panels exist.
    #[inline(always)]
    unsafe fn tile<R: Register, const MR: usize, const P: usize>(&self, row: usize, panel: usize) {
        let stride = self.b.k() * WIDTH;
        // SAFETY: the caller has detected the instructions.
        let mut acc = [[unsafe { R::zero() }; P]; MR];
        // SAFETY: starts and segments lie in `a`, panels in `b` (guaranteed by the job).
        unsafe {
            let mut b = self.b.panels().as_ptr().add(panel * stride);
            let starts: [*const f32; MR] =
                std::array::from_fn(|i| self.a.as_ptr().add(self.rows.start(row + i)));
            for segment in self.segments {
                let a: [*const f32; MR] = std::array::from_fn(|i| starts[i].add(segment.offset));
                for k in 0..segment.len {
                    let columns: [R; P] = std::array::from_fn(|p| R::load(b.add(p * stride)));
                    for i in 0..MR {
                        for p in 0..P {
                            acc[i][p] = acc[i][p].add_scaled(a[i].add(k), columns[p]);
                        }
                    }
                    b = b.add(WIDTH);
                }
            }
        }
        let first = panel * WIDTH;
        // The floats of the last panel.
        let last = (self.b.n() - first).min(P * WIDTH) - (P - 1) * WIDTH;
        // SAFETY: a result row holds `n` floats (guaranteed by the job); a bias has `n`.
        unsafe {
            let c: [*mut f32; MR] = std::array::from_fn(|i| self.c.add(self.out.start(row + i) + first));
            if let Some(bias) = self.store.bias {
                let bias = bias.as_ptr().add(first);
                let bias: [R; P] = std::array::from_fn(|p| match p + 1 == P {
                    true => R::load_first(bias.add(p * WIDTH), last),
                    false => R::load(bias.add(p * WIDTH)),
                });
                for i in 0..MR {
                    for p in 0..P {
                        acc[i][p] = acc[i][p].add(bias[p]);
                    }
                }
            }
            match last < WIDTH {
                true => store_rows::<R, MR, P, true>(acc, c, last, self.store.accumulate),
                false => store_rows::<R, MR, P, false>(acc, c, last, self.store.accumulate),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::vector::tests::numbers;

    fn packed(k: usize, n: usize, matrix: &[f32]) -> Packed {
        let mut packed = Packed::default();
        packed.fill_rows(k, n, matrix, n);
        packed
    }

    #[test]
    fn a_product_equals_its_definition_for_every_shape() {
        for (m, k, n) in [
            (1, 1, 1),
            (3, 5, 10),
            (7, 16, 16),
            (18, 4, 30),
            (13, 9, 33),
            (6, 64, 64),
            (29, 40, 117),
            (16, 3, 250),
        ] {
            let (a, b, bias) = (numbers(m * (k + 3), 1), numbers(k * n, 2), numbers(n, 3));
            let packed = packed(k, n, &b);
            let before = numbers(m * (n + 5), 4);
            for (accumulate, with_bias) in [(false, false), (true, false), (false, true), (true, true)] {
                let mut c = before.clone();
                let store = Store { accumulate, bias: with_bias.then_some(&bias[..]) };
                let rows = Rows::Every { count: m, stride: k + 3 };
                let out = Rows::Every { count: m, stride: n + 5 };
                product(&a, rows, &[Segment { offset: 0, len: k }], &packed, &mut c, out, store);
                for i in 0..m {
                    for j in 0..n + 5 {
                        let sum: f64 = (0..k)
                            .map(|t| f64::from(a[i * (k + 3) + t]) * f64::from(b[(t * n + j) % (k * n)]))
                            .sum();
                        let start = f64::from(before[i * (n + 5) + j]);
                        let truth = match j < n {
                            false => start,
                            true => {
                                sum + if accumulate { start } else { 0.0 }
                                    + if with_bias { f64::from(bias[j]) } else { 0.0 }
                            }
                        };
                        assert!(
                            (f64::from(c[i * (n + 5) + j]) - truth).abs() < 1e-4,
                            "{m}x{k}x{n} at {i},{j}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn listed_rows_and_segments_pick_their_floats() {
        let a = numbers(60, 5);
        let segments = [Segment { offset: 1, len: 2 }, Segment { offset: 7, len: 3 }];
        let b = numbers(5 * 17, 6);
        let packed = packed(5, 17, &b);
        let starts = [20, 0, 45, 3, 9, 30, 31];
        let places: Vec<usize> = (0..7).map(|i| (6 - i) * 20).collect();
        let (from, to) = (Starts::new(&starts, 0, 1), Starts::new(&places, 0, 1));
        let mut c = vec![0.0; 140];
        product(&a, from.of(1), &segments, &packed, &mut c, to.of(1), Store::default());
        for (i, &start) in starts.iter().enumerate() {
            let picked: Vec<f32> = [1, 2, 7, 8, 9].iter().map(|&o| a[start + o]).collect();
            for j in 0..17 {
                let truth: f32 = (0..5).map(|t| picked[t] * b[t * 17 + j]).sum();
                assert!((c[places[i] + j] - truth).abs() < 1e-5);
            }
        }
    }

    #[test]
    #[should_panic(expected = "every segment lies within the left operand")]
    fn a_reach_beyond_the_left_operand_is_refused() {
        let packed = packed(4, 4, &[1.0; 16]);
        let rows = Rows::Every { count: 3, stride: 4 };
        product(
            &[0.0; 11],
            rows,
            &[Segment { offset: 0, len: 4 }],
            &packed,
            &mut [0.0; 12],
            rows,
            Store::default(),
        );
    }
}
