//! One knob of a target: what can be varied, its values, and what they may change in the outputs.

use crate::Scalar;
use kbt_evidence::FixClass;
use serde::{Deserialize, Serialize};

/// One thing to vary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Knob {
    /// Its name: the environment variable, where `set` is `env`.
    pub name: String,
    /// One line on what it does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// How the process gets it.
    #[serde(default)]
    pub set: SetBy,
    /// What its values may change in the outputs.
    #[serde(default)]
    pub change: Change,
    /// The class of fix that a gain by it counts as; a launch shape where the file does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<FixClass>,
    /// The values to try.
    pub values: Vec<Scalar>,
    /// The value of the baseline; one of `values`.
    pub default: Scalar,
}

/// How a process gets a knob's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SetBy {
    /// As an environment variable of the knob's name.
    #[default]
    Env,
    /// In place of `{NAME}` in the command's arguments.
    Argument,
}

/// What a knob's values may change in the outputs, which decides the rule that they are checked by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The order of the same operations in time: every bit of the outputs stays.
    #[default]
    Reorder,
    /// The operations: the outputs are as accurate, and may differ in bits.
    Algebra,
}
