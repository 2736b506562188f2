//! Which values of a block belong together, and each such part as a program: over elements, groups and rows, else over
//! threads.

use super::index::Members;
use super::lifted::{Lifted, Unlifted};
use super::piece::{is_work, lift};
use super::scalar::{Id, Scalar};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Operations of a program over threads, in which nothing is taken together.
const MOST_A_THREAD: usize = 100;

/// The pieces of a flattened block graph with its classes.
pub(super) fn pieces(
    graph: &Scalar,
    live: &[bool],
    classes: &[Option<usize>],
    below7: &[Id],
) -> Vec<Result<Lifted, Unlifted>> {
    let mut out = Vec::new();
    for members in working(graph, live, classes) {
        let whole = one(graph, &members, below7);
        match whole {
            Ok(lifted) => out.push(Ok(lifted)),
            Err(not) => match a_thread(graph, &members, below7, &not) {
                Some(lifted) => out.extend(lifted.into_iter().map(Ok)),
                None => out.push(Err(not)),
            },
        }
    }
    out
}

fn one(graph: &Scalar, members: &Members, below7: &[Id]) -> Result<Lifted, Unlifted> {
    let lines: BTreeSet<u32> = members.class_of.keys().map(|&id| graph.nodes[id].at.line).collect();
    let (first, last) = (lines.first().copied().unwrap_or(0), lines.last().copied().unwrap_or(0));
    lift(graph, members, below7, (first, last)).map_err(|(because, node)| {
        let at = graph.nodes[node].at;
        Unlifted { because, at, first, last }
    })
}

/// The same where values are no elements, groups and rows: each value for itself, and the thread the element. None
/// where that is no program either, or one out of proportion.
fn a_thread(graph: &Scalar, members: &Members, below7: &[Id], not: &Unlifted) -> Option<Vec<Lifted>> {
    let work = members.class_of.keys().filter(|&&id| is_work(&graph.nodes[id])).count();
    if work > MOST_A_THREAD {
        return None;
    }
    let mut live = vec![false; graph.nodes.len()];
    let mut own = vec![None; graph.nodes.len()];
    for &id in members.class_of.keys() {
        (live[id], own[id]) = (true, Some(id));
    }
    let parts: Result<Vec<Lifted>, Unlifted> =
        working(graph, &live, &own).iter().map(|part| one(graph, part, below7)).collect();
    let mut parts = parts.ok()?;
    for part in &mut parts {
        part.a_thread = Some(not.because.clone());
    }
    Some(parts)
}

/// The components that compute something.
fn working(graph: &Scalar, live: &[bool], classes: &[Option<usize>]) -> Vec<Members> {
    let works = |members: &Members| members.class_of.keys().any(|&id| is_work(&graph.nodes[id]));
    components(graph, live, classes).into_iter().filter(works).collect()
}

/// Classes that are linked by operands, without the constants and parameters that everything may use.
fn components(graph: &Scalar, live: &[bool], classes: &[Option<usize>]) -> Vec<Members> {
    let mut root: BTreeMap<usize, usize> = BTreeMap::new();
    fn find(root: &BTreeMap<usize, usize>, mut c: usize) -> usize {
        while root[&c] != c {
            c = root[&c];
        }
        c
    }
    let used = |id: Id| if live[id] && !graph.nodes[id].is_fixed() { classes[id] } else { None };
    for class in (0..graph.nodes.len()).filter_map(used) {
        root.insert(class, class);
    }
    for id in 0..graph.nodes.len() {
        let Some(class) = used(id) else { continue };
        for other in graph.nodes[id].args.iter().filter_map(|&a| used(a)) {
            let (a, b) = (find(&root, class), find(&root, other));
            root.insert(a.max(b), a.min(b));
        }
    }
    let mut out: BTreeMap<usize, Members> = BTreeMap::new();
    for id in 0..graph.nodes.len() {
        let Some(class) = used(id) else { continue };
        let piece = out
            .entry(find(&root, class))
            .or_insert_with(|| Members { classes: BTreeMap::new(), class_of: HashMap::new() });
        piece.classes.entry(class).or_default().push(id);
        piece.class_of.insert(id, class);
    }
    out.into_values().collect()
}
