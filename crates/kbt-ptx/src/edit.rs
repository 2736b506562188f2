//! Edits of PTX text that keep the rest byte for byte: register caps and budgets.

use crate::{Function, Instruction, Module};

/// The text with every kernel capped at `registers` a thread (`.maxnreg`), whatever cap it had. A minimum of
/// CTAs an SM (`.minnctapersm`) is taken out, because it is a cap too.
#[must_use]
pub fn with_register_cap(text: &str, module: &Module, registers: u32) -> String {
    let mut edits: Vec<(std::ops::Range<usize>, String)> = Vec::new();
    for entry in module.entries() {
        for directive in &entry.directives {
            if matches!(directive.name.as_str(), ".maxnreg" | ".minnctapersm") {
                edits.push((directive.span.clone(), String::new()));
            }
        }
        edits.push((entry.body_start..entry.body_start, format!(".maxnreg {registers}\n")));
    }
    apply(text, edits)
}

/// A `setmaxnreg` of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetSite {
    /// Registers a thread that it asks for.
    pub registers: u32,
    /// Whether it raises the count (`.inc`); else it lowers it.
    pub raises: bool,
    /// Its line.
    pub line: u32,
}

/// The `setmaxnreg` of a function with a number for an operand, in order.
pub fn budget_sites(function: &Function) -> impl Iterator<Item = BudgetSite> + '_ {
    budgets(function).map(|(i, registers)| BudgetSite { registers, raises: i.has("inc"), line: i.line })
}

fn budgets(function: &Function) -> impl Iterator<Item = (&Instruction, u32)> {
    let instructions = function.instructions().filter(|i| i.base() == "setmaxnreg");
    instructions.filter_map(|i| Some((i, i.operands.first()?.parse().ok()?)))
}

/// The text with the budgets of a function set to these, in the order of [`budget_sites`]; what is beyond the
/// shorter of the two stays.
#[must_use]
pub fn with_budgets(text: &str, function: &Function, registers: &[u32]) -> String {
    let edits = budgets(function).zip(registers).filter_map(|((i, _), to)| {
        // The operand is the last word of the instruction.
        let source = text.get(i.span.clone())?;
        let start = i.span.start + source.rfind(|c: char| !c.is_ascii_digit())? + 1;
        Some((start..i.span.end, to.to_string()))
    });
    apply(text, edits.collect())
}

/// Replaces ranges, which do not overlap.
fn apply(text: &str, mut edits: Vec<(std::ops::Range<usize>, String)>) -> String {
    edits.sort_by_key(|(range, _)| (range.start, range.end));
    let mut out = String::with_capacity(text.len() + 64);
    let mut at = 0;
    for (range, new) in edits {
        if let Some(kept) = text.get(at..range.start) {
            out.push_str(kept);
            out.push_str(&new);
            at = range.end;
        }
    }
    out.push_str(text.get(at..).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    const TEXT: &str = ".version 9.0\n.target sm_90a\n.visible .entry k(.param .u64 p)\n.maxntid 256, 1, 1\n\
                        .minnctapersm 2\n{\nsetmaxnreg.inc.sync.aligned.u32 232;\nsetmaxnreg.dec.sync.aligned.u32 \
                        40;\nret;\n}\n";

    #[test]
    fn caps_and_budgets_are_set_and_the_rest_stays() {
        let module = parse(TEXT).unwrap();
        let kernel = &module.functions[0];
        let sites: Vec<_> = budget_sites(kernel).map(|s| (s.registers, s.raises, s.line)).collect();
        assert_eq!(sites, [(232, true, 7), (40, false, 8)]);
        let capped = with_register_cap(TEXT, &module, 64);
        assert_eq!(capped, TEXT.replace(".minnctapersm 2", "").replace("{\n", ".maxnreg 64\n{\n"));
        assert_eq!(parse(&capped).unwrap().problems, []);
        let again = with_register_cap(&capped, &parse(&capped).unwrap(), 80);
        assert!(again.contains(".maxnreg 80") && !again.contains(".maxnreg 64"), "{again}");
        assert_eq!(with_budgets(TEXT, kernel, &[200, 40]), TEXT.replace("232", "200"));
        assert_eq!(with_budgets(TEXT, kernel, &[232, 24]), TEXT.replace(" 40", " 24"));
        assert_eq!(with_budgets(TEXT, kernel, &[]), TEXT);
    }
}
