//! Step 3: the kernel's machine code as it is built: its roles, how two units alternate in its busiest loop, headroom,
//! spills, register budgets, and what lints find in it and its PTX.
//!
//! Everything that is counted goes to the run's folder `code/` in full: `metrics`, `lint`, `regs`, as JSON and text.

use super::TargetTuner;
use super::code::{Code, disassemble, remarks};
use super::found::CODE;
use super::notes::with_file;
use crate::steps::fatal;
use crate::{StepFailure, StepOutput};
use kbt_device::{Arch, DeviceProfile};
use kbt_evidence::{Evidence, Figure, FixClass, Standing, Step, Unit as Measure, Verdict};
use kbt_sass::metrics::{MeasureOptions, measure, provenance};
use kbt_sass::outcome::{LintOutcome, MetricsOutcome, ScheduleBuilder, Section, VariantInput, VariantKind};
use kbt_sass::regs::{Build, Compiler, RegsOutcome, Sweep, study};
use kbt_sass::{Bound, Cover, Finding, Handoff, LintRule, PtxLint, Unit};
use kbt_toolchain::{PtxasOptions, Toolchain};
use serde::Serialize;

/// Pairs of units whose alternation is telling, the first that both occur.
const UNITS: &[(&str, &str)] = &[
    ("MUFU", "F2FP"),
    ("MUFU", "pipe:fma"),
    ("pipe:tensor", "LDSM,LDS"),
    ("pipe:tensor", "pipe:lsu"),
    ("pipe:tc", "pipe:tmem"),
    ("pipe:tc", "pipe:lsu"),
    ("pipe:fma", "LDG"),
    ("pipe:fma", "pipe:lsu"),
    ("pipe:alu", "pipe:lsu"),
];
/// Settings of the register budgets that are assembled.
const SETTINGS: usize = 12;
const SETTINGS_QUICK: usize = 5;

impl TargetTuner<'_> {
    pub(super) fn schedule(&mut self) -> Result<StepOutput, StepFailure> {
        let profile = self.profile()?;
        let code = self.code()?;
        let Some(kernel) = code.kernel() else {
            return Err(fatal(format!("the listing lost {}", code.function)));
        };
        let metrics = measure(&code.listing, MeasureOptions::default());
        self.keep("metrics", &metrics, &metrics.render_text())?;
        let units = units(&metrics)?;
        let regs = self.budgets(&code, &profile);
        let studied = regs.as_ref().ok().and_then(Option::as_ref);
        let warps = warps(kernel.resources.and_then(|r| r.registers), &metrics, studied);
        let mut builder = ScheduleBuilder::new(self.target.name.as_str(), None, units, Some(&profile), warps);
        let built = VariantInput {
            name: "as built",
            kind: VariantKind::SourceOrder,
            built_by: &code.built_by,
            listing: &code.listing,
            function: Some(&code.function),
            remarks: code.remarks.clone(),
        };
        builder.add(built).map_err(fatal)?;
        let mut notes = code.notes.clone();
        let mut said = code.remarks.clone();
        match self.unoptimised(&code) {
            Ok(Some((listing, built_by, remarks))) => {
                said.extend(remarks.iter().filter(|r| !code.remarks.contains(r)).cloned());
                let input = VariantInput {
                    name: "the same PTX at -O1",
                    kind: VariantKind::OptLevel,
                    built_by: &built_by,
                    listing: &listing,
                    function: Some(&code.function),
                    remarks,
                };
                if let Err(e) = builder.add(input) {
                    notes.push(e.to_string());
                }
            }
            Ok(None) => {}
            Err(why) => notes.push(format!("the PTX could not be assembled at -O1 to compare with: {why}")),
        }
        let mut outcome = builder.finish();
        let lint = self.lint(&code, &said)?;
        outcome.problems.extend(lint.findings.iter().map(|f| format!("{}: {}", f.place, f.message)));
        outcome.problems.extend(handoffs_briefly(&lint.handoffs));
        match &regs {
            Ok(Some(regs)) => outcome.problems.extend(best_budgets(regs)),
            Ok(None) => {}
            Err(why) => notes.push(format!("no study of register budgets: {why}")),
        }
        outcome.problems.extend(notes.iter().cloned());
        if let Some(found) = &self.found {
            outcome.problems.extend(found.notes.iter().cloned());
        }
        let mut out = self.noted(&outcome, code.stale.as_deref(), &[])?;
        out.headline += &roles(&metrics);
        if let Ok(Some(regs)) = &regs {
            out.verdicts = out.verdicts.into_iter().map(|v| with_budgets(v, regs)).collect();
            let bound = outcome.variants.first().and_then(|v| v.bound.as_ref());
            out.verdicts = out.verdicts.into_iter().map(|v| with_prediction(v, regs, bound)).collect();
        }
        out.verdicts.extend(wrong(&lint));
        let file = code.ptx_file.as_deref();
        out.verdicts = out.verdicts.into_iter().map(|v| with_file(v, file, self.arch())).collect();
        Ok(out)
    }

    /// The PTX assembled with the compiler's scheduler mostly off; `None` where there is no PTX.
    fn unoptimised(&self, code: &Code) -> Result<Option<(kbt_sass::Listing, String, Vec<String>)>, String> {
        let Some(ptx) = &code.ptx else { return Ok(None) };
        let tools = self.tools.as_ref().ok_or("no CUDA assembler")?;
        let options = PtxasOptions { opt_level: 1, ..PtxasOptions::default() };
        let assembled = tools.ptxas(ptx.as_bytes(), self.arch(), &options).map_err(|e| e.to_string())?;
        let built_by = format!("ptxas {} -O1, here", assembled.version);
        let listing = disassemble(tools, &assembled.cubin, Some(built_by.clone()))?;
        Ok(Some((listing, built_by, remarks(&assembled))))
    }

    fn lint(&self, code: &Code, said: &[String]) -> Result<LintOutcome, StepFailure> {
        let mut ptx = PtxLint::default();
        match code.ptx.as_deref().map(kbt_ptx::parse) {
            Some(Ok(module)) => ptx = kbt_sass::lint_ptx(&module),
            Some(Err(e)) => ptx.notes.push(format!("the PTX does not read: {e}")),
            None => ptx.notes.push("no PTX: fences and handoffs were not looked at".into()),
        }
        let coded = |remark: &String| match remark.split_once(": ") {
            Some((code, text)) if code.starts_with('C') && !code.contains(' ') => {
                kbt_sass::lint_remark(Some(code), text)
            }
            _ => kbt_sass::lint_remark(None, remark),
        };
        ptx.findings.extend(said.iter().filter_map(coded));
        let findings = kbt_sass::lint(&code.listing);
        let lint = LintOutcome::new(findings, ptx, &[], provenance(&code.listing));
        self.keep("lint", &lint, &lint.render_text())?;
        Ok(lint)
    }

    /// The budgets of the kernel's roles that fit the register file together, each assembled; `None` where the kernel
    /// sets no budgets.
    fn budgets(&mut self, code: &Code, profile: &DeviceProfile) -> Result<Option<RegsOutcome>, String> {
        let Some(ptx) = code.ptx.as_deref().filter(|p| p.contains("setmaxnreg")) else { return Ok(None) };
        let tools = self.tools.clone().ok_or("no CUDA assembler")?;
        self.note("  register budgets");
        let what =
            Sweep::Roles { most: if self.quick { SETTINGS_QUICK } else { SETTINGS }, warpgroups: None };
        let compiler = Assembler { tools: &tools };
        let regs = study(ptx, self.arch(), &what, Some(profile), &compiler).map_err(|e| e.to_string())?;
        self.keep("regs", &regs, &regs.render_text())
            .map_err(|_| "its files could not be written".to_owned())?;
        Ok(Some(regs))
    }

    /// Keeps an outcome beside the machine code, as JSON and as text.
    pub(super) fn keep(&self, name: &str, outcome: &impl Serialize, text: &str) -> Result<(), StepFailure> {
        let path = |ext: &str| self.run.join(CODE).join(format!("{name}.{ext}"));
        let json = serde_json::to_vec_pretty(outcome).map_err(fatal)?;
        crate::rundir::write_atomic(&path("json"), &json).map_err(fatal)?;
        crate::rundir::write_atomic(&path("txt"), text.as_bytes()).map_err(fatal)
    }
}

/// ptxas at -O3, for the study of budgets.
struct Assembler<'t> {
    tools: &'t Toolchain,
}

impl Compiler for Assembler<'_> {
    fn assemble(&self, ptx: &str, arch: Arch) -> Result<Build, String> {
        let options = PtxasOptions::default();
        let assembled = self.tools.ptxas(ptx.as_bytes(), arch, &options).map_err(|e| e.to_string())?;
        let built_by = format!("ptxas {} -O3", assembled.version);
        let listing = disassemble(self.tools, &assembled.cubin, Some(built_by))?;
        let functions = assembled.resources.functions.iter();
        let registers = functions.filter_map(|f| Some((f.function.clone(), f.registers?))).collect();
        Ok(Build { listing, registers, remarks: remarks(&assembled) })
    }
}

/// The first pair of units that both occur in the kernel.
fn units(metrics: &MetricsOutcome) -> Result<[Unit; 2], StepFailure> {
    let section = metrics.functions.first();
    let occurs = |unit: &str| {
        unit.split(',').any(|part| match part.strip_prefix("pipe:") {
            Some(pipe) => section.is_some_and(|s| s.pipes.contains_key(pipe)),
            None => section.is_some_and(|s| s.mnemonics.contains_key(part)),
        })
    };
    let (a, b) = UNITS.iter().find(|(a, b)| occurs(a) && occurs(b)).unwrap_or(&UNITS[0]);
    let unit = |text: &str| text.parse::<Unit>().map_err(fatal);
    Ok([unit(a)?, unit(b)?])
}

/// Warps of a scheduler that run the busiest loop at once: those of its role where the study of budgets knows them, else
/// one in a kernel of roles; as many as the registers allow, up to eight, where all warps do the same.
fn warps(registers: Option<u32>, metrics: &MetricsOutcome, studied: Option<&RegsOutcome>) -> u32 {
    const REGISTERS_PER_SCHEDULER: u32 = 16 * 1024;
    if let Some(predicted) = studied.and_then(|s| s.rows.iter().find_map(|r| r.predicted.as_ref())) {
        return predicted.warps;
    }
    let roles = metrics.functions.first().is_some_and(|f| !f.regions.is_empty());
    match registers {
        Some(registers) if !roles => {
            (REGISTERS_PER_SCHEDULER / (registers.max(1).next_multiple_of(8) * 32)).clamp(1, 8)
        }
        _ => 1,
    }
}

/// The roles with what they hold, in one clause.
fn roles(metrics: &MetricsOutcome) -> String {
    let Some(function) = metrics.functions.first().filter(|f| !f.regions.is_empty()) else {
        return String::new();
    };
    let one = |r: &Section| {
        let spills = if r.local_memory.spills() { "spills" } else { "no spills" };
        let budget = r.set_max_registers.map_or_else(String::new, |n| format!(" at {n} registers"));
        format!("{}{budget}: {} instructions, {}{spills}", work(r), r.instructions, what(r))
    };
    let all: Vec<String> =
        function.regions.iter().filter(|r| r.instructions >= SMALLEST_ROLE).map(one).collect();
    format!("; roles: {}", all.join("; "))
}

/// A region with fewer instructions is a role's way out.
const SMALLEST_ROLE: u64 = 16;
/// From so many exponentials on a role is one that does softmax, or the like.
const SOFTMAX_MUFU: u64 = 32;

/// What a role does, as its instructions tell.
fn work(role: &Section) -> &'static str {
    let mufu = role.mnemonics.get("MUFU").copied().unwrap_or(0);
    let o = &role.operations;
    match (o.tensor > 0, mufu >= SOFTMAX_MUFU, o.tmem > 0, o.tma > 0) {
        (true, true, ..) => "matrix products and softmax",
        (true, false, ..) => "matrix products (MMA)",
        (false, true, ..) => "softmax",
        (false, false, true, _) => "correction",
        (false, false, false, true) => "load or store",
        (false, false, false, false) => "other work",
    }
}

/// Its telling instructions, counted.
fn what(role: &Section) -> String {
    let of = |name: &str| role.mnemonics.get(name).copied().unwrap_or(0);
    let counts = [
        (of("MUFU"), "MUFU"),
        (of("F2FP"), "F2FP"),
        (role.operations.tensor, "matrix"),
        (role.operations.tmem, "tensor memory"),
        (role.operations.tma, "TMA"),
    ];
    let told: Vec<String> = counts.iter().filter(|(n, _)| *n > 0).map(|(n, w)| format!("{n} {w}")).collect();
    if told.is_empty() { String::new() } else { format!("{}, ", told.join(", ")) }
}

/// Handoffs in a clause each; those with the same fractions, as unrolled code has them, as one.
pub(super) fn handoffs_briefly(all: &[Handoff]) -> Vec<String> {
    let mut counted: Vec<(String, usize)> = Vec::new();
    for handoff in all {
        let line = briefly(handoff);
        match counted.iter_mut().find(|(l, _)| *l == line) {
            Some((_, n)) => *n += 1,
            None => counted.push((line, 1)),
        }
    }
    let places = |n: usize| if n == 1 { String::new() } else { format!(" (at {n} pairs of places)") };
    counted.into_iter().map(|(line, n)| format!("{line}{}", places(n))).collect()
}

/// A handoff in a clause: the two fractions and whether the one covers the other.
fn briefly(handoff: &Handoff) -> String {
    match (handoff.stored, handoff.multiplied, handoff.cover) {
        (Some(stored), Some(multiplied), Some(cover)) => format!(
            "PTX hands over {stored} of the tile at its first signal and multiplies {multiplied} before the second: {}",
            if cover == Cover::Covered { "covered" } else { "NOT covered" }
        ),
        _ => {
            let whole = handoff.to_string();
            let said = whole.rsplit(": ").next().unwrap_or_default();
            format!("PTX has a two-barrier handoff: {said}")
        }
    }
}

/// The best of the budgets against the kernel's own, in a sentence for each kernel.
fn best_budgets(regs: &RegsOutcome) -> Vec<String> {
    regs.plans
        .iter()
        .filter_map(|plan| {
            let rows = || regs.rows.iter().filter(|r| r.function == plan.function);
            let (own, best) = (rows().next()?, rows().find(|r| r.best)?);
            let spilled = |r: &kbt_sass::regs::RegsRow| r.spill_store_bytes + r.spill_load_bytes;
            let cycles = |r: &kbt_sass::regs::RegsRow| {
                r.predicted.as_ref().map_or_else(String::new, |p| format!(", {:.0} cycles a turn of {}", p.cycles, p.region))
            };
            // Settings that nothing tells apart are no best.
            let alike = regs.as_good_as(best);
            let told = match alike.iter().any(|r| r.setting_registers == own.setting_registers) {
                _ if alike.len() == 1 => "the best".to_owned(),
                true => format!("as good as any of {}", alike.len()),
                false => format!("better are any of {}, the nearest of them", alike.len()),
            };
            Some(format!(
                "register budgets {:?} (the kernel's own): {} bytes spilled{}; {told} of {} settings that fit {} registers: \
                 {:?}, {} bytes{}",
                own.setting_registers,
                spilled(own),
                cycles(own),
                rows().count(),
                plan.pool_registers,
                best.setting_registers,
                spilled(best),
                cycles(best),
            ))
        })
        .collect()
}

/// The verdict on register budgets with what the study of them found.
fn with_budgets(verdict: Verdict, regs: &RegsOutcome) -> Verdict {
    if verdict.class != FixClass::RegisterBudget {
        return verdict;
    }
    best_budgets(regs).into_iter().fold(verdict, |v, line| v.with(Evidence::supports(line, Vec::new())))
}

/// How far above the bound the cycle model must see the code for the bound alone not to rule reordering out.
const WELL_ABOVE: f64 = 1.25;

/// The verdict on reordering with the cycle model's word on the loop as it is: stall counts alone can look near the bound
/// where scoreboards make the warps wait far beyond it.
fn with_prediction(mut verdict: Verdict, regs: &RegsOutcome, bound: Option<&Bound>) -> Verdict {
    let predicted = regs.rows.first().and_then(|r| r.predicted.as_ref());
    let (Some(predicted), Some(bound)) = (predicted, bound) else { return verdict };
    if verdict.class != FixClass::Reorder || predicted.cycles < WELL_ABOVE * bound.lower_bound_cycles {
        return verdict;
    }
    let figure = Figure::new(
        format!("a turn of {} as the cycle model has it", predicted.region),
        predicted.cycles,
        Measure::Cycles,
        predicted.provenance.clone(),
    );
    let statement = format!(
        "the cycle model has {:.0} cycles where the bound is {:.0}: waits for results, not the order of issue, or an order \
         that hides them badly",
        predicted.cycles, bound.lower_bound_cycles
    );
    if verdict.standing == Standing::RuledOut {
        verdict.standing = Standing::Open;
        verdict.reason = "its stall counts are near the bound, but the cycle model is well above it".into();
    }
    let verdict = verdict.with(Evidence::against(statement, vec![figure]));
    verdict.next("time two source orders of the loop in turn on the device")
}

/// What the lints find that makes results wrong: correctness comes before speed.
fn wrong(lint: &LintOutcome) -> Option<Verdict> {
    let faults: Vec<&Finding> = lint
        .findings
        .iter()
        .filter(|f| matches!(f.rule, LintRule::MissingProxyFence | LintRule::HandoffShort))
        .collect();
    let first = faults.first()?;
    let reason = format!("{} places where the code may read what is not written yet", faults.len());
    let verdict = Verdict::new(FixClass::Correctness, Standing::Recommended, Step::Schedule, reason);
    let verdict = faults
        .iter()
        .fold(verdict, |v, f| v.with(Evidence::supports(format!("{}: {}", f.place, f.message), Vec::new())));
    Some(verdict.next(first.fix.clone()))
}
