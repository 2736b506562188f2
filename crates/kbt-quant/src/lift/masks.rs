//! Registers that the code itself masks: set to -inf or a number near the least f32, by a constant, through copies and choices.
//! What is computed from such a value in another block is for the ranges of that block's inputs to allow for.

use super::ranges::WIDE;
use super::scan::registers;
use super::value::{float_literal, integer_literal};
use kbt_ptx::{Function, Instruction};
use std::collections::HashMap;

/// A constant that masks a register.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Mask {
    /// The constant, below all that is taken for granted of scores.
    pub(super) value: f32,
    /// The line of the PTX that has it.
    pub(super) line: u32,
}

impl Mask {
    /// The lower of two, the first in the PTX where they are alike.
    pub(super) fn lower(self, other: Self) -> Self {
        let key = |m: Self| (m.value, m.line);
        if key(other) < key(self) { other } else { self }
    }
}

/// The masks of a function's registers, wherever they are read.
pub(super) struct Masks<'a> {
    of: HashMap<&'a str, Mask>,
}

impl<'a> Masks<'a> {
    pub(super) fn new(f: &'a Function) -> Self {
        let mut copies: HashMap<&str, Vec<&str>> = HashMap::new();
        let mut set: Vec<(&str, Mask)> = Vec::new();
        for i in f.instructions() {
            let Some(to) = i.operands.first().and_then(|o| registers(o).next().filter(|r| r == o)) else {
                continue;
            };
            for from in sources(i) {
                match mask(from) {
                    Some(value) => set.push((to, Mask { value, line: i.line })),
                    None => copies.entry(from).or_default().push(to),
                }
            }
        }
        set.sort_by(|(_, a), (_, b)| a.value.total_cmp(&b.value).then(a.line.cmp(&b.line)));
        let mut of: HashMap<&str, Mask> = HashMap::new();
        for (to, mask) in set {
            let mut open = vec![to];
            while let Some(name) = open.pop() {
                if of.contains_key(name) {
                    continue;
                }
                of.insert(name, mask);
                open.extend(copies.get(name).into_iter().flatten());
            }
        }
        Self { of }
    }

    pub(super) fn of(&self, name: &str) -> Option<Mask> {
        self.of.get(name).copied()
    }
}

/// What the result may be, whatever the predicate.
fn sources(i: &Instruction) -> impl Iterator<Item = &str> {
    let many = match i.base() {
        "mov" => 1,
        "selp" => 2,
        _ => 0,
    };
    i.operands.iter().skip(1).take(many).map(String::as_str)
}

fn mask(operand: &str) -> Option<f32> {
    let integer = || integer_literal(operand).map(|x| x as u32);
    let value = f32::from_bits(float_literal(operand).or_else(integer)?);
    (f64::from(value) < -WIDE).then_some(value)
}
