//! A program as CUDA source: one function template for a row's part in a thread, for device and host.
//!
//! The text stands alone: [`cuda`] puts the arithmetic it needs (`prelude.cuh`) before the function. Compiled for the
//! host with one lane it has the bits of this crate's own evaluation; on a device the approximate instructions differ
//! within their stated errors, and a sum over lanes has another order.

mod names;
#[cfg(test)]
mod tests;

use crate::format::Format;
use crate::lang::{Op, Program, Shape};
use names::Names;
use std::fmt::Write;

/// The arithmetic that generated functions use.
pub const PRELUDE: &str = include_str!("prelude.cuh");

/// CUDA C++ for a program: the prelude and the function `name`. `guards` go into its comment.
#[must_use]
pub fn cuda(program: &Program, name: &str, guards: &[String]) -> String {
    format!("{PRELUDE}\n{}", function(program, name, guards))
}

/// The function alone.
#[must_use]
pub fn function(program: &Program, name: &str, guards: &[String]) -> String {
    let emitter = Emitter { program, names: Names::new(program), live: program.live() };
    emitter.function(&names::identifier(name), guards)
}

struct Emitter<'a> {
    program: &'a Program,
    names: Names,
    live: Vec<bool>,
}

/// The loops around a value of a shape, its array bounds, its index.
const fn dimensions(shape: Shape) -> (&'static str, &'static str) {
    match shape {
        Shape::Elem => ("[kGroups][kEach]", "[g][e]"),
        Shape::Group | Shape::Lane => ("[kGroups]", "[g]"),
        Shape::Row | Shape::Const => ("", ""),
    }
}

/// How deep a value's loops are.
const fn depth(shape: Shape) -> usize {
    match shape {
        Shape::Elem => 2,
        Shape::Group | Shape::Lane => 1,
        Shape::Row | Shape::Const => 0,
    }
}

impl Emitter<'_> {
    fn function(&self, name: &str, guards: &[String]) -> String {
        let p = self.program;
        let mut out = String::new();
        let _ = writeln!(out, "// Generated from this program:");
        for line in p.to_string().lines() {
            let _ = writeln!(out, "//   {line}");
        }
        if !guards.is_empty() {
            let _ = writeln!(
                out,
                "// It computes the same as what it was found from only under these conditions:"
            );
            for guard in guards {
                let _ = writeln!(out, "//   {guard}");
            }
        }
        let layout = p.layout;
        let _ = writeln!(
            out,
            "// A thread has {} of each group's {} elements; {}.",
            layout.elements_a_lane(),
            layout.group,
            if layout.lanes == 1 {
                "pass kbt_step::OneLane{} as lanes".to_owned()
            } else {
                format!("{0} lanes share a row: pass kbt_step::Butterfly<{0}>{{}} as lanes", layout.lanes)
            }
        );
        for (name, node) in &p.outputs {
            if self.is_lane_part(*node) {
                let _ = writeln!(
                    out,
                    "// `{name}` is this lane's part of the sum: add over the lanes after the last tile."
                );
            }
        }
        let _ = writeln!(out, "namespace kbt_step {{");
        let _ = writeln!(out, "template <int kGroups, class Lanes>");
        let mut parameters: Vec<String> = Vec::new();
        for (i, input) in p.inputs.iter().enumerate() {
            let name = self.names.input(i);
            let bounds = dimensions(input.shape).0.replace("kEach", &layout.elements_a_lane().to_string());
            parameters.push(match bounds.as_str() {
                "" => format!("const float {name}"),
                bounds => format!("const float (&{name}){bounds}"),
            });
        }
        parameters.push("const Lanes lanes".to_owned());
        for (i, (_, node)) in p.outputs.iter().enumerate() {
            let bounds =
                dimensions(p.shapes[*node]).0.replace("kEach", &layout.elements_a_lane().to_string());
            parameters.push(format!("float (&{}){bounds}", self.names.output(i)));
        }
        let _ = writeln!(out, "KBT_STEP_FN void {name}({}) {{", parameters.join(", "));
        let _ = writeln!(out, "  constexpr int kEach = {};", layout.elements_a_lane());
        let _ = writeln!(out, "  (void)kEach;");
        let _ = writeln!(out, "  (void)lanes;");
        self.body(&mut out);
        let _ = writeln!(out, "}}");
        let _ = writeln!(out, "}}  // namespace kbt_step");
        out
    }

    /// A sum over the row of what lanes hold apart, that nothing but an output takes.
    fn is_lane_part(&self, node: usize) -> bool {
        let p = self.program;
        let n = &p.nodes[node];
        let used = p.nodes.iter().zip(&self.live).any(|(n, live)| *live && n.args.contains(&node));
        n.op == Op::RowSum
            && matches!(p.shapes[n.args[0]], Shape::Elem | Shape::Lane)
            && !used
            && p.layout.lanes > 1
    }

    fn body(&self, out: &mut String) {
        let p = self.program;
        let work: Vec<usize> = (0..p.nodes.len())
            .filter(|&i| {
                self.live[i]
                    && !matches!(p.nodes[i].op, Op::Num(_) | Op::Input(_) | Op::Out | Op::Neg | Op::Abs)
            })
            .collect();
        let mut next = 0;
        while next < work.len() {
            let first = work[next];
            if is_reduction(p.nodes[first].op) {
                self.reduction(out, first);
                next += 1;
                continue;
            }
            // Neighbours of one depth share their loops.
            let alike =
                |&&i: &&usize| depth(p.shapes[i]) == depth(p.shapes[first]) && !is_reduction(p.nodes[i].op);
            let run: Vec<usize> = work[next..].iter().take_while(alike).copied().collect();
            self.run(out, &run);
            next += run.len();
        }
        for (i, (_, node)) in p.outputs.iter().enumerate() {
            let value = self.value(*node);
            let statement = format!("{}{} = {value};", self.names.output(i), dimensions(p.shapes[*node]).1);
            loops(out, depth(p.shapes[*node]), &[statement]);
        }
    }

    fn run(&self, out: &mut String, nodes: &[usize]) {
        let p = self.program;
        let level = depth(p.shapes[nodes[0]]);
        let mut statements = Vec::new();
        for &i in nodes {
            let (bounds, index) = dimensions(p.shapes[i]);
            let name = self.names.node(i);
            if level == 0 {
                statements.push(format!("const float {name} = {};", self.operation(i)));
            } else {
                let _ = writeln!(out, "  float {name}{bounds};");
                statements.push(format!("{name}{index} = {};", self.operation(i)));
            }
        }
        loops(out, level, &statements);
    }

    /// An operand at the current indices.
    fn value(&self, i: usize) -> String {
        let p = self.program;
        match p.nodes[i].op {
            Op::Num(bits) => number(f64::from_bits(bits) as f32),
            Op::Input(k) => format!("{}{}", self.names.input(k as usize), dimensions(p.shapes[i]).1),
            Op::Neg => format!("-{}", self.value(p.nodes[i].args[0])),
            Op::Abs => format!("kbt_step::abs({})", self.value(p.nodes[i].args[0])),
            _ => format!("{}{}", self.names.node(i), dimensions(p.shapes[i]).1),
        }
    }

    fn operation(&self, i: usize) -> String {
        let node = &self.program.nodes[i];
        let args: Vec<String> = node.args.iter().map(|&a| self.value(a)).collect();
        let below7 = |a: usize| {
            self.program.assumptions.iter().any(|s| s.node == a && s.range.lo >= 0.0 && s.range.hi < 7.0)
        };
        let name = match node.op {
            Op::Cvt(Format::E2m1) if below7(node.args[0]) => "cvt_e2m1_below7",
            op => op.name(),
        };
        format!("kbt_step::{name}({})", args.join(", "))
    }

    fn reduction(&self, out: &mut String, i: usize) {
        let p = self.program;
        let node = &p.nodes[i];
        let (from, to) = (p.shapes[node.args[0]], p.shapes[i]);
        let (bounds, index) = dimensions(to);
        let name = self.names.node(i);
        let combine = if matches!(node.op, Op::GroupMax | Op::RowMax) { "max" } else { "add" };
        let operand = self.value(node.args[0]);
        let zero = if bounds.is_empty() { "0.0f" } else { "{}" };
        let _ = writeln!(out, "  float {name}{bounds} = {zero};");
        let target = format!("{name}{index}");
        let take = |first: &str| {
            format!("{target} = {first} ? {operand} : kbt_step::{combine}({target}, {operand});")
        };
        let across = match node.op {
            Op::GroupMax => Some("max"),
            Op::RowMax if from == Shape::Elem => Some("max"),
            Op::GroupSum => Some("sum"),
            // A value a group is the same in all lanes already.
            Op::RowSum if from != Shape::Group && !self.is_lane_part(i) => Some("sum"),
            _ => None,
        };
        match (from, to) {
            (Shape::Elem, Shape::Group | Shape::Lane) => loops(out, 2, &[take("e == 0")]),
            (Shape::Elem, _) => loops(out, 2, &[take("g == 0 && e == 0")]),
            _ => loops(out, 1, &[take("g == 0")]),
        }
        if let Some(how) = across {
            loops(out, depth(to), &[format!("{target} = lanes.{how}({target});")]);
        }
    }
}

const fn is_reduction(op: Op) -> bool {
    matches!(op, Op::GroupMax | Op::GroupSum | Op::LaneSum | Op::RowMax | Op::RowSum)
}

/// Statements within unrolled loops.
fn loops(out: &mut String, level: usize, statements: &[String]) {
    let heads = ["for (int g = 0; g < kGroups; ++g) {", "for (int e = 0; e < kEach; ++e) {"];
    for (k, head) in heads.iter().take(level).enumerate() {
        let indent = "  ".repeat(k + 1);
        let _ = writeln!(out, "{indent}KBT_STEP_UNROLL\n{indent}{head}");
    }
    for statement in statements {
        let _ = writeln!(out, "{}{statement}", "  ".repeat(level + 1));
    }
    for k in (0..level).rev() {
        let _ = writeln!(out, "{}}}", "  ".repeat(k + 1));
    }
}

/// A float literal with the same bits.
fn number(x: f32) -> String {
    if x.is_finite() {
        return if x.is_sign_negative() { format!("({x:?}f)") } else { format!("{x:?}f") };
    }
    format!("kbt_step::from_bits(0x{:08x}u)", x.to_bits())
}
