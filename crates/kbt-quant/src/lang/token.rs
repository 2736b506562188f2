//! A line of program text as words, numbers and marks, with their columns.

use super::{ParseError, Range};

/// What a line may be, for messages.
pub(super) const STATEMENTS: &str = "`layout group=16 lanes=4 row=128`, `elem|group|row|const NAME in [LO, HI]`, \
                          `NAME = EXPRESSION`, `assume EXPRESSION in [LO, HI]` or `out NAME = EXPRESSION`";

/// A decimal number as the text has it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Number {
    text: String,
    value: f64,
}

impl Number {
    pub(super) const fn value(&self) -> f64 {
        self.value
    }

    pub(super) fn is_whole_from_1_to(&self, most: f64) -> bool {
        self.value.fract() == 0.0 && (1.0..=most).contains(&self.value)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    Name(String),
    /// As it stands; what it is worth says [`Tokens::number`].
    Number(Number),
    Mark(char),
    End,
}

impl Token {
    pub(super) fn show(&self) -> String {
        match self {
            Self::Name(name) => format!("`{name}`"),
            Self::Number(x) => format!("`{}`", x.text),
            Self::Mark(c) => format!("`{c}`"),
            Self::End => "the end of the line".to_owned(),
        }
    }
}

pub(super) struct Tokens {
    tokens: Vec<(usize, Token)>,
    next: usize,
    line: usize,
}

impl Tokens {
    pub(super) fn new(text: &str, line: usize) -> Result<Self, ParseError> {
        let chars: Vec<char> = text.chars().collect();
        let mut tokens = Vec::new();
        let mut i = 0;
        while let Some(&c) = chars.get(i) {
            let start = i;
            let token = if c.is_whitespace() {
                i += 1;
                continue;
            } else if c.is_ascii_alphabetic() || c == '_' {
                while chars.get(i).is_some_and(|c| c.is_ascii_alphanumeric() || *c == '_') {
                    i += 1;
                }
                Token::Name(chars[start..i].iter().collect())
            } else if c.is_ascii_digit() || c == '.' {
                let exponent = |i: usize| matches!(chars.get(i.wrapping_sub(1)), Some('e' | 'E'));
                while chars.get(i).is_some_and(|c| {
                    c.is_ascii_alphanumeric() || *c == '.' || (matches!(c, '+' | '-') && exponent(i))
                }) {
                    i += 1;
                }
                let number: String = chars[start..i].iter().collect();
                let value = number.parse().map_err(|_| ParseError {
                    line,
                    column: start + 1,
                    message: format!("`{number}` is no number; expected for example 6, 0.5, 1e-3 or 2^-126"),
                })?;
                Token::Number(Number { text: number, value })
            } else if "()[],=+-*/^".contains(c) {
                i += 1;
                Token::Mark(c)
            } else {
                let message = format!("`{c}` has no meaning here; expected {STATEMENTS}");
                return Err(ParseError { line, column: start + 1, message });
            };
            tokens.push((start + 1, token));
        }
        tokens.push((chars.len() + 1, Token::End));
        Ok(Self { tokens, next: 0, line })
    }

    pub(super) fn peek(&self) -> &Token {
        &self.tokens[self.next.min(self.tokens.len() - 1)].1
    }

    pub(super) fn column(&self) -> usize {
        self.tokens[self.next.min(self.tokens.len() - 1)].0
    }

    pub(super) fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.next += 1;
        token
    }

    pub(super) fn error<T>(&self, column: usize, message: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError { line: self.line, column, message: message.into() })
    }

    pub(super) fn accept(&mut self, mark: char) -> bool {
        let found = *self.peek() == Token::Mark(mark);
        self.next += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, mark: char, whole: &str) -> Result<(), ParseError> {
        if self.accept(mark) {
            return Ok(());
        }
        let (column, found) = (self.column(), self.peek().show());
        self.error(column, format!("expected `{mark}`, found {found}: {whole}"))
    }

    pub(super) fn name(&mut self, what: &str) -> Result<(usize, String), ParseError> {
        let column = self.column();
        match self.take() {
            Token::Name(name) => Ok((column, name)),
            other => self.error(column, format!("expected {what}, found {}", other.show())),
        }
    }

    pub(super) fn end(&mut self) -> Result<(), ParseError> {
        let (column, found) = (self.column(), self.peek().show());
        if *self.peek() == Token::End {
            Ok(())
        } else {
            self.error(column, format!("nothing may follow here; found {found}"))
        }
    }

    /// A bound: a number, `2^-126`, `inf`, `max` (the greatest f32) or `min` (the least normal f32), with sign.
    pub(super) fn bound(&mut self) -> Result<f64, ParseError> {
        let negative = self.accept('-');
        let column = self.column();
        let value = match self.take() {
            Token::Number(x) => self.number(column, x)?,
            Token::Name(name) if name == "inf" => f64::INFINITY,
            Token::Name(name) if name == "max" => f64::from(f32::MAX),
            Token::Name(name) if name == "min" => f64::from(f32::MIN_POSITIVE),
            other => {
                let expected = "a number, inf, max (the greatest f32) or min (the least normal f32)";
                return self.error(column, format!("expected {expected}, found {}", other.show()));
            }
        };
        Ok(if negative { -value } else { value })
    }

    /// The value of the number `base`, which stands at `column`, and of the power behind it, if there is one. Programs
    /// compute in f32: what no f32 is near is refused.
    pub(super) fn number(&mut self, column: usize, base: Number) -> Result<f64, ParseError> {
        let is_zero = |n: &Number| {
            let digits = n.text.split(['e', 'E']).next().unwrap_or_default();
            digits.chars().all(|c| matches!(c, '0' | '.'))
        };
        let (mut text, mut value, zero) = (base.text.clone(), base.value, is_zero(&base));
        if self.accept('^') {
            let negative = self.accept('-');
            let at = self.column();
            match self.take() {
                Token::Number(x) if x.value.fract() == 0.0 || x.value.is_infinite() => {
                    let sign = if negative { "-" } else { "" };
                    text = format!("{text}^{sign}{}", x.text);
                    value = value.powf(if negative { -x.value } else { x.value });
                }
                other => {
                    return self.error(at, format!("expected a whole exponent, found {}", other.show()));
                }
            }
        }
        let single = value as f32;
        if !single.is_finite() {
            let message = format!("{text} is greater than any f32 (3.4028235e38); infinity is written `inf`");
            return self.error(column, message);
        }
        if single == 0.0 && !zero {
            return self.error(column, format!("{text} is less than any f32 but 0 (2^-149)"));
        }
        Ok(value)
    }

    pub(super) fn range(&mut self) -> Result<Range, ParseError> {
        let whole = "a range is `[LO, HI]`";
        self.expect('[', whole)?;
        let column = self.column();
        let lo = self.bound()?;
        self.expect(',', whole)?;
        let hi = self.bound()?;
        self.expect(']', whole)?;
        if lo <= hi { Ok(Range { lo, hi }) } else { self.error(column, format!("[{lo}, {hi}] is empty")) }
    }
}
