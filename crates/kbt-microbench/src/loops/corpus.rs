//! The generated loops themselves, from the families that say what they are made of.

use super::families::{FAMILIES, Family, Recipe};
use super::kernel::LoopSource;

/// All generated loops, in order; the same on every machine.
#[must_use]
pub fn corpus() -> Vec<LoopSource> {
    let mut loops = Vec::new();
    for family in FAMILIES {
        match family.recipe {
            Recipe::Compiled => {}
            Recipe::Chains(groups) => {
                for (n, op) in groups.iter().flat_map(|g| g.iter()).enumerate() {
                    for chains in [1, 2, 4, 8] {
                        let name = format!("{}_{n:02}_c{chains}", family.name);
                        loops.push(chain(family, name, &[op], chains, (32 / chains).max(4) * chains));
                    }
                }
            }
            Recipe::Pairs(ops) => {
                for (i, a) in ops.iter().enumerate() {
                    for (j, b) in ops.iter().enumerate().skip(i + 1) {
                        let name = format!("{}_{i:02}_{j:02}", family.name);
                        loops.push(chain(family, name, &[a, b], 8, 32));
                    }
                }
            }
            Recipe::Lengths(op, lengths) => {
                for n in lengths {
                    loops.push(chain(family, format!("{}_{n:04}", family.name), &[op], 8, *n));
                }
            }
            Recipe::Random { ops, loops: count, length, registers } => {
                for n in 0..count {
                    loops.push(mixed(family, n, ops, length, registers));
                }
            }
        }
    }
    loops
}

/// xorshift64*.
struct Rng(u64);

impl Rng {
    fn new(text: &str) -> Self {
        let hash = blake3::hash(text.as_bytes());
        let mut seed = [0; 8];
        seed.copy_from_slice(&hash.as_bytes()[..8]);
        Self(u64::from_le_bytes(seed) | 1)
    }

    fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let word = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        ((word * u64::from(n.max(1))) >> 32) as u32
    }

    fn between(&mut self, [least, most]: [u32; 2]) -> u32 {
        least + self.below(most - least + 1)
    }
}

/// Slices of shared memory that a loop uses, of 16 bytes a thread each.
const SHARED_SLICES: u32 = 2;
const SLICE_BYTES: u32 = 16 * crate::ptx::MAX_THREADS;

fn chain(family: &Family, name: String, ops: &[&str], chains: u32, steps: u32) -> LoopSource {
    let uses = |slot: &str| ops.iter().any(|op| op.contains(slot));
    // Two more registers are read and never written.
    let quads = if uses("$F4") { chains * 4 } else { chains };
    let mut l = LoopSource {
        name,
        family: family.name,
        max_threads: 1024,
        floats: quads + 2,
        words: chains + 6,
        doubles: if uses("$D") { chains + 2 } else { 0 },
        shared: if uses("%s") { SHARED_SLICES * SLICE_BYTES } else { 0 },
        body: String::new(),
    };
    for step in 0..steps {
        let op = ops[step as usize % ops.len()];
        let turn = step / ops.len() as u32;
        let target = turn % chains;
        let mut pick = |slot: &str| match slot {
            "F" | "B" | "D" | "F4" => target,
            "f" => quads + (turn / chains) % 2,
            "b" | "d" => chains + (turn / chains) % 2,
            "b2" | "b4" => chains,
            _ => 0,
        };
        push(&mut l.body, op, &mut pick);
    }
    l
}

fn mixed(family: &Family, n: u32, ops: &[&[&str]], length: [u32; 2], registers: [u32; 2]) -> LoopSource {
    let name = format!("{}_{n:02}", family.name);
    let mut rng = Rng::new(&name);
    let all: Vec<&str> = ops.iter().flat_map(|g| g.iter().copied()).collect();
    let uses = |slot: &str| all.iter().any(|op| op.contains(slot));
    let (floats, words) = (rng.between(registers).next_multiple_of(4), rng.between(registers).max(6));
    let doubles = if uses("$D") { rng.between([2, 8]) } else { 0 };
    let shared = if uses("%s") { SHARED_SLICES * SLICE_BYTES } else { 0 };
    // Each loop leans to some of the operations, so that mixes differ.
    let weights: Vec<u32> = all.iter().map(|_| rng.below(4).pow(2)).collect();
    let total: u32 = weights.iter().sum::<u32>().max(1);
    let mut body = String::new();
    for _ in 0..rng.between(length) {
        let mut at = rng.below(total);
        let op = all.iter().zip(&weights).find_map(|(op, w)| {
            if at < *w {
                return Some(*op);
            }
            at -= w;
            None
        });
        let op = op.unwrap_or(all[0]);
        let mut pick = |slot: &str| match slot {
            "F4" => rng.below(floats / 4),
            "F" | "f" => rng.below(floats),
            "D" | "d" => rng.below(doubles),
            "b4" => rng.below(words - 3),
            "b2" => rng.below(words - 1),
            "o" => rng.below(64),
            _ => rng.below(words),
        };
        push(&mut body, op, &mut pick);
    }
    LoopSource { name, family: family.name, max_threads: 1024, floats, words, doubles, shared, body }
}

/// Appends an operation with its slots filled. Capital slots are chosen once for the operation.
fn push(body: &mut String, op: &str, pick: &mut dyn FnMut(&str) -> u32) {
    let chosen = [pick("F"), pick("B"), pick("D"), pick("F4")];
    let list = |letter: char, first: u32, n: u32| {
        let names: Vec<String> = (first..first + n).map(|i| format!("%{letter}{i}")).collect();
        format!("{{{}}}", names.join(", "))
    };
    body.push_str("  ");
    let mut parts = op.split('$');
    body.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let slot_len = part.chars().take_while(char::is_ascii_alphanumeric).count();
        let (slot, rest) = part.split_at(slot_len);
        let text = match slot {
            "F" => format!("%f{}", chosen[0]),
            "B" => format!("%b{}", chosen[1]),
            "D" => format!("%d{}", chosen[2]),
            "F4" => list('f', chosen[3] * 4, 4),
            "f" => format!("%f{}", pick("f")),
            "b" => format!("%b{}", pick("b")),
            "d" => format!("%d{}", pick("d")),
            "b1" => list('b', pick("b"), 1),
            "b2" => list('b', pick("b2"), 2),
            "b4" => list('b', pick("b4"), 4),
            _ => (pick("o") % SHARED_SLICES * SLICE_BYTES).to_string(),
        };
        body.push_str(&text);
        body.push_str(rest);
    }
    body.push('\n');
}
