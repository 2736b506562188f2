//! What the machine code of every form was found to be, for people and scripts: `run --verify-only`.

use crate::prepare::Prepared;
use kbt_device::{Arch, Pipe};
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// The verification of a spec for one compile target. Counts are of instructions an operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verification {
    /// Always [`crate::outcome::SCHEMA`].
    pub schema: String,
    /// The compile target.
    pub arch: Arch,
    /// The compiler.
    pub provenance: Provenance,
    /// One row a form.
    pub forms: Vec<FormRow>,
    /// Names of the spec that are for other targets only.
    #[serde(default)]
    pub for_other_targets: Vec<String>,
}

/// One form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FormRow {
    /// The instruction; of a mix both, with `+`.
    pub instruction: String,
    /// The form.
    pub form: String,
    /// The target mnemonics that were seen.
    pub opcode: Option<String>,
    /// Numbers of chains a thread whose kernels are as meant.
    pub chains_count: Vec<u32>,
    /// What an operation compiles to.
    pub per_operation: Vec<OpcodeRow>,
    /// What was refused, and why.
    pub refused: Vec<String>,
}

/// One opcode of an operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpcodeRow {
    /// Full mnemonic.
    pub opcode: String,
    /// Its pipe; none for what takes an issue slot only.
    pub pipe: Option<Pipe>,
    /// How many an operation.
    pub count: f64,
    /// Whether it is the instruction under test.
    pub target: bool,
}

impl Verification {
    /// The verification of what was prepared.
    #[must_use]
    pub fn of(all: &[Prepared], arch: Arch, ptxas: &str) -> Self {
        Self {
            schema: crate::outcome::SCHEMA.to_owned(),
            arch,
            provenance: Provenance::mined(format!("ptxas {ptxas}")),
            forms: all.iter().map(form_row).collect(),
            for_other_targets: Vec::new(),
        }
    }

    /// The same with the names that have no row because they are for other targets.
    #[must_use]
    pub fn with_others(mut self, names: Vec<String>) -> Self {
        self.for_other_targets = names;
        self
    }

    /// Instructions of which no form is verified.
    pub fn unverified(&self) -> impl Iterator<Item = &str> {
        self.forms
            .iter()
            .map(|f| f.instruction.as_str())
            .filter(|name| self.forms.iter().all(|f| f.instruction != *name || f.chains_count.is_empty()))
    }

    /// For people: one line a form.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut out = format!("{}, {}\n", self.arch, self.provenance);
        for f in &self.forms {
            let parts: Vec<String> = f
                .per_operation
                .iter()
                .map(|o| {
                    let mark = if o.target { "*" } else { "" };
                    let pipe = o.pipe.map_or("issue only", |p| p.as_str());
                    format!("{mark}{:.2} {} ({pipe})", o.count, o.opcode)
                })
                .collect();
            let title = format!("{} ({})", f.instruction, f.form);
            let chains: Vec<String> = f.chains_count.iter().map(ToString::to_string).collect();
            let chains = if chains.is_empty() { "none".to_owned() } else { chains.join(",") };
            let line = format!("{title:<44} chains {chains:<8} {}", parts.join(", "));
            let _ = writeln!(out, "{}", line.trim_end());
            for why in &f.refused {
                let _ = writeln!(out, "{:<44} refused: {why}", "");
            }
        }
        let mut unverified: Vec<&str> = self.unverified().collect();
        unverified.dedup();
        let names: std::collections::BTreeSet<&str> =
            self.forms.iter().map(|f| f.instruction.as_str()).collect();
        let _ = writeln!(
            out,
            "{} of {} instructions and mixes verified{}{}",
            names.len() - unverified.len(),
            names.len(),
            if unverified.is_empty() { "" } else { "; not: " },
            unverified.join(", ")
        );
        if !self.for_other_targets.is_empty() {
            let (n, names) = (self.for_other_targets.len(), self.for_other_targets.join(", "));
            let _ = writeln!(out, "{n} not for {}: {names}", self.arch);
        }
        out
    }
}

fn form_row(p: &Prepared) -> FormRow {
    let names: Vec<&str> = p.parts.iter().map(|part| part.entry.name.as_str()).collect();
    let widest = p.widest();
    FormRow {
        instruction: names.join("+"),
        form: p.form.clone(),
        opcode: widest.and_then(|v| v.code.opcode()),
        chains_count: p.verified.iter().map(|v| v.chains).collect(),
        per_operation: widest.map_or_else(Vec::new, |v| {
            v.code
                .per_op
                .iter()
                .map(|o| OpcodeRow {
                    opcode: o.opcode.clone(),
                    pipe: o.pipe,
                    count: o.count,
                    target: o.target,
                })
                .collect()
        }),
        refused: refusals(&p.refused),
    }
}

/// What was refused, each reason once, with the numbers of chains that it holds for.
fn refusals(refused: &[(Option<u32>, String)]) -> Vec<String> {
    let mut reasons: Vec<(Vec<String>, &str)> = Vec::new();
    for (chains, why) in refused {
        let number = chains.map(|n| n.to_string());
        match reasons.iter_mut().find(|(_, said)| said == why) {
            Some((numbers, _)) => numbers.extend(number),
            None => reasons.push((number.into_iter().collect(), why)),
        }
    }
    let text = |(numbers, why): (Vec<String>, &str)| {
        if numbers.is_empty() { why.to_owned() } else { format!("{} chains: {why}", numbers.join(",")) }
    };
    reasons.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepare::tests::prepared;
    use kbt_evidence::audit;

    #[test]
    fn every_form_has_a_line_and_what_is_not_verified_is_named() {
        let mut folded = prepared("rcp", "MUFU.RCP", &[("MUFU.RCP", 1.0)]);
        folded.verified.clear();
        folded.refused.extend([1, 8].map(|n| (Some(n), "the body has 0".to_owned())));
        folded.refused.push((None, "and more".into()));
        let all = [prepared("cvt", "F2FP", &[("F2FP.X", 1.0), ("PRMT", 1.0)]), folded];
        let v = Verification::of(&all, Arch::SM_90A, "13.0.88");
        insta::assert_snapshot!(v.render_text(), @r"
        sm_90a, mined: ptxas 13.0.88
        cvt (clean)                                  chains 1,2,4,8  *1.00 F2FP.X (alu), 1.00 PRMT (alu)
        rcp (clean)                                  chains none
                                                     refused: 1,8 chains: the body has 0
                                                     refused: and more
        1 of 2 instructions and mixes verified; not: rcp
        ");
        let others = v.clone().with_others(vec!["fma.rn.f32x2".into()]).render_text();
        assert!(others.ends_with("1 not for sm_90a: fma.rn.f32x2\n"), "{others}");
        let json = serde_json::to_value(&v).unwrap();
        assert_eq!(audit::uncovered_numbers(&json), Vec::<String>::new());
        assert_eq!(serde_json::from_value::<Verification>(json).unwrap(), v);
    }
}
