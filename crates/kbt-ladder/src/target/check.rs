//! kbt-validate as a sweep's check: how a setting's outputs are held against the baseline's and the reference.

use kbt_evidence::Provenance;
use kbt_split::Spec;
use kbt_split::record::{CheckOutcome, Correctness};
use kbt_target::{Change, ProcessLauncher, Setting, Target};
use kbt_tensor::{ReadOptions, TensorFile};
use kbt_validate::compare::{ChangeClass, Comparison, Rules, Sides, TensorComparison, compare};
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

impl AgainstReference {
    fn rules(&self, with_tolerances: bool) -> Rules {
        let stated = self.target.outputs.iter().filter(|_| with_tolerances);
        Rules {
            class: ChangeClass::Algebra,
            factor: self.factor,
            tolerances: stated.filter_map(|o| Some((o.name.clone(), o.tolerance?))).collect(),
            ..Rules::default()
        }
    }

    /// The baseline's own output, by which all others are judged. Without right outputs nobody knows where NaN and
    /// infinities belong, but an output that holds no number is nobody's baseline.
    fn baseline(&self, file: &Path, saved: &TensorFile, bits: &Comparison) -> Result<CheckOutcome, String> {
        let wanted = self.reference.get().is_some() || self.target.reference.is_some();
        // Where they cannot be made, the settings that need them say so.
        let Some(right) = wanted.then(|| self.reference(file).ok()).flatten() else {
            let all = |t: &&TensorComparison| {
                t.bits.elements_count > 0 && t.saved_special_count == t.bits.elements_count
            };
            return match bits.tensors.iter().find(all) {
                Some(t) => {
                    Err(format!("the baseline's own `{}` holds NaN or infinities and nothing else", t.name))
                }
                None => Ok(CheckOutcome::Bitwise),
            };
        };
        // They must be those of these inputs, before anything is judged by them.
        let right = open(right)?;
        let sides = Sides { reference: Some(&right), ..Sides::new(saved, saved) };
        let judged = compare(&sides, &Rules::default(), given()).map_err(|e| e.to_string())?;
        let errors = |t: &TensorComparison| t.variant.as_ref().map(|e| (t.name.clone(), e.clone()));
        for (name, error) in judged.tensors.iter().filter_map(errors) {
            if let Some(place) = error.first_misplaced_index {
                return Err(format!(
                    "the baseline's own `{name}` holds {} NaN or infinities where the right outputs have none, or the \
                     other way round, the first at {place:?}: nothing can be judged by it",
                    error.misplaced_count
                ));
            }
            let stated = self.target.outputs.iter().find(|o| o.name == name).and_then(|o| o.tolerance);
            if let (Some(limit), Some(error)) = (stated, error.relative_rms_error)
                && (error.is_nan() || error > limit)
            {
                return Err(format!(
                    "the baseline's own `{name}` has a relative RMS error of {error:.3e}, and {limit:.3e} is accepted by \
                     the target file: nothing can be judged by it"
                ));
            }
        }
        Ok(CheckOutcome::Bitwise)
    }
}

fn open(path: &Path) -> Result<TensorFile, String> {
    TensorFile::open(path, &ReadOptions::default()).map_err(|e| e.to_string())
}

fn given() -> Provenance {
    Provenance::given("the outputs of the target's processes")
}

impl Correctness for AgainstReference {
    fn check(&self, saved: &Path, outputs: &Path, setting: &Setting) -> Result<CheckOutcome, String> {
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
        let bits =
            compare(&Sides::new(&saved, &outputs), &Rules::default(), given()).map_err(|e| e.to_string())?;
        let changed = setting.differs_from(&self.baseline);
        if bits.identical() {
            return if changed.0.is_empty() {
                self.baseline(file, &saved, &bits)
            } else {
                Ok(CheckOutcome::Bitwise)
            };
        }
        let algebra = |name: &String| self.target.knob(name).is_some_and(|k| k.change == Change::Algebra);
        if !changed.0.keys().any(algebra) {
            return Ok(CheckOutcome::Wrong { statement: bits.violations.join("; ") });
        }
        let reference = open(self.reference(file)?)?;
        let sides =
            Sides { reference: Some(&reference), baseline: Some(&saved), ..Sides::new(&saved, &outputs) };
        let rules = self.rules(true);
        let judged = compare(&sides, &rules, given()).map_err(|e| e.to_string())?;
        if judged.passed() {
            let strict = compare(&sides, &self.rules(false), given()).map_err(|e| e.to_string())?;
            let of = |texts: &[String], name: &str| {
                texts.iter().find(|text| text.starts_with(&format!("`{name}`"))).cloned()
            };
            let differing = judged.tensors.iter().filter(|t| t.bits.differing_count > 0);
            let (mut close, mut accepted) = (Vec::new(), Vec::new());
            for name in differing.map(|t| &t.name) {
                match of(&strict.violations, name) {
                    None => close.push(format!("`{name}`")),
                    Some(_) => accepted.extend(of(&judged.notes, name)),
                }
            }
            if !close.is_empty() {
                let names = close.join(", ");
                accepted.insert(
                    0,
                    format!("{names}: as accurate as the baseline within a factor of {}", self.factor),
                );
            }
            return Ok(CheckOutcome::Accurate { statement: accepted.join("; ") });
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

    const ALGEBRA: &str = "schema: kbt.target/1\nname: fake\nrun: {command: [fake]}\noutputs: [{name: o, tolerance: 0.02}]\n\
        knobs: [{name: FORM, values: [a, b], default: a, change: algebra}]\n";

    /// The check of `ALGEBRA` and its settings; and the tensor `o` with such values in a file.
    fn algebra(right: Option<PathBuf>) -> (AgainstReference, Vec<Setting>) {
        let target = Target::from_yaml(ALGEBRA, "fake.yaml", Path::new("")).unwrap();
        let space = Space::new(&target, &Choice::default()).unwrap();
        let settings = space.points.iter().map(|p| p.setting.clone()).collect();
        let spec = Spec::new(target, space, kbt_target::TimingPolicy::default());
        (AgainstReference::new(&spec, right), settings)
    }

    fn write(path: PathBuf, values: &[f32]) -> PathBuf {
        let mut set = TensorSet::new();
        set.insert(Tensor::from_f32("o", vec![values.len()], Dtype::F32, values).unwrap()).unwrap();
        set.write_safetensors(&path).unwrap();
        path
    }

    #[test]
    fn a_baseline_whose_nan_the_right_outputs_do_not_have_is_nobodys_measure() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, values: &[f32]| write(folder.path().join(name), values);
        let right = file("right", &[1.0, 2.0, 3.0]);
        let saved = file("saved", &[f32::NAN, 2.0, 3.0]);
        let (check, settings) = algebra(Some(right.clone()));
        let refused = check.check(&saved, &saved, &settings[0]).unwrap_err();
        assert!(
            refused.contains("the baseline's own `o` holds 1 NaN") && refused.contains("[0]"),
            "{refused}"
        );
        // Where the right outputs have it too, it belongs there.
        let (check, settings) = algebra(Some(file("nan", &[f32::NAN, 2.0, 3.0])));
        assert_eq!(check.check(&saved, &saved, &settings[0]), Ok(CheckOutcome::Bitwise));
        // Without right outputs nobody knows, but one without any number is refused.
        let (check, settings) = algebra(None);
        assert_eq!(check.check(&saved, &saved, &settings[0]), Ok(CheckOutcome::Bitwise));
        let none = file("none", &[f32::NAN, f32::INFINITY, f32::NAN]);
        let refused = check.check(&none, &none, &settings[0]).unwrap_err();
        assert!(refused.contains("nothing else"), "{refused}");
    }

    #[test]
    fn a_baseline_further_off_than_the_target_file_accepts_is_nobodys_measure() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, values: &[f32]| write(folder.path().join(name), values);
        let (check, settings) = algebra(Some(file("right", &[1.0, 2.0, 3.0])));
        let saved = file("saved", &[1.4, 2.8, 4.2]);
        let refused = check.check(&saved, &saved, &settings[0]).unwrap_err();
        assert!(refused.contains("4.000e-1") && refused.contains("2.000e-2"), "{refused}");
        let saved = file("near", &[1.01, 2.0, 3.0]);
        assert_eq!(check.check(&saved, &saved, &settings[0]), Ok(CheckOutcome::Bitwise));
    }

    #[test]
    fn what_passes_by_the_stated_tolerance_is_not_called_as_accurate_as_the_baseline() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, values: &[f32]| write(folder.path().join(name), values);
        let (check, settings) = algebra(Some(file("right", &[1.0, 2.0, 3.0])));
        let saved = file("saved", &[1.001, 2.0, 3.0]);
        let judged = |values: &[f32]| match check.check(&saved, &file("variant", values), &settings[1]) {
            Ok(CheckOutcome::Accurate { statement }) => statement,
            other => panic!("{other:?}"),
        };
        let statement = judged(&[1.01, 2.0, 3.0]);
        assert!(!statement.contains("as the baseline") && statement.contains("2.000e-2"), "{statement}");
        assert!(
            judged(&[1.0, 2.001, 3.0]).contains("`o`: as accurate as the baseline within a factor of 1.02")
        );
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
