//! Buffers that begin at a cache line, so that no vector load is split; large ones lie in huge pages.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use super::lanes::{Lanes, WIDTH};

/// From this size on a buffer asks for huge pages: the rows of a tile lie in different small pages, and there are more of
/// them than a processor keeps track of.
const LARGE: usize = 1 << 20;

const HUGE_PAGE: usize = 1 << 21;

/// A zeroed buffer of floats whose first element begins a cache line.
pub(crate) struct Aligned {
    start: NonNull<f32>,
    len: usize,
    /// How it was allocated; nothing was if it has no size.
    layout: Layout,
}

// SAFETY: the buffer is owned and reached through `&self` and `&mut self` alone, as that of a `Vec<f32>`.
unsafe impl Send for Aligned {}
// SAFETY: as above.
unsafe impl Sync for Aligned {}

impl Aligned {
    /// `len` zeros, with one spare line behind them so that a whole line may be read at any of them.
    pub(crate) fn zeroed(len: usize) -> Aligned {
        let len = len + WIDTH;
        let bytes =
            len.checked_next_multiple_of(WIDTH).and_then(|len| len.checked_mul(4)).expect("a sensible size");
        let (bytes, align) = match bytes >= LARGE {
            true => (bytes.next_multiple_of(HUGE_PAGE), HUGE_PAGE),
            false => (bytes, size_of::<Lanes>()),
        };
        let layout = Layout::from_size_align(bytes, align).expect("a sensible size");
        // SAFETY: the size is not zero.
        let Some(start) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        // Before the first touch, which decides the size of a page.
        if bytes >= LARGE {
            ask_for_huge_pages(start, bytes);
        }
        // SAFETY: the block is ours and has this size.
        unsafe { start.write_bytes(0, bytes) };
        Aligned { start: start.cast(), len, layout }
    }

    /// Makes room for `len` floats; what was there is kept only if there was room already.
    pub(crate) fn reserve(&mut self, len: usize) {
        if self.len < len + WIDTH {
            *self = Aligned::zeroed(len);
        }
    }
}

#[cfg(target_os = "linux")]
fn ask_for_huge_pages(start: NonNull<u8>, bytes: usize) {
    // SAFETY: the block is ours and whole pages; the advice changes no contents, and failing to take it is no error.
    let _ = unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn ask_for_huge_pages(_: NonNull<u8>, _: usize) {}

impl Default for Aligned {
    fn default() -> Aligned {
        Aligned { start: NonNull::dangling(), len: 0, layout: Layout::new::<()>() }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        if self.layout.size() > 0 {
            // SAFETY: it was allocated with this layout.
            unsafe { dealloc(self.start.as_ptr().cast(), self.layout) }
        }
    }
}

impl Deref for Aligned {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: `len` floats were allocated and zeroed; with none, a dangling pointer is allowed.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `deref`; `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}
