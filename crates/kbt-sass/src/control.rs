//! The scheduling fields of an instruction: from the encoding, or from the text that some tools print.
//!
//! Bit positions are the same from sm_70 to sm_121; Maxwell and Pascal keep three sets of the same fields, in
//! the same inner order, in a control word ahead of three instructions.

/// What ptxas tells the hardware about one instruction's issue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Control {
    /// Cycles until this warp's next instruction may issue, 0 to 15. 0 with `yield_flag` drains the warp.
    pub stall: u8,
    /// The scheduler may switch to another warp after this instruction (the bit is 0 in the encoding).
    pub yield_flag: bool,
    /// The scoreboard (0 to 5) that is released when the result is written.
    pub write_barrier: Option<u8>,
    /// The scoreboard (0 to 5) that is released when the operands have been read.
    pub read_barrier: Option<u8>,
    /// One bit for each of the six scoreboards that must be free before issue.
    pub wait_mask: u8,
    /// One bit for each operand slot that the register reuse cache keeps.
    pub reuse: u8,
}

impl Control {
    /// From a 128-bit instruction word of sm_70 or later.
    #[must_use]
    pub const fn from_wide(word: u128) -> Self {
        Self::from_bits((word >> 105) as u32, (word >> 122) as u8 & 7)
    }

    /// From the control word of sm_50 to sm_62 for the instruction in `slot` (0 to 2).
    #[must_use]
    pub const fn from_maxwell(word: u64, slot: u32) -> Self {
        let bits = (word >> (21 * slot)) as u32;
        Self::from_bits(bits, (bits >> 17) as u8 & 15)
    }

    const fn from_bits(bits: u32, reuse: u8) -> Self {
        Self {
            stall: bits as u8 & 15,
            yield_flag: bits >> 4 & 1 == 0,
            write_barrier: barrier(bits >> 5),
            read_barrier: barrier(bits >> 8),
            wait_mask: (bits >> 11) as u8 & 63,
            reuse,
        }
    }

    /// From the words that nvdisasm 12.8 prints on sm_120: `&req={0,5} &wr=0x1 ?WAIT5_END_GROUP`. `None` if a
    /// word is not one of them. The reuse bits are in the operands there and stay 0.
    #[must_use]
    pub fn from_words(words: &str) -> Option<Self> {
        // DRAIN prints nothing.
        let mut control = Self {
            stall: 0,
            yield_flag: true,
            write_barrier: None,
            read_barrier: None,
            wait_mask: 0,
            reuse: 0,
        };
        let number = |text: &str| u8::from_str_radix(text.strip_prefix("0x")?, 16).ok().filter(|n| *n < 6);
        for word in words.split_ascii_whitespace() {
            if let Some(list) = word.strip_prefix("&req={") {
                for n in list.strip_suffix('}')?.split(',').filter(|n| !n.is_empty()) {
                    control.wait_mask |= 1 << n.trim().parse::<u8>().ok().filter(|n| *n < 6)?;
                }
            } else if let Some(n) = word.strip_prefix("&wr=").or_else(|| word.strip_prefix("&wr_early=")) {
                control.write_barrier = Some(number(n)?);
            } else if let Some(n) = word.strip_prefix("&rd=") {
                control.read_barrier = Some(number(n)?);
            } else if let Some(n) = word.strip_prefix("?trans") {
                (control.stall, control.yield_flag) = (n.parse().ok().filter(|n| *n < 16)?, false);
            } else if let Some(n) = word.strip_prefix("?WAIT").and_then(|n| n.strip_suffix("_END_GROUP")) {
                (control.stall, control.yield_flag) = (n.parse().ok().filter(|n| *n < 16)?, true);
            } else {
                return None;
            }
        }
        Some(control)
    }

    /// From CuAssembler's prefix `[B0-----:R-:W0:Y:S04]`, brackets included.
    #[must_use]
    pub fn from_cuasm(text: &str) -> Option<Self> {
        let inner = text.strip_prefix("[B")?.strip_suffix(']')?;
        let mut parts = inner.split(':');
        let (waits, read, write) = (parts.next()?, parts.next()?, parts.next()?);
        let (yields, stall) = (parts.next()?, parts.next()?);
        let slot = |text: &str, name: char| match text.strip_prefix(name)? {
            "-" => Some(None),
            n => n.parse::<u8>().ok().filter(|n| *n < 6).map(Some),
        };
        let mut wait_mask = 0;
        for b in waits.chars().filter(|c| *c != '-') {
            wait_mask |= 1 << b.to_digit(6)?;
        }
        Some(Self {
            stall: stall.strip_prefix('S')?.parse().ok().filter(|n| *n < 16)?,
            yield_flag: yields == "Y",
            write_barrier: slot(write, 'W')?,
            read_barrier: slot(read, 'R')?,
            wait_mask,
            reuse: 0,
        })
    }
}

const fn barrier(bits: u32) -> Option<u8> {
    match bits as u8 & 7 {
        7 => None,
        n => Some(n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wide_word_is_decoded_field_by_field() {
        // LDC R1, c[0x0][0x28] of an sm_90a kernel.
        let ldc = Control::from_wide(0x000e_3000_0000_0800_0000_0a00_ff01_7b82);
        assert_eq!(
            (ldc.stall, ldc.yield_flag, ldc.write_barrier, ldc.read_barrier),
            (8, false, Some(0), None)
        );
        // ISETP waiting on scoreboard 1.
        let isetp = Control::from_wide(0x002f_da00_03f0_6270_0000_0001_0000_780c);
        assert_eq!(
            (isetp.stall, isetp.yield_flag, isetp.wait_mask, isetp.write_barrier),
            (13, true, 2, None)
        );
        // VIADD R2, R0.reuse, -1.
        assert_eq!(Control::from_wide(0x040f_e200_0000_0000_ffff_ffff_0002_7836).reuse, 1);
    }

    #[test]
    fn maxwell_holds_three_sets_in_one_word() {
        let set = |stall: u64| stall | 1 << 4 | 7 << 5 | 7 << 8;
        let word = set(1) | set(2) << 21 | set(15) << 42;
        for (slot, stall) in [(0, 1), (1, 2), (2, 15)] {
            let c = Control::from_maxwell(word, slot);
            assert_eq!((c.stall, c.yield_flag, c.write_barrier, c.wait_mask), (stall, false, None, 0));
        }
    }

    #[test]
    fn printed_words_are_read_and_unknown_ones_refused() {
        let c = Control::from_words("&req={0,5} &wr=0x1 &rd=0x3 ?WAIT5_END_GROUP").unwrap();
        assert_eq!((c.wait_mask, c.write_barrier, c.read_barrier, c.stall), (0b10_0001, Some(1), Some(3), 5));
        assert!(c.yield_flag);
        assert!(!Control::from_words("?trans9").unwrap().yield_flag);
        assert!(Control::from_words("?sleep").is_none());
        let c = Control::from_cuasm("[B--2---:R-:W0:Y:S04]").unwrap();
        assert_eq!((c.wait_mask, c.write_barrier, c.read_barrier, c.stall), (4, Some(0), None, 4));
    }
}
