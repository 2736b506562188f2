//! Which lanes share a piece's rows and groups, from its reductions over lanes, and what they do not share.

use super::index::{Levels, Members, Misfit};
use super::scalar::{Id, Kind, Scalar};
use crate::lang::{Layout, Op, Shape};
use std::collections::{BTreeSet, HashMap};

/// The lanes that share a row, from the masks of all reductions over lanes.
pub(super) fn lanes(graph: &Scalar, members: &Members) -> Result<(BTreeSet<u32>, bool), Misfit> {
    let mut all: BTreeSet<u32> = BTreeSet::new();
    let mut partial_sums = false;
    let reductions = || {
        members.class_of.keys().filter_map(|&id| match &graph.nodes[id].kind {
            Kind::Reduce(op, hops) => Some((id, *op, hops)),
            _ => None,
        })
    };
    for (_, _, hops) in reductions() {
        all.extend(hops);
    }
    for (id, op, hops) in reductions() {
        if op == Op::Max && *hops != all {
            return Err(("a maximum over some of the lanes only".to_owned(), id));
        }
        if op == Op::Add && !hops.is_empty() && *hops != all {
            return Err(("a sum over some of the lanes only".to_owned(), id));
        }
        partial_sums |= op == Op::Add && hops.is_empty() && !all.is_empty();
    }
    Ok((all, partial_sums))
}

/// What lanes have of a value of a group or row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    /// The same, as far as PTX shows.
    Same,
    /// Each its own, and none takes another's.
    Own,
    /// Each its own, of which only the greatest over the lanes is taken.
    Greatest,
}

/// The values of a group or row of which PTX shows that each lane has its own. A reduction over lanes that took what is
/// computed from one would not be of one group or row; a maximum that takes the value itself takes the lanes' greatest.
pub(super) fn own_values(
    graph: &Scalar,
    members: &Members,
    levels: &Levels,
    masks: &BTreeSet<u32>,
) -> Result<HashMap<Id, Sharing>, Misfit> {
    let over = masks.iter().fold(0, |all, mask| all | mask);
    let over_lanes = |id: Id| matches!(&graph.nodes[id].kind, Kind::Reduce(_, hops) if !hops.is_empty());
    let own = |id: &Id| {
        let node = &graph.nodes[*id];
        let coarse = members.class_of.get(id).is_some_and(|c| levels.of[c] > 0);
        matches!(node.kind, Kind::Leaf(..)) && coarse && u32::from(node.lanes) & over != 0
    };
    let mut ids: Vec<Id> = members.class_of.keys().copied().collect();
    ids.sort_unstable();
    let mut sharing: HashMap<Id, Sharing> = HashMap::new();
    for &leaf in ids.iter().filter(|id| own(id)) {
        let mut users = ids.iter().filter(|id| graph.nodes[**id].args.contains(&leaf));
        let joined =
            users.all(|&id| over_lanes(id) && matches!(graph.nodes[id].kind, Kind::Reduce(Op::Max, _)));
        sharing.insert(leaf, if joined { Sharing::Greatest } else { Sharing::Own });
    }
    let mut from: HashMap<Id, Id> =
        sharing.iter().filter(|(_, s)| **s == Sharing::Own).map(|(&id, _)| (id, id)).collect();
    for id in ids {
        let Some(leaf) = graph.nodes[id].args.iter().find_map(|a| from.get(a)).copied() else { continue };
        if over_lanes(id) {
            let name = &graph.nodes[leaf].register;
            return Err((
                format!(
                    "{name} depends on the thread, so it is no value of a group or row; a reduction over lanes takes it"
                ),
                id,
            ));
        }
        from.insert(id, leaf);
    }
    Ok(sharing)
}

/// What shapes the levels are, and the layout.
pub(super) fn layout(levels: &Levels, lanes: u32, partial_sums: bool, reduces: bool) -> (Vec<Shape>, Layout) {
    let each = |i: usize| (levels.sizes[0] / levels.sizes[i]) as u32 * lanes;
    match levels.sizes.len() {
        0 | 1 => (vec![Shape::Elem], Layout { group: lanes, lanes, row: lanes }),
        // Sums that are added over lanes later exist for rows only.
        2 => {
            let coarse = if reduces && !partial_sums { Shape::Group } else { Shape::Row };
            (vec![Shape::Elem, coarse], Layout { group: each(1), lanes, row: each(1) })
        }
        _ => (vec![Shape::Elem, Shape::Group, Shape::Row], Layout { group: each(1), lanes, row: each(2) }),
    }
}
