//! Kernels for a machine with no compiler tools: PTX that the driver assembles. Nobody sees the machine code, so
//! what its window holds is taken to be what the spec means, and whatever is measured on it must say so.

use super::{Prepared, PreparedPart, jobs, module_text, parts};
use crate::ptx;
use crate::spec::Spec;
use crate::verify::{Counts, FormCode, PerOp, Window};
use kbt_device::Arch;
use kbt_evidence::{Known, Provenance};
use std::collections::BTreeMap;

/// Operations in the smaller body. Twice as many, with what goes with them, stay below the instruction cache's
/// knee, which here nobody checks.
const UNROLL: u32 = 64;

/// As [`super::prepare`], with the PTX in place of the cubin. Only the forms that need no other instruction on
/// the way back are made, and compound operations: of others only the machine code could tell the net rate.
#[must_use]
pub fn prepare_unverified(
    spec: &Spec,
    arch: Arch,
    chains: &[u32],
    only: &(dyn Fn(&str) -> bool + Sync),
) -> Vec<Prepared> {
    jobs(spec, arch, only)
        .into_iter()
        .filter(|(_, parts)| parts.len() == 1)
        .map(|(form, parts)| taken_as_meant(&form, &parts, arch, chains))
        .collect()
}

fn taken_as_meant(form: &str, prepared: &[PreparedPart], arch: Arch, chains: &[u32]) -> Prepared {
    let mut result = Prepared::nothing_yet(form, prepared);
    let Some(part) = prepared.first() else { return result };
    if (form != "clean" && !part.entry.compound) || !part.chain.back.is_empty() {
        let why =
            "this form's other instructions are known only from its machine code, and there is no toolkit";
        result.refused.push((None, why.to_owned()));
        return result;
    }
    let list = parts(prepared);
    let unroll = part.chain.unroll.min(UNROLL.max(8 * part.chain.ops));
    let plans: Vec<_> = chains.iter().map(|&c| ptx::plans(form, &list, unroll, c)).collect();
    result.cubin = module_text(arch, prepared, &list, &plans).into_bytes();
    result.digest = super::digest(&result.cubin);
    let meant = PerOp { opcode: part.entry.name.clone(), pipe: None, count: 1.0, target: true };
    for plans in plans {
        let ops = i64::from(plans[0].ops[0]);
        result.verified.push(super::Verified {
            chains: plans[0].chains,
            code: FormCode { per_op: vec![meant.clone()], back: Vec::new(), ops, length: 0 },
            plans,
            window: Window {
                body: Counts::new(),
                edge: Counts::new(),
                pipes: BTreeMap::new(),
                length: 0,
                instructions: Vec::new(),
            },
        });
    }
    result
}

/// What a measurement on such a kernel rests on: its time is measured, what it is the time of is assumed.
#[must_use]
pub fn as_unverified(measured: &Provenance) -> Provenance {
    let mut provenance = measured.clone();
    provenance.kind = Known::Assumed;
    provenance.by = format!(
        "UNVERIFIED: {}; assembled by the driver, its machine code was not seen, and the window is taken to hold \
         what the PTX says",
        measured.by
    );
    provenance
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_tools_only_forms_that_need_no_machine_code_are_made_and_nothing_is_called_measured() {
        let spec = Spec::embedded().unwrap();
        let names = ["fma.rn.f32", "setp.lt.f32", "div.rn.f32"];
        let made = prepare_unverified(&spec, Arch::SM_90A, &[1, 8], &|n| names.contains(&n));
        let by = |name: &str| made.iter().find(|p| p.parts[0].entry.name == name).unwrap();
        assert_eq!(by("fma.rn.f32").verified.len(), 2);
        assert_eq!(by("div.rn.f32").verified.len(), 2);
        assert!(by("setp.lt.f32").refusal().unwrap().contains("machine code"));
        let text = String::from_utf8(by("fma.rn.f32").cubin.clone()).unwrap();
        assert!(text.starts_with(".version") && text.contains("clean_c8_u2"), "{text}");
        let p = as_unverified(&Provenance::measured("kbt microbench run", "NVIDIA H200", "2026-01-01"));
        assert!(!p.kind.is_measurement() && p.by.starts_with("UNVERIFIED"), "{p}");
        assert_eq!(p.device.as_deref(), Some("NVIDIA H200"));
    }
}
