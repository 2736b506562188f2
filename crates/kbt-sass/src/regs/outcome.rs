//! What a sweep found, which setting is best, and where the curve turns.

use super::{Predicted, RolePlan};
use kbt_device::Arch;
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The result of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegsOutcome {
    /// Always `kbt.sass.regs/1`.
    pub schema: String,
    /// The target.
    pub arch: Arch,
    /// What is swept: `maxnreg`, `setmaxnreg 232`, or `setmaxnreg of every role`.
    pub swept: String,
    /// Which budgets fit together, for each kernel whose roles are swept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<RolePlan>,
    /// One row for each setting and kernel, in the order they were tried.
    pub rows: Vec<RegsRow>,
    /// Settings that the compiler refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedSetting>,
    /// Where more registers spill more.
    pub not_monotonic: Vec<String>,
    /// How the counts are known.
    pub provenance: Provenance,
}

/// One kernel under one setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegsRow {
    /// The cap, the budget, or the budget of each role.
    pub setting_registers: Vec<u32>,
    /// The kernel.
    pub function: String,
    /// Registers a thread that it is allocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registers: Option<u32>,
    /// Instructions without padding.
    pub instructions: u64,
    /// Bytes spilled out, wherever to.
    pub spill_store_bytes: u64,
    /// Bytes loaded back.
    pub spill_load_bytes: u64,
    /// The stack frame.
    pub stack_bytes: u64,
    /// The same by role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleCost>,
    /// Why it cannot be launched as the kernel's `.maxntid`, `.reqntid` and `.minnctapersm` say; it is never the best then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unusable: Option<String>,
    /// Whether it spills least of its kernel's rows; of several the one that is predicted to be fastest, then the smallest
    /// cap, or the setting nearest to the kernel's own.
    pub best: bool,
    /// What a turn of its busiest loop is predicted to take, where rates were given and the loop can be modelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<Predicted>,
    /// What the compiler remarked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

impl RegsRow {
    const fn spill_bytes(&self) -> u64 {
        self.spill_store_bytes + self.spill_load_bytes
    }

    /// Predicted cycles in quarters, the last of all where there is no prediction.
    fn quarters(&self) -> u64 {
        self.predicted.as_ref().map_or(u64::MAX, |p| (4.0 * p.cycles).round() as u64)
    }

    fn setting(&self) -> String {
        text(&self.setting_registers)
    }
}

/// What one role costs under a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleCost {
    /// The region, as in the metrics.
    pub name: String,
    /// The budget it has in this setting, as the machine code has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setmaxnreg_registers: Option<u32>,
    /// Its instructions.
    pub instructions: u64,
    /// Bytes it spills out.
    pub spill_store_bytes: u64,
    /// Bytes it loads back.
    pub spill_load_bytes: u64,
}

/// A setting that the compiler refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusedSetting {
    /// The cap or budgets.
    pub setting_registers: Vec<u32>,
    /// What the compiler said.
    pub message: String,
}

impl RegsOutcome {
    pub(super) fn new(arch: Arch) -> Self {
        Self {
            schema: "kbt.sass.regs/1".to_owned(),
            arch,
            swept: String::new(),
            plans: Vec::new(),
            rows: Vec::new(),
            refused: Vec::new(),
            not_monotonic: Vec::new(),
            provenance: Provenance::mined("a compiler that made nothing"),
        }
    }

    /// Marks the best row of each kernel and says where the curves turn.
    pub(super) fn judge(&mut self) {
        let functions: BTreeSet<String> = self.rows.iter().map(|r| r.function.clone()).collect();
        for function in functions {
            let of = |r: &RegsRow| r.function == function;
            // Budgets of roles are tried nearest first; of caps the smallest leaves most room for other CTAs.
            let smallest = self.plans.is_empty();
            let rank = |n: usize, r: &RegsRow| {
                (
                    r.spill_bytes(),
                    r.quarters(),
                    if smallest { r.setting_registers.clone() } else { vec![n as u32] },
                )
            };
            let rows = self.rows.iter().enumerate().filter(|(_, r)| of(r) && r.unusable.is_none());
            if let Some((best, _)) = rows.min_by_key(|(n, r)| rank(*n, r)) {
                self.rows[best].best = true;
            }
            self.not_monotonic.extend(self.turns(&function));
        }
    }

    fn turns(&self, function: &str) -> Vec<String> {
        let rows = || self.rows.iter().filter(|r| r.function == function);
        if self.plans.is_empty() {
            let curve = rows().filter_map(|r| Some((*r.setting_registers.first()?, r.spill_bytes())));
            return turn(function, curve.collect()).into_iter().collect();
        }
        // A role's spills follow from its own budget; of several settings with it the least counts.
        let roles = rows().map(|r| r.setting_registers.len()).max().unwrap_or(0);
        (0..roles)
            .filter_map(|n| {
                let mut curve: BTreeMap<u32, u64> = BTreeMap::new();
                for row in rows() {
                    let budget = *row.setting_registers.get(n)?;
                    let same: Vec<_> =
                        row.roles.iter().filter(|r| r.setmaxnreg_registers == Some(budget)).collect();
                    // Two roles with one budget cannot be told apart here.
                    if let [role] = same.as_slice() {
                        let bytes = role.spill_store_bytes + role.spill_load_bytes;
                        curve.entry(budget).and_modify(|b| *b = bytes.min(*b)).or_insert(bytes);
                    }
                }
                let site = self.plans.iter().find(|p| p.function == function)?.sites.get(n)?;
                turn(&format!("{function}, setmaxnreg of {site}"), curve.into_iter().collect())
            })
            .collect()
    }

    /// The settings that neither spills nor predicted cycles tell from this one, itself among them.
    #[must_use]
    pub fn as_good_as(&self, row: &RegsRow) -> Vec<&RegsRow> {
        let alike = |r: &&RegsRow| {
            r.function == row.function
                && r.unusable.is_none()
                && (r.spill_bytes(), r.quarters()) == (row.spill_bytes(), row.quarters())
        };
        self.rows.iter().filter(alike).collect()
    }

    /// The row of the budgets that the kernel has as it is written; caps are none of its own.
    #[must_use]
    pub fn own(&self, function: &str) -> Option<&RegsRow> {
        // Budgets of roles are tried from the kernel's own on.
        let planned = self.plans.iter().any(|p| p.function == function);
        self.rows.iter().find(|r| planned && r.function == function)
    }

    /// The best setting of each kernel, then the sweep as a table with the best marked.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut out = String::new();
        for row in self.rows.iter().filter(|r| r.best) {
            let spills = match row.spill_bytes() {
                0 => "no spills".to_owned(),
                _ => format!("{} B spilled, {} B loaded back", row.spill_store_bytes, row.spill_load_bytes),
            };
            let (name, setting) = (&row.function, row.setting());
            let swept = &self.swept;
            let told = match self.as_good_as(row).len() {
                0 | 1 => format!("best for {name}: {setting} ({swept}), {spills}"),
                n => {
                    let first = match self.own(name) {
                        None => "the smallest ",
                        Some(own) if own.setting_registers == row.setting_registers => {
                            "among them the kernel's own "
                        }
                        Some(_) => "the nearest to the kernel's own ",
                    };
                    format!("for {name}: any of {n} settings, {first}{setting} ({swept}), {spills}")
                }
            };
            out += &format!("{told}\n");
        }
        let kernels: BTreeSet<&str> = self.rows.iter().map(|r| r.function.as_str()).collect();
        for name in kernels.into_iter().filter(|k| !self.rows.iter().any(|r| r.best && r.function == *k)) {
            out += &format!("no setting of {name} can be launched as its PTX says ({})\n", self.swept);
        }
        for plan in &self.plans {
            out += &format!(
                "{}: setmaxnreg of {} for {} warpgroups ({}); {} registers a thread at launch, {} in all\n",
                plan.function,
                plan.sites.join(", "),
                text(&plan.warpgroups),
                plan.warpgroups_by,
                plan.launch_registers,
                plan.pool_registers
            );
        }
        out += &format!(
            "  {:>14}  {:>9}  {:>12}  {:>10}  {:>11}  {:>7}  {:>12}  kernel ({})\n",
            "setting", "registers", "instructions", "spills out", "spills back", "stack", "cycles", self.arch
        );
        let mut rows: Vec<&RegsRow> = self.rows.iter().collect();
        if !self.plans.is_empty() {
            // Caps are a curve, and are read in its order; of budgets the best come first.
            rows.sort_by_key(|r| (r.spill_bytes(), r.quarters()));
        }
        for row in rows {
            let cycles =
                row.predicted.as_ref().map_or_else(|| "?".to_owned(), |p| format!("{:.0}", p.cycles));
            let own = match self.own(&row.function) {
                Some(own) if own.setting_registers == row.setting_registers => "  (the kernel's own setting)",
                _ => "",
            };
            let registers = row.registers.map_or_else(|| "?".to_owned(), |n| n.to_string());
            out += &format!(
                "{} {:>14}  {registers:>9}  {:>12}  {:>8} B  {:>9} B  {:>5} B  {cycles:>12}  {}{own}\n",
                match (row.best, self.as_good_as(row).iter().any(|r| r.best)) {
                    (true, _) => "*",
                    (false, true) => "=",
                    (false, false) => " ",
                },
                row.setting(),
                row.instructions,
                row.spill_store_bytes,
                row.spill_load_bytes,
                row.stack_bytes,
                row.function
            );
            out.extend(row.unusable.iter().map(|why| format!("                  not as launched: {why}\n")));
            out.extend(row.remarks.iter().map(|remark| format!("                  {remark}\n")));
        }
        for refused in &self.refused {
            out += &format!("  {:>14}  refused: {}\n", text(&refused.setting_registers), refused.message);
        }
        if let Some(p) = self.rows.iter().find_map(|r| r.predicted.as_ref()) {
            out += &format!(
                "cycles: of a turn of {} for {} warps a scheduler; {}: {}\n",
                p.region, p.warps, p.provenance.kind, p.provenance.by
            );
        }
        out.extend(self.not_monotonic.iter().map(|t| format!("not monotonic: {t}\n")));
        out + &format!("{}\n", self.provenance)
    }
}

fn text(numbers: &[u32]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join("/")
}

/// Where a curve of registers and spilled bytes goes up; the steepest place.
fn turn(what: &str, mut curve: Vec<(u32, u64)>) -> Option<String> {
    curve.sort_unstable();
    let rises = curve.windows(2).filter(|w| w[1].1 > w[0].1);
    let [(fewer, less), (more, grown)] = *rises.max_by_key(|w| w[1].1 - w[0].1)? else { return None };
    Some(format!("{what}: spills grow from {less} to {grown} bytes between {fewer} and {more} registers"))
}
