//! How what a target leaves is read: the ladder's own readers, which other crates have, as a trait.

use crate::artifacts::Artifact;
use kbt_evidence::Step;
use std::path::{Path, PathBuf};

/// Reads a target's files as the steps of the ladder will, so that a check says of them what a run would.
pub trait Readers {
    /// What the triage misses in the file's facts, where it misses something.
    fn facts_lack(&self) -> Option<String>;

    /// Where a step that measures has its measurement from.
    fn measurement(&self, step: Step) -> Replay;

    /// The kernel that the steps study, of the machine code that is there.
    fn code(&self, found: &[Artifact]) -> Studied;

    /// What is wrong with a file of outputs: unreadable, or without one that the target file names.
    ///
    /// # Errors
    /// That, in words.
    fn outputs(&self, path: &Path) -> Result<(), String>;

    /// What is wrong with a trace.
    ///
    /// # Errors
    /// That, in words.
    fn trace(&self, path: &Path) -> Result<(), String>;
}

/// Where a step that measures has its measurement from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replay {
    /// From runs of the target, on a live device.
    Live,
    /// From a recording, which has it.
    Recorded(String),
    /// From nowhere, and why.
    Nowhere(String),
}

/// What the steps would study of the machine code that a target leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Studied {
    /// The kernel and why it is that one.
    ///
    /// # Errors
    /// Why none is studied.
    pub kernel: Result<String, String>,
    /// Whether none is for want of the CUDA tools.
    pub no_tools: bool,
    /// Files that cannot be read, and why.
    pub broken: Vec<(PathBuf, String)>,
    /// Why nothing can be lifted from its PTX, where nothing can.
    pub algebra: Result<(), String>,
}
