//! What those who watch a sweep are told.

use crate::record::Record;

/// What a sweep is doing, for those who watch.
#[derive(Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// The journal had these points already.
    Resumed {
        /// How many.
        finished: usize,
        /// Of how many.
        of: usize,
    },
    /// A point has finished.
    Finished {
        /// Its record.
        record: &'a Record,
        /// How many are finished.
        finished: usize,
        /// Of how many.
        of: usize,
    },
    /// A point of a large space has been run once.
    Screened {
        /// Its record, as far as one process brings it.
        record: &'a Record,
        /// How many are screened.
        screened: usize,
        /// Of how many.
        of: usize,
    },
    /// The space is narrowed: these many are compared.
    Narrowed {
        /// How many go on.
        kept: usize,
        /// Of how many.
        of: usize,
    },
    /// A point's task was lost and is submitted again.
    Requeued {
        /// The point's index.
        index: usize,
        /// How often it was submitted before.
        attempts: u32,
    },
    /// The best setting is timed against the baseline once more.
    Confirming {
        /// Its index.
        index: usize,
    },
}
