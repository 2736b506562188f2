//! Budgets of a kernel's roles that fit the register file together.
//!
//! `setmaxnreg` moves registers within the pool that the launch reserved: the registers at launch times the
//! warpgroups. A setting that asks for more never returns; one that leaves eight over wastes them. ptxas gives a thread at
//! launch the most that any role sets, or what the launch bounds leave where that is less.

use kbt_ptx::{BudgetSite, Function};
use serde::{Deserialize, Serialize};

/// The settings of a kernel's roles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolePlan {
    /// The kernel.
    pub function: String,
    /// Lines of its `setmaxnreg`, in the order of the settings: `line 162`.
    pub sites: Vec<String>,
    /// How many of them, one after the other, are of one role: the warps of a warpgroup that do different things each set
    /// the warpgroup's budget. Empty where each is a role of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sites_of_role: Vec<u32>,
    /// Warpgroups that run each role.
    pub warpgroups: Vec<u32>,
    /// Where the warpgroups come from: `given`, `only fit`, `fullest of 3 that fit`, or `one of 2 fullest of 3 that fit`.
    pub warpgroups_by: String,
    /// Registers a thread at launch with the kernel's own setting: the compiler's count where it made one.
    pub launch_registers: u32,
    /// Registers a thread, summed over the warpgroups, that the launch reserves.
    pub pool_registers: u32,
    /// What is tried, the kernel's own setting first; one budget for each site.
    #[serde(skip)]
    pub settings: Vec<Vec<u32>>,
}

/// Roles whose budgets cannot be varied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The number of threads is not stated.
    #[error(
        "the PTX states no number of threads (.maxntid or .reqntid), so which budgets fit is not known; sweep one \
         with --setmaxnreg OLD=N,N, or caps with --maxnreg"
    )]
    NoThreads,
    /// Not whole warpgroups.
    #[error("{0} threads are no whole number of warpgroups of 128, at most 8, which setmaxnreg works on")]
    NotWarpgroups(u32),
    /// The warpgroups do not add up.
    #[error("warpgroups {given:?}: expected {roles} numbers, one for each setmaxnreg, that sum to {all}")]
    Warpgroups {
        /// What was given.
        given: Vec<u32>,
        /// How many roles there are.
        roles: usize,
        /// Warpgroups of a CTA.
        all: u32,
    },
    /// The kernel's own budgets do not fit.
    #[error(
        "budgets {budgets:?} do not fit the {pool} registers that {all} warpgroups have at launch, however they are shared"
    )]
    TooMany {
        /// The budgets.
        budgets: Vec<u32>,
        /// Registers a thread, summed over warpgroups.
        pool: u32,
        /// Warpgroups of a CTA.
        all: u32,
    },
}

/// Registers of an SM.
const FILE: u32 = 65536;
/// Threads of a CTA.
const MOST_THREADS: u32 = 1024;
/// What setmaxnreg takes: multiples of 8 from 24 to 256.
const STEP: u32 = 8;
const LEAST: u32 = 24;
const MOST: u32 = 256;
/// What the machine code of a thread can name.
const MOST_OF_A_THREAD: u32 = 255;
/// Settings looked at before the nearest are taken.
const LOOKED_AT: usize = 20_000;

impl RolePlan {
    /// The settings of a kernel, at most `most`.
    pub fn new(function: &Function, warpgroups: Option<&[u32]>, most: usize) -> Result<Self, PlanError> {
        let sites: Vec<BudgetSite> = kbt_ptx::budget_sites(function).collect();
        let number = |name: &str| -> Option<u32> {
            let directive = function.directives.iter().find(|d| d.name == name)?;
            let mut numbers = directive.text.split(',').map(|n| n.trim().parse::<u32>().ok());
            numbers.try_fold(1_u32, |all, n| all.checked_mul(n?))
        };
        let threads = number(".reqntid").or_else(|| number(".maxntid")).filter(|n| *n > 0);
        let threads = threads.ok_or(PlanError::NoThreads)?;
        if threads % 128 != 0 || threads > MOST_THREADS {
            return Err(PlanError::NotWarpgroups(threads));
        }
        let all = threads / 128;
        let ctas = number(".minnctapersm").unwrap_or(1).max(1);
        let share = FILE / threads.saturating_mul(ctas);
        // What the launch can reserve at most; each setting's own launch is the largest of its budgets, up to this.
        let launch = share.min(number(".maxnreg").unwrap_or(MOST)).min(MOST) / STEP * STEP;
        let pool = launch * all;
        let own: Vec<u32> = sites.iter().map(|s| s.registers).collect();
        let mut roles = sites.clone();
        let mut sites_of_role = Vec::new();
        let (warpgroups, by) = match warpgroups {
            Some(given) if adds_up(given, sites.len(), all) => (given.to_vec(), "given".to_owned()),
            Some(given) => {
                return Err(PlanError::Warpgroups { given: given.to_vec(), roles: sites.len(), all });
            }
            None => match shares(&own, all, pool) {
                Some(found) => found,
                None => {
                    (roles, sites_of_role) = runs(&sites);
                    let budgets: Vec<u32> = roles.iter().map(|s| s.registers).collect();
                    let none = PlanError::TooMany { budgets: own.clone(), pool, all };
                    shares(&budgets, all, pool).ok_or(none)?
                }
            },
        };
        let mut settings = fitting(&roles, &warpgroups, launch, pool);
        if !sites_of_role.is_empty() {
            for setting in &mut settings {
                let each = setting.iter().zip(&sites_of_role);
                *setting = each.flat_map(|(budget, n)| std::iter::repeat_n(*budget, *n as usize)).collect();
            }
        }
        let distance = |setting: &Vec<u32>| {
            setting.iter().zip(&own).map(|(a, b)| u64::from(a.abs_diff(*b))).sum::<u64>()
        };
        settings.retain(|s| *s != own);
        settings.sort_by_cached_key(|s| (distance(s), s.clone()));
        let at_launch = own.iter().copied().max().unwrap_or(launch).min(launch);
        settings.insert(0, own);
        settings.truncate(most.max(1));
        let mut plan = Self {
            function: function.name.clone(),
            sites: sites.iter().map(|s| format!("line {}", s.line)).collect(),
            sites_of_role,
            warpgroups,
            warpgroups_by: by,
            launch_registers: 0,
            pool_registers: 0,
            settings,
        };
        plan.launched_with(at_launch);
        Ok(plan)
    }

    /// Takes the registers that a thread of the kernel has at launch; the pool is what its warpgroups get then.
    pub(super) fn launched_with(&mut self, registers: u32) {
        self.launch_registers = registers.min(MOST_OF_A_THREAD);
        self.pool_registers = registers.next_multiple_of(STEP) * self.warpgroups.iter().sum::<u32>();
    }

    /// The warpgroups that run a `setmaxnreg`, by its place in the order of the PTX.
    #[must_use]
    pub fn warpgroups_of_site(&self, site: usize) -> Option<u32> {
        if self.sites_of_role.is_empty() {
            return self.warpgroups.get(site).copied();
        }
        let mut last = 0;
        let role = self.sites_of_role.iter().position(|n| {
            last += *n as usize;
            site < last
        });
        self.warpgroups.get(role?).copied()
    }
}

/// Sites that follow each other with one budget and direction, as one role each; with how many they are.
fn runs(sites: &[BudgetSite]) -> (Vec<BudgetSite>, Vec<u32>) {
    let mut roles: Vec<BudgetSite> = Vec::new();
    let mut counts: Vec<u32> = Vec::new();
    for site in sites {
        match (roles.last(), counts.last_mut()) {
            (Some(role), Some(n)) if (role.registers, role.raises) == (site.registers, site.raises) => {
                *n += 1
            }
            _ => {
                roles.push(*site);
                counts.push(1);
            }
        }
    }
    (roles, counts)
}

fn adds_up(warpgroups: &[u32], roles: usize, all: u32) -> bool {
    let sum: u64 = warpgroups.iter().map(|n| u64::from(*n)).sum();
    warpgroups.len() == roles && sum == u64::from(all) && warpgroups.iter().all(|n| *n > 0)
}

/// How many warpgroups run each role: the shares that fit the pool and leave the least of it.
fn shares(budgets: &[u32], all: u32, pool: u32) -> Option<(Vec<u32>, String)> {
    let mut best: Option<(u64, Vec<u32>)> = None;
    let (mut fit, mut fullest) = (0, 0);
    let mut open = vec![Vec::new()];
    while let Some(taken) = open.pop() {
        let used: u32 = taken.iter().sum();
        let left = budgets.len() - taken.len();
        if left == 0 {
            let sum: u64 = taken.iter().zip(budgets).map(|(m, b)| u64::from(*m) * u64::from(*b)).sum();
            if used == all && sum <= u64::from(pool) {
                fit += 1;
                match &best {
                    Some((most, _)) if *most > sum => {}
                    Some((most, _)) if *most == sum => fullest += 1,
                    _ => (best, fullest) = (Some((sum, taken)), 1),
                }
            }
            continue;
        }
        let last = all.saturating_sub(used + u32::try_from(left).unwrap_or(u32::MAX) - 1);
        open.extend((1..=last).map(|m| taken.iter().copied().chain([m]).collect()));
    }
    let by = match (fit, fullest) {
        (1, _) => "only fit".to_owned(),
        (_, 1) => format!("fullest of {fit} that fit"),
        _ => format!("one of {fullest} fullest of {fit} that fit"),
    };
    best.map(|(_, shares)| (shares, by))
}

/// Every setting that fits and of which no budget can be raised: what lowers stays below the launch's count,
/// what raises above it.
fn fitting(sites: &[BudgetSite], warpgroups: &[u32], launch: u32, pool: u32) -> Vec<Vec<u32>> {
    let limits: Vec<(u32, u32)> = sites
        .iter()
        .map(|s| if s.raises { (launch.max(LEAST), MOST) } else { (LEAST, launch.max(LEAST)) })
        .collect();
    let mut found = Vec::new();
    let mut open: Vec<(Vec<u32>, u32)> = vec![(Vec::new(), 0)];
    while let Some((taken, sum)) = open.pop() {
        let n = taken.len();
        let (Some(&(least, most)), Some(&times)) = (limits.get(n), warpgroups.get(n)) else {
            let over = pool - sum;
            let can_grow = |i: usize| limits[i].1 >= taken[i] + STEP && over >= STEP * warpgroups[i];
            if !(0..n).any(can_grow) {
                found.push(taken);
            }
            continue;
        };
        let rest: u32 = limits[n + 1..].iter().zip(&warpgroups[n + 1..]).map(|((l, _), m)| l * m).sum();
        if found.len() + open.len() > LOOKED_AT {
            break;
        }
        let values = (least..=most).step_by(STEP as usize).take_while(|v| sum + v * times + rest <= pool);
        open.extend(values.map(|v| (taken.iter().copied().chain([v]).collect(), sum + v * times)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(directives: &str, budgets: &[(&str, u32)], given: Option<&[u32]>) -> Result<RolePlan, PlanError> {
        let body: String =
            budgets.iter().map(|(way, n)| format!("setmaxnreg.{way}.sync.aligned.u32 {n};\n")).collect();
        let text =
            format!(".version 9.0\n.target sm_90a\n.visible .entry k()\n{directives}\n{{\n{body}ret;\n}}\n");
        RolePlan::new(&kbt_ptx::parse(&text).unwrap().functions[0], given, 1000)
    }

    const FA: [(&str, u32); 3] = [("inc", 168), ("dec", 24), ("inc", 160)];

    #[test]
    fn warpgroups_follow_from_what_fits() {
        let found = plan(".maxntid 512, 1, 1\n.minnctapersm 1", &FA, None).unwrap();
        assert_eq!(
            (found.warpgroups.as_slice(), found.warpgroups_by.as_str()),
            (&[1, 1, 2][..], "fullest of 2 that fit")
        );
        assert_eq!((found.launch_registers, found.pool_registers), (128, 512));
        // Five warpgroups start with 96 registers each.
        let found = plan(".reqntid 640", &[("inc", 152), ("dec", 24), ("inc", 104)], None).unwrap();
        assert_eq!((found.launch_registers, found.pool_registers), (96, 480));
        let found = plan(".maxntid 384, 1, 1", &FA, None).unwrap();
        assert_eq!(found.warpgroups_by, "only fit");
        let found = plan(".maxntid 512, 1, 1", &[("inc", 160), ("inc", 160), ("dec", 24)], None).unwrap();
        assert_eq!(found.warpgroups_by, "one of 2 fullest of 3 that fit");
        let found = plan(".maxntid 512, 1, 1", &[("inc", 168), ("inc", 168), ("dec", 24)], None).unwrap();
        assert_eq!(found.warpgroups_by, "only fit");
        assert_eq!(found.warpgroups, [1, 1, 2]);
        let found = plan(".maxntid 384, 1, 1", &[("inc", 200), ("dec", 24)], Some(&[2, 1])).unwrap();
        assert_eq!(found.warpgroups, [2, 1]);
    }

    #[test]
    fn warps_of_one_warpgroup_that_each_set_its_budget_are_one_role() {
        // Four warps of one warpgroup, then two warpgroups of softmax, then one of correction.
        let budgets = [("dec", 64), ("dec", 64), ("dec", 64), ("dec", 64), ("inc", 184), ("dec", 80)];
        let found = plan(".reqntid 512, 1, 1\n.minnctapersm 1", &budgets, None).unwrap();
        assert_eq!(
            (found.sites_of_role.as_slice(), found.warpgroups.as_slice()),
            (&[4, 1, 1][..], &[1, 2, 1][..])
        );
        assert_eq!(found.settings[0], [64, 64, 64, 64, 184, 80]);
        for s in &found.settings {
            assert!(s[0] + 2 * s[4] + s[5] <= 512 && s[..4].iter().all(|b| *b == s[0]), "{s:?}");
        }
        let of: Vec<_> = (0..7).map(|i| found.warpgroups_of_site(i)).collect();
        assert_eq!(of, [Some(1), Some(1), Some(1), Some(1), Some(2), Some(1), None]);
    }

    #[test]
    fn every_setting_fits_leaves_nothing_and_keeps_its_direction() {
        let found = plan(".maxntid 512, 1, 1", &FA, None).unwrap();
        assert_eq!(found.settings[0], [168, 24, 160]);
        assert!(found.settings.len() > 20, "{}", found.settings.len());
        for s in &found.settings {
            let sum = s[0] + s[1] + 2 * s[2];
            assert!(sum <= 512 && s[0] >= 128 && s[1] <= 128 && s[2] >= 128, "{s:?}");
            assert!(sum + 8 > 512 || (s[0] == 256 && s[1] == 128), "{s:?} leaves {}", 512 - sum);
        }
        let distinct: std::collections::BTreeSet<_> = found.settings.iter().collect();
        assert_eq!(distinct.len(), found.settings.len());
    }

    #[test]
    fn what_cannot_be_known_or_cannot_fit_is_refused() {
        assert_eq!(plan("", &FA, None), Err(PlanError::NoThreads));
        assert_eq!(plan(".maxntid 200, 1, 1", &FA, None), Err(PlanError::NotWarpgroups(200)));
        let found = plan(".maxntid 512, 1, 1", &[("inc", 240), ("inc", 240), ("inc", 240)], None);
        assert!(matches!(found, Err(PlanError::TooMany { pool: 512, .. })), "{found:?}");
        let found = plan(".maxntid 512, 1, 1", &FA, Some(&[1, 1, 1]));
        assert!(matches!(found, Err(PlanError::Warpgroups { all: 4, .. })), "{found:?}");
    }
}
