//! What the ladder's step 1 hands on: the rates of the instructions that a P·V mode uses, and what they rule out.
//! The types, how they are filled from a profile, and their text are here; who is a suspect is judged in `judge`.

mod contained;
mod judge;

pub use contained::rates_contained;

use crate::pv::{self, PvMode, Role, Use};
use kbt_device::{Arch, DeviceProfile, MissingFigure, MixRow, Pipe, RateRow};
use kbt_evidence::{Figure, Provenance, Standing};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// The schema that outcomes state.
pub const SCHEMA: &str = "kbt.microbench/1";

/// The rates that a mode's softmax step rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RatesOutcome {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The profile they are from.
    pub profile: String,
    /// Its compile target.
    pub arch: Arch,
    /// The device's own name, where one was measured.
    pub device: Option<String>,
    /// The mode of the built-in kernel's step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pv_mode: Option<PvMode>,
    /// The kernel, where the instructions are those of its machine code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// One row an instruction.
    pub rates: Vec<InstructionRate>,
    /// The exponential mixed with another instruction of the step.
    pub mixes: Vec<MixRow>,
    /// What was suspected of being expensive, and whether it is.
    pub suspects: Vec<Suspect>,
    /// What the profile lacks, each with the command that would give it.
    pub missing: Vec<String>,
}

/// One instruction of the step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstructionRate {
    /// Its name.
    pub instruction: String,
    /// What it is to the step.
    pub role: Role,
    /// What it does there.
    pub does: String,
    /// The full SASS mnemonic that was seen; none for an operation of several instructions.
    pub opcode: Option<String>,
    /// Its pipe.
    pub pipe: Pipe,
    /// Lanes a clock and SM.
    pub lanes_per_clk_sm: Option<f64>,
    /// Results a clock and SM.
    pub results_per_clk_sm: Option<f64>,
    /// Cycles to a dependent instruction.
    pub latency_clk: Option<f64>,
    /// Why there is no rate.
    pub refused: Option<String>,
    /// How it is known; states the verification.
    pub provenance: Provenance,
}

/// An instruction under suspicion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suspect {
    /// Its name.
    pub instruction: String,
    /// Whether choosing another instruction for it can help.
    pub standing: Standing,
    /// Why, in one sentence.
    pub reason: String,
    /// The figures.
    pub figures: Vec<Figure>,
}

/// The rates of a mode from any profile: measured, recorded or mined.
#[must_use]
pub fn rates_for(profile: &DeviceProfile, pv_mode: PvMode) -> RatesOutcome {
    let used: Vec<&Use> = pv::uses(pv_mode).filter(|u| applies(profile, u)).collect();
    let mut missing = Vec::new();
    let rates = used.iter().filter_map(|u| row(profile, u, &mut missing)).collect();
    let names: Vec<&str> = used.iter().map(|u| u.instruction).collect();
    let of_step = |m: &&MixRow| {
        m.parts.iter().any(|(n, _)| n == pv::EX2) && m.parts.iter().all(|(n, _)| names.contains(&n.as_str()))
    };
    let mut outcome = RatesOutcome {
        schema: SCHEMA.to_owned(),
        profile: profile.name.clone(),
        arch: profile.arch,
        device: profile.device.clone(),
        pv_mode: Some(pv_mode),
        kernel: None,
        rates,
        mixes: profile.mixes.iter().filter(of_step).cloned().collect(),
        suspects: Vec::new(),
        missing,
    };
    let exponential = outcome.exponential();
    let judged = used.iter().filter(|u| u.role == Role::Suspect).map(|u| outcome.judge(u.instruction));
    outcome.suspects = exponential.into_iter().chain(judged).collect();
    outcome
}

/// Whether the step uses the instruction on this target: with a native e2m1 conversion it does not round by hand.
fn applies(profile: &DeviceProfile, u: &Use) -> bool {
    let native = profile.rates.iter().any(|r| {
        r.instruction == "cvt.rn.satfinite.e2m1x2.f32"
            && r.opcode.as_deref().is_some_and(|o| o.contains("E2M1"))
    });
    match u.instruction {
        "e2m1.round.below7" => !native,
        "cvt.rn.satfinite.e2m1x2.f32" => native,
        _ => true,
    }
}

/// The profile's row of an instruction, a refused one too; what it lacks goes to `missing`.
fn row(profile: &DeviceProfile, u: &Use, missing: &mut Vec<String>) -> Option<InstructionRate> {
    let absent = |e: MissingFigure| e.to_string();
    let found: Option<&RateRow> = match profile.rate(u.instruction) {
        Ok(row) => Some(row),
        Err(error) => {
            missing.push(absent(error));
            profile.rates.iter().find(|r| r.instruction == u.instruction)
        }
    };
    found.map(|r| InstructionRate {
        instruction: r.instruction.clone(),
        role: u.role,
        does: u.does.to_owned(),
        opcode: r.opcode.clone(),
        pipe: r.pipe,
        lanes_per_clk_sm: r.lanes_per_clk_sm,
        results_per_clk_sm: r.results_per_clk_sm,
        latency_clk: r.latency_clk,
        refused: r.refused.clone(),
        provenance: r.provenance.clone(),
    })
}

impl RatesOutcome {
    /// The row of an instruction.
    #[must_use]
    pub fn rate(&self, instruction: &str) -> Option<&InstructionRate> {
        self.rates.iter().find(|r| r.instruction == instruction)
    }

    /// What the rates are of: a mode, or a kernel.
    #[must_use]
    pub fn subject(&self) -> &str {
        self.pv_mode.map(PvMode::as_str).or(self.kernel.as_deref()).unwrap_or("a kernel")
    }

    /// One line: the exponential, the suspects and where they stand.
    #[must_use]
    pub fn headline(&self) -> String {
        if self.kernel.is_some() {
            return self.headline_of_kernel();
        }
        let mut line = format!("{} on {}:", self.subject(), self.device.as_deref().unwrap_or(&self.profile));
        match self.rate(pv::EX2).and_then(|r| Some((r.lanes_per_clk_sm?, r.provenance.kind))) {
            Some((lanes, known)) => {
                let _ = write!(line, " ex2 {lanes:.1} lanes/clk/SM ({known})");
            }
            None => line.push_str(" ex2 unknown"),
        }
        for s in self.suspects.iter().filter(|s| s.instruction != pv::EX2) {
            let rate = self.rate(&s.instruction).and_then(|r| r.results_per_clk_sm);
            let rate = rate.map_or_else(|| "no rate".to_owned(), |r| format!("{r:.0} results"));
            let _ = write!(line, ", {} {rate}: {}", s.instruction, s.standing);
        }
        line
    }

    /// The outcome for people.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut out = format!("{}\n\n", self.headline());
        let rows = self.rates.iter().map(|r| crate::table::Line {
            instruction: &r.instruction,
            opcode: r.opcode.as_deref(),
            pipe: r.pipe,
            lanes: r.lanes_per_clk_sm,
            results: r.results_per_clk_sm,
            latency: r.latency_clk,
            refused: r.refused.as_deref(),
            known: r.provenance.kind,
            plateau: crate::table::has_plateau(&r.provenance),
        });
        out.push_str(&crate::table::lines(rows));
        for mix in &self.mixes {
            let _ = writeln!(out, "{}", crate::table::mix_line(mix));
        }
        out.push('\n');
        for s in &self.suspects {
            let _ = writeln!(out, "{}: {}: {}", s.standing, s.instruction, s.reason);
        }
        for m in &self.missing {
            let _ = writeln!(out, "missing: {m}");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kbt_evidence::{FixClass, audit};

    fn profile(rows: &[(&str, Pipe, f64, f64)], mixes: &[(&str, f64, f64)]) -> DeviceProfile {
        let p = Provenance::measured("kbt microbench run", "NVIDIA H200", "2026-11-30");
        let mut profile = DeviceProfile::new("test", Arch::SM_90A, p.clone());
        for (instruction, pipe, lanes, results) in rows {
            profile.rates.push(RateRow {
                instruction: (*instruction).to_owned(),
                opcode: Some("OP".into()),
                pipe: *pipe,
                lanes_per_clk_sm: Some(*lanes),
                results_per_clk_sm: Some(lanes * results),
                latency_clk: Some(4.0),
                spread_percent: Some(0.1),
                refused: None,
                provenance: p.clone(),
            });
        }
        for (with, together, separate) in mixes {
            profile.mixes.push(MixRow {
                parts: vec![(pv::EX2.to_owned(), 1), ((*with).to_owned(), 4)],
                lanes_per_clk_sm: Some(*together),
                separate_lanes_per_clk_sm: Some(*separate),
                shared_lanes_per_clk_sm: Some(40.0),
                refused: None,
                provenance: p.clone(),
            });
        }
        profile
    }

    const E4M3: &str = "cvt.rn.satfinite.e4m3x2.f32";

    fn hopper() -> Vec<(&'static str, Pipe, f64, f64)> {
        vec![
            (pv::EX2, Pipe::Xu, 16.0, 1.0),
            ("fma.rn.f32", Pipe::Fma, 128.0, 1.0),
            ("max.f32", Pipe::Alu, 64.0, 1.0),
            ("add.rn.f32", Pipe::Fma, 128.0, 1.0),
            ("shfl.sync.bfly.b32", Pipe::Lsu, 32.0, 1.0),
            (E4M3, Pipe::Alu, 64.0, 2.0),
            (pv::ALU, Pipe::Alu, 64.0, 1.0),
        ]
    }

    #[test]
    fn a_conversion_at_the_full_alu_rate_beside_the_exponential_is_ruled_out_with_its_figures() {
        let outcome = rates_for(&profile(&hopper(), &[(E4M3, 79.0, 80.0)]), PvMode::Fp8);
        let suspect = &outcome.suspects[1];
        assert_eq!((suspect.instruction.as_str(), suspect.standing), (E4M3, Standing::RuledOut));
        assert_eq!(suspect.figures[0].value, 0.125);
        insta::assert_snapshot!(outcome.render_text(), @r"
        fp8 on test: ex2 16.0 lanes/clk/SM (measured), cvt.rn.satfinite.e4m3x2.f32 128 results: ruled out

        instruction                             lanes  results latency  pipe      known     machine code
        ex2.approx.ftz.f32                      16.00    16.00     4.0  xu        measured  OP
        fma.rn.f32                             128.00   128.00     4.0  fma       measured  OP
        max.f32                                 64.00    64.00     4.0  alu       measured  OP
        add.rn.f32                             128.00   128.00     4.0  fma       measured  OP
        shfl.sync.bfly.b32                      32.00    32.00     4.0  lsu       measured  OP
        cvt.rn.satfinite.e4m3x2.f32             64.00   128.00     4.0  alu       measured  OP
        lop3.b32                                64.00    64.00     4.0  alu       measured  OP
        mix 1 ex2.approx.ftz.f32 + 4 cvt.rn.satfinite.e4m3x2.f32: 79.00 lanes, separate pipes allow 80.00, one pipe 40.00 (measured)

        open: ex2.approx.ftz.f32: 16.0 exponentials a clock and SM: 8 multiply-adds fit in the time of one, so computing a fraction of them by polynomial may help
        ruled out: cvt.rn.satfinite.e4m3x2.f32: 128.0 results a clock and SM, the full ALU rate: 0.12 of the exponential's time an element, mixed with it 99 % of what separate pipes allow; a cheaper instruction for it cannot help
        ");
        let verdict = &outcome.verdicts()[0];
        assert_eq!((verdict.class, verdict.standing), (FixClass::InstructionChoice, Standing::Open));
        assert!(verdict.reason.contains(&format!("not {E4M3}")), "{}", verdict.reason);
        assert!(verdict.is_measured());
    }

    #[test]
    fn a_conversion_that_does_not_run_beside_the_exponential_or_is_slow_stays_open() {
        let mixed = rates_for(&profile(&hopper(), &[(E4M3, 45.0, 80.0)]), PvMode::Fp8);
        assert_eq!(mixed.suspects[1].standing, Standing::Open);
        // Faster together than separate pipes could be is no proof of anything.
        let impossible = rates_for(&profile(&hopper(), &[(E4M3, 400.0, 80.0)]), PvMode::Fp8);
        assert_eq!(impossible.suspects[1].standing, Standing::Open);
        let why = &impossible.suspects[1].reason;
        assert!(why.contains("500 % of what separate pipes allow, which is impossible"), "{why}");
        let mut rows = hopper();
        rows[5].2 = 12.0;
        let slow = rates_for(&profile(&rows, &[(E4M3, 79.0, 80.0)]), PvMode::Fp8);
        assert_eq!(slow.suspects[1].standing, Standing::Open);
    }

    #[test]
    fn without_a_rate_the_suspect_is_refused_with_the_command_that_gives_it() {
        let mut rows = hopper();
        rows.remove(5);
        let outcome = rates_for(&profile(&rows, &[]), PvMode::Fp8);
        assert_eq!(outcome.suspects[1].standing, Standing::Refused);
        assert!(outcome.suspects[1].reason.contains("kbt microbench run --only"));
        assert!(outcome.missing[0].contains(E4M3), "{:?}", outcome.missing);
        assert_eq!(outcome.unanswered(), Some(format!("no rate of {E4M3}, so no answer for {E4M3}")));
        // Where it is the exponential that has none, the conversion is not blamed.
        let without_ex2 = rates_for(&profile(&hopper()[1..], &[]), PvMode::Fp8);
        assert_eq!(without_ex2.verdicts()[0].reason, format!("no rate of {}", pv::EX2));
        assert_eq!(
            without_ex2.unanswered(),
            Some(format!("no rate of {}, so no answer for {E4M3}", pv::EX2))
        );
        assert_eq!(rates_for(&profile(&hopper(), &[]), PvMode::Fp8).unanswered(), None);
        let nothing = rates_for(&profile(&[], &[]), PvMode::Bf16);
        assert_eq!(nothing.verdicts()[0].standing, Standing::Refused);
    }

    #[test]
    fn it_is_written_and_read_back_alike_and_every_number_is_covered() {
        let outcome = rates_for(&profile(&hopper(), &[(E4M3, 79.0, 80.0)]), PvMode::Fp8);
        let json = serde_json::to_value(&outcome).unwrap();
        assert_eq!(audit::uncovered_numbers(&json), Vec::<String>::new());
        assert_eq!(serde_json::from_value::<RatesOutcome>(json).unwrap(), outcome);
    }
}
