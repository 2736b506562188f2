//! Builds one function from its instructions, labels and hex words, in the order in which a listing has them.

use super::line::InstructionLine;
use crate::instruction::{TextBuilder, base_mnemonic};
use crate::listing::Problems;
use crate::{Control, Function, Instruction, Live, Operands, ProblemKind, Resources, SourceLine};
use kbt_device::Arch;
use std::collections::HashMap;
use std::sync::Arc;

/// A function under construction.
#[derive(Debug)]
pub(super) struct Builder {
    pub(super) function: Function,
    /// The text of the instructions so far.
    text: TextBuilder,
    /// Symbolic targets to resolve when all labels are known: instruction, label text, line.
    fixups: Vec<(usize, String, u64)>,
    /// Labels met since the last instruction.
    pending: Vec<String>,
    /// The last instruction has the low half of its word and waits for the high one.
    wants_high: bool,
    /// The control word of sm_50 to sm_62 that covers three instructions, and the block of 32 bytes it is for.
    group: Option<(u64, u64)>,
    narrow: Option<bool>,
}

impl Builder {
    pub(super) fn new(name: &str, arch: Option<Arch>, member: u32) -> Self {
        Self {
            function: Function {
                name: name.to_owned(),
                arch,
                instructions: Vec::new(),
                labels: Vec::new(),
                subroutines: Vec::new(),
                resources: None,
                member,
                truncated: false,
            },
            text: TextBuilder::default(),
            fixups: Vec::new(),
            pending: Vec::new(),
            wants_high: false,
            group: None,
            narrow: arch.map(|a| a.sm < 70),
        }
    }

    pub(super) fn set_arch(&mut self, arch: Arch) {
        self.function.arch = Some(arch);
        self.narrow = Some(arch.sm < 70);
    }

    pub(super) fn set_resources(&mut self, resources: Resources) {
        self.function.resources = Some(resources);
    }

    pub(super) fn label(&mut self, name: &str) {
        self.pending.push(name.to_owned());
    }

    /// Adds an instruction.
    pub(super) fn push(
        &mut self,
        line: &InstructionLine<'_>,
        source: Option<&Arc<SourceLine>>,
        live: Option<Live>,
        line_no: u64,
        problems: &mut Problems,
    ) {
        self.end_word(line_no, problems);
        let address = line.address;
        match self.function.instructions.last().map(|i| i.address) {
            Some(last) if address <= last => {
                let text = format!("address {address:#x} after {last:#x} in `{}`", self.function.name);
                problems.add(ProblemKind::Address, line_no, &text);
            }
            Some(last) => self.check_gap(last, address, line_no, problems),
            None => {}
        }
        // On sm_5x and 6x the first word of each 32 bytes is a control word, so code starts at 8.
        let narrow = *self.narrow.get_or_insert(address % 16 == 8);
        let span = self.text.push(line.opcode, &line.operands);
        let mut insn = Instruction::spanning(address, line.guard, span);
        insn.control = line.control;
        insn.annotation = line.annotation.map(Into::into);
        insn.line = source.cloned();
        insn.live = live;
        if let Some(hex) = line.hex {
            insn.encoding = Some(u128::from(hex));
            self.wants_high = !narrow;
        }
        if narrow && insn.control.is_none() {
            insn.control = self.maxwell_control(address);
        }
        for name in self.pending.drain(..) {
            let list = if name.starts_with('$') {
                &mut self.function.subroutines
            } else {
                &mut self.function.labels
            };
            list.push((name, address));
        }
        self.targets(&mut insn, line, line_no);
        self.function.instructions.push(insn);
    }

    fn check_gap(&self, last: u64, address: u64, line_no: u64, problems: &mut Problems) {
        let step = if self.narrow == Some(true) { 8 } else { 16 };
        let next = last.saturating_add(step);
        // Every fourth word of sm_5x and 6x is a control word.
        let next = if step == 8 && next.is_multiple_of(32) { next.saturating_add(8) } else { next };
        if address != next {
            let text = format!("gap from {last:#x} to {address:#x} in `{}`", self.function.name);
            problems.add(ProblemKind::Address, line_no, &text);
        }
    }

    fn maxwell_control(&self, address: u64) -> Option<Control> {
        let (block, word) = self.group?;
        let slot = (address % 32 / 8).checked_sub(1)?;
        (block == address / 32).then(|| Control::from_maxwell(word, slot as u32))
    }

    /// A hex column on a line of its own: the high half of a 128-bit word, the word of a dual-issue partner,
    /// or the control word of the next three instructions.
    pub(super) fn word(&mut self, word: u64, line_no: u64, problems: &mut Problems) {
        let narrow = self.narrow.unwrap_or(self.function.instructions.is_empty());
        let last = self.function.instructions.last_mut();
        match last {
            Some(insn) if self.wants_high => {
                self.wants_high = false;
                let low = insn.encoding.unwrap_or(0) & u128::from(u64::MAX);
                let wide = low | u128::from(word) << 64;
                insn.encoding = Some(wide);
                insn.control = Some(Control::from_wide(wide));
            }
            Some(insn) if narrow && insn.encoding.is_none() => {
                insn.encoding = Some(u128::from(word));
            }
            last if narrow => {
                let block = last.map_or(0, |i| i.address / 32 + 1);
                self.group = Some((block, word));
            }
            _ => problems.add(ProblemKind::Encoding, line_no, &format!("hex word {word:#018x} fits nothing")),
        }
    }

    /// Reports a word whose second half never came.
    fn end_word(&mut self, line_no: u64, problems: &mut Problems) {
        if self.wants_high {
            self.wants_high = false;
            if let Some(insn) = self.function.instructions.last_mut() {
                insn.encoding = None;
                let text = format!("the word at {:#x} has only its low half", insn.address);
                problems.add(ProblemKind::Encoding, line_no, &text);
            }
        }
    }

    /// Absolute targets at once, labels later.
    fn targets(&mut self, insn: &mut Instruction, line: &InstructionLine<'_>, line_no: u64) {
        let index = self.function.instructions.len();
        if let Some(list) = insn.annotation.as_deref().and_then(|a| a.strip_prefix("BRANCH_TARGETS")) {
            for label in list.split(',').map(str::trim).filter(|l| !l.is_empty()) {
                self.fixups.push((index, label.to_owned(), line_no));
            }
            return;
        }
        if !takes_target(base_mnemonic(line.opcode)) {
            return;
        }
        let Some(last) = Operands::new(&line.operands).last() else { return };
        if let Some(label) = last.strip_prefix("`(").and_then(|l| l.strip_suffix(')')) {
            self.fixups.push((index, label.to_owned(), line_no));
        } else if let Some(target) = last.strip_prefix("0x").and_then(|h| u64::from_str_radix(h, 16).ok()) {
            insn.targets.push(target);
        }
    }

    /// Whether the function can end with its last instruction: nothing can run on from it.
    pub(super) fn can_end(&self) -> bool {
        self.function.instructions.last().is_none_or(|i| {
            matches!(
                self.text.mnemonic_of(i),
                "EXIT"
                    | "RET"
                    | "NOP"
                    | "BRA"
                    | "BRX"
                    | "JMP"
                    | "JMX"
                    | "BPT"
                    | "KILL"
                    | "RTT"
                    | "SYNC"
                    | "BRK"
            )
        })
    }

    /// The finished function; `truncated` says that the input broke off inside it.
    pub(super) fn finish(mut self, truncated: bool, line_no: u64, problems: &mut Problems) -> Function {
        self.end_word(line_no, problems);
        self.function.truncated = truncated;
        let text = std::mem::take(&mut self.text).finish();
        for insn in &mut self.function.instructions {
            insn.set_text(&text);
        }
        let step = self.function.instruction_bytes();
        let end = self.function.instructions.last().map_or(0, |i| i.address.saturating_add(step));
        for name in self.pending.drain(..) {
            self.function.labels.push((name, end));
        }
        let labels: HashMap<&str, u64> = (self.function.labels.iter())
            .chain(&self.function.subroutines)
            .map(|(name, address)| (name.as_str(), *address))
            .collect();
        for (index, label, line_no) in &self.fixups {
            let Some(insn) = self.function.instructions.get_mut(*index) else { continue };
            match resolve(label, &labels) {
                Some(target) => insn.targets.push(target),
                // Another function's name, or a runtime function such as __assertfail.
                None if !label.contains(".L_") => {}
                None => problems.add(ProblemKind::Target, *line_no, &format!("no label `{label}`")),
            }
        }
        if step == 8 {
            convergence_targets(&mut self.function.instructions);
            // The target of a branch to the start of 32 bytes is given as that of their control word.
            for target in self.function.instructions.iter_mut().flat_map(|i| &mut i.targets) {
                *target += if target.is_multiple_of(32) { 8 } else { 0 };
            }
        }
        if !truncated {
            for insn in &self.function.instructions {
                for target in insn.targets.iter().filter(|t| **t > end) {
                    let text =
                        format!("`{insn}` goes to {target:#x}, past the end of `{}`", self.function.name);
                    problems.add(ProblemKind::Target, line_no, &text);
                }
            }
        }
        self.function
    }
}

/// Where SYNC, BRK and CONT of sm_50 to sm_62 go, in listings that do not say: to the target of the innermost SSY,
/// PBK or PCNT before them that is still open, since compilers nest these as the source does.
fn convergence_targets(instructions: &mut [Instruction]) {
    let mut open: Vec<(&str, u64)> = Vec::new();
    for insn in instructions {
        // A region is left at its target; a continuation's may lie before it.
        open.retain(|(leave, target)| *leave == "CONT" || insn.address < *target);
        let leave = match insn.mnemonic() {
            "SSY" => "SYNC",
            "PBK" => "BRK",
            "PCNT" => "CONT",
            "SYNC" | "BRK" | "CONT" if insn.targets.is_empty() => {
                let target = open.iter().rev().find(|(leave, _)| *leave == insn.mnemonic());
                let target = target.map(|(_, target)| *target);
                insn.targets.extend(target);
                continue;
            }
            _ => continue,
        };
        open.extend(insn.targets.first().map(|target| (leave, *target)));
    }
}

/// `LABEL` or `LABEL + 0x10`.
fn resolve(label: &str, labels: &HashMap<&str, u64>) -> Option<u64> {
    if let Some(address) = labels.get(label) {
        return Some(*address);
    }
    let (label, offset) = label.rsplit_once('+')?;
    let offset = u64::from_str_radix(offset.trim().strip_prefix("0x")?, 16).ok()?;
    labels.get(label.trim())?.checked_add(offset)
}

/// Mnemonics whose last operand is a code address within the function. RET's is the base that its register is
/// relative to, not a place it goes to.
fn takes_target(mnemonic: &str) -> bool {
    matches!(
        mnemonic,
        "BRA"
            | "BSSY"
            | "CALL"
            | "JMP"
            | "WARPSYNC"
            | "SSY"
            | "PBK"
            | "PCNT"
            | "PRET"
            | "CAL"
            | "JCAL"
            | "JMX"
    )
}
