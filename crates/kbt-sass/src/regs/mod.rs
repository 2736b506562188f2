//! Register budgets: the same PTX assembled under a sweep of caps or of budgets, and what each costs.
//!
//! More registers do not always mean fewer spills, so the whole curve is worth printing. The compiler is a
//! trait: this crate runs nothing.

mod launch;
mod outcome;
mod plan;
mod predict;

pub use outcome::{RefusedSetting, RegsOutcome, RegsRow, RoleCost};
pub use plan::{PlanError, RolePlan};
pub use predict::Predicted;

use crate::metrics::Analysis;
use crate::outcome::LocalMemory;
use crate::{Listing, Unit};
use kbt_device::{Arch, DeviceProfile};
use std::collections::BTreeMap;

/// Assembles and lists PTX.
pub trait Compiler {
    /// Assembles PTX for a target. The message of an error says what the compiler said.
    fn assemble(&self, ptx: &str, arch: Arch) -> Result<Build, String>;
}

/// What a [`Compiler`] made.
#[derive(Debug, Clone)]
pub struct Build {
    /// The listing of the machine code.
    pub listing: Listing,
    /// Registers a thread of each kernel, as the compiler says.
    pub registers: BTreeMap<String, u32>,
    /// What the compiler remarked.
    pub remarks: Vec<String>,
}

impl Build {
    /// Registers a thread of a kernel at launch: as the compiler says, else as its machine code states.
    fn registers_of(&self, function: &str) -> Option<u32> {
        let stated = || self.listing.function(function)?.resources?.registers;
        self.registers.get(function).copied().or_else(stated)
    }
}

/// What is swept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sweep {
    /// The cap of every kernel (`.maxnreg`).
    Cap(Vec<u32>),
    /// The budget that `setmaxnreg` sets, in place of the first value.
    Budget(u32, Vec<u32>),
    /// The budgets of all roles of a kernel together, as they fit the register file.
    Roles {
        /// How many settings to try: the nearest to what the kernel has.
        most: usize,
        /// Warpgroups of each role, in the order of its `setmaxnreg` in the PTX; worked out where not given.
        warpgroups: Option<Vec<u32>>,
    },
    /// `Roles` where the PTX has `setmaxnreg`, else [`CAPS`].
    Auto {
        /// As in `Roles`.
        most: usize,
        /// As in `Roles`.
        warpgroups: Option<Vec<u32>>,
    },
}

/// Caps that a sweep takes if none are named.
pub const CAPS: [u32; 12] = [32, 40, 48, 56, 64, 80, 96, 112, 128, 168, 200, 255];

/// PTX that cannot be swept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegsError {
    /// Not PTX.
    #[error(transparent)]
    Ptx(#[from] kbt_ptx::PtxError),
    /// No `setmaxnreg` of that value.
    #[error("no setmaxnreg of {wanted} registers; the kernels set {there:?}")]
    NoBudget {
        /// The value asked for.
        wanted: u32,
        /// The values there are.
        there: Vec<u32>,
    },
    /// The roles' budgets cannot be varied.
    #[error("{function}: {error}")]
    Plan {
        /// The kernel.
        function: String,
        /// Why.
        error: PlanError,
    },
    /// No setting could be assembled.
    #[error("no setting could be assembled; the first: {0}")]
    Compiler(String),
}

/// One text to assemble.
struct Job {
    setting: Vec<u32>,
    text: String,
    /// The kernel whose rows count; all of them where the setting is everybody's.
    function: Option<String>,
}

/// Assembles `ptx` under every setting.
pub fn sweep(ptx: &str, arch: Arch, what: &Sweep, compiler: &dyn Compiler) -> Result<RegsOutcome, RegsError> {
    study(ptx, arch, what, None, compiler)
}

/// Assembles `ptx` under every setting and, with the rates of `profile`, predicts what the kernels' busiest loops take.
pub fn study(
    ptx: &str,
    arch: Arch,
    what: &Sweep,
    profile: Option<&DeviceProfile>,
    compiler: &dyn Compiler,
) -> Result<RegsOutcome, RegsError> {
    let ptx = ptx.trim_end_matches('\0');
    let module = kbt_ptx::parse(ptx)?;
    let budgeted: Vec<_> = module.entries().filter(|f| kbt_ptx::budget_sites(f).next().is_some()).collect();
    let mut outcome = RegsOutcome::new(arch);
    let mut jobs = Vec::new();
    match what {
        Sweep::Cap(caps) => {
            "maxnreg".clone_into(&mut outcome.swept);
            jobs.extend(caps.iter().map(|cap| cap_job(ptx, &module, *cap)));
        }
        Sweep::Auto { .. } if budgeted.is_empty() => {
            "maxnreg".clone_into(&mut outcome.swept);
            jobs.extend(CAPS.iter().map(|cap| cap_job(ptx, &module, *cap)));
        }
        Sweep::Budget(from, to) => {
            let sites = || module.functions.iter().flat_map(kbt_ptx::budget_sites);
            if sites().all(|s| s.registers != *from) {
                let there = sites().map(|s| s.registers).collect();
                return Err(RegsError::NoBudget { wanted: *from, there });
            }
            outcome.swept = format!("setmaxnreg {from}");
            jobs.extend(to.iter().map(|setting| budget_job(ptx, *from, *setting)));
        }
        Sweep::Roles { most, warpgroups } | Sweep::Auto { most, warpgroups } => {
            "setmaxnreg of every role".clone_into(&mut outcome.swept);
            if budgeted.is_empty() {
                return Err(RegsError::NoBudget { wanted: 0, there: Vec::new() });
            }
            for function in budgeted {
                let plan = RolePlan::new(function, warpgroups.as_deref(), *most)
                    .map_err(|error| RegsError::Plan { function: function.name.clone(), error })?;
                jobs.extend(plan.settings.iter().map(|setting| Job {
                    text: kbt_ptx::with_budgets(ptx, function, setting),
                    setting: setting.clone(),
                    function: Some(function.name.clone()),
                }));
                outcome.plans.push(plan);
            }
        }
    }
    for job in jobs {
        match compiler.assemble(&job.text, arch) {
            Ok(build) => {
                outcome.provenance = crate::metrics::provenance(&build.listing);
                // The first setting of a kernel is its own: what it is launched with is the compiler's to say.
                for plan in &mut outcome.plans {
                    if plan.settings.first() == Some(&job.setting)
                        && job.function.as_ref() == Some(&plan.function)
                        && let Some(registers) = build.registers_of(&plan.function)
                    {
                        plan.launched_with(registers);
                    }
                }
                let plans = &outcome.plans;
                outcome.rows.extend(rows(&build, &job, plans, profile));
            }
            Err(message) => {
                outcome.refused.push(RefusedSetting { setting_registers: job.setting, message });
            }
        }
    }
    match outcome.refused.first() {
        Some(first) if outcome.rows.is_empty() => Err(RegsError::Compiler(first.message.clone())),
        _ => {
            if outcome.plans.is_empty() {
                outcome.hold_against(&module);
            }
            outcome.judge();
            Ok(outcome)
        }
    }
}

fn cap_job(ptx: &str, module: &kbt_ptx::Module, cap: u32) -> Job {
    Job { setting: vec![cap], text: kbt_ptx::with_register_cap(ptx, module, cap), function: None }
}

/// Sets every budget of `from` registers to `to`, function by function, since each edit moves what is behind it.
fn budget_job(ptx: &str, from: u32, to: u32) -> Job {
    let mut text = ptx.to_owned();
    let count = kbt_ptx::parse(ptx).map_or(0, |m| m.functions.len());
    for n in 0..count {
        let Ok(module) = kbt_ptx::parse(&text) else { break };
        let Some(function) = module.functions.get(n) else { break };
        let set = |s: kbt_ptx::BudgetSite| if s.registers == from { to } else { s.registers };
        let budgets: Vec<u32> = kbt_ptx::budget_sites(function).map(set).collect();
        text = kbt_ptx::with_budgets(&text, function, &budgets);
    }
    Job { setting: vec![to], text, function: None }
}

fn rows<'b>(
    build: &'b Build,
    job: &'b Job,
    plans: &'b [RolePlan],
    profile: Option<&'b DeviceProfile>,
) -> impl Iterator<Item = RegsRow> + 'b {
    // A remark that names no kernel of this listing is everybody's.
    let names_any = |remark: &str| build.listing.functions.iter().any(|f| remark.contains(&f.name));
    let concerns = move |remark: &str, name: &str| remark.contains(name) || !names_any(remark);
    let functions = build.listing.functions.iter();
    functions.filter(|f| job.function.as_ref().is_none_or(|name| *name == f.name)).map(move |function| {
        let analysis = Analysis::new(function, &Unit::mufu(), &Unit::f2fp());
        let section = analysis.section();
        let role = |region: &crate::outcome::Section| RoleCost {
            name: region.name.clone(),
            setmaxnreg_registers: region.set_max_registers,
            instructions: region.instructions,
            spill_store_bytes: stored(&region.local_memory),
            spill_load_bytes: loaded(&region.local_memory),
        };
        RegsRow {
            setting_registers: job.setting.clone(),
            function: function.name.clone(),
            registers: build.registers_of(&function.name),
            instructions: section.instructions,
            spill_store_bytes: stored(&section.local_memory),
            spill_load_bytes: loaded(&section.local_memory),
            stack_bytes: section.local_memory.stack_bytes,
            roles: section.regions.iter().map(role).collect(),
            best: false,
            unusable: None,
            predicted: profile.and_then(|p| {
                let plan = plans.iter().find(|plan| plan.function == function.name);
                predict::predict(function, &analysis, plan, &job.setting, p).ok()
            }),
            remarks: build.remarks.iter().filter(|r| concerns(r, &function.name)).cloned().collect(),
        }
    })
}

const fn stored(local: &LocalMemory) -> u64 {
    local.spill_store_bytes + local.shared_spill_store_bytes
}

const fn loaded(local: &LocalMemory) -> u64 {
    local.spill_load_bytes + local.shared_spill_load_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Refuses odd caps, spills below 64 registers, and once more at 96.
    struct Fake;

    impl Compiler for Fake {
        fn assemble(&self, ptx: &str, _arch: Arch) -> Result<Build, String> {
            let number =
                |after: &str| ptx.split(after).nth(1)?.trim_start().split([';', '\n']).next()?.parse().ok();
            let cap: u32 = number(".maxnreg").or_else(|| number("u32")).unwrap();
            if cap % 2 == 1 {
                return Err(format!("{cap} is odd"));
            }
            let spills = cap < 64 || cap == 96;
            let spill = if spills { "/*0000*/ STL [R1], R2 (*\"SpillRefill\"*);\n" } else { "" };
            let text = format!(".section .text.k,\"ax\",@progbits\n{spill}/*0010*/ EXIT ;\n");
            let listing = crate::parse(text.as_bytes()).unwrap();
            Ok(Build { listing, registers: BTreeMap::from([("k".to_owned(), cap)]), remarks: Vec::new() })
        }
    }

    const PTX: &str = ".version 9.0\n.target sm_90a\n.visible .entry k()\n.maxntid 384, 1, 1\n{\n@%p1 bra \
                       $L;\nsetmaxnreg.inc.sync.aligned.u32 232;\nret;\n$L:\nsetmaxnreg.dec.sync.aligned.u32 \
                       24;\nret;\n}\n";

    #[test]
    fn every_setting_is_a_row_or_a_refusal() {
        let found = sweep(PTX, Arch::SM_90A, &Sweep::Cap(vec![32, 33, 64]), &Fake).unwrap();
        let rows: Vec<_> =
            found.rows.iter().map(|r| (r.setting_registers[0], r.spill_store_bytes, r.best)).collect();
        assert_eq!(rows, [(32, 4, false), (64, 0, true)]);
        assert_eq!(found.refused[0].message, "33 is odd");
        let text = found.render_text();
        assert!(text.starts_with("best for k: 64") && text.contains("refused: 33 is odd"), "{text}");
        let json = serde_json::to_value(&found).unwrap();
        assert_eq!(kbt_evidence::audit::uncovered_numbers(&json), Vec::<String>::new());
    }

    #[test]
    fn a_curve_that_turns_is_said_to_turn() {
        let found = sweep(PTX, Arch::SM_90A, &Sweep::Cap(vec![32, 64, 80, 96, 128]), &Fake).unwrap();
        assert_eq!(found.not_monotonic, ["k: spills grow from 0 to 4 bytes between 80 and 96 registers"]);
        assert!(found.render_text().contains("not monotonic"));
        let found = sweep(PTX, Arch::SM_90A, &Sweep::Cap(vec![32, 64, 80]), &Fake).unwrap();
        assert_eq!(found.not_monotonic, Vec::<String>::new());
        let text = found.render_text();
        assert!(text.starts_with("for k: any of 2 settings, the smallest 64 (maxnreg), no spills"), "{text}");
        assert!(text.lines().any(|l| l.starts_with("= ") && l.contains(" 80 ")), "{text}");
        // The least of those that spill least.
        assert_eq!(found.rows.iter().find(|r| r.best).unwrap().setting_registers, [64]);
    }

    #[test]
    fn a_cap_that_cannot_launch_as_the_ptx_says_is_never_the_best() {
        let sweep_of = |threads: &str| {
            let ptx = PTX.replace(".maxntid 384, 1, 1", threads);
            sweep(&ptx, Arch::SM_90A, &Sweep::Cap(vec![32, 64, 80, 128, 168]), &Fake).unwrap()
        };
        let best = |found: &RegsOutcome| found.rows.iter().find(|r| r.best).map(|r| r.setting_registers[0]);
        assert_eq!(best(&sweep_of("")), Some(64));
        assert_eq!(best(&sweep_of(".maxntid 384, 1, 1")), Some(64));
        assert_eq!(best(&sweep_of(".maxntid 1024, 1, 1")), Some(64));
        // Above 32 registers two of these do not fit an SM, and below 64 the kernel spills: that is what there is.
        let found = sweep_of(".reqntid 1024, 1, 1\n.minnctapersm 2");
        assert_eq!(best(&found), Some(32));
        let text = found.render_text();
        assert!(
            text.contains("not as launched: 1024 threads x 2 CTAs an SM leave 32 registers a thread"),
            "{text}"
        );
        let found =
            sweep(&PTX.replace("384", "1024"), Arch::SM_90A, &Sweep::Cap(vec![80, 128]), &Fake).unwrap();
        assert_eq!(best(&found), None);
        assert!(found.render_text().contains("no setting of k can be launched"), "{}", found.render_text());
    }

    #[test]
    fn roles_are_swept_where_there_are_roles() {
        let auto = Sweep::Auto { most: 3, warpgroups: None };
        let found = sweep(PTX, Arch::SM_90A, &auto, &Fake).unwrap();
        let settings: Vec<_> = found.rows.iter().map(|r| r.setting_registers.as_slice()).collect();
        assert_eq!(settings, [[232, 24], [240, 24], [232, 40]]);
        assert_eq!(found.plans[0].warpgroups, [2, 1]);
        let plain = PTX.replace("setmaxnreg", "// setmaxnreg");
        let found = sweep(&plain, Arch::SM_90A, &auto, &Fake).unwrap();
        assert_eq!((found.swept.as_str(), found.rows.len() + found.refused.len()), ("maxnreg", CAPS.len()));
    }

    #[test]
    fn budgets_that_are_not_there_and_compilers_that_refuse_all_are_errors() {
        let found = sweep(PTX, Arch::SM_90A, &Sweep::Budget(100, vec![40]), &Fake).unwrap_err().to_string();
        assert!(found.contains("[232, 24]"), "{found}");
        let found = sweep(PTX, Arch::SM_90A, &Sweep::Cap(vec![33]), &Fake).unwrap_err();
        assert_eq!(found, RegsError::Compiler("33 is odd".to_owned()));
        assert!(sweep("nothing", Arch::SM_90A, &Sweep::Cap(vec![32]), &Fake).is_err());
        let found = sweep(PTX, Arch::SM_90A, &Sweep::Budget(232, vec![200]), &Fake).unwrap();
        assert_eq!(found.rows[0].setting_registers, [200]);
    }
}
