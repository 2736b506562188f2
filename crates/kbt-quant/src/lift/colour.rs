//! Which values of a block play the same part: the coarsest grouping in which alike values are computed alike from
//! alike values and used alike. Unrolled code over elements, groups and rows falls into one class for each.

use super::scalar::{Id, Kind, Scalar};
use crate::lang::Op;
use std::collections::{BTreeMap, BTreeSet, HashMap, hash_map::DefaultHasher};
use std::hash::{Hash, Hasher};

/// Rounds after which refinement has long settled; graphs are shallower than this.
const ROUNDS: usize = 200;

/// The class of each node of `live`; classes are numbered from 0 in the order of their first node.
pub(super) fn classes(graph: &Scalar, live: &[bool]) -> Vec<Option<usize>> {
    let mut ordered = BTreeSet::new();
    loop {
        let colour = coarsest(graph, live, &ordered);
        // Two values that an operation takes in either order may look alike: then their order tells them apart.
        let alike = |id: &Id| {
            let node = &graph.nodes[*id];
            let pair = matches!(node.kind, Kind::Op(Op::Add | Op::Mul | Op::Max | Op::Fma));
            pair && node.args[0] != node.args[1]
                && colour[node.args[0]] == colour[node.args[1]]
                && !graph.nodes[node.args[0]].is_fixed()
        };
        let before = ordered.len();
        ordered.extend((0..graph.nodes.len()).filter(|id| live[*id]).filter(alike));
        if ordered.len() == before {
            return numbered(&colour, live);
        }
    }
}

fn coarsest(graph: &Scalar, live: &[bool], ordered: &BTreeSet<Id>) -> Vec<u64> {
    let size = graph.nodes.len();
    let mut colour: Vec<u64> = (0..size).map(|id| first(graph, id)).collect();
    let mut count = distinct(&colour, live);
    let users = users(graph, live, ordered);
    for _ in 0..ROUNDS {
        let next: Vec<u64> = (0..size)
            .map(|id| {
                if graph.nodes[id].is_fixed() { colour[id] } else { refined(graph, id, &colour, &users[id]) }
            })
            .collect();
        let now = distinct(&next, live);
        if now == count {
            break;
        }
        (colour, count) = (next, now);
    }
    colour
}

fn numbered(colour: &[u64], live: &[bool]) -> Vec<Option<usize>> {
    let mut numbers: HashMap<u64, usize> = HashMap::new();
    (0..colour.len())
        .map(|id| {
            live[id].then(|| {
                let fresh = numbers.len();
                *numbers.entry(colour[id]).or_insert(fresh)
            })
        })
        .collect()
}

fn distinct(colour: &[u64], live: &[bool]) -> usize {
    colour.iter().zip(live).filter(|(_, live)| **live).map(|(c, _)| c).collect::<BTreeSet<_>>().len()
}

fn hash(parts: impl Hash) -> u64 {
    let mut hash = DefaultHasher::new();
    parts.hash(&mut hash);
    hash.finish()
}

fn first(graph: &Scalar, id: Id) -> u64 {
    let node = &graph.nodes[id];
    match &node.kind {
        // What is the same for the whole kernel is a single thing.
        _ if node.is_fixed() => hash(("fixed", id)),
        Kind::Leaf(leaf, _) => hash(("leaf", leaf, graph.outputs.contains(&id))),
        kind => hash((kind, graph.outputs.contains(&id))),
    }
}

/// For each node its users and in which place they have it; places that can be exchanged are one.
fn users(graph: &Scalar, live: &[bool], ordered: &BTreeSet<Id>) -> Vec<Vec<(Id, usize)>> {
    let mut users = vec![Vec::new(); graph.nodes.len()];
    for (id, node) in graph.nodes.iter().enumerate().filter(|(id, _)| live[*id]) {
        for (place, &a) in node.args.iter().enumerate() {
            let place = if ordered.contains(&id) { place } else { exchangeable(&node.kind, place) };
            users[a].push((id, place));
        }
    }
    users
}

const fn exchangeable(kind: &Kind, place: usize) -> usize {
    match kind {
        Kind::Op(Op::Add | Op::Mul | Op::Max) | Kind::Reduce(..) => 0,
        Kind::Op(Op::Fma) if place < 2 => 0,
        _ => place,
    }
}

fn refined(graph: &Scalar, id: Id, colour: &[u64], users: &[(Id, usize)]) -> u64 {
    let node = &graph.nodes[id];
    let mut args: Vec<(usize, u64)> = node
        .args
        .iter()
        .enumerate()
        .map(|(place, &a)| (exchangeable(&node.kind, place), colour[a]))
        .collect();
    args.sort_unstable();
    // What is used once is told from what is used by many, such as an element from its row's factor; exact counts
    // are not compared, as a part of an unrolled loop may use less of a value.
    let mut by: BTreeMap<(u64, usize), bool> = BTreeMap::new();
    for &(user, place) in users {
        by.entry((colour[user], place)).and_modify(|many| *many = true).or_insert(false);
    }
    hash((colour[id], args, by))
}
