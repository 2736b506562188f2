//! Whether two sheets are of one kernel: what a run found of one says nothing of another.

use crate::facts::FactSheet;
use serde::Serialize;
use serde_yaml::{Mapping, Value};

impl FactSheet {
    /// What both sheets state and state differently of name, operator, shape and number formats, each as
    /// `key: other's, not this one's`. What one of them leaves out cannot tell them apart.
    #[must_use]
    pub fn differs_from(&self, other: &Self) -> Vec<String> {
        let mut found = Vec::new();
        let mut compare = |path: &str, mine: &Value, theirs: &Value| {
            if !mine.is_null() && !theirs.is_null() && !alike(mine, theirs) {
                found.push(format!("{path}: {}, not {}", shown(theirs), shown(mine)));
            }
        };
        let kind = |s: &Self| value(&s.operator.as_ref().and_then(|o| o.kind));
        compare("operator.kind", &kind(self), &kind(other));
        for (section, mine, theirs) in [
            ("shape", mapping(&self.shape), mapping(&other.shape)),
            ("dtypes", mapping(&self.dtypes), mapping(&other.dtypes)),
        ] {
            for (key, mine) in mine.iter().filter(|(k, _)| k.as_str() != Some("provenance")) {
                let path = format!("{section}.{}", key.as_str().unwrap_or_default());
                compare(&path, mine, theirs.get(key).unwrap_or(&Value::Null));
            }
        }
        // The name tells variants of one operator apart, such as the mode of its second product.
        compare("name", &value(&self.name), &value(&other.name));
        found
    }
}

fn value(of: &impl Serialize) -> Value {
    serde_yaml::to_value(of).unwrap_or_default()
}

fn mapping(section: &impl Serialize) -> Mapping {
    match value(section) {
        Value::Mapping(found) => found,
        _ => Mapping::new(),
    }
}

/// One format of the inputs stands for all of them.
fn alike(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Sequence(a), Value::Sequence(b)) if a.len() == 1 || b.len() == 1 => {
            a.iter().all(|x| b.iter().all(|y| x == y))
        }
        _ => a == b,
    }
}

fn shown(value: &Value) -> String {
    serde_yaml::to_string(value).unwrap_or_default().trim().replace("\n- ", " ").replace("- ", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet(text: &str) -> FactSheet {
        FactSheet::from_yaml(text, "f.yaml").unwrap()
    }

    #[test]
    fn sheets_differ_by_what_both_state_and_by_nothing_that_one_leaves_out() {
        let mine = "name: attention, P·V in fp4\noperator: {kind: attention}\nshape: {seqlen: 4096, head_dim: 128}\n\
                    dtypes: {inputs: [bf16, bf16, nvfp4], output: bf16, mma_pv: nvfp4}\n";
        for (from, to, told) in [
            ("4096", "8192", "shape.seqlen: 8192, not 4096"),
            ("mma_pv: nvfp4", "mma_pv: fp8_e4m3", "dtypes.mma_pv: fp8_e4m3, not nvfp4"),
            (
                "[bf16, bf16, nvfp4]",
                "[bf16, bf16, bf16]",
                "dtypes.inputs: bf16 bf16 bf16, not bf16 bf16 nvfp4",
            ),
            ("output: bf16", "output: fp32", "dtypes.output: fp32, not bf16"),
            ("in fp4", "in fp8", "name: attention, P·V in fp8, not attention, P·V in fp4"),
            ("kind: attention", "kind: counts", "operator.kind: counts, not attention"),
        ] {
            assert_eq!(sheet(mine).differs_from(&sheet(&mine.replace(from, to))), [told]);
        }
        for same in [mine, "name: attention, P·V in fp4\n", "shape: {seqlen: 4096, causal: true}\n"] {
            assert_eq!(sheet(mine).differs_from(&sheet(same)), Vec::<String>::new());
        }
        let one = |inputs: &str| sheet(&format!("dtypes: {{inputs: [{inputs}]}}\n"));
        assert!(one("bf16").differs_from(&one("bf16, bf16")).is_empty());
        assert_eq!(one("bf16").differs_from(&one("bf16, fp16")).len(), 1);
    }
}
