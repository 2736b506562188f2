//! Numbers as people read them: the digits that matter, SI prefixes, thousands apart. How a number is known is not
//! here; see `doc`.

use kbt_evidence::{Figure, Unit};

/// Significant digits of a measured figure; a spread of a percent or two makes more of them noise.
const DIGITS: i32 = 4;

/// A number without a unit.
pub(crate) fn plain(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() {
            "not a number".into()
        } else {
            format!("{}∞", if value < 0.0 { "−" } else { "" })
        };
    }
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-3..1e9).contains(&magnitude) {
        return scientific(value);
    }
    #[expect(clippy::cast_possible_truncation, reason = "between -3 and 9")]
    let decimals = if magnitude == 0.0 { 0 } else { (DIGITS - 1 - magnitude.log10().floor() as i32).max(0) };
    let text = format!("{:.*}", decimals.unsigned_abs() as usize, value);
    grouped(&trimmed(&text))
}

/// A count of things.
pub(crate) fn count(value: u64) -> String {
    grouped(&value.to_string())
}

/// A share of one as a percentage.
pub(crate) fn percent(ratio: f64) -> String {
    of_percent(100.0 * ratio)
}

/// A number that is a percentage already.
pub(crate) fn of_percent(value: f64) -> String {
    let text = match value.abs() {
        m if m >= 100.0 => format!("{value:.0}"),
        m if m >= 10.0 || m == 0.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    format!("{} %", grouped(&trimmed(&text)))
}

/// A ratio of times or rates: three decimals, so that a percent is seen.
pub(crate) fn ratio(value: f64) -> String {
    if value.abs() < 100.0 { format!("{value:.3}×") } else { format!("{}×", plain(value)) }
}

/// Cycles: tenths only where there are few, more only below one.
pub(crate) fn cycles(value: f64) -> String {
    match value.abs() {
        m if m.is_nan() => "unknown".to_owned(),
        m if m < 1.0 => plain(value),
        m if m < 100.0 => trimmed(&format!("{value:.1}")),
        _ => grouped(&format!("{value:.0}")),
    }
}

/// An error: always in powers of ten.
pub(crate) fn scientific(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let text = format!("{value:.2e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    format!("{mantissa}e{exponent}")
}

/// A number in its unit.
pub(crate) fn in_unit(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Cycles => format!("{} clk", cycles(value)),
        Unit::Bytes | Unit::BytesPerSecond | Unit::Flop | Unit::FlopPerSecond => si(value, unit.symbol()),
        Unit::Microseconds => time(value),
        Unit::Seconds if value == 0.0 => "0 s".into(),
        Unit::Seconds if (1e-3..1.0).contains(&value.abs()) => format!("{} ms", plain(value * 1e3)),
        Unit::Seconds => time(value * 1e6),
        Unit::Ratio => trimmed(&format!("{value:.3}")),
        Unit::Percent => of_percent(value),
        Unit::RelativeError => scientific(value),
        Unit::Count => plain(value),
        other => format!("{} {}", plain(value), other.symbol()),
    }
}

/// A figure's number, without its name.
pub(crate) fn figure(figure: &Figure) -> String {
    in_unit(figure.value, figure.unit)
}

/// The interval of a figure and what it is: `398 to 405 µs, p10 to p90 of 30 launches`.
pub(crate) fn spread(figure: &Figure) -> Option<String> {
    let s = figure.spread.as_ref()?;
    let what = if s.what.is_empty() { String::new() } else { format!(", {}", s.what) };
    Some(format!("{} to {}{what}", in_unit(s.low, figure.unit), in_unit(s.high, figure.unit)))
}

/// A time given in microseconds.
pub(crate) fn time(us: f64) -> String {
    match us.abs() {
        m if m >= 1e6 => format!("{} s", plain(us / 1e6)),
        m if m >= 1e4 => format!("{} ms", plain(us / 1e3)),
        m if m < 0.1 && m > 0.0 => format!("{} ns", plain(us * 1e3)),
        _ => format!("{} µs", plain(us)),
    }
}

/// A number with a decimal prefix before its unit.
pub(crate) fn si(value: f64, symbol: &str) -> String {
    const PREFIXES: [(f64, &str); 5] = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    // A prefix only from ten thousand on: 9,216 B of shared memory is read more easily than 9.216 kB.
    let found = PREFIXES.iter().find(|(size, _)| value.abs() >= *size).filter(|_| value.abs() >= 1e4);
    match found {
        Some((size, prefix)) => format!("{} {prefix}{symbol}", plain(value / size)),
        None => format!("{} {symbol}", plain(value)),
    }
}

fn trimmed(text: &str) -> String {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text.to_owned()
    }
}

/// Thousands apart, from five digits on.
fn grouped(text: &str) -> String {
    let (sign, rest) = text.strip_prefix('-').map_or(("", text), |r| ("−", r));
    let (whole, fraction) = rest.split_once('.').map_or((rest, None), |(w, f)| (w, Some(f)));
    let mut out = sign.to_owned();
    for (i, digit) in whole.chars().enumerate() {
        if whole.len() > 4 && i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    match fraction {
        Some(fraction) => format!("{out}.{fraction}"),
        None => out,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_matter() {
        for (value, text) in [
            (0.0, "0"),
            (16.0, "16"),
            (0.954_41, "0.9544"),
            (2048.4, "2048"),
            (131_072.0, "131,072"),
            (-3.5, "−3.5"),
            (4.3e12, "4.30e12"),
            (0.000_012, "1.20e-5"),
            (f64::NAN, "not a number"),
            (f64::NEG_INFINITY, "−∞"),
        ] {
            assert_eq!(plain(value), text);
        }
    }

    #[test]
    fn units_take_their_usual_form() {
        for (value, unit, text) in [
            (4.8e12, Unit::BytesPerSecond, "4.8 TB/s"),
            (989.4e12, Unit::FlopPerSecond, "989.4 TFLOP/s"),
            (9216.0, Unit::Bytes, "9216 B"),
            (412.35, Unit::Microseconds, "412.4 µs"),
            (12_345.0, Unit::Microseconds, "12.35 ms"),
            (2.5e-6, Unit::Seconds, "2.5 µs"),
            (0.8123, Unit::Ratio, "0.812"),
            (4.868, Unit::Percent, "4.87 %"),
            (0.002_34, Unit::RelativeError, "2.34e-3"),
            (2317.6, Unit::Cycles, "2318 clk"),
            (12.34, Unit::Cycles, "12.3 clk"),
            (0.1875, Unit::Cycles, "0.1875 clk"),
            (0.001, Unit::Seconds, "1 ms"),
            (15.98, Unit::LanesPerClkSm, "15.98 lanes/clk/SM"),
            (60.0, Unit::Count, "60"),
        ] {
            assert_eq!(in_unit(value, unit), text);
        }
    }

    #[test]
    fn a_spread_says_what_it_is() {
        let p = kbt_evidence::Provenance::assumed("x");
        let f = Figure::new("t", 400.0, Unit::Microseconds, p).with_spread(
            398.0,
            405.0,
            "p10 to p90 of 30 launches",
        );
        assert_eq!(spread(&f).unwrap(), "398 µs to 405 µs, p10 to p90 of 30 launches");
    }
}
