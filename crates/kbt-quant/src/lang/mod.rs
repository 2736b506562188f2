//! The expression language: what a program is. Text lives in `parse` and `print`, values in `eval`.
//!
//! A program says what one thread block row computes: per element, per group of elements (that share a scale),
//! per row, or once. It is a DAG: a name stands for one computation, however often it is used.

mod builtin;
pub mod eval;
mod parse;
mod print;
mod range;
mod token;

pub use builtin::{BUILTIN, builtin};
pub use parse::ParseError;
pub use range::Range;

use crate::format::Format;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How often a value exists. Ordered: an operation's result has the greatest shape among its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Once for the kernel.
    Const,
    /// Once a row.
    Row,
    /// Once a group of elements.
    Group,
    /// Once a group and lane: a sum over the lane's own elements of the group, not yet added over lanes.
    Lane,
    /// Once an element.
    Elem,
}

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// A constant, as the bits of an f64.
    Num(u64),
    /// An input, by its index in [`Program::inputs`].
    Input(u32),
    /// -a. A modifier of the operand in machine code: costs nothing.
    Neg,
    /// |a|. A modifier of the operand of most instructions in machine code: costs nothing there.
    Abs,
    /// 2^a.
    Exp2,
    /// Base-2 logarithm.
    Log2,
    /// 1/a, approximate.
    Rcp,
    /// The square root, approximate.
    Sqrt,
    /// The square root, rounded as IEEE 754 says.
    SqrtRn,
    /// 1 / the square root, approximate.
    Rsqrt,
    /// The hyperbolic tangent, approximate.
    Tanh,
    /// a + b.
    Add,
    /// a * b.
    Mul,
    /// a / b, rounded as IEEE 754 says.
    Div,
    /// a * b + c with one rounding.
    Fma,
    /// The greater.
    Max,
    /// 1 where a < b, else 0; also where one is NaN.
    Lt,
    /// 1 where a <= b, else 0; also where one is NaN.
    Le,
    /// 1 where a = b, else 0; also where one is NaN.
    Eq,
    /// b where a is not 0, else c.
    Select,
    /// The greatest of a group's elements.
    GroupMax,
    /// The sum of a group's elements, over all lanes.
    GroupSum,
    /// The sum of one lane's elements of a group.
    LaneSum,
    /// The greatest of a row.
    RowMax,
    /// The sum of a row; added over lanes once, after the last tile.
    RowSum,
    /// Converted to a format (`rn.satfinite`, or `rz` for ue8m0) and read back.
    Cvt(Format),
    /// All outputs together; only at the root of a search.
    Out,
}

impl Op {
    /// Whether it takes all elements of a group or row together.
    #[must_use]
    pub const fn is_reduction(self) -> bool {
        matches!(self, Self::GroupMax | Self::GroupSum | Self::LaneSum | Self::RowMax | Self::RowSum)
    }

    /// Whether it is a modifier of an operand and no instruction of its own.
    #[must_use]
    pub const fn is_modifier(self) -> bool {
        matches!(self, Self::Neg | Self::Abs)
    }

    /// The name in program text; inputs and constants have none.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Num(_) => "number",
            Self::Input(_) => "input",
            Self::Neg => "neg",
            Self::Abs => "abs",
            Self::Exp2 => "exp2",
            Self::Log2 => "log2",
            Self::Rcp => "rcp",
            Self::Sqrt => "sqrt",
            Self::SqrtRn => "sqrt_rn",
            Self::Rsqrt => "rsqrt",
            Self::Tanh => "tanh",
            Self::Add => "add",
            Self::Mul => "mul",
            Self::Div => "div",
            Self::Fma => "fma",
            Self::Max => "max",
            Self::Lt => "lt",
            Self::Le => "le",
            Self::Eq => "eq",
            Self::Select => "select",
            Self::GroupMax => "group_max",
            Self::GroupSum => "group_sum",
            Self::LaneSum => "lane_sum",
            Self::RowMax => "row_max",
            Self::RowSum => "row_sum",
            Self::Cvt(Format::E2m1) => "cvt_e2m1",
            Self::Cvt(Format::E2m3) => "cvt_e2m3",
            Self::Cvt(Format::E3m2) => "cvt_e3m2",
            Self::Cvt(Format::E4m3) => "cvt_e4m3",
            Self::Cvt(Format::E5m2) => "cvt_e5m2",
            Self::Cvt(Format::Ue8m0) => "cvt_ue8m0",
            Self::Cvt(Format::Bf16) => "cvt_bf16",
            Self::Cvt(Format::F16) => "cvt_f16",
            Self::Out => "out",
        }
    }

    /// The operations that text can name, in the order of error messages.
    pub(crate) const NAMED: [Self; 32] = [
        Self::Exp2,
        Self::Log2,
        Self::Rcp,
        Self::Sqrt,
        Self::SqrtRn,
        Self::Rsqrt,
        Self::Tanh,
        Self::Neg,
        Self::Abs,
        Self::Add,
        Self::Mul,
        Self::Div,
        Self::Fma,
        Self::Max,
        Self::Lt,
        Self::Le,
        Self::Eq,
        Self::Select,
        Self::GroupMax,
        Self::GroupSum,
        Self::LaneSum,
        Self::RowMax,
        Self::RowSum,
        Self::Cvt(Format::E2m1),
        Self::Cvt(Format::E2m3),
        Self::Cvt(Format::E3m2),
        Self::Cvt(Format::E4m3),
        Self::Cvt(Format::E5m2),
        Self::Cvt(Format::Ue8m0),
        Self::Cvt(Format::Bf16),
        Self::Cvt(Format::F16),
        Self::Out,
    ];

    /// Whether program text reads a word as something other than a name that it binds.
    pub(crate) fn is_name(word: &str) -> bool {
        const WORDS: [&str; 10] =
            ["inf", "in", "max", "min", "sub", "layout", "assume", "elem", "group", "row"];
        Self::NAMED.iter().any(|op| op.name() == word) || WORDS.contains(&word) || word == "const"
    }

    /// Operands it takes; `None` for the root.
    #[must_use]
    pub const fn arity(self) -> Option<usize> {
        match self {
            Self::Num(_) | Self::Input(_) => Some(0),
            Self::Add | Self::Mul | Self::Div | Self::Max | Self::Lt | Self::Le | Self::Eq => Some(2),
            Self::Fma | Self::Select => Some(3),
            Self::Out => None,
            _ => Some(1),
        }
    }

    /// The result's shape from the operands', or what is wrong with them.
    pub fn shape(self, args: &[Shape]) -> Result<Shape, String> {
        let first = args.first().copied().unwrap_or(Shape::Const);
        let greatest = args.iter().copied().max().unwrap_or(Shape::Const);
        match self {
            Self::GroupMax | Self::GroupSum | Self::LaneSum => match first {
                Shape::Elem if self == Self::LaneSum => Ok(Shape::Lane),
                Shape::Elem => Ok(Shape::Group),
                other => Err(format!("{} takes a value per element, not {other}", self.name())),
            },
            Self::RowMax => match first {
                Shape::Elem | Shape::Group => Ok(Shape::Row),
                other => Err(format!("row_max takes a value per element or group, not {other}")),
            },
            Self::RowSum => match first {
                Shape::Elem | Shape::Group | Shape::Lane => Ok(Shape::Row),
                other => Err(format!("row_sum takes a value per element, group or lane, not {other}")),
            },
            // A lane's partial sum may only be scaled by what all lanes share, or added to another partial sum.
            _ if args.contains(&Shape::Lane) => {
                let linear = match self {
                    Self::Neg => true,
                    Self::Add => args.iter().all(|&s| s == Shape::Lane),
                    Self::Mul => args.iter().filter(|&&s| s == Shape::Lane).count() == 1,
                    Self::Div => args.get(1) != Some(&Shape::Lane),
                    _ => false,
                };
                if linear && greatest == Shape::Lane {
                    Ok(Shape::Lane)
                } else {
                    Err(format!(
                        "a lane_sum is partial: it can be added to another, multiplied by a value per group or \
                         row, and taken by row_sum, but not by {} here",
                        self.name()
                    ))
                }
            }
            _ => Ok(greatest),
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Const => "a constant",
            Self::Row => "a value per row",
            Self::Group => "a value per group",
            Self::Lane => "a partial sum per lane",
            Self::Elem => "a value per element",
        })
    }
}

/// An input of a program.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    /// Its name.
    pub name: String,
    /// How often it exists.
    pub shape: Shape,
    /// The values that it may have.
    pub range: Range,
}

/// How elements lie over threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Elements of a group.
    pub group: u32,
    /// Lanes that share a row: each holds `group / lanes` elements of every group.
    pub lanes: u32,
    /// Elements of a row in one tile.
    pub row: u32,
}

impl Layout {
    /// Elements of a group that one lane holds.
    #[must_use]
    pub const fn elements_a_lane(self) -> u32 {
        self.group / self.lanes
    }
}

/// One computation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// What it does.
    pub op: Op,
    /// Its operands, as indices of earlier nodes.
    pub args: Vec<usize>,
}

/// Something the program's author promises.
#[derive(Debug, Clone, PartialEq)]
pub struct Assumption {
    /// The node it is about.
    pub node: usize,
    /// Where its values lie.
    pub range: Range,
}

/// A program: nodes in an order in which operands come first, no node twice.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// How elements lie over threads.
    pub layout: Layout,
    /// What is given.
    pub inputs: Vec<Input>,
    /// The computations.
    pub nodes: Vec<Node>,
    /// The shape of each node.
    pub shapes: Vec<Shape>,
    /// Names that the text gave to nodes.
    pub names: Vec<(String, usize)>,
    /// Promises.
    pub assumptions: Vec<Assumption>,
    /// Names and nodes of the results.
    pub outputs: Vec<(String, usize)>,
}

impl Program {
    /// A program without nodes.
    #[must_use]
    pub fn new(layout: Layout, inputs: Vec<Input>) -> Self {
        Self {
            layout,
            inputs,
            nodes: Vec::new(),
            shapes: Vec::new(),
            names: Vec::new(),
            assumptions: Vec::new(),
            outputs: Vec::new(),
        }
    }

    /// Adds a computation, or finds the equal one that is there.
    pub fn push(&mut self, op: Op, args: Vec<usize>) -> Result<usize, String> {
        let node = Node { op, args };
        if let Some(found) = self.nodes.iter().position(|n| *n == node) {
            return Ok(found);
        }
        let shape = match op {
            Op::Input(i) => self.inputs.get(i as usize).map_or(Shape::Const, |input| input.shape),
            _ => {
                let shapes: Vec<Shape> =
                    node.args.iter().filter_map(|&a| self.shapes.get(a).copied()).collect();
                op.shape(&shapes)?
            }
        };
        self.nodes.push(node);
        self.shapes.push(shape);
        Ok(self.nodes.len() - 1)
    }

    /// The nodes that outputs need.
    #[must_use]
    pub fn live(&self) -> Vec<bool> {
        let mut live = vec![false; self.nodes.len()];
        for &(_, node) in &self.outputs {
            live[node] = true;
        }
        for i in (0..self.nodes.len()).rev() {
            if live[i] {
                for &a in &self.nodes[i].args {
                    live[a] = true;
                }
            }
        }
        live
    }
}

impl FromStr for Program {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse::program(text)
    }
}
