//! Sixteen floats that the compiler keeps in one AVX-512 register, two AVX2 registers or four SSE or NEON ones.

use super::isa::FUSED;

/// Floats in a [`Lanes`], and the width of a packed panel.
pub(crate) const WIDTH: usize = 16;

/// Sixteen floats.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Lanes(pub(crate) [f32; WIDTH]);

/// `a * b + c`, fused where the instruction exists (a software fused multiply-add would be a hundred times slower).
#[inline(always)]
pub(crate) fn fma<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

impl Lanes {
    pub(crate) const ZERO: Lanes = Lanes([0.0; WIDTH]);

    /// # Safety
    /// Sixteen floats can be read from `from`.
    #[inline(always)]
    pub(crate) unsafe fn load(from: *const f32) -> Lanes {
        // SAFETY: guaranteed by the caller; arrays of floats need no more alignment than a float.
        Lanes(unsafe { *from.cast::<[f32; WIDTH]>() })
    }

    /// # Safety
    /// Sixteen floats can be written to `to`.
    #[inline(always)]
    pub(crate) unsafe fn store(self, to: *mut f32) {
        // SAFETY: guaranteed by the caller.
        unsafe { *to.cast::<[f32; WIDTH]>() = self.0 }
    }

    /// `self += b`.
    #[inline(always)]
    pub(crate) fn add(&mut self, b: &Lanes) {
        for j in 0..WIDTH {
            self.0[j] += b.0[j];
        }
    }

    /// The sum of the lanes, pairwise.
    #[inline(always)]
    pub(crate) fn sum(&self) -> f32 {
        let mut half = [0.0f32; 8];
        for j in 0..8 {
            half[j] = self.0[j] + self.0[j + 8];
        }
        let mut quarter = [0.0f32; 4];
        for j in 0..4 {
            quarter[j] = half[j] + half[j + 4];
        }
        (quarter[0] + quarter[2]) + (quarter[1] + quarter[3])
    }
}

/// Sixteen floats in the registers of one instruction set, for the tiles of products, which run at half the speed if the compiler
/// chooses the registers.
///
/// # Safety
/// The processor has the instructions, pointers are valid for all floats that are read or written, and counts are at most sixteen.
pub(crate) trait Register: Copy {
    /// Sixteen zeros.
    unsafe fn zero() -> Self;
    /// Reads sixteen floats.
    unsafe fn load(from: *const f32) -> Self;
    /// Writes sixteen floats.
    unsafe fn store(self, to: *mut f32);

    /// Reads the first `count` floats, at most sixteen; the others are zero. Slower than `load`.
    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let mut lanes = Lanes::ZERO;
            for j in 0..count {
                lanes.0[j] = *from.add(j);
            }
            Self::load(lanes.0.as_ptr())
        }
    }

    /// Writes the first `count` floats, at most sixteen. Slower than `store`. Loading these floats soon afterwards is slow, too.
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let mut lanes = Lanes::ZERO;
            self.store(lanes.0.as_mut_ptr());
            for j in 0..count {
                *to.add(j) = lanes.0[j];
            }
        }
    }

    /// `self + a b`.
    unsafe fn add_scaled(self, a: *const f32, b: Self) -> Self;
    /// `self + a b`, lane by lane.
    unsafe fn add_product(self, a: Self, b: Self) -> Self;
    /// `self + b`.
    unsafe fn add(self, b: Self) -> Self;
    /// The sum of the lanes, pairwise.
    unsafe fn sum(self) -> f32;
    /// Begins to load the cache line at an address, which need not be valid.
    unsafe fn prefetch(from: *const f32);
}

/// Adds rows of `P` registers to `c`, or replaces the floats there. If `PART` is true, the last register of each row has only `last` floats.
///
/// Loops of constant length, compiled for each case: the compiler unrolls them, and the rows stay in registers. An index or a branch that is not
/// constant would move them to memory for the whole tile.
///
/// # Safety
/// The processor has the instructions, the floats of `c` can be read and written, and `last` is between 1 and 16.
#[inline(always)]
pub(crate) unsafe fn store_rows<R: Register, const MR: usize, const P: usize, const PART: bool>(
    mut rows: [[R; P]; MR],
    c: [*mut f32; MR],
    last: usize,
    accumulate: bool,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if accumulate {
            for i in 0..MR {
                for p in 0..P {
                    let from = c[i].add(p * WIDTH);
                    let before = if PART && p + 1 == P { R::load_first(from, last) } else { R::load(from) };
                    rows[i][p] = rows[i][p].add(before);
                }
            }
        }
        for i in 0..MR {
            for p in 0..P {
                let to = c[i].add(p * WIDTH);
                if PART && p + 1 == P {
                    rows[i][p].store_first(to, last);
                } else {
                    rows[i][p].store(to);
                }
            }
        }
    }
}

impl Register for Lanes {
    #[inline(always)]
    unsafe fn zero() -> Lanes {
        Lanes::ZERO
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Lanes {
        // SAFETY: guaranteed by the caller.
        unsafe { Lanes::load(from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: guaranteed by the caller.
        unsafe { Lanes::store(self, to) }
    }

    #[inline(always)]
    unsafe fn add_scaled(mut self, a: *const f32, b: Lanes) -> Lanes {
        // SAFETY: guaranteed by the caller.
        let a = unsafe { *a };
        for j in 0..WIDTH {
            self.0[j] = fma::<FUSED>(a, b.0[j], self.0[j]);
        }
        self
    }

    #[inline(always)]
    unsafe fn add_product(mut self, a: Lanes, b: Lanes) -> Lanes {
        for j in 0..WIDTH {
            self.0[j] = fma::<FUSED>(a.0[j], b.0[j], self.0[j]);
        }
        self
    }

    #[inline(always)]
    unsafe fn add(mut self, b: Lanes) -> Lanes {
        Lanes::add(&mut self, &b);
        self
    }

    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        Lanes::sum(&self)
    }

    #[inline(always)]
    unsafe fn prefetch(_: *const f32) {}
}

/// The registers that every processor of the compilation target has.
#[cfg(target_arch = "x86_64")]
pub(crate) type Portable = x86::Sse2;
#[cfg(target_arch = "aarch64")]
pub(crate) type Portable = aarch64::Neon;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) type Portable = Lanes;

/// The rows of a tile of [`Portable`] registers. NEON has 32 registers of four floats, SSE2 has 16.
pub(crate) const PORTABLE_ROWS: usize = if cfg!(target_arch = "aarch64") { 6 } else { 2 };

/// Sixteen floats in four registers of four.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! four_registers {
    ($(#[$meta:meta])* $name:ident($register:ty), $splat:path, $load:path, $store:path, $add:path, $add_product:path) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name([$register; 4]);

        // SAFETY of all blocks: every processor of the target has the instructions, and pointers are valid, as the trait requires of callers.
        impl Register for $name {
            #[inline(always)]
            unsafe fn zero() -> $name {
                // SAFETY: see above.
                $name([unsafe { $splat(0.0) }; 4])
            }

            #[inline(always)]
            unsafe fn load(from: *const f32) -> $name {
                // SAFETY: see above.
                $name(std::array::from_fn(|q| unsafe { $load(from.add(4 * q)) }))
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut f32) {
                for q in 0..4 {
                    // SAFETY: see above.
                    unsafe { $store(to.add(4 * q), self.0[q]) }
                }
            }

            #[inline(always)]
            unsafe fn add_scaled(self, a: *const f32, b: $name) -> $name {
                // SAFETY: see above.
                let a = unsafe { $splat(*a) };
                // SAFETY: see above.
                $name(std::array::from_fn(|q| unsafe { $add_product(self.0[q], a, b.0[q]) }))
            }

            #[inline(always)]
            unsafe fn add_product(self, a: $name, b: $name) -> $name {
                // SAFETY: see above.
                $name(std::array::from_fn(|q| unsafe { $add_product(self.0[q], a.0[q], b.0[q]) }))
            }

            #[inline(always)]
            unsafe fn add(self, b: $name) -> $name {
                // SAFETY: see above.
                $name(std::array::from_fn(|q| unsafe { $add(self.0[q], b.0[q]) }))
            }

            #[inline(always)]
            unsafe fn sum(self) -> f32 {
                let mut lanes = Lanes::ZERO;
                // SAFETY: see above.
                unsafe { self.store(lanes.0.as_mut_ptr()) };
                Lanes::sum(&lanes)
            }

            #[inline(always)]
            unsafe fn prefetch(_: *const f32) {}
        }
    };
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use std::arch::aarch64::*;

    use super::{Lanes, Register};

    four_registers! {
        /// Four registers of NEON.
        Neon(float32x4_t), vdupq_n_f32, vld1q_f32, vst1q_f32, vaddq_f32, vfmaq_f32
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Lanes, Register, WIDTH};

    four_registers! {
        /// Four registers of SSE2.
        Sse2(__m128), _mm_set1_ps, _mm_loadu_ps, _mm_storeu_ps, _mm_add_ps, add_product
    }

    /// `sum + a b`, rounded twice.
    ///
    /// # Safety
    /// The processor has SSE2.
    #[inline(always)]
    unsafe fn add_product(sum: __m128, a: __m128, b: __m128) -> __m128 {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm_add_ps(sum, _mm_mul_ps(a, b)) }
    }

    /// The mask of the first `count` floats.
    #[inline(always)]
    fn first(count: usize) -> __mmask16 {
        debug_assert!(count <= WIDTH);
        (0xffff_u32 >> (WIDTH - count)) as __mmask16
    }

    /// One register of AVX-512.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx512(__m512);

    // SAFETY of all blocks: the processor has the instructions and pointers are valid, as the trait requires of callers.
    impl Register for Avx512 {
        #[inline(always)]
        unsafe fn zero() -> Avx512 {
            // SAFETY: see above.
            Avx512(unsafe { _mm512_setzero_ps() })
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Avx512 {
            // SAFETY: see above.
            Avx512(unsafe { _mm512_loadu_ps(from) })
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: see above.
            unsafe { _mm512_storeu_ps(to, self.0) }
        }

        #[inline(always)]
        unsafe fn load_first(from: *const f32, count: usize) -> Avx512 {
            // SAFETY: see above; a masked load reads only the floats of its mask.
            Avx512(unsafe { _mm512_maskz_loadu_ps(first(count), from) })
        }

        #[inline(always)]
        unsafe fn store_first(self, to: *mut f32, count: usize) {
            // SAFETY: see above; a masked store writes only the floats of its mask.
            unsafe { _mm512_mask_storeu_ps(to, first(count), self.0) }
        }

        #[inline(always)]
        unsafe fn add_scaled(self, a: *const f32, b: Avx512) -> Avx512 {
            // SAFETY: see above.
            Avx512(unsafe { _mm512_fmadd_ps(_mm512_set1_ps(*a), b.0, self.0) })
        }

        #[inline(always)]
        unsafe fn add_product(self, a: Avx512, b: Avx512) -> Avx512 {
            // SAFETY: see above.
            Avx512(unsafe { _mm512_fmadd_ps(a.0, b.0, self.0) })
        }

        #[inline(always)]
        unsafe fn add(self, b: Avx512) -> Avx512 {
            // SAFETY: see above.
            Avx512(unsafe { _mm512_add_ps(self.0, b.0) })
        }

        #[inline(always)]
        unsafe fn sum(self) -> f32 {
            // SAFETY: see above.
            unsafe { _mm512_reduce_add_ps(self.0) }
        }

        #[inline(always)]
        unsafe fn prefetch(from: *const f32) {
            // SAFETY: see above.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
        }
    }

    /// Two registers of AVX2.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2(__m256, __m256);

    // SAFETY of all blocks: as for AVX-512.
    impl Register for Avx2 {
        #[inline(always)]
        unsafe fn zero() -> Avx2 {
            // SAFETY: see above.
            unsafe { Avx2(_mm256_setzero_ps(), _mm256_setzero_ps()) }
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Avx2 {
            // SAFETY: see above.
            unsafe { Avx2(_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: see above.
            unsafe {
                _mm256_storeu_ps(to, self.0);
                _mm256_storeu_ps(to.add(8), self.1);
            }
        }

        #[inline(always)]
        unsafe fn add_scaled(self, a: *const f32, b: Avx2) -> Avx2 {
            // SAFETY: see above.
            unsafe {
                let a = _mm256_broadcast_ss(&*a);
                Avx2(_mm256_fmadd_ps(a, b.0, self.0), _mm256_fmadd_ps(a, b.1, self.1))
            }
        }

        #[inline(always)]
        unsafe fn add_product(self, a: Avx2, b: Avx2) -> Avx2 {
            // SAFETY: see above.
            unsafe { Avx2(_mm256_fmadd_ps(a.0, b.0, self.0), _mm256_fmadd_ps(a.1, b.1, self.1)) }
        }

        #[inline(always)]
        unsafe fn add(self, b: Avx2) -> Avx2 {
            // SAFETY: see above.
            unsafe { Avx2(_mm256_add_ps(self.0, b.0), _mm256_add_ps(self.1, b.1)) }
        }

        #[inline(always)]
        unsafe fn sum(self) -> f32 {
            // SAFETY: see above.
            unsafe {
                let eight = _mm256_add_ps(self.0, self.1);
                let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
                let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
                _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)))
            }
        }

        #[inline(always)]
        unsafe fn prefetch(from: *const f32) {
            // SAFETY: see above.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads and writes no more than `count` floats, in registers of the compilation target and in plain arrays.
    #[test]
    fn a_part_of_a_register_is_loaded_and_stored() {
        fn check<R: Register>() {
            let from: [f32; WIDTH] = std::array::from_fn(|j| j as f32 + 1.0);
            for count in 0..=WIDTH {
                let (mut all, mut part) = ([-1.0; WIDTH], [-1.0; WIDTH]);
                // SAFETY: every processor has these registers, and the arrays have sixteen floats.
                unsafe {
                    R::load_first(from.as_ptr(), count).store(all.as_mut_ptr());
                    R::load(from.as_ptr()).store_first(part.as_mut_ptr(), count);
                }
                assert!((0..WIDTH).all(|j| all[j] == if j < count { from[j] } else { 0.0 }));
                assert!((0..WIDTH).all(|j| part[j] == if j < count { from[j] } else { -1.0 }));
            }
        }
        check::<Lanes>();
        check::<Portable>();
        #[cfg(target_arch = "x86_64")]
        if crate::kernels::isa::Isa::current() == crate::kernels::isa::Isa::Avx512 {
            check::<Avx512>();
        }
    }
}
