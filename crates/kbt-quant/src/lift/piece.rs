//! From a component of a block's graph to a program of the language, each class of alike values one computation.

use super::index::{self, Levels, Members, Misfit};
use super::lifted::Lifted;
use super::masks::Mask;
use super::scalar::{At, Id, Kind, Leaf, Node, Scalar};
use super::sharing::{Sharing, lanes, layout, own_values};
use crate::cost::Compiled;
use crate::lang::{Input, Op, Program, Range, Shape};
use std::collections::{BTreeSet, HashMap};

/// Operations of a program: as many as its text may have.
const MOST: usize = 500;

/// Whether a node stands for an instruction.
pub(super) fn is_work(node: &Node) -> bool {
    matches!(node.kind, Kind::Op(op) if !op.is_modifier()) || matches!(node.kind, Kind::Reduce(..))
}

struct Builder<'a> {
    graph: &'a Scalar,
    members: &'a Members,
    levels: &'a Levels,
    shapes: Vec<Shape>,
    program: Program,
    /// The program's node of each class and of each fixed node.
    nodes: HashMap<Key, usize>,
    leaves: Vec<Leaf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Key {
    Class(usize),
    Fixed(Id),
}

/// A component as a program; `lines` are its first and last.
pub(super) fn lift(
    graph: &Scalar,
    members: &Members,
    below7: &[Id],
    lines: (u32, u32),
) -> Result<Lifted, Misfit> {
    let levels = Levels::new(graph, members)?;
    index::check(graph, members, &levels)?;
    let (masks, partial_sums) = lanes(graph, members)?;
    let lanes = 1 << masks.len();
    let own = own_values(graph, members, &levels, &masks)?;
    let reduces = members.class_of.keys().any(|&id| matches!(graph.nodes[id].kind, Kind::Reduce(..)));
    let (shapes, layout) = layout(&levels, lanes, partial_sums, reduces);
    let mut inputs: Vec<Input> = Vec::new();
    let mut leaves: Vec<Leaf> = Vec::new();
    let mut keys: Vec<Key> = Vec::new();
    let mut sharing: Vec<Sharing> = Vec::new();
    let mut masks: Vec<Option<Mask>> = Vec::new();
    let mut names: BTreeSet<String> = BTreeSet::new();
    let mut input = |id: Id, key: Key, shape: Shape| {
        if let Kind::Leaf(leaf, _) = &graph.nodes[id].kind {
            let name = unused(&graph.nodes[id].register, &mut names);
            inputs.push(Input { name, shape, range: Range::FINITE });
            leaves.push(leaf.clone());
            let known = match key {
                Key::Class(class) => members.classes[&class].iter().find_map(|id| own.get(id)).copied(),
                Key::Fixed(_) => None,
            };
            masks.push(match key {
                Key::Class(class) => {
                    members.classes[&class].iter().filter_map(|&id| graph.nodes[id].mask).reduce(Mask::lower)
                }
                Key::Fixed(id) => graph.nodes[id].mask,
            });
            sharing.push(known.unwrap_or(Sharing::Same));
            keys.push(key);
        }
    };
    for (class, nodes) in &members.classes {
        input(nodes[0], Key::Class(*class), shapes[levels.of[class]]);
    }
    for id in fixed_below(graph, members) {
        input(id, Key::Fixed(id), Shape::Const);
    }
    let mut program = Program::new(layout, inputs);
    let mut nodes: HashMap<Key, usize> = HashMap::new();
    for (i, key) in keys.into_iter().enumerate() {
        let node = program.push(Op::Input(i as u32), Vec::new()).map_err(|m| (m, 0))?;
        program.names.push((program.inputs[i].name.clone(), node));
        nodes.insert(key, node);
    }
    let mut builder = Builder { graph, members, levels: &levels, shapes, program, nodes, leaves };
    builder.build()?;
    builder.outputs(&mut names)?;
    if builder.program.nodes.len() > MOST {
        return Err((format!("a program of more than {MOST} operations"), 0));
    }
    Ok(Lifted { sharing, masks, ..builder.finish(below7, lines) })
}

/// Everything fixed that the members are computed from.
fn fixed_below(graph: &Scalar, members: &Members) -> BTreeSet<Id> {
    let mut open: Vec<Id> = members.class_of.keys().copied().collect();
    let mut found: BTreeSet<Id> = BTreeSet::new();
    while let Some(id) = open.pop() {
        let fixed = graph.nodes[id].args.iter().copied().filter(|&a| graph.nodes[a].is_fixed());
        open.extend(fixed.filter(|&a| found.insert(a)));
    }
    found
}

/// A name of a register that program text can have and nothing else in the program has.
fn unused(register: &str, names: &mut BTreeSet<String>) -> String {
    let plain: String = register.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    let plain =
        if plain.starts_with(|c: char| c.is_ascii_alphabetic()) { plain } else { format!("v{plain}") };
    let taken = |name: &String, names: &BTreeSet<String>| names.contains(name) || Op::is_name(name);
    let mut name = plain.clone();
    let mut next = 1;
    while taken(&name, names) {
        next += 1;
        name = format!("{plain}_{next}");
    }
    names.insert(name.clone());
    name
}

impl Builder<'_> {
    fn key(&self, id: Id) -> Key {
        self.members.class_of.get(&id).map_or(Key::Fixed(id), |c| Key::Class(*c))
    }

    fn shape(&self, class: usize) -> Shape {
        self.shapes[self.levels.of[&class]]
    }

    fn operand(&mut self, id: Id) -> Result<usize, Misfit> {
        let key = self.key(id);
        if let Some(&node) = self.nodes.get(&key) {
            return Ok(node);
        }
        // What follows from constants and parameters alone is written where it is first needed.
        let fixed = &self.graph.nodes[id];
        let node = match fixed.kind {
            Kind::Number(bits) => {
                self.push(Op::Num(f64::from(f32::from_bits(bits)).to_bits()), Vec::new(), id)?
            }
            Kind::Op(op) if fixed.is_fixed() => {
                let args: Result<Vec<usize>, Misfit> = fixed.args.iter().map(|&a| self.operand(a)).collect();
                self.push(op, args?, id)?
            }
            Kind::Reduce(op, _) if fixed.is_fixed() => {
                let mut total: Option<usize> = None;
                for &a in &fixed.args {
                    let term = self.operand(a)?;
                    total = Some(match total {
                        None => term,
                        Some(sum) => self.push(op, vec![sum, term], id)?,
                    });
                }
                total.ok_or_else(|| ("a reduction of nothing".to_owned(), id))?
            }
            _ => return Err(("a value used before it is there".to_owned(), id)),
        };
        self.nodes.insert(key, node);
        Ok(node)
    }

    fn push(&mut self, op: Op, args: Vec<usize>, id: Id) -> Result<usize, Misfit> {
        self.program.push(op, args).map_err(|message| (message, id))
    }

    fn build(&mut self) -> Result<(), Misfit> {
        // By the first member: operands come first in the graph, so in the classes too.
        let mut order: Vec<(Id, usize)> =
            self.members.classes.iter().map(|(c, nodes)| (nodes[0], *c)).collect();
        order.sort_unstable();
        for (id, class) in order {
            let node = match &self.graph.nodes[id].kind {
                Kind::Leaf(..) | Kind::Number(_) => continue,
                Kind::Op(op) => {
                    let args: Result<Vec<usize>, Misfit> =
                        self.graph.nodes[id].args.iter().map(|&a| self.operand(a)).collect();
                    self.push(*op, args?, id)?
                }
                Kind::Shuffle(_) => return Err(("another lane's value outside a reduction".to_owned(), id)),
                Kind::Reduce(op, _) => self.reduction(*op, id, class)?,
            };
            let (is, expected) = (self.program.shapes[node], self.shape(class));
            if is != expected && !(is == Shape::Lane && expected == Shape::Group) {
                return Err((format!("{is} where {expected} was expected"), id));
            }
            self.nodes.insert(Key::Class(class), node);
        }
        Ok(())
    }

    fn reduction(&mut self, op: Op, id: Id, class: usize) -> Result<usize, Misfit> {
        let Kind::Reduce(_, hops) = &self.graph.nodes[id].kind else { return Err((String::new(), id)) };
        let over_lanes = !hops.is_empty();
        let to = self.shape(class);
        let level = self.levels.of[&class];
        let mut seen: BTreeSet<Key> = BTreeSet::new();
        let mut total: Option<usize> = None;
        let mut finest: Vec<(usize, Id)> = Vec::new();
        for &a in &self.graph.nodes[id].args {
            let node = self.operand(a)?;
            let finer = match self.key(a) {
                Key::Class(c) => self.levels.of[&c] < level,
                Key::Fixed(_) => false,
            };
            // Added up over lanes is what every lane has of it: elements are each in one lane, and nothing else is known
            // to be.
            let elements = finer && matches!(self.program.shapes[node], Shape::Elem | Shape::Lane);
            if op == Op::Add && over_lanes && !elements {
                let name = self.program.expression(node, false);
                return Err((
                    format!("a sum over lanes to which each lane adds {name}, which is no element"),
                    a,
                ));
            }
            let term = if finer {
                // All members of a class are taken at once.
                if !seen.insert(self.key(a)) {
                    continue;
                }
                finest.push((node, a));
                continue;
            } else {
                node
            };
            total = Some(match total {
                None => term,
                Some(sum) => self.push(op, vec![sum, term], id)?,
            });
        }
        // One butterfly takes what a lane has of all of them together.
        let mut taken: Vec<(usize, Id)> = Vec::new();
        for (node, a) in finest {
            let shape = self.program.shapes[node];
            match taken.iter_mut().find(|(have, _)| over_lanes && self.program.shapes[*have] == shape) {
                Some((have, _)) => *have = self.program.push(op, vec![*have, node]).map_err(|m| (m, a))?,
                None => taken.push((node, a)),
            }
        }
        for (node, a) in taken {
            let reduce = match (op, to) {
                (Op::Max, Shape::Group) => Op::GroupMax,
                (Op::Max, _) => Op::RowMax,
                (_, Shape::Group) if over_lanes => Op::GroupSum,
                (_, Shape::Group) if self.joins_a_row_sum(id) => Op::LaneSum,
                (_, Shape::Group) if self.program.layout.lanes == 1 => Op::GroupSum,
                (_, Shape::Group) => Op::LaneSum,
                _ => Op::RowSum,
            };
            let term = self.push(reduce, vec![node], a)?;
            total = Some(match total {
                None => term,
                Some(sum) => self.push(op, vec![sum, term], id)?,
            });
        }
        total.ok_or_else(|| ("a reduction of nothing".to_owned(), id))
    }

    /// Whether a group's sum goes, through products alone, into a sum over the row.
    fn joins_a_row_sum(&self, id: Id) -> bool {
        let users: Vec<Id> = self
            .members
            .class_of
            .keys()
            .copied()
            .filter(|u| self.graph.nodes[*u].args.contains(&id))
            .collect();
        !users.is_empty()
            && users.iter().all(|&u| match self.graph.nodes[u].kind {
                Kind::Reduce(Op::Add, _) => self.shape(self.members.class_of[&u]) == Shape::Row,
                Kind::Op(Op::Mul) => self.joins_a_row_sum(u),
                _ => false,
            })
    }

    fn outputs(&mut self, names: &mut BTreeSet<String>) -> Result<(), Misfit> {
        for (class, nodes) in &self.members.classes {
            let is_leaf = matches!(self.graph.nodes[nodes[0]].kind, Kind::Leaf(..));
            if is_leaf || !nodes.iter().any(|id| self.graph.outputs.contains(id)) {
                continue;
            }
            let node = self.nodes[&Key::Class(*class)];
            if self.program.shapes[node] == Shape::Lane {
                return Err(("a lane's partial sum of a group leaves the piece".to_owned(), nodes[0]));
            }
            let name = unused(&self.graph.nodes[nodes[0]].register, names);
            self.program.names.push((name.clone(), node));
            self.program.outputs.push((name, node));
        }
        if self.program.outputs.is_empty() {
            let id = self.members.class_of.keys().copied().next().unwrap_or(0);
            return Err(("nothing of it is used".to_owned(), id));
        }
        Ok(())
    }

    fn finish(self, below7: &[Id], lines: (u32, u32)) -> Lifted {
        let elements = self.levels.sizes.first().copied().unwrap_or(1) as f64;
        let mut places: Vec<Vec<At>> = vec![Vec::new(); self.program.nodes.len()];
        let mut compiled: HashMap<Compiled, f64> = HashMap::new();
        let (mut shuffles, mut instructions) = (0.0, 0);
        let mut split: BTreeSet<usize> = BTreeSet::new();
        let mut half_flushed: BTreeSet<usize> = BTreeSet::new();
        for (class, nodes) in &self.members.classes {
            let Some(&node) = self.nodes.get(&Key::Class(*class)) else { continue };
            for &id in nodes {
                let n = &self.graph.nodes[id];
                instructions += usize::from(is_work(n));
                if n.is(Op::Exp2) && n.price.len() > 1 {
                    split.insert(node);
                }
                if n.half_flushed {
                    half_flushed.insert(node);
                }
                if !matches!(n.kind, Kind::Leaf(..)) {
                    places[node].push(n.at);
                }
                for op in &n.price {
                    *compiled.entry(*op).or_default() += 1.0 / elements;
                }
                if let Kind::Reduce(_, hops) = &n.kind {
                    shuffles += hops.len() as f64 / elements;
                }
            }
        }
        let is_same = |key: &Key| match key {
            Key::Fixed(id) => self.graph.nodes[*id].invariant,
            Key::Class(class) => self.members.classes[class].iter().all(|&id| self.graph.nodes[id].invariant),
        };
        let given: BTreeSet<usize> =
            self.nodes.iter().filter(|(key, _)| is_same(key)).map(|(_, &node)| node).collect();
        let mut invariant: Vec<bool> = Vec::with_capacity(self.program.nodes.len());
        for (i, node) in self.program.nodes.iter().enumerate() {
            invariant.push(match node.op {
                Op::Num(_) => true,
                Op::Input(_) => given.contains(&i),
                _ => node.args.iter().all(|&a| invariant[a]),
            });
        }
        let of_numbers = self.graph.of_numbers();
        for (key, &node) in &self.nodes {
            match key {
                Key::Fixed(id) if !matches!(self.graph.nodes[*id].kind, Kind::Leaf(..) | Kind::Number(_)) => {
                    let n = &self.graph.nodes[*id];
                    places[node].push(n.at);
                    // Each thread computes from parameters what no host has computed for it.
                    if !of_numbers[*id] {
                        instructions += usize::from(is_work(n));
                        for op in &n.price {
                            *compiled.entry(*op).or_default() += 1.0 / elements;
                        }
                    }
                }
                _ => {}
            }
        }
        // A reduction that is combined with more stands for the operand it reduces too.
        for node in (0..places.len()).rev() {
            for &a in &self.program.nodes[node].args {
                if places[a].is_empty() && !matches!(self.program.nodes[a].op, Op::Num(_) | Op::Input(_)) {
                    places[a] = places[node].clone();
                }
            }
        }
        for list in &mut places {
            list.sort_unstable();
            list.dedup();
        }
        let below7: BTreeSet<usize> = below7
            .iter()
            .filter_map(|id| self.nodes.get(&Key::Class(*self.members.class_of.get(id)?)).copied())
            .collect();
        let mut compiled: Vec<(Compiled, f64)> = compiled.into_iter().collect();
        compiled.sort_unstable_by_key(|(op, _)| *op);
        Lifted {
            program: self.program.with_names_for_shared(),
            places,
            leaves: self.leaves,
            sharing: Vec::new(),
            masks: Vec::new(),
            compiled,
            shuffles,
            elements,
            below7: below7.into_iter().collect(),
            split: split.into_iter().collect(),
            half_flushed: half_flushed.into_iter().collect(),
            instructions,
            invariant,
            a_thread: None,
            first: lines.0,
            last: lines.1,
        }
    }
}
