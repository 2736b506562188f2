//! C++ names for a program's inputs, values and outputs: the program's own where C++ allows them.

use crate::lang::{Op, Program};
use std::collections::BTreeSet;

/// Words that C++17 or CUDA give a meaning, and names that the generated function itself has.
const TAKEN: &[&str] = &[
    "alignas",
    "alignof",
    "and",
    "and_eq",
    "asm",
    "auto",
    "bitand",
    "bitor",
    "bool",
    "break",
    "case",
    "catch",
    "char",
    "class",
    "compl",
    "const",
    "constexpr",
    "const_cast",
    "continue",
    "decltype",
    "default",
    "delete",
    "do",
    "double",
    "dynamic_cast",
    "else",
    "enum",
    "explicit",
    "export",
    "extern",
    "false",
    "float",
    "for",
    "friend",
    "goto",
    "if",
    "inline",
    "int",
    "long",
    "mutable",
    "namespace",
    "new",
    "noexcept",
    "not",
    "not_eq",
    "nullptr",
    "operator",
    "or",
    "or_eq",
    "private",
    "protected",
    "public",
    "register",
    "reinterpret_cast",
    "return",
    "short",
    "signed",
    "sizeof",
    "static",
    "static_assert",
    "static_cast",
    "struct",
    "switch",
    "template",
    "this",
    "thread_local",
    "throw",
    "true",
    "try",
    "typedef",
    "typeid",
    "typename",
    "union",
    "unsigned",
    "using",
    "virtual",
    "void",
    "volatile",
    "wchar_t",
    "while",
    "xor",
    "xor_eq",
    "lanes",
    "kGroups",
    "kEach",
    "Lanes",
    "g",
    "e",
    "kbt_step",
];

/// A word as a C++ name.
pub(super) fn identifier(word: &str) -> String {
    let mut name: String = word.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name.insert(0, 's');
    }
    // Two underscores, and one before a capital, belong to the compiler.
    while name.contains("__") {
        name = name.replace("__", "_");
    }
    name
}

pub(super) struct Names {
    inputs: Vec<String>,
    nodes: Vec<String>,
    outputs: Vec<String>,
}

impl Names {
    pub(super) fn new(program: &Program) -> Self {
        let mut taken: BTreeSet<String> = TAKEN.iter().map(|&w| w.to_owned()).collect();
        let mut fresh = |word: &str| {
            let plain = identifier(word);
            let mut name = plain.clone();
            let mut next = 1;
            while !taken.insert(name.clone()) {
                next += 1;
                name = format!("{plain}_{next}");
            }
            name
        };
        let inputs = program.inputs.iter().map(|i| fresh(&i.name)).collect();
        let outputs = program.outputs.iter().map(|(name, _)| fresh(name)).collect();
        let is_output = |name: &str| program.outputs.iter().any(|(o, _)| o == name);
        let nodes = (0..program.nodes.len())
            .map(|i| {
                let own = program.names.iter().find(|(name, n)| *n == i && !is_output(name));
                match (program.nodes[i].op, own) {
                    (Op::Input(_) | Op::Num(_) | Op::Neg | Op::Abs, _) => String::new(),
                    (_, Some((name, _))) => fresh(name),
                    (op, None) => fresh(&format!("{}{i}", op.name())),
                }
            })
            .collect();
        Self { inputs, nodes, outputs }
    }

    pub(super) fn input(&self, i: usize) -> &str {
        &self.inputs[i]
    }

    pub(super) fn node(&self, i: usize) -> &str {
        &self.nodes[i]
    }

    pub(super) fn output(&self, i: usize) -> &str {
        &self.outputs[i]
    }
}
