//! Texts of others in Markdown: names and statements that kbt did not write must not become its structure.

/// Text in which Markdown sees nothing of its own.
#[must_use]
pub fn escape(t: &str) -> String {
    let mut out = String::with_capacity(t.len());
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut before = ' ';
    let mut rest = t.chars().peekable();
    while let Some(c) = rest.next() {
        let next = rest.peek().copied().unwrap_or(' ');
        match c {
            '\\' | '*' | '`' | '<' | '|' => out.extend(['\\', c]),
            // Within a word it is no emphasis, and a bracket alone no link.
            '_' if !(in_word(before) && in_word(next)) => out.push_str("\\_"),
            ']' if next == '(' => out.push_str("\\]"),
            '\n' => out.push(' '),
            _ => out.push(c),
        }
        before = c;
    }
    out
}

/// The same for a sentence, in which a word between two backticks is code.
#[must_use]
pub fn escape_prose(t: &str) -> String {
    let mut parts = t.split('`').peekable();
    let mut out = String::with_capacity(t.len());
    let mut code = false;
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        // A pipe ends a table's cell even in code.
        out += &if code && !last { part.replace('|', "\\|").replace('\n', " ") } else { escape(part) };
        if !last {
            // A backtick that nothing closes is a character like another.
            let closes = code || parts.clone().nth(1).is_some();
            out += if closes { "`" } else { "\\`" };
            code = closes && !code;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{escape, escape_prose};

    #[test]
    fn code_in_a_sentence_stays_code() {
        for (text, escaped) in [
            ("run `kbt a|b` on *x*", r"run `kbt a\|b` on \*x\*"),
            ("`a*b` and ` alone", r"`a*b` and \` alone"),
            ("plain | text", r"plain \| text"),
            ("`one` `two`", "`one` `two`"),
        ] {
            assert_eq!(escape_prose(text), escaped);
        }
    }

    #[test]
    fn a_name_stays_a_name() {
        for (name, escaped) in [
            ("my|kernel *x* <b>", r"my\|kernel \*x\* \<b>"),
            ("[l](http://x)", r"[l\](http://x)"),
            ("lts__t_bytes", "lts__t_bytes"),
            ("two\nlines", "two lines"),
            ("attn_fwd _a_", r"attn_fwd \_a\_"),
            ("a `b` \\", r"a \`b\` \\"),
        ] {
            assert_eq!(escape(name), escaped);
        }
    }
}
