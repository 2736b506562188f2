//! Names from files in lines of text.

use std::borrow::Cow;

/// `text` with everything spelt out that is no part of a line: control characters, ends of lines of other alphabets, and
/// what turns the direction of writing. A role, barrier or event can have any name, and none may pass for lines of
/// kbt's own or steer a terminal.
#[must_use]
pub fn spelt(text: &str) -> Cow<'_, str> {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' | '\u{200e}' | '\u{200f}')
    };
    if !text.contains(hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if hidden(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::spelt;

    #[test]
    fn what_is_no_part_of_a_line_is_spelt_out() {
        assert_eq!(spelt("P full é 日"), "P full é 日");
        assert_eq!(spelt("a\nnote: b\t\u{1b}[31m"), "a\\nnote: b\\t\\u{1b}[31m");
        assert_eq!(spelt("\u{85}\u{2028}\u{202e}x"), "\\u{85}\\u{2028}\\u{202e}x");
    }
}
