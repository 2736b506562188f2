//! One PTX function as basic blocks over instructions whose registers are told apart by scope.

use kbt_ptx::{Function, Instruction, Statement};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A register of one function: an index into its table of names.
pub(crate) type Register = usize;

/// An instruction with its registers resolved.
#[derive(Debug)]
pub(crate) struct Op<'p> {
    pub(crate) insn: &'p Instruction,
    /// The block it is in.
    pub(crate) block: usize,
    /// The predicate it executes under, and whether that must be false.
    pub(crate) guard: Option<(Register, bool)>,
    /// The registers it writes, each with what the same name stood for before.
    pub(crate) targets: Vec<(Register, Register)>,
    /// The registers it reads, by the name the text uses.
    names: HashMap<&'p str, Register>,
}

impl Op<'_> {
    /// The register that a name stands for here.
    pub(crate) fn register(&self, name: &str) -> Option<Register> {
        self.names.get(name).copied()
    }
}

/// A basic block.
#[derive(Debug, Default)]
pub(crate) struct PtxBlock {
    /// Indices of its instructions.
    pub(crate) ops: std::ops::Range<usize>,
    pub(crate) successors: Vec<usize>,
    pub(crate) predecessors: Vec<usize>,
    /// Registers that several instructions write, with what they stand for at the block's end.
    pub(crate) last: Vec<(Register, Register)>,
}

/// A function's instructions and blocks.
#[derive(Debug)]
pub(crate) struct Code<'p> {
    pub(crate) function: &'p Function,
    pub(crate) ops: Vec<Op<'p>>,
    pub(crate) blocks: Vec<PtxBlock>,
    /// How many registers there are. One that several instructions write counts again for each of them: within
    /// a block the last write before a use is what it reads, between blocks any may be.
    pub(crate) registers: usize,
    /// The immediate dominator of each block; its own index for the entry and for what nothing reaches.
    idom: Vec<usize>,
    /// Place of each block in reverse post-order; `None` where nothing reaches it.
    order: Vec<Option<usize>>,
}

/// Registers and labels by scope: the innermost declaration of a name counts. Inline assembly opens a scope for
/// each of its uses, so one name stands for many things.
struct Scopes<'p> {
    open: Vec<HashMap<&'p str, Register>>,
    next: Register,
    /// The scope we are in, and the one around each scope; the function's own is 0.
    now: usize,
    around: Vec<usize>,
    /// Labels by scope and name: the instruction behind them.
    labels: HashMap<(usize, &'p str), usize>,
}

impl<'p> Scopes<'p> {
    fn new() -> Self {
        Self { open: vec![HashMap::new()], next: 0, now: 0, around: vec![0], labels: HashMap::new() }
    }

    fn enter(&mut self) {
        self.open.push(HashMap::new());
        self.around.push(self.now);
        self.now = self.around.len() - 1;
    }

    fn leave(&mut self) {
        if self.open.len() > 1 {
            self.open.pop();
            self.now = self.around[self.now];
        }
    }

    /// The instruction that a label names in a scope or one around it.
    fn label(&self, mut scope: usize, name: &str) -> Option<usize> {
        loop {
            if let Some(index) = self.labels.get(&(scope, name)) {
                return Some(*index);
            }
            if scope == 0 {
                return None;
            }
            scope = self.around[scope];
        }
    }

    fn resolve(&mut self, name: &'p str) -> Register {
        if let Some(found) = self.open.iter().rev().find_map(|s| s.get(name)) {
            return *found;
        }
        self.next += 1;
        let fresh = self.next - 1;
        // Registers of the outermost scope come as families (`%r<743>`), so a name is met at its first use.
        if let Some(outermost) = self.open.first_mut() {
            outermost.insert(name, fresh);
        }
        fresh
    }

    fn declare(&mut self, text: &'p str) {
        let names =
            text.split([' ', ',']).filter(|w| !w.is_empty() && !w.starts_with('.') && !w.contains('<'));
        for name in names {
            if let Some(scope) = self.open.last_mut() {
                scope.insert(name, self.next);
                self.next += 1;
            }
        }
    }
}

impl<'p> Code<'p> {
    pub(crate) fn new(function: &'p Function) -> Self {
        let mut scopes = Scopes::new();
        let mut ops: Vec<Op<'p>> = Vec::new();
        let mut homes: Vec<usize> = Vec::new();
        let mut leaders = BTreeSet::from([0]);
        for statement in &function.body {
            match statement {
                Statement::Open => scopes.enter(),
                Statement::Close => scopes.leave(),
                Statement::Declaration(d) if d.name == ".reg" => scopes.declare(&d.text),
                Statement::Declaration(_) => {}
                Statement::Label { name, .. } => {
                    scopes.labels.insert((scopes.now, name), ops.len());
                    leaders.insert(ops.len());
                }
                Statement::Instruction(insn) => {
                    let mut names = HashMap::new();
                    for name in insn.operands.iter().flat_map(|o| words(o)) {
                        names.insert(name, scopes.resolve(name));
                    }
                    let guard = insn.guard.as_ref().map(|g| (scopes.resolve(&g.register), g.negated));
                    if matches!(insn.base(), "bra" | "brx" | "ret" | "exit" | "trap") {
                        leaders.insert(ops.len() + 1);
                    }
                    let targets = target_words(insn).filter_map(|w| names.get(w)).map(|r| (*r, *r)).collect();
                    homes.push(scopes.now);
                    ops.push(Op { insn, block: 0, guard, targets, names });
                }
            }
        }
        let starts: Vec<usize> = leaders.into_iter().filter(|l| *l < ops.len()).collect();
        let mut blocks: Vec<PtxBlock> = (starts.iter().enumerate())
            .map(|(b, start)| PtxBlock {
                ops: *start..starts.get(b + 1).copied().unwrap_or(ops.len()),
                ..PtxBlock::default()
            })
            .collect();
        for b in 0..blocks.len() {
            let range = blocks[b].ops.clone();
            ops[range.clone()].iter_mut().for_each(|op| op.block = b);
            let Some((at, last)) = range.last().and_then(|i| Some((i, ops.get(i)?))) else { continue };
            let next: Vec<usize> = match (last.insn.base(), last.insn.operands.first()) {
                ("bra", Some(name)) => scopes.label(homes[at], name).into_iter().collect(),
                // It names a table of labels that this does not read: it is taken to reach every label.
                ("brx", _) => scopes.labels.values().copied().collect(),
                _ => Vec::new(),
            };
            let mut successors: Vec<usize> =
                next.into_iter().filter_map(|i| starts.binary_search(&i).ok()).collect();
            let ends = matches!(last.insn.base(), "bra" | "brx" | "ret" | "exit" | "trap");
            if (!ends || last.guard.is_some()) && b + 1 < starts.len() {
                successors.push(b + 1);
            }
            successors.sort_unstable();
            successors.dedup();
            for s in &successors {
                blocks[*s].predecessors.push(b);
            }
            blocks[b].successors = successors;
        }
        version(&mut ops, &mut blocks, &mut scopes.next);
        let (idom, order) = dominators(&blocks);
        Self { function, ops, blocks, registers: scopes.next, idom, order }
    }

    /// Whether every way to `b` leads through `a`.
    pub(crate) fn dominates(&self, a: usize, mut b: usize) -> bool {
        loop {
            if a == b {
                return true;
            }
            match self.idom.get(b) {
                Some(up) if *up != b => b = *up,
                _ => return false,
            }
        }
    }

    /// The block that every way to `b` leads through last.
    pub(crate) fn idom(&self, b: usize) -> Option<usize> {
        self.idom.get(b).copied().filter(|up| *up != b)
    }

    /// Blocks that control can come to from the end of `from`, `from` itself only round a loop.
    pub(crate) fn reachable(&self, from: usize) -> Vec<bool> {
        let mut seen = vec![false; self.blocks.len()];
        let mut work: Vec<usize> = self.blocks[from].successors.clone();
        while let Some(b) = work.pop() {
            if !std::mem::replace(&mut seen[b], true) {
                work.extend(&self.blocks[b].successors);
            }
        }
        seen
    }

    /// Blocks in an order in which, loops aside, a block follows those that lead to it.
    pub(crate) fn forward(&self) -> Vec<usize> {
        let mut blocks: Vec<usize> = (0..self.blocks.len()).filter(|b| self.order[*b].is_some()).collect();
        blocks.sort_by_key(|b| self.order[*b]);
        blocks
    }
}

/// The words of an operand that can be registers: no numbers, no bare signs.
pub(crate) fn words(operand: &str) -> impl Iterator<Item = &str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%' | '.');
    operand.split(move |c| !is_word(c)).filter(|w| w.starts_with(|c: char| !c.is_ascii_digit()))
}

/// Gives each write of a register that is written more than once a number of its own.
fn version(ops: &mut [Op<'_>], blocks: &mut [PtxBlock], next: &mut Register) {
    let mut writes = vec![0_u32; *next];
    for (register, _) in ops.iter().flat_map(|op| &op.targets) {
        writes[*register] += 1;
    }
    for block in blocks {
        let mut now: BTreeMap<Register, Register> = BTreeMap::new();
        for op in &mut ops[block.ops.clone()] {
            for read in op.names.values_mut().chain(op.guard.iter_mut().map(|(r, _)| r)) {
                *read = now.get(read).copied().unwrap_or(*read);
            }
            for (register, before) in &mut op.targets {
                *before = now.get(register).copied().unwrap_or(*register);
                if writes[*register] > 1 {
                    now.insert(*register, *next);
                    *register = *next;
                    *next += 1;
                }
            }
        }
        block.last = now.into_iter().collect();
    }
}

/// The words of the operand that an instruction writes, if it writes registers.
fn target_words(insn: &Instruction) -> impl Iterator<Item = &str> {
    let writes = match insn.base() {
        "st" | "stmatrix" | "bra" | "brx" | "bar" | "barrier" | "fence" | "membar" | "red" | "prefetch"
        | "ret" | "exit" | "setmaxnreg" | "wgmma" | "trap" | "call" | "cp" | "nanosleep" => false,
        "tcgen05" => insn.has("ld"),
        "mbarrier" => !insn.has("init") && !insn.has("inval"),
        _ => true,
    };
    let first = insn.operands.first().filter(|o| writes && !o.starts_with('['));
    words(first.map_or("", String::as_str))
}

/// Immediate dominators after Cooper, Harvey and Kennedy, and the reverse post-order they need.
fn dominators(blocks: &[PtxBlock]) -> (Vec<usize>, Vec<Option<usize>>) {
    let mut post = Vec::new();
    let mut seen = vec![false; blocks.len()];
    let mut stack: Vec<(usize, usize)> = Vec::new();
    if !blocks.is_empty() {
        seen[0] = true;
        stack.push((0, 0));
    }
    while let Some((b, next)) = stack.pop() {
        match blocks[b].successors.get(next) {
            Some(&s) => {
                stack.push((b, next + 1));
                if !std::mem::replace(&mut seen[s], true) {
                    stack.push((s, 0));
                }
            }
            None => post.push(b),
        }
    }
    let mut order = vec![None; blocks.len()];
    for (n, b) in post.iter().rev().enumerate() {
        order[*b] = Some(n);
    }
    let mut idom: Vec<Option<usize>> = vec![None; blocks.len()];
    if let Some(entry) = idom.first_mut() {
        *entry = Some(0);
    }
    let mut changed = true;
    while changed {
        changed = false;
        for &b in post.iter().rev().filter(|b| **b != 0) {
            let mut found: Option<usize> = None;
            for &p in blocks[b].predecessors.iter().filter(|p| idom[**p].is_some()) {
                found = Some(found.map_or(p, |f| meet(f, p, &idom, &order)));
            }
            if found.is_some() && idom[b] != found {
                idom[b] = found;
                changed = true;
            }
        }
    }
    (idom.iter().enumerate().map(|(b, d)| d.unwrap_or(b)).collect(), order)
}

fn meet(mut a: usize, mut b: usize, idom: &[Option<usize>], order: &[Option<usize>]) -> usize {
    while a != b {
        if order[a] > order[b] {
            a = idom[a].unwrap_or(0);
        } else {
            b = idom[b].unwrap_or(0);
        }
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, test: impl Fn(&Code<'_>)) {
        let text = format!(".version 9.0\n.target sm_90a\n.visible .entry k()\n{{\n{body}\n}}\n");
        let module = kbt_ptx::parse(&text).unwrap();
        test(&Code::new(&module.functions[0]));
    }

    #[test]
    fn blocks_edges_and_dominators_follow_branches_and_labels() {
        let body = "setp.eq.s32 %p1, %r1, 0;\n@%p1 bra $B;\nadd.s32 %r2, %r2, 1;\nbra.uni $C;\n$B:\nadd.s32 %r2, \
                    %r2, 2;\n$C:\n@%p1 bra $B;\nret;";
        check(body, |code| {
            let edges: Vec<_> = code.blocks.iter().map(|b| b.successors.clone()).collect();
            assert_eq!(edges, [vec![1, 2], vec![3], vec![3], vec![2, 4], vec![]]);
            assert!(code.dominates(0, 4) && code.dominates(3, 4) && !code.dominates(1, 3));
            assert!(code.reachable(3)[2] && !code.reachable(3)[1]);
        });
    }

    #[test]
    fn a_use_reads_the_last_write_of_its_block_and_between_blocks_any() {
        let body = "mov.u32 %r1, 0;\nmov.u32 %r2, %r1;\n$L:\nadd.s32 %r1, %r1, 1;\nadd.s32 %r1, %r1, 2;\nbra \
                    $L;";
        check(body, |code| {
            let [first, copy, one, two] = [0, 1, 2, 3].map(|i| &code.ops[i]);
            assert_eq!(copy.register("%r1"), Some(first.targets[0].0));
            assert_eq!(copy.targets[0].0, copy.targets[0].1);
            assert_eq!(two.register("%r1"), Some(one.targets[0].0));
            let between = one.register("%r1").unwrap();
            assert_ne!(between, first.targets[0].0);
            assert_eq!(code.blocks[1].last, [(between, two.targets[0].0)]);
        });
    }

    #[test]
    fn a_label_of_an_inner_scope_is_found_there_and_others_around_it() {
        let skip = "{\n@%p1 bra SKIP;\nmov.u32 %r1, 0;\nSKIP:\n}\n";
        check(&format!("{skip}{skip}{{\n@%p1 bra $E;\n}}\nmov.u32 %r1, 1;\n$E:\nret;"), |code| {
            let edges: Vec<_> = code.blocks.iter().map(|b| b.successors.clone()).collect();
            assert_eq!(edges, [vec![1, 2], vec![2], vec![3, 4], vec![4], vec![5, 6], vec![6], vec![]]);
        });
    }

    #[test]
    fn a_register_of_an_inner_scope_is_another_register() {
        let body = "mov.u32 %r1, 1;\n{\n.reg .pred p, q;\nsetp.ne.b32 p, %r1, 0;\n}\n{\n.reg .pred p;\nsetp.ne.b32 \
                    p, %r1, 1;\n}\nret;";
        check(body, |code| {
            let p: Vec<_> = code.ops.iter().filter_map(|o| o.register("p")).collect();
            assert_eq!(p.len(), 2);
            assert_ne!(p[0], p[1]);
            assert_eq!(code.ops[0].register("%r1"), code.ops[1].register("%r1"));
        });
    }
}
