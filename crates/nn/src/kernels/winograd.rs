//! The transforms of Winograd's convolution with filters of 3x3 (Winograd, 1980; Lavin and Gray, 2016).
//!
//! A tile of `M x M` outputs depends on `(M + 2) x (M + 2)` inputs. In each direction, outputs, inputs and taps are coefficients of polynomials,
//! and the transforms evaluate them at `M + 1` points and at infinity. There a convolution is one product for each point, so a tile needs `(M + 2)^2`
//! multiplications instead of `9 M^2`: a quarter for `M = 4` and four ninths for `M = 2`. The values at a pair of points are called a frequency.
//!
//! With `d` for inputs, `g` for taps and `y` for outputs, all as square matrices:
//!
//! ```text
//! y = A^T [ (B^T d B) * (G g G^T) ] A        * is entry by entry, summed over the input channels
//! ```
//!
//! **Rounding.** The points for `M = 4` are 0, 5/8, -5/8, 3/2, -3/2. They are exact, and so are the entries of `A` and `B`. The error of an output is
//! then about twice that of a direct convolution (64 channels, normal inputs after ReLU: 2.1 times; with the usual points 0, 1, -1, 2, -2 it would be 4.5
//! times). For `M = 2`, with 0, 1, -1, it is smaller
//! than that of a direct one (0.8 times).

use super::isa::by_register;
use super::lanes::{Register, WIDTH};
use super::packed::Packed;
use super::product::Store;

/// The points other than 0 and infinity, for tiles of 4x4: `A`, `-A`, `B`, `-B`.
const A: f64 = 0.625;
const B: f64 = 1.5;
const A1: f32 = A as f32;
const A2: f32 = (A * A) as f32;
const A3: f32 = (A * A * A) as f32;
const B1: f32 = B as f32;
const B2: f32 = (B * B) as f32;
const B3: f32 = (B * B * B) as f32;
const SUM: f32 = (A * A + B * B) as f32;
const PRODUCT: f32 = (A * A * B * B) as f32;
/// The first column of `G`: the scale of a filter's value at 0, at `A` and `-A`, and at `B` and `-B`.
const AT_0: f32 = (1.0 / (A * A * B * B)) as f32;
const AT_A: f64 = 1.0 / (2.0 * A * A * (A * A - B * B));
const AT_B: f64 = 1.0 / (2.0 * B * B * (B * B - A * A));

/// The largest number of frequencies in one direction.
const MOST: usize = 6;

/// Part of an image, from the pixel at `start` on. Of the pixels that a transform reads or writes, only `rows x columns` exist; the others count as
/// zero or are not written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) start: usize,
    /// Floats from one row of pixels to the next.
    pub(crate) row: usize,
    /// Floats from one pixel to the next.
    pub(crate) pixel: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl Window {
    /// The window of at most `side x side` pixels.
    fn within(self, side: usize) -> Window {
        Window { rows: self.rows.min(side), columns: self.columns.min(side), ..self }
    }

    /// The end of `channels` floats at the last pixel.
    fn end(&self, channels: usize) -> usize {
        match self.rows * self.columns {
            0 => 0,
            _ => self.start + (self.rows - 1) * self.row + (self.columns - 1) * self.pixel + channels,
        }
    }
}

/// `B^T d B` for each channel of a tile of `size x size` outputs, whose inputs begin at the window. Frequency `f` of channel `c` becomes
/// `out[f * stride + c]`.
///
/// Whole lines of sixteen channels are read and written; the values beyond the channels have no meaning.
pub(crate) fn inputs_to_frequencies(
    size: usize,
    x: &[f32],
    window: Window,
    channels: usize,
    out: &mut [f32],
    stride: usize,
) {
    let (window, wide) = (window.within(size + 2), channels.next_multiple_of(WIDTH));
    assert!(window.end(wide) <= x.len(), "the window lies within the image");
    assert!(((size + 2).pow(2) - 1) * stride + wide <= out.len(), "every frequency has a place");
    match size {
        4 => inputs_4(x, window, channels, out, stride),
        2 => inputs_2(x, window, channels, out, stride),
        _ => unreachable!("tiles have 4x4 or 2x2 outputs"),
    }
}

by_register! {
    fn inputs_4(x: &[f32], window: Window, channels: usize, out: &mut [f32], stride: usize) = inputs_4_body
}
by_register! {
    fn inputs_2(x: &[f32], window: Window, channels: usize, out: &mut [f32], stride: usize) = inputs_2_body
}

#[inline(always)]
unsafe fn inputs_4_body<R: Register>(
    x: &[f32],
    window: Window,
    channels: usize,
    out: &mut [f32],
    stride: usize,
) {
    // SAFETY: guaranteed by the callers.
    unsafe { inputs::<R, 4>(x, window, channels, out, stride) }
}

#[inline(always)]
unsafe fn inputs_2_body<R: Register>(
    x: &[f32],
    window: Window,
    channels: usize,
    out: &mut [f32],
    stride: usize,
) {
    // SAFETY: guaranteed by the callers.
    unsafe { inputs::<R, 2>(x, window, channels, out, stride) }
}

/// # Safety
/// The processor has the instructions, and the assertions of [`inputs_to_frequencies`] hold.
#[inline(always)]
unsafe fn inputs<R: Register, const M: usize>(
    x: &[f32],
    window: Window,
    channels: usize,
    out: &mut [f32],
    stride: usize,
) {
    let Window { start, row, pixel, rows, columns } = window;
    // SAFETY: guaranteed by the caller.
    unsafe {
        for channel in (0..channels).step_by(WIDTH) {
            let from = x.as_ptr().wrapping_add(start + channel);
            let to = out.as_mut_ptr().add(channel);
            let mut half = [[R::zero(); MOST]; MOST];
            for j in 0..(M + 2).min(columns) {
                let mut d = [R::zero(); MOST];
                for i in 0..M + 2 {
                    if i < rows {
                        d[i] = R::load(from.add(i * row + j * pixel));
                    }
                }
                let d = input::<R, M>(d);
                for i in 0..M + 2 {
                    half[i][j] = d[i];
                }
            }
            for i in 0..M + 2 {
                let d = input::<R, M>(half[i]);
                for j in 0..M + 2 {
                    d[j].store(to.add((i * (M + 2) + j) * stride));
                }
            }
        }
    }
}

/// `B^T d` in one direction.
///
/// # Safety
/// The processor has the instructions.
#[inline(always)]
unsafe fn input<R: Register, const M: usize>(d: [R; MOST]) -> [R; MOST] {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if M == 2 {
            let [d0, d1, d2, d3, ..] = d;
            let zero = R::zero();
            return [less(d2, d0), d2.add(d1), less(d2, d1), less(d3, d1), zero, zero];
        }
        let [d0, d1, d2, d3, d4, d5] = d;
        let (even_a, odd_a) = (d4.add_scaled(&-B2, d2), d3.add_scaled(&-B2, d1));
        let (even_b, odd_b) = (d4.add_scaled(&-A2, d2), d3.add_scaled(&-A2, d1));
        [
            d4.add_scaled(&-SUM, d2).add_scaled(&PRODUCT, d0),
            even_a.add_scaled(&A1, odd_a),
            even_a.add_scaled(&-A1, odd_a),
            even_b.add_scaled(&B1, odd_b),
            even_b.add_scaled(&-B1, odd_b),
            d5.add_scaled(&-SUM, d3).add_scaled(&PRODUCT, d1),
        ]
    }
}

/// `A^T m A` for each channel of a tile of `size x size` outputs: the inverse of the transforms of inputs and filters. Frequency `f` of channel `c` is
/// `m[f * stride + c]`; whole lines of sixteen channels are read.
pub(crate) fn frequencies_to_outputs(
    size: usize,
    m: &[f32],
    stride: usize,
    y: &mut [f32],
    window: Window,
    channels: usize,
    store: Store<'_>,
) {
    let window = window.within(size);
    assert!(window.end(channels) <= y.len(), "the window lies within the image");
    let wide = channels.next_multiple_of(WIDTH);
    assert!(((size + 2).pow(2) - 1) * stride + wide <= m.len(), "every frequency exists");
    assert!(store.bias.is_none_or(|bias| bias.len() >= channels), "one bias for each channel");
    match size {
        4 => outputs_4(m, stride, y, window, channels, store),
        2 => outputs_2(m, stride, y, window, channels, store),
        _ => unreachable!("tiles have 4x4 or 2x2 outputs"),
    }
}

by_register! {
    fn outputs_4(m: &[f32], stride: usize, y: &mut [f32], window: Window, channels: usize, store: Store<'_>) = outputs_4_body
}
by_register! {
    fn outputs_2(m: &[f32], stride: usize, y: &mut [f32], window: Window, channels: usize, store: Store<'_>) = outputs_2_body
}

#[inline(always)]
unsafe fn outputs_4_body<R: Register>(
    m: &[f32],
    stride: usize,
    y: &mut [f32],
    window: Window,
    channels: usize,
    store: Store<'_>,
) {
    // SAFETY: guaranteed by the callers.
    unsafe { outputs::<R, 4>(m, stride, y, window, channels, store) }
}

#[inline(always)]
unsafe fn outputs_2_body<R: Register>(
    m: &[f32],
    stride: usize,
    y: &mut [f32],
    window: Window,
    channels: usize,
    store: Store<'_>,
) {
    // SAFETY: guaranteed by the callers.
    unsafe { outputs::<R, 2>(m, stride, y, window, channels, store) }
}

/// # Safety
/// The processor has the instructions, and the assertions of [`frequencies_to_outputs`] hold.
#[inline(always)]
unsafe fn outputs<R: Register, const M: usize>(
    m: &[f32],
    stride: usize,
    y: &mut [f32],
    window: Window,
    channels: usize,
    store: Store<'_>,
) {
    let Window { start, row, pixel, rows, columns } = window;
    // SAFETY: guaranteed by the caller.
    unsafe {
        for channel in (0..channels).step_by(WIDTH) {
            let width = (channels - channel).min(WIDTH);
            let (from, to) = (m.as_ptr().add(channel), y.as_mut_ptr().wrapping_add(start + channel));
            let bias = store.bias.map_or(R::zero(), |bias| load_part(bias.as_ptr().add(channel), width));
            let mut half = [[R::zero(); MOST]; MOST];
            for j in 0..M + 2 {
                let mut f = [R::zero(); MOST];
                for i in 0..M + 2 {
                    f[i] = R::load(from.add((i * (M + 2) + j) * stride));
                }
                let f = output::<R, M>(f);
                for i in 0..M {
                    half[i][j] = f[i];
                }
            }
            for i in 0..M.min(rows) {
                let f = output::<R, M>(half[i]);
                for j in 0..M {
                    if j < columns {
                        let to = to.add(i * row + j * pixel);
                        let before = if store.accumulate { load_part(to, width) } else { R::zero() };
                        store_part(f[j].add(bias).add(before), to, width);
                    }
                }
            }
        }
    }
}

/// `A^T m` in one direction.
///
/// # Safety
/// The processor has the instructions.
#[inline(always)]
unsafe fn output<R: Register, const M: usize>(m: [R; MOST]) -> [R; MOST] {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let zero = R::zero();
        let [m0, m1, m2, m3, m4, m5] = m;
        let (even_a, odd_a) = (m1.add(m2), less(m1, m2));
        if M == 2 {
            return [m0.add(even_a), odd_a.add(m3), zero, zero, zero, zero];
        }
        let (even_b, odd_b) = (m3.add(m4), less(m3, m4));
        [
            m0.add(even_a).add(even_b),
            scaled(A1, odd_a).add_scaled(&B1, odd_b),
            scaled(A2, even_a).add_scaled(&B2, even_b),
            m5.add_scaled(&A3, odd_a).add_scaled(&B3, odd_b),
            zero,
            zero,
        ]
    }
}

/// Filters of 3x3 taps: tap `t` of the filter from row `r` (a channel that is read) to column `c` (a channel that is written) is
/// `source[r * row_step + c * column_step + t]`.
#[derive(Clone, Copy)]
pub(crate) struct Filters<'a> {
    pub(crate) source: &'a [f32],
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) row_step: usize,
    pub(crate) column_step: usize,
    /// Whether the taps are in reverse order, as in the gradient of an input.
    pub(crate) reversed: bool,
}

impl Filters<'_> {
    /// The filters of the gradient of the input: from output channels to input channels.
    pub(crate) fn transposed(self) -> Self {
        Filters {
            rows: self.columns,
            columns: self.rows,
            row_step: self.column_step,
            column_step: self.row_step,
            reversed: !self.reversed,
            ..self
        }
    }
}

const TAPS: usize = 9;

/// Filters that are transformed before their frequencies are copied to the packs.
const TOGETHER: usize = 8;

/// Packs `G g G^T` for each filter: `packs[b * frequencies + f]` is frequency `f` of columns `b * block ..`, at most `block` of them.
pub(crate) fn pack_filters(size: usize, filters: Filters<'_>, block: usize, packs: &mut [Packed]) {
    let frequencies = (size + 2).pow(2);
    let Filters { rows, columns, .. } = filters;
    assert!(block.is_multiple_of(WIDTH), "blocks consist of whole panels");
    for (number, packs) in packs.chunks_exact_mut(frequencies).enumerate() {
        let (first, end) = (number * block, columns.min((number + 1) * block));
        let mut panels: Vec<&mut [f32]> =
            packs.iter_mut().map(|pack| pack.panels_mut(rows, end - first)).collect();
        for (panel, column) in (first..end).step_by(WIDTH).enumerate() {
            for row in (0..rows).step_by(TOGETHER) {
                let count = TOGETHER.min(rows - row);
                let taps = gather(filters, row, column, count);
                let mut transformed = [0.0; MOST * MOST * TOGETHER * WIDTH];
                match size {
                    4 => filters_4(&taps, &mut transformed),
                    2 => filters_2(&taps, &mut transformed),
                    _ => unreachable!("tiles have 4x4 or 2x2 outputs"),
                }
                let own = transformed.chunks_exact(TOGETHER * WIDTH);
                for (panels, own) in panels.iter_mut().zip(own) {
                    panels[(panel * rows + row) * WIDTH..][..count * WIDTH]
                        .copy_from_slice(&own[..count * WIDTH]);
                }
            }
        }
    }
}

type Taps = [[[f32; WIDTH]; TAPS]; TOGETHER];

/// The taps of sixteen columns of some rows; missing ones are zero.
fn gather(filters: Filters<'_>, row: usize, column: usize, count: usize) -> Taps {
    let mut taps = [[[0.0; WIDTH]; TAPS]; TOGETHER];
    for j in 0..WIDTH.min(filters.columns - column) {
        for (i, taps) in taps[..count].iter_mut().enumerate() {
            let start = (row + i) * filters.row_step + (column + j) * filters.column_step;
            let own = &filters.source[start..][..TAPS];
            for t in 0..TAPS {
                taps[t][j] = own[if filters.reversed { TAPS - 1 - t } else { t }];
            }
        }
    }
    taps
}

by_register! {
    fn filters_4(taps: &Taps, out: &mut [f32; MOST * MOST * TOGETHER * WIDTH]) = filters_4_body
}
by_register! {
    fn filters_2(taps: &Taps, out: &mut [f32; MOST * MOST * TOGETHER * WIDTH]) = filters_2_body
}

#[inline(always)]
unsafe fn filters_4_body<R: Register>(taps: &Taps, out: &mut [f32; MOST * MOST * TOGETHER * WIDTH]) {
    // SAFETY: guaranteed by the callers.
    unsafe { transform_filters::<R, 4>(taps, out) }
}

#[inline(always)]
unsafe fn filters_2_body<R: Register>(taps: &Taps, out: &mut [f32; MOST * MOST * TOGETHER * WIDTH]) {
    // SAFETY: guaranteed by the callers.
    unsafe { transform_filters::<R, 2>(taps, out) }
}

/// # Safety
/// The processor has the instructions.
#[inline(always)]
unsafe fn transform_filters<R: Register, const M: usize>(
    taps: &Taps,
    out: &mut [f32; MOST * MOST * TOGETHER * WIDTH],
) {
    for (number, taps) in taps.iter().enumerate() {
        // SAFETY: guaranteed by the caller; the arrays have the sizes that are read and written.
        unsafe {
            let mut half = [[R::zero(); 3]; MOST];
            for j in 0..3 {
                let g = filter::<R, M>(std::array::from_fn(|i| R::load(taps[i * 3 + j].as_ptr())));
                for i in 0..M + 2 {
                    half[i][j] = g[i];
                }
            }
            for i in 0..M + 2 {
                let g = filter::<R, M>(half[i]);
                for j in 0..M + 2 {
                    let place = ((i * (M + 2) + j) * TOGETHER + number) * WIDTH;
                    g[j].store(out.as_mut_ptr().add(place));
                }
            }
        }
    }
}

/// `G g` in one direction.
///
/// # Safety
/// The processor has the instructions.
#[inline(always)]
unsafe fn filter<R: Register, const M: usize>([g0, g1, g2]: [R; 3]) -> [R; MOST] {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let zero = R::zero();
        if M == 2 {
            let (even, odd) = (scaled(0.5, g0).add_scaled(&0.5, g2), scaled(0.5, g1));
            return [scaled(-1.0, g0), even.add(odd), less(even, odd), g2, zero, zero];
        }
        const EVEN: [f32; 4] = [AT_A as f32, (AT_A * A * A) as f32, AT_B as f32, (AT_B * B * B) as f32];
        const ODD: [f32; 2] = [(AT_A * A) as f32, (AT_B * B) as f32];
        let even_a = scaled(EVEN[0], g0).add_scaled(&EVEN[1], g2);
        let even_b = scaled(EVEN[2], g0).add_scaled(&EVEN[3], g2);
        let (odd_a, odd_b) = (scaled(ODD[0], g1), scaled(ODD[1], g1));
        [scaled(AT_0, g0), even_a.add(odd_a), less(even_a, odd_a), even_b.add(odd_b), less(even_b, odd_b), g2]
    }
}

/// `c x`.
///
/// # Safety
/// The processor has the instructions.
#[inline(always)]
unsafe fn scaled<R: Register>(c: f32, x: R) -> R {
    // SAFETY: guaranteed by the caller.
    unsafe { R::zero().add_scaled(&c, x) }
}

/// `x - y`.
///
/// # Safety
/// The processor has the instructions.
#[inline(always)]
unsafe fn less<R: Register>(x: R, y: R) -> R {
    // SAFETY: guaranteed by the caller.
    unsafe { x.add_scaled(&-1.0, y) }
}

/// The first `width` of sixteen floats; the others are zero.
///
/// # Safety
/// The processor has the instructions, and `width` floats can be read.
#[inline(always)]
unsafe fn load_part<R: Register>(from: *const f32, width: usize) -> R {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if width == WIDTH {
            return R::load(from);
        }
        let mut whole = [0.0; WIDTH];
        std::ptr::copy_nonoverlapping(from, whole.as_mut_ptr(), width);
        R::load(whole.as_ptr())
    }
}

/// Stores the first `width` of sixteen floats.
///
/// # Safety
/// The processor has the instructions, and `width` floats can be written.
#[inline(always)]
unsafe fn store_part<R: Register>(x: R, to: *mut f32, width: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if width == WIDTH {
            return x.store(to);
        }
        let mut whole = [0.0; WIDTH];
        x.store(whole.as_mut_ptr());
        std::ptr::copy_nonoverlapping(whole.as_ptr(), to, width);
    }
}
