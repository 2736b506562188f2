//! A small generator with a seed, for probes that must be the same on every machine.

/// SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is small against 2^64.
    pub(crate) const fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Uniform in [-1, 1).
    pub(crate) fn signed(&mut self) -> f32 {
        #[expect(clippy::cast_precision_loss, reason = "24 bits fit")]
        let unit = (self.next() >> 40) as f32 / (1u32 << 24) as f32;
        2.0 * unit - 1.0
    }
}
