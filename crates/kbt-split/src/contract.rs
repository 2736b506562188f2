//! The safety contract of the two-signal handoff, on the integers that the kernel really uses.
//!
//! The producer stores its tile in `chunks` and signals first after first(chunks) of them. The consumer then
//! starts first(tiles) of its K `tiles`, and waits for the second signal before the rest. Both come from one
//! fraction num/den, but they round on their own: first(k) = min(max(floor(k num / den), 1), k - 1). What the
//! consumer starts must have been stored: first(chunks)/chunks >= first(tiles)/tiles.

use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The part of `k` pieces that goes first at a fraction; `None` where there is nothing to split (`k` below 2)
/// or no fraction (`den` is 0).
#[must_use]
pub fn first(k: u32, num: u32, den: u32) -> Option<u32> {
    if k < 2 {
        return None;
    }
    let part = (u64::from(k) * u64::from(num)).checked_div(u64::from(den))?;
    u32::try_from(part.clamp(1, u64::from(k - 1))).ok()
}

/// A handoff as the kernel runs it. Two settings with the same integers are the same kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Integers {
    /// Chunks stored before the first signal.
    pub first_chunks: u32,
    /// Chunks in all.
    pub chunks: u32,
    /// K tiles started after the first signal.
    pub first_tiles: u32,
    /// K tiles in all.
    pub tiles: u32,
}

impl fmt::Display for Integers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first_chunks, chunks, first_tiles, tiles } = self;
        write!(f, "{first_chunks}/{chunks} chunks, {first_tiles}/{tiles} tiles")
    }
}

/// Why a setting must not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Violation {
    /// The consumer would read what is not written yet.
    #[error(
        "{num}/{den} rounds to {}/{} of the chunks but {}/{} of the tiles: the producer signals first when \
         {} of the tile is stored, the consumer then starts on {} of it",
        integers.first_chunks, integers.chunks, integers.first_tiles, integers.tiles,
        Percent(integers.first_chunks, integers.chunks), Percent(integers.first_tiles, integers.tiles)
    )]
    ReadsUnwritten {
        /// Numerator as set.
        num: u32,
        /// Denominator as set.
        den: u32,
        /// What it rounds to.
        integers: Integers,
    },
    /// One chunk or one tile cannot be split.
    #[error("{chunks} chunks and {tiles} tiles cannot be split; accepted: at least 2 of each")]
    NothingToSplit {
        /// Chunks as set.
        chunks: u32,
        /// Tiles as set.
        tiles: u32,
    },
    /// The first part is nothing or everything.
    #[error("{num}/{den} is no split; accepted: a fraction above 0 and below 1")]
    NotAFraction {
        /// Numerator as set.
        num: u32,
        /// Denominator as set.
        den: u32,
    },
}

impl Violation {
    /// Whether the numbers describe no split at all, so that there is nothing to round and compare.
    #[must_use]
    pub const fn is_no_split(&self) -> bool {
        !matches!(self, Self::ReadsUnwritten { .. })
    }
}

struct Percent(u32, u32);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", 100.0 * f64::from(self.0) / f64::from(self.1))
    }
}

/// The integers of a setting, where it keeps the contract.
///
/// # Errors
/// The way in which it breaks it.
pub fn check(num: u32, den: u32, chunks: u32, tiles: u32) -> Result<Integers, Violation> {
    if num == 0 || num >= den {
        return Err(Violation::NotAFraction { num, den });
    }
    let (Some(first_chunks), Some(first_tiles)) = (first(chunks, num, den), first(tiles, num, den)) else {
        return Err(Violation::NothingToSplit { chunks, tiles });
    };
    let integers = Integers { first_chunks, chunks, first_tiles, tiles };
    let stored = u64::from(first_chunks) * u64::from(tiles);
    let read = u64::from(first_tiles) * u64::from(chunks);
    if stored >= read { Ok(integers) } else { Err(Violation::ReadsUnwritten { num, den, integers }) }
}

/// Every pair of integers that the contract allows at these counts.
#[must_use]
pub fn legal(chunks: u32, tiles: u32) -> Vec<Integers> {
    let pairs = (1..chunks).flat_map(|c| (1..tiles).map(move |t| (c, t)));
    pairs
        .filter(|(c, t)| u64::from(*c) * u64::from(tiles) >= u64::from(*t) * u64::from(chunks))
        .map(|(first_chunks, first_tiles)| Integers { first_chunks, chunks, first_tiles, tiles })
        .collect()
}

/// The schema that contract reports state.
pub const CONTRACT_SCHEMA: &str = "kbt.split.contract/1";

/// The answer of `kbt split contract`: `kbt.split.contract/1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContractReport {
    /// Always [`CONTRACT_SCHEMA`].
    pub schema: String,
    /// Numerator asked about.
    pub num_count: u32,
    /// Denominator asked about.
    pub den_count: u32,
    /// Whether the setting may run.
    pub holds: bool,
    /// What it rounds to.
    pub integers: Integers,
    /// Why it may not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub violation: Option<String>,
    /// Fractions of small denominators that hold at these counts, as `num/den`.
    pub legal: Vec<String>,
    /// Where the numbers come from.
    pub provenance: Provenance,
}

impl ContractReport {
    /// Checks a setting and says what would hold instead.
    ///
    /// # Errors
    /// Where the numbers describe no split: `num` is 0 or not below `den`, or fewer than 2 chunks or tiles.
    pub fn new(
        num: u32,
        den: u32,
        chunks: u32,
        tiles: u32,
        provenance: Provenance,
    ) -> Result<Self, Violation> {
        let (integers, violation) = match check(num, den, chunks, tiles) {
            Ok(integers) => (integers, None),
            Err(violation @ Violation::ReadsUnwritten { integers, .. }) => {
                (integers, Some(violation.to_string()))
            }
            Err(no_split) => return Err(no_split),
        };
        let small = [2, 4, 8].into_iter().flat_map(|d| (1..d).step_by(2).map(move |n| (n, d)));
        let legal = small.filter(|(n, d)| check(*n, *d, chunks, tiles).is_ok());
        Ok(Self {
            schema: CONTRACT_SCHEMA.to_owned(),
            num_count: num,
            den_count: den,
            holds: violation.is_none(),
            integers,
            violation,
            legal: legal.map(|(n, d)| format!("{n}/{d}")).collect(),
            provenance,
        })
    }
}

impl fmt::Display for ContractReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (num, den) = (self.num_count, self.den_count);
        let Integers { first_chunks, chunks, first_tiles, tiles } = self.integers;
        let Some(violation) = &self.violation else {
            return write!(f, "{num}/{den} holds: {}", self.integers);
        };
        writeln!(f, "{num}/{den} violates the contract: {first_chunks}/{chunks} < {first_tiles}/{tiles}")?;
        writeln!(f, "{violation}, and so reads what is not written yet")?;
        if self.legal.is_empty() {
            write!(f, "no small fraction holds at these counts")
        } else {
            write!(f, "these hold at these counts: {}", self.legal.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_pair(num: u32, den: u32, chunks: u32, tiles: u32, expect: Option<(u32, u32)>, holds: bool) {
        let answer = check(num, den, chunks, tiles);
        assert_eq!(answer.is_ok(), holds, "{num}/{den} at ({chunks}, {tiles}): {answer:?}");
        let integers = match answer {
            Ok(i) | Err(Violation::ReadsUnwritten { integers: i, .. }) => {
                Some((i.first_chunks, i.first_tiles))
            }
            Err(_) => None,
        };
        assert_eq!(integers, expect, "{num}/{den} at ({chunks}, {tiles})");
    }

    /// The rounding hazards of flash-attention-fp4's rule, and settings that keep it.
    #[test]
    fn equal_fractions_can_still_violate_the_contract() {
        check_pair(7, 8, 4, 8, Some((3, 7)), false);
        check_pair(5, 8, 4, 8, Some((2, 5)), false);
        check_pair(3, 8, 4, 8, Some((1, 3)), false);
        check_pair(3, 4, 2, 4, Some((1, 3)), false);
        check_pair(3, 4, 2, 8, Some((1, 6)), false);
        check_pair(1, 4, 4, 2, Some((1, 1)), false);
        check_pair(3, 4, 4, 8, Some((3, 6)), true);
        check_pair(7, 8, 8, 8, Some((7, 7)), true);
        check_pair(1, 4, 2, 8, Some((1, 2)), true);
        for chunks in [2, 4, 8, 16] {
            for tiles in [2, 4, 8] {
                check_pair(1, 2, chunks, tiles, Some((chunks / 2, tiles / 2)), true);
            }
        }
    }

    #[test]
    fn the_ends_are_clamped_and_what_cannot_be_split_is_refused() {
        check_pair(1, 8, 4, 4, Some((1, 1)), true);
        check_pair(7, 8, 8, 4, Some((7, 3)), true);
        check_pair(0, 4, 4, 8, None, false);
        check_pair(4, 4, 8, 4, None, false);
        check_pair(9, 4, 8, 4, None, false);
        check_pair(1, 2, 1, 8, None, false);
        check_pair(1, 2, 8, 1, None, false);
        check_pair(1, 0, 4, 8, None, false);
        assert_eq!(first(u32::MAX, u32::MAX, 1), Some(u32::MAX - 1));
    }

    #[test]
    fn legal_pairs_are_those_that_the_rule_allows() {
        let pairs = legal(4, 8);
        // First chunks 1, 2, 3 allow first tiles up to 2, 4, 6.
        assert_eq!(pairs.len(), 2 + 4 + 6);
        assert!(legal(1, 8).is_empty());
    }

    #[test]
    fn a_report_names_both_rounded_fractions_and_what_would_hold() {
        let given = Provenance::given("--num, --den, --chunks, --tiles");
        let report = ContractReport::new(7, 8, 4, 8, given.clone()).unwrap();
        insta::assert_snapshot!(report.to_string(), @"
        7/8 violates the contract: 3/4 < 7/8
        7/8 rounds to 3/4 of the chunks but 7/8 of the tiles: the producer signals first when 75% of the tile is stored, the consumer then starts on 87.5% of it, and so reads what is not written yet
        these hold at these counts: 1/2, 1/4, 3/4, 1/8
        ");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(kbt_evidence::audit::uncovered_numbers(&json), Vec::<String>::new());
        assert_eq!((report.schema.as_str(), report.holds), ("kbt.split.contract/1", false));
        assert_eq!(
            ContractReport::new(3, 4, 4, 8, given.clone()).unwrap().to_string(),
            "3/4 holds: 3/4 chunks, 6/8 tiles"
        );
        let refused = |num, den, chunks| {
            let violation = ContractReport::new(num, den, chunks, 8, given.clone()).unwrap_err();
            assert!(violation.is_no_split());
            violation.to_string()
        };
        assert_eq!(refused(1, 2, 1), "1 chunks and 8 tiles cannot be split; accepted: at least 2 of each");
        assert_eq!(refused(8, 8, 4), "8/8 is no split; accepted: a fraction above 0 and below 1");
        assert_eq!(refused(1, 0, 4), "1/0 is no split; accepted: a fraction above 0 and below 1");
    }
}
