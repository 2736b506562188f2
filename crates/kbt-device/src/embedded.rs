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
}
