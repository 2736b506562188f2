//! An output file that takes its name when it is whole, and is never the file that is being read.

use crate::output::Failure;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Refuses an output that is the input: writing it would destroy the recording.
pub(super) fn apart(out: &Path, input: &Path) -> Result<(), Failure> {
    let same = |a: &Path, b: &Path| Some(a.canonicalize().ok()? == b.canonicalize().ok()?);
    if out.as_os_str() != "-" && input.as_os_str() != "-" && same(out, input) == Some(true) {
        return Err(Failure::input(format!(
            "-o {}: it is the trace that is read; accepted: another file",
            out.display()
        )));
    }
    Ok(())
}

/// A file being written.
pub(super) struct Whole {
    out: PathBuf,
    /// Where it lies until it is whole; `None` for what is no file, such as a pipe, which is written as it is.
    part: Option<PathBuf>,
    sink: BufWriter<File>,
}

impl Whole {
    /// Starts writing what will be `out`.
    pub(super) fn create(out: &Path) -> Result<Self, Failure> {
        // A link stays one: the file that it leads to is replaced.
        let target = out.canonicalize().unwrap_or_else(|_| out.to_owned());
        let failed = |e: io::Error| Failure::input(format!("{}: {e}", out.display()));
        let whole =
            |part, file| Self { out: target.clone(), part, sink: BufWriter::with_capacity(1 << 20, file) };
        if fs::metadata(&target).is_ok_and(|m| !m.is_file()) {
            return Ok(whole(None, OpenOptions::new().write(true).open(&target).map_err(failed)?));
        }
        let Some(name) = target.file_name() else {
            return Err(Failure::input(format!("-o {}: accepted: a file's name", out.display())));
        };
        let part = target.with_file_name(format!(".{}.{}.part", name.to_string_lossy(), std::process::id()));
        let file = File::create(&part).map_err(failed)?;
        Ok(whole(Some(part), file))
    }

    /// Gives it its name.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        let done = self.sink.flush().and_then(|()| match &self.part {
            Some(part) => fs::rename(part, &self.out),
            None => Ok(()),
        });
        done.map_err(|e| Failure::input(format!("{}: {e}", self.out.display())))?;
        self.part = None;
        Ok(())
    }
}

impl Write for Whole {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sink.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            // The error that kept it from being whole is the one to tell.
            let _ = fs::remove_file(part);
        }
    }
}
