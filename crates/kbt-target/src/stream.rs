//! Reads what a process prints while it runs: the lines that count, and the end of the rest.

use crate::launch::Report;
use crate::lines::LineReader;
use std::io::Read;
use std::sync::mpsc;

/// How much of each output stream is kept.
const TAIL_BYTES: usize = 8 * 1024;
/// A longer line holds no time, and is not kept in memory.
const LINE_BYTES: usize = 64 * 1024;

/// One output stream: its end, and what its lines said.
#[derive(Default)]
pub(crate) struct Stream {
    kept: Vec<u8>,
    lines: LineReader,
}

impl Stream {
    /// The end of what was written.
    pub(crate) fn tail(&self) -> String {
        let start = self.kept.len().saturating_sub(TAIL_BYTES);
        String::from_utf8_lossy(&self.kept[start..]).into_owned()
    }

    /// What its lines said.
    pub(crate) fn report(&mut self) -> Report {
        std::mem::take(&mut self.lines.report)
    }

    /// The first line that was to be a time and is none.
    pub(crate) fn bad_time(&mut self) -> Option<String> {
        self.lines.bad_time.take()
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
        if self.kept.len() > 4 * TAIL_BYTES {
            self.kept.drain(..self.kept.len() - TAIL_BYTES);
        }
    }
}

/// Reads a pipe to its end on a thread of its own, and sends what it was.
pub(crate) fn read_in_background(
    mut pipe: impl Read + Send + 'static,
    lines: LineReader,
    done: &mpsc::Sender<(bool, Stream)>,
    is_stdout: bool,
) -> std::thread::JoinHandle<()> {
    let done = done.clone();
    std::thread::spawn(move || {
        let mut stream = Stream { kept: Vec::new(), lines };
        let mut buffer = [0; 16 * 1024];
        let mut line = Vec::new();
        loop {
            let read = match pipe.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            stream.keep(&buffer[..read]);
            if is_stdout {
                for part in buffer[..read].split_inclusive(|b| *b == b'\n') {
                    if line.len() < LINE_BYTES {
                        line.extend_from_slice(part);
                    }
                    if part.ends_with(b"\n") {
                        stream.lines.line(&String::from_utf8_lossy(&line));
                        line.clear();
                    }
                }
            }
        }
        if !line.is_empty() {
            stream.lines.line(&String::from_utf8_lossy(&line));
        }
        // The receiver gives up on a stream that stays open too long.
        let _ = done.send((is_stdout, stream));
    })
}
