//! What the sheet states that a candidate cannot be: an operator without exp2, a call of one kernel, a time without
//! communication. Such a candidate is not offered against the facts.

use crate::bounds;
use crate::candidates::CandidateSpec;
use crate::facts::{OperatorKind as K, TimingMethod};
use crate::signals::Signal as S;
use crate::triage::Case;

/// From this long on, the one launch of a call is no part of its time worth an experiment.
const LONG_US: f64 = 50.0;

/// Why the facts rule a candidate out, where they do.
pub(crate) fn against(id: &str, case: &Case<'_>) -> Option<String> {
    let timing = case.sheet.timing.clone().unwrap_or_default();
    let implementation = case.sheet.implementation.clone().unwrap_or_default();
    let kind = case.work.kind;
    let map = matches!(kind, K::Elementwise | K::Reduction | K::Normalization);
    let read = |signal| case.signals.get(signal).is_some();
    if let ("hbm_bandwidth", Some(l2)) = (id, case.accounts.may_fit) {
        let fits = bounds::fits(case.work, l2);
        return Some(format!("{fits}: a repeated call may find them there and not wait for device memory"));
    }
    let why = match id {
        "communication" if timing.communication_included == Some(false) => {
            "no communication is inside the time, as stated"
        }
        "launch_overhead" if replayed(case) && ![S::HostGap, S::SubmissionShare].iter().any(|s| read(*s)) => {
            "the time is of CUDA graph replays, as stated: the host submits no kernel of it by itself"
        }
        "launch_overhead"
            if timing.kernels == Some(1.0)
                && timing.median_us.is_some_and(|us| us >= LONG_US)
                && ![S::HostGap, S::SubmissionShare].iter().any(|s| read(*s)) =>
        {
            "one kernel a call, as stated, and a call far longer than a launch"
        }
        "tile_waste" if map && implementation.tile_m.is_none() => "the operator has no tiles to pad",
        "role_imbalance" if implementation.warp_specialized == Some(false) => "no warp has a role, as stated",
        "role_imbalance" if map && implementation.warp_specialized.is_none() && !read(S::RoleBusy) => {
            "an operator of this kind has no warp roles, and none are stated"
        }
        "xu_pipe" if matches!(kind, K::Reduction | K::Gemm | K::Convolution) && !read(S::XuBusy) => {
            "the operator has neither exp2 nor reciprocals"
        }
        "no_matrix_instructions" if !case.work.parts.iter().any(|p| p.tensor) => {
            "the operator's arithmetic is not tensor-core work"
        }
        "host_device_transfers" if timing.host_transfer_us == Some(0.0) => {
            "no host-device transfer is inside the time, as stated"
        }
        _ => return None,
    };
    Some(why.to_owned())
}

/// Whether the call is replayed from a CUDA graph already.
fn replayed(case: &Case<'_>) -> bool {
    case.sheet.timing.as_ref().is_some_and(|t| t.method == Some(TimingMethod::CudaGraph))
}

/// Whether the largest tensor is stored in no more bits than those that the sheet states to suffice.
fn as_narrow_as_suffices(case: &Case<'_>) -> bool {
    let Some(d) = &case.sheet.dtypes else { return false };
    let stored = case.work.largest().and_then(|t| t.read_as.or(d.output));
    matches!((stored, d.sufficient), (Some(now), Some(enough)) if now.storage_bits() <= enough.storage_bits())
}

/// The fix of a candidate, less what the sheet says was done.
pub(crate) fn fix(candidate: &CandidateSpec, case: &Case<'_>) -> String {
    if candidate.id == "hbm_bandwidth" && as_narrow_as_suffices(case) {
        return "move fewer useful bytes: fusion with a neighbour, reuse across calls; the format is as narrow as suffices, as stated".to_owned();
    }
    if candidate.id == "launch_overhead" && replayed(case) {
        return "fuse the chain, or batch the calls: it is replayed from a CUDA graph already".to_owned();
    }
    candidate.fix.to_owned()
}

/// The factor of an experiment where the sheet says that the usual one was changed already, or the operator has another.
pub(crate) fn factor(candidate: &CandidateSpec, case: &Case<'_>) -> Option<&'static str> {
    match (candidate.id, case.work.kind) {
        ("hbm_bandwidth", _) if as_narrow_as_suffices(case) => Some(
            "halve the bytes of the largest tensor ({tensor}: store it in half the width; wrong results, right timing, as its format is as narrow as suffices), same arithmetic and grid",
        ),
        ("launch_overhead", _) if replayed(case) => Some(
            "replay a graph of ten calls, and divide by ten: the call is replayed from a CUDA graph already",
        ),
        ("too_few_ctas", K::Attention) => Some(
            "{parts} times the CTAs by splitting the keys in {parts} (with the reduction of maxima and sums), same tile",
        ),
        ("too_few_ctas", K::Counts) => Some(
            "{parts} times the CTAs, each with its part of the work (of a sum: with the reduction between them)",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::{Ceilings, FactSheet, part, triage};

    #[test]
    fn a_format_that_is_as_narrow_as_suffices_is_not_to_be_halved() {
        let stated = |sufficient: &str| {
            let text = format!(
                "operator: {{kind: elementwise, flop_per_element: 2, inputs: 2}}\nshape: {{elements: 268435456}}\n\
                 dtypes: {{inputs: [fp32], output: fp32{sufficient}}}\ndataflow: {{reuse: none}}\n\
                 timing: {{median_us: 1050, method: cuda_events, communication_included: false}}\n"
            );
            let sheet = FactSheet::from_yaml(&text, "f.yaml").unwrap();
            let outcome = triage(&sheet, Some(&Ceilings::published(part("H100").unwrap())), &[]).unwrap();
            let row = outcome.evidence.iter().find(|r| r.candidate == "hbm_bandwidth").unwrap();
            let factor = outcome.experiments.iter().find(|e| e.candidate == "hbm_bandwidth");
            (
                row.fix.contains("a narrower format"),
                factor.unwrap().factor.contains("wrong results, right timing"),
            )
        };
        assert_eq!(stated(", sufficient: fp32"), (false, true));
        assert_eq!(stated(""), (true, false));
    }
}
