//! Which instructions and mixes of `pipes` are what they should be in machine code: without a GPU.

use super::assemble::{AssembleError, Assembler, Built, Item};
use super::mixes::{Refused, Solo};
use super::plan::counts;
use super::subjects::cycles_by;
use crate::prepare::PreparedPart;
use kbt_device::{Arch, DeviceProfile};
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The schema that verifications state.
pub const SCHEMA: &str = "kbt.pipes.verification/1";
/// The share that the first of a mix takes of the second's time; another changes counts and no code.
const SHARE: f64 = 0.6;

/// What was verified. Counts are of instructions an operation, and of operations a round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipesVerification {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The compile target.
    pub arch: Arch,
    /// The compiler.
    pub provenance: Provenance,
    /// The machine code of each verified instruction, by name.
    pub instructions: BTreeMap<String, BTreeMap<String, f64>>,
    /// The verified mixes.
    pub mixes: Vec<VerifiedMix>,
    /// What was refused, and why.
    pub refused: Vec<Refused>,
}

/// A verified mix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerifiedMix {
    /// The two.
    pub of: [String; 2],
    /// Operations of each in a round.
    pub counts: [u32; 2],
}

/// Builds and checks every instruction alone, and every mix of two whose `a+b` is wanted.
pub fn verify_all(
    assembler: &Assembler<'_>,
    parts: &[PreparedPart],
    profile: &DeviceProfile,
    ptxas: &str,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<PipesVerification, AssembleError> {
    let mut found = PipesVerification {
        schema: SCHEMA.to_owned(),
        arch: assembler.arch(),
        provenance: Provenance::mined(format!("ptxas {ptxas}")),
        instructions: BTreeMap::new(),
        mixes: Vec::new(),
        refused: Vec::new(),
    };
    let mut known: Vec<(&PreparedPart, Solo)> = Vec::new();
    let items: Vec<Item> = parts.iter().map(Item::solo).collect();
    for (part, built) in parts.iter().zip(assembler.build(&items)?) {
        match built {
            Ok(built) => known.push((part, alone(&built, profile))),
            Err(refused) => found.refused.push(refused),
        }
    }
    let (mut items, mut mixes) = (Vec::new(), Vec::new());
    for (k, (a, solo_a)) in known.iter().enumerate() {
        for (b, solo_b) in &known[..k] {
            let of = [solo_a.instruction.clone(), solo_b.instruction.clone()];
            if wanted(&of.join("+")) {
                let cycles = [solo_a.measured_cycles, solo_b.measured_cycles];
                let counts =
                    counts(cycles, [solo_a.issued(), solo_b.issued()], [a.chain.ops, b.chain.ops], SHARE);
                items.push(Item::mix([a, b], [solo_a, solo_b], counts));
                mixes.push(VerifiedMix { of, counts });
            }
        }
    }
    for (mix, built) in mixes.into_iter().zip(assembler.build(&items)?) {
        match built {
            Ok(_) => found.mixes.push(mix),
            Err(refused) => found.refused.push(refused),
        }
    }
    found.instructions = known.into_iter().map(|(_, s)| (s.instruction, s.opcodes)).collect();
    Ok(found)
}

/// A solo whose time is the profile's rate, and two cycles for each companion.
fn alone(built: &Built, profile: &DeviceProfile) -> Solo {
    let mut solo = built.solo(1.0);
    let targets: f64 = solo.targets.iter().filter_map(|t| solo.opcodes.get(t)).sum();
    solo.measured_cycles = cycles_by(profile, &solo.instruction) + 2.0 * (solo.issued() - targets);
    solo
}

impl PipesVerification {
    /// For people: one line an instruction, one for all mixes, and what was refused.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut out = format!("{}, {}\n", self.arch, self.provenance);
        for (name, opcodes) in &self.instructions {
            let code: Vec<String> = opcodes.iter().map(|(o, n)| format!("{n:.2} {o}")).collect();
            let _ = writeln!(out, "{name:<36} {}", code.join(", "));
        }
        let refused_mixes = self.refused.iter().filter(|r| r.what.contains(" + ")).count();
        let _ = writeln!(
            out,
            "{} of {} instructions and {} of {} mixes verified",
            self.instructions.len(),
            self.instructions.len() + self.refused.len() - refused_mixes,
            self.mixes.len(),
            self.mixes.len() + refused_mixes
        );
        for r in &self.refused {
            let _ = writeln!(out, "refused: {}: {}", r.what, r.why);
        }
        out
    }
}
