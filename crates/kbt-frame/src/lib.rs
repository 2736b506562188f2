//! The tables of a kbt run as polars frames and Parquet, and the differences between two runs.
//!
//! A run directory holds one JSON file a step. Here they become tables: [`RunTables::read`] makes them, [`export`]
//! writes them as Parquet, [`trace_rows`] does so with the records of one trace, [`compare`] joins those of two runs and holds each difference against the spread. What a
//! table is made of is data (`layout`), read by one interpreter (`extract`): files are read by the names of their
//! fields, so a field that this crate does not know is no error, and one of another type is an error that names it.
//!
//! No analysis lives here, and no step crate is linked. polars lives nowhere else.

mod compare;
mod error;
mod export;
mod extract;
mod layout;
mod rows;
mod run;
mod table;

pub use compare::{
    Change, Comparison, Counts, Difference, Noise, NotCompared, OneSided, Rule, Side, compare,
};
pub use error::FrameError;
pub use export::{Exported, Written, export};
pub use rows::trace_rows;
pub use run::{Run, RunSpec, StepFile};
pub use table::{Cell, Cells, Column, Missing, RunTables, Spread, Table, figures_frame};
