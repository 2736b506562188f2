//! Why a trace could not be read at all. What could be read but is odd goes to [`crate::Problems`] instead.

/// A trace that cannot be read, written or turned into cycles.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The operating system refused.
    #[error("{name}: {source}")]
    Io {
        /// The file, or what stands for it.
        name: String,
        /// The reason.
        source: std::io::Error,
    },
    /// No reader knows the bytes.
    #[error(
        "{name}: not a trace that kbt knows ({why}); name the format with --input: {}",
        crate::Input::NAMES
    )]
    Unknown {
        /// The file.
        name: String,
        /// What was looked at.
        why: String,
    },
    /// The bytes are of the format asked for, but damaged beyond use.
    #[error("{name}: offset {offset}: {field}: {found}; accepted: {accepted}")]
    Damaged {
        /// The file.
        name: String,
        /// Byte offset of the field.
        offset: u64,
        /// The field.
        field: &'static str,
        /// What is there.
        found: String,
        /// What would do.
        accepted: String,
    },
    /// JSON that is not what the format says.
    #[error(
        "{name}: {source}; accepted: JSON as Chrome traces have it, a list of events or an object with `traceEvents`, \
         or as NVIDIA's in-kernel event tracer writes it, with `launches`"
    )]
    Json {
        /// The file.
        name: String,
        /// Line, column and reason.
        source: serde_json::Error,
    },
    /// A tensor file that cannot be read; the message names the file.
    #[error(transparent)]
    Tensor(#[from] kbt_tensor::TensorError),
    /// The unit of the time stamps cannot be told.
    #[error(
        "{name}: the unit of its time stamps is ambiguous: {why}; say which with --unit us, --unit ns or --unit cycles"
    )]
    Unit {
        /// The file.
        name: String,
        /// What was seen.
        why: String,
    },
    /// Times in nanoseconds where cycles were asked for.
    #[error(
        "{name}: its clock counts nanoseconds in steps of {quantum_ns} ns; --clock-mhz F turns them into SM cycles"
    )]
    NeedsClock {
        /// The file.
        name: String,
        /// The clock's step.
        quantum_ns: u64,
    },
    /// A layout, name or option that cannot be.
    #[error("{what}: {found}; accepted: {accepted}")]
    Argument {
        /// The argument.
        what: &'static str,
        /// What was given.
        found: String,
        /// What would do.
        accepted: String,
    },
    /// The trace holds nothing to analyse.
    #[error("{name}: no records: {why}")]
    Empty {
        /// The file.
        name: String,
        /// Why that may be.
        why: String,
    },
}

impl TraceError {
    /// The message for whoever states the format in a target file: it names `trace.format` in place of the option.
    #[must_use]
    pub fn for_target(&self) -> String {
        self.to_string().replace("--input", "trace.format")
    }

    pub(crate) fn io(name: &str) -> impl FnOnce(std::io::Error) -> Self + '_ {
        move |source| Self::Io { name: name.to_owned(), source }
    }

    pub(crate) fn json(name: &str) -> impl FnOnce(serde_json::Error) -> Self + '_ {
        move |source| Self::Json { name: name.to_owned(), source }
    }
}
