//! Program text to programs. Errors carry line and column and what would be accepted.

use super::token::{STATEMENTS, Token, Tokens};
use super::{Assumption, Input, Layout, Op, Program, Range, Shape};
use std::collections::HashMap;

/// Text that is no program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong and what was expected.
    pub message: String,
}

/// Parentheses, signs and calls within each other; deeper text is not a program that anybody wrote.
const MAX_DEPTH: usize = 200;
/// Operations of a program. The step of a softmax has a dozen; the search's graph grows with them.
const MAX_OPERATIONS: usize = 500;

/// The greatest number of a layout.
const LARGEST: f64 = 65536.0;
/// Lanes of a warp.
const WARP: u32 = 32;

/// A whole program.
pub(super) fn program(text: &str) -> Result<Program, ParseError> {
    let mut builder = Builder { program: None, names: HashMap::new(), depth: 0, operations: 0 };
    let mut last = 1;
    for (i, line) in text.lines().enumerate() {
        last = i + 1;
        let line = line.split('#').next().unwrap_or_default();
        if !line.trim().is_empty() {
            builder.statement(&mut Tokens::new(line, last)?)?;
        }
    }
    let fail = |message: &str| Err(ParseError { line: last, column: 1, message: message.to_owned() });
    match builder.program {
        None => fail("the program is empty; expected `layout group=16 lanes=4 row=128` first"),
        Some(p) if p.outputs.is_empty() => fail("the program has no `out NAME = EXPRESSION`"),
        Some(p) => Ok(p),
    }
}

struct Builder {
    program: Option<Program>,
    names: HashMap<String, usize>,
    depth: usize,
    operations: usize,
}

impl Builder {
    fn statement(&mut self, t: &mut Tokens) -> Result<(), ParseError> {
        let (column, word) = t.name(STATEMENTS)?;
        if word == "layout" && *t.peek() != Token::Mark('=') {
            return self.layout(t, column);
        }
        if self.program.is_none() {
            return t.error(column, "expected `layout group=16 lanes=4 row=128` before anything else");
        }
        if *t.peek() != Token::Mark('=') {
            let shape = match word.as_str() {
                "elem" => Some(Shape::Elem),
                "group" => Some(Shape::Group),
                "row" => Some(Shape::Row),
                "const" => Some(Shape::Const),
                _ => None,
            };
            if let Some(shape) = shape {
                return self.input(t, shape);
            }
            if word == "assume" {
                let node = self.expression(t)?;
                let (column, word) = t.name("`in [LO, HI]`")?;
                if word != "in" {
                    return t.error(column, format!("expected `in [LO, HI]`, found `{word}`"));
                }
                let range = t.range()?;
                t.end()?;
                if let Some(p) = &mut self.program {
                    p.assumptions.push(Assumption { node, range });
                }
                return Ok(());
            }
        }
        let output = word == "out" && *t.peek() != Token::Mark('=');
        let (column, name) = if output { t.name("the output's name")? } else { (column, word) };
        t.expect('=', "NAME = EXPRESSION")?;
        let node = self.expression(t)?;
        t.end()?;
        self.bind(t, column, &name, node, output)
    }

    fn layout(&mut self, t: &mut Tokens, at: usize) -> Result<(), ParseError> {
        if self.program.is_some() {
            return t.error(at, "the layout is stated already");
        }
        let (mut group, mut lanes, mut row) = (None, None, None);
        let (mut lanes_at, mut row_at) = (None, None);
        while *t.peek() != Token::End {
            let (column, name) = t.name("group=, lanes= or row=")?;
            t.expect('=', "for example group=16")?;
            let at = t.column();
            let value = match t.take() {
                Token::Number(x) if x.is_whole_from_1_to(LARGEST) => x.value() as u32,
                other => {
                    return t.error(
                        at,
                        format!("{name} is a whole number from 1 to {LARGEST}, not {}", other.show()),
                    );
                }
            };
            match name.as_str() {
                "group" => group = Some(value),
                "lanes" => (lanes, lanes_at) = (Some(value), Some(at)),
                "row" => (row, row_at) = (Some(value), Some(at)),
                _ => {
                    return t.error(
                        column,
                        format!("`{name}` is no part of a layout; expected group, lanes, row"),
                    );
                }
            }
        }
        let Some(group) = group else { return t.error(at, "the layout needs group=N") };
        let layout = Layout { group, lanes: lanes.unwrap_or(1), row: row.unwrap_or(group * 8) };
        if !WARP.is_multiple_of(layout.lanes) || !layout.group.is_multiple_of(layout.lanes) {
            let fits = |n: &u32| WARP.is_multiple_of(*n) && layout.group.is_multiple_of(*n);
            let fitting: Vec<String> = (1..=WARP).filter(fits).map(|n| n.to_string()).collect();
            let message = format!(
                "lanes={} share a row: a power of two up to a warp's {WARP} that divides group={}; accepted: {}",
                layout.lanes,
                layout.group,
                fitting.join(", ")
            );
            return t.error(lanes_at.unwrap_or(at), message);
        }
        if !layout.row.is_multiple_of(layout.group) {
            let message = format!("row={} is no multiple of group={}", layout.row, layout.group);
            return t.error(row_at.unwrap_or(at), message);
        }
        self.program = Some(Program::new(layout, Vec::new()));
        Ok(())
    }

    fn input(&mut self, t: &mut Tokens, shape: Shape) -> Result<(), ParseError> {
        let (column, name) = t.name("the input's name")?;
        let mut range = Range::FINITE;
        if *t.peek() != Token::End {
            let (column, word) = t.name("`in [LO, HI]`")?;
            if word != "in" {
                return t.error(column, format!("expected `in [LO, HI]`, found `{word}`"));
            }
            range = t.range()?;
        }
        t.end()?;
        let Some(p) = &mut self.program else { return Ok(()) };
        p.inputs.push(Input { name: name.clone(), shape, range });
        let op = Op::Input((p.inputs.len() - 1) as u32);
        let node = p.push(op, Vec::new()).or_else(|m| t.error(column, m))?;
        self.bind(t, column, &name, node, false)
    }

    fn bind(
        &mut self,
        t: &Tokens,
        column: usize,
        name: &str,
        node: usize,
        output: bool,
    ) -> Result<(), ParseError> {
        let reserved = Op::NAMED.iter().any(|op| op.name() == name) || ["inf", "in"].contains(&name);
        if reserved {
            return t.error(column, format!("`{name}` is an operation's name; choose another"));
        }
        let Some(p) = &mut self.program else { return Ok(()) };
        if output {
            if p.shapes[node] == Shape::Lane {
                return t.error(column, "an output cannot be a lane's partial sum; take row_sum of it");
            }
            if p.outputs.iter().any(|(n, _)| n == name) {
                return t.error(column, format!("the output `{name}` is there already"));
            }
            p.outputs.push((name.to_owned(), node));
        }
        match self.names.get(name) {
            Some(&old) if old != node => t.error(column, format!("`{name}` is defined already")),
            Some(_) => Ok(()),
            None => {
                self.names.insert(name.to_owned(), node);
                p.names.push((name.to_owned(), node));
                Ok(())
            }
        }
    }

    fn push(&mut self, t: &Tokens, column: usize, op: Op, args: Vec<usize>) -> Result<usize, ParseError> {
        self.operations += 1;
        if self.operations > MAX_OPERATIONS {
            return t.error(column, format!("the program has more than {MAX_OPERATIONS} operations"));
        }
        let Some(p) = &mut self.program else { return Ok(0) };
        p.push(op, args).or_else(|message| t.error(column, message))
    }

    fn expression(&mut self, t: &mut Tokens) -> Result<usize, ParseError> {
        let mut left = self.term(t)?;
        loop {
            let column = t.column();
            if t.accept('+') {
                let right = self.term(t)?;
                left = self.push(t, column, Op::Add, vec![left, right])?;
            } else if t.accept('-') {
                let right = self.term(t)?;
                let right = self.push(t, column, Op::Neg, vec![right])?;
                left = self.push(t, column, Op::Add, vec![left, right])?;
            } else {
                return Ok(left);
            }
        }
    }

    fn term(&mut self, t: &mut Tokens) -> Result<usize, ParseError> {
        let mut left = self.factor(t)?;
        loop {
            let column = t.column();
            let op = if t.accept('*') {
                Op::Mul
            } else if t.accept('/') {
                Op::Div
            } else {
                return Ok(left);
            };
            let right = self.factor(t)?;
            left = self.push(t, column, op, vec![left, right])?;
        }
    }

    fn factor(&mut self, t: &mut Tokens) -> Result<usize, ParseError> {
        if self.depth == MAX_DEPTH {
            let message = format!("nested deeper than {MAX_DEPTH}; bind a part to a name, `t = …`");
            return t.error(t.column(), message);
        }
        self.depth += 1;
        let node = self.nested(t);
        self.depth -= 1;
        node
    }

    fn nested(&mut self, t: &mut Tokens) -> Result<usize, ParseError> {
        let column = t.column();
        match t.take() {
            Token::Mark('-') => {
                if let Token::Number(x) = t.peek().clone() {
                    let at = t.column();
                    t.take();
                    let value = -t.number(at, x)?;
                    return self.push(t, column, Op::Num(value.to_bits()), Vec::new());
                }
                let inner = self.factor(t)?;
                self.push(t, column, Op::Neg, vec![inner])
            }
            Token::Number(x) => {
                let value = t.number(column, x)?;
                self.push(t, column, Op::Num(value.to_bits()), Vec::new())
            }
            Token::Name(name) if name == "inf" && *t.peek() != Token::Mark('(') => {
                self.push(t, column, Op::Num(f64::INFINITY.to_bits()), Vec::new())
            }
            Token::Mark('(') => {
                let inner = self.expression(t)?;
                t.expect(')', "a parenthesis is open")?;
                Ok(inner)
            }
            Token::Name(name) if *t.peek() == Token::Mark('(') => self.call(t, column, &name),
            Token::Name(name) => match self.names.get(&name) {
                Some(&node) => Ok(node),
                None => t.error(
                    column,
                    format!("`{name}` is not defined above; declare it as an input or bind it"),
                ),
            },
            other => t.error(
                column,
                format!("expected a number, a name, an operation or `(`, found {}", other.show()),
            ),
        }
    }

    fn call(&mut self, t: &mut Tokens, column: usize, name: &str) -> Result<usize, ParseError> {
        let known = Op::NAMED.iter().copied().find(|op| op.name() == name && *op != Op::Out);
        let subtract = name == "sub";
        let Some(op) = known.or(subtract.then_some(Op::Add)) else {
            let names: Vec<&str> = Op::NAMED.iter().map(|op| op.name()).filter(|&n| n != "out").collect();
            return t.error(
                column,
                format!("`{name}` is no operation; accepted: + - * /, sub, {}", names.join(", ")),
            );
        };
        t.expect('(', name)?;
        let mut args = Vec::new();
        loop {
            args.push(self.expression(t)?);
            if !t.accept(',') {
                break;
            }
        }
        t.expect(')', "close the operation's operands")?;
        let wanted = op.arity().unwrap_or_default();
        if args.len() != wanted {
            return t.error(column, format!("{name} takes {wanted} operand(s), found {}", args.len()));
        }
        if subtract {
            let negated = self.push(t, column, Op::Neg, vec![args[1]])?;
            args[1] = negated;
        }
        self.push(t, column, op, args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &str) {
        let error = text.parse::<Program>().unwrap_err().to_string();
        assert!(error.contains(expect), "`{text}`: {error}");
    }

    #[test]
    fn depth_and_size_are_limited() {
        let head = "layout group=16 lanes=4 row=128\nelem s in [0, 1]\nout x = ";
        for body in [format!("{}s", "(".repeat(100_000)), format!("{}s", "-".repeat(100_000))] {
            let error = program(&format!("{head}{body}")).unwrap_err();
            assert!(error.line == 3 && error.message.contains("nested deeper"), "{error:?}");
        }
        let error = program(&format!("{head}{}s", "s + ".repeat(5000))).unwrap_err();
        assert!(error.message.contains("operations"), "{error:?}");
    }

    #[test]
    fn infinity_is_a_word() {
        let text = "layout group=1 row=1\nelem s in [-inf, inf]\nout y = select(lt(s, inf), s, -inf)";
        let program: Program = text.parse().unwrap();
        let numbers = program.nodes.iter().filter(|n| n.op == Op::Num(f64::INFINITY.to_bits())).count();
        assert_eq!(numbers, 1, "{program}");
        assert_eq!(program.to_string().parse::<Program>().unwrap().to_string(), program.to_string());
    }

    #[test]
    fn errors_name_place_and_expectation() {
        const HEAD: &str = "layout group=16 lanes=4 row=128\nelem s\nrow m\n";
        check("", "1:1: the program is empty; expected `layout");
        check("elem s", "1:1: expected `layout");
        check("layout group=16 lanes=3", "1:23: lanes=3 share a row");
        check("layout group=64 lanes=64", "1:23: lanes=64 share a row: a power of two up to a warp's 32");
        check("layout group=24 lanes=32", "divides group=24; accepted: 1, 2, 4, 8");
        check("layout group=16 lanes=99999", "1:23: lanes is a whole number from 1 to 65536, not `99999`");
        check("layout group=16 row=100", "1:21: row=100 is no multiple of group=16");
        for (line, expect) in [
            ("x = cbrt(s)", "4:5: `cbrt` is no operation; accepted: + - * /, sub, exp2, log2"),
            ("x = s * 1e999", "4:9: 1e999 is greater than any f32"),
            ("x = s * 1e39", "4:9: 1e39 is greater than any f32"),
            ("x = s - 2^99999", "4:9: 2^99999 is greater than any f32"),
            ("x = s + -2^128", "4:10: 2^128 is greater than any f32"),
            ("x = s + 2^-150", "4:9: 2^-150 is less than any f32 but 0"),
            ("x = s + 1e-999", "4:9: 1e-999 is less than any f32 but 0"),
            ("elem t in [0, 1e999]", "4:15: 1e999 is greater than any f32"),
            ("elem t in [-2^200, 0]", "4:13: 2^200 is greater than any f32"),
            ("assume s in [2^-99999, 1]", "4:14: 2^-99999 is less than any f32 but 0"),
            ("x = exp2(s, m)", "4:5: exp2 takes 1 operand(s), found 2"),
            ("x = group_max(m)", "4:5: group_max takes a value per element, not a value per row"),
            ("x = exp2(lane_sum(s))", "4:5: a lane_sum is partial"),
            ("out x = lane_sum(s)", "4:5: an output cannot be a lane's partial sum"),
            ("x = y + 1", "4:5: `y` is not defined above"),
            ("x = s +", "4:8: expected a number, a name, an operation or `(`, found the end of the line"),
            ("s = 1", "4:1: `s` is defined already"),
            ("elem t in [1, -1]", "4:12: [1, -1] is empty"),
            ("exp2 = s", "4:1: `exp2` is an operation's name"),
            ("x = 1e", "4:5: `1e` is no number"),
            ("x = s ? m", "4:7: `?` has no meaning here"),
            ("x = (s", "4:7: expected `)`, found the end of the line"),
            ("x = s m", "4:7: nothing may follow here; found `m`"),
            ("x = s", "4:1: the program has no `out"),
        ] {
            check(&format!("{HEAD}{line}"), expect);
        }
    }
}
