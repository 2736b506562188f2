//! The value of `--device`.

use crate::{Arch, ArchError};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Which device a command is asked to use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// A live GPU, else the newest recording.
    #[default]
    Auto,
    /// A live GPU, by ordinal.
    Live(u32),
    /// A recording that is embedded, by name.
    Recorded(String),
    /// A compile target with mined and published figures only.
    Model(Arch),
    /// A profile file or a recording's folder.
    Path(PathBuf),
}

/// A `--device` value that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceChoiceError {
    /// `model:` with something that is no compile target.
    #[error("--device model: {0}")]
    Model(#[from] ArchError),
    /// Anything else.
    #[error(
        "--device `{0}` is not known; accepted: auto, live, live:N, recorded:NAME, model:sm_103a (or another \
         compile target), or a path to a profile or recording"
    )]
    Unknown(String),
}

impl FromStr for DeviceChoice {
    type Err = DeviceChoiceError;

    fn from_str(text: &str) -> Result<Self, DeviceChoiceError> {
        let unknown = || DeviceChoiceError::Unknown(text.to_owned());
        match text.split_once(':') {
            None if text == "auto" => Ok(Self::Auto),
            None if text == "live" => Ok(Self::Live(0)),
            Some(("live", n)) => n.parse().map(Self::Live).map_err(|_| unknown()),
            Some(("recorded", name)) if !name.is_empty() => Ok(Self::Recorded(name.to_owned())),
            Some(("model", arch)) => Ok(Self::Model(arch.parse()?)),
            // Anything that looks like a path is one; a bare word must exist to be taken for one.
            _ if text.contains(['/', '\\'])
                || text.ends_with(".yaml")
                || std::path::Path::new(text).exists() =>
            {
                Ok(Self::Path(PathBuf::from(text)))
            }
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Live(n) => write!(f, "live:{n}"),
            Self::Recorded(name) => write!(f, "recorded:{name}"),
            Self::Model(arch) => write!(f, "model:{arch}"),
            Self::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_read_and_nonsense_says_what_would_be_accepted() {
        for (text, choice) in [
            ("auto", DeviceChoice::Auto),
            ("live:1", DeviceChoice::Live(1)),
            ("recorded:h200-sxm", DeviceChoice::Recorded("h200-sxm".into())),
            ("model:sm_103a", DeviceChoice::Model(Arch::SM_103A)),
            ("dir/p.yaml", DeviceChoice::Path("dir/p.yaml".into())),
        ] {
            assert_eq!(text.parse::<DeviceChoice>().unwrap(), choice);
        }
        let error = "h2oo".parse::<DeviceChoice>().unwrap_err().to_string();
        assert!(error.contains("recorded:NAME"), "{error}");
        assert!("model:x".parse::<DeviceChoice>().unwrap_err().to_string().contains("sm_90a"));
    }
}
