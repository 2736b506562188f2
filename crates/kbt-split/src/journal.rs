//! `journal.jsonl`: one line a finished point, written at once and synced before the next point begins.
//!
//! A process that is killed leaves at most one torn line at the end; it is cut off before anything is appended
//! and ignored on reading. Appending takes a lock on the file, so that points run by other processes of the
//! same sweep may be added meanwhile.

use crate::error::SweepError;
use crate::possible;
use crate::record::{Confirmation, Record};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

pub use crate::entries::{Entries, Glance, Probe};

/// The schema that journals state.
pub const JOURNAL_SCHEMA: &str = "kbt.split.journal/1";

/// A line of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line {
    Header { schema: String, spec_digest: String },
    Point(Box<Record>),
    Screened(Box<Record>),
    Probe(Probe),
    Confirmation(Box<Confirmation>),
}

fn take(entries: &mut Entries, line: Line) {
    match line {
        Line::Header { .. } => {}
        Line::Point(record) => entries.add(*record),
        Line::Screened(record) => entries.add_screened(*record),
        Line::Probe(probe) => entries.trail.push(Glance::Probe(probe)),
        Line::Confirmation(c) => entries.add_confirmation(*c),
    }
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    /// How much of the file this process knows; always whole lines.
    known: u64,
    /// The points that have a line there and need no other.
    points: BTreeSet<usize>,
}

impl Journal {
    /// Opens the journal of a spec, or begins it, and reads what is there.
    ///
    /// # Errors
    /// Where it belongs to another spec, or a line other than the last cannot be read.
    pub fn open(path: &Path, spec_digest: &str) -> Result<(Self, Entries), SweepError> {
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = open.map_err(SweepError::io(path))?;
        let mut journal = Self { file, path: path.to_owned(), known: 0, points: BTreeSet::new() };
        let entries = journal.locked(|j| {
            let lines = j.unread()?;
            if lines.is_empty() {
                let header =
                    Line::Header { schema: JOURNAL_SCHEMA.to_owned(), spec_digest: spec_digest.to_owned() };
                j.write(&header)?;
                return Ok(Entries::default());
            }
            let entries = read(&lines, path, Some(spec_digest))?;
            j.points.extend(entries.records.iter().filter(|r| r.is_finished()).map(|r| r.index));
            Ok(entries)
        })?;
        Ok((journal, entries))
    }

    /// Appends a point that came to an end; it is on the disk when this returns. Where another process has finished the
    /// same point meanwhile, its line stays the last, and the answer is `false`.
    ///
    /// # Errors
    /// Where the file system refuses.
    pub fn point(&mut self, record: &Record) -> Result<bool, SweepError> {
        self.locked(|j| {
            j.catch_up()?;
            if j.points.contains(&record.index) {
                return Ok(false);
            }
            if record.is_finished() {
                j.points.insert(record.index);
            }
            j.write(&Line::Point(Box::new(record.clone()))).map(|()| true)
        })
    }

    /// Appends a screened point; it is on the disk when this returns.
    ///
    /// # Errors
    /// Where the file system refuses.
    pub fn screened(&mut self, record: &Record) -> Result<(), SweepError> {
        self.append(&Line::Screened(Box::new(record.clone())))
    }

    /// Appends a run of the baseline between screened points; it is on the disk when this returns.
    ///
    /// # Errors
    /// Where the file system refuses.
    pub fn probe(&mut self, probe: &Probe) -> Result<(), SweepError> {
        self.append(&Line::Probe(probe.clone()))
    }

    /// Appends a confirmation; it is on the disk when this returns.
    ///
    /// # Errors
    /// Where the file system refuses.
    pub fn confirmation(&mut self, confirmation: &Confirmation) -> Result<(), SweepError> {
        self.append(&Line::Confirmation(Box::new(confirmation.clone())))
    }

    fn append(&mut self, line: &Line) -> Result<(), SweepError> {
        self.locked(|j| {
            j.catch_up()?;
            j.write(line)
        })
    }

    fn locked<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, SweepError>) -> Result<T, SweepError> {
        self.file.lock().map_err(SweepError::io(&self.path))?;
        let done = work(self);
        let unlocked = self.file.unlock().map_err(SweepError::io(&self.path));
        done.and_then(|value| unlocked.map(|()| value))
    }

    /// Takes note of the points that other processes have finished meanwhile.
    fn catch_up(&mut self) -> Result<(), SweepError> {
        /// What is asked of another's line.
        #[derive(Deserialize)]
        struct Key {
            kind: String,
            index: Option<usize>,
            ending: Option<Kind>,
        }
        #[derive(Deserialize)]
        struct Kind {
            kind: String,
        }
        let lines = self.unread()?;
        // A line that cannot be read is refused, by its number, where the whole journal is.
        let keys = each_line(&lines).filter_map(|line| serde_json::from_slice::<Key>(line).ok());
        // As of a whole record.
        let is_finished = |k: &Key| {
            k.ending.as_ref().is_some_and(|ending| match ending.kind.as_str() {
                "timed" => true,
                "unmeasured" => false,
                _ => k.index != Some(0),
            })
        };
        self.points.extend(keys.filter(|k| k.kind == "point" && is_finished(k)).filter_map(|k| k.index));
        Ok(())
    }

    /// Cuts off a torn last line, leaves the position at the end, and gives the lines that this process has not seen.
    fn unread(&mut self) -> Result<Vec<u8>, SweepError> {
        let io = SweepError::io(&self.path);
        let mut bytes = Vec::new();
        self.file.seek(SeekFrom::Start(self.known)).map_err(&io)?;
        self.file.read_to_end(&mut bytes).map_err(&io)?;
        let whole = whole_lines(&bytes);
        self.known += whole as u64;
        if whole < bytes.len() {
            self.file.set_len(self.known).map_err(&io)?;
            bytes.truncate(whole);
        }
        self.file.seek(SeekFrom::Start(self.known)).map_err(&io)?;
        Ok(bytes)
    }

    fn write(&mut self, line: &Line) -> Result<(), SweepError> {
        let mut text = serde_json::to_string(line)
            .map_err(|e| SweepError::Content { file: self.path.clone(), problem: e.to_string() })?;
        text.push('\n');
        // One write, then one sync: a reader sees the whole line or a torn last one, never a hole.
        self.file.write_all(text.as_bytes()).map_err(SweepError::io(&self.path))?;
        self.known += text.len() as u64;
        self.file.sync_data().map_err(SweepError::io(&self.path))
    }
}

/// Reads a journal without opening it for writing.
///
/// # Errors
/// Where it cannot be read, or a line other than the last is damaged.
pub fn load(path: &Path) -> Result<Entries, SweepError> {
    let bytes = std::fs::read(path).map_err(SweepError::io(path))?;
    read(&bytes[..whole_lines(&bytes)], path, None)
}

/// The length of the part that ends in a newline.
fn whole_lines(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1)
}

/// The lines of a part that ends in a newline.
fn each_line(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split_inclusive(|b| *b == b'\n')
}

fn read(lines: &[u8], path: &Path, spec_digest: Option<&str>) -> Result<Entries, SweepError> {
    let mut entries = Entries::default();
    for (i, line) in each_line(lines).enumerate() {
        let bad = |problem: String| SweepError::Content {
            file: path.to_owned(),
            problem: format!("line {}: {problem}", i + 1),
        };
        let line: Line = serde_json::from_slice(line).map_err(|e| {
            let problem = e.to_string();
            // Its own lines are counted from this one on, which is always their first.
            let problem = problem.split(" at line ").next().unwrap_or_default();
            bad(format!(
                "it is damaged or no line of a journal: {problem} at column {}; accepted: what kbt wrote there (without \
                 the line its point runs again)",
                e.column()
            ))
        })?;
        match (i, &line) {
            (0, Line::Header { schema, .. }) if schema != JOURNAL_SCHEMA => {
                return Err(bad(format!("schema `{schema}` is not known; accepted: {JOURNAL_SCHEMA}")));
            }
            (0, Line::Header { spec_digest: digest, .. }) if spec_digest.is_some_and(|d| d != digest) => {
                return Err(bad("the journal belongs to another spec.json".to_owned()));
            }
            (0, Line::Header { .. }) => {}
            (0, _) => return Err(bad("a journal begins with its header".to_owned())),
            _ => {}
        }
        let possible = match &line {
            Line::Header { .. } => Ok(()),
            Line::Point(record) | Line::Screened(record) => possible::record(record),
            Line::Probe(probe) => possible::probe(probe),
            Line::Confirmation(confirmation) => possible::confirmation(confirmation),
        };
        possible.map_err(|what| {
            bad(format!("{what}; accepted: what kbt wrote there (without the line its point runs again)"))
        })?;
        take(&mut entries, line);
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Ending;
    use kbt_target::Setting;

    fn record(index: usize) -> Record {
        let setting = Setting::default().with("N", index.to_string());
        Record {
            ending: Ending::Timed,
            environment: [("N".to_owned(), index.to_string())].into(),
            elapsed_s: 0.5,
            ..Record::unmeasured(index, setting, String::new())
        }
    }

    fn indices(entries: &Entries) -> Vec<usize> {
        entries.records.iter().map(|r| r.index).collect()
    }

    #[test]
    fn a_journal_cut_at_any_byte_keeps_every_whole_line_and_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let (mut journal, _) = Journal::open(&path, "d").unwrap();
        (0..3).for_each(|i| assert!(journal.point(&record(i)).unwrap()));
        drop(journal);
        let bytes = std::fs::read(&path).unwrap();
        for cut in 0..=bytes.len() {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let whole = bytes[..cut].iter().filter(|b| **b == b'\n').count();
            let (mut journal, entries) = Journal::open(&path, "d").unwrap();
            assert_eq!(indices(&entries), (0..whole.saturating_sub(1)).collect::<Vec<_>>(), "cut at {cut}");
            journal.point(&record(7)).unwrap();
            assert_eq!(load(&path).unwrap().records.last().unwrap().index, 7, "cut at {cut}");
        }
    }

    #[test]
    fn a_point_has_one_line_however_many_processes_finish_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let mut journals = [0, 1].map(|_| Journal::open(&path, "d").unwrap().0);
        let wrote = journals.each_mut().map(|j| j.point(&Record { elapsed_s: 1.0, ..record(5) }).unwrap());
        assert_eq!(wrote, [true, false]);
        journals[1].screened(&record(6)).unwrap();
        assert!(journals[0].point(&record(6)).unwrap(), "a screened point is not a finished one");
        let entries = load(&path).unwrap();
        assert_eq!((indices(&entries), entries.screened.len()), (vec![5, 6], 1));
        // What measured nothing has lines until one is finished, and none after that.
        let nothing = Record::unmeasured(7, Setting::default(), "no baseline".to_owned());
        assert!(journals[0].point(&nothing).unwrap());
        assert!(journals[1].point(&nothing).unwrap() && journals[1].point(&record(7)).unwrap());
        assert!(!journals[0].point(&nothing).unwrap() && !journals[0].point(&record(7)).unwrap());
        assert_eq!(load(&path).unwrap().finished(7), Some(&record(7)));
        // Nor is a baseline that failed finished.
        let wrong = Ending::Wrong { statement: "o".to_owned() };
        let (failed, other) =
            (Record { ending: wrong.clone(), ..record(0) }, Record { ending: wrong, ..record(8) });
        let wrote = |j: &mut Journal, record: &Record| j.point(record).unwrap();
        assert!(wrote(&mut journals[0], &failed) && wrote(&mut journals[1], &failed));
        assert!(wrote(&mut journals[1], &record(0)) && !wrote(&mut journals[0], &failed));
        assert!(wrote(&mut journals[0], &other) && !wrote(&mut journals[1], &record(8)));
        assert_eq!(load(&path).unwrap().finished(0), Some(&record(0)));
        // Point 6 was screened and then compared: both took time.
        assert_eq!(entries.device_s(), 1.0 + 0.5 + 0.5);
    }

    #[test]
    fn damage_before_the_end_another_spec_and_no_header_are_refused_by_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let (mut journal, _) = Journal::open(&path, "d").unwrap();
        journal.point(&record(0)).unwrap();
        let error = Journal::open(&path, "other").unwrap_err().to_string();
        assert!(error.contains("line 1") && error.contains("another spec.json"), "{error}");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replacen("\"index\":0", "\"index\":?", 1)).unwrap();
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains("line 2: it is damaged") && !error.contains("line 1"), "{error}");
        // A number that no run gives is damage as well.
        std::fs::write(&path, text.replacen("\"elapsed_s\":0.5", "\"elapsed_s\":-0.5", 1)).unwrap();
        let error = Journal::open(&path, "d").unwrap_err().to_string();
        assert!(error.contains("line 2: it says that its processes took -0.5 s; accepted"), "{error}");
        // Bytes that are no text are damage of one line as well.
        let mut foreign = text.clone().into_bytes();
        foreign.extend(b"{\"kind\": \"\xff\"}\n");
        std::fs::write(&path, foreign).unwrap();
        let error = Journal::open(&path, "d").unwrap_err().to_string();
        assert!(error.contains("line 3: it is damaged") && error.contains("accepted"), "{error}");
        std::fs::write(&path, text.split_once('\n').unwrap().1).unwrap();
        assert!(load(&path).unwrap_err().to_string().contains("begins with its header"));
    }
}
