//! The fact sheet: what a kernel computes, how it is built, launched and timed. The file format
//! `kbt.facts/1`. Reading it, with lines in errors, is in `sheet`; deriving work from it, in `work`.

use crate::dtype::Dtype;
use crate::lines::LineIndex;
use crate::outcome::ExperimentResult;
use kbt_device::Ceiling;
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};

/// The schema that fact sheets state; a sheet without one is read as this.
pub const SCHEMA: &str = "kbt.facts/1";

fn schema() -> String {
    SCHEMA.to_owned()
}

macro_rules! section {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident : $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_doc])* #[serde(default, skip_serializing_if = "Option::is_none")] pub $field: Option<$type>,)*
            /// How this section's numbers are known; where absent they are given, by the sheet's own line.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub provenance: Option<Provenance>,
        }
    };
}

mod run;

pub use run::{DeviceFacts, Implementation, Profiler, Role, Timing, TimingMethod};

/// Everything known of one kernel. Any part may be absent: what the triage needs and does not find it names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FactSheet {
    /// Always [`SCHEMA`].
    #[serde(default = "schema")]
    pub schema: String,
    /// What to call the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What the user asks, in words. A sheet may hold nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// What is computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<Operator>,
    /// On what sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Shape>,
    /// In which number formats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtypes: Option<Dtypes>,
    /// What is read, written and reused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataflow: Option<Dataflow>,
    /// How it is built and launched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub implementation: Option<Implementation>,
    /// How long it takes, and how that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
    /// Where it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceFacts>,
    /// Ceilings measured on that same device, each with its provenance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ceilings: Vec<Ceiling>,
    /// What Nsight Compute counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profiler: Option<Profiler>,
    /// Outcomes of experiments already made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<ExperimentResult>,
    /// The file it came from, for messages and provenance.
    #[serde(skip)]
    pub origin: String,
    /// Which line holds which key.
    #[serde(skip)]
    pub(crate) lines: LineIndex,
}

impl Default for FactSheet {
    fn default() -> Self {
        Self {
            schema: schema(),
            name: None,
            question: None,
            operator: None,
            shape: None,
            dtypes: None,
            dataflow: None,
            implementation: None,
            timing: None,
            device: None,
            ceilings: Vec::new(),
            profiler: None,
            results: Vec::new(),
            origin: String::new(),
            lines: LineIndex::default(),
        }
    }
}

/// The families of operators whose work can be derived from a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperatorKind {
    /// C = A·B: `m`, `n`, `k`, `batch`.
    Gemm,
    /// softmax(Q·K^T)·V: `batch`, `heads`, `kv_heads`, `seqlen`, `seqlen_kv`, `head_dim`, `causal`.
    Attention,
    /// A norm or softmax over `columns` of `rows` rows.
    #[serde(alias = "normalisation")]
    Normalization,
    /// A map over `elements`.
    Elementwise,
    /// `elements` to `output_elements`.
    Reduction,
    /// `batch`, `channels`, `height`, `width`, `filters`, `kernel_height`, `kernel_width`.
    Convolution,
    /// Work given as `flop` and `hbm_bytes`.
    #[default]
    Counts,
}

impl OperatorKind {
    /// Its name in files and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gemm => "gemm",
            Self::Attention => "attention",
            Self::Normalization => "normalization",
            Self::Elementwise => "elementwise",
            Self::Reduction => "reduction",
            Self::Convolution => "convolution",
            Self::Counts => "counts",
        }
    }
}

section! {
    /// What is computed, as a formula or as counts.
    Operator {
        /// The family.
        kind: OperatorKind,
        /// The formula, for the reader.
        formula: String,
        /// Useful floating-point operations of one call; overrides what the shape gives.
        flop: f64,
        /// Bytes that device memory must move for one call; overrides what the shape gives.
        hbm_bytes: f64,
        /// Of those, bytes read.
        hbm_read_bytes: f64,
        /// Operations an element (elementwise, reduction, normalisation).
        flop_per_element: f64,
        /// Tensors of the operator's size read (elementwise, normalisation); 1 where absent.
        inputs: f64,
        /// Tensors of the operator's size written; 1 where absent.
        outputs: f64,
    }
}

section! {
    /// Sizes; which ones are needed depends on the operator.
    Shape {
        /// Independent problems (gemm, attention) or images (convolution).
        batch: u64,
        /// Rows of C.
        m: u64,
        /// Columns of C.
        n: u64,
        /// Length of the inner product.
        k: u64,
        /// Query heads.
        heads: u64,
        /// Key and value heads; equal to `heads` where absent.
        kv_heads: u64,
        /// Query length.
        seqlen: u64,
        /// Key and value length; equal to `seqlen` where absent.
        seqlen_kv: u64,
        /// Elements a head.
        head_dim: u64,
        /// Whether the upper triangle is skipped.
        #[serde(deserialize_with = "crate::words::flag")]
        causal: bool,
        /// Rows of a normalisation.
        rows: u64,
        /// Columns of a normalisation.
        columns: u64,
        /// Elements of an elementwise map or a reduction's input.
        elements: u64,
        /// Elements a reduction leaves; 1 where absent.
        output_elements: u64,
        /// Input channels.
        channels: u64,
        /// Input height.
        height: u64,
        /// Input width.
        width: u64,
        /// Output channels.
        filters: u64,
        /// Filter height.
        kernel_height: u64,
        /// Filter width.
        kernel_width: u64,
        /// Stride; 1 where absent.
        stride: u64,
        /// Padding; 0 where absent.
        padding: u64,
        /// Groups; 1 where absent.
        groups: u64,
    }
}

section! {
    /// Number formats.
    Dtypes {
        /// One for all inputs, or one an input in the operator's order (A, B; Q, K, V).
        #[serde(deserialize_with = "crate::words::one_or_more")]
        inputs: Vec<Dtype>,
        /// What sums are kept in.
        accumulate: Dtype,
        /// What is written.
        output: Dtype,
        /// What the matrix instruction multiplies; the wider format of its two operands where absent.
        mma: Dtype,
        /// Attention: what the P·V product multiplies, where it differs.
        mma_pv: Dtype,
        /// The narrowest input format that the caller's accuracy allows, where known.
        sufficient: Dtype,
    }
}

/// How memory is addressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessPattern {
    /// Known in advance and contiguous along a warp.
    Regular,
    /// Known in advance, with a stride along a warp.
    Strided,
    /// Rows at data-dependent places, each address known before any row is loaded (an embedding, a gather): as many
    /// loads can be in flight as of a regular pattern, in whole sectors where a row is one.
    Gather,
    /// Data-dependent addresses: hashes, trees.
    Irregular,
    /// Each address depends on the last load.
    DependentChain,
}

section! {
    /// What is read, written and reused, and at which level.
    Dataflow {
        /// In words: which inputs and outputs are reused, and where they stay meanwhile.
        reuse: String,
        /// Bytes of intermediates that this call writes to device memory and reads again.
        intermediate_hbm_bytes: f64,
        /// Bytes that L2 must deliver for one call.
        l2_bytes: f64,
        /// Bytes that shared memory must deliver for one call, all SMs together.
        shared_bytes: f64,
        /// How memory is addressed.
        access: AccessPattern,
        /// Loads in the longest chain of dependent ones (for `dependent_chain`).
        chain_length: f64,
        /// Latency of one link of that chain.
        chain_latency_ns: f64,
        /// Atomic updates of the most updated address in one call, as they reach L2: of a warp that adds up first, one.
        atomics_of_one_address: f64,
    }
}
