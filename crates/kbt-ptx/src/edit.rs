//! Edits of PTX text that keep the rest byte for byte: register caps and budgets.

use crate::{Function, Module};

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

/// The register budgets that a module's kernels set (`setmaxnreg`), in order, with repetitions.
#[must_use]
pub fn register_budgets(module: &Module) -> Vec<u32> {
    let instructions = module.functions.iter().flat_map(Function::instructions);
    let budgets = instructions.filter(|i| i.base() == "setmaxnreg");
    budgets.filter_map(|i| i.operands.first()?.parse().ok()).collect()
}

/// The text with every `setmaxnreg` of `from` registers set to `to`.
#[must_use]
pub fn with_budget(text: &str, module: &Module, from: u32, to: u32) -> String {
    let instructions = module.functions.iter().flat_map(Function::instructions);
    let budgets = instructions.filter(|i| i.base() == "setmaxnreg" && i.operands == [from.to_string()]);
    let edits = budgets.filter_map(|i| {
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
        assert_eq!(register_budgets(&module), [232, 40]);
        let capped = with_register_cap(TEXT, &module, 64);
        assert_eq!(capped, TEXT.replace(".minnctapersm 2", "").replace("{\n", ".maxnreg 64\n{\n"));
        assert_eq!(parse(&capped).unwrap().problems, []);
        let again = with_register_cap(&capped, &parse(&capped).unwrap(), 80);
        assert!(again.contains(".maxnreg 80") && !again.contains(".maxnreg 64"), "{again}");
        assert_eq!(with_budget(TEXT, &module, 232, 200), TEXT.replace("232", "200"));
    }
}
