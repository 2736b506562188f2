//! The rates of the instructions that a kernel's machine code really contains, and which of them the bound of its
//! busiest loop rests on.

use super::{InstructionRate, RatesOutcome, SCHEMA, Suspect};
use crate::pv::Role;
use kbt_device::{DeviceProfile, Pipe, RateRow};
use kbt_evidence::{Figure, Provenance, Standing, Unit as Measure};
use kbt_sass::cycles::LoopModel;
use kbt_sass::metrics::{Analysis, provenance};
use kbt_sass::outcome::busiest_loop;
use kbt_sass::{
    Bound, Function, Instruction, Interval, Listing, Unit, bound_of_function, bound_of_loop, rate_of,
};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// An instruction that takes a smaller share of the loop's bound is no suspect.
const SUSPECT_SHARE: f64 = 0.1;
/// Suspects that are judged, the costliest first.
const MOST_SUSPECTS: usize = 6;
/// Lanes a clock of the four issue ports of an SM.
const ISSUE_LANES: f64 = 128.0;

/// All of one opcode in the part that is looked at.
struct Used<'p> {
    pipe: Pipe,
    count: u64,
    /// Its row, and the cycles of its pipe that one warp of each scheduler takes.
    rated: Option<(&'p RateRow, f64)>,
}

/// The rates of a kernel's instructions: of its busiest user loop, or of what it must
/// execute for a result where it has no loop.
#[must_use]
pub fn rates_contained(profile: &DeviceProfile, listing: &Listing, function: &Function) -> RatesOutcome {
    let analysis = Analysis::new(function, &Unit::mufu(), &Unit::f2fp());
    let (place, part, bound) = hot(&analysis, profile, listing);
    let binding = Binding::new(&analysis, &part, profile, &bound);
    let used = opcodes(profile, &analysis, &part);
    let counts = provenance(listing);
    let mut rates: Vec<(f64, InstructionRate)> = Vec::new();
    let mut missing = Vec::new();
    for (opcode, u) in &used {
        match u.rated {
            Some((row, cycles)) => rates.push((cycles, rate(opcode, u, row, cycles, &place))),
            None if u.pipe == Pipe::Unknown => {}
            None => missing.push(format!(
                "profile `{}` has no rate of {opcode} ({} in {place}, pipe {}); `kbt microbench run --out \
                 PROFILE.yaml` measures what the spec has of it",
                profile.name, u.count, u.pipe
            )),
        }
    }
    rates.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut costly: Vec<(&String, &Used<'_>, &RateRow, f64)> = used
        .iter()
        .filter_map(|(opcode, u)| u.rated.map(|(row, cycles)| (opcode, u, row, cycles)))
        .filter(|(.., cycles)| *cycles >= SUSPECT_SHARE * bound.lower_bound_cycles)
        .collect();
    costly.sort_by(|a, b| b.3.total_cmp(&a.3));
    let judged = costly.into_iter().take(MOST_SUSPECTS);
    let suspects = judged
        .map(|(opcode, u, row, cycles)| judge(opcode, u, row, cycles, &place, (&bound, &binding), &counts))
        .collect();
    RatesOutcome {
        schema: SCHEMA.to_owned(),
        profile: profile.name.clone(),
        arch: profile.arch,
        device: profile.device.clone(),
        pv_mode: None,
        kernel: Some(function.name.clone()),
        rates: rates.into_iter().map(|(_, r)| r).collect(),
        mixes: Vec::new(),
        suspects,
        missing,
    }
}

/// The busiest user loop, or what a function without one must execute for a result; with its bound.
fn hot(analysis: &Analysis<'_>, profile: &DeviceProfile, listing: &Listing) -> (String, Interval, Bound) {
    let name = busiest_loop(analysis);
    let index = name.as_ref().and_then(|n| (0..analysis.loops.len()).find(|i| analysis.loop_name(*i) == n));
    if let (Some(name), Some(i)) = (name, index) {
        let (bound, part) = bound_of_loop(analysis, i, profile, 1, listing);
        let place =
            if bound.left_out_instructions == 0 { name } else { format!("the cheapest trip of {name}") };
        return (place, part, bound);
    }
    let (bound, part) = bound_of_function(analysis, profile, 1, listing);
    let place =
        if bound.left_out_instructions == 0 { "the whole function" } else { "the cheapest way to a result" };
    (place.to_owned(), part, bound)
}

fn opcodes<'p>(
    profile: &'p DeviceProfile,
    analysis: &Analysis<'_>,
    part: &Interval,
) -> BTreeMap<String, Used<'p>> {
    let mut used: BTreeMap<String, Used<'p>> = BTreeMap::new();
    for i in part.indices() {
        let (Some(insn), Some(class)) = (analysis.function.instructions.get(i), analysis.pipes.get(i)) else {
            continue;
        };
        let Some(pipe) = class.pipe else { continue };
        let each = rate_of(profile, insn, pipe);
        let u = used.entry(insn.opcode().to_owned()).or_insert(Used { pipe, count: 0, rated: None });
        u.count += 1;
        if let Some((row, lanes)) = each {
            let cycles = u.rated.map_or(0.0, |(_, c)| c) + ISSUE_LANES / lanes;
            u.rated = Some((row, cycles));
        }
    }
    used
}

fn rate(opcode: &str, u: &Used<'_>, row: &RateRow, cycles: f64, place: &str) -> InstructionRate {
    let seen = row.opcode.as_deref().filter(|o| *o != opcode);
    let of = seen.map_or(String::new(), |o| format!("; the rate is that of {o}"));
    InstructionRate {
        instruction: row.instruction.clone(),
        role: Role::Other,
        does: format!("{} in {place}, {cycles:.0} cycles of the {} pipe a warp{of}", u.count, u.pipe),
        opcode: Some(opcode.to_owned()),
        pipe: u.pipe,
        lanes_per_clk_sm: row.lanes_per_clk_sm,
        results_per_clk_sm: row.results_per_clk_sm,
        latency_clk: row.latency_clk,
        refused: None,
        provenance: row.provenance.clone(),
    }
}

/// What the part needs at least, matrix products included.
struct Binding {
    busiest: String,
    cycles: f64,
    provenance: Provenance,
    /// Matrix instructions that nobody has a rate of: what binds is not known then.
    unrated: Option<String>,
}

impl Binding {
    /// The bound of the other pipes, or the tensor core's where that is longer. Matrix products of warpgroups have no row
    /// in a profile; the cycle model has them from the published peak.
    fn new(analysis: &Analysis<'_>, part: &Interval, profile: &DeviceProfile, bound: &Bound) -> Self {
        let insns: Vec<&Instruction> =
            part.indices().filter_map(|i| analysis.function.instructions.get(i)).collect();
        let matrix = part.indices().find(|i| {
            analysis.pipes.get(*i).is_some_and(|c| matches!(c.pipe, Some(Pipe::Tensor | Pipe::Tc)))
        });
        let mut found = Self {
            busiest: bound.busiest.clone(),
            cycles: bound.lower_bound_cycles,
            provenance: bound.provenance.clone(),
            unrated: None,
        };
        let Some(matrix) = matrix.and_then(|i| analysis.function.instructions.get(i)) else { return found };
        // Latencies do not enter a bound, so any will do for loads.
        let model = LoopModel::new(analysis.function.arch, insns, profile, Some(1)).ok();
        let tensor = model.as_ref().and_then(|m| m.limits(1).pipes.get("tensor").copied());
        match (model, tensor) {
            (Some(model), Some(cycles)) if cycles > found.cycles => {
                (found.busiest, found.cycles) = ("tensor".to_owned(), cycles);
                found.provenance = model.provenance();
            }
            (Some(_), Some(_)) => {}
            _ => found.unrated = Some(matrix.opcode().to_owned()),
        }
        found
    }
}

/// Whether a cheaper instruction in its place could make the loop's bound lower.
fn judge(
    opcode: &str,
    u: &Used<'_>,
    row: &RateRow,
    cycles: f64,
    place: &str,
    (bound, binding): (&Bound, &Binding),
    counts: &Provenance,
) -> Suspect {
    let p = Provenance::computed(
        "count over rate",
        [(row.instruction.as_str(), &row.provenance), ("instruction counts", counts)],
    );
    let own =
        Figure::new(format!("{opcode}, cycles of the {} pipe a warp", u.pipe), cycles, Measure::Cycles, p);
    let least = binding.cycles;
    let whole = Figure::new(
        format!("{place}, least cycles a warp"),
        least,
        Measure::Cycles,
        binding.provenance.clone(),
    );
    let binds = binding.busiest == u.pipe.as_str();
    let busy = bound.pipe_cycles.get(u.pipe.as_str()).copied().unwrap_or(cycles);
    let (standing, reason) = if let Some(matrix) = &binding.unrated {
        (
            Standing::Refused,
            format!(
                "the {} pipe is busy {busy:.0} cycles a turn, but what {matrix} takes beside it is not known",
                u.pipe
            ),
        )
    } else if binds {
        (
            Standing::Open,
            format!(
                "{cycles:.0} of the {least:.0} cycles of the {} pipe, which binds {place}: a cheaper one can help",
                u.pipe
            ),
        )
    } else if binding.busiest == "issue" {
        (
            Standing::Open,
            format!(
                "{} of the {least:.0} issue slots that bind {place}: fewer instructions can help, a faster pipe cannot \
                 ({} is busy {busy:.0} cycles)",
                u.count, u.pipe
            ),
        )
    } else {
        (
            Standing::RuledOut,
            format!(
                "the {} pipe is busy {busy:.0} of the {least:.0} cycles that {place} needs on {}: a cheaper one cannot help",
                u.pipe, binding.busiest
            ),
        )
    };
    Suspect { instruction: opcode.to_owned(), standing, reason, figures: vec![own, whole] }
}

impl RatesOutcome {
    /// One line for a kernel: how many of its opcodes have a rate, and what is suspected.
    pub(super) fn headline_of_kernel(&self) -> String {
        let known = self.rates.first().map(|r| r.provenance.kind);
        let all = self.rates.len() + self.missing.len();
        let mut line = format!(
            "{} of {all} opcodes of its busiest part have a rate on {}",
            self.rates.len(),
            self.device.as_deref().unwrap_or(&self.profile)
        );
        if let Some(known) = known {
            let _ = write!(line, " ({known})");
        }
        for s in self.suspects.iter().take(3) {
            let _ = write!(line, "; {} {}: {}", s.instruction, s.standing, s.reason);
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kbt_device::Arch;

    fn row(instruction: &str, opcode: &str, pipe: Pipe, lanes: f64) -> RateRow {
        RateRow {
            instruction: instruction.to_owned(),
            opcode: Some(opcode.to_owned()),
            pipe,
            lanes_per_clk_sm: Some(lanes),
            results_per_clk_sm: None,
            latency_clk: None,
            spread_percent: None,
            refused: None,
            provenance: Provenance::measured("run", "card", "2026-11-30"),
        }
    }

    /// Two exponentials and one addition a turn, and a reciprocal before the loop that must not count.
    fn outcome(lanes: f64) -> RatesOutcome {
        with(lanes, "MUFU.RCP R9, R9")
    }

    /// The same with another first instruction, which the branch goes back behind; and a matrix product in the loop where
    /// that is asked for.
    fn with(lanes: f64, matrix: &str) -> RatesOutcome {
        let lines = [
            "MUFU.RCP R9, R9",
            if matrix.starts_with("MUFU") { "MUFU.EX2 R0, R1" } else { matrix },
            "MUFU.EX2 R2, R3",
            "FADD R4, R4, R0",
            "ATOMG.ADD R5, [R6], R7",
            "@P0 BRA 0x10",
            "EXIT",
        ];
        let mut text = "\t.target\tsm_90a\n\t.section\t.text.f,\"ax\",@progbits\n".to_owned();
        for (n, line) in lines.iter().enumerate() {
            text += &format!("/*{:04x}*/ {line} ;\n", n * 16);
        }
        let listing = kbt_sass::parse(text.as_bytes()).unwrap();
        let mut profile = DeviceProfile::new("test", Arch::SM_90A, Provenance::assumed("a test"));
        profile.rates = vec![
            row("ex2.approx.ftz.f32", "MUFU.EX2", Pipe::Xu, lanes),
            row("add.rn.f32", "FADD", Pipe::Fma, 64.0),
        ];
        rates_contained(&profile, &listing, &listing.functions[0])
    }

    #[test]
    fn what_the_binding_pipe_is_busy_with_is_open_and_what_another_pipe_does_is_ruled_out() {
        let found = outcome(16.0);
        let standings: Vec<_> = found.suspects.iter().map(|s| (s.instruction.as_str(), s.standing)).collect();
        assert_eq!(standings, [("MUFU.EX2", Standing::Open), ("FADD", Standing::RuledOut)]);
        assert_eq!(found.suspects[0].figures[0].value, 16.0);
        assert!(found.suspects[0].reason.contains("16 of the 16 cycles"), "{}", found.suspects[0].reason);
        assert!(found.rates.iter().all(|r| r.opcode.as_deref() != Some("MUFU.RCP")), "{:?}", found.rates);
    }

    #[test]
    fn where_the_issue_port_binds_a_faster_pipe_is_no_help() {
        let found = outcome(128.0);
        assert!(found.suspects.iter().all(|s| s.reason.contains("issue slots")), "{:?}", found.suspects);
    }

    #[test]
    fn beside_a_matrix_product_that_nobody_has_a_rate_of_nothing_is_called_the_limit() {
        let found = with(16.0, "UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8]");
        assert!(found.suspects.iter().all(|s| s.standing == Standing::Refused), "{:?}", found.suspects);
        let [verdict] = &found.verdicts()[..] else { panic!("one verdict") };
        assert_eq!(verdict.standing, Standing::Refused);
        assert!(verdict.reason.contains("MUFU.EX2"), "{}", verdict.reason);
    }

    #[test]
    fn opcodes_without_a_rate_are_named_and_the_file_covers_its_numbers() {
        let found = outcome(16.0);
        assert!(found.missing.iter().any(|m| m.contains("ATOMG")), "{:?}", found.missing);
        let json = serde_json::to_value(&found).unwrap();
        assert_eq!(kbt_evidence::audit::uncovered_numbers(&json), Vec::<String>::new());
        assert_eq!(serde_json::from_value::<RatesOutcome>(json).unwrap(), found);
        assert!(found.headline().contains("2 of 4 opcodes"), "{}", found.headline());
    }
}
