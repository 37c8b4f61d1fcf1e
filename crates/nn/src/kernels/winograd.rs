//! The transforms of Winograd convolutions with 3x3 filters (Winograd, 1980; Lavin and Gray, 2016).
//!
//! A tile of `M x M` outputs depends on `(M + 2) x (M + 2)` inputs. In each direction, outputs, inputs and taps are coefficients of
//! polynomials, and the transforms evaluate them at `M + 1` points and at infinity. In the transformed domain, a convolution is one product
//! for each point, so a tile needs `(M + 2)^2` multiplications instead of `9 M^2`: a quarter for `M = 4` and four ninths for `M = 2`. The
//! values at a pair of points are called a frequency, as in a Fourier transform.
//!
//! With `d` for inputs, `g` for taps and `y` for outputs, all as square matrices:
//!
//! ```text
//! y  = A^T [ (B^T d B) * (G g G^T) ] A       * is element-wise; summed over the input channels
//! dg = G^T [ (B^T d B) * (A dy A^T) ] G      the gradient of the taps, from the gradient dy of the outputs; summed over the tiles
//! ```

mod filters;
mod transforms;

use super::isa::by_register;
use super::lanes::{Register, WIDTH};
use super::product::Store;
use transforms::{Gradient4, Input2, Input4, Output2, Output4, Tap2, Tap4, TapGradient4, Transform};

pub(crate) use filters::{Filters, pack_filters};

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

/// Part of an image, from the pixel at `start` on. Of the pixels that a transform reads or writes, only `rows x columns` exist; the others
/// are read as zero or not written.
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
/// Channels are read and written in groups of sixteen; the values beyond the last channel have no meaning.
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

/// Transforms frequencies to `channels` channels of the pixels of a window. Frequency `f` of channel `c` is `m[f * stride + c]`; channels are
/// read in groups of sixteen.
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
