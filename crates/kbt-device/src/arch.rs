//! Compile targets: `sm_90a` and its kin.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A compile target, for example `sm_90a`: compute capability and feature suffix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Arch {
    /// Compute capability times ten: 90 for 9.0, 103 for 10.3.
    pub sm: u16,
    /// The suffix `a` (architecture-specific), `f` (family) or none.
    pub suffix: Option<char>,
}

/// Text that names no compile target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchError(String);

impl fmt::Display for ArchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rest) = self.0.strip_prefix("compute_") {
            return write!(
                f,
                "`{0}` is a virtual architecture, for which there is no machine code; expected a compile target, for \
                 example sm_{rest}",
                self.0
            );
        }
        write!(f, "`{}` is no compile target; expected sm_NN, sm_NNa or sm_NNf, for example sm_90a", self.0)
    }
}

impl std::error::Error for ArchError {}

impl Arch {
    /// Hopper with its own instructions (WGMMA, setmaxnreg).
    pub const SM_90A: Self = Self { sm: 90, suffix: Some('a') };
    /// Blackwell B200.
    pub const SM_100A: Self = Self { sm: 100, suffix: Some('a') };
    /// Blackwell Ultra B300.
    pub const SM_103A: Self = Self { sm: 103, suffix: Some('a') };
    /// Blackwell consumer and workstation parts.
    pub const SM_120A: Self = Self { sm: 120, suffix: Some('a') };

    /// Major compute capability.
    #[must_use]
    pub const fn major(self) -> u16 {
        self.sm / 10
    }

    /// Minor compute capability.
    #[must_use]
    pub const fn minor(self) -> u16 {
        self.sm % 10
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.sm)?;
        self.suffix.map_or(Ok(()), |s| write!(f, "{s}"))
    }
}

impl FromStr for Arch {
    type Err = ArchError;

    fn from_str(text: &str) -> Result<Self, ArchError> {
        let error = || ArchError(text.to_owned());
        let rest = text.strip_prefix("sm_").ok_or_else(error)?;
        let (digits, suffix) = match rest.chars().last() {
            Some(c @ ('a' | 'f')) => (&rest[..rest.len() - 1], Some(c)),
            _ => (rest, None),
        };
        let valid = (2..=3).contains(&digits.len())
            && digits.bytes().all(|b| b.is_ascii_digit())
            && !digits.starts_with('0');
        let sm = digits.parse().ok().filter(|_| valid).ok_or_else(error)?;
        Ok(Self { sm, suffix })
    }
}

impl TryFrom<String> for Arch {
    type Error = ArchError;

    fn try_from(text: String) -> Result<Self, ArchError> {
        text.parse()
    }
}

impl From<Arch> for String {
    fn from(arch: Arch) -> Self {
        arch.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_and_written_alike_and_others_refused() {
        for text in ["sm_75", "sm_90a", "sm_103a", "sm_100f", "sm_121"] {
            assert_eq!(text.parse::<Arch>().unwrap().to_string(), text);
        }
        for text in ["", "90a", "sm_", "sm_9", "sm_90b", "sm_9000", "sm_+90", "sm_09", "compute_90"] {
            assert!(text.parse::<Arch>().is_err(), "{text}");
        }
        let told = "compute_90a".parse::<Arch>().unwrap_err().to_string();
        assert!(told.contains("virtual architecture") && told.ends_with("for example sm_90a"), "{told}");
        assert_eq!((Arch::SM_103A.major(), Arch::SM_103A.minor()), (10, 3));
    }
}
