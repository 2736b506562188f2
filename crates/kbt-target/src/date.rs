//! The date that goes with a measurement. Nothing else of calendars is needed.

use std::time::{SystemTime, UNIX_EPOCH};

/// Today in UTC as an ISO date.
#[must_use]
pub fn today() -> String {
    day_of(SystemTime::now())
}

/// The day of a moment in UTC as an ISO date.
pub(crate) fn day_of(moment: SystemTime) -> String {
    iso_date(moment.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()) / 86_400)
}

/// The ISO date of a day counted from 1970-01-01, by whole 400-year cycles of 146097 days that begin in March.
fn iso_date(day: u64) -> String {
    let day = day + 719_468;
    let (era, in_era) = (day / 146_097, day % 146_097);
    let year = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    let month = (5 * in_year + 2) / 153;
    let day = in_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + carry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_the_dates_of_the_calendar() {
        for (day, date) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (19_782, "2024-02-29"),
            (20_787, "2026-11-30"),
        ] {
            assert_eq!(iso_date(day), date);
        }
    }
}
