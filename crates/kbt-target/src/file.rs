//! The target file: what a kernel of the user's own is, how it is built, run, timed, traced and varied.
//!
//! These are the structures of `kbt.target/1`; reading and checking them is in `load`. Numbers that a user
//! writes here are given by the file, so nothing in it needs a provenance of its own.

use crate::dtypes::Dtypes;
use crate::knob::Knob;
use crate::load::Source;
use crate::{Expr, Scalar, Setting};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The schema that target files state.
pub const SCHEMA: &str = "kbt.target/1";

/// One kernel as its user describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// A short name, used in file names and reports.
    pub name: String,
    /// One line on what the kernel is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// What it computes.
    #[serde(default)]
    pub facts: Facts,
    /// How it is built; absent where running it needs no building.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<Build>,
    /// How one process of it runs.
    pub run: Run,
    /// A regular expression for the name of the kernel that is studied, where the machine code has several; the
    /// one with the most instructions where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// A regular expression for the lines of standard output that hold a time, with one group named `ns`,
    /// `us`, `ms` or `s`. Without it the lines `kbt-time-us N` count, one a launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// What can be varied.
    #[serde(default)]
    pub knobs: Vec<Knob>,
    /// Expressions over the knobs that a setting must satisfy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<Expr>,
    /// The producer-consumer handoff, where the kernel has one whose split is a knob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff: Option<Handoff>,
    /// How it is traced; absent where it cannot be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
    /// The tensors that it saves in the safetensors file `KBT_OUT`; empty where it saves none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<Output>,
    /// How the right outputs of an input set are made; where absent outputs are held against the baseline's alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Reference>,
    /// The saved inputs.
    #[serde(default)]
    pub inputs: Inputs,
    /// What a process may use before it is killed.
    #[serde(default)]
    pub limits: Limits,
    /// The folder that relative paths start from: the file's own. It is known to the reader, not to the file.
    #[serde(skip)]
    pub folder: PathBuf,
    /// What knows the lines of the file, for errors that are found later.
    #[serde(skip)]
    pub source: Source,
}

/// What the kernel computes: a fact sheet for the triage, or the essentials inline.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// A fact sheet of the triage, relative to the target file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sheet: Option<PathBuf>,
    /// The family of operator, as fact sheets name it: gemm, attention, normalization, elementwise, reduction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    /// What is computed, as a formula.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub formula: Option<String>,
    /// Operations an element (elementwise, reduction, normalization).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flop_per_element: Option<Scalar>,
    /// Useful floating-point operations of one launch; overrides what the shapes give.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flop: Option<Scalar>,
    /// Bytes that device memory must move for one launch; overrides what the shapes give.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hbm_bytes: Option<Scalar>,
    /// In words: which inputs and outputs are reused, and where they stay meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reuse: Option<String>,
    /// Sizes by name: `batch: 4`, `seqlen: 4096`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shapes: BTreeMap<String, Scalar>,
    /// Element types by tensor, inputs first and in the operator's order: `q: bf16`.
    #[serde(default, skip_serializing_if = "Dtypes::is_empty")]
    pub dtypes: Dtypes,
    /// How its program times itself, in the words of fact sheets: `method: cuda_events`, `warmup_launches: 20`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub timing: BTreeMap<String, Scalar>,
}

/// How the target is built, once, before any run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Build {
    /// Program and arguments; never a shell string. `{KBT_ARCH}` in an argument is the compile target, `sm_90a`;
    /// `{KBT_COMPUTE_ARCH}` its virtual architecture, `compute_90a`; `{KBT_DUMP}` an empty folder for machine code.
    pub command: Vec<String>,
    /// Environment beside the documented minimum.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Scalar>,
    /// Machine code that the build leaves, relative to the target file; `*` may stand in the file name.
    /// What the build or a run writes into `KBT_DUMP` is found without being named here.
    #[serde(default)]
    pub artifacts: Artifacts,
}

/// Machine code by kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Artifacts {
    /// PTX files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ptx: Vec<PathBuf>,
    /// Cubins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cubin: Vec<PathBuf>,
    /// Listings of nvdisasm or cuobjdump.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sass: Vec<PathBuf>,
}

/// How one process of the target runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Program and arguments; never a shell string. The program `kbt` is the running kbt itself. `{NAME}` in
    /// an argument is the value of the knob NAME whose `set` is `argument`.
    pub command: Vec<String>,
    /// The working directory, relative to the target file; the file's own folder where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// Environment beside the documented minimum.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Scalar>,
    /// Names of variables to pass on from kbt's own environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pass_env: Vec<String>,
}

/// The producer-consumer handoff in terms of the knobs. Each part is an expression; a knob's name alone is
/// one. The producer signals first after first(chunks) of its store chunks, the consumer starts first(tiles)
/// of its K tiles then; kbt-split holds the contract between the two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handoff {
    /// Numerator of the fraction handed over at the first signal.
    pub num: Expr,
    /// Its denominator.
    pub den: Expr,
    /// Chunks in which the producer stores its tile.
    pub chunks: Expr,
    /// K tiles in which the consumer takes it.
    pub tiles: Expr,
    /// Where the handoff exists at all; always where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<Expr>,
}

/// How the target is traced: the levels it knows, with the environment that turns each on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// The format of what it writes to `KBT_TRACE_OUT`: a name that `kbt trace` reads, such as `kbt` or `fa4-fp4`.
    pub format: String,
    /// The levels, each with its environment beside `KBT_TRACE` and `KBT_TRACE_OUT`.
    pub levels: BTreeMap<TraceLevel, BTreeMap<String, Scalar>>,
}

/// How closely a run is traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceLevel {
    /// Nothing is recorded: the clean kernel.
    Off,
    /// Only the scheduling barriers that records bring; nothing is recorded.
    Barrier,
    /// One record a phase and step.
    Coarse,
    /// Records inside phases; inflates what it measures.
    Detail,
}

impl TraceLevel {
    /// The word in files and in `KBT_TRACE`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Barrier => "barrier",
            Self::Coarse => "coarse",
            Self::Detail => "detail",
        }
    }
}

/// One tensor that the target saves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// Its name in the safetensors file.
    pub name: String,
    /// The relative RMS error against the reference up to which it counts as right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
    /// Its element type, where the file cannot say it (4-bit types).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
}

/// A program that computes the right outputs from the tensors in `KBT_INPUTS`, which are there already, and writes
/// them to `KBT_OUT` under the outputs' names: the framework's own function, in f32 or f64.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Program and arguments; never a shell string.
    pub command: Vec<String>,
    /// Environment beside the documented minimum.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Scalar>,
}

/// The saved inputs. A process reads its set from the folder `KBT_INPUTS`; where that folder is empty it makes
/// the set numbered `KBT_INPUT_SET` and saves it there, so that every later run reads the same tensors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inputs {
    /// How many sets there are.
    #[serde(default = "one")]
    pub sets: u32,
    /// A folder that holds them already, one subfolder a set: `0`, `1`, …; relative to the target file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
}

const fn one() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_one(n: &u32) -> bool {
    *n == 1
}

impl Default for Inputs {
    fn default() -> Self {
        Self { sets: one(), folder: None }
    }
}

/// What one process may use before its whole group is killed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Wall-clock seconds of one run.
    #[serde(default = "Limits::run_default_s")]
    pub run_s: f64,
    /// Wall-clock seconds of the build.
    #[serde(default = "Limits::build_default_s")]
    pub build_s: f64,
    /// Resident host memory of the group; no limit where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    /// Seconds of rest before each timed process, so that it starts on a cool chip.
    #[serde(default = "Limits::cooldown_default_s")]
    pub cooldown_s: f64,
    /// Processes of one GPU that may be set up together, each waiting for its turn to be timed, the first of them a lead
    /// whose time does not count. Above 1 the program
    /// must know turns: where `KBT_TURN` is set it prints `kbt-ready` before its warm-up and waits for a line on
    /// standard input, and after its times it prints `kbt-done` and waits for the end of standard input.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub set_up_at_once: u32,
}

impl Limits {
    const fn run_default_s() -> f64 {
        120.0
    }
    const fn build_default_s() -> f64 {
        900.0
    }
    const fn cooldown_default_s() -> f64 {
        0.5
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            run_s: Self::run_default_s(),
            build_s: Self::build_default_s(),
            memory_mb: None,
            cooldown_s: Self::cooldown_default_s(),
            set_up_at_once: one(),
        }
    }
}

impl Target {
    /// Every knob at its default.
    #[must_use]
    pub fn default_setting(&self) -> Setting {
        Setting(self.knobs.iter().map(|k| (k.name.clone(), k.default.clone())).collect())
    }

    /// The knob of a name.
    #[must_use]
    pub fn knob(&self, name: &str) -> Option<&Knob> {
        self.knobs.iter().find(|k| k.name == name)
    }

    /// Which of the outputs that the file lists are not among those that a process wrote, in words.
    #[must_use]
    pub fn lost_outputs<'n>(&self, written: impl IntoIterator<Item = &'n str>) -> Option<String> {
        let written: Vec<&str> = written.into_iter().collect();
        let quoted = |names: &[&str]| names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
        let listed = self.outputs.iter().map(|o| o.name.as_str());
        let lost: Vec<&str> = listed.filter(|name| !written.contains(name)).collect();
        let there = if written.is_empty() { "no tensor".to_owned() } else { quoted(&written) };
        (!lost.is_empty()).then(|| {
            format!("`outputs:` lists {}, but the file that was written holds {there}", quoted(&lost))
        })
    }

    /// A path of the file, from where kbt runs.
    #[must_use]
    pub fn path(&self, relative: &Path) -> PathBuf {
        self.folder.join(relative)
    }

    /// The folder with the saved tensors of an input set: the file's own, or else one below `fallback`.
    #[must_use]
    pub fn input_folder(&self, set: u32, fallback: &Path) -> PathBuf {
        let base = self.inputs.folder.as_deref().map_or_else(|| fallback.to_owned(), |f| self.path(f));
        base.join(set.to_string())
    }
}
