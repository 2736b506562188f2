//! What an instruction uses without its companions: usages are sums, so those of known instructions are taken off.

use super::mixes::{Mixes, Solo};
use super::pair::{SAME, STEP};
use std::collections::BTreeMap;

/// Cycles, known within bounds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Span {
    pub least: f64,
    pub most: f64,
    /// Whether the model explains what was measured.
    pub sure: bool,
}

impl Span {
    /// A measured bottleneck.
    pub(crate) const fn of_measured(cycles: f64) -> Self {
        Self { least: cycles, most: cycles, sure: true }
    }
}

/// The usages of single opcodes, resource by resource.
type Usage = Vec<Option<Span>>;

/// The opcodes whose usages could be had, and why the others' could not.
pub(crate) struct Opcodes {
    nets: Vec<Usage>,
    unsolved: Vec<Option<String>>,
}

impl Opcodes {
    /// Solves what can be: operations of one opcode first, then those with one unknown opcode, again and again.
    pub(crate) fn solve(mixes: &Mixes, gross: &[Usage], resources: usize) -> Self {
        let mut known: BTreeMap<&str, Usage> = BTreeMap::new();
        for (solo, usage) in mixes.solos.iter().zip(gross) {
            if let [(opcode, count)] = solo.opcodes.iter().collect::<Vec<_>>()[..] {
                known.entry(opcode).or_insert_with(|| divided(usage, *count));
            }
        }
        // Takes an issue slot and nothing else.
        known.insert("NOP", vec![Some(Span::of_measured(0.0)); resources]);
        loop {
            let mut solved = None;
            for (solo, usage) in mixes.solos.iter().zip(gross) {
                let unknown: Vec<&String> =
                    solo.opcodes.keys().filter(|o| relative(&known, o).is_none()).collect();
                if let [opcode] = unknown[..] {
                    solved = Some((opcode.as_str(), without(solo, usage, opcode, &known)));
                    break;
                }
            }
            let Some((opcode, usage)) = solved else { break };
            known.insert(opcode, usage);
        }
        let mut this = Self { nets: Vec::new(), unsolved: Vec::new() };
        for (solo, usage) in mixes.solos.iter().zip(gross) {
            let (net, why) = net_of(solo, usage, &known, resources);
            this.nets.push(net);
            this.unsolved.push(why);
        }
        this
    }

    /// What the opcodes under test of a solo use, an instruction.
    pub(crate) fn net(&self, i: usize) -> &[Option<Span>] {
        &self.nets[i]
    }

    /// Why a solo's own usage could not be told from its companions'.
    pub(crate) fn unsolved(&self, i: usize) -> Option<&str> {
        self.unsolved[i].as_deref()
    }
}

fn net_of(
    solo: &Solo,
    usage: &Usage,
    known: &BTreeMap<&str, Usage>,
    resources: usize,
) -> (Usage, Option<String>) {
    let nothing = vec![None; resources];
    match &solo.targets[..] {
        // Several targets that take turns are shown as they were measured, together.
        _ if solo.is_clean() => (divided(usage, solo.issued()), None),
        [target] => {
            let unknown: Vec<&str> = solo
                .opcodes
                .keys()
                .filter(|o| *o != target && relative(known, o).is_none())
                .map(String::as_str)
                .collect();
            if unknown.is_empty() {
                (without(solo, usage, target, known), None)
            } else {
                (nothing, Some(format!("never without {}, whose own use is not known", unknown.join(", "))))
            }
        }
        _ => (nothing, Some("several opcodes under test, and never without others".to_owned())),
    }
}

/// The usage of one opcode of a solo: the others' taken off.
fn without(solo: &Solo, usage: &Usage, opcode: &str, known: &BTreeMap<&str, Usage>) -> Usage {
    let count = solo.opcodes.get(opcode).copied().unwrap_or(1.0);
    let others: Vec<(f64, Usage)> = solo
        .opcodes
        .iter()
        .filter(|(o, _)| *o != opcode)
        .filter_map(|(o, n)| Some((*n, relative(known, o)?)))
        .collect();
    let net = |(r, span): (usize, &Option<Span>)| {
        let span = span.as_ref()?;
        let (mut least, mut most, mut sure) = (span.least, span.most, span.sure);
        for (n, other) in &others {
            let other = other.get(r)?.as_ref()?;
            least -= n * other.most;
            most -= n * other.least;
            sure &= other.sure;
        }
        // Errors of a sum are as large as those of its parts together; half cycles are told apart below that.
        let error = (SAME * span.most / count).min(STEP / 2.0);
        let near = |v: f64| {
            let whole = (v / STEP).round() * STEP;
            if (v - whole).abs() <= error { whole } else { v }
        };
        Some(Span { least: near(least / count).max(0.0), most: near(most / count).max(0.0), sure })
    };
    usage.iter().enumerate().map(net).collect()
}

fn divided(usage: &Usage, count: f64) -> Usage {
    let by = |s: &Span| Span { least: s.least / count, most: s.most / count, sure: s.sure };
    usage.iter().map(|s| s.as_ref().map(by)).collect()
}

/// The usage of an opcode, or of its kin of the same mnemonic where those agree.
fn relative(known: &BTreeMap<&str, Usage>, opcode: &str) -> Option<Usage> {
    let base = |o: &str| o.split('.').next().unwrap_or_default().to_owned();
    // The plain mnemonic speaks for its forms (IMAD for IMAD.MOV), where it was seen.
    if let Some(own) = known.get(opcode).or_else(|| known.get(base(opcode).as_str())) {
        return Some(own.clone());
    }
    let kin: Vec<&Usage> = known.iter().filter(|(o, _)| base(o) == base(opcode)).map(|(_, u)| u).collect();
    let first = *kin.first()?;
    let alike = |a: &Option<Span>, b: &Option<Span>| match (a, b) {
        (Some(a), Some(b)) => (a.least - b.least).abs() <= (SAME * a.least * 2.0).max(0.05),
        (a, b) => a.is_none() == b.is_none(),
    };
    kin.iter().all(|u| u.iter().zip(first).all(|(a, b)| alike(a, b))).then(|| first.clone())
}
