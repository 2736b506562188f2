//! What the numbers of a profile must be.

use super::DeviceProfile;

/// Far above the 128 lanes that an SM issues a clock: more is a mistake in the file.
const MOST_LANES: f64 = 1024.0;

impl DeviceProfile {
    /// Rates and latencies are positive numbers; anything else would price an instruction at nothing, or at less.
    pub(super) fn check_numbers(&self) -> Result<(), String> {
        let number = |of: &str, field: &str, x: Option<f64>| match x {
            Some(x) if !x.is_finite() || x <= 0.0 => {
                Err(format!("{of}: {field} is {x}, where a positive number is expected"))
            }
            _ => Ok(()),
        };
        let spread = |of: &str, x: Option<f64>| match x {
            Some(x) if !x.is_finite() || x < 0.0 => {
                Err(format!("{of}: spread_percent is {x}, where a number of at least 0 is expected"))
            }
            _ => Ok(()),
        };
        number("the profile", "sm_count", self.sm_count.map(f64::from))?;
        number("the profile", "sm_clock_mhz", self.sm_clock_mhz)?;
        for row in &self.ceilings {
            spread(&format!("ceiling `{}`", row.kind), row.spread_percent)?;
        }
        let mut seen = std::collections::BTreeSet::new();
        for row in &self.rates {
            let of = format!("rate `{}`", row.instruction);
            if !seen.insert(&row.instruction) {
                return Err(format!("{of} is there twice"));
            }
            if let Some(lanes) = row.lanes_per_clk_sm.filter(|l| *l > MOST_LANES) {
                return Err(format!(
                    "{of}: lanes_per_clk_sm is {lanes:e}; at most {MOST_LANES} are expected of an SM"
                ));
            }
            number(&of, "lanes_per_clk_sm", row.lanes_per_clk_sm)?;
            number(&of, "results_per_clk_sm", row.results_per_clk_sm)?;
            number(&of, "latency_clk", row.latency_clk)?;
            spread(&of, row.spread_percent)?;
        }
        for row in &self.lowering {
            let of = format!("lowering `{}`", row.operation);
            number(&of, "results", Some(row.results))?;
            for one in &row.instructions {
                number(&of, &format!("count of `{}`", one.opcode), Some(one.count))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_no_device_has_and_rows_that_say_two_things_are_refused() {
        let told = |head: &str, row: &str| {
            let p = "provenance: {kind: mined, by: ptxas}";
            let text = format!(
                "schema: kbt.device/1\nname: p\narch: sm_90a\n{p}\n{head}\nrates:\n- {{instruction: a, pipe: alu, \
                 lanes_per_clk_sm: 64, {row}{p}}}\n"
            );
            DeviceProfile::from_yaml(&text, "p.yaml").map(|_| ()).map_err(|e| e.to_string())
        };
        assert_eq!(told("sm_count: 132", "spread_percent: 0, "), Ok(()));
        for (head, row, says) in [
            ("sm_count: 0", "", "the profile: sm_count is 0"),
            ("sm_clock_mhz: 0", "", "the profile: sm_clock_mhz is 0"),
            ("sm_clock_mhz: .inf", "", "sm_clock_mhz is inf"),
            ("", "spread_percent: -0.5, ", "rate `a`: spread_percent is -0.5"),
            ("", "refused: no, ", "rate `a` has both lanes_per_clk_sm and refused"),
        ] {
            let why = told(head, row).unwrap_err();
            assert!(why.starts_with("p.yaml: ") && why.contains(says), "{why}");
        }
    }
}
