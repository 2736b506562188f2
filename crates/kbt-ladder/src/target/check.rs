//! kbt-validate as a sweep's check: how a setting's outputs are held against the baseline's and the reference.

use kbt_evidence::Provenance;
use kbt_split::Spec;
use kbt_split::record::{CheckOutcome, Correctness};
use kbt_target::{Change, Setting, Target};
use kbt_tensor::{ReadOptions, TensorFile};
use kbt_validate::compare::{ChangeClass, Rules, Sides, compare};
use std::path::{Path, PathBuf};

/// kbt-validate's comparison as a sweep's check: bitwise for settings that only reorder, and by accuracy against
/// a reference for those that change the arithmetic.
#[derive(Debug)]
pub struct AgainstReference {
    target: Target,
    baseline: Setting,
    reference: Option<PathBuf>,
}

impl AgainstReference {
    /// The check of a sweep; `reference` is a file with the right outputs, in f32 or f64.
    #[must_use]
    pub fn new(spec: &Spec, reference: Option<PathBuf>) -> Self {
        let baseline = spec.space.points.first().map(|p| p.setting.clone()).unwrap_or_default();
        Self { target: spec.target.clone(), baseline, reference }
    }
}

impl Correctness for AgainstReference {
    fn check(&self, saved: &Path, outputs: &Path, setting: &Setting) -> Result<CheckOutcome, String> {
        let open = |path: &Path| TensorFile::open(path, &ReadOptions::default()).map_err(|e| e.to_string());
        let (saved, outputs) = (open(saved)?, open(outputs)?);
        let given = || Provenance::given("the outputs of the target's processes");
        let bits =
            compare(&Sides::new(&saved, &outputs), &Rules::default(), given()).map_err(|e| e.to_string())?;
        if bits.identical() {
            return Ok(CheckOutcome::Bitwise);
        }
        let changed = setting.differs_from(&self.baseline);
        let algebra = |name: &String| self.target.knob(name).is_some_and(|k| k.change == Change::Algebra);
        if !changed.0.keys().any(algebra) {
            return Ok(CheckOutcome::Wrong { statement: bits.violations.join("; ") });
        }
        let reference = self.reference.as_deref().ok_or(
            "its bits differ and its knobs change the arithmetic: the right outputs are needed (`reference:` in the target file, or --reference FILE)",
        )?;
        let reference = open(reference)?;
        let sides =
            Sides { reference: Some(&reference), baseline: Some(&saved), ..Sides::new(&saved, &outputs) };
        let rules = Rules { class: ChangeClass::Algebra, ..Rules::default() };
        let judged = compare(&sides, &rules, given()).map_err(|e| e.to_string())?;
        if judged.passed() {
            let statement = format!("as accurate as the baseline within a factor of {}", rules.factor);
            return Ok(CheckOutcome::Accurate { statement });
        }
        Ok(CheckOutcome::Wrong { statement: judged.violations.join("; ") })
    }
}
