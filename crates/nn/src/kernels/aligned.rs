//! Buffers aligned to cache lines, so that no vector load is split. Large ones use huge pages.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use super::lanes::{Lanes, WIDTH};

/// From this size on a buffer requests huge pages: the rows of a tile lie in different small pages, more than the processor's page
/// cache holds.
const LARGE: usize = 1 << 20;

const HUGE_PAGE: usize = 1 << 21;

/// A zeroed buffer of floats aligned to a cache line.
pub(crate) struct Aligned {
    start: NonNull<f32>,
    len: usize,
    /// The allocation's layout; if its size is 0, nothing was allocated.
    layout: Layout,
}

// SAFETY: the buffer is owned and accessed through `&self` and `&mut self` only, like that of a `Vec<f32>`.
unsafe impl Send for Aligned {}
// SAFETY: as above.
unsafe impl Sync for Aligned {}

impl Aligned {
    /// `len` zeros, followed by one spare cache line, so that a whole line may be read at any of them.
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
        // Before the first access, which decides the size of a page.
        if bytes >= LARGE {
            ask_for_huge_pages(start, bytes);
        }
        // SAFETY: this function owns the block, which has this size.
        unsafe { start.write_bytes(0, bytes) };
        Aligned { start: start.cast(), len, layout }
    }

    /// Ensures that the buffer holds at least `len` floats. The contents are kept only if it did already.
    pub(crate) fn reserve(&mut self, len: usize) {
        if self.len < len + WIDTH {
            *self = Aligned::zeroed(len);
        }
    }
}

#[cfg(target_os = "linux")]
fn ask_for_huge_pages(start: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller owns the block, which consists of whole pages. The advice does not change its contents, and its failure is harmless.
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
