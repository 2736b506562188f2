//! Output formats, exit codes and input files, the same for every subcommand.
#![allow(dead_code, reason = "each subcommand takes what it needs")]

use serde::Serialize;
use std::borrow::Cow;
use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

/// A line on standard error. Where nobody reads that any more (`kbt … 2>&1 | head`), the command goes on.
macro_rules! tell {
    ($($line:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "{}", $crate::output::visible(&format!($($line)*)));
    }};
}
pub(crate) use tell;

/// The same without an end of line: progress that the next line overwrites.
macro_rules! show {
    ($($line:tt)*) => {{
        use std::io::Write as _;
        let _ = write!(std::io::stderr(), $($line)*);
    }};
}
pub(crate) use show;

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// The outcome's own schema.
    Json,
}

/// Why a command did not end with exit code 0, in the classes that scripts depend on.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Exit 1: a gate or comparison failed; the findings are printed already.
    Gate,
    /// Exit 2: bad usage or input.
    Input(anyhow::Error),
    /// Exit 3: refused for want of evidence.
    Refused(String),
}

impl Failure {
    /// Exit 2 with a message.
    pub(crate) fn input(message: impl Into<String>) -> Self {
        Self::Input(anyhow::anyhow!(message.into()))
    }

    /// Prints the reason to standard error and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        match self {
            Self::Gate => ExitCode::from(1),
            Self::Input(error) => {
                tell!("kbt: {}", visible(&causes(&error)));
                ExitCode::from(2)
            }
            Self::Refused(reason) => {
                tell!("kbt: refused: {}", visible(&reason));
                ExitCode::from(3)
            }
        }
    }
}

/// Text with its control characters, and those that turn the direction of writing, spelt out: names in a file are what
/// somebody wrote there, and a terminal would obey them.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let hidden = |c: char| (c.is_control() && c != '\n' && c != '\t') || turns(c);
    if !text.contains(hidden) {
        return Cow::Borrowed(text);
    }
    let spelt = |mut out: String, c: char| {
        if hidden(c) {
            out.extend(c.escape_default())
        } else {
            out.push(c)
        }
        out
    };
    Cow::Owned(text.chars().fold(String::with_capacity(text.len()), spelt))
}

/// An error and its causes, without those that the message before them holds already.
fn causes(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Input(error.into())
    }
}

/// What a subcommand returns.
pub(crate) type Outcome = Result<ExitCode, Failure>;

/// Reads a file, or standard input for `-`.
pub(crate) fn read_input(path: &Path) -> Result<Vec<u8>, Failure> {
    if path.as_os_str() == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    std::fs::read(path).map_err(|e| Failure::input(format!("{}: {e}", path.display())))
}

/// Reads a target file, one that comes with kbt, or standard input for `-`; its paths start from this folder then.
pub(crate) fn find_target(path: &Path) -> Result<kbt_target::Target, Failure> {
    if path.as_os_str() != "-" {
        return Ok(kbt_target::Target::find(path)?);
    }
    let text = String::from_utf8(read_input(path)?)
        .map_err(|e| Failure::input(format!("standard input: a target file is UTF-8 text: {e}")))?;
    Ok(kbt_target::Target::from_yaml(&text, "standard input", Path::new(""))?)
}

/// Opens a file, or standard input for `-`, to be read as it comes.
pub(crate) fn open_input(path: &Path) -> Result<Box<dyn Read>, Failure> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(std::io::stdin()));
    }
    let file = std::fs::File::open(path).map_err(|e| Failure::input(format!("{}: {e}", path.display())))?;
    Ok(Box::new(file))
}

/// Prints a value as JSON, or through `text` for people. A closed pipe is no error.
pub(crate) fn print<T: Serialize>(format: Format, value: &T, text: impl FnOnce(&T) -> String) -> Outcome {
    match format {
        Format::Text => emit(&text(value)),
        // Written as it is made: the outcome of a large listing is large.
        Format::Json => {
            let mut out = std::io::BufWriter::new(std::io::stdout().lock());
            let written = serde_json::to_writer_pretty(&mut out, value).map_err(std::io::Error::from);
            closed_is_fine(written.and_then(|()| writeln!(out)).and_then(|()| out.flush()))
        }
    }
}

/// Writes text with a closing newline to standard output. A closed pipe is no error.
pub(crate) fn emit(text: &str) -> Outcome {
    let (mut out, text) = (std::io::stdout().lock(), visible(text));
    let end = if text.ends_with('\n') { "" } else { "\n" };
    closed_is_fine(write!(out, "{text}{end}").and_then(|()| out.flush()))
}

fn closed_is_fine(written: std::io::Result<()>) -> Outcome {
    match written {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}
