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

/// The fix of a candidate, less what the sheet says was done.
pub(crate) fn fix(candidate: &CandidateSpec, case: &Case<'_>) -> String {
    if candidate.id == "launch_overhead" && replayed(case) {
        return "fuse the chain, or batch the calls: it is replayed from a CUDA graph already".to_owned();
    }
    candidate.fix.to_owned()
}

/// The factor of an experiment where the sheet says that the usual one was changed already, or the operator has another.
pub(crate) fn factor(candidate: &CandidateSpec, case: &Case<'_>) -> Option<&'static str> {
    match (candidate.id, case.work.kind) {
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
