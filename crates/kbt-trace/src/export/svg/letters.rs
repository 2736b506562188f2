//! Texts of a drawing: how wide they are, what of them fits, and how they stand in XML.

use crate::spelt;

/// Size of letters.
pub(super) const LETTER: f64 = 12.0;

/// The next of 1, 2 and 5 times a power of ten; at least one cycle.
pub(super) fn tick(least: f64) -> f64 {
    let mut power = 1.0;
    loop {
        for step in [1.0, 2.0, 5.0] {
            if step * power >= least || power > 1e15 {
                return step * power;
            }
        }
        power *= 10.0;
    }
}

/// How wide a text is in pixels, or a little less than this: the viewer's letters are its own. Widths of groups of
/// letters in Helvetica; ideographs and pictures are square.
pub(super) fn width(text: &str) -> f64 {
    let of = |c: char| match c {
        'i' | 'j' | 'l' | 'I' | 'f' | 't' | 'r' | ' ' | '.' | ',' | ':' | ';' | '(' | ')' | '/' | '|'
        | '\'' => 0.31,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.95,
        'A'..='Z' | '&' => 0.7,
        '\u{0}'..='\u{7f}' => 0.58,
        '\u{300}'..='\u{36f}' | '\u{200b}'..='\u{200f}' | '\u{fe00}'..='\u{fe0f}' => 0.0,
        '\u{80}'..='\u{10ff}' => 0.74,
        _ => 1.1,
    };
    text.chars().map(of).sum::<f64>() * LETTER
}

/// As much of a text as fits into so many pixels.
pub(super) fn fit(text: &str, room: f64) -> String {
    let text = &*spelt(text);
    if width(text) <= room {
        return text.to_owned();
    }
    let mut kept = String::new();
    for c in text.chars() {
        kept.push(c);
        if width(&kept) + width("…") > room {
            kept.pop();
            kept.push('…');
            break;
        }
    }
    if width(&kept) <= room { kept } else { String::new() }
}

/// A text in lines that fit into so many pixels, broken between words; a longer word is cut.
pub(super) fn wrapped(text: &str, room: f64) -> Vec<String> {
    // The viewer's letters may be wider.
    let room = 0.88 * room;
    let mut lines: Vec<String> = Vec::new();
    for word in spelt(text).split(' ') {
        match lines.last_mut() {
            Some(line) if width(line) + width(" ") + width(word) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(fit(word, room)),
        }
    }
    lines
}

/// As text of XML, which has no control characters: they are spelt out, as everywhere.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in spelt(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_names_are_cut_and_escaped() {
        assert_eq!([0.3, 3.0, 40.0, 60.0].map(tick), [1.0, 5.0, 50.0, 100.0]);
        assert_eq!((fit("Softmax", 50.0), fit("Softmax0", 50.0)), ("Softmax".into(), "Softm…".into()));
        assert_eq!((fit("日本語", 30.0), fit("日本語", 8.0)), ("日…".into(), String::new()));
        assert_eq!(wrapped("a note in several lines", 75.0), ["a note in", "several", "lines"]);
        assert_eq!(escaped("a<b>&\"\u{1}c\n"), "a&lt;b&gt;&amp;&quot;\\u{1}c\\n");
    }
}
