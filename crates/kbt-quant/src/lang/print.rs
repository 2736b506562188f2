//! Programs to text that reads back as the same program.

use super::{Op, Program, Range, Shape};
use std::cell::Cell;
use std::fmt;

/// A number as program text has it: powers of two as `2^k` where decimals would hide them.
pub(crate) fn number(x: f64) -> String {
    if x == 0.0 {
        return "0".to_owned();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let exponent = x.abs().log2();
    if exponent.fract() == 0.0 && exponent.exp2() == x.abs() && exponent.abs() > 12.0 {
        return format!("{}2^{exponent}", if x < 0.0 { "-" } else { "" });
    }
    // Programs compute in f32, so its digits are enough.
    let single = x as f32;
    let text = |small: bool| if small { format!("{single}") } else { format!("{single:e}") };
    if single.is_normal() { text((1e-6..1e9).contains(&x.abs())) } else { format!("{x:e}") }
}

fn bound(x: f64) -> String {
    let names = [(f64::from(f32::MAX), "max"), (f64::from(f32::MIN_POSITIVE), "min")];
    match names.iter().find(|(v, _)| *v == x.abs()) {
        Some((_, name)) => format!("{}{name}", if x < 0.0 { "-" } else { "" }),
        None => number(x),
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {}]", bound(self.lo), bound(self.hi))
    }
}

/// Nodes that the text of a message may have: values that many share say themselves as often.
const LONGEST: usize = 100;

impl Program {
    /// The text of one node for a message, in terms of names; `whole` writes the node out even if it has a name. What is
    /// longer than a message is cut short by `…`.
    #[must_use]
    pub fn expression(&self, node: usize, whole: bool) -> String {
        self.text(node, whole, 0, &Cell::new(LONGEST))
    }

    /// The same as the operand of something that binds so strongly: 1 a sum, 2 a product, 3 the right of a product or a
    /// prefix.
    pub(crate) fn operand(&self, node: usize, outer: u8) -> String {
        self.text(node, false, outer, &Cell::new(LONGEST))
    }

    /// `outer` is the binding strength around: 0 none, 1 sum, 2 product, 3 operand of a prefix. `left` is how many nodes
    /// the text may still have.
    fn text(&self, node: usize, whole: bool, outer: u8, left: &Cell<usize>) -> String {
        if !whole && let Some((name, _)) = self.names.iter().find(|(_, n)| *n == node) {
            return name.clone();
        }
        let Some(this) = self.nodes.get(node) else { return String::new() };
        match left.get() {
            0 => return "…".to_owned(),
            n => left.set(n - 1),
        }
        let (text, strength) = match (this.op, this.args.as_slice()) {
            (Op::Num(bits), _) => {
                let x = f64::from_bits(bits);
                (number(x), if x.is_sign_negative() { 1 } else { 3 })
            }
            (Op::Input(i), _) => (self.inputs[i as usize].name.clone(), 3),
            (Op::Neg, &[a]) => (format!("-{}", self.text(a, false, 3, left)), 1),
            (Op::Add, &[a, b]) => {
                let named = self.names.iter().any(|(_, n)| *n == b);
                match &self.nodes[b] {
                    n if n.op == Op::Neg && !named => (
                        format!(
                            "{} - {}",
                            self.text(a, false, 1, left),
                            self.text(n.args[0], false, 2, left)
                        ),
                        1,
                    ),
                    n => {
                        let negative = match n.op {
                            Op::Num(bits) => Some(f64::from_bits(bits)).filter(|x| *x < 0.0),
                            _ => None,
                        };
                        let right = match negative {
                            Some(x) => format!("- {}", number(-x)),
                            None => format!("+ {}", self.text(b, false, 2, left)),
                        };
                        (format!("{} {right}", self.text(a, false, 1, left)), 1)
                    }
                }
            }
            (Op::Mul | Op::Div, &[a, b]) => {
                let sign = if this.op == Op::Mul { '*' } else { '/' };
                (format!("{} {sign} {}", self.text(a, false, 2, left), self.text(b, false, 3, left)), 2)
            }
            (op, args) => {
                let args: Vec<String> = args.iter().map(|&a| self.text(a, false, 0, left)).collect();
                (format!("{}({})", op.name(), args.join(", ")), 3)
            }
        };
        if strength < outer { format!("({text})") } else { text }
    }

    /// How many live nodes and outputs use each node.
    fn uses(&self, live: &[bool]) -> Vec<usize> {
        let mut uses = vec![0; self.nodes.len()];
        for (node, _) in self.nodes.iter().zip(live).filter(|(_, live)| **live) {
            for &a in &node.args {
                uses[a] += 1;
            }
        }
        uses
    }

    /// Gives every computation that is used more than once a name, so that its text says it once.
    #[must_use]
    pub fn with_names_for_shared(mut self) -> Self {
        let live = self.live();
        let uses = self.uses(&live);
        let mut next = 0;
        for node in 0..self.nodes.len() {
            let plain = matches!(self.nodes[node].op, Op::Num(_) | Op::Input(_) | Op::Neg | Op::Abs);
            let named = self.names.iter().any(|(_, n)| *n == node);
            if live[node] && uses[node] > 1 && !plain && !named {
                let name = loop {
                    next += 1;
                    let name = format!("t{next}");
                    if self.names.iter().all(|(n, _)| *n != name) {
                        break name;
                    }
                };
                self.names.push((name, node));
            }
        }
        self
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = self.layout;
        writeln!(f, "layout group={} lanes={} row={}", layout.group, layout.lanes, layout.row)?;
        for input in &self.inputs {
            let word = match input.shape {
                Shape::Elem | Shape::Lane => "elem",
                Shape::Group => "group",
                Shape::Row => "row",
                Shape::Const => "const",
            };
            writeln!(f, "{word} {} in {}", input.name, input.range)?;
        }
        let whole = |node, whole| self.text(node, whole, 0, &Cell::new(usize::MAX));
        // Nodes come after their operands, so names in node order are defined before use.
        for (node, this) in self.nodes.iter().enumerate() {
            let names = self.names.iter().filter(|(_, n)| *n == node);
            let mut said = matches!(this.op, Op::Input(_));
            for (name, _) in names {
                let output = self.outputs.iter().any(|(o, n)| o == name && *n == node);
                if matches!(this.op, Op::Input(_)) && !output {
                    continue;
                }
                let text = whole(node, !said);
                said = true;
                writeln!(f, "{}{name} = {text}", if output { "out " } else { "" })?;
            }
            for a in self.assumptions.iter().filter(|a| a.node == node) {
                writeln!(f, "assume {} in {}", whole(node, false), a.range)?;
            }
        }
        for (name, node) in &self.outputs {
            if !self.names.iter().any(|(n, m)| n == name && m == node) {
                writeln!(f, "out {name} = {}", whole(*node, false))?;
            }
        }
        Ok(())
    }
}
