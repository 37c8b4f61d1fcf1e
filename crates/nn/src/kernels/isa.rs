//! The instruction set of the processor, detected once.

use std::sync::OnceLock;

/// An instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Isa {
    /// The instructions that the compilation target guarantees.
    Portable,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, VL, DQ and BW.
    Avx512,
}

/// Whether a multiply-add is one instruction on every processor of the compilation target.
pub(crate) const FUSED: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

impl Isa {
    /// The best set of this processor, or a smaller one if `SORDINO_ISA` (`avx2`, `portable`) requests it.
    pub(crate) fn current() -> Isa {
        static CURRENT: OnceLock<Isa> = OnceLock::new();
        *CURRENT.get_or_init(|| {
            let asked = match std::env::var("SORDINO_ISA").as_deref() {
                Ok("portable") => Isa::Portable,
                Ok("avx2") => Isa::Avx2,
                _ => Isa::Avx512,
            };
            asked.min(Isa::detected())
        })
    }

    #[cfg(target_arch = "x86_64")]
    fn detected() -> Isa {
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512bw");
        match (avx2, avx512) {
            (true, true) => Isa::Avx512,
            (true, false) => Isa::Avx2,
            _ => Isa::Portable,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn detected() -> Isa {
        Isa::Portable
    }
}

/// Compiles `body::<FMA>` for each instruction set and dispatches to the best one.
///
/// `body` must be `#[inline(always)]`, so that it is compiled with the features of the function around it.
macro_rules! multiversion {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $out:ty)? = $body:ident) => {
        $(#[$meta])*
        #[inline]
        $vis fn $name($($arg: $type),*) $(-> $out)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
                fn avx512($($arg: $type),*) $(-> $out)? {
                    $body::<true>($($arg),*)
                }
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $type),*) $(-> $out)? {
                    $body::<true>($($arg),*)
                }
                match $crate::kernels::isa::Isa::current() {
                    // SAFETY: `current` names a set only if this processor has it.
                    $crate::kernels::isa::Isa::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::kernels::isa::Isa::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::kernels::isa::Isa::Portable => {}
                }
            }
            $body::<{ $crate::kernels::isa::FUSED }>($($arg),*)
        }
    };
}
pub(crate) use multiversion;

/// The same for a body on explicit registers, `body::<Register>`, which is `unsafe` because the processor must have the instructions.
macro_rules! by_register {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $out:ty)? = $body:ident) => {
        $(#[$meta])*
        #[inline]
        $vis fn $name($($arg: $type),*) $(-> $out)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
                fn avx512($($arg: $type),*) $(-> $out)? {
                    // SAFETY: this function is entered only on a processor with AVX-512.
                    unsafe { $body::<$crate::kernels::lanes::Avx512>($($arg),*) }
                }
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $type),*) $(-> $out)? {
                    // SAFETY: this function is entered only on a processor with AVX2.
                    unsafe { $body::<$crate::kernels::lanes::Avx2>($($arg),*) }
                }
                match $crate::kernels::isa::Isa::current() {
                    // SAFETY: `current` names a set only if this processor has it.
                    $crate::kernels::isa::Isa::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::kernels::isa::Isa::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::kernels::isa::Isa::Portable => {}
                }
            }
            // SAFETY: every processor has what portable registers need.
            unsafe { $body::<$crate::kernels::lanes::Portable>($($arg),*) }
        }
    };
}
pub(crate) use by_register;

/// A tile of `MR` rows and `P` panels of columns, and all tiles of `P` panels, compiled for one instruction set. They need the
/// methods `tile` and `height` in the same `impl`. A tile is a separate function: if it were inlined into its callers, the compiler would
/// not keep its accumulators in registers.
macro_rules! tiles {
    ($columns:ident, $tile:ident, $register:ty $(, $features:literal)?) => {
        #[inline(never)]
        $(#[target_feature(enable = $features)])?
        unsafe fn $tile<const MR: usize, const P: usize>(&self, row: usize, at: usize) {
            // SAFETY: guaranteed by the caller.
            unsafe { self.tile::<$register, MR, P>(row, at) }
        }

        /// All rows of the `P` panels from `at` on, `MR` rows at a time.
        ///
        /// # Safety
        /// The processor has the instructions, and the panels exist.
        unsafe fn $columns<const MR: usize, const P: usize>(&self, at: usize) {
            let height = self.height();
            let mut row = 0;
            // SAFETY: guaranteed by the caller, and rows up to `height` exist.
            unsafe {
                while row + MR <= height {
                    self.$tile::<MR, P>(row, at);
                    row += MR;
                }
                if MR > 8 && row + 8 <= height {
                    self.$tile::<8, P>(row, at);
                    row += 8;
                }
                if MR > 6 && row + 6 <= height {
                    self.$tile::<6, P>(row, at);
                    row += 6;
                }
                if MR > 4 && row + 4 <= height {
                    self.$tile::<4, P>(row, at);
                    row += 4;
                }
                if MR > 2 && row + 2 <= height {
                    self.$tile::<2, P>(row, at);
                    row += 2;
                }
                while row < height {
                    self.$tile::<1, P>(row, at);
                    row += 1;
                }
            }
        }
    };
}
pub(crate) use tiles;
