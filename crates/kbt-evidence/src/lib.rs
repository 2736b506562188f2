//! What is known, and how it is known.
//!
//! Everything kbt says rests on three types that live here: a [`Figure`] (a number with its unit, its spread
//! and its [`Provenance`]), a [`Verdict`] (a class of fix, its standing and the evidence), and the names of
//! the ladder's [`Step`]s and [`FixClass`]es. Nothing here measures, parses or prints.
//!
//! The rule for files: in JSON and YAML a number is a plain number in a field named with its unit, and an
//! object above it holds the `provenance` that covers it. [`audit`] (feature `audit`) checks that.

#[cfg(any(feature = "audit", test))]
pub mod audit;
mod figure;
pub mod markdown;
mod provenance;
mod verdict;

pub use figure::{Figure, Spread, Unit};
pub use provenance::{Known, Provenance, ProvenanceError};
pub use verdict::{Direction, Evidence, FixClass, Standing, Step, Verdict};
