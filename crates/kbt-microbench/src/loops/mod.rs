//! Loops to test a static model of machine code against: generated ones of many kinds, and bodies of real kernels.
//!
//! Each loop stands in a kernel of its own between two clock reads, with inputs by thread from memory, so that
//! nothing folds. What is in it is whatever ptxas made of it: the machine code is the subject, not the PTX. A run
//! times each loop at every number of warps that its registers allow; the time of a trip is the difference of two
//! trip counts, so what stands around the loop cancels.
//!
//! Families say what a loop is made of; those that are held out were written after the model's constants were frozen,
//! and timed once.

mod corpus;
mod families;
mod kernel;
mod measured;
mod prepare;
mod score;

pub use corpus::corpus;
pub use families::{FAMILIES, Family, Recipe};
pub use kernel::{LoopSource, module};
pub use measured::{MeasuredLoop, MeasuredLoops};
pub use prepare::{CompiledLoops, LoopModule, PreparedLoop, prepare};
pub use score::{Errors, FamilyScore, LoopScore, score};

/// Trips of the two launches whose difference is timed.
pub const TRIPS: [u32; 2] = [64, 320];

/// Warps a scheduler can hold of one block.
pub const MAX_WARPS_PER_SCHEDULER: u32 = 8;

/// Start values that a kernel may read: one word of eight bytes for each thread and index.
pub const INPUTS: usize = 256;

/// Numbers of warps a scheduler at which a kernel with so many threads a block can be timed.
pub fn warp_counts(max_threads: u32) -> impl Iterator<Item = u32> {
    1..=(max_threads / 128).clamp(1, MAX_WARPS_PER_SCHEDULER)
}
