//! Two outputs compared: bit for bit first, then each against a reference, then judged by the class of change.
//!
//! The comparison works in chunks, so that its memory does not grow with the tensors. What lives here: pairing
//! tensors, the refusals that come before any number (other inputs, a blind reference), and the walk. The
//! counts live in [`bits`], [`errors`] and [`ties`]; the rules in [`rules`].

pub mod bits;
pub mod errors;
mod lanes;
pub mod rules;
mod specials;
pub mod ties;
mod walk;

use bits::Bits;
use errors::ErrorStats;
use kbt_evidence::Provenance;
use kbt_tensor::{Dtype, TensorError, TensorFile, TensorInfo, TensorSet};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Read;
use ties::Ties;

/// What kind of change a variant claims to be. Each has its rule; see [`rules`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeClass {
    /// The same operations in another order in time, none of them changed: every bit stays.
    #[default]
    Reorder,
    /// Other operations for the same mathematics: as accurate as the baseline.
    Algebra,
}

impl ChangeClass {
    /// Its name in options and files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reorder => "reorder",
            Self::Algebra => "algebra",
        }
    }
}

/// What to judge by.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// The class of change that the variant claims.
    pub class: ChangeClass,
    /// By how much an algebraic change's mean and relative RMS error may exceed the baseline's.
    pub factor: f64,
    /// Whether a reference that is constant is taken. A constant output hides most faults, so this is for
    /// probes whose right answer is constant.
    pub allow_constant: bool,
    /// For a tensor by its name, the relative RMS error up to which an algebraic change counts as right, whatever the
    /// baseline's is: what its user is known to need.
    pub tolerances: BTreeMap<String, f64>,
}

impl Default for Rules {
    fn default() -> Self {
        Self { class: ChangeClass::Reorder, factor: 1.02, allow_constant: false, tolerances: BTreeMap::new() }
    }
}

/// Why there is no comparison.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// A comparison would say something that is not so.
    #[error("{0}")]
    Refused(String),
    /// What was given cannot be compared.
    #[error("{0}")]
    Input(String),
    /// A file cannot be read.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// A file ended or failed while its data was read.
    #[error("data of `{name}`: {error}")]
    Read {
        /// The tensor.
        name: String,
        /// What the system said.
        error: std::io::Error,
    },
}

/// Anything that holds named tensors: a file whose data is streamed, or a set in memory. Several threads read it.
pub trait Tensors: Sync {
    /// The tensors, ordered by name.
    fn infos(&self) -> Vec<TensorInfo>;
    /// A tensor's bytes, row-major and little-endian, from byte `start` of them on.
    ///
    /// # Errors
    /// Where there is no such tensor or its data cannot be reached.
    fn stream_from(&self, name: &str, start: u64) -> Result<Box<dyn Read + Send + '_>, TensorError>;
    /// Whether `stream_from` goes to its start at once, without reading or preparing what lies before.
    fn is_seekable(&self, name: &str) -> bool;
    /// The recorded digests of the inputs it was computed from.
    fn input_digests(&self) -> BTreeMap<&str, &str>;
}

impl Tensors for TensorFile {
    fn infos(&self) -> Vec<TensorInfo> {
        self.infos().cloned().collect()
    }

    fn stream_from(&self, name: &str, start: u64) -> Result<Box<dyn Read + Send + '_>, TensorError> {
        self.stream_from(name, start)
    }

    fn is_seekable(&self, name: &str) -> bool {
        self.is_seekable(name)
    }

    fn input_digests(&self) -> BTreeMap<&str, &str> {
        self.input_digests()
    }
}

impl Tensors for TensorSet {
    fn infos(&self) -> Vec<TensorInfo> {
        let info = |t: &kbt_tensor::Tensor| TensorInfo {
            name: t.name().to_owned(),
            dtype: t.dtype(),
            shape: t.shape().to_vec(),
        };
        self.iter().map(info).collect()
    }

    fn stream_from(&self, name: &str, start: u64) -> Result<Box<dyn Read + Send + '_>, TensorError> {
        let bytes = self.require(name)?.bytes();
        let start = usize::try_from(start).unwrap_or(usize::MAX).min(bytes.len());
        Ok(Box::new(&bytes[start..]))
    }

    fn is_seekable(&self, _: &str) -> bool {
        true
    }

    fn input_digests(&self) -> BTreeMap<&str, &str> {
        self.input_digests()
    }
}

/// What is compared. `saved` is the output known to be good, `variant` the one in question.
#[derive(Clone, Copy)]
pub struct Sides<'a> {
    /// The saved output.
    pub saved: &'a dyn Tensors,
    /// The variant's output.
    pub variant: &'a dyn Tensors,
    /// The right answer, in f32 or f64.
    pub reference: Option<&'a dyn Tensors>,
    /// The rows that the reference holds, ascending, where it is a sample: row `i` of a tensor is its `i`th run of
    /// as many elements as the reference has per row. Absent where it holds all.
    pub rows: Option<&'a [usize]>,
    /// The baseline's output, whose error is the measure; the saved output where there is none.
    pub baseline: Option<&'a dyn Tensors>,
    /// Outputs of the baseline for other seeds, each with its reference: how far its largest error spreads.
    pub seeds: &'a [(&'a dyn Tensors, &'a dyn Tensors)],
}

impl<'a> Sides<'a> {
    /// A variant's output against the saved one, with nothing else.
    #[must_use]
    pub fn new(saved: &'a dyn Tensors, variant: &'a dyn Tensors) -> Self {
        Self { saved, variant, reference: None, rows: None, baseline: None, seeds: &[] }
    }
}

/// The outcome of [`compare`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// `kbt.validate/1`.
    pub schema: String,
    /// Where the outputs come from.
    pub provenance: Provenance,
    /// The class of change claimed.
    pub class: ChangeClass,
    /// The factor allowed over the baseline's error, for an algebraic change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor_ratio: Option<f64>,
    /// Tensor by tensor.
    pub tensors: Vec<TensorComparison>,
    /// What breaks the class's rule; empty where the variant passes.
    pub violations: Vec<String>,
    /// What else a reader should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One tensor's comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TensorComparison {
    /// Its name in the saved output.
    pub name: String,
    /// Its element type.
    pub dtype: Dtype,
    /// Its extents.
    pub shape: Vec<usize>,
    /// Variant against saved, bit for bit.
    pub bits: Bits,
    /// What the variant holds everywhere, where it differs from the saved output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constant_value: Option<f64>,
    /// Elements of the saved output itself that are NaN or infinite.
    #[serde(default)]
    pub saved_special_count: u64,
    /// The place of the first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_saved_special_index: Option<Vec<usize>>,
    /// The variant's error against the reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<ErrorStats>,
    /// The baseline's error against the same reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<ErrorStats>,
    /// For tensors of codes: differing codes and whether a tie explains them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ties: Option<Ties>,
    /// The baseline's largest error over its seeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seeds_max_abs_error: Option<f64>,
}

impl Comparison {
    /// Whether the variant obeys the rule of its class.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.violations.is_empty()
    }

    /// Whether every bit is the same.
    #[must_use]
    pub fn identical(&self) -> bool {
        self.passed() && self.tensors.iter().all(|t| t.bits.differing_count == 0)
    }
}

/// Compares a variant's output with the saved one and judges it by the rule of its class.
///
/// # Errors
/// Refused where the outputs were computed from different inputs, where the reference is constant and so blind,
/// or where an algebraic change has no reference; an input error where the reference or baseline has another
/// shape; else where data cannot be read.
pub fn compare(sides: &Sides<'_>, rules: &Rules, provenance: Provenance) -> Result<Comparison, CompareError> {
    let mut comparison = Comparison {
        schema: crate::SCHEMA.to_owned(),
        provenance,
        class: rules.class,
        factor_ratio: (rules.class == ChangeClass::Algebra).then_some(rules.factor),
        tensors: Vec::new(),
        violations: Vec::new(),
        notes: Vec::new(),
    };
    if !(rules.factor.is_finite() && rules.factor > 0.0) {
        let factor = rules.factor;
        return Err(CompareError::Input(format!("factor: {factor}; accepted: a finite number above 0")));
    }
    same_inputs(sides, &mut comparison.notes)?;
    let (saved, variant) = (sides.saved.infos(), sides.variant.infos());
    let nothing = match saved.as_slice() {
        [] => Some("tensor"),
        infos if infos.iter().all(|info| info.shape.contains(&0)) => Some("element"),
        _ => None,
    };
    if let Some(what) = nothing {
        return Err(CompareError::Refused(format!(
            "the saved output holds no {what}, so equality would show nothing"
        )));
    }
    let lone = saved.len() == 1 && variant.len() == 1;
    for info in &saved {
        let other = if lone { variant.first() } else { variant.iter().find(|v| v.name == info.name) };
        let Some(other) = other else {
            comparison.violations.push(format!("`{}` is missing from the variant's output", info.name));
            continue;
        };
        if (info.dtype, &info.shape) != (other.dtype, &other.shape) {
            let (a, b) = (describe(info), describe(other));
            comparison
                .violations
                .push(format!("`{}`: the saved output is {a}, the variant's {b}", info.name));
            continue;
        }
        if info.name != other.name {
            let (a, b) = (&info.name, &other.name);
            let note =
                format!("`{a}` is compared with the variant's `{b}`: each is the only tensor of its side");
            comparison.notes.push(note);
        }
        let tensor = walk::tensor(sides, info, other, rules)?;
        rules::judge(&tensor, rules, &mut comparison.violations, &mut comparison.notes)?;
        if let Some(place) = &tensor.first_saved_special_index {
            comparison.notes.push(format!(
                "`{}`: the saved output itself holds {} NaN or infinities, the first at {place:?}",
                tensor.name, tensor.saved_special_count
            ));
        }
        comparison.tensors.push(tensor);
    }
    for extra in variant.iter().filter(|v| !lone && !saved.iter().any(|s| s.name == v.name)) {
        comparison.notes.push(format!("`{}` is only in the variant's output; not compared", extra.name));
    }
    if let Some(reference) = sides.reference {
        without_reference(reference, &mut comparison)?;
    }
    Ok(comparison)
}

/// Says which tensors the reference does not hold. One that holds none of them answers nothing.
fn without_reference(reference: &dyn Tensors, comparison: &mut Comparison) -> Result<(), CompareError> {
    let quoted = |names: Vec<String>| names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
    let compared = &comparison.tensors;
    let lacking: Vec<String> =
        compared.iter().filter(|t| t.variant.is_none()).map(|t| t.name.clone()).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    if lacking.len() == compared.len() {
        let held: Vec<String> = reference.infos().into_iter().map(|i| i.name).collect();
        let held = if held.is_empty() { "no tensor".to_owned() } else { quoted(held) };
        return Err(CompareError::Refused(format!(
            "the reference holds {held} and none of what is compared, {}, so it judges nothing; accepted: the right \
             outputs under the same names",
            quoted(lacking)
        )));
    }
    comparison
        .notes
        .push(format!("not in the reference, so their errors are not known: {}", quoted(lacking)));
    Ok(())
}

fn describe(info: &TensorInfo) -> String {
    format!("{} {:?}", info.dtype, info.shape)
}

/// Outputs of different inputs differ by right: their differences would be phantoms, their errors too.
fn same_inputs(sides: &Sides<'_>, notes: &mut Vec<String>) -> Result<(), CompareError> {
    let pair = |what: &str, other: &dyn Tensors, than: &str, one: &dyn Tensors| match other_input(one, other)
    {
        Some(name) => Err(CompareError::Refused(format!(
            "the {what} was computed from another input `{name}` than the {than} (recorded SHA-256 differ), so a \
             difference would say nothing; run both on the same saved inputs"
        ))),
        None => Ok(()),
    };
    for (what, other) in [
        ("variant's output", Some(sides.variant)),
        ("reference", sides.reference),
        ("baseline", sides.baseline),
    ] {
        other.map_or(Ok(()), |other| pair(what, other, "saved output", sides.saved))?;
    }
    for (output, right) in sides.seeds {
        pair("reference for another seed", *right, "baseline's output for it", *output)?;
    }
    if sides.saved.input_digests().is_empty() || sides.variant.input_digests().is_empty() {
        let note = "no input digests on both sides: whether both saw the same inputs is not known";
        notes.push(note.to_owned());
    }
    Ok(())
}

/// The name of an input that two outputs were not both computed from, where both record their inputs' digests.
fn other_input(one: &dyn Tensors, other: &dyn Tensors) -> Option<String> {
    let (a, b) = (one.input_digests(), other.input_digests());
    if a.is_empty() || b.is_empty() {
        return None;
    }
    a.keys().chain(b.keys()).find(|name| a.get(*name) != b.get(*name)).map(|name| (*name).to_owned())
}

/// The place of a row-major index in a shape.
#[must_use]
pub fn unravel(index: usize, shape: &[usize]) -> Vec<usize> {
    let mut rest = index;
    let mut place: Vec<usize> = shape
        .iter()
        .rev()
        .map(|&extent| {
            let here = rest % extent.max(1);
            rest /= extent.max(1);
            here
        })
        .collect();
    place.reverse();
    place
}
