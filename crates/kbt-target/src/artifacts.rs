//! The machine code that a build or a run leaves: found, and told apart from what lay there before.
//!
//! Finding is by file name; reading it is kbt-ptx's and kbt-sass's work.

use crate::{Artifacts, Target};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A kind of machine code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArtifactKind {
    /// PTX text.
    Ptx,
    /// A cubin.
    Cubin,
    /// A listing of nvdisasm or cuobjdump.
    Sass,
}

impl ArtifactKind {
    const ALL: [Self; 3] = [Self::Ptx, Self::Cubin, Self::Sass];

    /// The kind's name, which is also its file extension.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ptx => "ptx",
            Self::Cubin => "cubin",
            Self::Sass => "sass",
        }
    }

    fn named(self, artifacts: &Artifacts) -> &[PathBuf] {
        match self {
            Self::Ptx => &artifacts.ptx,
            Self::Cubin => &artifacts.cubin,
            Self::Sass => &artifacts.sass,
        }
    }
}

impl fmt::Display for ArtifactKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A file of machine code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// What it is.
    pub kind: ArtifactKind,
    /// Where it is.
    pub path: PathBuf,
    /// Why it may not be this build's, where there is a doubt: it lay there before with the same content and date
    /// (a build that is up to date leaves such a file, and so does one that wrote elsewhere), or it was copied into
    /// the dump and is older than the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale: Option<String>,
}

/// The dates and contents of a target's artifacts at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    taken: SystemTime,
    files: BTreeMap<PathBuf, (Option<SystemTime>, u64)>,
}

/// Clocks of file systems tick coarser than the system's.
const TICK: Duration = Duration::from_secs(2);

impl Snapshot {
    /// What lies there now: take one before the build.
    #[must_use]
    pub fn of(target: &Target) -> Self {
        let files = named_files(target).into_iter().map(|(_, path)| (path.clone(), mark(&path))).collect();
        Self { taken: SystemTime::now(), files }
    }

    /// Why a named file may be another build's.
    fn unchanged(&self, path: &Path) -> Option<String> {
        let now = mark(path);
        (self.files.get(path) == Some(&now)).then(|| {
            let date = now.0.map_or_else(|| "unknown".to_owned(), crate::date::day_of);
            format!("the build did not write it: same content and date ({date}) as before")
        })
    }

    /// Why a dumped file may be another process's.
    fn older(&self, path: &Path) -> Option<String> {
        let modified = path.metadata().and_then(|m| m.modified()).ok()?;
        (modified + TICK < self.taken).then(|| {
            format!("it is of {}, older than the process that left it", crate::date::day_of(modified))
        })
    }
}

/// The artifacts that the file names and those in `dumps`, the folders that processes were given as `KBT_DUMP`.
#[must_use]
pub fn find(target: &Target, dumps: &[&Path], before: &Snapshot) -> Vec<Artifact> {
    let mut found: Vec<Artifact> = named_files(target)
        .into_iter()
        .map(|(kind, path)| Artifact { stale: before.unchanged(&path), kind, path })
        .collect();
    for kind in ArtifactKind::ALL {
        let dumped = dumps.iter().flat_map(|d| matching(&d.join(format!("*.{kind}"))));
        found.extend(dumped.map(|path| Artifact { kind, stale: before.older(&path), path }));
    }
    found
}

/// Why a file is not of its kind, judged by its first bytes; `None` where it may be.
#[must_use]
pub fn not_of_its_kind(artifact: &Artifact) -> Option<String> {
    let bytes = match std::fs::read(&artifact.path) {
        Ok(bytes) => bytes,
        Err(e) => return Some(e.to_string()),
    };
    let holds = |word: &[u8]| bytes.windows(word.len()).any(|w| w == word);
    match artifact.kind {
        ArtifactKind::Ptx if !(holds(b".version") && holds(b".target")) => {
            Some("it is no PTX: it has no `.version` and `.target`".to_owned())
        }
        ArtifactKind::Cubin if !bytes.starts_with(b"\x7fELF") => {
            Some("it is no cubin: no ELF file".to_owned())
        }
        _ => None,
    }
}

/// What the file names but is not there.
#[must_use]
pub fn missing(target: &Target) -> Vec<PathBuf> {
    let Some(build) = &target.build else { return Vec::new() };
    let named = ArtifactKind::ALL.into_iter().flat_map(|k| k.named(&build.artifacts));
    named.filter(|p| matching(&target.path(p)).is_empty()).cloned().collect()
}

fn named_files(target: &Target) -> Vec<(ArtifactKind, PathBuf)> {
    let Some(build) = &target.build else { return Vec::new() };
    let of_kind = |kind: ArtifactKind| {
        let paths = kind.named(&build.artifacts).iter();
        paths.flat_map(|p| matching(&target.path(p))).map(move |p| (kind, p)).collect::<Vec<_>>()
    };
    ArtifactKind::ALL.into_iter().flat_map(of_kind).collect()
}

/// The date and a digest of a file; only equality matters, within one process.
fn mark(path: &Path) -> (Option<SystemTime>, u64) {
    let modified = path.metadata().and_then(|m| m.modified()).ok();
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(&std::fs::read(path).unwrap_or_default());
    (modified, hasher.finish())
}

/// The files that a path names, sorted; `*` in the file name stands for any run of characters.
fn matching(path: &Path) -> Vec<PathBuf> {
    let Some(name) = path.file_name().map(|n| n.to_string_lossy()) else { return Vec::new() };
    if !name.contains('*') {
        return if path.is_file() { vec![path.to_owned()] } else { Vec::new() };
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|e| fits(&name, &e.file_name().to_string_lossy()) && e.path().is_file())
        .map(|e| e.path())
        .collect();
    found.sort();
    found
}

fn fits(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    name.strip_prefix(head).is_some_and(|tail| {
        // `*` may swallow any part of the tail; file names are short.
        tail.char_indices().map(|(i, _)| &tail[i..]).chain([""]).any(|t| fits(rest, t))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_run_of_characters() {
        for (pattern, name, expect) in [
            ("*.ptx", "a.b.ptx", true),
            ("k*.cubin", "k.sm_90a.cubin", true),
            ("*.ptx", "a.ptx1", false),
            ("k.ptx", "k.ptx", true),
            ("*k*", "xkx", true),
        ] {
            assert_eq!(fits(pattern, name), expect, "{pattern} {name}");
        }
    }

    #[test]
    fn what_the_build_did_not_write_is_stale() {
        let folder = tempfile::tempdir().unwrap();
        let text = "schema: kbt.target/1\nname: k\nrun: {command: [x]}\nbuild:\n  command: [x]\n  artifacts: {ptx: ['*.ptx'], cubin: [none.cubin]}\n";
        let target = Target::from_yaml(text, "k.yaml", folder.path()).unwrap();
        std::fs::write(folder.path().join("old.ptx"), "old").unwrap();
        let before = Snapshot::of(&target);
        std::fs::write(folder.path().join("new.ptx"), "new").unwrap();
        let dump = folder.path().join("dump");
        std::fs::create_dir(&dump).unwrap();
        std::fs::write(dump.join("x.cubin"), "c").unwrap();
        let old = std::fs::File::create(dump.join("y.cubin")).unwrap();
        old.set_modified(SystemTime::now() - Duration::from_secs(7 * 86_400)).unwrap();
        let found: Vec<(String, bool)> = find(&target, &[&dump], &before)
            .into_iter()
            .map(|a| (a.path.file_name().unwrap().to_string_lossy().into_owned(), a.stale.is_some()))
            .collect();
        let expect = [("new.ptx", false), ("old.ptx", true), ("x.cubin", false), ("y.cubin", true)];
        assert_eq!(found, expect.map(|(name, stale)| (name.to_owned(), stale)));
        // The same bytes written again are this build's.
        std::fs::File::options()
            .append(true)
            .open(folder.path().join("old.ptx"))
            .unwrap()
            .set_modified(SystemTime::now() + Duration::from_secs(5))
            .unwrap();
        assert!(find(&target, &[], &before).iter().all(|a| a.stale.is_none()));
        assert_eq!(missing(&target), [PathBuf::from("none.cubin")]);
    }
}
