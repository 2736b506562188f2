//! The run's journal: one JSON line an event, appended and synced, so that a kill at any moment loses nothing
//! that was finished. A torn last line is what a kill leaves; it is dropped.

use crate::Conflict;
use kbt_evidence::Step;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What the journal tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// The run began.
    Started {
        /// ISO time.
        at: String,
    },
    /// A step's file is complete.
    StepFinished {
        /// The step.
        step: Step,
        /// Digest of the file's bytes: a file that does not match was not finished.
        digest: String,
    },
    /// A later measurement contradicted an earlier verdict.
    SentBack {
        /// What contradicts what.
        conflict: Conflict,
    },
    /// The report is written.
    Finished {
        /// ISO time.
        at: String,
    },
}

/// The journal file.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Opens or creates a journal, dropping a torn last line, and returns what it holds.
    pub fn open(path: &Path) -> io::Result<(Self, Vec<Event>)> {
        let text = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(e),
        };
        let (mut events, mut good) = (Vec::new(), 0);
        for (number, line) in text.split_inclusive(|b| *b == b'\n').enumerate() {
            match serde_json::from_slice(line) {
                Ok(event) if line.ends_with(b"\n") => events.push(event),
                // Only the end of the file may be torn; anything before it is damage that must be seen.
                _ if good + line.len() == text.len() => break,
                Ok(_) => break,
                Err(e) => {
                    let message = format!("{}:{}: not a journal line: {e}", path.display(), number + 1);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, message));
                }
            }
            good += line.len();
        }
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        if good < text.len() {
            file.set_len(good as u64)?;
        }
        Ok((Self { path: path.to_owned(), file }, events))
    }

    /// Appends an event and waits until it is on disk.
    pub fn append(&mut self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.file.sync_data()
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_last_line_is_dropped_and_damage_before_it_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.jsonl");
        let (mut journal, events) = Journal::open(&path).unwrap();
        assert!(events.is_empty());
        journal.append(&Event::Started { at: "t".into() }).unwrap();
        journal.append(&Event::Finished { at: "u".into() }).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let (mut journal, events) = Journal::open(&path).unwrap();
            let complete = whole[..cut].iter().filter(|b| **b == b'\n').count();
            assert_eq!(events.len(), complete, "cut at {cut}");
            journal.append(&Event::Started { at: "v".into() }).unwrap();
            assert_eq!(Journal::open(&path).unwrap().1.len(), complete + 1, "cut at {cut}");
        }
        std::fs::write(&path, [b"garbage\n".as_slice(), &whole].concat()).unwrap();
        assert!(Journal::open(&path).unwrap_err().to_string().contains(":1:"));
    }
}
