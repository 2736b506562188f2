//! A target's own facts as a fact sheet, so that the reader of fact sheets says what is wrong with them; each line of it
//! knows the node of the target file that it was made of.

use super::tensors::Tensors;
use super::trace::input_named;
use kbt_roofline::outcome::{Fact, Supply};
use kbt_roofline::{Dtype, FactSheet, SheetError, triage};
use kbt_target::{Target, TargetError};
use kbt_trace::Input;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as WordError, StrDeserializer};
use std::collections::BTreeMap;

/// Names that people give sizes, and what fact sheets call them.
const SIZES: &[(&str, &str)] = &[
    ("headdim", "head_dim"),
    ("hdim", "head_dim"),
    ("seqlen_q", "seqlen"),
    ("seqlen_k", "seqlen_kv"),
    ("heads_kv", "kv_heads"),
    ("n_elements", "elements"),
    ("cols", "columns"),
];

/// What is wrong with a target's facts, outputs or trace, before anything of it runs.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// In the target file.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// In the fact sheet that it names.
    #[error(transparent)]
    Sheet(#[from] SheetError),
}

/// Checks what the target file says for the steps: its facts, the fact sheet that it names, its element types and the
/// format of its trace. It runs nothing.
///
/// # Errors
/// The first thing that no step could read, with its file and line. What is merely missing is none: the step that needs
/// it says so.
pub fn check_facts(target: &Target) -> Result<(), FactsError> {
    let facts = &target.facts;
    if let Some(trace) = target.trace.as_ref().filter(|t| input_named(&t.format).is_none()) {
        let known = Input::ALL.map(Input::as_str).join(", ");
        let text = format!("trace format `{}` is not known; accepted: {known}", trace.format);
        return Err(target.error(&["trace", "format"], text).into());
    }
    for (tensor, dtype) in facts.dtypes.iter() {
        word_of(dtype).map_err(|e| target.error(&["facts", "dtypes", tensor], format!("`{tensor}`: {e}")))?;
    }
    for (n, output) in target.outputs.iter().enumerate() {
        if let Some(dtype) = &output.dtype {
            let path = ["outputs", &n.to_string(), "dtype"];
            word_of(dtype).map_err(|e| target.error(&path, format!("`{}`: {e}", output.name)))?;
        }
    }
    if facts.sheet.is_some() {
        named(target)?;
        return Ok(());
    }
    let mut known: BTreeMap<&str, &str> = BTreeMap::new();
    for name in facts.shapes.keys() {
        if let Some(other) = known.insert(sheet_s(name), name) {
            let text = format!("`{other}` and `{name}` are the same size; keep one");
            return Err(target.error(&["facts", "shapes", name], text).into());
        }
    }
    // Which tensors are written may be unclear without anything being wrong.
    let tensors = Tensors::of(target).unwrap_or_default();
    inline(target, &tensors, "facts")?;
    Ok(())
}

/// What the triage misses in facts that are right as far as they go: the keys to add; `None` where it misses nothing but
/// a time and a device.
///
/// # Errors
/// As [`check_facts`].
pub fn facts_lack(target: &Target) -> Result<Option<String>, FactsError> {
    let (sheet, own) = match named(target)? {
        Some(sheet) => (sheet, true),
        None => match Tensors::of(target) {
            Ok(tensors) => (inline(target, &tensors, "facts")?, false),
            Err(unclear) => return Ok(Some(unclear)),
        },
    };
    let outcome = triage(&sheet, None, &[])?;
    let word = |supply: &Supply| match supply.fact {
        Fact::Ceilings | Fact::Timing => None,
        _ if own => Some(supply.keys.clone()),
        Fact::Operator => Some("facts.operator".to_owned()),
        Fact::Shape => Some(supply.keys.replace("shape.", "facts.shapes: ")),
        Fact::Dtype => Some("facts.dtypes, the element type of each tensor".to_owned()),
        Fact::Dataflow => Some("facts.reuse, what is reused and where it stays meanwhile".to_owned()),
        _ => Some(supply.keys.clone()),
    };
    let lacking: Vec<String> = outcome.supply.iter().filter_map(word).collect();
    Ok((!lacking.is_empty()).then(|| lacking.join("; ")))
}

/// The fact sheet that the target file names; `None` where it names none.
pub(super) fn named(target: &Target) -> Result<Option<FactSheet>, FactsError> {
    let Some(sheet) = &target.facts.sheet else { return Ok(None) };
    let path = target.path(sheet);
    let origin = path.display().to_string();
    let text = std::fs::read_to_string(&path)
        .map_err(|e| target.error(&["facts", "sheet"], format!("the fact sheet {origin}: {e}")))?;
    Ok(Some(FactSheet::from_yaml(&text, &origin)?))
}

/// The inline facts as a sheet of that origin; an error names the line of the target file.
pub(super) fn inline(target: &Target, tensors: &Tensors<'_>, origin: &str) -> Result<FactSheet, TargetError> {
    let made = Made::of(target, tensors);
    FactSheet::from_yaml(&made.text, origin).map_err(|e| {
        let path =
            e.line.and_then(|l| made.paths.get(l - 1)).cloned().unwrap_or_else(|| vec!["facts".into()]);
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        target.error(&path, in_the_words_of_targets(&e.message))
    })
}

/// What fact sheets call a size.
fn sheet_s(name: &str) -> &str {
    SIZES.iter().find(|(n, _)| *n == name).map_or(name, |(_, known)| known)
}

fn word_of(dtype: &str) -> Result<Dtype, String> {
    let reader: StrDeserializer<'_, WordError> = dtype.into_deserializer();
    Dtype::deserialize(reader).map_err(|e| kbt_roofline::with_nearest(e.to_string()))
}

/// A message of the sheet's reader with the keys of target files.
fn in_the_words_of_targets(message: &str) -> String {
    let mut text = message.to_owned();
    for (sheet, target) in [
        ("operator.kind", "facts.operator"),
        ("operator.flop_per_element", "facts.flop_per_element"),
        ("operator.flop", "facts.flop"),
        ("operator.hbm_bytes", "facts.hbm_bytes"),
        ("shape", "facts.shapes"),
        ("timing", "facts.timing"),
        ("dtypes.inputs", "facts.dtypes"),
    ] {
        for (before, after) in [("`", "."), ("`", "`"), ("", ": "), ("", ".")] {
            let (from, to) = (format!("{before}{sheet}{after}"), format!("{before}{target}{after}"));
            text = match (before, text.strip_prefix(&from)) {
                ("", Some(rest)) => format!("{to}{rest}"),
                ("", None) => text,
                _ => text.replace(&from, &to),
            };
        }
    }
    // A section of a sheet has it, the target file has not.
    text.replace(", `provenance`", "")
}

/// A text whose lines know what they were made of.
#[derive(Default)]
struct Made {
    text: String,
    paths: Vec<Vec<String>>,
}

impl Made {
    fn line(&mut self, path: &[&str], line: impl AsRef<str>) {
        self.text += line.as_ref();
        self.text.push('\n');
        self.paths.push(path.iter().map(|p| (*p).to_owned()).collect());
    }

    fn of(target: &Target, tensors: &Tensors<'_>) -> Self {
        let facts = &target.facts;
        let quoted = |text: &str| serde_json::to_string(text).unwrap_or_default();
        let mut made = Self::default();
        made.line(&["name"], format!("name: {}", quoted(&target.name)));
        let counts = facts.flop.is_some() || facts.flop_per_element.is_some() || facts.hbm_bytes.is_some();
        if facts.formula.is_some() || facts.operator.is_some() || counts {
            made.line(&["facts"], "operator:");
            if let Some(kind) = &facts.operator {
                made.line(&["facts", "operator"], format!("  kind: {}", quoted(kind)));
            }
            if let Some(formula) = &facts.formula {
                made.line(&["facts", "formula"], format!("  formula: {}", quoted(formula)));
            }
            let counts = [
                ("flop_per_element", &facts.flop_per_element),
                ("flop", &facts.flop),
                ("hbm_bytes", &facts.hbm_bytes),
            ];
            for (name, count) in counts {
                if let Some(count) = count {
                    made.line(&["facts", name], format!("  {name}: {}", scalar(count.as_str())));
                }
            }
            for (name, count) in [("inputs", tensors.read), ("outputs", tensors.written)] {
                if count > 1 {
                    made.line(&["facts", "dtypes"], format!("  {name}: {count}"));
                }
            }
        }
        if let Some(reuse) = &facts.reuse {
            made.line(&["facts", "reuse"], "dataflow:");
            made.line(&["facts", "reuse"], format!("  reuse: {}", quoted(reuse)));
        }
        for (section, key, values) in
            [("shape", "shapes", &facts.shapes), ("timing", "timing", &facts.timing)]
        {
            if !values.is_empty() {
                made.line(&["facts", key], format!("{section}:"));
            }
            for (name, value) in values {
                let known = if key == "shapes" { sheet_s(name) } else { name };
                made.line(&["facts", key, name], format!("  {}: {}", quoted(known), scalar(value.as_str())));
            }
        }
        if !tensors.inputs.is_empty() || tensors.output.is_some() {
            made.line(&["facts", "dtypes"], "dtypes:");
        }
        if !tensors.inputs.is_empty() {
            let formats: Vec<String> = tensors.inputs.iter().map(|d| quoted(d)).collect();
            made.line(&["facts", "dtypes"], format!("  inputs: [{}]", formats.join(", ")));
        }
        if let Some(dtype) = tensors.output {
            made.line(&["facts", "dtypes"], format!("  output: {}", quoted(dtype)));
        }
        made
    }
}

/// A scalar as YAML reads it back: a number or a flag plain, anything else in quotes, so that no text of the target file
/// becomes structure of the sheet.
fn scalar(text: &str) -> String {
    let plain = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-._".contains(c));
    if plain { text.to_owned() } else { serde_json::to_string(text).unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const GOOD: &str = "schema: kbt.target/1\nname: k\nrun: {command: [./k]}\nfacts:\n  operator: elementwise\n  \
                        formula: elements = f32\n  reuse: none\n  shapes:\n    elements: 4096\n  dtypes:\n    x: f32\n    \
                        y: f32\n    lse: f32\n  timing: {method: cuda_events,\n    warmup_launches: 20}\n\
                        outputs:\n  - {name: y,\n     dtype: f32}\ntrace:\n  format: kbt\n  levels: {coarse: {}}\n";

    fn error(text: &str, folder: &Path) -> String {
        let target = Target::from_yaml(text, "k.yaml", folder).unwrap_or_else(|e| panic!("{e}"));
        check_facts(&target).map_or_else(|e| e.to_string(), |()| "accepted".to_owned())
    }

    #[test]
    fn a_value_that_no_step_reads_is_named_with_its_own_line_and_what_is_accepted() {
        assert_eq!(error(GOOD, Path::new("")), "accepted");
        for (from, to, line, words) in [
            (
                "    elements:",
                "    elemnts:",
                9,
                &["facts.shapes", "`elemnts`", "did you mean `elements`?"][..],
            ),
            (
                "formula: elements",
                "flop_per_element: -2\n  formula: elements",
                6,
                &["`facts.flop_per_element`", "0 or more"][..],
            ),
            (
                "formula: elements",
                "flop_per_element: many\n  formula: elements",
                6,
                &["facts.flop_per_element"],
            ),
            ("elements: 4096", "elements: 0", 9, &["`facts.shapes.elements` is 0; 1 or more"]),
            ("elements: 4096", "elements: -4", 9, &["facts.shapes.elements", "a whole number"]),
            ("elements: 4096", "elements: many words", 9, &["facts.shapes.elements", "a whole number"]),
            ("elements: 4096", "elements: 1\n    n_elements: 2", 10, &["the same size"]),
            (
                "operator: elementwise",
                "operator: elemntwise",
                5,
                &["facts.operator", "did you mean `elementwise`?"],
            ),
            ("operator: elementwise", "operator: stencil", 5, &["`stencil`", "`gemm`, `attention`"]),
            ("    y: f32", "    y: f33", 12, &["`y`", "`f33`", "`fp32`"]),
            // Neither read nor written by the operator, but a word all the same.
            ("    lse: f32", "    lse: f33", 13, &["`lse`", "`f33`"]),
            ("     dtype: f32", "     dtype: bf61", 18, &["`y`", "did you mean `bf16`?"]),
            (
                "method: cuda_events",
                "method: cuda_evnts",
                14,
                &["facts.timing", "did you mean `cuda_events`?"],
            ),
            ("    warmup_launches:", "    warm_up_launches:", 15, &["did you mean `warmup_launches`?"]),
            ("warmup_launches: 20", "warmup_launches: 2.5", 15, &["`facts.timing.warmup_launches` is 2.5"]),
            ("format: kbt", "format: ktb", 20, &["`ktb`", "kbt, "]),
        ] {
            let message = error(&GOOD.replacen(from, to, 1), Path::new(""));
            assert!(message.starts_with(&format!("k.yaml:{line}: ")), "{to}: {message}");
            for word in words {
                assert!(message.contains(word), "{to}: {message}\nshould contain {word}");
            }
            assert!(!message.contains("provenance"), "{message}");
        }
    }

    #[test]
    fn what_facts_lack_is_said_in_the_target_file_s_own_keys() {
        for (from, to, lacks) in [
            ("", "", None),
            ("  reuse: none\n", "", Some("facts.reuse")),
            ("  operator: elementwise\n", "", Some("facts.operator")),
            ("operator: elementwise", "operator: gemm", Some("facts.shapes: m, n, k, batch")),
            ("    y: f32\n    lse: f32\n", "    y: bf16\n    z: f32\n", Some("name them under `outputs:`")),
        ] {
            let text = GOOD.replacen(from, to, 1).replace("  - {name: y,\n     dtype: f32}", "  []");
            let text = text.replace("  []", "").replace("outputs:\n\n", "");
            let target = Target::from_yaml(&text, "k.yaml", Path::new("")).unwrap_or_else(|e| panic!("{e}"));
            let found = facts_lack(&target).unwrap_or_else(|e| panic!("{e}"));
            match lacks {
                None => assert_eq!(found, None),
                Some(word) => assert!(found.as_ref().is_some_and(|f| f.contains(word)), "{word}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_fact_sheet_is_read_before_anything_runs() {
        let folder = tempfile::tempdir().unwrap();
        let text = "schema: kbt.target/1\nname: k\nrun: {command: [./k]}\nfacts:\n  sheet: facts.yaml\n";
        let message = error(text, folder.path());
        assert!(
            message.starts_with("k.yaml:5: the fact sheet ") && message.contains("facts.yaml"),
            "{message}"
        );
        std::fs::write(folder.path().join("facts.yaml"), "operator:\n  kind: gmem\n").unwrap();
        let message = error(text, folder.path());
        assert!(message.contains("facts.yaml:2: ") && message.contains("`gemm`"), "{message}");
        std::fs::write(folder.path().join("facts.yaml"), "operator:\n  kind: gemm\n").unwrap();
        assert_eq!(error(text, folder.path()), "accepted");
    }
}
