//! The small expression language of target files: constraints over knobs, and the handoff's integers.
//!
//! Numbers, 'strings', knob names; `+ - * / %`, `== != < <= > >=`, `in [a, b]`, `&& || !`, `c ? a : b`,
//! `min(a, b)`, `max(a, b)`, `floor(a)`. A knob's value that reads as a number is one. Division is exact
//! division, so write `floor(a / b)` where integers are meant. Nothing here knows what a knob is for.

mod parse;

use crate::Setting;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// An expression, with the text it was written as.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "crate::Scalar", into = "String")]
pub struct Expr {
    text: String,
    node: Node,
}

/// Why an expression cannot be read or has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}`: {problem}")]
pub struct ExprError {
    text: String,
    problem: String,
}

impl ExprError {
    /// The expression as written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// What an expression evaluates to.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A number.
    Number(f64),
    /// Text.
    Text(String),
    /// True or false.
    Bool(bool),
}

impl Value {
    fn of_knob(text: &str) -> Self {
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Self::Number(number),
            _ => Self::Text(text.to_owned()),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Number(_) => "a number",
            Self::Text(_) => "text",
            Self::Bool(_) => "true or false",
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => write!(f, "{n}"),
            Self::Text(t) => write!(f, "'{t}'"),
            Self::Bool(b) => write!(f, "{b}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Or,
    And,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Add,
    Sub,
    Mul,
    Div,
    Rem,
}

/// A chain of operators nests as deep as it is long, so the length is bounded too (bytes).
const MAX_LENGTH: usize = 512;

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Value(Value),
    Knob(String),
    Not(Box<Node>),
    Negate(Box<Node>),
    Binary(Op, Box<Node>, Box<Node>),
    In(Box<Node>, Vec<Node>),
    Choose(Box<Node>, Box<Node>, Box<Node>),
    Call(Function, Vec<Node>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Function {
    Min,
    Max,
    Floor,
}

impl Expr {
    /// Reads an expression.
    ///
    /// # Errors
    /// With the position and what was expected there.
    pub fn parse(text: &str) -> Result<Self, ExprError> {
        if text.len() > MAX_LENGTH {
            let start = text.chars().take(40).collect::<String>();
            return Err(ExprError { text: start, problem: format!("longer than {MAX_LENGTH} bytes") });
        }
        match parse::parse(text) {
            Ok(node) => Ok(Self { text: text.trim().to_owned(), node }),
            Err(problem) => Err(ExprError { text: text.trim().to_owned(), problem }),
        }
    }

    /// The text as written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The knobs that the expression reads.
    #[must_use]
    pub fn knobs(&self) -> BTreeSet<&str> {
        fn walk<'a>(node: &'a Node, found: &mut BTreeSet<&'a str>) {
            match node {
                Node::Value(_) => {}
                Node::Knob(name) => {
                    found.insert(name);
                }
                Node::Not(a) | Node::Negate(a) => walk(a, found),
                Node::Binary(_, a, b) => [a, b].into_iter().for_each(|n| walk(n, found)),
                Node::Choose(a, b, c) => [a, b, c].into_iter().for_each(|n| walk(n, found)),
                Node::In(a, list) => {
                    walk(a, found);
                    list.iter().for_each(|n| walk(n, found));
                }
                Node::Call(_, list) => list.iter().for_each(|n| walk(n, found)),
            }
        }
        let mut found = BTreeSet::new();
        walk(&self.node, &mut found);
        found
    }

    /// The value at a setting.
    ///
    /// # Errors
    /// On a knob that the setting lacks, on operands of the wrong kind, and on division by zero.
    pub fn value(&self, setting: &Setting) -> Result<Value, ExprError> {
        evaluate(&self.node, setting).map_err(|problem| self.error(problem))
    }

    /// The value, where it must be true or false.
    ///
    /// # Errors
    /// As [`Expr::value`], and where the value is of another kind.
    pub fn truth(&self, setting: &Setting) -> Result<bool, ExprError> {
        match self.value(setting)? {
            Value::Bool(b) => Ok(b),
            other => Err(self.error(format!("is {other}, where true or false is needed"))),
        }
    }

    /// The value, where it must be a whole number of at least 1.
    ///
    /// # Errors
    /// As [`Expr::value`], and where the value is of another kind.
    pub fn count(&self, setting: &Setting) -> Result<u32, ExprError> {
        match self.value(setting)? {
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "checked by the guard"
            )]
            Value::Number(n) if n >= 1.0 && n.fract() == 0.0 && n <= f64::from(u32::MAX) => Ok(n as u32),
            other => Err(self.error(format!("is {other}, where a whole number of at least 1 is needed"))),
        }
    }

    fn error(&self, problem: String) -> ExprError {
        ExprError { text: self.text.clone(), problem }
    }
}

impl TryFrom<crate::Scalar> for Expr {
    type Error = ExprError;

    fn try_from(scalar: crate::Scalar) -> Result<Self, ExprError> {
        Self::parse(scalar.as_str())
    }
}

impl From<Expr> for String {
    fn from(expr: Expr) -> Self {
        expr.text
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn evaluate(node: &Node, setting: &Setting) -> Result<Value, String> {
    Ok(match node {
        Node::Value(value) => value.clone(),
        Node::Knob(name) => {
            Value::of_knob(setting.get(name).ok_or_else(|| format!("there is no knob `{name}`"))?)
        }
        Node::Not(a) => Value::Bool(!truth(a, setting)?),
        Node::Negate(a) => Value::Number(-number(a, setting)?),
        Node::Binary(Op::Or, a, b) => Value::Bool(truth(a, setting)? || truth(b, setting)?),
        Node::Binary(Op::And, a, b) => Value::Bool(truth(a, setting)? && truth(b, setting)?),
        Node::Binary(op, a, b) => binary(*op, evaluate(a, setting)?, evaluate(b, setting)?)?,
        Node::In(a, list) => {
            let value = evaluate(a, setting)?;
            let mut found = false;
            for item in list {
                found |= evaluate(item, setting)? == value;
            }
            Value::Bool(found)
        }
        Node::Choose(condition, a, b) => evaluate(if truth(condition, setting)? { a } else { b }, setting)?,
        Node::Call(function, list) => {
            let numbers = list.iter().map(|n| number(n, setting)).collect::<Result<Vec<_>, _>>()?;
            let all = numbers.iter().copied();
            Value::Number(match function {
                Function::Min => all.fold(f64::INFINITY, f64::min),
                Function::Max => all.fold(f64::NEG_INFINITY, f64::max),
                Function::Floor => numbers.first().map_or(0.0, |n| n.floor()),
            })
        }
    })
}

fn truth(node: &Node, setting: &Setting) -> Result<bool, String> {
    match evaluate(node, setting)? {
        Value::Bool(b) => Ok(b),
        other => Err(format!("{other} stands where true or false is needed")),
    }
}

fn number(node: &Node, setting: &Setting) -> Result<f64, String> {
    match evaluate(node, setting)? {
        Value::Number(n) => Ok(n),
        other => Err(format!("{other} stands where a number is needed")),
    }
}

fn binary(op: Op, a: Value, b: Value) -> Result<Value, String> {
    match op {
        // Knobs may mix words and numbers (`off`, 2, 4): of different kinds is simply not equal.
        Op::Eq => return Ok(Value::Bool(a == b)),
        Op::Ne => return Ok(Value::Bool(a != b)),
        _ => {}
    }
    let (Value::Number(x), Value::Number(y)) = (&a, &b) else {
        return Err(format!("an operator for numbers stands between {} and {}", a.kind(), b.kind()));
    };
    Ok(match op {
        Op::Lt => Value::Bool(x < y),
        Op::Le => Value::Bool(x <= y),
        Op::Gt => Value::Bool(x > y),
        Op::Ge => Value::Bool(x >= y),
        Op::Add => Value::Number(x + y),
        Op::Sub => Value::Number(x - y),
        Op::Mul => Value::Number(x * y),
        Op::Div | Op::Rem if *y == 0.0 => return Err("division by zero".to_owned()),
        Op::Div => Value::Number(x / y),
        Op::Rem => Value::Number(x.rem_euclid(*y)),
        Op::Or | Op::And | Op::Eq | Op::Ne => return Err("an operator in the wrong place".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &str) {
        let setting =
            Setting::default().with("MODE", "fp8").with("NUM", "3").with("DEN", "4").with("CHUNKS", "8");
        let got = Expr::parse(text).and_then(|e| e.value(&setting));
        assert_eq!(got.map_or_else(|e| e.to_string(), |v| v.to_string()), expect, "{text}");
    }

    #[test]
    fn expressions_have_the_value_an_engineer_expects() {
        check("MODE == 'fp8' ? 4 : 8", "4");
        check("NUM * CHUNKS % DEN == 0", "true");
        check("NUM < DEN && CHUNKS in [2, 4, 8]", "true");
        check("1 + 2 * 3 - -1", "8");
        check("floor(NUM * CHUNKS / 5)", "4");
        check("max(NUM, DEN) - min(NUM, DEN)", "1");
        check("!(MODE == 'bf16') || false", "true");
        check("MODE != 4", "true");
        check("CHUNKS in [2, 4]", "false");
        check("NUM == '3'", "true");
        check("10 - 4 - 3", "3");
    }

    #[test]
    fn what_cannot_be_read_or_computed_says_why_and_where() {
        check("NUM <", "`NUM <`: expected a number, a 'string', a knob or `(` at the end");
        check("NUM DEN", "`NUM DEN`: expected an operator or the end at column 5, found `D`");
        check("MODE < 4", "`MODE < 4`: an operator for numbers stands between text and a number");
        check("NUM / 0", "`NUM / 0`: division by zero");
        check("TILES == 4", "`TILES == 4`: there is no knob `TILES`");
        check("'open", "`'open`: a string is not closed");
        check("floor(1, 2)", "`floor(1, 2)`: `floor` has too few or many parts");
        check("NUM ? 1 : 2", "`NUM ? 1 : 2`: 3 stands where true or false is needed");
    }

    #[test]
    fn hostile_nesting_is_an_error_and_not_a_stack_overflow() {
        for unit in ["(", "!", "1?", "-", "1+"] {
            assert!(Expr::parse(&unit.repeat(2000)).is_err(), "{unit}");
            assert!(Expr::parse(&unit.repeat(100_000)).is_err(), "{unit}");
        }
        let chain = Expr::parse(&format!("1{}", "+1".repeat(255))).unwrap();
        assert_eq!(chain.count(&Setting::default()), Ok(256));
        assert!(Expr::parse("é").is_err());
    }

    #[test]
    fn the_knobs_an_expression_reads_are_known() {
        let e = Expr::parse("A ? min(B, 2) : C in [D, 1]").unwrap();
        assert_eq!(e.knobs().into_iter().collect::<Vec<_>>(), ["A", "B", "C", "D"]);
        let text = serde_json::to_string(&e).unwrap();
        assert_eq!(serde_json::from_str::<Expr>(&text).unwrap(), e);
    }
}
