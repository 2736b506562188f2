//! Two-barrier handoffs: a producer stores a tile in parts and arrives twice, a consumer multiplies a part behind
//! each of two waits. How much is stored before the first arrival, how much is multiplied before the second
//! wait, and whether the one covers the other.
//!
//! Parts are counted as instructions, so they must be unrolled: where a store or a product is in a loop of its
//! own, or under a condition, the handoff is told and not counted.

use super::Traffic;
use super::effect::{Channel, Effect, Meet};
use super::loops::Loops;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// A share of a tile: parts before the split, and all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Instructions before the split.
    pub first_instructions: u64,
    /// Instructions in all.
    pub all_instructions: u64,
    /// What those before the split move or multiply, in units that only the share's own total compares with.
    pub first_parts: u64,
    /// The total in the same units.
    pub all_parts: u64,
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut a, mut b) = (self.first_parts, self.all_parts);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        let by = a.max(1);
        write!(f, "{}/{}", self.first_parts / by, self.all_parts / by)
    }
}

/// Why a handoff's parts could not be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Uncounted {
    /// Stores of the tile are in a loop that the arrivals are not in.
    StoresInLoop,
    /// Products of the tile are in a loop that the waits are not in.
    ProductsInLoop,
    /// Products of the tile are on some ways through the consumer only.
    ProductsConditional,
}

/// Whether what the producer stores before its first arrival covers what the consumer reads before its second
/// wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cover {
    /// At least as much is stored as is read.
    Covered,
    /// More is read than is stored: the consumer multiplies old data.
    Short,
}

/// A two-barrier handoff, as the PTX has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handoff {
    /// The function.
    pub function: String,
    /// Where the producer arrives on the first and second barrier: `line 2853`.
    pub arrivals: [String; 2],
    /// Where the consumer waits for the first and second barrier.
    pub waits: [String; 2],
    /// How much is stored before the first arrival.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<Share>,
    /// How much is multiplied before the second wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multiplied: Option<Share>,
    /// Whether the one covers the other, where both are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cover: Option<Cover>,
    /// Why they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncounted: Option<Uncounted>,
    /// Whether the stores and products were matched by their addresses; else by their kind.
    pub by_address: bool,
}

impl fmt::Display for Handoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = &self.arrivals;
        let [wait, rest] = &self.waits;
        write!(f, "{}: handoff from {first} and {second} to {wait} and {rest}: ", self.function)?;
        match (self.stored, self.multiplied, self.cover) {
            (Some(stored), Some(multiplied), Some(cover)) => write!(
                f,
                "{stored} stored before the first arrival ({} of {} stores), {multiplied} multiplied before the \
                 second wait ({} of {} products): {}",
                stored.first_instructions,
                stored.all_instructions,
                multiplied.first_instructions,
                multiplied.all_instructions,
                if cover == Cover::Covered { "covered" } else { "not covered" }
            ),
            _ => f.write_str(match self.uncounted {
                Some(Uncounted::StoresInLoop) => "not counted, its stores are in a loop of their own",
                Some(Uncounted::ProductsInLoop) => "not counted, its products are in a loop of their own",
                _ => "not counted, its products are on some ways only",
            }),
        }
    }
}

/// An instruction that matters here, with its effect's index.
struct Place {
    index: usize,
    block: usize,
    on: Channel,
}

/// The handoffs of a function.
pub(crate) fn handoffs(traffic: &Traffic<'_>) -> Vec<Handoff> {
    let loops = Loops::new(traffic);
    let place = |index: usize, on: Channel| Place { index, block: traffic.code.ops[index].block, on };
    let is_mbarrier = |c: &Channel| matches!(c, Channel::Mbarrier(r) if !r.at.is_all());
    let mut arrivals = Vec::new();
    let mut waits = Vec::new();
    for (index, effect) in &traffic.effects {
        match effect {
            // Who announces bytes of a bulk copy hands nothing of its own over.
            Effect::Arrive(c) if is_mbarrier(c) && !traffic.insn(*index).has("expect_tx") => {
                arrivals.push(place(*index, *c));
            }
            Effect::Wait(c) if is_mbarrier(c) => waits.push(place(*index, *c)),
            _ => {}
        }
    }
    let tile = Tile::new(traffic);
    let mut found = Vec::new();
    for pair in neighbours(&arrivals, |a, b| loops.same(a.block, b.block)) {
        let [first, second] = pair;
        if first.on.meets(&second.on) {
            continue;
        }
        for pair in neighbours(&waits, |a, b| {
            loops.same(a.block, b.block) && traffic.code.dominates(a.block, b.block)
        }) {
            let [wait, rest] = pair;
            let matches = first.on.meets(&wait.on) && second.on.meets(&rest.on);
            if matches && !wait.on.meets(&rest.on) {
                found.extend(count(traffic, &loops, &tile, &arrivals, [first, second], &waits, [wait, rest]));
            }
        }
    }
    found
}

/// Each two that follow each other in the text, those that `kept` takes.
fn neighbours(all: &[Place], kept: impl Fn(&Place, &Place) -> bool) -> Vec<[&Place; 2]> {
    all.windows(2).filter(|w| kept(&w[0], &w[1])).map(|w| [&w[0], &w[1]]).collect()
}

/// Stores of tiles and the products that read them.
struct Tile {
    stores: BTreeSet<usize>,
    products: BTreeSet<usize>,
    by_address: bool,
}

impl Tile {
    fn new(traffic: &Traffic<'_>) -> Self {
        let with = |wanted: Meet| {
            let mut tile = Self { stores: BTreeSet::new(), products: BTreeSet::new(), by_address: true };
            for (store, effect) in &traffic.effects {
                for (product, reads) in &traffic.effects {
                    let is_product = matches!(traffic.insn(*product).base(), "wgmma" | "tcgen05");
                    let meets = is_product
                        && match (effect, reads) {
                            (Effect::TensorStore, Effect::TensorRead(_)) => true,
                            (Effect::Store(to), Effect::AsyncRead(regions) | Effect::TensorRead(regions)) => {
                                regions.iter().any(|r| r.meets(to) == wanted)
                            }
                            _ => false,
                        };
                    if meets {
                        tile.stores.insert(*store);
                        tile.products.insert(*product);
                    }
                }
            }
            tile
        };
        let known = with(Meet::Together);
        if !known.stores.is_empty() {
            return known;
        }
        // Addresses could not be followed: whole rows are stored by wide stores, factors and sums are not.
        let mut guessed = with(Meet::Unknown);
        let is_wide = |i: &usize| {
            let insn = traffic.insn(*i);
            insn.base() == "stmatrix" || insn.has("v4") || insn.base() == "tcgen05"
        };
        guessed.stores.retain(is_wide);
        guessed.by_address = false;
        guessed
    }
}

fn count(
    traffic: &Traffic<'_>,
    loops: &Loops,
    tile: &Tile,
    arrivals: &[Place],
    [first, second]: [&Place; 2],
    waits: &[Place],
    [wait, rest]: [&Place; 2],
) -> Option<Handoff> {
    let code = &traffic.code;
    let line = |p: &Place| format!("line {}", traffic.insn(p.index).line);
    let goes_before = |a: usize, b: &Place| {
        let home = code.ops[a].block;
        if home == b.block { a < b.index } else { code.dominates(home, b.block) }
    };
    // A store belongs to the first arrival in the text that cannot happen without it.
    let owner =
        |store: usize| arrivals.iter().find(|a| a.index > store && goes_before(store, a)).map(|a| a.index);
    let mut stored = Tally::default();
    let mut stores_in_loop = false;
    for &store in &tile.stores {
        let is_first = owner(store) == Some(first.index);
        if !is_first && owner(store) != Some(second.index) {
            continue;
        }
        if loops.same(code.ops[store].block, first.block) {
            stored.add(is_first, parts(traffic.insn(store)));
        } else {
            // Outside the arrivals' loop it is another tile's; inside, it runs more than once a handoff.
            stores_in_loop |= loops.is_inside(code.ops[store].block, first.block);
        }
    }
    // A product belongs to the last of all waits that it cannot happen without.
    let mut multiplied = Tally::default();
    let (mut in_loop, mut conditional) = (false, false);
    for &product in &tile.products {
        let home = code.ops[product].block;
        let behind =
            |w: &&Place| if w.block == home { w.index < product } else { code.dominates(w.block, home) };
        let ours = |w: &&Place| w.on.meets(&first.on) || w.on.meets(&second.on);
        let Some(last) = waits.iter().filter(ours).filter(behind).max_by_key(|w| w.index) else { continue };
        let is_first = last.index == wait.index;
        if !is_first && last.index != rest.index {
            continue;
        }
        if loops.same(home, wait.block) {
            multiplied.add(is_first, 1);
            conditional |= if is_first {
                !goes_before(product, rest)
            } else {
                !loops.on_every_way(code, home, rest.block)
            };
        } else {
            in_loop |= loops.is_inside(home, wait.block);
        }
    }
    let uncounted = match (stores_in_loop, in_loop, conditional) {
        (true, ..) => Some(Uncounted::StoresInLoop),
        (_, true, _) => Some(Uncounted::ProductsInLoop),
        (.., true) => Some(Uncounted::ProductsConditional),
        _ => None,
    };
    // Both sides must be in parts: two barriers in a row with one part are no split.
    if uncounted.is_none() && !(stored.is_split() && multiplied.is_split()) {
        return None;
    }
    let (stored, multiplied) = (stored.share(), multiplied.share());
    let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
    let covered = product(stored.first_parts, multiplied.all_parts)
        >= product(multiplied.first_parts, stored.all_parts);
    let counted = uncounted.is_none();
    Some(Handoff {
        function: code.function.name.clone(),
        arrivals: [line(first), line(second)],
        waits: [line(wait), line(rest)],
        stored: counted.then_some(stored),
        multiplied: counted.then_some(multiplied),
        cover: counted.then_some(if covered { Cover::Covered } else { Cover::Short }),
        uncounted,
        by_address: tile.by_address,
    })
}

/// Instructions and parts, before the split and behind it.
#[derive(Default)]
struct Tally {
    first: (u64, u64),
    rest: (u64, u64),
}

impl Tally {
    fn add(&mut self, is_first: bool, parts: u64) {
        let side = if is_first { &mut self.first } else { &mut self.rest };
        side.0 += 1;
        side.1 = side.1.saturating_add(parts);
    }

    const fn is_split(&self) -> bool {
        self.first.0 > 0 && self.rest.0 > 0
    }

    const fn share(&self) -> Share {
        Share {
            first_instructions: self.first.0,
            all_instructions: self.first.0 + self.rest.0,
            first_parts: self.first.1,
            all_parts: self.first.1.saturating_add(self.rest.1),
        }
    }
}

/// How much one store moves, against others of the same tile: 8x8 matrices, vector elements, registers.
fn parts(insn: &kbt_ptx::Instruction) -> u64 {
    let after = |prefix: char| insn.modifiers().find_map(|m| m.strip_prefix(prefix)?.parse::<u64>().ok());
    let many = after('x').or_else(|| after('v')).unwrap_or(1);
    let width = insn.modifiers().filter_map(|m| m.get(1..)?.parse::<u64>().ok()).last().unwrap_or(32);
    if matches!(insn.base(), "stmatrix" | "tcgen05") { many } else { many.saturating_mul(width) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A producer of `stores` before and behind the first arrival, a consumer of `products` likewise.
    fn text(stores: [usize; 2], products: [usize; 2]) -> String {
        let mut offset = 0;
        let mut store = || {
            offset += 16;
            format!("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r10+{}], {{%r2}};\n", offset - 16)
        };
        let [first, rest] = stores.map(|n| (0..n).map(|_| store()).collect::<String>());
        let product = |_| {
            "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%f1}, %rd1, %rd2, 1, 1, 1, 0, 0;\n"
                .to_owned()
        };
        let [before, behind] = products.map(|n| (0..n).map(product).collect::<String>());
        format!(
            ".version 9.0\n.target sm_90a\n.shared .align 1024 .b8 s[65536];\n.visible .entry k()\n{{\nmov.u32 \
             %r10, s;\nshr.u32 %r11, %r10, 4;\ncvt.u64.u32 %rd0, %r11;\nor.b64 %rd1, %rd0, \
             4611686293305294848;\nadd.s64 %rd2, %rd1, 2048;\nmov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, \
             128;\n@%p1 bra $P;\n$C:\n$W1:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [s+60000], %r7;\n@!%p2 \
             bra $W1;\n{before}$W2:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [s+60008], %r7;\n@!%p2 bra \
             $W2;\n{behind}@%p3 bra $C;\nret;\n$P:\nst.shared.f32 [s+50000], %f9;\n{first}fence.proxy.async;\n@%p4 \
             bra $N1;\nmbarrier.arrive.shared::cta.b64 _, [s+60000];\n$N1:\n{rest}fence.proxy.async;\n@%p4 bra \
             $N2;\nmbarrier.arrive.shared::cta.b64 _, [s+60008];\n$N2:\n@%p3 bra $P;\nret;\n}}\n"
        )
    }

    fn found(text: &str) -> Vec<Handoff> {
        let module = kbt_ptx::parse(text).unwrap();
        assert_eq!(module.problems, []);
        handoffs(&Traffic::new(&module, &module.functions[0]))
    }

    fn check(stores: [usize; 2], products: [usize; 2], expect: &str, cover: Cover) {
        let found = found(&text(stores, products));
        assert_eq!(found.len(), 1, "{found:?}");
        let (stored, multiplied) = (found[0].stored.unwrap(), found[0].multiplied.unwrap());
        assert_eq!(format!("{stored} {multiplied}"), expect);
        assert_eq!((found[0].cover, found[0].by_address), (Some(cover), true));
    }

    #[test]
    fn fractions_are_counted_on_both_sides_and_compared() {
        check([2, 2], [4, 4], "1/2 1/2", Cover::Covered);
        check([3, 1], [6, 2], "3/4 3/4", Cover::Covered);
        check([3, 1], [4, 4], "3/4 1/2", Cover::Covered);
        // Seven eighths of four chunks round to three quarters, of eight tiles to seven eighths.
        check([3, 1], [7, 1], "3/4 7/8", Cover::Short);
        check([1, 3], [3, 5], "1/4 3/8", Cover::Short);
    }

    #[test]
    fn one_part_is_no_split_and_parts_in_loops_or_under_conditions_are_not_counted() {
        assert_eq!(found(&text([4, 0], [4, 4])), []);
        assert_eq!(found(&text([2, 2], [8, 0])), []);
        let plain = text([2, 2], [4, 4]);
        let edited = |from: &str, to: &str| found(&plain.replacen(from, to, 1)).remove(0).uncounted;
        let store = "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r10+0], {%r2};\n";
        assert_eq!(edited(store, &format!("$S:\n{store}@%p5 bra $S;\n")), Some(Uncounted::StoresInLoop));
        let product =
            "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%f1}, %rd1, %rd2, 1, 1, 1, 0, 0;\n";
        assert_eq!(
            edited(product, &format!("$S:\n{product}@%p5 bra $S;\n")),
            Some(Uncounted::ProductsInLoop)
        );
        assert_eq!(
            edited(product, &format!("@%p5 bra $S;\n{product}$S:\n")),
            Some(Uncounted::ProductsConditional)
        );
    }
}
