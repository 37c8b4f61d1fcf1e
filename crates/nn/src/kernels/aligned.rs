//! Buffers that begin at a cache line, so that no vector load is split.

use std::ops::{Deref, DerefMut};

use super::lanes::{Lanes, WIDTH};

/// A zeroed buffer of floats whose first element begins a cache line.
#[derive(Default)]
pub(crate) struct Aligned {
    lines: Vec<Lanes>,
    len: usize,
}

impl Aligned {
    /// `len` zeros, with one spare line behind them so that a whole line may be read at any of them.
    pub(crate) fn zeroed(len: usize) -> Aligned {
        Aligned { lines: vec![Lanes::ZERO; len.div_ceil(WIDTH) + 1], len: len + WIDTH }
    }

    /// Makes room for `len` floats; what was there is kept only if there was room already.
    pub(crate) fn reserve(&mut self, len: usize) {
        if self.len < len + WIDTH {
            *self = Aligned::zeroed(len);
        }
    }
}

impl Deref for Aligned {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        debug_assert!(self.len <= self.lines.len() * WIDTH);
        // SAFETY: `Lanes` is sixteen floats without padding (64 bytes, aligned to 64), and `len` is at most the number
        // of floats in `lines`.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `deref`; `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}
