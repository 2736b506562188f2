//! What step 6 says: variant by variant, and the verdict.

use crate::SCHEMA;
use crate::compare::{ChangeClass, Comparison};
use crate::flake::{FlakeFinding, FlakeResult, percent};
use crate::probe::ProbeResult;
use kbt_evidence::{Evidence, Figure, FixClass, Standing, Step, Unit, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The outcome of the step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ValidateOutcome {
    /// `kbt.validate/1`.
    pub schema: String,
    /// One a variant, the baseline among them.
    pub variants: Vec<VariantResult>,
    /// What could not be looked at, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// What is known of one variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VariantResult {
    /// Its name.
    pub name: String,
    /// The knobs that make it, as environment variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub knobs: BTreeMap<String, String>,
    /// What kind of change it claims to be.
    pub class: ChangeClass,
    /// Its output against the saved reference output, and both against the f64 reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
    /// Repeated runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flake: Option<FlakeResult>,
    /// Probes with known answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ProbeResult>,
    /// Why something above is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// Whether a variant may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VariantStanding {
    /// Compared and run repeatedly, and nothing speaks against it.
    Right,
    /// Something does.
    Wrong,
    /// Not looked at closely enough to say.
    Unknown,
}

impl VariantResult {
    /// A variant of which nothing is known yet.
    #[must_use]
    pub fn new(name: impl Into<String>, class: ChangeClass) -> Self {
        Self {
            name: name.into(),
            knobs: BTreeMap::new(),
            class,
            comparison: None,
            flake: None,
            probes: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// What speaks against it, one line each.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let compared = self.comparison.iter().flat_map(|c| c.violations.iter().cloned());
        let flaked = self.flake.iter().filter(|f| match f.finding {
            FlakeFinding::DiffersFromItself | FlakeFinding::RunFailed => true,
            // An algebraic change may differ from the saved output; the comparison judges by how much.
            FlakeFinding::DiffersFromReference => self.class == ChangeClass::Reorder,
            FlakeFinding::Same | FlakeFinding::OtherInputs | FlakeFinding::Uncompared => false,
        });
        let probed = self.probes.iter().filter(|p| !p.passed).map(|p| format!("{}: {}", p.kind, p.statement));
        compared.chain(flaked.map(FlakeResult::statement)).chain(probed).collect()
    }

    /// Whether it may be used.
    #[must_use]
    pub fn standing(&self) -> VariantStanding {
        let compared = self.comparison.as_ref().is_some_and(Comparison::passed);
        let repeated = self.flake.as_ref().is_some_and(FlakeResult::passed);
        match (self.faults().is_empty(), compared && repeated) {
            (false, _) => VariantStanding::Wrong,
            (true, true) => VariantStanding::Right,
            (true, false) => VariantStanding::Unknown,
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        let name = &self.name;
        if let Some(comparison) = &self.comparison {
            let p = &comparison.provenance;
            for tensor in &comparison.tensors {
                let label = |what: &str| format!("{name}: {what} of `{}`", tensor.name);
                let differing = tensor.bits.differing_count as f64;
                figures.push(Figure::new(label("differing elements"), differing, Unit::Count, p.clone()));
                let errors = [
                    ("relative RMS error", &tensor.variant),
                    ("baseline's relative RMS error", &tensor.baseline),
                ];
                for (what, stats) in errors {
                    if let Some(error) = stats.as_ref().and_then(|s| s.relative_rms_error) {
                        figures.push(Figure::new(label(what), error, Unit::RelativeError, p.clone()));
                    }
                }
            }
        }
        if let Some(flake) = &self.flake {
            let p = &flake.provenance;
            figures.push(Figure::new(
                format!("{name}: runs"),
                f64::from(flake.runs_count),
                Unit::Count,
                p.clone(),
            ));
            if let Some(rate) = &flake.rate {
                let what =
                    format!("{name}: rate of differing runs, {} limit", percent(rate.confidence_ratio));
                let figure = Figure::new(what, rate.high_ratio, Unit::Ratio, p.clone());
                figures.push(figure.with_spread(rate.low_ratio, rate.high_ratio, "one-sided limits"));
            }
        }
        for probe in &self.probes {
            let what = format!("{name}: largest error on probe {}", probe.kind);
            figures.push(Figure::new(what, probe.max_abs_error, Unit::Ratio, probe.provenance.clone()));
        }
        figures
    }

    /// What was looked at and found in order, in one sentence.
    fn praise(&self) -> String {
        let compared = match &self.comparison {
            Some(c) if c.identical() => "every bit is that of the saved output",
            Some(_) => "as accurate as the baseline",
            None => "not compared",
        };
        let flake =
            self.flake.as_ref().map_or_else(|| "not run repeatedly".to_owned(), FlakeResult::statement);
        let probes = match self.probes.len() {
            0 => String::new(),
            n => format!("; {n} probes passed"),
        };
        format!("{}: {compared}; {flake}{probes}", self.name)
    }
}

impl ValidateOutcome {
    /// An outcome over these variants.
    #[must_use]
    pub fn new(variants: Vec<VariantResult>) -> Self {
        Self { schema: SCHEMA.to_owned(), variants, problems: Vec::new() }
    }

    fn with_standing(&self, standing: VariantStanding) -> impl Iterator<Item = &VariantResult> {
        self.variants.iter().filter(move |v| v.standing() == standing)
    }

    /// The variants that may be used.
    pub fn admitted(&self) -> impl Iterator<Item = &VariantResult> {
        self.with_standing(VariantStanding::Right)
    }

    /// The step's ruling on the class `Correctness`: recommended where a variant is wrong or flaky, ruled out
    /// where all are right on measured evidence.
    #[must_use]
    pub fn verdicts(&self) -> Vec<Verdict> {
        let verdict =
            |standing, reason: String| Verdict::new(FixClass::Correctness, standing, Step::Validate, reason);
        if self.variants.is_empty() {
            let v = verdict(Standing::Refused, "no variant was compared or run repeatedly".to_owned());
            return vec![v.next("save inputs and the baseline's output, then run each variant on them")];
        }
        let wrong: Vec<&VariantResult> = self.with_standing(VariantStanding::Wrong).collect();
        if !wrong.is_empty() {
            let names: Vec<&str> = wrong.iter().map(|v| v.name.as_str()).collect();
            let count = format!("{} of {} variants", wrong.len(), self.variants.len());
            let mut v =
                verdict(Standing::Recommended, format!("{count} not right every time: {}", names.join(", ")));
            for variant in &wrong {
                let statement = format!("{}: {}", variant.name, variant.faults().join("; "));
                v = v.with(Evidence::supports(statement, variant.figures()));
            }
            let flaky = wrong
                .iter()
                .any(|v| v.flake.as_ref().is_some_and(|f| f.finding == FlakeFinding::DiffersFromItself));
            return vec![v.next(if flaky {
                "find the knob with `kbt validate bisect`, and look for a shared-memory write that the async proxy \
                 reads without a fence.proxy.async in between"
            } else {
                "repair or drop these variants; their times mean nothing"
            })];
        }
        let unknown: Vec<&str> =
            self.with_standing(VariantStanding::Unknown).map(|v| v.name.as_str()).collect();
        let right: Vec<&VariantResult> = self.admitted().collect();
        let reason = if unknown.is_empty() {
            format!("{} variants are right in every run made; {}", right.len(), self.limit())
        } else {
            format!(
                "{} of {} variants not fully checked: {}",
                unknown.len(),
                self.variants.len(),
                unknown.join(", ")
            )
        };
        let standing = if unknown.is_empty() { Standing::RuledOut } else { Standing::Open };
        let mut v = verdict(standing, reason);
        for variant in &right {
            v = v.with(Evidence::supports(variant.praise(), variant.figures()));
        }
        if standing == Standing::Open {
            return vec![v.next("compare each of them with the saved output and run it repeatedly")];
        }
        if !v.is_measured() {
            v.standing = Standing::Open;
            v = v.next("repeat it on the device: a class is ruled out on measurements alone");
        }
        vec![v]
    }

    /// What the least number of runs made cannot show.
    fn limit(&self) -> String {
        let rates = self
            .variants
            .iter()
            .filter_map(|v| Some((v.flake.as_ref()?.evidence_runs(), v.flake.as_ref()?.rate?)));
        match rates.max_by(|a, b| a.1.high_ratio.total_cmp(&b.1.high_ratio)) {
            None => "no repeated run says how often".to_owned(),
            Some((runs, rate)) => format!(
                "{runs} runs show that fewer than {} differ, with {} confidence, and nothing of rarer faults",
                percent(rate.high_ratio),
                percent(rate.confidence_ratio)
            ),
        }
    }

    /// One line for the terminal.
    #[must_use]
    pub fn headline(&self) -> String {
        let all = self.variants.len();
        let wrong: Vec<&VariantResult> = self.with_standing(VariantStanding::Wrong).collect();
        if let Some(first) = wrong.first() {
            let fault = first.faults().into_iter().next().unwrap_or_default();
            return format!("{} of {all} variants wrong or flaky; {}: {fault}", wrong.len(), first.name);
        }
        if all == 0 {
            return "nothing was validated".to_owned();
        }
        let identical =
            self.admitted().filter(|v| v.comparison.as_ref().is_some_and(Comparison::identical)).count();
        let right = self.admitted().count();
        let unchecked =
            if right < all { format!(", {} not fully checked", all - right) } else { String::new() };
        let as_good = if right > identical {
            format!(", {} as accurate as the baseline", right - identical)
        } else {
            String::new()
        };
        format!("{all} variants: {identical} bitwise identical{as_good}{unchecked}; {}", self.limit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Rules, Sides, Tensors, compare};
    use crate::stats::RateBound;
    use kbt_evidence::{Provenance, audit};
    use kbt_tensor::{Dtype, Tensor, TensorSet};

    fn measured() -> Provenance {
        Provenance::measured("kbt tune", "NVIDIA H200", "2026-11-30")
    }

    fn set(values: &[f32]) -> TensorSet {
        let mut set = TensorSet::new();
        set.insert(Tensor::from_f32("o", vec![2, 2], Dtype::F32, values).unwrap()).unwrap();
        set
    }

    fn variant(
        name: &str,
        values: &[f32],
        class: ChangeClass,
        flake: FlakeFinding,
        provenance: &Provenance,
    ) -> VariantResult {
        let (saved, output, right) = (set(&[1.01, 2.0, 3.0, 4.0]), set(values), set(&[1.0, 2.0, 3.0, 4.0]));
        let sides = Sides { reference: Some(&right as &dyn Tensors), ..Sides::new(&saved, &output) };
        let comparison = compare(&sides, &Rules { class, ..Rules::default() }, provenance.clone()).unwrap();
        let same = flake == FlakeFinding::Same;
        let flake = FlakeResult {
            schema: SCHEMA.to_owned(),
            provenance: provenance.clone(),
            finding: flake,
            runs_count: if same { 60 } else { 7 },
            compared_runs_count: None,
            planned_runs_count: 60,
            sets_count: 2,
            against_reference: true,
            first: (!same).then(|| crate::flake::FirstDifference {
                run_index: 6,
                set_index: 0,
                what: "`o` [0, 0]".to_owned(),
            }),
            rate: Some(if same {
                RateBound::fixed(0, 60, 0.95)
            } else {
                RateBound::first_difference(7, 0.95)
            }),
            target_rate_ratio: 0.05,
            target_runs_count: Some(59),
            notes: Vec::new(),
        };
        VariantResult { comparison: Some(comparison), flake: Some(flake), ..VariantResult::new(name, class) }
    }

    const SAVED: [f32; 4] = [1.01, 2.0, 3.0, 4.0];

    fn good(provenance: &Provenance) -> ValidateOutcome {
        ValidateOutcome::new(vec![
            variant("split 3/4", &SAVED, ChangeClass::Reorder, FlakeFinding::Same, provenance),
            variant("log2", &[1.0, 2.01, 3.0, 4.0], ChangeClass::Algebra, FlakeFinding::Same, provenance),
        ])
    }

    #[test]
    fn right_variants_rule_correctness_out_and_say_what_the_runs_cannot_show() {
        let outcome = good(&measured());
        let [verdict] = &outcome.verdicts()[..] else { panic!() };
        assert_eq!((verdict.class, verdict.standing), (FixClass::Correctness, Standing::RuledOut));
        assert!(verdict.is_measured());
        insta::assert_snapshot!(verdict.reason, @"2 variants are right in every run made; 60 runs show that fewer than 4.87 % differ, with 95 % confidence, and nothing of rarer faults");
        insta::assert_snapshot!(outcome.headline(), @"2 variants: 1 bitwise identical, 1 as accurate as the baseline; 60 runs show that fewer than 4.87 % differ, with 95 % confidence, and nothing of rarer faults");
    }

    #[test]
    fn without_measurements_nothing_is_ruled_out() {
        let [verdict] = &good(&Provenance::given("files")).verdicts()[..] else { panic!() };
        assert_eq!(verdict.standing, Standing::Open);
        let mut half = good(&measured());
        half.variants[1].flake = None;
        let [verdict] = &half.verdicts()[..] else { panic!() };
        assert_eq!((verdict.standing, verdict.reason.contains("log2")), (Standing::Open, true));
        let [verdict] = &ValidateOutcome::new(vec![]).verdicts()[..] else { panic!() };
        assert_eq!(verdict.standing, Standing::Refused);
    }

    #[test]
    fn a_wrong_or_flaky_variant_recommends_repair() {
        let mut outcome = good(&measured());
        outcome.variants.push(variant(
            "fast",
            &[1.5, 2.0, 3.0, 4.0],
            ChangeClass::Reorder,
            FlakeFinding::Same,
            &measured(),
        ));
        let [verdict] = &outcome.verdicts()[..] else { panic!() };
        assert_eq!(verdict.standing, Standing::Recommended);
        insta::assert_snapshot!(outcome.headline(), @"1 of 3 variants wrong or flaky; fast: `o`: 1 of 4 elements differ, the first at [0, 0]; a reordering keeps every bit");
        assert_eq!(outcome.admitted().count(), 2);
        let racy =
            variant("racy", &SAVED, ChangeClass::Reorder, FlakeFinding::DiffersFromItself, &measured());
        let [verdict] = &ValidateOutcome::new(vec![racy]).verdicts()[..] else { panic!() };
        assert!(verdict.next.as_ref().unwrap().contains("bisect"));
    }

    #[test]
    fn an_algebraic_change_may_differ_from_the_saved_output_but_not_from_itself() {
        let values = [1.0, 2.01, 3.0, 4.0];
        for (finding, standing) in [
            (FlakeFinding::DiffersFromItself, VariantStanding::Wrong),
            (FlakeFinding::RunFailed, VariantStanding::Wrong),
            (FlakeFinding::Same, VariantStanding::Right),
            (FlakeFinding::DiffersFromReference, VariantStanding::Unknown),
            (FlakeFinding::OtherInputs, VariantStanding::Unknown),
        ] {
            let v = variant("log2", &values, ChangeClass::Algebra, finding, &measured());
            assert_eq!(v.standing(), standing, "{finding:?}");
        }
    }

    #[test]
    fn the_file_has_a_provenance_above_every_number_and_reads_back_equal() {
        let mut outcome = good(&measured());
        outcome.variants.push(variant(
            "fast",
            &[1.5, 2.0, 3.0, f32::NAN],
            ChangeClass::Algebra,
            FlakeFinding::DiffersFromItself,
            &measured(),
        ));
        let value = serde_json::to_value(&outcome).unwrap();
        assert_eq!(audit::uncovered_numbers(&value), [""; 0]);
        assert_eq!(value["schema"], "kbt.validate/1");
        assert_eq!(serde_json::from_value::<ValidateOutcome>(value).unwrap(), outcome);
    }
}
