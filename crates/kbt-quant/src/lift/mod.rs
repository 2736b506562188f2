//! From compiled PTX to programs of the language: step 4 on kernels that were never written for it.
//!
//! [`lift`] takes every straight, branch-free block of a function apart: instructions become a graph over single
//! values (`decode`), chains become reductions (`reduce`), alike values become one (`colour`), and what belongs
//! together becomes a program of elements, groups and rows (`component`, `piece`), proven by following every index (`index`).
//! What cannot be said in the language is refused with the instruction named; its result is an input of what follows.
//! Ranges of inputs are assumed and said to be (`facts`). Where there might be something to save is in `patterns`;
//! whether there is, the search says.

mod bound;
#[cfg(test)]
mod choice_tests;
mod colour;
mod component;
mod contract;
mod decode;
mod facts;
mod index;
#[cfg(test)]
mod lane_tests;
mod lanes;
mod lifted;
#[cfg(test)]
mod loop_tests;
pub(crate) mod loops;
#[cfg(test)]
mod mask_tests;
mod masks;
mod parameters;
mod patterns;
mod piece;
#[cfg(test)]
mod price_tests;
mod ranges;
mod reduce;
mod region;
mod scalar;
mod scan;
mod sharing;
mod subnormals;
#[cfg(test)]
mod tests;
mod value;

pub use patterns::{Match, Pattern, patterns};
pub use region::EmptyRegion;
pub use scan::{NoRegion, Region};

use crate::cost::Compiled;
use crate::lang::{Op, Program};
use kbt_ptx::{Function, Module};
use lifted::Lifted;
use loops::Loop;
use scalar::{At, Kind, Scalar};
use std::collections::{BTreeMap, HashMap};

/// A place of an instruction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line of the PTX.
    pub ptx_line: u32,
    /// The source file and line, innermost, where the PTX says.
    pub source: Option<(String, u32)>,
}

/// A piece of straight arithmetic as a program.
#[derive(Debug, Clone)]
pub struct Piece {
    /// What it computes; names are the registers of the first values of each kind.
    pub program: Program,
    /// First and last PTX line of each copy: unrolled loops and roles repeat pieces.
    pub lines: Vec<(u32, u32)>,
    /// The places of each node of the program, of every copy.
    pub places: Vec<Vec<Place>>,
    /// Where each input comes from.
    pub inputs: Vec<String>,
    /// What the code itself masks each input with: -inf, or a number near the least f32.
    pub masks: Vec<Option<f32>>,
    /// Instructions of arithmetic that one copy stands for.
    pub instructions: usize,
    /// What is compiled and how often an element has it; reductions one by one.
    pub compiled: Vec<(Compiled, f64)>,
    /// The functions that a rewrite of it would have without `.ftz`, as the rest is compiled.
    pub subnormals: Vec<Op>,
    /// Butterfly steps an element.
    pub shuffles: f64,
    /// Elements that a thread has: what follows from the kernel's parameters alone it computes once for them. Infinite where ptxas
    /// takes that out of a loop.
    pub elements: f64,
    /// What each iteration of the loop around it computes again, and could compute once before it.
    pub repeated: Vec<Match>,
    /// What is taken for granted of the inputs: guards of whatever is found.
    pub assumed: Vec<String>,
    /// What follows from the program itself.
    pub follows: Vec<String>,
    /// Where a rewrite has fewer bits than the code as it is: guards of whatever is found.
    pub narrowed: Vec<String>,
    /// Sums with their products, of which only one of both flushes subnormals: as one multiply-add both do, or neither.
    pub half_flushed: Vec<usize>,
    /// Operations on converted values behind the piece, which stay as they are, and how many.
    pub kept: BTreeMap<String, usize>,
}

/// Instructions that were not lifted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The opcode.
    pub instruction: String,
    /// Why.
    pub because: String,
    /// Where.
    pub places: Vec<Place>,
}

/// Arithmetic that is no program of elements, groups and rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unlifted {
    /// First and last PTX line.
    pub lines: (u32, u32),
    /// Why.
    pub because: String,
    /// The instruction at which it shows.
    pub place: Place,
}

/// What was found in a function.
#[derive(Debug, Clone)]
pub struct LiftedFunction {
    /// Its name.
    pub name: String,
    /// Its line in the PTX.
    pub line: u32,
    /// Blocks looked at.
    pub blocks: usize,
    /// Pieces, in order.
    pub pieces: Vec<Piece>,
    /// Arithmetic that is no program.
    pub unlifted: Vec<Unlifted>,
    /// Instructions that were refused.
    pub refused: Vec<Refused>,
    /// What of the function the reader did not understand, a missing end among it.
    pub unread: Vec<kbt_ptx::Problem>,
}

/// The functions whose names `select` accepts, each with what could be lifted from the region.
#[must_use]
pub fn lift(module: &Module, select: &dyn Fn(&str) -> bool, region: &Region) -> Vec<LiftedFunction> {
    let files = files(module);
    let one = |f: &Function| {
        let unread = module.problems_in(f).cloned().collect();
        LiftedFunction { unread, ..function(f, region, &files) }
    };
    module.functions.iter().filter(|f| select(&f.name)).map(one).collect()
}

/// The files that `.file` names, by number.
fn files(module: &Module) -> HashMap<u32, String> {
    let of = |text: &str| {
        let (number, rest) = text.split_once(' ')?;
        let path = rest.split('"').nth(1)?;
        Some((number.parse().ok()?, path.to_owned()))
    };
    module.declarations.iter().filter(|d| d.name == ".file").filter_map(|d| of(&d.text)).collect()
}

fn place(at: At, files: &HashMap<u32, String>) -> Place {
    let source = at
        .source
        .map(|(file, line)| (files.get(&file).cloned().unwrap_or_else(|| format!("file {file}")), line));
    Place { ptx_line: at.line, source }
}

fn function(f: &Function, region: &Region, files: &HashMap<u32, String>) -> LiftedFunction {
    let registers = scan::Registers::new(f);
    let blocks = scan::blocks(f, region, files);
    let loops = loops::loops(f);
    let mut out = LiftedFunction {
        name: f.name.clone(),
        line: f.line,
        blocks: blocks.len(),
        pieces: Vec::new(),
        unlifted: Vec::new(),
        refused: Vec::new(),
        unread: Vec::new(),
    };
    let flushes = subnormals::flushes(f);
    let mut refused = decode::Refused::new();
    for block in &blocks {
        let around = block.instructions().next().and_then(|(_, at)| Loop::around(&loops, at.line));
        let (mut graph, not, below7) = decode::block(block, &registers, around);
        for (key, places) in not {
            refused.entry(key).or_default().extend(places);
        }
        contract::prices(&mut graph);
        if around.is_some_and(|l| !l.calls) {
            contract::free_what_leaves_the_loop(&mut graph);
        }
        let kept = cut_behind_conversions(&mut graph);
        let live = graph.live();
        let graph = prune(&graph, &live);
        let (flat, moved) = reduce::flatten(&graph.0);
        let (flat, shuffles) = cut_at_shuffles(&flat);
        if !shuffles.is_empty() {
            let key = (SHUFFLE.to_owned(), decode::Reason::Shuffle);
            refused.entry(key).or_default().extend(shuffles);
        }
        let at = |id: usize| graph.1.get(&id).map(|&id| moved[id]);
        let below7: Vec<usize> = below7.into_iter().filter_map(at).collect();
        let live = flat.live();
        let classes = colour::classes(&flat, &live);
        let mut first = true;
        for found in component::pieces(&flat, &live, &classes, &below7) {
            match found {
                Ok(lifted) => {
                    let kept = if std::mem::take(&mut first) { kept.clone() } else { BTreeMap::new() };
                    add(&mut out.pieces, lifted, kept, flushes, around, files);
                }
                Err(not) => out.unlifted.push(Unlifted {
                    lines: (not.first, not.last),
                    because: not.because,
                    place: place(not.at, files),
                }),
            }
        }
    }
    for ((instruction, reason), places) in refused {
        out.refused.push(Refused {
            instruction,
            because: reason.as_str().to_owned(),
            places: places.into_iter().map(|at| place(at, files)).collect(),
        });
    }
    out
}

/// Arithmetic on converted values alone (a code times its scale, packed again) belongs to whoever takes the codes, not
/// to the computation of them: the conversions become outputs. Returns what is left out.
fn cut_behind_conversions(graph: &mut Scalar) -> BTreeMap<String, usize> {
    let live = graph.live();
    let is_conversion = |id: usize| matches!(graph.nodes[id].kind, Kind::Op(Op::Cvt(_)));
    let mut behind = vec![false; graph.nodes.len()];
    for (id, node) in graph.nodes.iter().enumerate().filter(|(id, _)| live[*id]) {
        let varying = || node.args.iter().filter(|&&a| !graph.nodes[a].is_fixed());
        let converted = varying().all(|&a| behind[a] || is_conversion(a));
        behind[id] = matches!(node.kind, Kind::Op(_)) && varying().next().is_some() && converted;
    }
    // What anything else takes belongs to the computation after all.
    for id in (0..graph.nodes.len()).rev() {
        if behind[id] || !live[id] {
            continue;
        }
        let mut open = graph.nodes[id].args.clone();
        while let Some(a) = open.pop() {
            if std::mem::take(&mut behind[a]) {
                open.extend(&graph.nodes[a].args);
            }
        }
    }
    let mut kept: BTreeMap<String, usize> = BTreeMap::new();
    for id in (0..graph.nodes.len()).filter(|&id| behind[id]) {
        graph.outputs.remove(&id);
        let node = &graph.nodes[id];
        if let Kind::Op(op) = node.kind
            && !op.is_modifier()
        {
            *kept.entry(op.name().to_owned()).or_default() += 1;
        }
        let first: Vec<usize> =
            node.args.iter().copied().filter(|&a| !behind[a] && !graph.nodes[a].is_fixed()).collect();
        graph.outputs.extend(first);
    }
    kept
}

const SHUFFLE: &str = "shfl.sync.bfly.b32";

/// What is left of butterflies outside reductions: another lane's value is an input of what follows, and what it is of
/// leaves. Nodes stay in their places.
fn cut_at_shuffles(graph: &Scalar) -> (Scalar, Vec<At>) {
    let mut out = Scalar::default();
    let mut cut = Vec::new();
    let mut outputs = graph.outputs.clone();
    for (id, node) in graph.nodes.iter().enumerate() {
        if matches!(node.kind, Kind::Shuffle(_)) {
            cut.push(node.at);
            outputs.extend(&node.args);
            outputs.remove(&id);
            let leaf = out.leaf(scalar::Leaf::Result(SHUFFLE.to_owned()), node.at, &format!("lane{id}"));
            out.nodes[leaf].lanes = scalar::LANE;
        } else {
            out.copy(node, node.args.clone());
        }
    }
    out.outputs = outputs;
    (out, cut)
}

/// The live part of a graph, and where each old node is in it.
fn prune(graph: &Scalar, live: &[bool]) -> (Scalar, HashMap<usize, usize>) {
    let mut out = Scalar::default();
    let mut moved = HashMap::new();
    for (id, node) in graph.nodes.iter().enumerate().filter(|(id, _)| live[*id]) {
        let args = node.args.iter().map(|a| moved[a]).collect();
        let at = out.copy(node, args);
        moved.insert(id, at);
    }
    out.outputs = graph.outputs.iter().filter_map(|id| moved.get(id).copied()).collect();
    (out, moved)
}

/// The program without its names, to see whether two are the same.
fn anonymous(program: &Program) -> String {
    let mut p = program.clone();
    for (i, input) in p.inputs.iter_mut().enumerate() {
        input.name = format!("i{i}");
    }
    p.names.clear();
    for (i, (name, _)) in p.outputs.iter_mut().enumerate() {
        *name = format!("o{i}");
    }
    // Without names for what is shared the text could be as long as a tree of it.
    p.with_names_for_shared().to_string()
}

fn add(
    pieces: &mut Vec<Piece>,
    mut lifted: Lifted,
    kept: BTreeMap<String, usize>,
    flushes: bool,
    around: Option<&Loop>,
    files: &HashMap<u32, String>,
) {
    let mut stated = facts::state(&mut lifted);
    if let Some(because) = &lifted.a_thread {
        stated.follows.push(format!("an element is a thread: as elements, groups and rows it has {because}"));
    }
    // What ptxas takes out of a loop is done as good as never.
    let leaves = around.is_some_and(|l| !l.calls);
    let elements = if leaves { f64::INFINITY } else { lifted.elements };
    let repeated = around.map(|l| loops::patterns(&lifted.program, &lifted.invariant, l)).unwrap_or_default();
    let moved =
        around.filter(|_| leaves).and_then(|l| parameters::moved(&lifted.program, &lifted.invariant, l));
    stated.follows.extend(moved);
    if !leaves {
        stated.follows.extend(parameters::from_parameters(&lifted.program, elements));
    }
    let places: Vec<Vec<Place>> =
        lifted.places.iter().map(|list| list.iter().map(|at| place(*at, files)).collect()).collect();
    let text = anonymous(&lifted.program);
    let is_same =
        |p: &&mut Piece| p.repeated == repeated && p.elements == elements && anonymous(&p.program) == text;
    if let Some(same) = pieces.iter_mut().find(is_same) {
        same.lines.push((lifted.first, lifted.last));
        for (have, more) in same.places.iter_mut().zip(places) {
            have.extend(more);
        }
        for (name, count) in kept {
            *same.kept.entry(name).or_default() += count;
        }
        return;
    }
    let narrowed = facts::narrowed(&lifted.program, &lifted.split);
    let subnormals = subnormals::kept(&lifted.compiled, flushes);
    pieces.push(Piece {
        subnormals,
        narrowed,
        half_flushed: lifted.half_flushed,
        inputs: lifted
            .leaves
            .iter()
            .map(|leaf| match leaf {
                scalar::Leaf::Uniform => "a parameter of the kernel".to_owned(),
                scalar::Leaf::Load => "read from memory".to_owned(),
                scalar::Leaf::LiveIn => "from another block".to_owned(),
                scalar::Leaf::Result(opcode) => format!("result of {opcode}"),
            })
            .collect(),
        masks: lifted.masks.iter().map(|mask| mask.map(|m| m.value)).collect(),
        program: lifted.program,
        lines: vec![(lifted.first, lifted.last)],
        places,
        instructions: lifted.instructions,
        compiled: lifted.compiled,
        shuffles: lifted.shuffles,
        elements,
        repeated,
        assumed: stated.assumed,
        follows: stated.follows,
        kept,
    });
}
