//! Why a region has no code: what there is of labels and lines instead, the nearest first.

use super::files;
use super::scan::{Places, Region, has_source, wanted};
use kbt_ptx::{Function, Module, Statement};
use std::collections::{BTreeSet, HashMap};

/// Labels or lines that are named instead of those that are not there.
const NAMED: usize = 4;

/// A region that has no code in the functions selected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EmptyRegion(String);

impl Region {
    /// Whether the region has an instruction in one of the functions whose names `select` accepts.
    ///
    /// # Errors
    /// A label that is not there, labels in the wrong order, lines without code: with what there is instead.
    pub fn check(&self, module: &Module, select: &dyn Fn(&str) -> bool) -> Result<(), EmptyRegion> {
        let functions: Vec<&Function> = module.functions.iter().filter(|f| select(&f.name)).collect();
        match self {
            Self::Whole => Ok(()),
            Self::Labels { from, to } => labels(&functions, from, to),
            Self::Lines { file, from, to } => lines(&functions, &files(module), file.as_deref(), *from, *to),
        }
        .map_err(EmptyRegion)
    }
}

fn names(functions: &[&Function]) -> String {
    functions.iter().map(|f| f.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn labels(functions: &[&Function], from: &str, to: &str) -> Result<(), String> {
    let mut all: Vec<&str> = Vec::new();
    let mut wrong = None;
    for f in functions {
        let at = |label: &str| {
            f.body.iter().position(|s| matches!(s, Statement::Label { name, .. } if name == label))
        };
        all.extend(f.body.iter().filter_map(|s| match s {
            Statement::Label { name, .. } => Some(name.as_str()),
            _ => None,
        }));
        let end = if to.is_empty() { Some(f.body.len()) } else { at(to) };
        let (Some(start), Some(end)) = (at(from), end) else { continue };
        let code = |s: &&Statement| matches!(s, Statement::Instruction(_));
        if f.body.get(start..end).is_some_and(|part| part.iter().any(|s| code(&s))) {
            return Ok(());
        }
        wrong = Some(if end <= start {
            format!("{to} does not come after {from} in {}", f.name)
        } else {
            format!("no instruction stands between {from} and {to} in {}", f.name)
        });
    }
    if let Some(wrong) = wrong {
        return Err(format!("--lines {from}-{to}: {wrong}"));
    }
    if all.is_empty() {
        return Err(format!("--lines {from}-{to}: no label in {}", names(functions)));
    }
    let missing = [from, to].into_iter().find(|label| !label.is_empty() && !all.contains(label));
    let Some(missing) = missing else {
        return Err(format!("--lines {from}-{to}: no function has both labels"));
    };
    let count = all.len();
    all.sort_by_key(|label| far(label, missing));
    all.truncate(NAMED);
    Err(format!("no label {missing} in {}; the nearest of {count}: {}", names(functions), all.join(", ")))
}

/// How far a label is from another: what they do not begin with in common, then their last numbers.
fn far(label: &str, from: &str) -> (usize, u64) {
    let stem = |t: &str| t.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let number = |t: &str| t[stem(t)..].parse().unwrap_or(u64::MAX);
    let (a, b) = (&label[..stem(label)], &from[..stem(from)]);
    let common = a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
    (a.len().max(b.len()) - common, number(label).abs_diff(number(from)))
}

fn lines(
    functions: &[&Function],
    files: &HashMap<u32, String>,
    file: Option<&str>,
    from: u32,
    to: u32,
) -> Result<(), String> {
    let wanted = wanted(file, files);
    let (mut here, mut elsewhere) = (BTreeSet::new(), BTreeSet::new());
    let mut of_ptx = false;
    for f in functions {
        let has_source = has_source(f);
        of_ptx |= !has_source;
        let mut places = Places::default();
        for statement in &f.body {
            match statement {
                Statement::Declaration(d) if d.name == ".loc" => places.take(&d.text),
                Statement::Instruction(i) if !has_source => {
                    here.insert(i.line);
                }
                Statement::Instruction(_) => {
                    for (number, line) in places.all() {
                        if wanted.contains(&number) {
                            here.insert(line);
                        } else {
                            elsewhere.insert(number);
                        }
                    }
                }
                _ => {}
            }
        }
    }
    if here.range(from..=to).next().is_some() {
        return Ok(());
    }
    let path = |number: &u32| files.get(number).cloned().unwrap_or_else(|| format!("file {number}"));
    let region = file.map_or_else(|| format!("{from}-{to}"), |file| format!("{file}:{from}-{to}"));
    let head = format!("--lines {region}: no instruction of {}", names(functions));
    let others: Vec<String> = elsewhere.iter().map(path).collect();
    let of = match (of_ptx, wanted.iter().min()) {
        (true, _) => "the PTX".to_owned(),
        (_, Some(number)) => path(number),
        (_, None) => {
            return Err(format!("{head}; it has code of these files: {}", others.join(", ")));
        }
    };
    let (Some(first), Some(last)) = (here.first(), here.last()) else {
        return Err(format!("{head} is of {of}; it has code of these files: {}", others.join(", ")));
    };
    let below = here.range(..from).next_back().map(u32::to_string);
    let above = here.range(to.saturating_add(1)..).next().map(u32::to_string);
    let nearest: Vec<String> = below.into_iter().chain(above).collect();
    Err(format!(
        "{head} is there; lines {first} to {last} of {of} have code, the nearest {}",
        nearest.join(" and ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = ".version 9.0\n.target sm_90a\n.entry k()\n{\n.loc 1 10 1\nadd.f32 %f1, %f2, %f3;\n$L__BB0_1:\n.loc 2 7 1, \
                       function_name $f, inlined_at 1 20 3\nadd.f32 %f4, %f1, %f1;\n$L__BB0_2:\n$L__BB0_13:\nret;\n}\n.file 1 \
                       \"a/k.cu\"\n.file 2 \"a/h.cuh\"\n";

    fn check(ptx: &str, region: &str, expected: Option<&str>) {
        let module = kbt_ptx::parse(ptx).unwrap();
        let region: Region = region.parse().unwrap();
        let error = region.check(&module, &|_| true).err().map(|e| e.to_string());
        match (&error, expected) {
            (Some(error), Some(part)) => assert!(error.contains(part), "{region:?}: {error}"),
            _ => assert_eq!(error.as_deref(), expected, "{region:?}"),
        }
        // What is said to have code has some, and the other way round.
        let blocks: usize = super::super::lift(&module, &|_| true, &region).iter().map(|f| f.blocks).sum();
        assert!(expected.is_some() || blocks > 0, "{region:?}");
    }

    #[test]
    fn labels_that_are_not_there_are_told_with_the_nearest() {
        check(PTX, "$L__BB0_1-$L__BB0_2", None);
        check(PTX, "$L__BB0_13-", None);
        let nearest = "no label $L__BB0_3 in k; the nearest of 3: $L__BB0_2, $L__BB0_1, $L__BB0_13";
        check(PTX, "$L__BB0_1-$L__BB0_3", Some(nearest));
        check(PTX, "$L__BB0_3-$L__BB0_2", Some(nearest));
        check(PTX, "$L__BB0_2-$L__BB0_1", Some("$L__BB0_1 does not come after $L__BB0_2 in k"));
        check(PTX, "$L__BB0_2-$L__BB0_13", Some("no instruction stands between"));
        let plain = PTX.replace("$L__BB0_1:\n", "").replace("$L__BB0_2:\n", "").replace("$L__BB0_13:\n", "");
        check(&plain, "$L__BB0_1-$L__BB0_2", Some("no label in k"));
    }

    #[test]
    fn lines_without_code_are_told_with_the_nearest() {
        check(PTX, "10-10", None);
        check(PTX, "20-20", None);
        check(PTX, "h.cuh:1-9", None);
        check(PTX, "12-15", Some("lines 10 to 20 of a/k.cu have code, the nearest 10 and 20"));
        check(PTX, "40-50", Some("the nearest 20"));
        check(PTX, "h.cuh:1-2", Some("lines 7 to 7 of a/h.cuh have code, the nearest 7"));
        check(PTX, "x.cuh:1-2", Some("it has code of these files: a/k.cu, a/h.cuh"));
        let plain: String =
            PTX.lines().filter(|l| !l.starts_with(".loc")).map(|l| format!("{l}\n")).collect();
        check(&plain, "5-5", None);
        check(&plain, "400-500", Some("of the PTX have code, the nearest 10"));
    }
}
