//! What is counted over a function or a part of it. The result types are in `outcome`.

mod facts;
mod interleave;
mod local;
mod measure;
mod parallel;
mod section;
mod select;
mod unit;

pub(crate) use local::access_bytes;
pub use local::{LocalAccess, local_accesses};
pub use measure::{Measure, MeasureOptions, measure, provenance};
pub use parallel::measure_parallel;
pub use section::Analysis;
pub use select::{LineRange, Selection, SelectionError, address_range, line_range, pattern};
pub use unit::{Unit, UnitError};
