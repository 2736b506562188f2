//! A reader for PTX text.
//!
//! [`parse`] gives a [`Module`] of functions, statements and instructions with their lines and bytes. It keeps
//! what a caller needs to look at instructions in order and to edit the text in place; it has no types, no
//! symbol table and no opinion on what an instruction means.

mod ast;
mod edit;
mod parse;
mod pieces;

pub use ast::{Declaration, Function, Guard, Instruction, Module, Problem, PtxError, Statement};
pub use edit::{BudgetSite, budget_sites, with_budgets, with_register_cap};
pub use parse::parse;

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
