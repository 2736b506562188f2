//! The partition that was inferred beside what the profiler counted by pipe.

use super::counters::{Counters, EXECUTED};
use super::mixes::{Mixes, Solo};
use super::outcome::{InstructionRow, PipesOutcome};
use super::shared_pipes::SharedPipes;
use crate::ptx::identifier;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Instructions on a pipe, for each under test, from which on the pipe counts as used.
const USED: f64 = 0.3;

/// How the inference and the counters agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The pipes that the profiler saw for each instruction under test.
    pub pipes: BTreeMap<String, BTreeSet<String>>,
    /// The pipes of each resource's members: those that all of them used.
    pub resources: BTreeMap<String, BTreeSet<String>>,
    /// Pairs that were compared, as text: how many of how many.
    pub pairs: String,
    /// Pairs that were put together and run on different pipes, or apart and run on one.
    pub mistakes: Vec<String>,
    /// Pairs that were put together and run on different pipes, of which somebody says that they are fed as one: a
    /// resource that the counters do not name.
    #[serde(default)]
    pub not_named_by_counters: Vec<String>,
    /// Time that an instruction takes of another's resource, on whose pipe the counters have none of it: a port or a queue
    /// in common, and no use of that pipe.
    #[serde(default)]
    pub not_on_the_pipe: Vec<String>,
    /// Instructions that could not be compared, and why.
    pub left_out: Vec<String>,
}

impl Comparison {
    /// No comparison.
    #[must_use]
    pub fn refused(why: impl Into<String>) -> Self {
        Self {
            refused: Some(why.into()),
            pipes: BTreeMap::new(),
            resources: BTreeMap::new(),
            pairs: String::new(),
            mistakes: Vec::new(),
            not_named_by_counters: Vec::new(),
            not_on_the_pipe: Vec::new(),
            left_out: Vec::new(),
        }
    }

    /// For people.
    #[must_use]
    pub fn render_text(&self) -> String {
        if let Some(why) = &self.refused {
            return format!("comparison with pipe counters refused: {why}\n");
        }
        let list = |set: &BTreeSet<String>| set.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let mut out = format!("beside the profiler's counters, {}:\n", self.pairs);
        for (resource, pipes) in &self.resources {
            let pipes = if pipes.is_empty() { "no pipe in common".to_owned() } else { list(pipes) };
            let _ = writeln!(out, "  {resource}: {pipes}");
        }
        for mistake in &self.mistakes {
            let _ = writeln!(out, "  MISTAKE: {mistake}");
        }
        for pair in &self.not_named_by_counters {
            let _ = writeln!(out, "  a resource that the counters do not name: {pair}");
        }
        for part in &self.not_on_the_pipe {
            let _ = writeln!(out, "  time of another resource, and no instruction on its pipe: {part}");
        }
        for left in &self.left_out {
            let _ = writeln!(out, "  left out: {left}");
        }
        out
    }
}

/// Compares. Instructions without a bottleneck, and pairs that the inference declares untellable, are left out.
#[must_use]
pub fn compare(outcome: &PipesOutcome, mixes: &Mixes, counters: &Counters) -> Comparison {
    if counters.kernels.values().all(|k| k.executed.is_none()) {
        return Comparison::refused(format!(
            "the counters lack {EXECUTED}, by which they are put in proportion"
        ));
    }
    let shared = match SharedPipes::of(mixes.arch) {
        Ok(shared) => shared,
        Err(error) => return Comparison::refused(format!("the table of shared pipes: {error}")),
    };
    let mut comparison = Comparison { refused: None, ..Comparison::refused("") };
    let alone: BTreeMap<&str, OnPipes> = mixes
        .solos
        .iter()
        .filter_map(|s| Some((s.instruction.as_str(), per_operation(s, counters)?)))
        .collect();
    let known = by_opcode(mixes, &alone);
    for solo in &mixes.solos {
        match target_pipes(solo, &alone, &known) {
            Ok(pipes) => {
                comparison.pipes.insert(solo.instruction.clone(), pipes);
            }
            Err(why) => comparison.left_out.push(format!("{}: {why}", solo.instruction)),
        }
    }
    comparison.left_out.extend(counters.problems.iter().cloned());
    for resource in &outcome.resources {
        let known = resource.members.iter().filter_map(|m| comparison.pipes.get(m));
        let common = known.cloned().reduce(|a, b| &a & &b).unwrap_or_default();
        comparison.resources.insert(resource.name.clone(), common);
    }
    let rows: Vec<_> = outcome
        .instructions
        .iter()
        .filter(|r| !r.bottleneck.is_empty())
        .filter_map(|r| Some((r, comparison.pipes.get(&r.instruction)?)))
        .filter(|(_, pipes)| !pipes.is_empty())
        .collect();
    for (row, pipes) in &rows {
        for u in row.usage.iter().filter(|u| u.least_cycles > 0.0 && !row.bottleneck.contains(&u.resource)) {
            let of =
                comparison.resources.get(&u.resource).filter(|of| !of.is_empty() && of.is_disjoint(pipes));
            if let Some(of) = of {
                let of: Vec<&str> = of.iter().map(String::as_str).collect();
                comparison.not_on_the_pipe.push(format!(
                    "{}: {} to {} cycles of {} ({})",
                    row.instruction,
                    u.least_cycles,
                    u.most_cycles,
                    u.resource,
                    of.join(", ")
                ));
            }
        }
    }
    let (mut compared, mut all) = (0, 0);
    for (k, (a, on_a)) in rows.iter().enumerate() {
        for (b, on_b) in &rows[k + 1..] {
            all += 1;
            let of = |x: &str, y: &str| format!("{x} + {y}");
            let (ab, ba) = (of(&a.instruction, &b.instruction), of(&b.instruction, &a.instruction));
            if outcome.unidentifiable.iter().any(|u| u.what == ab || u.what == ba) {
                continue;
            }
            compared += 1;
            let together = a.bottleneck.iter().any(|r| b.bottleneck.contains(r));
            // One that uses a part of the other's resource is neither.
            let partly = |x: &InstructionRow, y: &InstructionRow| {
                x.usage.iter().any(|u| u.least_cycles > 0.0 && y.bottleneck.contains(&u.resource))
            };
            let one_pipe = !on_a.is_disjoint(on_b);
            if together && !one_pipe {
                match shared.iter().find_map(|row| row.explain(on_a, on_b)) {
                    Some(why) => comparison.not_named_by_counters.push(format!("{ab}: {why}")),
                    None => comparison.mistakes.push(format!("{ab} share a resource, and no pipe")),
                }
            } else if !together && one_pipe && !partly(a, b) && !partly(b, a) {
                let pipes: Vec<&str> = on_a.intersection(on_b).map(String::as_str).collect();
                comparison
                    .mistakes
                    .push(format!("{ab} share no resource, and the pipe {}", pipes.join(", ")));
            }
        }
    }
    comparison.pairs = format!("{compared} of {all} pairs compared, {} mistakes", comparison.mistakes.len());
    if !comparison.not_named_by_counters.is_empty() {
        let n = comparison.not_named_by_counters.len();
        comparison.pairs.push_str(&format!(", {n} by a resource that the counters do not name"));
    }
    comparison
}

/// Instructions on each pipe for one operation of a solo's kernel.
fn per_operation(solo: &Solo, counters: &Counters) -> Option<OnPipes> {
    let kernel = counters.kernels.get(&identifier(&solo.instruction))?;
    let operations = kernel.executed.filter(|n| *n > 0.0)? / solo.issued();
    Some(kernel.leaves().into_iter().map(|(pipe, n)| (pipe, n / operations)).collect())
}

/// Instructions on each pipe.
type OnPipes = BTreeMap<String, f64>;

/// Those of single opcodes: of operations of one opcode, then of those with one that is not known yet, again and again.
fn by_opcode<'m>(mixes: &'m Mixes, alone: &BTreeMap<&str, OnPipes>) -> BTreeMap<&'m str, OnPipes> {
    let mut known: BTreeMap<&str, OnPipes> = BTreeMap::new();
    loop {
        let next = mixes.solos.iter().find_map(|solo| {
            let counts = alone.get(solo.instruction.as_str())?;
            let mut unknown = solo.opcodes.iter().filter(|(o, _)| *o != "NOP" && like(&known, o).is_none());
            let (opcode, n) = unknown.next().filter(|_| unknown.next().is_none())?;
            let rest = without(solo, counts, &known, |o| o == opcode).ok()?;
            Some((opcode.as_str(), rest.into_iter().map(|(pipe, c)| (pipe, c / n)).collect()))
        });
        let Some((opcode, counts)) = next else { return known };
        known.insert(opcode, counts);
    }
}

/// What is known of an opcode, or of another form of its mnemonic.
fn like<'k>(known: &'k BTreeMap<&str, OnPipes>, opcode: &str) -> Option<&'k OnPipes> {
    let base = |o: &str| o.split('.').next().unwrap_or_default().to_owned();
    known
        .get(opcode)
        .or_else(|| known.iter().find(|(o, _)| base(o) == base(opcode)).map(|(_, counts)| counts))
}

/// A solo's counts without those opcodes that are not `kept`; an error names one of which nothing is known.
fn without(
    solo: &Solo,
    counts: &OnPipes,
    known: &BTreeMap<&str, OnPipes>,
    kept: impl Fn(&String) -> bool,
) -> Result<OnPipes, String> {
    let mut counts = counts.clone();
    for (opcode, n) in solo.opcodes.iter().filter(|(o, _)| !kept(o) && *o != "NOP") {
        let Some(companion) = like(known, opcode) else {
            return Err(format!("its companion {opcode} has no kernel of its own"));
        };
        for (pipe, share) in companion {
            if let Some(count) = counts.get_mut(pipe) {
                *count -= n * share;
            }
        }
    }
    Ok(counts)
}

/// The pipes of a solo's targets: its own counts less those of its companions.
fn target_pipes(
    solo: &Solo,
    alone: &BTreeMap<&str, OnPipes>,
    known: &BTreeMap<&str, OnPipes>,
) -> Result<BTreeSet<String>, String> {
    let counts = alone
        .get(solo.instruction.as_str())
        .ok_or_else(|| format!("no counters of a kernel `{}`", identifier(&solo.instruction)))?;
    let own = without(solo, counts, known, |o| solo.targets.contains(o))?;
    let targets: f64 = solo.targets.iter().filter_map(|t| solo.opcodes.get(t)).sum();
    Ok(own.into_iter().filter(|(_, n)| n / targets >= USED).map(|(pipe, _)| pipe).collect())
}

#[cfg(test)]
mod tests {
    use super::super::infer::infer;
    use super::super::synthetic::{Device, explore};
    use super::*;

    /// Two ALU instructions, one on another pipe, and one that needs an ALU instruction beside it.
    fn outcome() -> (PipesOutcome, Mixes) {
        let mut device = Device::new(2);
        device.add("lop", &[2.0, 0.0]).add("prmt", &[2.0, 0.0]).add("imad", &[0.0, 2.0]);
        device.add("vote", &[4.0, 0.0]).with_opcodes(&[("VOTE", 1.0), ("LOP", 1.0)]);
        let mixes = explore(&mut device, 300);
        (infer(&mixes), mixes)
    }

    fn counters(rows: &[(&str, f64, &str, f64)]) -> Counters {
        let mut counters = Counters::default();
        for (name, executed, pipe, n) in rows {
            let kernel = counters.kernels.entry((*name).to_owned()).or_default();
            kernel.executed = Some(*executed);
            kernel.pipes.insert((*pipe).to_owned(), *n);
        }
        counters
    }

    const RIGHT: [(&str, f64, &str, f64); 4] = [
        ("lop", 103.0, "alu", 101.0),
        ("prmt", 103.0, "alu", 101.0),
        ("imad", 103.0, "fmaheavy", 100.0),
        ("vote", 203.0, "alu", 201.0),
    ];

    #[test]
    fn a_right_partition_has_no_mistake_and_companions_are_taken_off() {
        let (outcome, mixes) = outcome();
        let c = compare(&outcome, &mixes, &counters(&RIGHT));
        assert_eq!(c.pairs, "6 of 6 pairs compared, 0 mistakes", "{c:?}");
        assert_eq!(c.resources["r1"], ["alu".to_owned()].into());
        assert_eq!(c.pipes["vote"], ["alu".to_owned()].into());
    }

    #[test]
    fn both_kinds_of_mistake_are_named() {
        let (outcome, mixes) = outcome();
        let mut rows = RIGHT;
        rows[1].2 = "fmaheavy";
        let c = compare(&outcome, &mixes, &counters(&rows));
        assert!(c.mistakes.contains(&"lop + prmt share a resource, and no pipe".to_owned()), "{c:?}");
        assert!(c.mistakes.contains(&"prmt + imad share no resource, and the pipe fmaheavy".to_owned()));
        assert!(c.render_text().contains("MISTAKE: lop + prmt"));
    }

    #[test]
    fn pipes_that_are_fed_as_one_by_a_source_are_listed_apart_from_mistakes() {
        let (outcome, mixes) = outcome();
        let mut rows = RIGHT;
        rows[0].2 = "fp64";
        rows[1].2 = "tensor_op_hmma";
        let c = compare(&outcome, &mixes, &counters(&rows));
        let said = &c.not_named_by_counters;
        assert!(said.len() == 1 && said[0].starts_with("lop + prmt: fp64 and tensor ("), "{c:?}");
        assert!(!c.mistakes.iter().any(|m| m.starts_with("lop + prmt")), "{c:?}");
        assert!(c.pairs.ends_with("1 by a resource that the counters do not name"), "{}", c.pairs);
        // Of another architecture nobody says so.
        let elsewhere = Mixes { arch: "sm_120a".parse().unwrap(), ..mixes };
        let c = compare(&outcome, &elsewhere, &counters(&rows));
        assert!(c.mistakes.contains(&"lop + prmt share a resource, and no pipe".to_owned()), "{c:?}");
    }

    #[test]
    fn a_companion_that_is_never_alone_is_known_from_where_its_own_companions_are() {
        let mut device = Device::new(2);
        device.add("lop", &[2.0, 0.0]).add("imad", &[0.0, 2.0]);
        device.add("setp", &[4.0, 0.0]).with_opcodes(&[("SETP.LT", 1.0), ("LOP", 1.0)]);
        device.add("ballot", &[2.0, 2.0]).with_opcodes(&[("BALLOT", 1.0), ("SETP.GE", 1.0)]);
        let mixes = explore(&mut device, 300);
        let rows = [
            ("lop", 100.0, "alu", 100.0),
            ("imad", 100.0, "fma", 100.0),
            ("setp", 200.0, "alu", 200.0),
            ("ballot", 200.0, "alu", 100.0),
            ("ballot", 200.0, "vote", 100.0),
        ];
        let c = compare(&infer(&mixes), &mixes, &counters(&rows));
        assert_eq!(c.pipes["ballot"], ["vote".to_owned()].into(), "{c:?}");
        // Without those of the companion nothing can be said.
        let c = compare(&infer(&mixes), &mixes, &counters(&[rows[0], rows[1], rows[3], rows[4]]));
        assert_eq!(c.left_out[1], "ballot: its companion SETP.GE has no kernel of its own");
    }

    #[test]
    fn what_has_no_counters_is_left_out_by_name() {
        let (outcome, mixes) = outcome();
        let c = compare(&outcome, &mixes, &counters(&RIGHT[1..3]));
        assert_eq!(c.left_out[0], "lop: no counters of a kernel `lop`");
        let none = compare(&outcome, &mixes, &Counters::default());
        assert!(none.refused.unwrap().contains(EXECUTED));
    }
}
