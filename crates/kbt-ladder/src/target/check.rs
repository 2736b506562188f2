//! kbt-validate as a sweep's check: how a setting's outputs are held against the baseline's and the reference.

use kbt_evidence::Provenance;
use kbt_split::Spec;
use kbt_split::record::{CheckOutcome, Correctness};
use kbt_target::{Change, ProcessLauncher, Setting, Target};
use kbt_tensor::{ReadOptions, TensorFile};
use kbt_validate::compare::{ChangeClass, Rules, Sides, compare};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// kbt-validate's comparison as a sweep's check: bitwise for settings that only reorder, and by accuracy against
/// a reference for those that change the arithmetic.
#[derive(Debug)]
pub struct AgainstReference {
    target: Target,
    baseline: Setting,
    factor: f64,
    reference: OnceLock<Result<PathBuf, String>>,
}

impl AgainstReference {
    /// The check of a sweep; `reference` is a file with the right outputs, in f32 or f64. Where there is none, the
    /// target's own program makes them when they are first needed, from the inputs in the sweep's directory.
    #[must_use]
    pub fn new(spec: &Spec, reference: Option<PathBuf>) -> Self {
        let baseline = spec.space.points.first().map(|p| p.setting.clone()).unwrap_or_default();
        let factor = Rules::default().factor;
        let reference = reference.map_or_else(OnceLock::new, |file| OnceLock::from(Ok(file)));
        Self { target: spec.target.clone(), baseline, factor, reference }
    }

    /// The same, where a setting's error may exceed the baseline's by this factor.
    #[must_use]
    pub const fn with_factor(mut self, factor: f64) -> Self {
        self.factor = factor;
        self
    }

    /// The file with the right outputs; `saved` lies in the sweep's directory.
    fn reference(&self, saved: &Path) -> Result<&Path, String> {
        let make = || {
            let folder = saved.parent().unwrap_or(Path::new(""));
            let file = folder.join("right.safetensors");
            if file.exists() {
                return Ok(file);
            }
            // Tasks on other machines may make it too: whoever is ready puts a whole file in place.
            let part = folder.join(format!("right-{}.part", std::process::id()));
            let inputs = self.target.input_folder(0, &folder.join("inputs"));
            let launch = ProcessLauncher::new(&self.target).reference(&inputs, &part).ok_or(
                "its bits differ and its knobs change the arithmetic: the right outputs are needed (`reference:` in the target file, or --reference FILE)",
            )?;
            if !launch.is_ok() {
                let last = launch.stderr_tail.lines().last().unwrap_or_default();
                return Err(format!("the target's reference program: {}: {last}", launch.status));
            }
            std::fs::rename(&part, &file).map_err(|e| format!("{}: {e}", file.display()))?;
            Ok(file)
        };
        self.reference.get_or_init(make).as_deref().map_err(Clone::clone)
    }
}

impl Correctness for AgainstReference {
    fn check(&self, saved: &Path, outputs: &Path, setting: &Setting) -> Result<CheckOutcome, String> {
        let open = |path: &Path| TensorFile::open(path, &ReadOptions::default()).map_err(|e| e.to_string());
        let file = saved;
        let saved = open(saved)?;
        let outputs = match open(outputs) {
            Ok(outputs) => outputs,
            // What the setting wrote is the setting's own.
            Err(problem) => return Ok(CheckOutcome::Wrong { statement: problem }),
        };
        // What neither side holds could not be seen to differ.
        if let Some(statement) = self.target.lost_outputs(outputs.infos().map(|info| info.name.as_str())) {
            return Ok(CheckOutcome::Wrong { statement });
        }
        let given = || Provenance::given("the outputs of the target's processes");
        let bits =
            compare(&Sides::new(&saved, &outputs), &Rules::default(), given()).map_err(|e| e.to_string())?;
        let changed = setting.differs_from(&self.baseline);
        if bits.identical() {
            // Right outputs that were given must be those of these inputs, before anything is judged by them.
            if let (true, Some(Ok(right))) = (changed.0.is_empty(), self.reference.get()) {
                let right = open(right)?;
                let sides = Sides { reference: Some(&right), ..Sides::new(&saved, &outputs) };
                compare(&sides, &Rules::default(), given()).map_err(|e| e.to_string())?;
            }
            return Ok(CheckOutcome::Bitwise);
        }
        let algebra = |name: &String| self.target.knob(name).is_some_and(|k| k.change == Change::Algebra);
        if !changed.0.keys().any(algebra) {
            return Ok(CheckOutcome::Wrong { statement: bits.violations.join("; ") });
        }
        let reference = open(self.reference(file)?)?;
        let sides =
            Sides { reference: Some(&reference), baseline: Some(&saved), ..Sides::new(&saved, &outputs) };
        let stated = self.target.outputs.iter().filter_map(|o| Some((o.name.clone(), o.tolerance?)));
        let rules = Rules {
            class: ChangeClass::Algebra,
            factor: self.factor,
            tolerances: stated.collect(),
            ..Rules::default()
        };
        let judged = compare(&sides, &rules, given()).map_err(|e| e.to_string())?;
        if judged.passed() {
            let mut statement = format!("as accurate as the baseline within a factor of {}", rules.factor);
            for note in judged.notes.iter().filter(|n| n.contains("that is accepted")) {
                statement = format!("{statement}; {note}");
            }
            return Ok(CheckOutcome::Accurate { statement });
        }
        Ok(CheckOutcome::Wrong { statement: judged.violations.join("; ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kbt_split::{Choice, Space};
    use kbt_tensor::{Dtype, Tensor, TensorSet};

    #[test]
    fn right_outputs_of_other_inputs_are_refused_at_the_baseline() {
        let yaml = "schema: kbt.target/1\nname: fake\nrun: {command: [fake]}\noutputs: [{name: o}]\n";
        let target = Target::from_yaml(yaml, "fake.yaml", Path::new("")).unwrap();
        let space = Space::new(&target, &Choice::default()).unwrap();
        let spec = Spec::new(target, space, kbt_target::TimingPolicy::default());
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, values: &[f32]| {
            let mut set = TensorSet::new();
            set.insert(Tensor::from_f32("o", vec![values.len()], Dtype::F32, values).unwrap()).unwrap();
            let path = folder.path().join(name);
            set.write_safetensors(&path).unwrap();
            path
        };
        let saved = write("saved", &[1.0, 2.0, 3.0]);
        let checked = |right: Option<PathBuf>| {
            let setting = &spec.space.points[0].setting;
            AgainstReference::new(&spec, right).check(&saved, &saved, setting)
        };
        assert_eq!(checked(None), Ok(CheckOutcome::Bitwise));
        assert_eq!(checked(Some(write("right", &[1.01, 2.0, 3.0]))), Ok(CheckOutcome::Bitwise));
        let refused = checked(Some(write("other", &[-3.0, 1.0, -2.0]))).unwrap_err();
        assert!(refused.contains("blind"), "{refused}");
    }

    #[test]
    fn a_listed_output_that_was_not_written_is_wrong_even_where_neither_side_has_it() {
        let yaml =
            "schema: kbt.target/1\nname: fake\nrun: {command: [fake]}\noutputs: [{name: o}, {name: lse}]\n";
        let target = Target::from_yaml(yaml, "fake.yaml", Path::new("")).unwrap();
        let space = Space::new(&target, &Choice::default()).unwrap();
        let spec = Spec::new(target, space, kbt_target::TimingPolicy::default());
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, names: &[&str]| {
            let mut set = TensorSet::new();
            for name in names {
                set.insert(Tensor::from_f32(*name, vec![3], Dtype::F32, &[1.0, 2.0, 3.0]).unwrap()).unwrap();
            }
            let path = folder.path().join(file);
            set.write_safetensors(&path).unwrap();
            path
        };
        let (whole, lost) = (write("whole", &["lse", "o"]), write("lost", &["o", "x"]));
        let check = AgainstReference::new(&spec, None);
        let checked =
            |saved: &Path, outputs: &Path| check.check(saved, outputs, &spec.space.points[0].setting);
        assert_eq!(checked(&whole, &whole), Ok(CheckOutcome::Bitwise));
        for saved in [&whole, &lost] {
            let statement = "`outputs:` lists `lse`, but the file that was written holds `o`, `x`".to_owned();
            assert_eq!(checked(saved, &lost), Ok(CheckOutcome::Wrong { statement }));
        }
    }
}
