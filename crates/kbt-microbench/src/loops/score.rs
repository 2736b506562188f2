//! How far the static cycle model is from the measured loops, family by family, beside three simpler predictions.

use super::{FAMILIES, Family, LoopModule, MeasuredLoops};
use kbt_device::{Arch, DeviceProfile};
use kbt_evidence::Provenance;
use kbt_sass::cycles::LoopModel;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The score of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoopScore {
    /// `kbt.loop_score/1`.
    pub schema: String,
    /// The device profile.
    pub device: String,
    /// Who compiled the loops that were modelled.
    pub compiler: String,
    /// Groups of families: fitted and held out, arithmetic and memory.
    pub groups: Vec<FamilyScore>,
    /// Each family.
    pub families: Vec<FamilyScore>,
    /// Loops whose machine code is not the one that was timed, and loops that were refused.
    pub left_out: Vec<String>,
    /// How the errors are known.
    pub provenance: Provenance,
}

/// The errors over some loops at all their numbers of warps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FamilyScore {
    /// The family, or the group.
    pub name: String,
    /// Not used in finding the model's constants.
    pub held_out: bool,
    /// Loops.
    pub loops: usize,
    /// Loops times numbers of warps.
    pub points: usize,
    /// The model.
    pub model: Errors,
    /// The sum of one warp's stall counts.
    pub stalls: Errors,
    /// Instructions over the issue rate.
    pub issue: Errors,
    /// The busiest pipe.
    pub pipe: Errors,
}

/// Absolute relative errors, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Errors {
    /// Half of the points are closer.
    pub median_percent: f64,
    /// Nine of ten are closer.
    pub p90_percent: f64,
    /// The farthest.
    pub worst_percent: f64,
}

/// One prediction of each kind over the measured cycles.
#[derive(Debug, Clone, Copy)]
struct Point {
    model: f64,
    stalls: f64,
    issue: f64,
    pipe: f64,
}

/// Scores the model on the loops whose machine code is the one that was timed.
#[must_use]
pub fn score(
    measured: &MeasuredLoops,
    modules: &[LoopModule],
    arch: Arch,
    profile: &DeviceProfile,
    compiler: &str,
) -> LoopScore {
    let known: BTreeMap<&str, _> =
        modules.iter().flat_map(|m| &m.loops).map(|l| (l.name.as_str(), l)).collect();
    let mut left_out: Vec<String> =
        measured.refused.iter().map(|(name, why)| format!("{name}: {why}")).collect();
    let mut points: BTreeMap<&str, Vec<Vec<Point>>> = BTreeMap::new();
    for timed in &measured.loops {
        let Some(l) = known.get(timed.name.as_str()).filter(|l| l.digest == timed.digest) else {
            left_out.push(format!("{}: other machine code than was timed", timed.name));
            continue;
        };
        let body = &l.function.instructions[l.body.clone()];
        let model = match LoopModel::new(Some(arch), body, profile, None) {
            Ok(model) => model,
            Err(why) => {
                left_out.push(format!("{}: {why}", timed.name));
                continue;
            }
        };
        let each = (1u32..).zip(&timed.cycles).map(|(warps, cycles)| {
            let limits = model.limits(warps);
            Point {
                model: model.cycles(warps) / cycles,
                stalls: model.stall_sum() / cycles,
                issue: limits.issue / cycles,
                pipe: limits.pipes.values().copied().fold(0.0, f64::max) / cycles,
            }
        });
        points.entry(&l.family).or_default().push(each.collect());
    }
    let of = |name: String, held_out: bool, take: &dyn Fn(&Family) -> bool| {
        let loops: Vec<&Vec<Point>> = FAMILIES
            .iter()
            .filter(|f| take(f))
            .flat_map(|f| points.get(f.name).into_iter().flatten())
            .collect();
        let all: Vec<Point> = loops.iter().flat_map(|l| l.iter().copied()).collect();
        (!all.is_empty()).then(|| FamilyScore {
            name,
            held_out,
            loops: loops.len(),
            points: all.len(),
            model: errors(all.iter().map(|p| p.model)),
            stalls: errors(all.iter().map(|p| p.stalls)),
            issue: errors(all.iter().map(|p| p.issue)),
            pipe: errors(all.iter().map(|p| p.pipe)),
        })
    };
    let groups = [
        ("arithmetic and conversion", false, false),
        ("arithmetic and conversion", true, false),
        ("shared memory, warp and matrix", false, true),
        ("shared memory, warp and matrix", true, true),
    ];
    let groups = groups.into_iter().filter_map(|(name, held_out, memory)| {
        of(name.to_owned(), held_out, &|f| f.held_out == held_out && f.memory == memory)
    });
    let families = FAMILIES
        .iter()
        .filter_map(|family| of(family.name.to_owned(), family.held_out, &|f| f.name == family.name));
    let provenance = Provenance::computed(
        "the model's cycles over the measured ones",
        [("loops", &measured.provenance), ("profile", &profile.provenance)],
    );
    LoopScore {
        schema: "kbt.loop_score/1".to_owned(),
        device: profile.name.clone(),
        compiler: compiler.to_owned(),
        groups: groups.collect(),
        families: families.collect(),
        left_out,
        provenance,
    }
}

fn errors(ratios: impl Iterator<Item = f64>) -> Errors {
    let mut errors: Vec<f64> = ratios.map(|r| (r - 1.0).abs() * 100.0).collect();
    errors.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let n = (errors.len().saturating_sub(1) as f64 * share).round() as usize;
        errors.get(n).map_or(0.0, |e| (e * 100.0).round() / 100.0)
    };
    Errors { median_percent: at(0.5), p90_percent: at(0.9), worst_percent: at(1.0) }
}

impl LoopScore {
    /// For people.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut text = format!(
            "device {}, loops by {}\nmedian and 90th percentile of the absolute error in percent, and the model's worst point\n\n",
            self.device, self.compiler
        );
        let header = format!(
            "{:<44} {:>6} {:>7} {:>15} {:>15} {:>15} {:>15} {:>7}\n",
            "family", "loops", "points", "model", "stall sum", "issue", "busiest pipe", "worst"
        );
        // Writing to a String cannot fail.
        for list in [&self.groups, &self.families] {
            text.push_str(&header);
            for f in list {
                let name = format!("{}{}", f.name, if f.held_out { " (held out)" } else { "" });
                let _ = write!(text, "{name:<44} {:>6} {:>7}", f.loops, f.points);
                for e in [f.model, f.stalls, f.issue, f.pipe] {
                    let _ = write!(text, " {:>7.2} {:>7.2}", e.median_percent, e.p90_percent);
                }
                let _ = writeln!(text, " {:>7.1}", f.model.worst_percent);
            }
            text.push('\n');
        }
        for why in &self.left_out {
            let _ = writeln!(text, "left out: {why}");
        }
        let _ = writeln!(text, "{}: {}", self.provenance.kind, self.provenance.by);
        text
    }
}
