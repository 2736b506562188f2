//! The tests of kbt-frame, in one binary: each that links polars is over a hundred megabytes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod compare;
mod damage;
mod export;
mod fixture;
mod rows;
mod shape;
