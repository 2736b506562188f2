//! Which of a target's stated tensors its operator reads and which it writes.
//!
//! A target file lists element types by name. What `outputs:` names is written; else the names that an operator's
//! tensors usually have decide, and else their order: inputs first. Where that leaves two answers with different traffic,
//! nobody guesses.

use kbt_target::Target;

/// The tensors of an operator by the names that they usually have.
struct Usual {
    operator: &'static str,
    /// In the operator's order.
    inputs: &'static [&'static str],
    outputs: &'static [&'static str],
    /// The inputs that it cannot do without.
    least: usize,
    /// How many inputs the operator has; `None` where it takes any number of the operator's size.
    takes: Option<usize>,
}

const WRITTEN: &[&str] = &["y", "o", "out", "output", "c", "d"];

const USUAL: &[Usual] = &[
    Usual { operator: "gemm", inputs: &["a", "b"], outputs: WRITTEN, least: 2, takes: Some(2) },
    Usual { operator: "attention", inputs: &["q", "k", "v"], outputs: WRITTEN, least: 3, takes: Some(3) },
    Usual {
        operator: "convolution",
        inputs: &["x", "w"],
        outputs: &["y", "o", "out", "output"],
        least: 2,
        takes: Some(2),
    },
    Usual {
        operator: "normalization",
        inputs: &["x"],
        outputs: &["y", "o", "out", "output"],
        least: 1,
        takes: Some(2),
    },
    Usual { operator: "reduction", inputs: &["x"], outputs: WRITTEN, least: 1, takes: Some(1) },
    Usual { operator: "elementwise", inputs: &["x", "a", "b"], outputs: WRITTEN, least: 1, takes: None },
];

/// Written beside an output, a value a row: it is no measure of the output's traffic.
const BESIDE: &[&str] = &["lse", "mean", "rstd", "rms"];
/// Read by an elementwise operator, a value a row or one in all.
const SMALL: &[&str] = &["alpha", "beta", "scale", "bias", "gamma", "weight", "w"];

/// The element types of what is read and written, in the operator's order.
#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct Tensors<'a> {
    pub(super) inputs: Vec<&'a str>,
    pub(super) output: Option<&'a str>,
    /// Tensors of the operator's size that are read and written; 0 where the operator itself knows.
    pub(super) read: usize,
    pub(super) written: usize,
}

type Named<'a> = (&'a str, &'a str);

impl<'a> Tensors<'a> {
    /// What a target's `facts.dtypes` and `outputs:` say; the error says what would make it clear.
    pub(super) fn of(target: &'a Target) -> Result<Self, String> {
        let kind = target.facts.operator.as_deref().unwrap_or_default();
        let usual = USUAL.iter().find(|u| u.operator == kind);
        let stated: Vec<Named<'_>> = target.facts.dtypes.iter().collect();
        let is = |names: &[&str], name: &str| names.iter().any(|n| n.eq_ignore_ascii_case(name));
        let unclear = |what: &str| {
            let names: Vec<_> = stated.iter().map(|(n, _)| *n).collect();
            format!(
                "which of {} of facts.dtypes are written is not clear ({what}): name them under `outputs:`",
                names.join(", ")
            )
        };
        let listed = |name: &str| target.outputs.iter().any(|o| o.name == name);
        let alike = |of: &[Named<'_>]| of.windows(2).all(|w| w[0].1 == w[1].1);

        let (mut written, mut read): (Vec<Named<'_>>, Vec<Named<'_>>) =
            stated.iter().partition(|(name, _)| listed(name));
        // An output may state its element type where it is listed.
        let own = target.outputs.iter().filter(|o| target.facts.dtypes.get(&o.name).is_none());
        written.extend(own.filter_map(|o| Some((o.name.as_str(), o.dtype.as_deref()?))));
        if written.iter().all(|(name, _)| is(BESIDE, name)) {
            let by_name = |name: &str| usual.is_some_and(|u| is(u.outputs, name));
            (written, read) = stated.iter().partition(|(name, _)| by_name(name) || is(BESIDE, name));
            let main = |name: &str| !is(BESIDE, name);
            let hits: Vec<Named<'_>> = written.iter().copied().filter(|(n, _)| main(n)).collect();
            let inputs_known = read.iter().all(|(n, _)| usual.is_some_and(|u| is(u.inputs, n)));
            let last = stated.iter().rev().find(|(n, _)| main(n));
            if hits.is_empty() {
                if read.len() > usual.map_or(1, |u| u.least) {
                    let most = usual.and_then(|u| u.takes).unwrap_or(usize::MAX);
                    written.extend(read.split_off(most.min(read.len() - 1)));
                    let sized: Vec<_> = written.iter().copied().filter(|(n, _)| main(n)).collect();
                    if !alike(&sized) {
                        return Err(unclear("several come after the inputs, of different types"));
                    }
                }
            } else if !inputs_known && !alike(&stated) && last.is_some_and(|l| !hits.contains(l)) {
                return Err(unclear("the last of them is none that is usually written"));
            } else if !alike(&hits) {
                return Err(unclear("several may be, of different types"));
            }
        }
        written.retain(|(name, _)| !is(BESIDE, name));
        if usual.is_some_and(|u| u.takes.is_none()) && !alike(&written) {
            return Err(
                "the outputs of facts.dtypes are of different types: give facts.sheet, a fact sheet with \
                        operator.hbm_bytes"
                    .to_owned(),
            );
        }
        if let Some(usual) = usual {
            let place = |name: &str| usual.inputs.iter().position(|n| n.eq_ignore_ascii_case(name));
            // Only among those that have a place: the others keep theirs.
            if read.iter().filter(|(n, _)| place(n).is_some()).count() == usual.inputs.len() {
                read.sort_by_key(|(n, _)| place(n).unwrap_or(usize::MAX));
            }
            if usual.takes.is_none() && read.iter().any(|(n, _)| !is(SMALL, n)) {
                read.retain(|(n, _)| !is(SMALL, n));
            }
            read.truncate(usual.takes.unwrap_or(usize::MAX));
        }
        let counted = usual.is_some_and(|u| u.takes.is_none());
        let (n_read, n_written) = if counted { (read.len(), written.len()) } else { (0, 0) };
        // One word where all agree.
        let inputs: Vec<&str> = if alike(&read) {
            read.iter().take(1).map(|r| r.1).collect()
        } else {
            read.iter().map(|r| r.1).collect()
        };
        Ok(Self { inputs, output: written.first().map(|w| w.1), read: n_read, written: n_written })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn of(facts: &str, outputs: &str) -> Result<(Vec<String>, Option<String>, usize, usize), String> {
        let text =
            format!("schema: kbt.target/1\nname: k\nrun: {{command: [./k]}}\nfacts: {{{facts}}}\n{outputs}");
        let target = Target::from_yaml(&text, "k.yaml", Path::new("")).unwrap_or_else(|e| panic!("{e}"));
        let t = Tensors::of(&target)?;
        let inputs = t.inputs.iter().map(|d| (*d).to_owned()).collect();
        Ok((inputs, t.output.map(str::to_owned), t.read, t.written))
    }

    #[test]
    fn what_is_written_is_no_input_of_any_operator() {
        for (facts, outputs, inputs, output, counts) in [
            ("operator: gemm, dtypes: {a: bf16, b: bf16, c: f32}", "", "bf16", "f32", (0, 0)),
            ("operator: gemm, dtypes: {c: f32, b: fp8, a: bf16}", "", "bf16 fp8", "f32", (0, 0)),
            ("operator: gemm, dtypes: {lhs: bf16, rhs: bf16, res: f32}", "", "bf16", "f32", (0, 0)),
            ("operator: gemm, dtypes: {a: bf16, b: bf16}", "", "bf16", "", (0, 0)),
            (
                "operator: gemm, dtypes: {a: bf16, b: bf16, c: bf16, d: f32}",
                "outputs: [{name: d}]",
                "bf16",
                "f32",
                (0, 0),
            ),
            (
                "operator: gemm, dtypes: {a: bf16, b: bf16}",
                "outputs: [{name: r, dtype: f32}]",
                "bf16",
                "f32",
                (0, 0),
            ),
            ("operator: elementwise, dtypes: {x: f32, y: bf16}", "", "f32", "bf16", (1, 1)),
            (
                "operator: elementwise, dtypes: {x: f32, y: bf16}",
                "outputs: [{name: y}]",
                "f32",
                "bf16",
                (1, 1),
            ),
            ("operator: elementwise, dtypes: {src: f32, dst: bf16}", "", "f32", "bf16", (1, 1)),
            ("operator: elementwise, dtypes: {a: f32, b: f32, c: f32}", "", "f32", "f32", (2, 1)),
            ("operator: elementwise, dtypes: {p: f32, q: bf16, r: bf16}", "", "f32 bf16", "bf16", (2, 1)),
            ("operator: elementwise, dtypes: {x: bf16, bias: f32, y: bf16}", "", "bf16", "bf16", (1, 1)),
            ("operator: normalization, dtypes: {x: bf16, w: f32, y: bf16}", "", "bf16 f32", "bf16", (0, 0)),
            ("operator: normalization, dtypes: {x: f32, y: bf16, mean: f32}", "", "f32", "bf16", (0, 0)),
            ("operator: normalization, dtypes: {inp: f32, res: bf16}", "", "f32", "bf16", (0, 0)),
            ("operator: reduction, dtypes: {x: bf16, y: f32}", "", "bf16", "f32", (0, 0)),
            ("operator: reduction, dtypes: {in: bf16, total: f32}", "", "bf16", "f32", (0, 0)),
            (
                "operator: attention, dtypes: {q: bf16, k: bf16, v: fp8, o: bf16, lse: f32}",
                "",
                "bf16 bf16 fp8",
                "bf16",
                (0, 0),
            ),
            (
                "operator: attention, dtypes: {q: bf16, k: bf16, v: bf16, o: bf16, lse: f32}",
                "outputs: [{name: lse}]",
                "bf16",
                "bf16",
                (0, 0),
            ),
            (
                "operator: attention, dtypes: {v: fp8, q: bf16, k: bf16, o: f16}",
                "",
                "bf16 bf16 fp8",
                "f16",
                (0, 0),
            ),
        ] {
            let (found, out, read, written) = of(facts, outputs).unwrap_or_else(|e| panic!("{facts}: {e}"));
            assert_eq!((found.join(" ").as_str(), out.as_deref().unwrap_or("")), (inputs, output), "{facts}");
            assert_eq!((read, written), counts, "{facts}");
        }
    }

    #[test]
    fn where_two_answers_are_possible_none_is_given() {
        for facts in [
            "operator: gemm, dtypes: {a: bf16, b: bf16, c: bf16, d: f32}",
            "operator: elementwise, dtypes: {x: f32, y: f32, z: bf16}",
            "operator: attention, dtypes: {s: bf16, t: bf16, u: bf16, p: bf16, r: f32}",
        ] {
            let error = of(facts, "").unwrap_err();
            assert!(error.contains("name them under `outputs:`"), "{facts}: {error}");
        }
        let two =
            of("operator: elementwise, dtypes: {x: f32, y: f32, z: bf16}", "outputs: [{name: y}, {name: z}]");
        assert!(two.unwrap_err().contains("operator.hbm_bytes"));
        assert!(
            of("operator: elementwise, dtypes: {x: f32, y: f32, z: bf16}", "outputs: [{name: z}]").is_ok()
        );
    }
}
