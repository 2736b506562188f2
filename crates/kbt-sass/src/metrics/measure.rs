//! From a listing to the metrics outcome.

use super::{Analysis, Selection, Unit};
use crate::outcome::{MetricsOutcome, SCHEMA, Section, UnknownMnemonic};
use crate::{Confidence, Function, Listing, Problem, ProblemKind};
use kbt_evidence::Provenance;
use std::collections::BTreeMap;

/// What is counted.
#[derive(Debug, Clone)]
pub struct MeasureOptions {
    /// The first of the two units whose interleaving is looked at.
    pub a: Unit,
    /// The second.
    pub b: Unit,
    /// Whether basic blocks are listed.
    pub blocks: bool,
    /// Functions and parts.
    pub selection: Selection,
}

impl Default for MeasureOptions {
    fn default() -> Self {
        Self { a: Unit::mufu(), b: Unit::f2fp(), blocks: false, selection: Selection::default() }
    }
}

/// Counts function by function, so that a listing need not be held whole.
#[derive(Debug)]
pub struct Measure {
    options: MeasureOptions,
    /// With the place of each in the listing.
    functions: Vec<(usize, Section)>,
    /// How many functions were met.
    met: usize,
    /// Mnemonics whose pipe is unknown, with how often they occur.
    unknown: BTreeMap<String, u64>,
    confidence: Confidence,
}

impl Measure {
    /// Starts with nothing counted.
    #[must_use]
    pub fn new(options: MeasureOptions) -> Self {
        Self {
            options,
            functions: Vec::new(),
            met: 0,
            unknown: BTreeMap::new(),
            confidence: Confidence::Documented,
        }
    }

    /// Counts a function, if it is selected.
    pub fn function(&mut self, function: &Function) {
        self.nth(self.met, function);
    }

    /// Counts the function at a place in the listing, if it is selected.
    pub(super) fn nth(&mut self, place: usize, function: &Function) {
        self.met = self.met.max(place + 1);
        if !self.options.selection.takes_function(&function.name) {
            return;
        }
        let analysis = Analysis::new(function, &self.options.a, &self.options.b);
        let mut section = analysis.section();
        if self.options.blocks {
            section.blocks = analysis.block_sections();
        }
        if !self.options.selection.narrow(&analysis, &mut section) {
            return;
        }
        for (insn, class) in function.instructions[..analysis.graph.code_len].iter().zip(&analysis.pipes) {
            self.confidence = self.confidence.min(class.confidence);
            if class.confidence == Confidence::Unknown {
                *self.unknown.entry(insn.mnemonic().to_owned()).or_default() += 1;
            }
        }
        self.functions.push((place, section));
    }

    /// Takes in what another counted over other functions of the same listing.
    pub(super) fn join(&mut self, other: Self) {
        self.functions.extend(other.functions);
        self.met = self.met.max(other.met);
        self.confidence = self.confidence.min(other.confidence);
        for (mnemonic, count) in other.unknown {
            *self.unknown.entry(mnemonic).or_default() += count;
        }
    }

    /// The outcome; `listing` gives the problems and the tools.
    #[must_use]
    pub fn finish(mut self, listing: &Listing) -> MetricsOutcome {
        self.functions.sort_by_key(|(place, _)| *place);
        let mut problems = listing.problems.clone();
        let unknown_mnemonics: Vec<_> = (self.unknown.into_iter())
            .map(|(mnemonic, instructions)| UnknownMnemonic { mnemonic, instructions })
            .collect();
        for unknown in &unknown_mnemonics {
            problems.push(Problem {
                kind: ProblemKind::UnknownMnemonic,
                line: 0,
                text: format!("no pipe is known for {}", unknown.mnemonic),
                more: unknown.instructions - 1,
            });
        }
        MetricsOutcome {
            schema: SCHEMA.to_owned(),
            provenance: provenance(listing),
            confidence: self.confidence,
            functions: self.functions.into_iter().map(|(_, section)| section).collect(),
            unknown_mnemonics,
            problems,
        }
    }
}

/// How the counts of a listing are known.
#[must_use]
pub fn provenance(listing: &Listing) -> Provenance {
    let assembler = listing.assembler.as_deref().unwrap_or("an assembler that the listing does not name");
    let disassembler =
        listing.disassembler.as_deref().unwrap_or("a disassembler that the listing does not name");
    Provenance::mined(format!("machine code of {assembler}, listed by {disassembler}"))
}

/// Counts over a whole listing.
#[must_use]
pub fn measure(listing: &Listing, options: MeasureOptions) -> MetricsOutcome {
    let mut measure = Measure::new(options);
    for function in &listing.functions {
        measure.function(function);
    }
    measure.finish(listing)
}
