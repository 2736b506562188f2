//! Runs a loop compiled for the widest vectors that this machine has.
//!
//! The loops are plain Rust, written so that they become vector code, and each is compiled once a level from the same
//! source. None fuses or reorders arithmetic, and lanes are counted by the source and not by the width: every level
//! gives the same bits. This is the only unsafe code of the crate.

/// A loop to be compiled for each level. What `run` calls must be inlined, or it stays at the baseline.
pub(crate) trait Kernel {
    /// Does the work.
    fn run(self);
}

/// A set of vector instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Level {
    /// What the compilation target has everywhere.
    #[default]
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
    pub(crate) fn available() -> impl DoubleEndedIterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let levels = [
            Some(Self::Baseline),
            is_x86_feature_detected!("avx2").then_some(Self::Avx2),
            (is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl"))
            .then_some(Self::Avx512),
        ];
        #[cfg(not(target_arch = "x86_64"))]
        let levels = [Some(Self::Baseline)];
        levels.into_iter().flatten()
    }

    /// The widest level of this machine.
    pub(crate) fn widest() -> Self {
        Self::available().next_back().unwrap_or_default()
    }

    /// Runs a loop at this level.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) {
        match self {
            Self::Baseline => kernel.run(),
            // SAFETY: this level comes from detection on this machine alone.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { avx2(kernel) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { avx512(kernel) },
        }
    }
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
