//! Which settings a sweep runs: the knobs' values, less what the constraints exclude and the contract forbids,
//! and each kernel once.

use crate::contract::{self, Integers};
use kbt_target::{Expr, ExprError, Setting, Target};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Which knobs are varied and which are held.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Choice {
    /// Knobs held at a value other than their default.
    #[serde(default)]
    pub fix: Setting,
    /// The knobs that vary, the others staying at their defaults; all of them where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vary: Option<Vec<String>>,
}

/// One setting to run, standing for all that are the same kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Its place in the sweep; 0 is the baseline.
    pub index: usize,
    /// Its knobs.
    pub setting: Setting,
    /// The handoff that the kernel will really use, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integers: Option<Integers>,
    /// Other settings that round to the same kernel, and so are not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<Setting>,
}

/// A setting that the contract forbids.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Forbidden {
    /// Its knobs.
    pub setting: Setting,
    /// Why it must not run.
    pub violation: String,
}

/// How many combinations a constraint excludes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Excluded {
    /// The constraint as written.
    pub constraint: String,
    /// Combinations for which it is the first to fail.
    pub settings_count: usize,
}

/// The settings of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Space {
    /// What is run, the baseline first.
    pub points: Vec<Point>,
    /// What the contract forbids.
    pub forbidden: Vec<Forbidden>,
    /// What the constraints exclude.
    pub excluded: Vec<Excluded>,
    /// The knobs that take more than one value among the combinations.
    pub varied: Vec<String>,
    /// The knobs through which the handoff is set; a subset of the target's.
    pub handoff_knobs: Vec<String>,
}

/// Why there is no space to sweep.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SpaceError {
    /// A knob is named that the target does not have.
    #[error("there is no knob `{name}`; the target has: {known}")]
    UnknownKnob {
        /// As named.
        name: String,
        /// What there is.
        known: String,
    },
    /// A knob is held at a value that it does not list.
    #[error("knob `{name}` has no value {value}; accepted: {accepted}")]
    UnknownValue {
        /// The knob.
        name: String,
        /// As given.
        value: String,
        /// What it lists.
        accepted: String,
    },
    /// The baseline itself must not run.
    #[error("the baseline {setting} must not run: {why}")]
    Baseline {
        /// The baseline.
        setting: Setting,
        /// Which constraint, or how the contract is broken.
        why: String,
    },
    /// More combinations than can be enumerated.
    #[error("the knobs have more than {MAX_COMBINATIONS} combinations; vary fewer knobs")]
    TooMany,
    /// An expression has no value somewhere in the space.
    #[error("at {setting}: {source}")]
    Expression {
        /// Where.
        setting: Setting,
        /// What is wrong.
        source: ExprError,
    },
}

/// The most combinations that are enumerated.
pub const MAX_COMBINATIONS: usize = 1_000_000;

/// What the contract says of a setting.
enum Handed {
    /// The kernel has no handoff here.
    None,
    Legal(Integers),
    Forbidden(contract::Violation),
}

impl Space {
    /// The space of a target.
    ///
    /// # Errors
    /// On knobs and values that the target does not have, and where the baseline itself may not run.
    pub fn new(target: &Target, choice: &Choice) -> Result<Self, SpaceError> {
        check_choice(target, choice)?;
        let mut baseline = target.default_setting();
        baseline.0.extend(choice.fix.0.clone());
        let axes: Vec<(&str, Vec<&str>)> = target
            .knobs
            .iter()
            .map(|k| {
                let held = choice.fix.get(&k.name).or_else(|| {
                    let varies = choice.vary.as_ref().is_none_or(|v| v.contains(&k.name));
                    (!varies).then_some(k.default.as_str())
                });
                let values = held
                    .map_or_else(|| k.values.iter().map(kbt_target::Scalar::as_str).collect(), |v| vec![v]);
                (k.name.as_str(), values)
            })
            .collect();
        let combinations = axes.iter().try_fold(1usize, |n, (_, v)| n.checked_mul(v.len()));
        if combinations.is_none_or(|n| n > MAX_COMBINATIONS) {
            return Err(SpaceError::TooMany);
        }
        let mut builder = Builder::new(target);
        let refused = |why: String| SpaceError::Baseline { setting: baseline.clone(), why };
        if let Some(constraint) = builder.broken_constraint(&baseline)? {
            return Err(refused(format!("it violates `{constraint}`")));
        }
        if let Handed::Forbidden(violation) = builder.handed(&baseline)? {
            return Err(refused(violation.to_string()));
        }
        builder.add(baseline)?;
        for_each(&axes, |setting| builder.add(setting))?;
        let varied = axes.iter().filter(|(_, v)| v.len() > 1).map(|(n, _)| (*n).to_owned()).collect();
        Ok(builder.finish(varied))
    }

    /// Whether two settings differ in nothing but how the handoff is set.
    #[must_use]
    pub fn differ_in_handoff_alone(&self, a: &Setting, b: &Setting) -> bool {
        a.differs_from(b).0.keys().all(|k| self.handoff_knobs.contains(k))
    }
}

fn check_choice(target: &Target, choice: &Choice) -> Result<(), SpaceError> {
    let names = || target.knobs.iter().map(|k| k.name.as_str()).collect::<Vec<_>>().join(", ");
    for name in choice.fix.0.keys().chain(choice.vary.iter().flatten()) {
        if target.knob(name).is_none() {
            return Err(SpaceError::UnknownKnob { name: name.clone(), known: names() });
        }
    }
    for (name, value) in &choice.fix.0 {
        if let Some(knob) = target.knob(name).filter(|k| !k.values.contains(value)) {
            let accepted = knob.values.iter().map(kbt_target::Scalar::as_str).collect::<Vec<_>>().join(", ");
            return Err(SpaceError::UnknownValue { name: name.clone(), value: value.to_string(), accepted });
        }
    }
    Ok(())
}

/// Calls `each` for every combination, the last knob changing fastest.
fn for_each(
    axes: &[(&str, Vec<&str>)],
    mut each: impl FnMut(Setting) -> Result<(), SpaceError>,
) -> Result<(), SpaceError> {
    let mut places = vec![0; axes.len()];
    loop {
        let mut setting = Setting::default();
        for ((name, values), place) in axes.iter().zip(&places) {
            setting = setting.with(*name, values[*place]);
        }
        each(setting)?;
        let Some(axis) = (0..axes.len()).rev().find(|i| places[*i] + 1 < axes[*i].1.len()) else {
            return Ok(());
        };
        places[axis] += 1;
        places[axis + 1..].fill(0);
    }
}

struct Builder<'a> {
    target: &'a Target,
    /// Knobs that act through the rounded fraction alone, and those that act through the handoff alone.
    fraction: BTreeSet<&'a str>,
    handoff: BTreeSet<&'a str>,
    points: Vec<Point>,
    /// The kernels seen, by the knobs that are left and the integers.
    seen: BTreeMap<(Setting, Option<Integers>), usize>,
    forbidden: Vec<Forbidden>,
    excluded: BTreeMap<String, usize>,
}

impl<'a> Builder<'a> {
    fn new(target: &'a Target) -> Self {
        let knobs = |parts: &[&'a Expr]| parts.iter().flat_map(|e| e.knobs()).collect::<BTreeSet<_>>();
        let handoff = target.handoff.as_ref();
        Self {
            target,
            fraction: handoff.map(|h| knobs(&[&h.num, &h.den])).unwrap_or_default(),
            handoff: handoff.map(|h| knobs(&[&h.num, &h.den, &h.chunks])).unwrap_or_default(),
            points: Vec::new(),
            seen: BTreeMap::new(),
            forbidden: Vec::new(),
            excluded: BTreeMap::new(),
        }
    }

    fn broken_constraint(&self, setting: &Setting) -> Result<Option<&'a Expr>, SpaceError> {
        for constraint in &self.target.constraints {
            if !constraint.truth(setting).map_err(at(setting))? {
                return Ok(Some(constraint));
            }
        }
        Ok(None)
    }

    fn handed(&self, setting: &Setting) -> Result<Handed, SpaceError> {
        let Some(handoff) = &self.target.handoff else { return Ok(Handed::None) };
        if let Some(when) = &handoff.when
            && !when.truth(setting).map_err(at(setting))?
        {
            return Ok(Handed::None);
        }
        let [num, den, chunks, tiles] =
            [&handoff.num, &handoff.den, &handoff.chunks, &handoff.tiles].map(|e| e.count(setting));
        let wrong = at(setting);
        let (num, den, chunks, tiles) =
            (num.map_err(&wrong)?, den.map_err(&wrong)?, chunks.map_err(&wrong)?, tiles.map_err(&wrong)?);
        Ok(match contract::check(num, den, chunks, tiles) {
            Ok(integers) => Handed::Legal(integers),
            Err(violation) => Handed::Forbidden(violation),
        })
    }

    fn add(&mut self, setting: Setting) -> Result<(), SpaceError> {
        if let Some(constraint) = self.broken_constraint(&setting)? {
            *self.excluded.entry(constraint.text().to_owned()).or_default() += 1;
            return Ok(());
        }
        let (integers, idle) = match self.handed(&setting)? {
            Handed::Forbidden(violation) => {
                self.forbidden.push(Forbidden { setting, violation: violation.to_string() });
                return Ok(());
            }
            Handed::Legal(integers) => (Some(integers), &self.fraction),
            Handed::None => (None, &self.handoff),
        };
        let mut rest = setting.clone();
        rest.0.retain(|knob, _| !idle.contains(knob.as_str()));
        match self.seen.get(&(rest.clone(), integers)) {
            Some(index) if self.points[*index].setting == setting => {}
            Some(index) => self.points[*index].merged.push(setting),
            None => {
                let index = self.points.len();
                self.seen.insert((rest, integers), index);
                self.points.push(Point { index, setting, integers, merged: Vec::new() });
            }
        }
        Ok(())
    }

    fn finish(self, varied: Vec<String>) -> Space {
        let excluded = self.excluded.into_iter();
        Space {
            points: self.points,
            forbidden: self.forbidden,
            excluded: excluded
                .map(|(constraint, settings_count)| Excluded { constraint, settings_count })
                .collect(),
            varied,
            handoff_knobs: self.handoff.into_iter().map(str::to_owned).collect(),
        }
    }
}

fn at(setting: &Setting) -> impl Fn(ExprError) -> SpaceError {
    |source| SpaceError::Expression { setting: setting.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attention() -> Target {
        kbt_target::embedded_target("attention").unwrap().unwrap()
    }

    fn split_of(mode: &str) -> Choice {
        Choice {
            fix: Setting::default().with("KBT_PV_MODE", mode),
            vary: Some(["KBT_SPLIT_NUM", "KBT_SPLIT_DEN", "KBT_CHUNKS"].map(str::to_owned).to_vec()),
        }
    }

    #[test]
    fn each_kernel_is_run_once_and_no_violation_ever() {
        let space = Space::new(&attention(), &split_of("bf16")).unwrap();
        let integers: BTreeSet<Integers> = space.points.iter().map(|p| p.integers.unwrap()).collect();
        assert_eq!(integers.len(), space.points.len());
        for point in &space.points {
            let i = point.integers.unwrap();
            assert!(i.first_chunks * i.tiles >= i.first_tiles * i.chunks, "{i}");
        }
        // 11 fractions below 1 over 2, 4 and 8, and 3 chunk counts; 6 of them state a fraction again.
        assert_eq!(
            space.excluded,
            [Excluded { constraint: "KBT_SPLIT_NUM < KBT_SPLIT_DEN".into(), settings_count: 30 }]
        );
        let merged: usize = space.points.iter().map(|p| p.merged.len()).sum();
        assert_eq!(space.points.len() + merged + space.forbidden.len(), 33);
        let seven_eighths = space.forbidden.iter().find(|f| {
            f.setting.get("KBT_SPLIT_NUM") == Some("7") && f.setting.get("KBT_CHUNKS") == Some("4")
        });
        assert!(
            seven_eighths.unwrap().violation.contains("7/8 rounds to 3/4 of the chunks but 7/8 of the tiles")
        );
        // The baseline comes first and stands for its equals.
        assert_eq!(space.points[0].setting, attention().default_setting());
        assert!(space.points[0].merged.iter().any(|s| s.get("KBT_SPLIT_NUM") == Some("4")));
    }

    #[test]
    fn without_a_handoff_its_knobs_make_no_difference() {
        let choice = Choice { fix: Setting::default().with("KBT_TOPOLOGY", "registers"), ..split_of("bf16") };
        let space = Space::new(&attention(), &choice).unwrap();
        assert_eq!(space.points.len(), 1);
        // Every fraction below 1 is that kernel; how many chunks there are is for the target's constraints to say.
        let point = &space.points[0];
        assert!(point.merged.len() >= 10 && point.integers.is_none(), "{}", point.merged.len());
    }

    #[test]
    fn most_settings_of_the_whole_space_are_a_kernel_that_is_there_already() {
        let choice = Choice { fix: Setting::default().with("KBT_PV_MODE", "fp4"), vary: None };
        let space = Space::new(&attention(), &choice).unwrap();
        let merged: usize = space.points.iter().map(|p| p.merged.len()).sum();
        assert!(space.points.len() > 60 && merged > space.points.len(), "{} {merged}", space.points.len());
        assert_eq!(space.varied.len(), attention().knobs.len() - 1, "all but the mode");
    }

    #[test]
    fn a_bad_choice_is_refused_by_name() {
        let target = attention();
        let error = |c: Choice| Space::new(&target, &c).unwrap_err().to_string();
        let vary = |name: &str| Choice { vary: Some(vec![name.to_owned()]), ..Choice::default() };
        assert!(
            error(vary("KBT_SPLITS"))
                .starts_with("there is no knob `KBT_SPLITS`; the target has: KBT_PV_MODE,")
        );
        let fix = |k: &str, v: &str| Choice { fix: Setting::default().with(k, v), vary: None };
        assert_eq!(error(fix("KBT_CHUNKS", "3")), "knob `KBT_CHUNKS` has no value 3; accepted: 2, 4, 8");
        let mut bad = fix("KBT_SPLIT_NUM", "7");
        bad.fix = bad.fix.with("KBT_SPLIT_DEN", "8");
        assert!(error(bad).contains("must not run: 7/8 rounds to 3/4"));
        assert!(
            error(fix("KBT_QUANT_FORM", "log2")).contains("must not run: it violates `KBT_PV_MODE != 'bf16'")
        );
    }
}
