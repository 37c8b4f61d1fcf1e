//! The transforms of Winograd's convolution with filters of 3x3 (Winograd, 1980; Lavin and Gray, 2016).
//!
//! A tile of `M x M` outputs depends on `(M + 2) x (M + 2)` inputs. In each direction, outputs, inputs and taps are coefficients of polynomials,
//! and the transforms evaluate them at `M + 1` points and at infinity. There a convolution is one product for each point, so a tile needs `(M + 2)^2`
//! multiplications instead of `9 M^2`: a quarter for `M = 4` and four ninths for `M = 2`. The values at a pair of points are called a frequency.
//!
//! With `d` for inputs, `g` for taps and `y` for outputs, all as square matrices:
//!
//! ```text
//! y  = A^T [ (B^T d B) * (G g G^T) ] A       * is entry by entry; summed over the input channels
//! dg = G^T [ (B^T d B) * (A dy A^T) ] G      the gradient of the taps, from the gradient dy of the outputs; summed over the tiles
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
/// The rows of `G`: the value of a filter at 0, and at `A` and at `B` (with the opposite sign in the middle, at `-A` and `-B`).
const AT_0: f32 = (1.0 / (A * A * B * B)) as f32;
const AT_A: [f32; 3] = row(A, B);
const AT_B: [f32; 3] = row(B, A);

/// The powers of a point, divided by the product of its distances to all other points.
const fn row(point: f64, other: f64) -> [f32; 3] {
    let square = point * point;
    let scale = 1.0 / (2.0 * square * (square - other * other));
    [scale as f32, (scale * point) as f32, (scale * square) as f32]
}

/// The largest number of frequencies.
const MOST: usize = 36;

/// The side of a tile of outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tile {
    Two,
    Four,
}

impl Tile {
    /// Outputs in one direction.
    pub(crate) fn side(self) -> usize {
        match self {
            Tile::Two => 2,
            Tile::Four => 4,
        }
    }

    /// The number of frequencies.
    pub(crate) fn frequencies(self) -> usize {
        (self.side() + 2).pow(2)
    }
}

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

/// The values that are transformed to frequencies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// `B^T d B`.
    Inputs(Tile),
    /// `G g G^T`.
    Taps(Tile),
    /// `A dy A^T`, for tiles of 4x4.
    Gradients,
}

/// Transforms each channel of a tile, which begins at the window. Frequency `f` of channel `c` becomes `out[f * stride + c]`.
///
/// Whole lines of sixteen channels are read and written; the values beyond the channels have no meaning.
pub(crate) fn to_frequencies(
    source: Source,
    x: &[f32],
    window: Window,
    channels: usize,
    out: &mut [f32],
    stride: usize,
) {
    let (side, tile) = match source {
        Source::Inputs(tile) => (tile.side() + 2, tile),
        Source::Taps(tile) => (3, tile),
        Source::Gradients => (4, Tile::Four),
    };
    let (window, wide) = (window.within(side), channels.next_multiple_of(WIDTH));
    assert!(window.end(wide) <= x.len(), "the window lies within the image");
    assert!((tile.frequencies() - 1) * stride + wide <= out.len(), "every frequency has a place");
    forth(source, x, window, channels, out, stride);
}

by_register! {
    fn forth(source: Source, x: &[f32], window: Window, channels: usize, out: &mut [f32], stride: usize) = forth_body
}

/// # Safety
/// The processor has the instructions, and the assertions of [`to_frequencies`] hold.
#[inline(always)]
unsafe fn forth_body<R: Register>(
    source: Source,
    x: &[f32],
    window: Window,
    channels: usize,
    out: &mut [f32],
    stride: usize,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match source {
            Source::Inputs(Tile::Four) => forth_by::<R, Input4, 6, 6>(x, window, channels, out, stride),
            Source::Inputs(Tile::Two) => forth_by::<R, Input2, 4, 4>(x, window, channels, out, stride),
            Source::Taps(Tile::Four) => forth_by::<R, Tap4, 3, 6>(x, window, channels, out, stride),
            Source::Taps(Tile::Two) => forth_by::<R, Tap2, 3, 4>(x, window, channels, out, stride),
            Source::Gradients => forth_by::<R, Gradient4, 4, 6>(x, window, channels, out, stride),
        }
    }
}

/// A transform of `N` numbers to `F` frequencies, first along the columns, then along the rows.
///
/// # Safety
/// As for [`forth_body`].
#[inline(always)]
unsafe fn forth_by<R: Register, T: Transform<N, F>, const N: usize, const F: usize>(
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
            // Not dereferenced if the window is empty.
            let from = x.as_ptr().wrapping_add(start + channel);
            let to = out.as_mut_ptr().add(channel);
            let mut half = [[R::zero(); N]; F];
            for j in 0..N {
                if j < columns {
                    let mut own = [R::zero(); N];
                    for i in 0..N {
                        if i < rows {
                            own[i] = R::load(from.add(i * row + j * pixel));
                        }
                    }
                    let own = T::apply(own);
                    for i in 0..F {
                        half[i][j] = own[i];
                    }
                }
            }
            for i in 0..F {
                let own = T::apply(half[i]);
                for j in 0..F {
                    own[j].store(to.add((i * F + j) * stride));
                }
            }
        }
    }
}

/// What frequencies are transformed to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// `A^T m A`: the outputs of a tile.
    Outputs(Tile),
    /// `G^T m G`: the gradient of the taps, for tiles of 4x4.
    Taps,
}

/// Transforms frequencies to `channels` channels of the pixels of a window. Frequency `f` of channel `c` is `m[f * stride + c]`; whole lines of
/// sixteen channels are read.
pub(crate) fn from_frequencies(
    target: Target,
    m: &[f32],
    stride: usize,
    y: &mut [f32],
    window: Window,
    channels: usize,
    store: Store<'_>,
) {
    let (side, tile) = match target {
        Target::Outputs(tile) => (tile.side(), tile),
        Target::Taps => (3, Tile::Four),
    };
    let (window, wide) = (window.within(side), channels.next_multiple_of(WIDTH));
    assert!(window.end(channels) <= y.len(), "the window lies within the image");
    assert!((tile.frequencies() - 1) * stride + wide <= m.len(), "every frequency exists");
    assert!(store.bias.is_none_or(|bias| bias.len() >= channels), "one bias for each channel");
    back(target, m, stride, y, window, channels, store);
}

by_register! {
    fn back(
        target: Target, m: &[f32], stride: usize, y: &mut [f32], window: Window, channels: usize, store: Store<'_>,
    ) = back_body
}

/// # Safety
/// The processor has the instructions, and the assertions of [`from_frequencies`] hold.
#[inline(always)]
unsafe fn back_body<R: Register>(
    target: Target,
    m: &[f32],
    stride: usize,
    y: &mut [f32],
    window: Window,
    channels: usize,
    store: Store<'_>,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match target {
            Target::Outputs(Tile::Four) => back_by::<R, Output4, 6, 4>(m, stride, y, window, channels, store),
            Target::Outputs(Tile::Two) => back_by::<R, Output2, 4, 2>(m, stride, y, window, channels, store),
            Target::Taps => back_by::<R, TapGradient4, 6, 3>(m, stride, y, window, channels, store),
        }
    }
}

/// A transform of `F` frequencies to `N` numbers, first along the columns, then along the rows.
///
/// # Safety
/// As for [`back_body`].
#[inline(always)]
unsafe fn back_by<R: Register, T: Transform<F, N>, const F: usize, const N: usize>(
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
            // Not dereferenced if the window is empty.
            let (from, to) = (m.as_ptr().add(channel), y.as_mut_ptr().wrapping_add(start + channel));
            let bias = store.bias.map_or(R::zero(), |bias| load_part(bias.as_ptr().add(channel), width));
            let mut half = [[R::zero(); F]; N];
            for j in 0..F {
                let mut own = [R::zero(); F];
                for i in 0..F {
                    own[i] = R::load(from.add((i * F + j) * stride));
                }
                let own = T::apply(own);
                for i in 0..N {
                    half[i][j] = own[i];
                }
            }
            for i in 0..N {
                if i < rows {
                    let own = T::apply(half[i]);
                    for j in 0..N {
                        if j < columns {
                            let to = to.add(i * row + j * pixel);
                            let before = if store.accumulate { load_part(to, width) } else { R::zero() };
                            store_part(own[j].add(bias).add(before), to, width);
                        }
                    }
                }
            }
        }
    }
}

/// A transform in one direction.
trait Transform<const FROM: usize, const TO: usize> {
    /// # Safety
    /// The processor has the instructions.
    unsafe fn apply<R: Register>(x: [R; FROM]) -> [R; TO];
}

/// `B^T d` for tiles of 2x2.
struct Input2;

impl Transform<4, 4> for Input2 {
    #[inline(always)]
    unsafe fn apply<R: Register>([d0, d1, d2, d3]: [R; 4]) -> [R; 4] {
        // SAFETY: guaranteed by the caller.
        unsafe { [less(d2, d0), d2.add(d1), less(d2, d1), less(d3, d1)] }
    }
}

/// `B^T d` for tiles of 4x4.
struct Input4;

impl Transform<6, 6> for Input4 {
    #[inline(always)]
    unsafe fn apply<R: Register>([d0, d1, d2, d3, d4, d5]: [R; 6]) -> [R; 6] {
        // SAFETY: guaranteed by the caller.
        unsafe {
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
}

/// `A^T m` for tiles of 2x2.
struct Output2;

impl Transform<4, 2> for Output2 {
    #[inline(always)]
    unsafe fn apply<R: Register>([m0, m1, m2, m3]: [R; 4]) -> [R; 2] {
        // SAFETY: guaranteed by the caller.
        unsafe { [m0.add(m1.add(m2)), less(m1, m2).add(m3)] }
    }
}

/// `A^T m` for tiles of 4x4.
struct Output4;

impl Transform<6, 4> for Output4 {
    #[inline(always)]
    unsafe fn apply<R: Register>([m0, m1, m2, m3, m4, m5]: [R; 6]) -> [R; 4] {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (even_a, odd_a) = (m1.add(m2), less(m1, m2));
            let (even_b, odd_b) = (m3.add(m4), less(m3, m4));
            [
                m0.add(even_a).add(even_b),
                scaled(A1, odd_a).add_scaled(&B1, odd_b),
                scaled(A2, even_a).add_scaled(&B2, even_b),
                m5.add_scaled(&A3, odd_a).add_scaled(&B3, odd_b),
            ]
        }
    }
}

/// `A y` for tiles of 4x4.
struct Gradient4;

impl Transform<4, 6> for Gradient4 {
    #[inline(always)]
    unsafe fn apply<R: Register>([y0, y1, y2, y3]: [R; 4]) -> [R; 6] {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (even_a, odd_a) = (y0.add_scaled(&A2, y2), scaled(A1, y1).add_scaled(&A3, y3));
            let (even_b, odd_b) = (y0.add_scaled(&B2, y2), scaled(B1, y1).add_scaled(&B3, y3));
            [y0, even_a.add(odd_a), less(even_a, odd_a), even_b.add(odd_b), less(even_b, odd_b), y3]
        }
    }
}

/// `G g` for tiles of 2x2.
struct Tap2;

impl Transform<3, 4> for Tap2 {
    #[inline(always)]
    unsafe fn apply<R: Register>([g0, g1, g2]: [R; 3]) -> [R; 4] {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (even, odd) = (scaled(0.5, g0).add_scaled(&0.5, g2), scaled(0.5, g1));
            [scaled(-1.0, g0), even.add(odd), less(even, odd), g2]
        }
    }
}

/// `G g` for tiles of 4x4.
struct Tap4;

impl Transform<3, 6> for Tap4 {
    #[inline(always)]
    unsafe fn apply<R: Register>([g0, g1, g2]: [R; 3]) -> [R; 6] {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let even_a = scaled(AT_A[0], g0).add_scaled(&AT_A[2], g2);
            let even_b = scaled(AT_B[0], g0).add_scaled(&AT_B[2], g2);
            let (odd_a, odd_b) = (scaled(AT_A[1], g1), scaled(AT_B[1], g1));
            [
                scaled(AT_0, g0),
                even_a.add(odd_a),
                less(even_a, odd_a),
                even_b.add(odd_b),
                less(even_b, odd_b),
                g2,
            ]
        }
    }
}

/// `G^T m` for tiles of 4x4.
struct TapGradient4;

impl Transform<6, 3> for TapGradient4 {
    #[inline(always)]
    unsafe fn apply<R: Register>([m0, m1, m2, m3, m4, m5]: [R; 6]) -> [R; 3] {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (even_a, odd_a) = (m1.add(m2), less(m1, m2));
            let (even_b, odd_b) = (m3.add(m4), less(m3, m4));
            [
                scaled(AT_0, m0).add_scaled(&AT_A[0], even_a).add_scaled(&AT_B[0], even_b),
                scaled(AT_A[1], odd_a).add_scaled(&AT_B[1], odd_b),
                m5.add_scaled(&AT_A[2], even_a).add_scaled(&AT_B[2], even_b),
            ]
        }
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
pub(crate) fn pack_filters(tile: Tile, filters: Filters<'_>, block: usize, packs: &mut [Packed]) {
    let frequencies = tile.frequencies();
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
                let mut transformed = [0.0; MOST * TOGETHER * WIDTH];
                for index in 0..count {
                    let (start, out) = (index * TAPS * WIDTH, &mut transformed[index * WIDTH..]);
                    let window = Window { start, row: 3 * WIDTH, pixel: WIDTH, rows: 3, columns: 3 };
                    to_frequencies(
                        Source::Taps(tile),
                        taps.as_flattened().as_flattened(),
                        window,
                        WIDTH,
                        out,
                        TOGETHER * WIDTH,
                    );
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
