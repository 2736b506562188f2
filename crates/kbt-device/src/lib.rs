//! What a device can do.
//!
//! A [`DeviceProfile`] holds rates and latencies per instruction, the ceilings of memory levels and tensor
//! cores, and what ptxas emits for an operation (the lowering table). It is data: kbt-microbench writes
//! profiles, the other steps read them, and the known ones are embedded here. Nothing here runs anything.

mod arch;
mod embedded;
mod pipe;
mod profile;
mod select;

pub use arch::{Arch, ArchError};
pub use embedded::{embedded_profile, embedded_profiles};
pub use pipe::Pipe;
pub use profile::{
    Ceiling, CeilingKind, DeviceProfile, Lowered, Lowering, MissingFigure, MixRow, ProfileError, RateRow,
    SCHEMA,
};
pub use select::{DeviceChoice, DeviceChoiceError};
