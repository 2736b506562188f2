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
    /// What the options say of a new sweep.
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

    /// What the sweep in the directory was begun with, where the options say nothing else. `None` where nothing is
    /// recorded there.
    ///
    /// # Errors
    /// Where the options say something else, the right outputs changed since, or a file cannot be read.
    pub fn begun(
        dir: &Path,
        factor: Option<f64>,
        reference: Option<&Path>,
    ) -> Result<Option<Self>, SweepError> {
        let path = SweepDir(dir.to_owned()).judging();
        let bad = |problem: String| SweepError::Content { file: path.clone(), problem };
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&path).map_err(SweepError::io(&path))?;
        let begun: Self = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
        if begun.schema != JUDGING_SCHEMA {
            return Err(bad(format!("schema `{}` is not known; accepted: {JUDGING_SCHEMA}", begun.schema)));
        }
        let other =
            |before: String, now: String| Err(SweepError::OtherJudging { dir: dir.to_owned(), before, now });
        // A number that went through a text may have lost its last bit.
        if let Some(now) = factor.filter(|now| (begun.factor_ratio - now).abs() > 1e-12) {
            return other(format!("--factor {}", begun.factor_ratio), format!("--factor {now}"));
        }
        let given = Self::new(begun.factor_ratio, reference)?.reference;
        match (&begun.reference, given) {
            (before, Some(now)) if before.as_ref() != Some(&now) => {
                let before = before.as_ref().map_or("no --reference".to_owned(), ToString::to_string);
                other(before, now.to_string())
            }
            // A copy that is given may be where the first one is gone.
            (_, Some(now)) => Ok(Some(Self { reference: Some(now), ..begun })),
            (Some(before), None) => match digest(&before.file) {
                Ok(digest) if digest == before.digest => Ok(Some(begun)),
                Ok(digest) => other(before.to_string(), format!("a file of that name with content {digest}")),
                Err(e) => Err(SweepError::io(&before.file)(e)),
            },
            (None, None) => Ok(Some(begun)),
        }
    }

    /// Records this for the processes that come later.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn record(&self, dir: &Path) -> Result<(), SweepError> {
        let path = SweepDir(dir.to_owned()).judging();
        let text = serde_json::to_string_pretty(self)
            .map_err(|e| SweepError::Content { file: path.clone(), problem: e.to_string() })?;
        write_whole(&path, text.as_bytes())
    }

    /// The file with the right outputs, where one was given.
    #[must_use]
    pub fn right(&self) -> Option<&Path> {
        self.reference.as_ref().map(|right| right.file.as_path())
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
        let begun = |factor, reference: Option<&PathBuf>| {
            Judging::begun(dir, factor, reference.map(PathBuf::as_path)).map_err(|e| e.to_string())
        };
        assert_eq!(begun(Some(1.5), Some(&other)), Ok(None));
        Judging::new(1.02, Some(&right)).unwrap().record(dir).unwrap();
        let used = |j: Result<Option<Judging>, String>| j.unwrap().unwrap().right().map(Path::to_owned);
        assert_eq!(used(begun(Some(1.02), Some(&right))), Some(right.clone()));
        assert_eq!(used(begun(None, Some(&copy))), Some(copy));
        assert_eq!(used(begun(None, None)), Some(right.clone()));
        assert!((begun(None, None).unwrap().unwrap().factor_ratio - 1.02).abs() < 1e-12);
        let refused = begun(Some(1.5), Some(&right)).unwrap_err();
        assert!(refused.contains("--factor 1.02") && refused.contains("--factor 1.5"), "{refused}");
        let refused = begun(None, Some(&other)).unwrap_err();
        assert!(refused.contains("/right (content") && refused.contains("/other (content"), "{refused}");
        file("right", "34");
        let refused = begun(None, None).unwrap_err();
        assert!(refused.contains("/right (content") && refused.contains("of that name"), "{refused}");
        fs::remove_file(&right).unwrap();
        assert!(begun(None, None).unwrap_err().contains("/right"));
        file("judging.json", "{}");
        assert!(begun(Some(1.02), None).unwrap_err().contains("judging.json"));
    }

    #[test]
    fn right_outputs_are_not_brought_into_a_sweep_that_began_without() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        fs::write(dir.join("right"), "12").unwrap();
        Judging::new(1.02, None).unwrap().record(dir).unwrap();
        assert_eq!(Judging::begun(dir, None, None).unwrap().unwrap().right(), None);
        let refused = Judging::begun(dir, None, Some(&dir.join("right"))).unwrap_err().to_string();
        assert!(refused.contains("no --reference"), "{refused}");
    }
}
