//! Register budgets: the same PTX assembled under a sweep of caps, and what each costs.
//!
//! More registers do not always mean fewer spills, so the whole curve is worth printing. The compiler is a
//! trait: this crate runs nothing.

use crate::metrics::Analysis;
use crate::{Listing, Unit};
use kbt_device::Arch;
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
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

/// What is swept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sweep {
    /// The cap of every kernel (`.maxnreg`).
    Cap(Vec<u32>),
    /// The budget that `setmaxnreg` sets, in place of the first value.
    Budget(u32, Vec<u32>),
}

/// Caps that a sweep takes if none are named.
pub const CAPS: [u32; 12] = [32, 40, 48, 56, 64, 80, 96, 112, 128, 168, 200, 255];

/// The result of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegsOutcome {
    /// Always `kbt.sass/1`.
    pub schema: String,
    /// The target.
    pub arch: Arch,
    /// What is swept: `maxnreg`, or `setmaxnreg 232`.
    pub swept: String,
    /// One row for each setting and kernel.
    pub rows: Vec<RegsRow>,
    /// Settings that the compiler refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedSetting>,
    /// How the counts are known.
    pub provenance: Provenance,
}

/// One kernel under one setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegsRow {
    /// The cap or budget.
    pub setting_registers: u32,
    /// The kernel.
    pub function: String,
    /// Registers a thread that it is allocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registers: Option<u32>,
    /// Instructions without padding.
    pub instructions: u64,
    /// Bytes spilled out.
    pub spill_store_bytes: u64,
    /// Bytes loaded back.
    pub spill_load_bytes: u64,
    /// The stack frame.
    pub stack_bytes: u64,
    /// What the compiler remarked, or why there is no row's worth of counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// A setting that the compiler refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusedSetting {
    /// The cap or budget.
    pub setting_registers: u32,
    /// What the compiler said.
    pub message: String,
}

/// PTX that cannot be swept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegsError {
    /// Not PTX.
    #[error(transparent)]
    Ptx(#[from] kbt_ptx::PtxError),
    /// No `setmaxnreg` of that value.
    #[error("no setmaxnreg of {wanted} registers; the kernel sets {there:?}")]
    NoBudget {
        /// The value asked for.
        wanted: u32,
        /// The values there are.
        there: Vec<u32>,
    },
    /// No setting could be assembled.
    #[error("no setting could be assembled; the first: {0}")]
    Compiler(String),
}

/// Assembles `ptx` under every setting.
pub fn sweep(ptx: &str, arch: Arch, what: &Sweep, compiler: &dyn Compiler) -> Result<RegsOutcome, RegsError> {
    let ptx = ptx.trim_end_matches('\0');
    let module = kbt_ptx::parse(ptx)?;
    let (swept, settings) = match what {
        Sweep::Cap(caps) => ("maxnreg".to_owned(), caps),
        Sweep::Budget(from, to) => {
            let there = kbt_ptx::register_budgets(&module);
            if !there.contains(from) {
                return Err(RegsError::NoBudget { wanted: *from, there });
            }
            (format!("setmaxnreg {from}"), to)
        }
    };
    let mut outcome = RegsOutcome {
        schema: crate::outcome::SCHEMA.to_owned(),
        arch,
        swept,
        rows: Vec::new(),
        refused: Vec::new(),
        provenance: Provenance::mined("a compiler that made nothing"),
    };
    for &setting in settings {
        let text = match what {
            Sweep::Cap(_) => kbt_ptx::with_register_cap(ptx, &module, setting),
            Sweep::Budget(from, _) => kbt_ptx::with_budget(ptx, &module, *from, setting),
        };
        match compiler.assemble(&text, arch) {
            Ok(build) => {
                outcome.provenance = crate::metrics::provenance(&build.listing);
                outcome.rows.extend(rows(&build, setting));
            }
            Err(message) => outcome.refused.push(RefusedSetting { setting_registers: setting, message }),
        }
    }
    match outcome.refused.first() {
        Some(first) if outcome.rows.is_empty() => Err(RegsError::Compiler(first.message.clone())),
        _ => Ok(outcome),
    }
}

fn rows(build: &Build, setting: u32) -> impl Iterator<Item = RegsRow> + '_ {
    // A remark that names no kernel of this listing is everybody's.
    let names_any = |remark: &str| build.listing.functions.iter().any(|f| remark.contains(&f.name));
    let concerns = move |remark: &str, name: &str| remark.contains(name) || !names_any(remark);
    build.listing.functions.iter().map(move |function| {
        let analysis = Analysis::new(function, &Unit::mufu(), &Unit::f2fp());
        let section = analysis.section();
        let local = section.local_memory;
        RegsRow {
            setting_registers: setting,
            function: function.name.clone(),
            registers: build.registers.get(&function.name).copied(),
            instructions: section.instructions,
            spill_store_bytes: local.spill_store_bytes + local.shared_spill_store_bytes,
            spill_load_bytes: local.spill_load_bytes + local.shared_spill_load_bytes,
            stack_bytes: local.stack_bytes,
            remarks: build.remarks.iter().filter(|r| concerns(r, &function.name)).cloned().collect(),
        }
    })
}

impl RegsOutcome {
    /// The sweep as a table.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut out = format!(
            "{:>10}  {:>9}  {:>12}  {:>10}  {:>11}  {:>7}  kernel ({})\n",
            self.swept, "registers", "instructions", "spills out", "spills back", "stack", self.arch
        );
        for row in &self.rows {
            let registers = row.registers.map_or_else(|| "?".to_owned(), |n| n.to_string());
            out += &format!(
                "{:>10}  {registers:>9}  {:>12}  {:>8} B  {:>9} B  {:>5} B  {}\n",
                row.setting_registers,
                row.instructions,
                row.spill_store_bytes,
                row.spill_load_bytes,
                row.stack_bytes,
                row.function
            );
            for remark in &row.remarks {
                out += &format!("            {remark}\n");
            }
        }
        for refused in &self.refused {
            out += &format!("{:>10}  refused: {}\n", refused.setting_registers, refused.message);
        }
        out + &format!("{}\n", self.provenance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Refuses odd caps, and spills below 64 registers.
    struct Fake;

    impl Compiler for Fake {
        fn assemble(&self, ptx: &str, _arch: Arch) -> Result<Build, String> {
            let number =
                |after: &str| ptx.split(after).nth(1)?.trim_start().split([';', '\n']).next()?.parse().ok();
            let cap: u32 = number(".maxnreg").or_else(|| number("u32")).unwrap();
            if cap % 2 == 1 {
                return Err(format!("{cap} is odd"));
            }
            let spill = if cap < 64 { "/*0000*/ STL [R1], R2 (*\"SpillRefill\"*);\n" } else { "" };
            let text = format!(".section .text.k,\"ax\",@progbits\n{spill}/*0010*/ EXIT ;\n");
            let listing = crate::parse(text.as_bytes()).unwrap();
            Ok(Build { listing, registers: BTreeMap::from([("k".to_owned(), cap)]), remarks: Vec::new() })
        }
    }

    const PTX: &str = ".version 9.0\n.target sm_90a\n.visible .entry k()\n{\nsetmaxnreg.inc.sync.aligned.u32 \
                       232;\nret;\n}\n";

    #[test]
    fn every_setting_is_a_row_or_a_refusal() {
        let found = sweep(PTX, Arch::SM_90A, &Sweep::Cap(vec![32, 33, 64]), &Fake).unwrap();
        let rows: Vec<_> = found.rows.iter().map(|r| (r.setting_registers, r.spill_store_bytes)).collect();
        assert_eq!(rows, [(32, 4), (64, 0)]);
        assert_eq!(found.refused[0].message, "33 is odd");
        let text = found.render_text();
        assert!(text.contains("refused: 33 is odd") && text.contains("spills out"), "{text}");
        let json = serde_json::to_value(&found).unwrap();
        assert_eq!(kbt_evidence::audit::uncovered_numbers(&json), Vec::<String>::new());
    }

    #[test]
    fn budgets_that_are_not_there_and_compilers_that_refuse_all_are_errors() {
        let found = sweep(PTX, Arch::SM_90A, &Sweep::Budget(100, vec![40]), &Fake).unwrap_err().to_string();
        assert!(found.contains("[232]"), "{found}");
        let found = sweep(PTX, Arch::SM_90A, &Sweep::Cap(vec![33]), &Fake).unwrap_err();
        assert_eq!(found, RegsError::Compiler("33 is odd".to_owned()));
        assert!(sweep("nothing", Arch::SM_90A, &Sweep::Cap(vec![32]), &Fake).is_err());
    }
}
