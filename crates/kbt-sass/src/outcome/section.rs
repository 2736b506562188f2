//! The metrics of a listing: `kbt.sass/1`, kind `metrics`.

use crate::{Confidence, LoopKind, Problem};
use kbt_device::Arch;
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The metrics of every function of a listing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricsOutcome {
    /// Always [`SCHEMA`](super::SCHEMA).
    pub schema: String,
    /// Covers all counts: mined, with the tools' versions where they are known.
    pub provenance: Provenance,
    /// The weakest confidence among the pipes of the instructions counted.
    pub confidence: Confidence,
    /// The functions in the order of the listing.
    pub functions: Vec<Section>,
    /// Mnemonics that no row of the pipe table covers, with how often they occur.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_mnemonics: Vec<UnknownMnemonic>,
    /// What was not understood.
    pub problems: Vec<Problem>,
}

/// A mnemonic that no pipe is known for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnknownMnemonic {
    /// The base mnemonic.
    pub mnemonic: String,
    /// How often it occurs.
    pub instructions: u64,
}

/// What a section is a section of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SectionKind {
    /// A whole function, without its padding.
    Function,
    /// What some of the warps run alone.
    Region,
    /// A natural loop, inner loops included.
    Loop,
    /// A basic block.
    Block,
    /// An address or source-line range that was asked for.
    Range,
}

/// Counts over a function or a part of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// The function's name as it stands in the listing; for parts a name that stays the same between
    /// compilers: `setmaxnreg:232`, `role:0`, `loop:0`, `loop:0.1` (the second loop inside the first).
    pub name: String,
    /// What it is.
    pub kind: SectionKind,
    /// The compile target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arch: Option<Arch>,
    /// The addresses it covers: `0x160..0x640`, end excluded.
    pub ranges: Vec<String>,
    /// For loops.
    #[serde(rename = "loop", default, skip_serializing_if = "Option::is_none")]
    pub of_loop: Option<LoopFacts>,
    /// The register budget that the region sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_max_registers: Option<u32>,
    /// How many instructions.
    pub instructions: u64,
    /// Instructions by base mnemonic.
    pub mnemonics: BTreeMap<String, u64>,
    /// Instructions by pipe; `none` takes an issue slot only, `unknown` is not known.
    pub pipes: BTreeMap<String, u64>,
    /// Instructions by how well their pipe is known.
    pub pipe_confidence: BTreeMap<Confidence, u64>,
    /// How two units alternate.
    pub interleave: Interleave,
    /// Issue slots, stalls and waits.
    pub issue: Issue,
    /// Spills, local arrays and the stack.
    pub local_memory: LocalMemory,
    /// Registers.
    pub registers: Registers,
    /// Tensor, copy and barrier operations.
    pub operations: Operations,
    /// The role regions of a function.
    #[serde(default)]
    pub regions: Vec<Section>,
    /// The loops of a function or region.
    #[serde(default)]
    pub loops: Vec<Section>,
    /// The basic blocks of a function, where asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<Section>,
}

/// What a loop is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoopFacts {
    /// The user's, a wait, or the compiler's replay.
    pub kind: LoopKind,
    /// Loops around it.
    pub depth: u32,
}

/// Runs and transitions of two units in program order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interleave {
    /// The first unit.
    pub a: String,
    /// The second unit.
    pub b: String,
    /// Instructions of the first.
    pub a_instructions: u64,
    /// Instructions of the second.
    pub b_instructions: u64,
    /// Changes from one unit to the other.
    pub transitions: u64,
    /// The most changes that any order of the same instructions has.
    pub possible: u64,
    /// Instructions in the longest run.
    pub longest_run: u64,
    /// Mean instructions a run.
    pub mean_run: f64,
    /// The runs in program order.
    pub runs: Vec<Run>,
}

impl Interleave {
    /// The run list as people write it: `M5 F1 M5`, each unit by its first letter, or by its name where the
    /// letters are the same.
    #[must_use]
    pub fn run_list(&self) -> String {
        let short = |name: &str| name.chars().take(1).collect::<String>();
        let clash = short(&self.a) == short(&self.b);
        let word = |run: &Run| if clash { format!("{}:", run.of) } else { short(&run.of) };
        let runs: Vec<_> = self.runs.iter().map(|r| format!("{}{}", word(r), r.instructions)).collect();
        runs.join(" ")
    }
}

/// Instructions of one unit in a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The unit.
    pub of: String,
    /// How many.
    pub instructions: u64,
}

/// Issue slots and waits. Absent where the listing has no hex columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issue {
    /// Issue slots: one an instruction, whether it executes or not.
    pub issue_slots: u64,
    /// Instructions that never execute (`@!PT`) and only fill time.
    pub fillers: u64,
    /// Sum of the stall counts: the cycles that one warp alone needs to issue them, memory and scoreboards
    /// aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_cycles: Option<u64>,
    /// Instructions that wait for a scoreboard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scoreboard_waits: Option<u64>,
    /// Instructions after which the scheduler may switch warps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub yields: Option<u64>,
}

/// Local memory, told apart. Bytes are what one thread moves if every instruction runs once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalMemory {
    /// Bytes of spilled registers loaded back.
    pub spill_load_bytes: u64,
    /// Bytes of registers spilled.
    pub spill_store_bytes: u64,
    /// The same, to and from shared memory.
    pub shared_spill_load_bytes: u64,
    /// The same, to and from shared memory.
    pub shared_spill_store_bytes: u64,
    /// Whether a local array (or another object on the stack that is no spill) is accessed.
    pub array: bool,
    /// Bytes loaded from local arrays.
    pub array_load_bytes: u64,
    /// Bytes stored to local arrays.
    pub array_store_bytes: u64,
    /// The function's stack frame.
    pub stack_bytes: u64,
    /// How spills were recognised: `annotation`, `slots` (of last-use reloads) or `none` found.
    pub spills_by: String,
}

impl LocalMemory {
    /// Whether registers are spilled, wherever to.
    #[must_use]
    pub const fn spills(&self) -> bool {
        self.spill_load_bytes
            + self.spill_store_bytes
            + self.shared_spill_load_bytes
            + self.shared_spill_store_bytes
            > 0
    }
}

/// General registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registers {
    /// One more than the highest register named: a lower bound, since wide operations name their first only.
    pub named: u32,
    /// The most that are live at once, where the listing has counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<u32>,
    /// What the function is allocated, where the listing states it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocated: Option<u32>,
}

/// Operations that other units carry out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operations {
    /// Matrix instructions, Blackwell's tensor-core commands included.
    pub tensor: u64,
    /// Loads and stores of tensor memory.
    pub tmem: u64,
    /// Bulk copies.
    pub tma: u64,
    /// mbarrier operations.
    pub mbarrier: u64,
    /// CTA and cluster barriers.
    pub barrier: u64,
    /// Fences between memory proxies and views.
    pub proxy_fence: u64,
    /// Waits for warpgroup matrix instructions.
    pub warpgroup_wait: u64,
}
