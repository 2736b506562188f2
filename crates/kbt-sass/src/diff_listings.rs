//! Two listings, function by function.

use crate::diff::{CAVEAT, DiffKind, FunctionDiff, diff};
use crate::{Function, Listing, metrics::provenance};
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};

/// The differences between two listings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiffOutcome {
    /// Always `kbt.sass.diff/1`.
    pub schema: String,
    /// Functions that both have.
    pub functions: Vec<FunctionDiff>,
    /// Functions that only the first has.
    pub only_in_a: Vec<String>,
    /// Functions that only the second has.
    pub only_in_b: Vec<String>,
    /// How the first listing is known.
    pub a: Provenance,
    /// How the second listing is known; it covers the counts.
    pub provenance: Provenance,
}

/// Compares the functions of two listings that `selected` takes, by name; where each listing has one such
/// function, those two, whatever their names.
#[must_use]
pub fn diff_listings(a: &Listing, b: &Listing, selected: impl Fn(&str) -> bool) -> DiffOutcome {
    let pick = |l: &'_ Listing| -> Vec<usize> {
        (0..l.functions.len()).filter(|i| selected(&l.functions[*i].name)).collect()
    };
    let (left, right) = (pick(a), pick(b));
    let single = left.len() == 1 && right.len() == 1;
    let mut used = vec![false; b.functions.len()];
    let (mut functions, mut only_in_a) = (Vec::new(), Vec::new());
    for old in left.iter().map(|i| &a.functions[*i]) {
        // A name can repeat across the members of a fatbin: the target tells them apart.
        let same = |f: &Function| single || (f.name == old.name && f.arch == old.arch);
        match right.iter().find(|i| !used[**i] && same(&b.functions[**i])) {
            Some(i) => {
                used[*i] = true;
                functions.push(diff(old, &b.functions[*i]));
            }
            None => only_in_a.push(old.name.clone()),
        }
    }
    let rest = right.into_iter().filter(|i| !used[*i]);
    DiffOutcome {
        schema: "kbt.sass.diff/1".to_owned(),
        functions,
        only_in_a,
        only_in_b: rest.map(|i| b.functions[i].name.clone()).collect(),
        a: provenance(a),
        provenance: provenance(b),
    }
}

/// Lines of an alignment that people are shown.
const SHOWN: usize = 60;

impl DiffOutcome {
    /// Whether every function is in both and the same.
    #[must_use]
    pub fn is_identical(&self) -> bool {
        let same = self.functions.iter().all(|f| f.kind == DiffKind::Identical);
        same && self.only_in_a.is_empty() && self.only_in_b.is_empty()
    }

    /// The differences as text.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut out = String::new();
        for f in &self.functions {
            let by = if f.by_encoding { "bytes" } else { "text; no hex columns" };
            let name = if f.a == f.b { f.a.clone() } else { format!("{} -> {}", f.a, f.b) };
            out += &format!("{name}: {} (by {by})\n", f.kind.phrase());
            if f.kind == DiffKind::Identical {
                continue;
            }
            out += &format!("  instructions {} -> {}", f.a_instructions, f.b_instructions);
            if f.control_changes > 0 {
                out += &format!(", control fields of {} changed", f.control_changes);
            }
            if f.a_spills != f.b_spills {
                out += &format!(", spill accesses {} -> {}", f.a_spills, f.b_spills);
            }
            out.push('\n');
            for (sign, map) in [("+", &f.added), ("-", &f.removed)] {
                let list: Vec<_> = map.iter().map(|(opcode, n)| format!("{sign}{n} {opcode}")).collect();
                if !list.is_empty() {
                    out += &format!("  {}\n", list.join("  "));
                }
            }
            for line in f.alignment.iter().take(SHOWN) {
                out += &format!("  {} {}\n", line.mark, line.text);
            }
            if f.alignment.len() > SHOWN {
                out += &format!("  and {} more lines (--format json has all)\n", f.alignment.len() - SHOWN);
            }
        }
        for (which, names) in [("first", &self.only_in_a), ("second", &self.only_in_b)] {
            for name in names {
                out += &format!("{name}: only in the {which}\n");
            }
        }
        if !self.is_identical() {
            out += &format!("{CAVEAT}\n");
        }
        out
    }
}
