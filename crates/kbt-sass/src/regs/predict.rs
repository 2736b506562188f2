//! What a turn of a kernel's busiest loop is predicted to take under a setting: the static cycle model, with the warps
//! that the loop's role has on a scheduler.

use super::RolePlan;
use crate::cycles::LoopModel;
use crate::metrics::Analysis;
use crate::outcome::{busiest_loop, busiest_loop_outside, gives_away};
use crate::{Function, Instruction, Role};
use kbt_device::DeviceProfile;
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};

/// Cycles of a load that hits the first-level cache, as spills do; what Hopper microbenchmarks find, near enough for a
/// comparison of settings.
const HIT_CYCLES: u32 = 33;

/// A prediction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Predicted {
    /// Cycles of a turn of the loop, for all of the scheduler's warps.
    pub cycles: f64,
    /// The loop.
    pub region: String,
    /// Warps of a scheduler that run it.
    pub warps: u32,
    /// How the cycles are known.
    pub provenance: Provenance,
}

/// The prediction for a function under a setting, or why there is none.
pub(super) fn predict(
    function: &Function,
    analysis: &Analysis<'_>,
    plan: Option<&RolePlan>,
    setting: &[u32],
    profile: &DeviceProfile,
) -> Result<Predicted, String> {
    let sites = plan.map(|plan| sites(plan, setting, analysis).ok_or("which role is which is not known"));
    let sites = sites.transpose()?;
    // One loop for all settings: the roles that compute are those of the kernel's own.
    let region = match plan.zip(sites.as_ref()) {
        Some((plan, sites)) => {
            let gives = givers(plan);
            let named = |role: &Role| sites.iter().any(|(name, site)| *name == role.name && gives[*site]);
            busiest_loop_outside(analysis, named)
        }
        None => busiest_loop(analysis),
    };
    let region = region.ok_or("it has no loop")?;
    let index = (0..analysis.loops.len()).find(|i| analysis.loop_name(*i) == region);
    let body = &analysis.loops[index.ok_or("its loop has no name")?].body;
    let first = body.indices().next().ok_or("its loop is empty")?;
    // A warpgroup has one warp on each scheduler.
    let role = analysis.roles.iter().filter(|r| r.registers.is_some()).find(|r| r.body.contains(first));
    let site = role.zip(sites).and_then(|(r, sites)| Some(sites.iter().find(|(name, _)| *name == r.name)?.1));
    let warps = plan.zip(site).and_then(|(plan, site)| plan.warpgroups_of_site(site)).unwrap_or(1);
    let insns: Vec<&Instruction> = body.indices().filter_map(|i| function.instructions.get(i)).collect();
    let may_miss = insns.iter().any(|i| crate::cycles::may_miss(i));
    let model = LoopModel::new(function.arch, insns.iter().copied(), profile, may_miss.then_some(HIT_CYCLES))
        .map_err(|e| e.to_string())?;
    let own = model.provenance();
    let hit = Provenance::assumed(format!("loads hit the first-level cache in {HIT_CYCLES} cycles"));
    let inputs = std::iter::once(("model", &own)).chain(may_miss.then_some(("latency of loads", &hit)));
    let provenance = Provenance::computed("the static cycle model", inputs);
    Ok(Predicted { cycles: model.cycles(warps), region, warps, provenance })
}

/// Whether each site gives registers away in the kernel's own setting, which is the first of the plan.
fn givers(plan: &RolePlan) -> Vec<bool> {
    let own = plan.settings.first().map_or(&[][..], Vec::as_slice);
    let most = own.iter().copied().max().unwrap_or(0);
    (0..plan.sites.len()).map(|i| own.get(i).is_some_and(|n| gives_away(*n, most))).collect()
}

/// The site of each role by the budget that it sets, since the compiler may have put the roles in another order. Roles of one
/// budget are taken to be in the order of their sites, unless one of them gives registers away and another does not.
fn sites(plan: &RolePlan, setting: &[u32], analysis: &Analysis<'_>) -> Option<Vec<(String, usize)>> {
    let roles: Vec<(&Role, u32)> = analysis.roles.iter().filter_map(|r| Some((r, r.registers?))).collect();
    if roles.len() != plan.sites.len() || setting.len() != roles.len() {
        return None;
    }
    let named = |i: usize, site: usize| (roles[i].0.name.clone(), site);
    let alike = |i: usize| (0..setting.len()).filter(move |j| setting[*j] == setting[i]);
    if roles.iter().zip(setting).all(|((_, has), set)| has == set) {
        let gives = givers(plan);
        let told = (0..setting.len()).all(|i| alike(i).all(|j| gives[i] == gives[j]));
        return told.then(|| (0..roles.len()).map(|i| named(i, i)).collect());
    }
    let site = |i: usize| {
        let mut of = (0..setting.len()).filter(|j| setting[*j] == roles[i].1);
        Some(named(i, of.next().filter(|_| of.next().is_none())?))
    };
    (0..roles.len()).map(site).collect()
}
