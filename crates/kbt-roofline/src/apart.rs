//! Candidates that claim the same time, and what would tell them apart.

use crate::outcome::{CandidateRow, CandidateStanding as Standing};

/// Two candidates that nothing speaks against and that claim more than the whole time between them claim the same time:
/// the later one says what would tell it from the first.
pub(crate) fn tell(rows: &mut [CandidateRow]) {
    /// More than a whole by this is no rounding.
    const OVER: f64 = 1.05;
    let Some((first, rest)) = rows.split_first_mut() else { return };
    let Some(of_first) = first.share.as_ref().filter(|_| first.standing == Standing::Supported) else {
        return;
    };
    for row in rest.iter_mut().filter(|r| r.standing == Standing::Supported) {
        let Some(own) = row.share.as_ref().filter(|own| own.value + of_first.value > OVER) else { continue };
        row.needed.insert(
            0,
            format!(
                "an experiment on {} alone: it claims {:.0} % of the time and this candidate {:.0} %, part of it twice; what that experiment takes is not this one's",
                first.candidate,
                of_first.value * 100.0,
                own.value * 100.0
            ),
        );
    }
}
