//! One knob of a target: what can be varied, its values, and what they may change in the outputs.

use crate::Scalar;
use kbt_evidence::FixClass;
use serde::{Deserialize, Serialize};

/// One thing to vary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawKnob")]
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

/// A knob as written; turned into a [`Knob`] only if it holds together, so that errors carry its line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawKnob {
    name: String,
    #[serde(default)]
    about: String,
    #[serde(default)]
    set: SetBy,
    #[serde(default)]
    change: Change,
    fix: Option<FixClass>,
    values: Vec<Scalar>,
    default: Scalar,
}

impl TryFrom<RawKnob> for Knob {
    type Error = String;

    fn try_from(raw: RawKnob) -> Result<Self, String> {
        let RawKnob { name, about, set, change, fix, values, default } = raw;
        let mut chars = name.chars();
        let starts = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        if !starts || !chars.all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(format!("knob `{name}`: a name has letters, digits and `_`, and no leading digit"));
        }
        if values.is_empty() {
            return Err(format!("knob `{name}` has no values"));
        }
        if let Some(twice) = values.iter().enumerate().find(|(i, v)| values[..*i].contains(v)) {
            return Err(format!("knob `{name}`: the value {} is listed twice", twice.1));
        }
        if !values.contains(&default) {
            let list = values.iter().map(Scalar::as_str).collect::<Vec<_>>().join(", ");
            return Err(format!("knob `{name}`: the default {default} is none of its values: {list}"));
        }
        if name.starts_with("KBT_") && crate::environment::RESERVED.contains(&name.as_str()) {
            return Err(format!("knob `{name}`: kbt sets this variable itself; choose another name"));
        }
        Ok(Self { name, about, set, change, fix, values, default })
    }
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
