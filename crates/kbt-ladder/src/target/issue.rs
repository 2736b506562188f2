//! How many issue slots the kernel's machine code takes for one element, so that the triage can hold them against what the
//! target file says, or does not say, of its operations.

use super::TargetTuner;
use kbt_device::DeviceProfile;
use kbt_evidence::Provenance;
use kbt_roofline::{FactSheet, OperatorKind};
use kbt_sass::metrics::{Analysis, provenance};
use kbt_sass::{Function, Interval, Listing, LoopKind, Unit, bound_of_function, bound_of_loop};

impl TargetTuner<'_> {
    /// The facts with the issue slots of an element, where the machine code is this build's and tells them.
    pub(super) fn with_issue_slots(&mut self, mut sheet: FactSheet) -> FactSheet {
        let Some(width) = widths(&sheet) else { return sheet };
        // A step of its own says what is wrong with the machine code.
        let (Ok(profile), Ok(code)) = (self.profile(), self.code()) else { return sheet };
        let slots = code.kernel().and_then(|f| slots_an_element(f, &code.listing, &profile, &width));
        let Some(slots) = slots.filter(|_| code.stale.is_none()) else { return sheet };
        let counted = provenance(&code.listing);
        let known = match &sheet.implementation {
            None => counted,
            Some(stated) => {
                let given = || Provenance::given(sheet.origin.clone());
                let stated = stated.provenance.clone().unwrap_or_else(given);
                let from = [("the machine code", &counted), ("implementation", &stated)];
                Provenance::computed("issue slots counted in the machine code, the rest as stated", from)
            }
        };
        let implementation = sheet.implementation.get_or_insert_default();
        if implementation.issue_slots_per_element.is_none() {
            implementation.issue_slots_per_element = Some(slots);
            implementation.uncounted_loop = code.kernel().and_then(arithmetic_alone);
            implementation.provenance = Some(known);
        }
        sheet
    }
}

/// A loop of floating-point arithmetic without an access to memory: neither the bytes nor one trip of it tell how much
/// there is.
fn arithmetic_alone(function: &Function) -> Option<String> {
    const ARITHMETIC: &[&str] = &[
        "FFMA", "FFMA2", "FADD", "FADD2", "FMUL", "FMUL2", "MUFU", "DFMA", "DADD", "DMUL", "HFMA2", "HADD2",
        "HMUL2",
    ];
    const MEMORY: &[&str] = &["LD", "ST", "ATOM", "RED", "UBLKCP", "UTMA", "SYNCS", "UTC"];
    let analysis = Analysis::new(function, &Unit::mufu(), &Unit::f2fp());
    let found = analysis.loops.iter().enumerate().find(|(_, l)| {
        let all = || l.body.indices().filter_map(|i| function.instructions.get(i)).map(|i| i.mnemonic());
        l.kind == LoopKind::User
            && all().any(|m| ARITHMETIC.contains(&m))
            && !all().any(|m| MEMORY.iter().any(|of| m.starts_with(of)))
    });
    found.map(|(i, _)| analysis.loop_name(i).to_owned())
}

/// Bytes of an element.
struct Widths {
    /// What is stored for it.
    stored: f64,
    /// The narrowest of what is read.
    read: f64,
}

/// Only of operators that store one element for each that they read.
fn widths(sheet: &FactSheet) -> Option<Widths> {
    let operator = sheet.operator.as_ref()?;
    if !matches!(operator.kind?, OperatorKind::Elementwise | OperatorKind::Normalization) {
        return None;
    }
    let dtypes = sheet.dtypes.as_ref()?;
    let inputs = dtypes.inputs.as_deref().unwrap_or_default();
    let output = dtypes.output.or_else(|| inputs.first().copied())?;
    let stored = output.bytes(operator.outputs.unwrap_or(1.0));
    let read = inputs.iter().map(|d| d.bytes(1.0)).min_by(f64::total_cmp).unwrap_or(stored);
    Some(Widths { stored, read })
}

/// The fewest issue slots an element: of the loops that store, and of each loop beside them that reads and does not, which
/// is taken to pass over every element too; where no loop stores, of what the whole function must execute once. An inner
/// loop counts as one trip, so that this is the least.
fn slots_an_element(
    function: &Function,
    listing: &Listing,
    profile: &DeviceProfile,
    width: &Widths,
) -> Option<f64> {
    let analysis = Analysis::new(function, &Unit::mufu(), &Unit::f2fp());
    let moved = |part: &Interval, opcode: &str| -> f64 {
        part.indices().filter_map(|i| moved_bytes(function, i, opcode)).sum()
    };
    let of = |bound: &kbt_sass::Bound, part: &Interval| {
        let stored = moved(part, "STG");
        (stored > 0.0).then(|| bound.issue_cycles / stored * width.stored)
    };
    let (mut storing, mut passes): (Option<f64>, f64) = (None, 0.0);
    for (i, of_loop) in analysis.loops.iter().enumerate() {
        let (bound, part) = bound_of_loop(&analysis, i, profile, 1, listing);
        let read = moved(&part, "LDG");
        match of(&bound, &part) {
            Some(slots) => storing = Some(storing.map_or(slots, |least: f64| least.min(slots))),
            None if of_loop.parent.is_none() && read > 0.0 => {
                passes += bound.issue_cycles / read * width.read;
            }
            None => {}
        }
    }
    storing.map(|slots| slots + passes).or_else(|| {
        let (bound, part) = bound_of_function(&analysis, profile, 1, listing);
        of(&bound, &part)
    })
}

/// Bytes that an instruction of an opcode moves to or from global memory; 4 where it names no width.
fn moved_bytes(function: &Function, index: usize, opcode: &str) -> Option<f64> {
    let mut parts = function.instructions.get(index)?.opcode().split('.');
    if parts.next() != Some(opcode) {
        return None;
    }
    let width = |m: &str| match m {
        "U8" | "S8" => Some(1.0),
        "U16" | "S16" => Some(2.0),
        "64" => Some(8.0),
        "128" => Some(16.0),
        "256" => Some(32.0),
        _ => None,
    };
    Some(parts.find_map(width).unwrap_or(4.0))
}
