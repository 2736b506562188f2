//! Reads the text of an expression. Recursion is bounded, whatever the text.

use super::{Function, Node, Op, Value};

/// Operators by binding strength, weakest first; longer spellings before their prefixes.
const LEVELS: &[&[(&str, Op)]] = &[
    &[("||", Op::Or)],
    &[("&&", Op::And)],
    &[("==", Op::Eq), ("!=", Op::Ne), ("<=", Op::Le), (">=", Op::Ge), ("<", Op::Lt), (">", Op::Gt)],
    &[("+", Op::Add), ("-", Op::Sub)],
    &[("*", Op::Mul), ("/", Op::Div), ("%", Op::Rem)],
];
/// The level of comparisons, where `in [..]` is read too.
const COMPARISON: usize = 2;
/// Deeper nesting than any honest constraint needs; bounds the recursion on hostile input.
const MAX_DEPTH: usize = 64;

/// The expression that the whole of `text` is, or what was expected where.
pub(super) fn parse(text: &str) -> Result<Node, String> {
    let mut parser = Parser { text, at: 0, depth: 0 };
    let node = parser.choose()?;
    parser.skip_space();
    if parser.at == text.len() { Ok(node) } else { Err(parser.expected("an operator or the end")) }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn need(&mut self, token: &str) -> Result<(), String> {
        if self.eat(token) { Ok(()) } else { Err(self.expected(&format!("`{token}`"))) }
    }

    fn expected(&self, what: &str) -> String {
        match self.rest().chars().next() {
            Some(c) => format!("expected {what} at column {}, found `{c}`", self.at + 1),
            None => format!("expected {what} at the end"),
        }
    }

    fn choose(&mut self) -> Result<Node, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("nested deeper than {MAX_DEPTH} levels"));
        }
        let condition = self.level(0)?;
        let node = if self.eat("?") {
            let yes = self.choose()?;
            self.need(":")?;
            Node::Choose(Box::new(condition), Box::new(yes), Box::new(self.choose()?))
        } else {
            condition
        };
        self.depth -= 1;
        Ok(node)
    }

    fn level(&mut self, level: usize) -> Result<Node, String> {
        let Some(operators) = LEVELS.get(level) else { return self.prefix() };
        let mut left = self.level(level + 1)?;
        loop {
            if level == COMPARISON && self.eat_word("in") {
                left = Node::In(Box::new(left), self.list("[", "]")?);
            } else if let Some((_, op)) = operators.iter().find(|(token, _)| self.eat(token)) {
                left = Node::Binary(*op, Box::new(left), Box::new(self.level(level + 1)?));
            } else {
                return Ok(left);
            }
        }
    }

    fn prefix(&mut self) -> Result<Node, String> {
        // One loop, not recursion: `!!!!…` must not overflow the stack.
        let mut prefixes = Vec::new();
        loop {
            self.skip_space();
            match self.rest().bytes().next() {
                Some(c @ (b'!' | b'-')) => {
                    self.at += 1;
                    prefixes.push(c);
                    if prefixes.len() > MAX_DEPTH {
                        return Err(format!("nested deeper than {MAX_DEPTH} levels"));
                    }
                }
                _ => break,
            }
        }
        let mut node = self.atom()?;
        for prefix in prefixes.into_iter().rev() {
            node = if prefix == b'!' { Node::Not(Box::new(node)) } else { Node::Negate(Box::new(node)) };
        }
        Ok(node)
    }

    fn atom(&mut self) -> Result<Node, String> {
        if self.eat("(") {
            let node = self.choose()?;
            self.need(")")?;
            return Ok(node);
        }
        for quote in ["'", "\""] {
            if self.eat(quote) {
                let end = self.rest().find(quote).ok_or("a string is not closed")?;
                let text = self.rest()[..end].to_owned();
                self.at += end + 1;
                return Ok(Node::Value(Value::of_knob(&text)));
            }
        }
        let word = self.word();
        if word.is_empty() {
            return Err(self.expected("a number, a 'string', a knob or `(`"));
        }
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            let number = word.parse::<f64>().map_err(|_| format!("`{word}` is no number"))?;
            return Ok(Node::Value(Value::Number(number)));
        }
        let function = match word {
            "true" | "false" => return Ok(Node::Value(Value::Bool(word == "true"))),
            "min" => Function::Min,
            "max" => Function::Max,
            "floor" => Function::Floor,
            _ => return Ok(Node::Knob(word.to_owned())),
        };
        let list = self.list("(", ")")?;
        let fits = if function == Function::Floor { list.len() == 1 } else { list.len() >= 2 };
        if fits { Ok(Node::Call(function, list)) } else { Err(format!("`{word}` has too few or many parts")) }
    }

    fn list(&mut self, open: &str, close: &str) -> Result<Vec<Node>, String> {
        self.need(open)?;
        let mut items = vec![self.choose()?];
        while self.eat(",") {
            items.push(self.choose()?);
        }
        self.need(close)?;
        Ok(items)
    }

    fn word(&mut self) -> &'a str {
        self.skip_space();
        let rest = self.rest();
        let end =
            rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.')).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let start = self.at;
        if self.word() == word {
            return true;
        }
        self.at = start;
        false
    }
}
