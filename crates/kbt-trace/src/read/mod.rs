//! Opens a trace of any known format. Each format's own rules live in its file; kbt's own is [`crate::kbt`].

mod chrome;
mod fa4;
mod flashinfer;
mod iket;
mod json;
mod named;
mod proton;
mod slots;
mod tensor;

use crate::kbt::KbtSource;
use crate::{MemoryTrace, Source, TraceError};
use serde::{Deserialize, Serialize};
use std::io::Read;

/// The formats that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Input {
    /// By content.
    #[default]
    Auto,
    /// `.kbttrace`.
    Kbt,
    /// The int32 buffer of flash-attention-fp4's profiler, raw little-endian or in a tensor file.
    Fa4Fp4,
    /// FlashInfer's profiler buffer, raw little-endian or in a tensor file.
    Flashinfer,
    /// The JSON of NVIDIA's in-kernel event tracer, documented or shipped shape.
    Iket,
    /// The circular buffer of Triton Proton's instrumentation backend.
    Proton,
    /// Chrome trace events.
    Chrome,
}

impl Input {
    /// Every format, in the order of the option's help.
    pub const ALL: [Self; 7] =
        [Self::Auto, Self::Kbt, Self::Fa4Fp4, Self::Flashinfer, Self::Iket, Self::Proton, Self::Chrome];

    /// The names, for messages.
    pub(crate) const NAMES: &'static str = "kbt, fa4-fp4, flashinfer, iket, proton, chrome";

    /// The format of this name, as a target file states it; `fa4` stands for `fa4-fp4` there.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let name = if name == "fa4" { Self::Fa4Fp4.as_str() } else { name };
        Self::ALL.into_iter().find(|input| input.as_str() == name)
    }

    /// The word used in options and files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Kbt => "kbt",
            Self::Fa4Fp4 => "fa4-fp4",
            Self::Flashinfer => "flashinfer",
            Self::Iket => "iket",
            Self::Proton => "proton",
            Self::Chrome => "chrome",
        }
    }
}

/// What a Chrome file's time stamps are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Microseconds, as the format says.
    Microseconds,
    /// Nanoseconds in the microsecond field.
    Nanoseconds,
    /// SM cycles in the microsecond field.
    Cycles,
}

/// Key under a Chrome file's `otherData`: SM cycles in one unit of its time stamps, written by kbt.
pub(crate) const CHROME_CYCLES: &str = "kbt_cycles_per_ts";
/// Key under a Chrome file's `otherData`: the SM clock in MHz, written by kbt.
pub(crate) const CHROME_MHZ: &str = "kbt_sm_clock_mhz";
/// Key under a Chrome file's `otherData`: whose time stamps count from one zero, as [`crate::TimeLine`] names it, where
/// it is not the whole file's. Written by kbt.
pub(crate) const CHROME_LINE: &str = "kbt_time_line";
/// Key under a Chrome file's `otherData`: the level it was recorded at. Written by kbt.
pub(crate) const CHROME_LEVEL: &str = "kbt_level";
/// Key under a Chrome file's `otherData`: by role, the name of the wait or the event at whose begin its step starts, as
/// `{"wait": NAME}` or `{"event": NAME}`. Written by kbt.
pub(crate) const CHROME_STEPS: &str = "kbt_steps";
/// Key of a Chrome file, after its events: what [damages](crate::ProblemKind::damages) the trace. Written by kbt.
pub(crate) const CHROME_PROBLEMS: &str = "kbt_problems";

/// How to read a trace whose file does not say everything.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReadOptions {
    /// The format.
    pub input: Input,
    /// SM clock in MHz; it overrides the file's.
    pub clock_mhz: Option<f64>,
    /// The unit of a Chrome file's time stamps.
    pub unit: Option<Unit>,
    /// The tensor that is the buffer, in a tensor file that holds several.
    pub tensor: Option<String>,
    /// The launch to read, from 0, of an IKET file that holds several; by default all.
    pub launch: Option<usize>,
}

/// What some editors put ahead of text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Opens a trace. `name` stands for the file in messages.
///
/// kbt's own format is read as a stream; the others are read whole.
///
/// # Errors
/// If the format is not known, the bytes are damaged beyond use, or the unit of the time stamps is ambiguous.
pub fn open(
    mut input: Box<dyn Read + Send>,
    name: &str,
    options: &ReadOptions,
) -> Result<Box<dyn Source>, TraceError> {
    if let Some(mhz) = options.clock_mhz.filter(|mhz| !(1.0..=100_000.0).contains(mhz)) {
        return Err(TraceError::Argument {
            what: "--clock-mhz",
            found: mhz.to_string(),
            accepted: "1 to 100000 MHz".into(),
        });
    }
    let mut head = Vec::new();
    (&mut input).take(8).read_to_end(&mut head).map_err(TraceError::io(name))?;
    let kbt = head == crate::bindings::KBT_TRACE_FILE_MAGIC[..8];
    if kbt && !matches!(options.input, Input::Kbt | Input::Auto) {
        return Err(TraceError::Argument {
            what: "--input",
            found: format!("{}, but {name} is a trace of kbt's own", options.input.as_str()),
            accepted: "kbt, or auto".into(),
        });
    }
    if options.input == Input::Kbt || (options.input == Input::Auto && kbt) {
        for (what, given) in [
            ("--unit", options.unit.is_some()),
            ("--tensor", options.tensor.is_some()),
            ("--launch", options.launch.is_some()),
        ] {
            if given {
                return Err(TraceError::Argument {
                    what,
                    found: format!(
                        "given, but {name} is a trace of kbt's own, which states its clock and layout"
                    ),
                    accepted: "none with it".into(),
                });
            }
        }
        let mut source = KbtSource::open(std::io::Cursor::new(head).chain(input), name)?;
        source.set_clock(options.clock_mhz);
        return Ok(Box::new(source));
    }
    let mut bytes = head;
    input.read_to_end(&mut bytes).map_err(TraceError::io(name))?;
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    if tensor::is_tensor_file(&bytes)
        && matches!(options.input, Input::Auto | Input::Fa4Fp4 | Input::Flashinfer)
    {
        bytes = tensor::buffer(bytes, name, options.tensor.as_deref())?;
    } else if let Some(tensor) = &options.tensor {
        return Err(TraceError::Argument {
            what: "--tensor",
            found: format!("{tensor}, but {name} is no tensor file"),
            accepted: "it with safetensors, npy, npz and .pt files of flash-attention-fp4 or FlashInfer only"
                .into(),
        });
    }
    let trace = match options.input {
        Input::Auto => detect(&bytes, name, options)?,
        format => read(format, &bytes, name, options)?,
    };
    if options.launch.is_some() && trace.info.format != Input::Iket {
        return Err(TraceError::Argument {
            what: "--launch",
            found: format!(
                "given, but {name} is read as {}, which tells no launches apart",
                trace.info.format.as_str()
            ),
            accepted: "it with IKET traces only".into(),
        });
    }
    if options.unit.is_some() && trace.info.format != Input::Chrome {
        return Err(TraceError::Argument {
            what: "--unit",
            found: format!(
                "given, but {name} is read as {}, whose unit is known",
                trace.info.format.as_str()
            ),
            accepted: "it with Chrome traces only".into(),
        });
    }
    Ok(Box::new(trace))
}

fn read(format: Input, bytes: &[u8], name: &str, options: &ReadOptions) -> Result<MemoryTrace, TraceError> {
    match format {
        Input::Fa4Fp4 => fa4::read(bytes, name, options),
        Input::Flashinfer => flashinfer::read(bytes, name, options),
        Input::Iket => iket::read(bytes, name, options),
        Input::Proton => proton::read(bytes, name, options),
        Input::Chrome => chrome::read(bytes, name, options),
        Input::Auto | Input::Kbt => {
            Err(TraceError::Unknown { name: name.to_owned(), why: "kbt's magic is missing".into() })
        }
    }
}

/// Whether the file is the beginning of kbt's own magic and nothing more.
fn kbt_magic_is_cut(bytes: &[u8]) -> bool {
    !bytes.is_empty() && crate::bindings::KBT_TRACE_FILE_MAGIC[..8].starts_with(bytes)
}

/// Tries the formats that the first bytes allow.
fn detect(bytes: &[u8], name: &str, options: &ReadOptions) -> Result<MemoryTrace, TraceError> {
    let first = bytes.iter().copied().find(|c| !c.is_ascii_whitespace());
    if matches!(first, Some(b'{' | b'[')) {
        if iket::is_iket(bytes) {
            return read(Input::Iket, bytes, name, options);
        }
        if first == Some(b'{') && !json::mentions(bytes, "\"traceEvents\"") {
            let why = "JSON with neither `traceEvents`, as Chrome traces have, nor `launches`, as NVIDIA's in-kernel \
                       tracer writes";
            return Err(TraceError::Unknown { name: name.to_owned(), why: why.into() });
        }
        return read(Input::Chrome, bytes, name, options);
    }
    if kbt_magic_is_cut(bytes) {
        return Err(TraceError::Damaged {
            name: name.to_owned(),
            offset: bytes.len() as u64,
            field: "magic",
            found: "the file ends inside it".into(),
            accepted: "KBTTRACE and a header".into(),
        });
    }
    if proton::is_proton(bytes) {
        return read(Input::Proton, bytes, name, options);
    }
    let unknown = |why: String| TraceError::Unknown { name: name.to_owned(), why };
    let Some(shape) = slots::Shape::of(bytes) else {
        return Err(unknown(slots::Shape::refusal(bytes)));
    };
    // The two buffers differ in their clock alone: a cycle counter, or a timer that steps by 32 ns.
    match (slots::looks_quantised(bytes, &shape), fa4::names_its_groups(&shape)) {
        (Some(true), _) => read(Input::Flashinfer, bytes, name, options),
        (Some(false), true) => read(Input::Fa4Fp4, bytes, name, options),
        (Some(false), false) => Err(unknown(format!(
            "a profiler buffer of {} blocks and {} groups by its shape; flash-attention-fp4 has 4 groups, and \
             FlashInfer's stamps are multiples of 32",
            shape.blocks, shape.groups
        ))),
        (None, _) => Err(unknown("a profiler buffer with no record in it".into())),
    }
}
