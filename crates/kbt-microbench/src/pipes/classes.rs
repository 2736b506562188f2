//! Which instructions have one bottleneck, and what is to be measured next to know.
//!
//! Everything is computed anew from what was measured so far, so a run on a device and a replay of its file take
//! the same decisions. A class has a *representative*: an instruction that uses the class's resource and, as far
//! as was seen, no other one to the full.

use super::mixes::{Mixes, Solo};
use super::pair::{Alone, Point, Range, Relation, STEP, relation, usage};
use std::collections::{BTreeMap, BTreeSet};

/// A mix to measure: two places in the list of solos, and how long the first's share is of the second's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Request {
    /// The two.
    pub of: [usize; 2],
    /// Time of the first over time of the second, each as if alone.
    pub share: f64,
}

/// The ratios, in the order in which they are asked for. Away from 1 first: where both of two separate pipes are
/// full all the time, warps that wait for one of them leave the other idle, and a mix is slower than either.
const SHARES: [f64; 3] = [0.6, 1.0 / 0.6, 1.0];

/// An instruction and a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Member,
    Outside,
    /// This mix is needed to know.
    Ask(usize),
    /// No mix of the two can tell.
    Unknown,
}

/// The measurements by pair.
pub(crate) struct View {
    pub alone: Vec<Alone>,
    points: BTreeMap<(usize, usize), Vec<Point>>,
    refused: BTreeSet<(usize, usize)>,
    measured: usize,
}

/// The classes that the measurements show.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Classes {
    /// One representative a class.
    pub representatives: Vec<usize>,
    /// The classes (places among the representatives) whose bottleneck is an instruction's own.
    pub of: Vec<Vec<usize>>,
    /// Instructions that are full alone with several that are no kin of each other.
    pub several: BTreeSet<usize>,
    /// Mixes that are needed before more can be placed: an instruction and one of a class.
    pub pending: Vec<[usize; 2]>,
}

impl View {
    pub(crate) fn new(mixes: &Mixes) -> Self {
        let alone = mixes.solos.iter().map(alone).collect();
        let mut view = Self { alone, points: BTreeMap::new(), refused: BTreeSet::new(), measured: 0 };
        for mix in &mixes.mixes {
            let (Some(i), Some(j)) = (mixes.index(&mix.of[0]), mixes.index(&mix.of[1])) else { continue };
            let counts = mix.counts.map(f64::from);
            let counts = if i < j { counts } else { [counts[1], counts[0]] };
            view.points.entry((i.min(j), i.max(j))).or_default().push(Point {
                counts,
                cycles: mix.measured_cycles,
                ports: mix.register_port_cycles.unwrap_or_default(),
            });
            view.measured += 1;
        }
        for refused in &mixes.refused {
            let pair = refused.what.split_once(" + ").map(|(a, b)| (mixes.index(a), mixes.index(b)));
            if let Some((Some(i), Some(j))) = pair {
                view.refused.insert((i.min(j), i.max(j)));
            }
        }
        view
    }

    /// The points of a pair, the counts in the order of the arguments.
    pub(crate) fn points(&self, i: usize, j: usize) -> Vec<Point> {
        let mut points = self.points.get(&(i.min(j), i.max(j))).cloned().unwrap_or_default();
        if i > j {
            points.iter_mut().for_each(|p| p.counts.reverse());
        }
        points
    }

    pub(crate) fn relation(&self, i: usize, j: usize) -> Relation {
        relation(self.alone[i], self.alone[j], &self.points(i, j))
    }

    /// What `i` uses of the bottleneck of `j`.
    pub(crate) fn usage(&self, i: usize, j: usize) -> Range {
        usage(self.alone[i], self.alone[j], &self.points(i, j))
    }

    /// Whether a pair can still be measured for the first time.
    fn is_open(&self, i: usize, j: usize) -> bool {
        let key = (i.min(j), i.max(j));
        !self.points.contains_key(&key) && !self.refused.contains(&key)
    }

    /// Instructions that do not fill the issue or register ports by themselves.
    pub(crate) fn visible(&self) -> impl Iterator<Item = usize> {
        (0..self.alone.len()).filter(|&i| !self.alone[i].fills_known())
    }

    /// Instructions with two neighbours that are no neighbours of each other: they use two resources to the full. Only
    /// clear cases count: one that is taken for a neighbour and is none would make all of a class look like this.
    fn several(&self) -> BTreeSet<usize> {
        let mut full: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for &(i, j) in self.points.keys() {
            let by_ports = self.alone[i].fills_ports() || self.alone[j].fills_ports();
            if !by_ports && self.relation(i, j) == (Relation::Full { clear: true }) {
                full.entry(i).or_default().push(j);
                full.entry(j).or_default().push(i);
            }
        }
        let torn = |list: &[usize]| {
            let pairs =
                list.iter().enumerate().flat_map(|(k, &a)| list[k + 1..].iter().map(move |&b| (a, b)));
            pairs.into_iter().any(|(a, b)| self.relation(a, b).is_not_full())
        };
        full.iter().filter(|(_, list)| torn(list)).map(|(&i, _)| i).collect()
    }

    pub(crate) fn classes(&self) -> Classes {
        let several = self.several();
        let mut classes = Classes { of: vec![Vec::new(); self.alone.len()], ..Classes::default() };
        for i in self.visible().filter(|i| !several.contains(i)) {
            let found: Vec<Place> =
                (0..classes.representatives.len()).map(|r| self.place(i, r, &classes)).collect();
            let own: Vec<usize> = (0..found.len()).filter(|&r| found[r] == Place::Member).collect();
            let asked = found.iter().filter_map(|p| if let Place::Ask(j) = p { Some([i, *j]) } else { None });
            if !own.is_empty() {
                classes.of[i] = own;
            } else if found.iter().any(|p| matches!(p, Place::Ask(_))) {
                classes.pending.extend(asked);
            } else if classes.pending.is_empty() && found.iter().all(|p| *p == Place::Outside) {
                classes.of[i] = vec![found.len()];
                classes.representatives.push(i);
            }
        }
        self.place_late(&several, &mut classes);
        for &i in &several {
            let known = &classes.representatives;
            classes.of[i] = (0..known.len()).filter(|&r| self.relation(i, known[r]).is_full()).collect();
        }
        classes.several = several;
        classes
    }

    /// Those that a class without a measurable mix kept from being placed, against the classes that were found after
    /// their turn.
    fn place_late(&self, several: &BTreeSet<usize>, classes: &mut Classes) {
        let open = self.visible().filter(|i| !several.contains(i) && classes.of[*i].is_empty());
        for i in open.collect::<Vec<_>>() {
            let later = (0..classes.representatives.len()).filter(|&r| classes.representatives[r] > i);
            let found: Vec<(usize, Place)> = later.map(|r| (r, self.place(i, r, classes))).collect();
            let own = found.iter().filter(|(_, p)| *p == Place::Member).map(|(r, _)| *r);
            classes.of[i] = own.collect();
            if classes.of[i].is_empty() {
                let asked = found
                    .iter()
                    .filter_map(|(_, p)| if let Place::Ask(j) = p { Some([i, *j]) } else { None });
                classes.pending.extend(asked);
            }
        }
    }

    /// Where an instruction stands to a class: told by the representative, or where their mix could not be
    /// measured by another member.
    fn place(&self, i: usize, class: usize, classes: &Classes) -> Place {
        let kin = (0..self.alone.len()).filter(|&m| m != i && classes.of[m] == [class]);
        for j in std::iter::once(classes.representatives[class]).chain(kin) {
            match self.relation(i, j) {
                Relation::Full { .. } => return Place::Member,
                Relation::Apart | Relation::Between => return Place::Outside,
                Relation::Untested if self.is_open(i, j) => return Place::Ask(j),
                Relation::Untested | Relation::Hidden => {}
            }
        }
        Place::Unknown
    }

    /// What to measure next, at most what is left of `budget` mixes; empty when nothing more would be learnt.
    pub(crate) fn next(&self, budget: usize) -> Vec<Request> {
        let classes = self.classes();
        let mut wanted = self.placing(&classes);
        if wanted.is_empty() {
            wanted = self.kin(&classes);
        }
        if wanted.is_empty() {
            wanted = self.partial(&classes);
        }
        if wanted.is_empty() {
            wanted = self.secondary(&classes);
        }
        if wanted.is_empty() {
            wanted = self.rest();
        }
        let mut seen = BTreeSet::new();
        wanted.retain(|r| seen.insert((r.of[0].min(r.of[1]), r.of[0].max(r.of[1]))));
        wanted.truncate(budget.saturating_sub(self.measured));
        wanted
    }

    fn first(&self, i: usize, r: usize) -> Option<Request> {
        (i != r && self.is_open(i, r)).then_some(Request { of: [i, r], share: SHARES[0] })
    }

    /// Those that have no class yet against the representatives.
    fn placing(&self, classes: &Classes) -> Vec<Request> {
        classes.pending.iter().filter_map(|&[i, j]| self.first(i, j)).collect()
    }

    /// Each member of a class against the one before: a representative with two bottlenecks is found so.
    fn kin(&self, classes: &Classes) -> Vec<Request> {
        let mut wanted = Vec::new();
        for r in 0..classes.representatives.len() {
            let members: Vec<usize> = (0..self.alone.len())
                .filter(|&i| classes.of[i].contains(&r) && !classes.several.contains(&i))
                .collect();
            wanted.extend(members.windows(2).filter_map(|w| self.first(w[1], w[0])));
        }
        wanted
    }

    /// Everything against the representatives of other classes: uses beside the bottleneck.
    fn secondary(&self, classes: &Classes) -> Vec<Request> {
        // Those that fill the issue or register ports first: nothing else is known of them.
        let mut order: Vec<usize> = (0..self.alone.len()).collect();
        order.sort_by_key(|&i| !self.alone[i].fills_known());
        let pairs = order.iter().flat_map(|&i| classes.representatives.iter().map(move |&r| (i, r)));
        pairs.filter_map(|(i, r)| self.first(i, r)).collect()
    }

    /// Whatever is left: a resource that no instruction has to itself shows between two members of other classes.
    fn rest(&self) -> Vec<Request> {
        let visible: Vec<usize> = self.visible().collect();
        let pairs = visible.iter().enumerate().flat_map(|(k, &i)| visible[..k].iter().map(move |&j| (i, j)));
        pairs.filter_map(|(i, j)| self.first(i, j)).collect()
    }

    /// Pairs whose times add up although no class has both.
    pub(crate) fn unplaced(&self, classes: &Classes) -> Vec<(usize, usize)> {
        let apart = |i: usize, j: usize| !classes.of[i].iter().any(|r| classes.of[j].contains(r));
        self.points.keys().copied().filter(|&(i, j)| self.relation(i, j).is_full() && apart(i, j)).collect()
    }

    /// Other ratios for pairs that are neither one nor apart.
    fn partial(&self, classes: &Classes) -> Vec<Request> {
        let mut wanted = Vec::new();
        for (&(i, j), points) in &self.points {
            // A use beside the bottleneck matters where one of the two stands for a resource.
            let (i, j) = if classes.representatives.contains(&j) { (i, j) } else { (j, i) };
            let stands = classes.representatives.contains(&j);
            let unclear = match self.relation(i, j) {
                Relation::Full { clear } => !clear,
                Relation::Between => stands,
                _ => false,
            };
            let may = points.len() < SHARES.len() && !self.refused.contains(&(i.min(j), i.max(j)));
            if unclear && may {
                wanted.push(Request { of: [i, j], share: SHARES[points.len()] });
            }
        }
        wanted
    }
}

fn alone(solo: &Solo) -> Alone {
    let ports = solo.register_port_cycles.unwrap_or_default();
    let rarest = solo.opcodes.values().copied().filter(|n| *n > 0.0).fold(1.0, f64::min);
    Alone { cycles: solo.measured_cycles, issued: solo.issued(), ports, step: STEP * rarest }
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::{Device, explore};
    use super::*;

    /// Explores a device of (name, usages of three hidden resources).
    fn classes(rows: &[(&str, [f64; 3])]) -> (Classes, usize) {
        let mut device = Device::new(3);
        for (name, usage) in rows {
            device.add(name, usage);
        }
        let mixes = explore(&mut device, 300);
        (View::new(&mixes).classes(), mixes.mixes.len())
    }

    #[test]
    fn two_pipes_are_two_classes() {
        let (c, n) = classes(&[
            ("a", [2.0, 0.0, 0.0]),
            ("b", [0.0, 8.0, 0.0]),
            ("c", [4.0, 0.0, 0.0]),
            ("d", [0.0, 8.0, 0.0]),
        ]);
        assert_eq!((c.representatives.as_slice(), c.of.concat()), (&[0, 1][..], vec![0, 1, 0, 1]));
        // All of the six pairs and no ratio twice.
        assert_eq!(n, 6);
    }

    #[test]
    fn a_representative_with_two_bottlenecks_is_found_out_and_replaced() {
        let (c, _) = classes(&[
            ("both", [2.0, 2.0, 0.0]),
            ("x", [2.0, 0.0, 0.0]),
            ("y", [0.0, 2.0, 0.0]),
            ("z", [0.0, 0.0, 4.0]),
        ]);
        assert_eq!(c.several, [0].into());
        assert_eq!(c.representatives, [1, 2, 3]);
        assert_eq!(c.of, [vec![0, 1], vec![0], vec![1], vec![2]]);
    }

    #[test]
    fn where_a_representative_cannot_be_mixed_another_member_speaks_for_its_class() {
        let mut device = Device::new(2);
        device.add("a", &[2.0, 0.0]).add("b", &[2.0, 0.0]).add("c", &[2.0, 0.0]).add("d", &[0.0, 2.0]);
        device.refused = vec![(0, 2), (0, 3)];
        let c = View::new(&explore(&mut device, 300)).classes();
        assert_eq!((c.representatives.as_slice(), c.of.concat()), (&[0, 3][..], vec![0, 0, 0, 1]));
        // With nobody to ask it is left open.
        device.refused = vec![(0, 2), (0, 3), (1, 2), (1, 3), (2, 3)];
        let c = View::new(&explore(&mut device, 300)).classes();
        assert_eq!(c.of, [vec![0], vec![0], vec![], vec![]]);
    }

    #[test]
    fn what_a_class_cannot_be_mixed_with_is_placed_by_a_class_that_is_found_after_it() {
        let mut device = Device::new(3);
        device.add("a", &[2.0, 0.0, 0.0]).add("b", &[0.0, 2.0, 0.0]);
        device.add("redux", &[2.0, 1.0, 8.0]).add("c", &[0.0, 0.0, 8.0]).add("d", &[0.0, 0.0, 8.0]);
        device.refused = vec![(1, 2)];
        let c = View::new(&explore(&mut device, 300)).classes();
        assert_eq!((c.representatives.as_slice(), &c.of[2]), (&[0, 1, 3][..], &vec![2]));
    }

    #[test]
    fn the_budget_is_kept() {
        let rows: Vec<(String, [f64; 3])> = (0..30)
            .map(|i| {
                (format!("i{i}"), [2.0, 4.0, 8.0].map(|u| if i % 3 == u as usize / 3 { u } else { 0.0 }))
            })
            .collect();
        let mut device = Device::new(3);
        for (name, usage) in &rows {
            device.add(name, usage);
        }
        assert_eq!(explore(&mut device, 50).mixes.len(), 50);
    }
}
