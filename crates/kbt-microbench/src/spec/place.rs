//! Where in a spec's text something stands.

/// A spec's text, read in the order of its entries.
pub(super) struct Places<'a> {
    lines: Vec<&'a str>,
    /// Lines before this one belong to entries already found.
    next: usize,
}

impl<'a> Places<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self { lines: text.lines().collect(), next: 0 }
    }

    /// The line, from 1, of the next entry with this name; none where the text names it in a way not looked for.
    pub(super) fn entry(&mut self, name: &str) -> Option<usize> {
        let at = (self.next..self.lines.len()).find(|&at| name_on(self.lines[at]) == Some(name))?;
        self.next = at + 1;
        Some(self.next)
    }

    /// The line, from 1, of each line of a form's `step`, for the entry that was found last.
    pub(super) fn step(&self, form: &str, step: &str) -> Option<Vec<usize>> {
        let end = (self.next..self.lines.len()).find(|&at| name_on(self.lines[at]).is_some());
        let end = end.unwrap_or(self.lines.len());
        let is_form = |value: &str| value.is_empty() || value.starts_with(['{', '#']);
        let begin = self.next.checked_sub(1)?;
        let form = (begin..end).find(|&at| value_of(self.lines[at], form).is_some_and(is_form))?;
        let (at, value) = (form..end).find_map(|at| Some((at, value_of(self.lines[at], "step")?)))?;
        let lines = step.lines().count();
        let first = if value.starts_with('|') { at + 2 } else { at + 1 };
        Some((0..lines).map(|n| if first > at + 1 { first + n } else { first }).collect())
    }
}

/// The line, from 1, that says what mix number `n` is of.
pub(super) fn mix_line(text: &str, n: usize) -> Option<usize> {
    let from = text.lines().position(|line| value_of(line, "mixes").is_some())?;
    let mut mixes = (from..).zip(text.lines().skip(from)).filter(|(_, line)| value_of(line, "of").is_some());
    mixes.nth(n).map(|(at, _)| at + 1)
}

/// The name that a line gives an entry.
fn name_on(line: &str) -> Option<&str> {
    let key =
        line.trim_start_matches(['-', ' ', '{']).trim_start_matches(['"', '\'']).strip_prefix("name")?;
    let value = key.trim_start_matches(['"', '\'']).trim_start().strip_prefix(':')?.trim();
    match value.chars().next() {
        Some(quote @ ('"' | '\'')) => value[1..].split(quote).next(),
        _ => Some(value.split([',', '}']).next()?.split(" #").next()?.trim()),
    }
}

/// What follows the first mention of a key on a line.
fn value_of<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.match_indices(key).find_map(|(at, _)| {
        let free = |c: char| c.is_whitespace() || matches!(c, '{' | ',' | '"' | '\'' | '-');
        let rest = line[at + key.len()..].trim_start_matches(['"', '\'']).trim_start().strip_prefix(':')?;
        line[..at].chars().next_back().is_none_or(free).then(|| rest.trim())
    })
}

/// The reader's message in the words of the spec, without the place, which stands before it.
pub(super) fn in_words(message: &str) -> String {
    let text = message.rsplit_once(" at line ").map_or(message, |(text, _)| text);
    let Some((text, expected)) = text.rsplit_once("expected ") else { return text.to_owned() };
    let words = match expected {
        "u16" | "u32" => "a whole number",
        "f64" => "a number",
        "struct Spec" => "`instructions` and `mixes`",
        "struct Entry" => "an entry: `name`, `target`, `chains`",
        "struct Chain" => "a form: `x`, `step`",
        "struct Mix" => "a mix: `of`, `ratio`",
        other => other,
    };
    format!("{text}expected {words}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_however_they_are_quoted_and_in_the_order_of_the_entries() {
        for (line, name) in [
            ("  - name: fma.rn.f32", "fma.rn.f32"),
            ("  - {name: a, target: [X]}", "a"),
            ("    {\"name\": \"b c\", \"target\": [\"X\"]},", "b c"),
            ("  - name: 'x, y' # which", "x, y"),
            ("    name : z # after its target", "z"),
        ] {
            assert_eq!(name_on(line), Some(name), "{line}");
        }
        assert_eq!(name_on("  # the name: of it"), None);
        let mut places = Places::of("- name: a\n- name: b\n- name: a\n");
        assert_eq!([places.entry("a"), places.entry("a"), places.entry("b")], [Some(1), Some(3), None]);
    }

    #[test]
    fn each_line_of_a_step_has_its_place() {
        let text = "- name: t\n  chains:\n    clean: {with: {b: b32}, step: 'one; two;'}\n    b:\n      x: b32\n      \
                    step: |\n        one;\n        two;\n- name: u\n  chains: {b: {step: 'x'}}\n";
        let mut places = Places::of(text);
        assert_eq!(places.step("b", "x"), None);
        places.entry("t");
        assert_eq!(places.step("clean", "one; two;"), Some(vec![3]));
        assert_eq!(places.step("b", "one;\ntwo;\n"), Some(vec![7, 8]));
        assert_eq!(places.step("absent", "x"), None);
        places.entry("u");
        assert_eq!(places.step("b", "x"), Some(vec![10]));
    }
}
