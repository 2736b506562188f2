//! `judging.json`: by what a sweep's settings are judged, beside its plan. All of them are judged alike, whoever runs
//! them and whenever.
//!
//! It is a file of its own, and no part of `spec.json`, since what is run does not depend on it.

use crate::error::SweepError;
use crate::spec::{SweepDir, write_whole};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// The schema that the file states.
const JUDGING_SCHEMA: &str = "kbt.split.judging/1";

/// By what settings that change the arithmetic are judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judging {
    /// Always `kbt.split.judging/1`.
    pub schema: String,
    /// By how much their error may exceed the baseline's.
    pub factor_ratio: f64,
    /// The right outputs that were given; absent where the target makes its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<RightOutputs>,
}

/// A file with the right outputs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RightOutputs {
    /// Where it was.
    pub file: PathBuf,
    /// A digest of what it held.
    pub digest: String,
}

impl PartialEq for RightOutputs {
    /// A copy of the file is as good as the file.
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl fmt::Display for RightOutputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--reference {} (content {})", self.file.display(), self.digest)
    }
}

impl Judging {
    /// What the options say.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn new(factor: f64, reference: Option<&Path>) -> Result<Self, SweepError> {
        let right = |file: &Path| {
            let io = SweepError::io(file);
            let digest = digest(file).map_err(&io)?;
            Ok(RightOutputs { file: std::path::absolute(file).map_err(&io)?, digest })
        };
        let reference = reference.map(right).transpose()?;
        Ok(Self { schema: JUDGING_SCHEMA.to_owned(), factor_ratio: factor, reference })
    }

    /// Holds this against what the sweep in the directory was begun with. Where nothing is recorded there yet, this is.
    ///
    /// # Errors
    /// Where it was begun with something else, or the file cannot be read or written.
    pub fn hold(&self, dir: &Path) -> Result<(), SweepError> {
        let path = SweepDir(dir.to_owned()).judging();
        if path.exists() {
            return self.check(dir);
        }
        let text = serde_json::to_string_pretty(self)
            .map_err(|e| SweepError::Content { file: path.clone(), problem: e.to_string() })?;
        write_whole(&path, text.as_bytes())
    }

    /// The same for one of many processes that run points of a sweep: it records nothing.
    ///
    /// # Errors
    /// As for [`Judging::hold`].
    pub fn check(&self, dir: &Path) -> Result<(), SweepError> {
        let path = SweepDir(dir.to_owned()).judging();
        let bad = |problem: String| SweepError::Content { file: path.clone(), problem };
        if !path.exists() {
            return Ok(());
        }
        let text = fs::read_to_string(&path).map_err(SweepError::io(&path))?;
        let begun: Self = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
        if begun.schema != JUDGING_SCHEMA {
            return Err(bad(format!("schema `{}` is not known; accepted: {JUDGING_SCHEMA}", begun.schema)));
        }
        let other =
            |before: String, now: String| Err(SweepError::OtherJudging { dir: dir.to_owned(), before, now });
        // A number that went through a text may have lost its last bit.
        if (begun.factor_ratio - self.factor_ratio).abs() > 1e-12 {
            let factor = |j: &Self| format!("--factor {}", j.factor_ratio);
            return other(factor(&begun), factor(self));
        }
        if begun.reference != self.reference {
            let right =
                |j: &Self| j.reference.as_ref().map_or("no --reference".to_owned(), ToString::to_string);
            return other(right(&begun), right(self));
        }
        Ok(())
    }
}

/// 64-bit FNV-1a over a file's bytes: enough to tell one file from another; nobody forges the right outputs.
fn digest(file: &Path) -> std::io::Result<String> {
    let (mut reader, mut hash) =
        (BufReader::with_capacity(1 << 20, File::open(file)?), 0xcbf2_9ce4_8422_2325u64);
    loop {
        let bytes = reader.fill_buf()?;
        if bytes.is_empty() {
            return Ok(format!("{hash:016x}"));
        }
        hash = bytes.iter().fold(hash, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let read = bytes.len();
        reader.consume(read);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_judged_by_what_it_was_begun_with_and_by_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        let file = |name: &str, text: &str| {
            fs::write(dir.join(name), text).unwrap();
            dir.join(name)
        };
        let (right, copy, other) = (file("right", "12"), file("copy", "12"), file("other", "21"));
        let held = |factor, reference: Option<&PathBuf>| {
            Judging::new(factor, reference.map(PathBuf::as_path))
                .unwrap()
                .hold(dir)
                .map_err(|e| e.to_string())
        };
        held(1.02, Some(&right)).unwrap();
        held(1.02, Some(&copy)).unwrap();
        let refused = held(1.5, Some(&right)).unwrap_err();
        assert!(refused.contains("--factor 1.02") && refused.contains("--factor 1.5"), "{refused}");
        let refused = held(1.02, Some(&other)).unwrap_err();
        assert!(refused.contains("/right (content") && refused.contains("/other (content"), "{refused}");
        let refused = held(1.02, None).unwrap_err();
        assert!(refused.contains("/right (content") && refused.contains("no --reference"), "{refused}");
        file("judging.json", "{}");
        assert!(held(1.02, Some(&right)).unwrap_err().contains("judging.json"));
    }
}
