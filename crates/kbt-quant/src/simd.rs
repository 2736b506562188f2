//! Runs a loop that was compiled for the widest vectors this machine has.
//!
//! The loops are plain Rust, written so that the compiler vectorises them; each is compiled once a level, from the
//! same source and without fused or reassociated arithmetic, so every level gives the same bits. This is the only
//! unsafe code of the crate.

/// A loop to be compiled for each level. `run` and what it calls must be inlined, or they stay at the baseline.
pub(crate) trait Kernel {
    /// Does the work.
    fn run(self);
}

/// A set of vector instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// What the compilation target has everywhere.
    Baseline,
    /// AVX2: 256 bits.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 with byte, word and doubleword instructions.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// The levels that this machine has, the widest last.
    #[cfg(test)]
    pub(crate) fn available() -> Vec<Self> {
        #[allow(unused_mut, reason = "other targets have only the baseline")]
        let mut levels = vec![Self::Baseline];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                levels.push(Self::Avx2);
            }
            if Self::has_avx512() {
                levels.push(Self::Avx512);
            }
        }
        levels
    }

    /// The widest level of this machine. Cheap: the standard library keeps what it detected.
    #[inline]
    pub(crate) fn widest() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if Self::has_avx512() {
                return Self::Avx512;
            }
            if is_x86_feature_detected!("avx2") {
                return Self::Avx2;
            }
        }
        Self::Baseline
    }

    #[cfg(target_arch = "x86_64")]
    fn has_avx512() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
    }

    /// Runs a loop at this level.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) {
        match self {
            Self::Baseline => kernel.run(),
            // SAFETY: levels come from detection on this machine; nothing else makes one.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { avx2(kernel) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { avx512(kernel) },
        }
    }
}

/// Asks for the memory of `values[index]`, if there is such an element, before it is needed. Hardware prefetchers stop
/// at the end of a page; this does not.
#[inline(always)]
pub(crate) fn prefetch(values: &[f32], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(value) = values.get(index) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program sees, and the address is of a live element.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (values, index);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2<K: Kernel>(kernel: K) {
    kernel.run();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl")]
fn avx512<K: Kernel>(kernel: K) {
    kernel.run();
}
