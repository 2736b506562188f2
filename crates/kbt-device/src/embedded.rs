//! The profiles that come with the crate.

use crate::{DeviceProfile, ProfileError};

/// Name and text of each embedded profile.
const PROFILES: &[(&str, &str)] = &[
    ("h200-sxm", include_str!("../../../fixtures/recordings/h200-sxm/profile.yaml")),
    ("sm_90a", include_str!("../../../fixtures/profiles/sm_90a.yaml")),
    ("sm_100a", include_str!("../../../fixtures/profiles/sm_100a.yaml")),
    ("sm_103a", include_str!("../../../fixtures/profiles/sm_103a.yaml")),
    ("sm_120a", include_str!("../../../fixtures/profiles/sm_120a.yaml")),
];

/// The names of the embedded profiles.
pub fn embedded_profiles() -> impl Iterator<Item = &'static str> {
    PROFILES.iter().map(|(name, _)| *name)
}

/// An embedded profile by name, as a recording; `None` where there is no such name.
pub fn embedded_profile(name: &str) -> Option<Result<DeviceProfile, ProfileError>> {
    let (name, text) = PROFILES.iter().find(|(n, _)| *n == name)?;
    Some(DeviceProfile::from_yaml(text, name).map(DeviceProfile::read_back))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_embedded_profile_reads_and_bears_its_name() {
        for name in embedded_profiles() {
            let profile = embedded_profile(name).unwrap().unwrap();
            assert_eq!(profile.name, name);
        }
    }

    #[test]
    fn an_opcode_has_the_rate_of_the_row_in_which_it_is_alone() {
        let mut profile = embedded_profile("h200-sxm").unwrap().unwrap();
        let of = |p: &DeviceProfile, opcode: &str| p.rate_of_opcode(opcode).map(|r| r.instruction.clone());
        assert_eq!(of(&profile, "IMAD.WIDE.U32").as_deref(), Some("mul.wide.u32"));
        // Where no row has a latency, the first.
        let first = profile.rates.iter().find(|r| r.opcode.as_deref() == Some("VOTE.ANY")).unwrap();
        assert_eq!(of(&profile, "VOTE.ANY"), Some(first.instruction.clone()));
        for row in &mut profile.rates {
            row.latency_clk = None;
        }
        assert!(profile.rate_of_opcode("IMAD.WIDE.U32").is_some());
        assert_eq!(of(&profile, "NOTHING"), None);
    }

    #[test]
    fn opcodes_that_take_turns_have_no_latency() {
        let profile = embedded_profile("sm_90a").unwrap().unwrap();
        let mut row = profile.rates.into_iter().find(|r| r.opcode.is_some()).unwrap();
        row.latency_clk = Some(8.0);
        row.opcode = Some("HADD2".into());
        assert_eq!(row.latency(), Some(8.0));
        row.opcode = Some("HADD2+HFMA2.MMA".into());
        assert_eq!(row.latency(), None);
    }

    #[test]
    fn a_row_that_is_there_twice_or_beats_any_machine_is_refused() {
        let profile = embedded_profile("sm_90a").unwrap().unwrap();
        let error = |p: &DeviceProfile| {
            DeviceProfile::from_yaml(&p.to_yaml().unwrap(), "p.yaml").unwrap_err().to_string()
        };
        let mut twice = profile.clone();
        twice.rates.push(twice.rates[0].clone());
        assert!(error(&twice).contains("is there twice"), "{}", error(&twice));
        let mut huge = profile;
        huge.rates[0].lanes_per_clk_sm = Some(1e300);
        assert!(error(&huge).contains("at most 1024"), "{}", error(&huge));
    }

    #[test]
    fn a_file_that_is_cut_off_is_told_with_its_line_and_what_is_expected_there() {
        let text = embedded_profile("sm_90a").unwrap().unwrap().to_yaml().unwrap();
        let end = text.match_indices("    kind: mined").nth(3).unwrap().0 + "    kind".len();
        let error = DeviceProfile::from_yaml(&text[..end], "p.yaml").unwrap_err().to_string();
        let says = "expected a provenance: `kind`, `by` at line";
        assert!(error.starts_with("p.yaml: rates[") && error.contains(says), "{error}");
    }

    #[test]
    fn a_rate_that_is_no_positive_number_is_refused_with_file_and_row() {
        let profile = embedded_profile("sm_90a").unwrap().unwrap();
        for wrong in [f64::NAN, 0.0, -16.0, f64::INFINITY] {
            let refused = |change: &dyn Fn(&mut DeviceProfile), part: &str| {
                let mut profile = profile.clone();
                change(&mut profile);
                let text = profile.to_yaml().unwrap();
                let error = DeviceProfile::from_yaml(&text, "p.yaml").unwrap_err().to_string();
                assert!(error.starts_with("p.yaml: ") && error.contains(part), "{wrong}: {error}");
            };
            let name = profile.rates[0].instruction.clone();
            refused(
                &|p| p.rates[0].lanes_per_clk_sm = Some(wrong),
                &format!("`{name}`: lanes_per_clk_sm is"),
            );
            refused(
                &|p| p.rates[0].results_per_clk_sm = Some(wrong),
                &format!("`{name}`: results_per_clk_sm is"),
            );
            refused(&|p| p.rates[0].latency_clk = Some(wrong), &format!("`{name}`: latency_clk is"));
            let operation = profile.lowering[0].operation.clone();
            refused(&|p| p.lowering[0].results = wrong, &format!("`{operation}`: results is"));
            refused(&|p| p.lowering[0].instructions[0].count = wrong, "count of");
        }
    }
}
