//! The tests of kbt-frame, in one binary: each that links polars is tens of megabytes.

mod compare;
mod damage;
mod export;
mod fixture;
mod shape;
