//! The machine code against the operator's bytes: a kernel whose instructions take longer to issue than its bytes take to
//! move is no memory-bound one, whatever number of operations its fact sheet states or leaves out.

use crate::bounds::Accounts;
use crate::facts::{FactSheet, OperatorKind};
use crate::outcome::{Contradiction, InitialCall, Resource};
use crate::triage::NEAR_RIDGE;
use crate::work::Work;
use kbt_evidence::{Figure, Unit};

/// The name of the figure of such a contradiction.
pub(crate) const ISSUE_OVER_BYTES: &str = "issue time over byte time";
/// A fused multiply-add, of which the roof of fp32 arithmetic consists, is two operations in one issue slot.
const FLOP_A_SLOT: f64 = 2.0;

/// What the issue slots that were counted in the machine code say against a call on the memory side.
pub(crate) fn against_memory(
    sheet: &FactSheet,
    work: &Work,
    accounts: &Accounts,
    initial: &InitialCall,
) -> Option<Contradiction> {
    let slots = sheet.implementation.as_ref()?.issue_slots_per_element?;
    let s = sheet.shape.as_ref()?;
    let elements = match work.kind {
        OperatorKind::Elementwise => s.elements?,
        OperatorKind::Normalization => s.rows?.checked_mul(s.columns?)?,
        _ => return None,
    };
    // Four schedulers of an SM issue to 32 lanes each, as many as its fp32 pipes have.
    let fp32 = work.parts.iter().all(|p| !p.tensor && p.math == crate::MathType::Fp32);
    let roof = accounts.compute_roof.as_ref().filter(|_| fp32)?;
    let counted =
        sheet.figure("implementation.issue_slots_per_element", "issue slots an element", slots, Unit::Count);
    let issue = Figure::computed(
        "issue time",
        elements as f64 * slots / (roof.value / FLOP_A_SLOT) * 1e6,
        Unit::Microseconds,
        "elements x issue slots an element, at the rate of fp32 multiply-adds",
        &[&counted, roof],
    );
    let bytes = &accounts.bound(Resource::Hbm)?.time;
    let ratio = issue.value / bytes.value;
    // A count that the measured time beats is no count of this launch.
    let beaten = accounts.time_us.as_ref().is_some_and(|t| issue.value > t.value * 1.1);
    // A time as short as that of the bytes settles the matter, and so do operations that somebody counted.
    let stated = sheet.operator.as_ref().is_some_and(|o| o.flop_per_element.is_some());
    let near = accounts.time_us.as_ref().is_some_and(|t| t.value <= NEAR_RIDGE * bytes.value);
    let uncounted = sheet.implementation.as_ref().and_then(|i| i.uncounted_loop.as_ref());
    let uncounted = uncounted.filter(|_| !stated && !near);
    // Where nothing was timed, the initial call is all there is: slots that take longer than the bytes leave none.
    let most = if accounts.time_us.is_some() { NEAR_RIDGE } else { 1.0 };
    let few = ratio <= most || beaten;
    if initial.ridge.value <= initial.intensity.value || (few && uncounted.is_none()) {
        return None;
    }
    let what = match uncounted {
        Some(name) if few => format!(
            "{name} of the machine code computes and moves nothing, and how often it runs for an element is not known: the {:.3} operations an element that are assumed may be far too few; state flop_per_element",
            work.flop.value / elements as f64,
        ),
        _ => format!(
            "the machine code takes at least {slots:.0} issue slots an element: {:.1} us for {elements} elements at the device's issue rate, {ratio:.1} x the {:.1} us of their bytes; the fact sheet's {:.3} operations an element do not explain them",
            issue.value,
            bytes.value,
            work.flop.value / elements as f64,
        ),
    };
    Some(Contradiction {
        what,
        figure: Figure::computed(
            ISSUE_OVER_BYTES,
            ratio,
            Unit::Ratio,
            "issue time over the time that the useful bytes take",
            &[&issue, bytes],
        ),
        causes: vec![
            "the kernel does more operations an element than were counted: state flop_per_element".to_owned(),
            "the issue slots are spent on what is not arithmetic: addresses, conversions, predicates"
                .to_owned(),
        ],
        settle_first: true,
    })
}
