//! What a turn of a kernel's busiest loop is predicted to take under a setting: the static cycle model, with the warps
//! that the loop's role has on a scheduler.

use super::RolePlan;
use crate::cycles::LoopModel;
use crate::metrics::Analysis;
use crate::outcome::busiest_loop;
use crate::{Function, Instruction};
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
    profile: &DeviceProfile,
) -> Result<Predicted, String> {
    let region = busiest_loop(analysis).ok_or("it has no loop")?;
    let index = (0..analysis.loops.len()).find(|i| analysis.loop_name(*i) == region);
    let body = &analysis.loops[index.ok_or("its loop has no name")?].body;
    let first = body.indices().next().ok_or("its loop is empty")?;
    let warps = plan.and_then(|plan| warpgroups(plan, analysis, first)).unwrap_or(1);
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

/// The warpgroups of a role: roles are in the order of their `setmaxnreg`, here and in the plan. A warpgroup has one warp
/// on each scheduler.
fn warpgroups(plan: &RolePlan, analysis: &Analysis<'_>, first: usize) -> Option<u32> {
    let roles: Vec<&crate::Role> = analysis.roles.iter().filter(|r| r.registers.is_some()).collect();
    let at = roles.iter().position(|r| r.body.contains(first))?;
    (roles.len() == plan.sites.len()).then(|| plan.warpgroups_of_site(at)).flatten()
}
