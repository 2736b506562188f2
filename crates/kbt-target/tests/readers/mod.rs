//! Readers without files of their own formats.
#![allow(dead_code, reason = "each test takes what it needs")]

use kbt_evidence::Step;
use kbt_target::artifacts::Artifact;
use kbt_target::check::{Readers, Replay, Studied};
use std::path::Path;

/// Takes a file for what it should be unless it says `bad`.
#[derive(Default)]
pub(crate) struct Fake {
    /// What the facts lack.
    pub(crate) lack: Option<&'static str>,
    /// A step that has no device.
    pub(crate) nowhere: Option<Step>,
}

fn good(path: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    if text.contains("bad") { Err("junk".to_owned()) } else { Ok(()) }
}

impl Readers for Fake {
    fn facts_lack(&self) -> Option<String> {
        self.lack.map(str::to_owned)
    }

    fn measurement(&self, step: Step) -> Replay {
        if self.nowhere == Some(step) { Replay::Nowhere("a model".to_owned()) } else { Replay::Live }
    }

    fn code(&self, found: &[Artifact]) -> Studied {
        let broken: Vec<_> =
            found.iter().filter_map(|a| Some((a.path.clone(), good(&a.path).err()?))).collect();
        let kernel = if broken.is_empty() { Ok("k is studied".to_owned()) } else { Err("none".to_owned()) };
        Studied { kernel, no_tools: false, broken, algebra: Ok(()) }
    }

    fn outputs(&self, path: &Path) -> Result<(), String> {
        good(path)
    }

    fn trace(&self, path: &Path) -> Result<(), String> {
        good(path)
    }
}
