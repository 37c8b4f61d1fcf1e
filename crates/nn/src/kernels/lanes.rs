//! Sixteen floats that the compiler keeps in one AVX-512 register, two AVX2 registers or four SSE or NEON ones.

/// Floats in a [`Lanes`], and the width of a packed panel.
pub(crate) const WIDTH: usize = 16;

/// Sixteen floats.
#[derive(Clone, Copy)]
#[repr(align(64))]
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
        // SAFETY: the caller's promise; arrays of floats need no more alignment than a float.
        Lanes(unsafe { *from.cast::<[f32; WIDTH]>() })
    }

    /// # Safety
    /// Sixteen floats can be written to `to`.
    #[inline(always)]
    pub(crate) unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { *to.cast::<[f32; WIDTH]>() = self.0 }
    }

    /// `self += a * b`.
    #[inline(always)]
    pub(crate) fn add_scaled<const FMA: bool>(&mut self, a: f32, b: &Lanes) {
        for j in 0..WIDTH {
            self.0[j] = fma::<FMA>(a, b.0[j], self.0[j]);
        }
    }

    /// `self += a * b`, lane by lane.
    #[inline(always)]
    pub(crate) fn add_product<const FMA: bool>(&mut self, a: &Lanes, b: &Lanes) {
        for j in 0..WIDTH {
            self.0[j] = fma::<FMA>(a.0[j], b.0[j], self.0[j]);
        }
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
