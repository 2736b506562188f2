//! A scheme file that cannot be used: what is wrong, and where.

/// A scheme file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{origin}:{line}:{column}: {message}")]
pub struct SchemeError {
    /// The file.
    pub origin: String,
    /// The line, from 1; of a field that is missing, the last.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
}

impl SchemeError {
    /// What the YAML reader says, with its place before the message instead of behind it. It gives none for what is
    /// not there.
    pub(super) fn of_yaml(text: &str, origin: &str, error: &serde_yaml::Error) -> Self {
        let (line, column) = match error.location() {
            Some(at) => (at.line(), at.column()),
            None => (text.lines().count().max(1), 1),
        };
        let whole = error.to_string();
        let message = whole.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&whole);
        // Of a field given twice the reader names the mapping's place.
        let twice = message.strip_prefix("duplicate field `").and_then(|rest| rest.strip_suffix('`'));
        let second = twice.and_then(|field| lines_of(text, field).nth(1));
        let (line, column) = second.map_or((line, column), |line| (line, 1));
        Self { origin: origin.to_owned(), line, column, message: message.to_owned() }
    }

    pub(super) fn of_field(text: &str, origin: &str, field: &str, message: &str) -> Self {
        let line = lines_of(text, field).next().unwrap_or(1);
        Self { origin: origin.to_owned(), line, column: 1, message: format!("{field}: {message}") }
    }
}

/// The lines, from 1, that give a field.
fn lines_of<'a>(text: &'a str, field: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_it = move |line: &str| {
        line.trim_start().strip_prefix(field).is_some_and(|r| r.trim_start().starts_with(':'))
    };
    text.lines().enumerate().filter(move |(_, line)| is_it(line)).map(|(i, _)| i + 1)
}
