//! Counts over one function, once, and over any part of it.

use super::Unit;
use super::facts::Facts;
use super::interleave::interleave;
use super::local::{self, LocalAccess, Recognised, access_bytes};
use crate::outcome::{Issue, LocalMemory, LoopFacts, Operations, Registers, Section, SectionKind};
use crate::{Function, Graph, Instruction, Interval, Loop, LoopKind, PipeClass, Role};
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
    facts: Facts,
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
        let units = [a.clone(), b.clone()];
        let facts = Facts::new(function, &units);
        Self {
            loop_names: loop_names(&loops),
            loops,
            roles: graph.roles(function),
            pipes: (0..function.instructions.len()).map(|i| facts.get(i).class).collect(),
            facts,
            units,
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
        let mut sections: Vec<_> = (self.loops.iter().enumerate())
            .filter(|(_, l)| keep(l))
            .map(|(i, l)| {
                let mut section = self.count(self.loop_name(i), SectionKind::Loop, &l.body);
                section.of_loop = Some(LoopFacts { kind: l.kind, depth: l.depth });
                section
            })
            .collect();
        // A listing has tens of thousands of these lists, and a section is large.
        sections.shrink_to_fit();
        sections
    }

    /// `loop:2`, `loop:2.0`: the place among the loops of the same parent, by address. Loops that only wait or
    /// replay, and the math library's, are named `wait:N`, `replay:N` and `library:N`, so that they do not shift the names of the others.
    #[must_use]
    pub fn loop_name(&self, index: usize) -> &str {
        self.loop_names.get(index).map_or("", String::as_str)
    }

    /// Counts over a part of the function.
    #[must_use]
    pub fn count(&self, name: &str, kind: SectionKind, part: &Interval) -> Section {
        let within = || part.indices().take_while(|i| *i < self.function.instructions.len());
        let insns = || within().map(|i| &self.function.instructions[i]);
        let mut counts = vec![0_u64; self.facts.operations.len()];
        for i in within() {
            counts[self.facts.operation(i)] += 1;
        }
        let mut mnemonics: BTreeMap<&str, u64> = BTreeMap::new();
        let mut pipes: BTreeMap<&str, u64> = BTreeMap::new();
        let mut pipe_confidence = BTreeMap::new();
        let mut operations = Operations::default();
        for (facts, count) in self.facts.operations.iter().zip(counts).filter(|(_, count)| *count > 0) {
            *mnemonics.entry(self.function.instructions[facts.example].mnemonic()).or_default() += count;
            *pipes.entry(facts.class.name()).or_default() += count;
            *pipe_confidence.entry(facts.class.confidence).or_default() += count;
            if let Some(counter) = facts.operation {
                *counter(&mut operations) += count;
            }
        }
        let [a, b] = &self.units;
        let sides = within().filter_map(|i| self.facts.get(i).side);
        let owned = |map: BTreeMap<&str, u64>| map.into_iter().map(|(k, n)| (k.to_owned(), n)).collect();
        Section {
            name: name.to_owned(),
            kind,
            arch: self.function.arch,
            ranges: part.ranges().iter().map(|r| self.addresses(r)).collect(),
            of_loop: None,
            set_max_registers: None,
            instructions: part.len() as u64,
            interleave: interleave(a, b, sides),
            mnemonics: owned(mnemonics),
            pipes: owned(pipes),
            pipe_confidence,
            issue: issue(insns()),
            local_memory: self.local_memory(part),
            registers: self.registers(within()),
            operations,
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

    fn registers(&self, part: impl Iterator<Item = usize>) -> Registers {
        let mut registers = Registers {
            allocated: self.function.resources.and_then(|r| r.registers),
            ..Registers::default()
        };
        for i in part {
            let live = self.function.instructions[i].live;
            registers.named = registers.named.max(self.facts.registers[i]);
            registers.live = registers.live.max(live.and_then(|l| l.gpr).map(u32::from));
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
                LoopKind::Library => "library",
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

/// The counter that an instruction adds to, if another unit carries it out.
pub(super) fn operation(insn: &Instruction, class: PipeClass) -> Option<fn(&mut Operations) -> &mut u64> {
    Some(match (class.pipe, insn.mnemonic()) {
        (_, "SYNCS" | "ARRIVES" | "UTCBAR") => |o| &mut o.mbarrier,
        (_, "BAR" | "UCGABAR_ARV" | "UCGABAR_WAIT" | "B2R") => |o| &mut o.barrier,
        (_, "FENCE") => |o| &mut o.proxy_fence,
        (_, "WARPGROUP") if insn.has_modifier("DEPBAR") => |o| &mut o.warpgroup_wait,
        (Some(Pipe::Tensor | Pipe::Tc), _) => |o| &mut o.tensor,
        (Some(Pipe::Tmem), _) => |o| &mut o.tmem,
        (Some(Pipe::Tma), _) => |o| &mut o.tma,
        _ => return None,
    })
}
