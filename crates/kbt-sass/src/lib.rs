//! Step 3: reads machine-code listings and says what scheduling headroom they have.
//!
//! [`parse`] turns a listing of any known form into [`Function`]s of [`Instruction`]s; [`measure`] counts over
//! them; [`cycles`] predicts what a loop takes; [`diff`], [`gate`] and [`lint`] judge; [`outcome::ScheduleOutcome`] is what the ladder's step returns.
//! Nothing here runs a tool: who has a cubin or PTX disassembles it first.

mod bound;
mod control;
pub mod cycles;
mod diff;
mod diff_listings;
mod gate;
mod graph;
mod instruction;
mod lint;
mod listing;
pub mod metrics;
pub mod outcome;
mod pipe;
mod ptx;
mod read;
pub mod regs;

pub use bound::{Bound, bound, bound_of_function, bound_of_loop, rate_of};
pub use control::Control;
pub use diff::{AlignedLine, CAVEAT, DiffKind, FunctionDiff, diff};
pub use diff_listings::{DiffOutcome, diff_listings};
pub use gate::{GateFinding, GateReport, GateRule, Tolerance, gate};
pub use graph::{Block, Graph, Interval, Loop, LoopKind, Role, Ways};
pub use instruction::{Guard, Instruction, Live, Operands, SourceLine};
pub use lint::{Finding, LintOutcome, LintRule, PtxLint, UnknownRule, lint, lint_ptx, lint_remark};
pub use listing::{Function, Listing, Problem, ProblemKind, Resources};
pub use metrics::{Analysis, MeasureOptions, Unit, measure};
pub use pipe::{Confidence, PipeClass, pipe_of, pipe_of_opcode};
pub use ptx::{Cover, Handoff, Share, Uncounted};
pub use read::{InputKind, ParseError, cubin_assembler, input_kind, parse, parse_each, parse_stream};

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
