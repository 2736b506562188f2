//! Which element, group and row each value of a piece belongs to, worked out from who uses whom, and a proof that it
//! is consistent: no operation mixes two elements, and every reduction takes exactly the elements of its own group.

use super::scalar::{Id, Kind, Scalar};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A piece: nodes of one block that belong together, by class, the classes in program order.
pub(super) struct Members {
    /// Nodes of each class.
    pub(super) classes: BTreeMap<usize, Vec<Id>>,
    /// The class of each node; fixed nodes have none.
    pub(super) class_of: HashMap<Id, usize>,
}

/// How often values exist, the most often first: elements, groups, rows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Levels {
    /// Values a thread has at each level.
    pub(super) sizes: Vec<usize>,
    /// The level of each class.
    pub(super) of: BTreeMap<usize, usize>,
}

/// Why a piece is no program of elements, groups and rows: what, and the node it was seen at.
pub(super) type Misfit = (String, Id);

impl Levels {
    pub(super) fn new(graph: &Scalar, members: &Members) -> Result<Self, Misfit> {
        let size = |class: &usize| members.classes[class].len();
        if let Some(of) = one_element_a_lane(graph, members) {
            let sizes = vec![size(members.classes.keys().next().unwrap_or(&0)); 2];
            return Ok(Self { sizes, of });
        }
        let sizes: BTreeSet<usize> = members.classes.keys().map(size).collect();
        let sizes: Vec<usize> = sizes.into_iter().rev().collect();
        let odd = sizes.windows(2).position(|w| w[0] % w[1] != 0);
        if sizes.len() > 3 || odd.is_some() {
            let n = sizes.get(odd.map_or(3, |i| i + 1));
            let of_that_size = members.classes.values().find(|m| Some(&m.len()) == n);
            return Err((
                format!("values exist {sizes:?} times, which are no elements, groups and rows"),
                of_that_size.map_or(0, |m| m[0]),
            ));
        }
        let of = members.classes.keys().map(|c| (*c, sizes.iter().position(|n| *n == size(c)).unwrap_or(0)));
        Ok(Self { of: of.collect(), sizes })
    }
}

/// Where a lane holds one element of a row, a reduction goes over lanes alone: as many results as elements. Levels
/// then follow from reductions instead of from counts. None where that is not so.
fn one_element_a_lane(graph: &Scalar, members: &Members) -> Option<BTreeMap<usize, usize>> {
    let sizes: BTreeSet<usize> = members.classes.values().map(Vec::len).collect();
    let over_lanes = |id: Id| matches!(&graph.nodes[id].kind, Kind::Reduce(_, hops) if !hops.is_empty());
    if sizes.len() != 1 || !members.class_of.keys().any(|&id| over_lanes(id)) {
        return None;
    }
    let mut level: BTreeMap<usize, usize> = BTreeMap::new();
    for (class, nodes) in &members.classes {
        let node = &graph.nodes[nodes[0]];
        let below = node.args.iter().filter_map(|a| level.get(members.class_of.get(a)?).copied()).min();
        let own = if over_lanes(nodes[0]) { 1 } else { below.unwrap_or(0) };
        level.insert(*class, own);
    }
    Some(level)
}

/// The indices of a piece.
pub(super) struct Indices<'a> {
    graph: &'a Scalar,
    members: &'a Members,
    levels: &'a Levels,
    union: HashMap<Id, Id>,
    /// The index at a coarser level that an index belongs to.
    parents: HashMap<(Id, usize), Id>,
}

/// Checks a piece; `Ok` means that the classes are a program.
pub(super) fn check(graph: &Scalar, members: &Members, levels: &Levels) -> Result<(), Misfit> {
    let union = members.class_of.keys().map(|&id| (id, id)).collect();
    let mut this = Indices { graph, members, levels, union, parents: HashMap::new() };
    while this.link() {}
    this.pair_up();
    while this.link() {}
    this.proven()
}

impl Indices<'_> {
    fn find(&self, mut id: Id) -> Id {
        while self.union[&id] != id {
            id = self.union[&id];
        }
        id
    }

    fn join(&mut self, a: Id, b: Id) -> bool {
        let (a, b) = (self.find(a), self.find(b));
        if a == b {
            return false;
        }
        let (keep, gone) = (a.min(b), a.max(b));
        self.union.insert(gone, keep);
        for level in 0..self.levels.sizes.len() {
            if let Some(parent) = self.parents.remove(&(gone, level)) {
                self.belongs(keep, level, parent);
            }
        }
        true
    }

    /// States that an index belongs to another; says whether that was new.
    fn belongs(&mut self, index: Id, level: usize, parent: Id) -> bool {
        let index = self.find(index);
        match self.parents.get(&(index, level)).copied() {
            Some(known) => self.join(known, parent),
            None => {
                let parent = self.find(parent);
                self.parents.insert((index, level), parent);
                true
            }
        }
    }

    fn level(&self, id: Id) -> Option<usize> {
        self.levels.of.get(self.members.class_of.get(&id)?).copied()
    }

    /// One pass over all uses; says whether anything was new.
    fn link(&mut self) -> bool {
        let mut new = false;
        let graph = self.graph;
        let mut ids: Vec<Id> = self.members.class_of.keys().copied().collect();
        ids.sort_unstable();
        for &id in &ids {
            let Some(level) = self.level(id) else { continue };
            for &a in &graph.nodes[id].args {
                let Some(from) = self.level(a) else { continue };
                new |= match from.cmp(&level) {
                    std::cmp::Ordering::Equal => self.join(id, a),
                    std::cmp::Ordering::Greater => self.belongs(id, from, a),
                    std::cmp::Ordering::Less => self.belongs(a, level, id),
                };
            }
        }
        // What an element's group belongs to, the element belongs to.
        let known: Vec<((Id, usize), Id)> = self.parents.iter().map(|(k, v)| (*k, *v)).collect();
        for ((index, _), parent) in known {
            for above in 0..self.levels.sizes.len() {
                if let Some(&grand) = self.parents.get(&(self.find(parent), above)) {
                    new |= self.belongs(index, above, grand);
                }
            }
        }
        new
    }

    fn indices(&self, level: usize) -> BTreeMap<Id, Vec<Id>> {
        let mut out: BTreeMap<Id, Vec<Id>> = BTreeMap::new();
        let mut ids: Vec<Id> = self.members.class_of.keys().copied().collect();
        ids.sort_unstable();
        for id in ids.into_iter().filter(|id| self.level(*id) == Some(level)) {
            out.entry(self.find(id)).or_default().push(id);
        }
        out
    }

    fn parent_key(&self, index: Id) -> Vec<Option<Id>> {
        (0..self.levels.sizes.len()).map(|l| self.parents.get(&(index, l)).map(|p| self.find(*p))).collect()
    }

    /// Values of a level that never meet may be numbered alike, as long as they belong to the same group and row.
    fn pair_up(&mut self) {
        for level in (0..self.levels.sizes.len()).rev() {
            let mut open: Vec<(Vec<Option<Id>>, BTreeSet<usize>, Id)> = Vec::new();
            for (index, nodes) in self.indices(level) {
                let key = self.parent_key(index);
                let classes: BTreeSet<usize> = nodes.iter().map(|n| self.members.class_of[n]).collect();
                match open.iter_mut().find(|(k, c, _)| *k == key && c.is_disjoint(&classes)) {
                    Some((_, have, first)) => {
                        have.extend(classes);
                        let first = *first;
                        self.join(first, index);
                    }
                    None => open.push((key, classes, index)),
                }
            }
        }
    }

    fn proven(&self) -> Result<(), Misfit> {
        for (level, &size) in self.levels.sizes.iter().enumerate() {
            let indices = self.indices(level);
            for nodes in indices.values() {
                let classes: BTreeSet<usize> = nodes.iter().map(|n| self.members.class_of[n]).collect();
                if classes.len() != nodes.len() {
                    return Err((
                        "an operation takes values of two elements, groups or rows".to_owned(),
                        nodes[0],
                    ));
                }
            }
            if indices.len() > size {
                let nodes = indices.values().next_back().cloned().unwrap_or_default();
                return Err((
                    format!("{} values where {size} would be elements, groups or rows", indices.len()),
                    nodes.first().copied().unwrap_or(0),
                ));
            }
        }
        // Every reduction takes all that belongs to its own index, each once.
        for (&id, _) in self.members.class_of.iter().filter(|(id, _)| self.is_reduce(**id)) {
            let (Some(level), index) = (self.level(id), self.find(id)) else { continue };
            let mut taken: BTreeMap<usize, Vec<Id>> = BTreeMap::new();
            for &a in &self.graph.nodes[id].args {
                if self.level(a).is_some_and(|l| l < level) {
                    taken.entry(self.members.class_of[&a]).or_default().push(a);
                }
            }
            for (class, nodes) in taken {
                let all = &self.members.classes[&class];
                let own = |n: &Id| {
                    let at = self.find(*n);
                    self.parents.get(&(at, level)).is_some_and(|p| self.find(*p) == index)
                };
                let belonging: BTreeSet<Id> = all.iter().copied().filter(|n| own(n)).collect();
                let distinct: BTreeSet<Id> = nodes.iter().copied().collect();
                let each = self.members.classes[&class].len() / self.levels.sizes[level];
                if distinct != belonging || distinct.len() != nodes.len() || nodes.len() != each {
                    return Err(("a reduction over a part of a group's values".to_owned(), id));
                }
            }
        }
        Ok(())
    }

    fn is_reduce(&self, id: Id) -> bool {
        matches!(self.graph.nodes[id].kind, Kind::Reduce(..))
    }
}
