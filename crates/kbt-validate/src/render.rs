//! Outcomes as text for people.

use crate::bisect::BisectResult;
use crate::compare::bits::Bits;
use crate::compare::errors::ErrorStats;
use crate::compare::{Comparison, TensorComparison};
use crate::flake::{FlakeResult, percent};
use crate::outcome::{ValidateOutcome, VariantStanding};
use crate::probe::ProbeResult;
use std::fmt::{self, Display, Formatter};

impl Display for Comparison {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for tensor in &self.tensors {
            write!(f, "{tensor}")?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))?;
        let class = self.class.as_str();
        if self.passed() {
            let what = if self.identical() { "every bit is the same" } else { "as accurate as the baseline" };
            return write!(f, "passed ({class}): {what}");
        }
        write!(f, "failed ({class}):")?;
        self.violations.iter().try_for_each(|v| write!(f, "\n  {v}"))
    }
}

impl Display for TensorComparison {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {} {:?}", self.name, self.dtype, self.shape)?;
        // Integers and truth values have no last place.
        let units = if self.dtype.is_float() { ["ulp", "ulps"] } else { ["unit", "units"] };
        write!(f, "  bits      ")?;
        bits(&self.bits, units, f)?;
        writeln!(f)?;
        for (who, stats) in [("variant", &self.variant), ("baseline", &self.baseline)] {
            if let Some(stats) = stats {
                writeln!(f, "  {who:<9} {stats}")?;
            }
        }
        if let Some(ties) = &self.ties {
            let (tied, not) = (ties.explained_count, ties.unexplained_count);
            writeln!(f, "  codes     {tied} differ on a tie, {not} not")?;
        }
        if let Some(limit) = self.seeds_max_abs_error {
            writeln!(f, "  seeds     the baseline's largest error is {limit:.3e}")?;
        }
        Ok(())
    }
}

fn bits(bits: &Bits, [unit, units]: [&str; 2], f: &mut Formatter<'_>) -> fmt::Result {
    let (differing, all) = (bits.differing_count, bits.elements_count);
    let Some(first) = &bits.first_index else { return write!(f, "all {all} elements are the same") };
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    let share = percent(differing as f64 / all as f64);
    write!(f, "{differing} of {all} elements differ ({share}), the first at {first:?}")?;
    for range in &bits.distribution {
        let (from, to, count) = (range.from_ulps, range.to_ulps, range.elements_count);
        match (from, to) {
            (0, _) => write!(f, "; sign of zero: {count}")?,
            _ if from == to => write!(f, "; {from} {}: {count}", if from == 1 { unit } else { units })?,
            _ => write!(f, "; {from} to {to} {units}: {count}")?,
        }
    }
    if bits.special_differing_count > 0 {
        write!(f, "; NaN or infinity on one side: {}", bits.special_differing_count)?;
    }
    if let Some(place) = &bits.first_special_index {
        write!(f, ", the first at {place:?}")?;
    }
    if bits.nan_payload_count > 0 {
        write!(f, "; other NaN bits: {}", bits.nan_payload_count)?;
    }
    Ok(())
}
impl Display for ErrorStats {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let relative = |v: Option<f64>| v.map_or_else(|| "none".to_owned(), |v| format!("{v:.3e}"));
        write!(
            f,
            "error max {:.3e} at {:?}, mean {:.3e}, relative RMS {}, worst row {:?} {}",
            self.max_abs_error,
            self.max_index,
            self.mean_abs_error,
            relative(self.relative_rms_error),
            self.worst_row_index,
            relative(self.worst_row_relative_rms_error),
        )?;
        match &self.first_misplaced_index {
            Some(place) => {
                write!(f, ", {} NaN or infinities misplaced, the first at {place:?}", self.misplaced_count)
            }
            None => Ok(()),
        }
    }
}

impl Display for FlakeResult {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))?;
        write!(f, "{}\n{}", self.statement(), self.provenance)
    }
}

impl Display for BisectResult {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "baseline: {}", self.baseline.statement())?;
        for (number, step) in self.steps.iter().enumerate() {
            let subsets: Vec<String> = step.subsets.iter().map(|s| s.join(" ")).collect();
            write!(f, "step {}: {} ({} runs): ", number + 1, subsets.join(" | "), step.runs_count)?;
            match &step.differed {
                Some((subset, what)) => writeln!(f, "{subset} differs: {what}")?,
                None => writeln!(f, "no difference")?,
            }
        }
        write!(f, "{}\n{}", self.statement(), self.provenance)
    }
}

impl Display for ProbeResult {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let passed = if self.passed { "passed" } else { "failed" };
        write!(f, "{} {passed}: {}", self.kind, self.statement)
    }
}

impl Display for ValidateOutcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for variant in &self.variants {
            let standing = match variant.standing() {
                VariantStanding::Right => "right",
                VariantStanding::Wrong => "wrong",
                VariantStanding::Unknown => "not fully checked",
            };
            writeln!(f, "{} ({}): {standing}", variant.name, variant.class.as_str())?;
            for line in variant.faults().iter().chain(&variant.problems) {
                writeln!(f, "  {line}")?;
            }
        }
        self.problems.iter().try_for_each(|p| writeln!(f, "{p}"))?;
        write!(f, "{}", self.headline())
    }
}

#[cfg(test)]
mod tests {
    use crate::compare::{ChangeClass, Rules, Sides, Tensors, compare};
    use kbt_evidence::Provenance;
    use kbt_tensor::{Dtype, Tensor, TensorSet};

    #[test]
    fn a_comparison_reads_well() {
        let set = |values: &[f32]| {
            let mut set = TensorSet::new();
            set.insert(Tensor::from_f32("o", vec![2, 2], Dtype::F32, values).unwrap()).unwrap();
            set
        };
        let (saved, variant) = (set(&[1.01, 2.0, 3.0, 0.0]), set(&[1.01, 2.000_000_5, 3.1, -0.0]));
        let right = set(&[1.0, 2.0, 3.0, 0.0]);
        let sides = Sides { reference: Some(&right as &dyn Tensors), ..Sides::new(&saved, &variant) };
        let rules = Rules { class: ChangeClass::Algebra, ..Rules::default() };
        let comparison = compare(&sides, &rules, Provenance::given("test")).unwrap();
        insta::assert_snapshot!(comparison);
    }

    #[test]
    fn integers_differ_by_units_and_numbers_by_ulps() {
        let set = |dtype, bytes: &[u8]| {
            let mut set = TensorSet::new();
            set.insert(Tensor::new("p", dtype, vec![4], bytes.to_vec()).unwrap()).unwrap();
            set
        };
        for (dtype, says) in [
            (Dtype::U8, "; 1 unit: 1; 2 to 3 units: 1"),
            (Dtype::I8, "; 1 unit: 1; 2 to 3 units: 1"),
            (Dtype::E4m3, "; 1 ulp: 1; 2 to 3 ulps: 1"),
        ] {
            let (saved, variant) = (set(dtype, &[1, 2, 3, 4]), set(dtype, &[1, 3, 3, 7]));
            let text = compare(&Sides::new(&saved, &variant), &Rules::default(), Provenance::given("test"))
                .unwrap()
                .to_string();
            assert!(text.contains(says), "{text}");
        }
        let truths = |bytes: &[u8]| set(Dtype::Bool, bytes);
        let (saved, variant) = (truths(&[0, 1, 0, 1]), truths(&[0, 1, 1, 1]));
        let text = compare(&Sides::new(&saved, &variant), &Rules::default(), Provenance::given("test"));
        assert!(text.unwrap().to_string().contains("; 1 unit: 1"));
    }
}
