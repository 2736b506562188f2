//! `mine`: rates and fixed latencies that ptxas writes into the control fields, with no GPU.
//!
//! In a stream of independent instructions of one opcode ptxas sets each stall count to the opcode's issue
//! interval on a scheduler, so the rate is 128 / interval lanes a clock and SM; in a dependent chain it sets it
//! to the fixed latency. The method is blind where ptxas leaves the timing to a scoreboard, and known to be
//! wrong for some opcodes and chips: those rows are refused, with the reason. How stall counts are read is in
//! `stalls`, what is known to be wrong in `refuse`.

mod refuse;
mod stalls;

use crate::choice::Preference;
use crate::lowering::lowering;
use crate::prepare::{Prepared, Verified, assembles, prepare_streams};
use crate::rows::{Note, round};
use crate::spec::{Entry, Spec};
use crate::verify::PerOp;
use kbt_device::{Arch, DeviceProfile, Pipe, RateRow};
use kbt_evidence::Provenance;
use kbt_toolchain::{Tool, ToolError, Toolchain};
use refuse::known_wrong;
use stalls::{PAIRS, Unclear, common, neighbours, to_consumer};

/// One chain for the latency, eight for the stream.
const CHAINS: [u32; 2] = [1, 8];

/// A stall this short together with a write scoreboard is no interval.
const BLIND_STALL: u32 = 3;

/// An opcode that issues this often passes its pipe once.
const ONE_PASS_CLK: u32 = 2;

/// Mines a profile for a compile target.
pub fn mine(
    spec: &Spec,
    arch: Arch,
    tools: &Toolchain,
    only: &(dyn Fn(&str) -> bool + Sync),
) -> Result<(DeviceProfile, Vec<Note>), ToolError> {
    let ptxas = tools.version(Tool::Ptxas)?;
    assembles(tools, arch)?;
    let prepared = prepare_streams(spec, arch, tools, &CHAINS, only)?;
    let provenance = Provenance::mined(format!("ptxas {ptxas}, stall counts of single-opcode streams"));
    let mut profile = DeviceProfile::new(arch.to_string(), arch, Provenance::mined(format!("ptxas {ptxas}")));
    let mut notes = Vec::new();
    let mut rest = &prepared[..];
    while let Some(first) = rest.first() {
        let entry = &first.parts[0].entry;
        let forms = rest.iter().take_while(|p| p.parts[0].entry.is_same(entry)).count();
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
    // Machine code says what the row is of, as for measured rows.
    let plain = forms.iter().filter_map(|f| Some((Preference::of(f)?, f))).min_by(|a, b| a.0.cmp(&b.0));
    let seen = plain.and_then(|(_, form)| form.widest());
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
    let (mut reasoning, mut refusals, mut taken) = (Vec::new(), Vec::new(), None);
    let opcode = row.opcode.clone();
    for form in forms {
        let drifted = form.widest().and_then(|v| v.code.opcode()).filter(|o| opcode.as_ref() != Some(o));
        if let Some(other) = drifted {
            reasoning.push(format!("{}: {other} here, another instruction than the row's", form.form));
            continue;
        }
        let subject = subject(form);
        match rate(form, &subject, arch) {
            Ok((clk, how)) => {
                reasoning.push(format!("{}: {how}", form.form));
                let lanes = 128.0 / f64::from(clk.max(1));
                // A form that ptxas fills with waits of its own is slower than the opcode.
                if row.lanes_per_clk_sm.is_none_or(|known| lanes > known) {
                    taken = Some(form.form.clone());
                    row.lanes_per_clk_sm = Some(round(lanes, 1000.0));
                    row.results_per_clk_sm = Some(round(lanes * entry.results, 1000.0));
                    row.pipe = form.widest().map_or(Pipe::Unknown, |v| v.code.pipe());
                }
                row.latency_clk = row.latency_clk.or_else(|| latency(form, &subject, arch, clk));
            }
            Err(why) => {
                reasoning.push(format!("{}: {why}", form.form));
                refusals.push(why);
            }
        }
    }
    if row.lanes_per_clk_sm.is_none() {
        refusals.dedup();
        row.refused = Some(refusals.join("; "));
    }
    (row, Note { instruction: entry.name.clone(), form: taken, reasoning })
}

/// The entry with the mnemonics that count: of a compound operation that became one instruction, that one.
fn subject(form: &Prepared) -> Entry {
    let entry = &form.parts[0].entry;
    match form.widest().filter(|_| entry.compound).and_then(|v| v.code.opcode()) {
        Some(opcode) => Entry { compound: false, target: vec![opcode], ..entry.clone() },
        None => entry.clone(),
    }
}

/// The issue interval that the widest stream's stalls say, in cycles of a scheduler.
fn rate(form: &Prepared, entry: &Entry, arch: Arch) -> Result<(u32, String), String> {
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
    let targets: Vec<&str> =
        stream.code.per_op.iter().filter(|p| p.target).map(|p| p.opcode.as_str()).collect();
    if let Some(why) = targets.iter().find_map(|t| known_wrong(t, arch)) {
        return Err(why.to_owned());
    }
    if stream.chains < CHAINS[1] {
        let why = form.refused.iter().map(|(_, why)| why.as_str()).next().unwrap_or("not made");
        return Err(format!("no stream of {} chains: {why}", CHAINS[1]));
    }
    let pairs = neighbours(&stream.window.instructions, entry, arch)
        .ok_or_else(|| "the listing has no scheduling fields".to_owned())?;
    let interval = common(&pairs).map_err(|unclear| describe(&unclear, stream, entry, arch))?;
    if stream.code.pipe() == Pipe::Uniform {
        return Err(
            "no measurement bears out the intervals that ptxas writes for the uniform datapath".to_owned()
        );
    }
    if interval.scoreboard && interval.clk <= BLIND_STALL {
        return Err(format!("ptxas leaves its timing to a scoreboard (stall {}): not written", interval.clk));
    }
    let one_pipe =
        stream.code.per_op.iter().filter(|p| p.target).all(|p| p.pipe == stream.code.per_op[0].pipe);
    if !one_pipe {
        in_turn(stream, interval.clk)?;
        return Ok((interval.clk, format!("{} in turn, each on a pipe of its own", targets.join(" and "))));
    }
    Ok((interval.clk, format!("{} issues every {} clk on a scheduler", targets.join(" or "), interval.clk)))
}

fn describe(unclear: &Unclear, stream: &Verified, entry: &Entry, arch: Arch) -> String {
    let waits = || to_consumer(&stream.window.instructions, entry, arch).is_some_and(|w| w.len() >= PAIRS);
    match unclear {
        Unclear::Few(_) if waits() => {
            "each waits for the result of the one before: the stalls written are its latency, not its interval"
                .to_owned()
        }
        Unclear::Few(_) => {
            let on = |c: &PerOp| c.pipe.map(|pipe| format!("{} ({pipe})", c.opcode));
            let between: Vec<String> = stream.code.companions().filter_map(on).collect();
            let between = if between.is_empty() { "other work".to_owned() } else { between.join(", ") };
            format!("any two of them have {between} between them: no stall that is written is the opcode's own")
        }
        Unclear::Unlike(clk, share) => {
            format!("its stalls are not alike ({:.0} % are {clk})", share * 100.0)
        }
    }
}

/// Several opcodes for one operation, on several pipes: believed only for two in strict turn.
fn in_turn(stream: &Verified, clk: u32) -> Result<(), String> {
    let targets: Vec<_> = stream.code.per_op.iter().filter(|p| p.target).collect();
    let [a, b] = targets[..] else { return Err("ptxas spreads it over more than two opcodes".to_owned()) };
    if a.count == b.count && clk == 1 {
        return Ok(());
    }
    Err(format!(
        "ptxas splits it over {} and {}, not in turn: its stalls are no interval",
        a.opcode, b.opcode
    ))
}

/// What is written for the matrix instructions of half the depth on sm_90; each of the six takes 17 on an H200.
const SHORT_MMA_CLK: u32 = 16;

/// The fixed latency that one dependent chain's stalls say; `None` where a scoreboard waits instead, and where it
/// is no more than a lower bound: an opcode that passes its pipe more than once holds back its successor
/// longer than its result takes to be written (H200: `IMAD.HI` 6 written, 9 measured). The tensor pipe hands on
/// its accumulators itself.
fn latency(form: &Prepared, entry: &Entry, arch: Arch, interval: u32) -> Option<f64> {
    let single = form.with_chains(1).filter(|_| form.parts[0].chain.latency)?;
    let mut targets = single.code.per_op.iter().filter(|p| p.target);
    let (target, None) = (targets.next()?, targets.next()) else { return None };
    if interval > ONE_PASS_CLK && target.pipe != Some(Pipe::Tensor) {
        return None;
    }
    let gap = common(&to_consumer(&single.window.instructions, entry, arch)?).ok()?;
    let known_wrong = target.pipe == Some(Pipe::Tensor)
        && (arch.major(), arch.minor()) == (9, 0)
        && gap.clk == SHORT_MMA_CLK;
    (!gap.scoreboard && !known_wrong).then_some(f64::from(gap.clk))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepare::tests::prepared;
    use kbt_sass::{Control, Instruction};

    fn stream(opcode: &str, stalls: &[(u8, bool)]) -> Prepared {
        let mut p = prepared("i", opcode, &[(opcode, 1.0)]);
        for v in &mut p.verified {
            v.window.instructions = stalls
                .iter()
                .cycle()
                .take(64)
                .enumerate()
                .map(|(i, (stall, scoreboard))| {
                    let operands = format!("R{0}, R{0}", i % v.chains as usize);
                    let mut insn = Instruction::new(16 * i as u64, None, opcode, &operands);
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
            ("DADD", &[(4, false)], "sm_75", "desktop"),
            ("HMMA.1688.F32", &[(8, false)], "sm_75", "desktop"),
            ("F2F.F64.F32", &[(8, false)], "sm_75", "7.5"),
            ("F2F.F64.F32", &[(8, false)], "sm_87", "2 for"),
            ("F2F.F64.F16", &[(8, false)], "sm_86", "2 for"),
            ("I2F.F64.U32", &[(8, false)], "sm_89", "2 for"),
            ("F2I.U64.TRUNC", &[(8, false)], "sm_89", "2 for"),
            ("FSETP.GEU.AND", &[(1, false)], "sm_121a", "disputed"),
            ("FSET.BF.LT.AND", &[(1, false)], "sm_120a", "disputed"),
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
        assert_eq!(check("F2F.F64.F32", &[(8, false)], "sm_80").lanes_per_clk_sm, Some(16.0));
        // Two sources say 128 for minima of integers.
        assert_eq!(check("VIMNMX.S32", &[(1, false)], "sm_120a").lanes_per_clk_sm, Some(128.0));
    }

    #[test]
    fn a_stream_that_tells_no_interval_says_what_it_holds_instead() {
        let p = Provenance::mined("ptxas test");
        let lines = |lines: &[(&str, &str)], per_op: &[(&str, f64)]| {
            let mut form = prepared("i", per_op[0].0, per_op);
            let control = Control {
                stall: 4,
                yield_flag: false,
                write_barrier: None,
                read_barrier: None,
                wait_mask: 0,
                reuse: 0,
            };
            let insn = |(opcode, operands): &(&str, &str)| {
                let mut insn = Instruction::new(0, None, opcode, operands);
                insn.control = Some(control);
                insn
            };
            for v in &mut form.verified {
                v.window.instructions = lines.iter().cycle().take(64).map(insn).collect();
            }
            row(&[form], Arch::SM_90A, &p).0.refused.unwrap()
        };
        let shift = ("USHF.L.W.U32.HI", "UR4, UR4, 0x5, UR5");
        let why = lines(&[shift], &[("USHF.L.W.U32.HI", 1.0)]);
        assert!(why.starts_with("each waits for the result of the one before"), "{why}");
        let free = [("USHF.L.W.U32.HI", "UR4, UR6, 0x5, UR5"), ("USHF.L.W.U32.HI", "UR7, UR6, 0x5, UR5")];
        let why = lines(&free, &[("USHF.L.W.U32.HI", 1.0)]);
        assert!(why.ends_with("uniform datapath"), "{why}");
        let sine = [("MUFU.SIN", "R4, R5"), ("FMUL.RZ", "R5, R4, R6")];
        let why = lines(&sine, &[("MUFU.SIN", 1.0), ("FMUL.RZ", 1.0)]);
        assert!(why.starts_with("any two of them have FMUL.RZ (fma) between them"), "{why}");
    }

    #[test]
    fn a_compound_operation_of_one_instruction_is_mined_as_that_instruction() {
        let compound = |marked: bool| {
            let mut form = stream("VABSDIFF.U32", &[(2, false)]);
            form.parts[0].entry.compound = true;
            form.parts[0].entry.target.clear();
            for v in &mut form.verified {
                v.code.per_op[0].target = marked;
            }
            row(&[form], Arch::SM_90A, &Provenance::mined("ptxas test")).0
        };
        let one = compound(true);
        assert_eq!((one.opcode.as_deref(), one.lanes_per_clk_sm), (Some("VABSDIFF.U32"), Some(64.0)));
        assert_eq!(
            compound(false).refused.as_deref(),
            Some("several instructions an operation: see the lowering table")
        );
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
