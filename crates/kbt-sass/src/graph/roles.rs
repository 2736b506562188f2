//! Role regions: the parts of a kernel that different warps run.
//!
//! A role is what one warp-role branch leads to. It shows as a change of the register budget (USETMAXREG), or
//! as a branch on the warp's index whose sides never meet again.

use super::{Graph, Interval};
use crate::{Function, Instruction};

/// A part of a kernel that some of its warps run alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// `setmaxnreg:232`, or `role:0` where no budget tells roles apart; made unique with `#2`.
    pub name: String,
    /// The register budget it sets.
    pub registers: Option<u32>,
    /// Its instructions.
    pub body: Interval,
}

impl Graph {
    /// The role regions by address, empty where all warps run the same code.
    #[must_use]
    pub fn roles(&self, function: &Function) -> Vec<Role> {
        let mut roles = self.budget_roles(function);
        if roles.is_empty() {
            roles = self.branch_roles(function);
        }
        let names: Vec<String> = roles.iter().map(|r| r.name.clone()).collect();
        for (i, role) in roles.iter_mut().enumerate() {
            let nth = names[..=i].iter().filter(|n| **n == role.name).count();
            if nth > 1 {
                role.name = format!("{}#{nth}", role.name);
            }
        }
        roles
    }

    /// One role for each USETMAXREG: the blocks that it dominates, without those of a later one inside.
    fn budget_roles(&self, function: &Function) -> Vec<Role> {
        let code = &function.instructions[..self.code_len];
        let budgets: Vec<(usize, u32)> = (code.iter().enumerate())
            .filter(|(_, i)| i.mnemonic() == "USETMAXREG")
            .filter_map(|(n, i)| Some((self.block_of(n)?, i.operand_list().find_map(immediate)?)))
            .take(MOST_ROLES)
            .collect();
        (budgets.iter())
            .map(|(block, registers)| {
                let inner = |b: usize| {
                    budgets
                        .iter()
                        .any(|(o, _)| o != block && self.dominates(*block, *o) && self.dominates(*o, b))
                };
                let blocks = (0..self.blocks.len()).filter(|b| self.dominates(*block, *b) && !inner(*b));
                Role {
                    name: format!("setmaxnreg:{registers}"),
                    registers: Some(*registers),
                    body: Interval::new(blocks.map(|b| self.blocks[b].instructions.clone())),
                }
            })
            .collect()
    }

    /// Both sides of each branch on the warp index, outside loops, that do not meet again and both have work.
    fn branch_roles(&self, function: &Function) -> Vec<Role> {
        let mut in_loop = vec![false; self.blocks.len()];
        for b in self.loops(function).into_iter().flat_map(|l| l.blocks) {
            in_loop[b] = true;
        }
        let mut sides: Vec<usize> = Vec::new();
        for (b, block) in self.blocks.iter().enumerate().filter(|(b, _)| !in_loop[*b]) {
            let Some(branch) = function.instructions.get(block.instructions.end - 1) else { continue };
            let &[left, right] = block.successors.as_slice() else { continue };
            // The look back is cheap, the walk over what each side dominates is not.
            if on_warp_index(&function.instructions[..block.instructions.end], branch)
                && [left, right].iter().all(|s| self.dominates(b, *s) && self.ends_apart(*s))
            {
                sides.extend([left, right]);
            }
        }
        sides.sort_unstable();
        sides.dedup();
        // A side that holds a later branch's sides is only the way to them.
        let leaf = |s: &&usize| !sides.iter().any(|o| o != *s && self.dominates(**s, *o));
        (sides.iter().filter(leaf))
            .map(|side| {
                let blocks = (0..self.blocks.len()).filter(|b| self.dominates(*side, *b));
                Interval::new(blocks.map(|b| self.blocks[b].instructions.clone()))
            })
            .filter(|body| body.len() >= SMALLEST_ROLE)
            .enumerate()
            .map(|(n, body)| Role { name: format!("role:{n}"), registers: None, body })
            .collect()
    }

    /// Whether control that enters `block` leaves the function without leaving the blocks it dominates.
    fn ends_apart(&self, block: usize) -> bool {
        (0..self.blocks.len())
            .filter(|b| self.dominates(block, *b))
            .all(|b| self.blocks[b].successors.iter().all(|s| self.dominates(block, *s)))
    }
}

/// A CTA has at most 32 warps, so no kernel has more roles.
const MOST_ROLES: usize = 32;
/// A side with fewer instructions is an early exit, not a role.
const SMALLEST_ROLE: usize = 16;
/// How far back the definition of a branch condition is followed.
const LOOK_BACK: usize = 64;

/// Whether a branch's predicate comes from the thread or warp index by shifts, compares and broadcasts alone.
fn on_warp_index(before: &[Instruction], branch: &Instruction) -> bool {
    let mut wanted: Vec<String> =
        branch.guard.iter().filter(|g| g.index.is_some()).map(plain_guard).collect();
    wanted.extend(branch.operand_list().map(register).filter(|r| r.contains('P')).map(str::to_owned));
    let mut shifted = false;
    for insn in before.iter().rev().skip(1).take(LOOK_BACK) {
        let mut operands = insn.operand_list();
        let defined: Vec<&str> = operands.by_ref().take(2).map(register).collect();
        let Some(hit) = wanted.iter().position(|w| defined.contains(&w.as_str())) else { continue };
        match insn.mnemonic() {
            "S2R" | "S2UR" => {
                let special = insn.operands();
                return special.contains("SR_WARPID") || (special.contains("SR_TID") && shifted);
            }
            "SHF" | "USHF" | "SHFL" | "R2UR" | "ISETP" | "UISETP" | "LOP3" | "ULOP3" | "MOV" | "UMOV"
            | "PLOP3" | "UPLOP3" | "IMAD" | "IADD3" | "VIADD" | "LEA" | "UIADD3" | "R2P" | "VOTEU" => {
                shifted |= matches!(insn.mnemonic(), "SHF" | "USHF")
                    && insn.operand_list().filter_map(immediate).any(|n| (5..=8).contains(&n));
                wanted.swap_remove(hit);
                wanted.extend(
                    insn.operand_list().skip(1).map(register).filter(|r| is_register(r)).map(str::to_owned),
                );
            }
            _ => return false,
        }
    }
    false
}

fn plain_guard(guard: &crate::Guard) -> String {
    let uniform = if guard.uniform { "U" } else { "" };
    guard.index.map_or_else(|| format!("{uniform}PT"), |i| format!("{uniform}P{i}"))
}

fn register(operand: &str) -> &str {
    operand.trim_start_matches(['!', '-', '~', '|']).split(['.', '|']).next().unwrap_or(operand)
}

/// `R12`, `UR4`, `P0`, `UP3`, but no constant register.
fn is_register(name: &str) -> bool {
    let rest = name.strip_prefix('U').unwrap_or(name);
    rest.strip_prefix(['R', 'P']).is_some_and(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()))
}

fn immediate(operand: &str) -> Option<u32> {
    u32::from_str_radix(operand.strip_prefix("0x")?, 16).ok()
}
