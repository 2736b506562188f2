//! Text, numbers and units as exports have them: byte-order marks, locales, thousands separators, unit cells.

/// Bytes as text: UTF-8 with or without a byte-order mark, or the UTF-16 that PowerShell redirects to.
pub(super) fn decode(bytes: &[u8]) -> String {
    let wide = |units: &[u8], order: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = units.chunks_exact(2).map(|c| order([c[0], c[1]])).collect();
        String::from_utf16_lossy(&units)
    };
    match bytes {
        [0xFF, 0xFE, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => wide(rest, u16::from_be_bytes),
        [0xEF, 0xBB, 0xBF, rest @ ..] => String::from_utf8_lossy(rest).into_owned(),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// How a file writes its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Locale {
    /// `4,963,609.19`.
    Point,
    /// `4.963.609,19`.
    Comma,
}

impl Locale {
    /// What a file of this locale is, in words.
    pub(super) fn told(self) -> &'static str {
        match self {
            Self::Point => "a file that writes fractions with a point",
            Self::Comma => "a file that writes fractions with a comma",
        }
    }
}

/// What one cell tells of the locale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vote {
    For(Locale),
    /// Could be either: one separator with three digits behind it.
    Ambiguous,
    None,
}

/// A cell without what only groups thousands: spaces of any width (French), apostrophes (Swiss).
fn ungrouped(cell: &str) -> String {
    let grouping = |c: char| c.is_whitespace() || ['\'', '\u{2019}'].contains(&c);
    let cell = cell.trim();
    let digits = |c: char| c.is_ascii_digit() || grouping(c) || "+-.,eE".contains(c);
    if cell.chars().all(digits) { cell.chars().filter(|c| !grouping(*c)).collect() } else { cell.to_owned() }
}

fn vote(cell: &str) -> Vote {
    let cell = ungrouped(cell);
    let cell = cell.as_str();
    if !cell.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+') {
        return Vote::None;
    }
    let mantissa = cell.split(['e', 'E']).next().unwrap_or(cell);
    let exponent = mantissa.len() != cell.len();
    let (points, commas) = (mantissa.matches('.').count(), mantissa.matches(',').count());
    match (points, commas) {
        (0, 0) => Vote::None,
        (p, c) if p > 0 && c > 0 => {
            Vote::For(if mantissa.rfind('.') > mantissa.rfind(',') { Locale::Point } else { Locale::Comma })
        }
        (p, 0) if p > 1 => Vote::For(Locale::Comma),
        (0, c) if c > 1 => Vote::For(Locale::Point),
        (p, _) => {
            let (mark, locale) = if p == 1 { ('.', Locale::Point) } else { (',', Locale::Comma) };
            let (before, after) = mantissa.split_once(mark).unwrap_or((mantissa, ""));
            let before = before.trim_start_matches(['-', '+']);
            // Thousands are grouped by three, and no group starts with a zero.
            if exponent || after.len() != 3 || before.len() > 3 || before.starts_with('0') {
                Vote::For(locale)
            } else {
                Vote::Ambiguous
            }
        }
    }
}

/// The locale of a file's numbers; an error where cells disagree or none decides. A cell comes with whether it is of what
/// is counted whole: there one mark with three digits behind it groups thousands, and tells where nothing else does.
pub(super) fn locale<'a>(cells: impl Iterator<Item = (&'a str, bool)>) -> Result<Locale, String> {
    type Found<'a> = Option<(Locale, &'a str)>;
    fn agree<'a>(found: &mut Found<'a>, locale: Locale, cell: &'a str) -> Result<(), String> {
        match found.replace((locale, cell)) {
            Some((other, example)) if other != locale => {
                Err(format!("numbers are written in two ways: `{example}` and `{cell}`"))
            }
            _ => Ok(()),
        }
    }
    let (mut found, mut counted): (Found<'_>, Found<'_>) = (None, None);
    let mut ambiguous: Option<&str> = None;
    for (cell, whole) in cells {
        match vote(cell) {
            Vote::For(l) => agree(&mut found, l, cell)?,
            Vote::Ambiguous if whole => {
                let l = if cell.contains('.') { Locale::Comma } else { Locale::Point };
                agree(&mut counted, l, cell)?;
            }
            Vote::Ambiguous => ambiguous = Some(cell),
            Vote::None => {}
        }
    }
    match (found.or(counted).map(|(l, _)| l), ambiguous) {
        (Some(l), _) => Ok(l),
        (None, Some(cell)) => Err(format!(
            "`{cell}` may be a thousand or a fraction, and no other number tells; export with LC_ALL=C and --print-units base"
        )),
        (None, None) => Ok(Locale::Point),
    }
}

/// A number in a locale; `None` for `n/a`, empty cells and text.
pub(super) fn number(cell: &str, locale: Locale) -> Option<f64> {
    let cell = ungrouped(cell);
    let plain: String = match locale {
        Locale::Point => cell.replace(',', ""),
        Locale::Comma => cell.replace('.', "").replace(',', "."),
    };
    if !plain.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) {
        return None;
    }
    plain.parse::<f64>().ok().filter(|v| v.is_finite())
}

/// A whole number in a locale, its thousands grouped by three or not at all; `None` for a fraction, and for three digits
/// behind the decimal mark, which are thousands of another locale.
pub(super) fn whole(cell: &str, locale: Locale) -> Option<f64> {
    let (group, decimal) = match locale {
        Locale::Point => (',', '.'),
        Locale::Comma => ('.', ','),
    };
    let (integer, fraction) = cell.trim().split_once(decimal).unwrap_or((cell, ""));
    (fraction.len() != 3 && fraction.chars().all(|c| c == '0')).then(|| grouped(integer, group)).flatten()
}

/// Whether a cell is a whole number, however the file writes thousands: a launch's id, a part of its size.
pub(super) fn is_whole(cell: &str) -> bool {
    [',', '.'].into_iter().any(|mark| grouped(cell, mark).is_some())
}

/// Digits, in groups of three where `mark`, a space or an apostrophe stands between them.
fn grouped(cell: &str, mark: char) -> Option<f64> {
    let between = |c: char| c == mark || c.is_whitespace() || ['\'', '\u{2019}'].contains(&c);
    let groups: Vec<&str> = cell.trim().split(between).collect();
    let digits = groups.iter().all(|g| !g.is_empty() && g.chars().all(|c| c.is_ascii_digit()));
    let by_three = groups.len() == 1 || groups[0].len() <= 3 && groups[1..].iter().all(|g| g.len() == 3);
    if digits && by_three { groups.concat().parse().ok() } else { None }
}

/// The three parts of a launch's size, `(112, 1, 1)`, as they are written. Where commas group thousands too, a blank
/// follows only those between parts.
pub(super) fn dimensions(size: &str) -> Option<[&str; 3]> {
    let inner = size.trim().trim_start_matches('(').trim_end_matches(')');
    [";", ", ", ","].into_iter().find_map(|between| {
        let parts: Vec<&str> = inner.split(between).map(str::trim).collect();
        <[&str; 3]>::try_from(parts).ok()
    })
}

/// The factor from an export's unit to the base one (bytes, ns, Hz, percent, counts); `None` for an unknown unit.
pub(super) fn factor(unit: &str) -> Option<f64> {
    let unit = unit.trim();
    let (top, bottom) = match unit.split_once('/') {
        Some((top, bottom)) => (top, Some(bottom)),
        None => (unit, None),
    };
    let lower = top.to_lowercase();
    let base = |name: &str| ["byte", "hz", "cycle", "inst", "sector", "flop"].contains(&name);
    let top = match lower.as_str() {
        "ns" | "nsecond" => 1.0,
        "us" | "usecond" => 1e3,
        "ms" | "msecond" => 1e6,
        "s" | "second" => 1e9,
        name if base(name) => 1.0,
        "" | "%" | "request" | "warp" | "thread" | "block" | "register" | "wave" | "bank" | "tile" | "sm"
        | "cluster" | "pass" => 1.0,
        name => match (name.chars().next(), name.get(1..)) {
            (Some('k'), Some(rest)) if base(rest) => 1e3,
            (Some('m'), Some(rest)) if base(rest) => 1e6,
            (Some('g'), Some(rest)) if base(rest) => 1e9,
            (Some('t'), Some(rest)) if base(rest) => 1e12,
            _ => return None,
        },
    };
    Some(match bottom.map(str::to_lowercase).as_deref() {
        None => top,
        // Rates a time are kept a second.
        Some("s" | "second") => top,
        Some("ms" | "msecond") => top * 1e3,
        Some("us" | "usecond") => top * 1e6,
        Some("ns" | "nsecond") => top * 1e9,
        Some("block" | "thread" | "request" | "cycle" | "inst" | "warp" | "sm" | "sector") => top,
        Some(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locale_is_read_from_the_file_or_refused() {
        let of = |cells: &[&str]| locale(cells.iter().map(|c| (*c, false)));
        assert_eq!(of(&["4,963,609,951.19", "n/a", ""]), Ok(Locale::Point));
        assert_eq!(of(&["27.595.520", "65,77"]), Ok(Locale::Comma));
        assert_eq!(of(&["117.344", "65,77"]), Ok(Locale::Comma));
        assert_eq!(of(&["117.344", "65.77"]), Ok(Locale::Point));
        assert_eq!(of(&["4.0e-05"]), Ok(Locale::Point));
        assert_eq!(of(&["0.125", "12"]), Ok(Locale::Point));
        assert!(of(&["117.344", "12"]).unwrap_err().contains("LC_ALL=C"));
        assert!(of(&["1.5", "1,5"]).unwrap_err().contains("two ways"));
        // What is counted whole has no fraction, but other numbers come first.
        assert_eq!(locale([("1.024", true), ("117.344", false)].into_iter()), Ok(Locale::Comma));
        assert_eq!(locale([("1,024", true), ("117.344", false)].into_iter()), Ok(Locale::Point));
        assert_eq!(locale([("1.024", true), ("65.77", false)].into_iter()), Ok(Locale::Point));
        assert!(locale([("1.024", true), ("1,024", true)].into_iter()).unwrap_err().contains("two ways"));
    }

    #[test]
    fn whole_numbers_are_grouped_by_three_and_have_no_fraction() {
        use Locale::{Comma, Point};
        for (cell, locale, value) in [
            ("1024", Point, Some(1024.0)),
            ("1,024", Point, Some(1024.0)),
            ("1.024", Comma, Some(1024.0)),
            ("1\u{202f}024", Comma, Some(1024.0)),
            ("1'048'576", Point, Some(1_048_576.0)),
            ("168.00", Point, Some(168.0)),
            ("1.024", Point, None),
            ("1.000", Point, None),
            ("1,024", Comma, None),
            ("1,02", Point, None),
            ("1024,1", Point, None),
            ("1 02", Point, None),
            ("-8", Point, None),
            ("8.5", Point, None),
            ("", Point, None),
        ] {
            assert_eq!(whole(cell, locale), value, "{cell} {locale:?}");
        }
        assert_eq!(dimensions("(1,024, 1, 1)"), Some(["1,024", "1", "1"]));
        assert_eq!(dimensions("( 32,8,1 )"), Some(["32", "8", "1"]));
        assert_eq!(dimensions("(1.024; 1; 1)"), Some(["1.024", "1", "1"]));
        assert_eq!(dimensions("(1,024,8,1)"), None);
    }

    #[test]
    fn numbers_and_units_become_base_values() {
        for (cell, locale, value) in [
            ("4,963,609,951.19", Locale::Point, Some(4_963_609_951.19)),
            ("27.595.520", Locale::Comma, Some(27_595_520.0)),
            ("4\u{202f}963\u{a0}609,5", Locale::Comma, Some(4_963_609.5)),
            ("4'963'609.5", Locale::Point, Some(4_963_609.5)),
            ("65,77", Locale::Comma, Some(65.77)),
            ("4.0e-05", Locale::Point, Some(4e-5)),
            ("n/a", Locale::Point, None),
            ("", Locale::Point, None),
            ("nan", Locale::Point, None),
        ] {
            assert_eq!(number(cell, locale), value, "{cell}");
        }
        for (unit, wanted) in [
            ("ns", Some(1.0)),
            ("usecond", Some(1e3)),
            ("Mbyte", Some(1e6)),
            ("Gbyte/s", Some(1e9)),
            ("Ghz", Some(1e9)),
            ("cycle/nsecond", Some(1e9)),
            ("Kbyte/block", Some(1e3)),
            ("register/thread", Some(1.0)),
            ("pass", Some(1.0)),
            ("cluster", Some(1.0)),
            ("%", Some(1.0)),
            ("", Some(1.0)),
            ("furlong", None),
        ] {
            assert_eq!(factor(unit), wanted, "{unit}");
        }
    }

    #[test]
    fn every_byte_order_mark_is_taken_off() {
        let wide: Vec<u8> = "\u{feff}ab".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for bytes in [b"ab".as_slice(), b"\xEF\xBB\xBFab", &wide] {
            assert_eq!(decode(bytes), "ab");
        }
    }
}
