//! The order of codes in the packed results of `cvt ... x2` and `x4`.
//!
//! PTX puts the first source operand in the upper half. CUDA's vector types put element 0 in the lower half, so
//! element 0 goes in the last operand.

use super::Format;

/// A format whose codes PTX does not pack.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("PTX packs {format} in pairs and fours only for e2m1, e2m3, e3m2, e4m3, e5m2 and (pairs) ue8m0")]
pub struct PackError {
    format: Format,
}

/// Bits that a code takes in a packed register: FP6 codes are padded to a byte.
fn slot(format: Format) -> Result<u32, PackError> {
    match format.layout().bits {
        4 => Ok(4),
        6 | 8 => Ok(8),
        _ => Err(PackError { format }),
    }
}

/// Two codes as `cvt.x2 d, hi, lo` leaves them: `lo` is the element of the lower index.
pub fn pack_x2(format: Format, hi: u16, lo: u16) -> Result<u16, PackError> {
    Ok(hi << slot(format)? | lo)
}

/// The codes `(hi, lo)` of a packed pair.
pub fn unpack_x2(format: Format, packed: u16) -> Result<(u16, u16), PackError> {
    let bits = slot(format)?;
    Ok((packed >> bits & ((1 << bits) - 1), packed & ((1 << bits) - 1)))
}

/// Four codes as they lie in memory, element 0 lowest. In `cvt.rs...x4 d, {a, b, e, f}` that is f, e, b, a.
pub fn pack_x4(format: Format, elements: [u16; 4]) -> Result<u32, PackError> {
    if format == Format::Ue8m0 {
        return Err(PackError { format });
    }
    let bits = slot(format)?;
    Ok(elements.iter().rev().fold(0, |packed, &code| packed << bits | u32::from(code)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_operand_is_the_upper_one() {
        assert_eq!(pack_x2(Format::E2m1, 0x7, 0x2), Ok(0x72));
        assert_eq!(pack_x2(Format::E4m3, 0x7e, 0x38), Ok(0x7e38));
        assert_eq!(pack_x2(Format::E2m3, 0x3f, 0x01), Ok(0x3f01));
        assert_eq!(unpack_x2(Format::E2m1, 0x72), Ok((7, 2)));
        assert_eq!(pack_x4(Format::E2m1, [1, 2, 3, 4]), Ok(0x4321));
        assert_eq!(pack_x4(Format::E4m3, [1, 2, 3, 4]), Ok(0x0403_0201));
        assert!(pack_x2(Format::Bf16, 0, 0).unwrap_err().to_string().contains("bf16"));
        assert!(pack_x4(Format::Ue8m0, [0; 4]).is_err());
    }
}
