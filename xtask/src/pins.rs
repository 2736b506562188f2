//! The pinned CUDA packages: cuda-requirements.txt and cuda-second-requirements.txt, in pip's own format.

use anyhow::{Context, Result, ensure};

/// One package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pin {
    /// Its name on PyPI.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: String,
    /// SHA-256 of the wheels that are accepted, one a platform.
    pub(crate) digests: Vec<String>,
}

impl Pin {
    /// `name==version`.
    pub(crate) fn requirement(&self) -> String {
        format!("{}=={}", self.name, self.version)
    }

    /// How the file name of its wheel starts.
    pub(crate) fn wheel_prefix(&self) -> String {
        format!("{}-{}-", self.name.replace('-', "_"), self.version)
    }
}

/// The packages that setup installs.
pub(crate) fn pins() -> Result<Vec<Pin>> {
    parse("cuda-requirements.txt", include_str!("../cuda-requirements.txt"))
}

/// The packages of the second toolkit.
pub(crate) fn second_pins() -> Result<Vec<Pin>> {
    parse("cuda-second-requirements.txt", include_str!("../cuda-second-requirements.txt"))
}

fn parse(file: &str, text: &str) -> Result<Vec<Pin>> {
    let lines =
        text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|(index, line)| {
            let at = || format!("{file}:{}", index + 1);
            let mut words = line.split_whitespace();
            let (name, version) = words
                .next()
                .and_then(|w| w.split_once("=="))
                .with_context(|| format!("{}: no name==version", at()))?;
            let digests: Vec<_> =
                words.filter_map(|w| w.strip_prefix("--hash=sha256:")).map(str::to_owned).collect();
            ensure!(!digests.is_empty(), "{}: no --hash=sha256:", at());
            Ok(Pin { name: name.to_owned(), version: version.to_owned(), digests })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_pins_are_complete() {
        let pins = pins().unwrap();
        let tools = ["nvidia-cuda-nvcc", "nvidia-cuda-nvdisasm", "nvidia-cuda-cuobjdump", "nvidia-nvvm"];
        assert!(tools.iter().all(|tool| pins.iter().any(|pin| pin.name == *tool)));
        let second = second_pins().unwrap();
        assert!(tools[..3].iter().all(|tool| second.iter().any(|pin| pin.name == *tool)));
        assert!(second.iter().all(|pin| !pins.contains(pin)), "a second version of each");
        for pin in pins.into_iter().chain(second) {
            assert_eq!(pin.digests.len(), 2, "{pin:?}");
            assert!(pin.digests.iter().all(|d| d.len() == 64 && d.bytes().all(|b| b.is_ascii_hexdigit())));
        }
    }

    #[test]
    fn lines_are_read_and_bad_ones_named() {
        let pins = parse("pins.txt", "# c\n\nnvidia-x==1.2.3 --hash=sha256:ab --hash=sha256:cd\n").unwrap();
        assert_eq!(pins[0].requirement(), "nvidia-x==1.2.3");
        assert_eq!(pins[0].wheel_prefix(), "nvidia_x-1.2.3-");
        assert_eq!(pins[0].digests, ["ab", "cd"]);
        for (text, expect) in [("x --hash=sha256:ab", ":1: no name==version"), ("# c\nx==1", ":2: no --hash")]
        {
            let error = parse("pins.txt", text).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        }
    }
}
