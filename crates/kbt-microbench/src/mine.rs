//! `mine`: rates and fixed latencies that ptxas writes into the control fields, with no GPU.
//!
//! In a stream of independent instructions of one opcode ptxas sets each stall count to the opcode's issue
//! interval on a scheduler, so the rate is 128 / interval lanes a clock and SM; in a dependent chain it sets it
//! to the fixed latency. The method is blind where ptxas leaves the timing to a scoreboard, and known to be
//! wrong for some opcodes and chips: those rows are refused, with the reason.

use crate::lowering::lowering;
use crate::prepare::{Prepared, Verified, prepare};
use crate::rows::Note;
use crate::spec::{Entry, Spec};
use kbt_device::{Arch, DeviceProfile, Pipe, RateRow};
use kbt_evidence::Provenance;
use kbt_sass::Instruction;
use kbt_toolchain::{Tool, ToolError, Toolchain};
use std::collections::BTreeMap;

/// Where the stall counts are known not to be the throughput: mnemonics (or `.MODIFIER`), compute capabilities
/// (none for all), why.
const WRONG: &[(&[&str], &[u16], &str)] = &[
    (
        &["DFMA", "DADD", "DMUL"],
        &[86, 87, 88, 89, 110, 120, 121],
        "parts for the desktop inherit the FP64 table of sm_80 (sm_86: 32 written, 2 real)",
    ),
    (
        &["HMMA", "IMMA", "QMMA", "OMMA"],
        &[86, 87, 88, 89, 110, 120, 121],
        "parts for the desktop inherit the tensor table of sm_80 (sm_120: a gap of 11 does not match its peak)",
    ),
    (&["FMNMX"], &[120, 121], "disputed: ptxas writes 128 lanes, NVIDIA's throughput table says 64"),
    (
        &["DFMA", "DADD", "DMUL", ".F64", ".S64", ".U64"],
        &[103],
        "the 64-bit paths of sm_103 are cut down, and their intervals are not written (B300: 1.6 lanes measured)",
    ),
    (&["DMMA"], &[], "its scoreboard hides the interval (A100: 31 TFLOPS written, 19.5 real)"),
    (&["MATCH"], &[], "the stall is that of the issue alone (B300: 8 written, about 375 clk measured)"),
    (
        &["REDUX", "CREDUX"],
        &[],
        "a reduction goes through the uniform datapath, whose interval is not written",
    ),
];

/// One chain for the latency, eight for the stream.
const CHAINS: [u32; 2] = [1, 8];

/// A stall this short together with a write scoreboard is no interval.
const BLIND_STALL: u32 = 3;

/// Mines a profile for a compile target.
pub fn mine(
    spec: &Spec,
    arch: Arch,
    tools: &Toolchain,
    only: &(dyn Fn(&str) -> bool + Sync),
) -> Result<(DeviceProfile, Vec<Note>), ToolError> {
    let ptxas = tools.version(Tool::Ptxas)?;
    let single = Spec { mixes: Vec::new(), ..spec.clone() };
    let prepared = prepare(&single, arch, tools, &CHAINS, only)?;
    let provenance = Provenance::mined(format!("ptxas {ptxas}, stall counts of single-opcode streams"));
    let mut profile = DeviceProfile::new(arch.to_string(), arch, Provenance::mined(format!("ptxas {ptxas}")));
    let mut notes = Vec::new();
    let mut rest = &prepared[..];
    while let Some(first) = rest.first() {
        let entry = &first.parts[0].entry;
        let forms = rest.iter().take_while(|p| p.parts[0].entry == *entry).count();
        let (row, note) = row(&rest[..forms], arch, &provenance);
        profile.rates.push(row);
        notes.push(note);
        rest = &rest[forms..];
    }
    profile.lowering = lowering(&prepared, &ptxas);
    Ok((profile, notes))
}

/// The row of one entry from its forms (at least one).
fn row(forms: &[Prepared], arch: Arch, provenance: &Provenance) -> (RateRow, Note) {
    let entry = &forms[0].parts[0].entry;
    let seen = forms.iter().find_map(Prepared::widest);
    let mut row = RateRow {
        instruction: entry.name.clone(),
        opcode: seen.and_then(|v| v.code.opcode()),
        pipe: seen.map_or(Pipe::Unknown, |v| v.code.pipe()),
        lanes_per_clk_sm: None,
        results_per_clk_sm: None,
        latency_clk: None,
        spread_percent: None,
        refused: None,
        provenance: provenance.clone(),
    };
    let mut reasoning = Vec::new();
    let mut refusals = Vec::new();
    for form in forms {
        match rate(form, entry, arch) {
            Ok((lanes, how)) => {
                reasoning.push(format!("{}: {how}", form.form));
                if row.lanes_per_clk_sm.is_none() {
                    row.lanes_per_clk_sm = Some(lanes);
                    row.results_per_clk_sm = Some(lanes * entry.results);
                    row.opcode = form.widest().and_then(|v| v.code.opcode());
                    row.pipe = form.widest().map_or(Pipe::Unknown, |v| v.code.pipe());
                }
            }
            Err(why) => {
                reasoning.push(format!("{}: {why}", form.form));
                refusals.push(why);
            }
        }
        row.latency_clk = row.latency_clk.or_else(|| latency(form, entry, arch));
    }
    if row.lanes_per_clk_sm.is_none() {
        refusals.dedup();
        row.refused = Some(refusals.join("; "));
    }
    (row, Note { instruction: entry.name.clone(), reasoning })
}

/// Lanes a clock and SM that the widest stream's stalls say.
fn rate(form: &Prepared, entry: &Entry, arch: Arch) -> Result<(f64, String), String> {
    if let Some(why) = form.refusal() {
        return Err(why);
    }
    if entry.compound {
        return Err("several instructions an operation: see the lowering table".to_owned());
    }
    if entry.memory {
        return Err("the stall of a memory instruction is that of its issue, not of its data".to_owned());
    }
    let Some(stream) = form.widest() else { return Err("no verified kernel".to_owned()) };
    if stream.chains < 4 {
        return Err("too few independent chains were verified for a stream".to_owned());
    }
    if let Some(companion) = stream.code.companions().find(|c| c.pipe.is_some()) {
        return Err(format!("its stream holds {} too, so its stalls are not one opcode's", companion.opcode));
    }
    let targets: Vec<&str> =
        stream.code.per_op.iter().filter(|p| p.target).map(|p| p.opcode.as_str()).collect();
    if let Some(why) = targets.iter().find_map(|t| known_wrong(t, arch)) {
        return Err(why.to_owned());
    }
    let steps = intervals(stream, entry);
    let (interval, scoreboard, share) =
        mode(&steps).ok_or_else(|| "the listing has no scheduling fields".to_owned())?;
    if scoreboard && interval <= BLIND_STALL {
        return Err(format!("ptxas leaves its timing to a scoreboard (stall {interval}): not written"));
    }
    if share < 0.75 {
        return Err(format!("its stalls are not alike ({:.0} % are {interval})", share * 100.0));
    }
    if targets.len() > 1 {
        return pair(stream, interval);
    }
    let lanes = 128.0 / f64::from(interval.max(1));
    Ok((lanes, format!("{} issues every {interval} clk on a scheduler", targets.join("+"))))
}

/// Two opcodes for one operation: believed only where they take two pipes in strict turn.
fn pair(stream: &Verified, interval: u32) -> Result<(f64, String), String> {
    let targets: Vec<_> = stream.code.per_op.iter().filter(|p| p.target).collect();
    let [a, b] = targets[..] else { return Err("ptxas spreads it over more than two opcodes".to_owned()) };
    let in_turn = a.count == b.count && interval == 1;
    if a.pipe == b.pipe || !in_turn {
        return Err(format!(
            "ptxas splits it over {} and {}, not in turn: its stalls are no interval",
            a.opcode, b.opcode
        ));
    }
    Ok((128.0, format!("{} and {} in turn, each every 2 clk on a pipe of its own", a.opcode, b.opcode)))
}

fn known_wrong(opcode: &str, arch: Arch) -> Option<&'static str> {
    let parts: Vec<&str> = opcode.split('.').collect();
    let is = |name: &&str| match name.strip_prefix('.') {
        Some(modifier) => parts[1..].contains(&modifier),
        None => parts[0] == *name,
    };
    let row = WRONG
        .iter()
        .find(|(names, sms, _)| names.iter().any(is) && (sms.is_empty() || sms.contains(&arch.sm)))?;
    Some(row.2)
}

/// Cycles from each target instruction to the next, as written, and whether it releases a scoreboard.
/// Instructions that take an issue slot only spell out longer waits and belong to the target before them.
fn intervals(stream: &Verified, entry: &Entry) -> Vec<(u32, bool)> {
    let mut steps: Vec<(u32, bool)> = Vec::new();
    let mut alone = true;
    for insn in &stream.window.instructions {
        let Some(control) = insn.control else { return Vec::new() };
        if entry.is_target(insn.opcode()) {
            steps.push((u32::from(control.stall), control.write_barrier.is_some()));
            alone = true;
        } else if is_filler(insn) {
            if let Some((interval, _)) = steps.last_mut().filter(|_| alone) {
                *interval += u32::from(control.stall);
            }
        } else {
            // The loop's own instruction: what comes before it tells nothing.
            steps.pop();
            alone = false;
        }
    }
    steps
}

fn is_filler(insn: &Instruction) -> bool {
    insn.mnemonic() == "NOP" || insn.is_dead()
}

/// The most frequent step and its share.
fn mode(steps: &[(u32, bool)]) -> Option<(u32, bool, f64)> {
    let mut counts: BTreeMap<(u32, bool), usize> = BTreeMap::new();
    for step in steps {
        *counts.entry(*step).or_default() += 1;
    }
    let ((interval, scoreboard), n) = counts.into_iter().max_by_key(|(_, n)| *n)?;
    Some((interval, scoreboard, n as f64 / steps.len() as f64))
}

/// The fixed latency that one dependent chain's stalls say; `None` where a scoreboard waits instead.
fn latency(form: &Prepared, entry: &Entry, arch: Arch) -> Option<f64> {
    let single = form.with_chains(1)?;
    let one_opcode = single.code.per_op.iter().filter(|p| p.target).count() == 1;
    // Where the interval is wrong the gap of a dependent instruction is no more than a lower bound.
    if single.code.per_op.iter().any(|p| p.target && known_wrong(&p.opcode, arch).is_some()) {
        return None;
    }
    let alone = one_opcode && single.code.companions().all(|c| c.pipe.is_none());
    if entry.compound || entry.memory || !alone || !form.parts[0].chain.latency {
        return None;
    }
    let steps = intervals(single, entry);
    let (interval, scoreboard, share) = mode(&steps)?;
    (!scoreboard && share >= 0.75).then_some(f64::from(interval))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepare::tests::prepared;
    use kbt_sass::Control;

    fn stream(opcode: &str, stalls: &[(u8, bool)]) -> Prepared {
        let mut p = prepared("i", opcode, &[(opcode, 1.0)]);
        for v in &mut p.verified {
            v.window.instructions = stalls
                .iter()
                .cycle()
                .take(64)
                .enumerate()
                .map(|(i, (stall, scoreboard))| {
                    let mut insn = Instruction::new(16 * i as u64, None, opcode, "R0, R0");
                    insn.control = Some(Control {
                        stall: *stall,
                        yield_flag: false,
                        write_barrier: scoreboard.then_some(0),
                        read_barrier: None,
                        wait_mask: 0,
                        reuse: 0,
                    });
                    insn
                })
                .collect();
        }
        p
    }

    fn check(opcode: &str, stalls: &[(u8, bool)], arch: &str) -> RateRow {
        row(&[stream(opcode, stalls)], arch.parse().unwrap(), &Provenance::mined("ptxas test")).0
    }

    #[test]
    fn a_stall_becomes_a_rate_and_a_fixed_latency() {
        let row = check("LOP3.LUT", &[(2, false)], "sm_90a");
        assert_eq!((row.lanes_per_clk_sm, row.latency_clk), (Some(64.0), Some(2.0)));
        let row = check("MUFU.EX2", &[(8, true)], "sm_90a");
        assert_eq!((row.lanes_per_clk_sm, row.latency_clk), (Some(16.0), None));
    }

    #[test]
    fn blind_and_known_wrong_cells_are_refused() {
        for (opcode, stalls, arch, why) in [
            ("POPC", &[(1u8, true)][..], "sm_103a", "scoreboard"),
            ("MUFU.EX2", &[(1, true)], "sm_120a", "scoreboard"),
            ("DFMA", &[(4, false)], "sm_86", "desktop"),
            ("HMMA.16816.F32", &[(8, false)], "sm_86", "desktop"),
            ("HMMA.16816.F32", &[(11, false)], "sm_120a", "desktop"),
            ("DMMA.8x8x4", &[(15, true)], "sm_90a", "scoreboard hides"),
            ("FMNMX", &[(1, false)], "sm_120a", "disputed"),
            ("DFMA", &[(15, true)], "sm_103a", "64-bit paths"),
            ("F2F.F64.F32", &[(8, true)], "sm_103a", "64-bit paths"),
            ("MATCH.ANY", &[(8, true)], "sm_90a", "issue alone"),
            ("X", &[(2, false), (4, false)], "sm_90a", "not alike"),
        ] {
            let row = check(opcode, stalls, arch);
            assert_eq!((row.lanes_per_clk_sm, row.latency_clk), (None, None), "{opcode}");
            assert!(row.refused.as_deref().unwrap().contains(why), "{opcode}: {:?}", row.refused);
        }
        assert_eq!(check("DFMA", &[(2, false)], "sm_90a").lanes_per_clk_sm, Some(64.0));
    }

    #[test]
    fn a_real_compiler_writes_the_rates_that_two_sources_agree_on() {
        if std::env::var_os("KBT_CUDA").is_none() {
            eprintln!(
                "KBT_CUDA is not set: a_real_compiler_writes_the_rates_that_two_sources_agree_on not run"
            );
            return;
        }
        let tools = Toolchain::find().unwrap();
        let spec = Spec::embedded().unwrap();
        let names = ["fma.rn.f32", "ex2.approx.ftz.f32", "cvt.rn.bf16x2.f32"];
        // NVIDIA's throughput tables and published measurements; EX2 doubled on sm_103.
        for (arch, expect) in [(Arch::SM_90A, [128.0, 16.0, 64.0]), (Arch::SM_103A, [128.0, 32.0, 64.0])] {
            let (profile, _) = mine(&spec, arch, &tools, &|n| names.contains(&n)).unwrap();
            for (name, lanes) in names.iter().zip(expect) {
                assert_eq!(profile.rate(name).unwrap().lanes_per_clk_sm, Some(lanes), "{name} on {arch}");
            }
        }
    }
}
