//! How much one trip of a region does: two builds of a kernel may unroll its loop differently, and then counts a trip say
//! nothing beside each other.

use crate::metrics::access_bytes;
use crate::{Analysis, Instruction, Interval};
use kbt_device::Pipe;
use std::collections::BTreeMap;

/// What a trip gives, in counts that an assembler neither adds to nor takes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// Results: what is stored, matrix products, transcendental instructions.
    given: BTreeMap<&'static str, u64>,
    /// Bytes loaded; an assembler may load once what is asked for twice, so they count only where nothing is given.
    loaded: u64,
}

impl Work {
    pub(super) fn of(analysis: &Analysis<'_>, part: &Interval) -> Self {
        let mut work = Self::default();
        for i in part.indices() {
            let (Some(insn), Some(class)) = (analysis.function.instructions.get(i), analysis.pipes.get(i))
            else {
                continue;
            };
            if insn.is_dead() {
                continue;
            }
            if let Some((what, n)) = given(insn, class.pipe) {
                *work.given.entry(what).or_default() += n;
            }
            if matches!(insn.mnemonic(), "LDG" | "LD" | "LDS") {
                work.loaded += access_bytes(insn);
            }
        }
        work
    }

    /// How many trips of this region do what one of `first` does.
    ///
    /// # Errors
    /// Where the counts do not say so with one voice; what they are.
    pub(super) fn trips_for(&self, first: &Self) -> Result<f64, String> {
        let loaded = |w: &Self| BTreeMap::from([("bytes loaded", w.loaded)]);
        let (a, b) = match first.given.is_empty() && self.given.is_empty() {
            true => (loaded(first), loaded(self)),
            false => (first.given.clone(), self.given.clone()),
        };
        let keys: Vec<&str> = a.keys().chain(b.keys().filter(|k| !a.contains_key(*k))).copied().collect();
        let pairs: Vec<(&str, u64, u64)> = keys
            .into_iter()
            .map(|k| (k, a.get(k).copied().unwrap_or(0), b.get(k).copied().unwrap_or(0)))
            .collect();
        let (_, x, y) = pairs[0];
        // x / y is the same for all, compared without a division.
        if x > 0
            && y > 0
            && pairs.iter().all(|(_, p, q)| u128::from(*p) * u128::from(y) == u128::from(*q) * u128::from(x))
        {
            return Ok(x as f64 / y as f64);
        }
        let told: Vec<String> = pairs.iter().map(|(k, p, q)| format!("{k} {p} against {q}")).collect();
        Err(told.join(", "))
    }
}

/// What an instruction gives, if anything, and how much of it.
fn given(insn: &Instruction, pipe: Option<Pipe>) -> Option<(&'static str, u64)> {
    Some(match (insn.mnemonic(), pipe) {
        ("STG" | "ST", _) => ("bytes stored", access_bytes(insn)),
        ("STS", _) => ("bytes stored to shared memory", access_bytes(insn)),
        ("ATOM" | "ATOMG" | "ATOMS" | "RED" | "REDG", _) => ("atomic operations", 1),
        ("MUFU", _) => ("transcendental instructions", 1),
        (_, Some(Pipe::Tensor | Pipe::Tc)) => ("matrix instructions", 1),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unit;

    fn work(lines: &[&str]) -> Work {
        let mut text = "\t.target\tsm_90a\n\t.section\t.text.f,\"ax\",@progbits\n".to_owned();
        for (n, line) in lines.iter().enumerate() {
            text += &format!("/*{:04x}*/ {line} ;\n", n * 16);
        }
        let listing = crate::parse(text.as_bytes()).unwrap();
        let analysis = Analysis::new(&listing.functions[0], &Unit::mufu(), &Unit::f2fp());
        Work::of(&analysis, &analysis.whole())
    }

    #[test]
    fn a_trip_of_four_elements_is_four_trips_of_one_whatever_the_width_of_its_stores() {
        let four = work(&[
            "MUFU.EX2 R0, R0",
            "MUFU.EX2 R1, R1",
            "MUFU.EX2 R2, R2",
            "MUFU.EX2 R3, R3",
            "STG.E.128 [R4], R0",
        ]);
        let one = work(&["LDG.E R0, [R4]", "MUFU.EX2 R0, R0", "STG.E [R4], R0"]);
        assert_eq!(one.trips_for(&four), Ok(4.0));
        assert_eq!(four.trips_for(&one), Ok(0.25));
        assert_eq!(four.trips_for(&four), Ok(1.0));
    }

    #[test]
    fn counts_of_two_minds_are_refused_and_told() {
        let a = work(&["MUFU.EX2 R0, R0", "STG.E.64 [R4], R0"]);
        let b = work(&["MUFU.EX2 R0, R0", "STG.E [R4], R0"]);
        let why = b.trips_for(&a).unwrap_err();
        assert_eq!(why, "bytes stored 8 against 4, transcendental instructions 1 against 1");
        // Where nothing is given, what is loaded counts; where nothing is loaded either, nobody can say.
        let (wide, narrow) = (work(&["LDG.E.128 R0, [R4]"]), work(&["LDG.E R0, [R4]"]));
        assert_eq!(narrow.trips_for(&wide), Ok(4.0));
        assert!(work(&["FADD R0, R0, R1"]).trips_for(&wide).is_err());
        assert!(work(&["FADD R0, R0, R1"]).trips_for(&work(&["FADD R0, R0, R1"])).is_err());
    }
}
