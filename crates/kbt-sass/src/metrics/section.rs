//! Counts over one function, once, and over any part of it.

use super::Unit;
use super::interleave::interleave;
use super::local::{self, LocalAccess, Recognised, access_bytes};
use crate::outcome::{Issue, LocalMemory, LoopFacts, Operations, Registers, Section, SectionKind};
use crate::{Function, Graph, Instruction, Interval, Loop, LoopKind, PipeClass, Role, pipe_of};
use kbt_device::Pipe;
use std::collections::{BTreeMap, HashMap};

/// A function with all that is worked out once: its graph, loops, roles, pipes and local accesses.
#[derive(Debug, Clone)]
pub struct Analysis<'f> {
    /// The function.
    pub function: &'f Function,
    /// Its control flow.
    pub graph: Graph,
    /// Its loops by address.
    pub loops: Vec<Loop>,
    /// Its role regions by address.
    pub roles: Vec<Role>,
    /// The pipe of each instruction.
    pub pipes: Vec<PipeClass>,
    loop_names: Vec<String>,
    units: [Unit; 2],
    local: Vec<Option<LocalAccess>>,
    recognised: Option<Recognised>,
    stack_bytes: u64,
}

impl<'f> Analysis<'f> {
    /// Analyses a function; `a` and `b` are the units whose interleaving is looked at.
    #[must_use]
    pub fn new(function: &'f Function, a: &Unit, b: &Unit) -> Self {
        let graph = Graph::new(function);
        let loops = graph.loops(function);
        let (local, recognised) = local::classify(function);
        let stated = function.resources.and_then(|r| r.stack_bytes);
        Self {
            loop_names: loop_names(&loops),
            loops,
            roles: graph.roles(function),
            pipes: function.instructions.iter().map(|i| pipe_of(function.arch, i)).collect(),
            units: [a.clone(), b.clone()],
            local,
            recognised,
            stack_bytes: stated.unwrap_or_else(|| local::frame_bytes(function)),
            graph,
            function,
        }
    }

    /// The whole function without its padding.
    #[must_use]
    pub fn whole(&self) -> Interval {
        Interval::new(std::iter::once(0..self.graph.code_len))
    }

    /// The function's own section, with its regions and loops.
    #[must_use]
    pub fn section(&self) -> Section {
        let mut section = self.count(&self.function.name, SectionKind::Function, &self.whole());
        section.arch = self.function.arch;
        section.regions = self.roles.iter().map(|role| self.region(role)).collect();
        section.loops = self.loop_sections(|_| true);
        section
    }

    /// One section for each basic block, `block:0` and so on.
    #[must_use]
    pub fn block_sections(&self) -> Vec<Section> {
        let count = |(n, block): (usize, &crate::Block)| {
            let body = Interval::new(std::iter::once(block.instructions.clone()));
            self.count(&format!("block:{n}"), SectionKind::Block, &body)
        };
        self.graph.blocks.iter().enumerate().map(count).collect()
    }

    fn region(&self, role: &Role) -> Section {
        let mut section = self.count(&role.name, SectionKind::Region, &role.body);
        section.set_max_registers = role.registers;
        section.loops =
            self.loop_sections(|l| l.body.indices().next().is_some_and(|first| role.body.contains(first)));
        section
    }

    fn loop_sections(&self, keep: impl Fn(&Loop) -> bool) -> Vec<Section> {
        (self.loops.iter().enumerate())
            .filter(|(_, l)| keep(l))
            .map(|(i, l)| {
                let mut section = self.count(self.loop_name(i), SectionKind::Loop, &l.body);
                section.of_loop = Some(LoopFacts { kind: l.kind, depth: l.depth });
                section
            })
            .collect()
    }

    /// `loop:2`, `loop:2.0`: the place among the loops of the same parent, by address. Loops that only wait or
    /// replay are named `wait:N` and `replay:N`, so that they do not shift the names of the others.
    #[must_use]
    pub fn loop_name(&self, index: usize) -> &str {
        self.loop_names.get(index).map_or("", String::as_str)
    }

    /// Counts over a part of the function.
    #[must_use]
    pub fn count(&self, name: &str, kind: SectionKind, part: &Interval) -> Section {
        let insns =
            || part.indices().filter_map(|i| Some((self.function.instructions.get(i)?, self.pipes[i])));
        let mut mnemonics: BTreeMap<&str, u64> = BTreeMap::new();
        let mut pipes: BTreeMap<&str, u64> = BTreeMap::new();
        let mut pipe_confidence = BTreeMap::new();
        for (insn, class) in insns() {
            *mnemonics.entry(insn.mnemonic()).or_default() += 1;
            *pipes.entry(class.name()).or_default() += 1;
            *pipe_confidence.entry(class.confidence).or_default() += 1;
        }
        let [a, b] = &self.units;
        let sides = insns().filter_map(|(insn, class)| {
            if a.has(insn, class) { Some(true) } else { b.has(insn, class).then_some(false) }
        });
        let owned = |map: BTreeMap<&str, u64>| map.into_iter().map(|(k, n)| (k.to_owned(), n)).collect();
        Section {
            name: name.to_owned(),
            kind,
            arch: None,
            ranges: part.ranges().iter().map(|r| self.addresses(r)).collect(),
            of_loop: None,
            set_max_registers: None,
            instructions: part.len() as u64,
            interleave: interleave(a, b, sides),
            mnemonics: owned(mnemonics),
            pipes: owned(pipes),
            pipe_confidence,
            issue: issue(insns().map(|(i, _)| i)),
            local_memory: self.local_memory(part),
            registers: self.registers(insns().map(|(i, _)| i)),
            operations: operations(insns()),
            regions: Vec::new(),
            loops: Vec::new(),
            blocks: Vec::new(),
        }
    }

    fn addresses(&self, range: &std::ops::Range<usize>) -> String {
        let at = |i: usize| self.function.instructions.get(i).map_or(0, |i| i.address);
        format!(
            "{:#x}..{:#x}",
            at(range.start),
            at(range.end - 1).saturating_add(self.function.instruction_bytes())
        )
    }

    fn local_memory(&self, part: &Interval) -> LocalMemory {
        let mut sum = LocalMemory {
            stack_bytes: self.stack_bytes,
            spills_by: match self.recognised {
                Some(Recognised::Annotation) => "annotation",
                Some(Recognised::Slots) => "slots",
                None => "none",
            }
            .to_owned(),
            ..LocalMemory::default()
        };
        for i in part.indices() {
            let (Some(Some(access)), Some(insn)) = (self.local.get(i), self.function.instructions.get(i))
            else {
                continue;
            };
            let is_load = insn.mnemonic().starts_with("LD");
            let slot = match (access, is_load) {
                (LocalAccess::Spill, true) => &mut sum.spill_load_bytes,
                (LocalAccess::Spill, false) => &mut sum.spill_store_bytes,
                (LocalAccess::SharedSpill, true) => &mut sum.shared_spill_load_bytes,
                (LocalAccess::SharedSpill, false) => &mut sum.shared_spill_store_bytes,
                (LocalAccess::Array, true) => &mut sum.array_load_bytes,
                (LocalAccess::Array, false) => &mut sum.array_store_bytes,
            };
            *slot += access_bytes(insn);
            sum.array |= *access == LocalAccess::Array;
        }
        sum
    }

    fn registers<'a>(&self, insns: impl Iterator<Item = &'a Instruction>) -> Registers {
        let mut registers = Registers {
            allocated: self.function.resources.and_then(|r| r.registers),
            ..Registers::default()
        };
        for insn in insns {
            registers.named = registers.named.max(highest_register(insn.operands()).map_or(0, |r| r + 1));
            registers.live = registers.live.max(insn.live.and_then(|l| l.gpr).map(u32::from));
        }
        registers
    }
}

fn loop_names(loops: &[Loop]) -> Vec<String> {
    let mut counts: HashMap<(Option<usize>, LoopKind), usize> = HashMap::new();
    let own: Vec<(&str, usize)> = (loops.iter())
        .map(|l| {
            let nth = counts.entry((l.parent, l.kind)).or_default();
            *nth += 1;
            let word = match l.kind {
                LoopKind::User => "loop",
                LoopKind::Wait => "wait",
                LoopKind::Replay => "replay",
            };
            (word, *nth - 1)
        })
        .collect();
    (0..loops.len())
        .map(|mut i| {
            let mut parts = Vec::new();
            while let Some(parent) = loops[i].parent {
                let (word, nth) = own[i];
                parts.push(if word == "loop" { nth.to_string() } else { format!("{word}{nth}") });
                i = parent;
            }
            parts.push(format!("{}:{}", own[i].0, own[i].1));
            parts.reverse();
            parts.join(".")
        })
        .collect()
}

/// The highest general register that a text names.
fn highest_register(operands: &str) -> Option<u32> {
    let bytes = operands.as_bytes();
    let mut highest = None;
    for at in memchr::memchr_iter(b'R', bytes) {
        let word_before =
            at.checked_sub(1).is_some_and(|i| bytes[i].is_ascii_alphanumeric() || bytes[i] == b'_');
        let digits = bytes[at + 1..].iter().take(4).take_while(|b| b.is_ascii_digit());
        let number = digits.fold(None, |n: Option<u32>, d| Some(n.unwrap_or(0) * 10 + u32::from(d - b'0')));
        if !word_before {
            highest = highest.max(number);
        }
    }
    highest
}

fn issue<'a>(insns: impl Iterator<Item = &'a Instruction>) -> Issue {
    let mut issue = Issue::default();
    let mut with_control = 0;
    let (mut stalls, mut waits, mut yields) = (0, 0, 0);
    for insn in insns {
        issue.issue_slots += 1;
        issue.fillers += u64::from(insn.is_dead());
        if let Some(control) = insn.control {
            with_control += 1;
            stalls += u64::from(control.stall);
            waits += u64::from(control.wait_mask != 0);
            yields += u64::from(control.yield_flag);
        }
    }
    // A sum over some of the instructions would be taken for the sum over all.
    if with_control == issue.issue_slots && with_control > 0 {
        (issue.stall_cycles, issue.scoreboard_waits, issue.yields) =
            (Some(stalls), Some(waits), Some(yields));
    }
    issue
}

fn operations<'a>(insns: impl Iterator<Item = (&'a Instruction, PipeClass)>) -> Operations {
    let mut operations = Operations::default();
    for (insn, class) in insns {
        let counter = match (class.pipe, insn.mnemonic()) {
            (_, "SYNCS" | "ARRIVES" | "UTCBAR") => &mut operations.mbarrier,
            (_, "BAR" | "UCGABAR_ARV" | "UCGABAR_WAIT" | "B2R") => &mut operations.barrier,
            (_, "FENCE") => &mut operations.proxy_fence,
            (_, "WARPGROUP") if insn.has_modifier("DEPBAR") => &mut operations.warpgroup_wait,
            (Some(Pipe::Tensor | Pipe::Tc), _) => &mut operations.tensor,
            (Some(Pipe::Tmem), _) => &mut operations.tmem,
            (Some(Pipe::Tma), _) => &mut operations.tma,
            _ => continue,
        };
        *counter += 1;
    }
    operations
}
