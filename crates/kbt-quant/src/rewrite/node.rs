//! The expression language as egg sees it: operations with class ids as operands, and their pattern syntax.

use crate::lang::Op;
use egg::{FromOp, Id, Language};
use std::fmt;

/// One e-node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ENode {
    pub(super) op: Op,
    pub(super) args: Vec<Id>,
}

impl ENode {
    pub(super) fn new(op: Op, args: impl Into<Vec<Id>>) -> Self {
        Self { op, args: args.into() }
    }
}

impl Language for ENode {
    type Discriminant = Op;

    fn discriminant(&self) -> Op {
        self.op
    }

    fn matches(&self, other: &Self) -> bool {
        self.op == other.op && self.args.len() == other.args.len()
    }

    fn children(&self) -> &[Id] {
        &self.args
    }

    fn children_mut(&mut self) -> &mut [Id] {
        &mut self.args
    }
}

impl fmt::Display for ENode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.op {
            Op::Num(bits) => write!(f, "{}", f64::from_bits(bits)),
            Op::Input(i) => write!(f, "input{i}"),
            op => f.write_str(op.name()),
        }
    }
}

impl FromOp for ENode {
    type Error = String;

    fn from_op(op: &str, children: Vec<Id>) -> Result<Self, String> {
        let found = Op::NAMED.into_iter().find(|o| o.name() == op);
        match found {
            Some(op) if op.arity().is_none_or(|n| n == children.len()) => Ok(Self::new(op, children)),
            _ => match op.parse::<f64>() {
                Ok(x) if children.is_empty() => Ok(Self::new(Op::Num(x.to_bits()), children)),
                _ => Err(format!("`{op}` with {} operands", children.len())),
            },
        }
    }
}
