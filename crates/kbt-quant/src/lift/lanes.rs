//! On which bits of its lane's number a register may depend, as far as PTX shows: from `%tid.x` and `%laneid` through
//! arithmetic, loads and predicates, bit by bit, so that what is computed from a warp's number alone does not. A butterfly
//! makes its lanes agree.
//!
//! What a branch decides is not followed: a register that is found to depend on nothing may still do so.

use super::scalar::LANE;
use super::scan::{registers, writes};
use super::value::integer_literal;
use kbt_ptx::{Function, Instruction};
use std::collections::HashMap;

/// What each bit of a register may be: 0 where it is known to be 0, else [`SET`] and the bits of the lane's number that it may
/// depend on.
type Bits = [u8; 64];

/// Known to be 0.
const NONE: Bits = [0; 64];
/// The same in every lane, and not known.
const SET: u8 = 0x80;
const UNKNOWN: Bits = [SET; 64];

/// The dependence of every register of a function.
#[derive(Default)]
pub(super) struct Lanes<'a> {
    of: HashMap<&'a str, Bits>,
    definitions: HashMap<&'a str, Option<&'a Instruction>>,
}

fn whole(bits: &Bits) -> u8 {
    bits.iter().fold(0, |all, b| all | b) & LANE
}

/// Every bit may depend on everything.
fn spread(mask: u8) -> Bits {
    [SET | mask; 64]
}

/// A number's bits.
fn number_bits(x: i64) -> Bits {
    std::array::from_fn(|i| if x >> i & 1 == 1 { SET } else { 0 })
}

/// A sum: a carry goes up from where two of its three parts may be 1.
fn sum(a: &Bits, b: &Bits) -> Bits {
    let mut carry = 0;
    std::array::from_fn(|i| {
        let parts = [a[i], b[i], carry];
        let all = a[i] | b[i] | carry;
        carry = if parts.iter().filter(|p| **p != 0).count() > 1 { all } else { 0 };
        all
    })
}

/// Whatever lies below may reach up.
fn carried(mut bits: Bits) -> Bits {
    for i in 1..64 {
        bits[i] |= bits[i - 1];
    }
    bits
}

fn up(bits: &Bits, by: usize) -> Bits {
    std::array::from_fn(|i| if i < by { 0 } else { bits[i - by] })
}

fn down(bits: &Bits, by: usize) -> Bits {
    std::array::from_fn(|i| bits.get(i + by).copied().unwrap_or_default())
}

/// Of a register of `width` bits.
fn cut(bits: &Bits, width: usize) -> Bits {
    std::array::from_fn(|i| if i < width { bits[i] } else { 0 })
}

/// The sign goes into the bits above.
fn signed(bits: &Bits, width: usize) -> Bits {
    std::array::from_fn(|i| bits[i.min(width - 1)])
}

fn both(a: &Bits, b: &Bits) -> Bits {
    std::array::from_fn(|i| a[i] | b[i])
}

/// Where one is known to be 0, so is this.
fn common(a: &Bits, b: &Bits) -> Bits {
    std::array::from_fn(|i| if a[i] == 0 || b[i] == 0 { 0 } else { a[i] | b[i] })
}

/// The width of a type, of integers and bits.
fn width(modifier: &str) -> Option<usize> {
    modifier.strip_prefix(['u', 's', 'b'])?.parse().ok().filter(|w| matches!(w, 8 | 16 | 32 | 64))
}

impl<'a> Lanes<'a> {
    pub(super) fn new(f: &'a Function) -> Self {
        let mut this = Self::default();
        let asks = |o: &String| o == "%laneid" || o == "%tid.x" || o.starts_with("%lanemask");
        let per_lane = |i: &Instruction| LANES_APART.contains(&i.base()) || i.operands.iter().any(asks);
        if !f.instructions().any(per_lane) {
            return this;
        }
        for i in f.instructions().filter(|i| writes(i)) {
            for name in i.operands.first().into_iter().flat_map(|o| registers(o)) {
                let once = i.guard.is_none().then_some(i);
                this.definitions.entry(name).and_modify(|d| *d = None).or_insert(once);
            }
        }
        // Dependences only grow, and there are few: a loop's settle after a few rounds.
        while this.round(f) {}
        this
    }

    /// Which bits of a lane's number a register may depend on.
    pub(super) fn of(&self, register: &str) -> u8 {
        self.of.get(register).map_or(0, whole)
    }

    fn round(&mut self, f: &'a Function) -> bool {
        let mut grew = false;
        for i in f.instructions().filter(|i| writes(i)) {
            let mut bits = self.result(i);
            if let Some(guard) = i.guard.as_ref().map(|g| self.of(&g.register)).filter(|mask| *mask != 0) {
                bits = both(&bits, &spread(guard));
            }
            for name in i.operands.first().into_iter().flat_map(|o| registers(o)) {
                let have = self.of.entry(name).or_insert(NONE);
                let now = both(have, &bits);
                grew |= now != *have;
                *have = now;
            }
        }
        grew
    }

    fn operand(&self, operand: &str) -> Bits {
        match operand {
            // A block has no more than 1024 threads.
            "%tid.x" => std::array::from_fn(|i| if i < 10 { SET | (1 << i) as u8 & LANE } else { 0 }),
            "%laneid" => std::array::from_fn(|i| if i < 5 { SET | 1 << i } else { 0 }),
            _ if operand.starts_with("%lanemask") => spread(LANE),
            _ => match (self.of.get(operand), integer_literal(operand)) {
                (Some(bits), _) => *bits,
                // Written in what comes later.
                _ if self.definitions.contains_key(operand) => NONE,
                (_, Some(x)) => number_bits(x),
                _ => spread(registers(operand).fold(0, |all, r| all | self.of(r))),
            },
        }
    }

    fn result(&self, i: &Instruction) -> Bits {
        if LANES_APART.contains(&i.base()) {
            return spread(LANE);
        }
        let sources: Vec<Bits> = i.operands.iter().skip(1).map(|o| self.operand(o)).collect();
        let all = || spread(sources.iter().fold(0, |all, bits| all | whole(bits)));
        let number = |k: usize| i.operands.get(k + 1).and_then(|o| integer_literal(o));
        let to = i.modifiers().last().and_then(width);
        let (Some(a), Some(bits)) = (sources.first(), to) else {
            return self.agreed(i).map_or_else(all, spread);
        };
        let b = sources.get(1).unwrap_or(&NONE);
        let c = sources.get(2).unwrap_or(&NONE);
        let shift = || number(1).and_then(|k| usize::try_from(k).ok()).filter(|k| *k < 64);
        let is_signed = i.modifiers().last().is_some_and(|m| m.starts_with('s'));
        match i.base() {
            "mov" | "cvta" if !i.operands.iter().any(|o| o.starts_with('{')) => *a,
            "cvt" => match i.modifiers().collect::<Vec<_>>().iter().rev().nth(1).and_then(|m| width(m)) {
                Some(to) if is_signed => cut(&signed(a, bits), to),
                Some(to) => cut(&cut(a, bits), to),
                None => all(),
            },
            "and" => common(a, b),
            "or" | "xor" => both(a, b),
            "shl" => shift().map_or_else(all, |k| cut(&up(a, k), bits)),
            "shr" => match shift() {
                Some(k) if is_signed => cut(&down(&signed(a, bits), k), bits),
                Some(k) => down(&cut(a, bits), k),
                None => all(),
            },
            "add" => self.agreed(i).map_or_else(|| sum(a, b), spread),
            "mul" | "mad" if !i.has("hi") => {
                let by = |factor: &Bits, k: Option<i64>| {
                    let k = k.filter(|k| *k != 0);
                    let shifted = up(factor, k.map_or(0, |k| k.trailing_zeros() as usize));
                    if k.is_some_and(|k| k.count_ones() == 1) { shifted } else { carried(shifted) }
                };
                let product = match (number(0), number(1)) {
                    (_, Some(k)) => by(a, Some(k)),
                    (Some(k), _) => by(b, Some(k)),
                    _ => carried(both(a, b)),
                };
                if i.base() == "mad" { sum(&product, c) } else { product }
            }
            "sub" => carried(both(a, b)),
            "not" => both(a, &UNKNOWN),
            "lop3" => both(&both(&both(a, b), c), &UNKNOWN),
            "selp" => both(&both(a, b), &spread(whole(c))),
            // Every lane gets one lane's value.
            "shfl" if i.has("idx") && whole(b) == 0 && self.number(&i.operands[3]) == Some(31) => UNKNOWN,
            "vote" | "redux" | "activemask" | "elect" => UNKNOWN,
            _ => self.agreed(i).map_or_else(all, spread),
        }
    }

    /// What the result of `x op (x of the lanes across)` depends on: lanes that differ by the mask have the same.
    fn agreed(&self, i: &Instruction) -> Option<u8> {
        if !matches!(i.base(), "add" | "max" | "min") || i.operands.len() != 3 {
            return None;
        }
        let (a, b) = (self.root(&i.operands[1]), self.root(&i.operands[2]));
        let across = |x: &str, s: &str| {
            let shuffle = self.definitions.get(s).copied().flatten()?;
            let from = shuffle.operands.get(1).filter(|_| shuffle.base() == "shfl" && shuffle.has("bfly"))?;
            let mask = self.number(shuffle.operands.get(2)?)?;
            let full = self.number(shuffle.operands.get(3)?)? == 31;
            (full && self.root(from) == x).then_some(mask)
        };
        let mask = across(a, b).or_else(|| across(b, a))?;
        let mask = u8::try_from(mask & i64::from(LANE)).ok()?;
        Some(self.of(a) & if mask.is_power_of_two() { !mask } else { LANE })
    }

    /// The register that an operand is a copy of.
    fn root<'b>(&'b self, operand: &'b str) -> &'b str {
        let mut at = operand;
        for _ in 0..16 {
            let copied = self.definitions.get(at).copied().flatten().filter(|d| d.base() == "mov");
            match copied.and_then(|d| d.operands.get(1)).filter(|o| self.definitions.contains_key(o.as_str()))
            {
                Some(from) => at = from,
                None => return at,
            }
        }
        at
    }

    fn number(&self, operand: &str) -> Option<i64> {
        integer_literal(operand).or_else(|| {
            let definition = self.definitions.get(operand).copied().flatten()?;
            integer_literal(definition.operands.get(1).filter(|_| definition.base() == "mov")?)
        })
    }
}

/// Instructions whose results each lane has its own.
const LANES_APART: [&str; 6] = ["atom", "wgmma", "mma", "ldmatrix", "tcgen05", "match"];

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(body: &str) -> u8 {
        let text = format!(
            ".version 9.0\n.target sm_90a\n.visible .entry k(\n.param .u64 p\n)\n{{\n{body}\nret;\n}}\n"
        );
        let module = kbt_ptx::parse(&text).unwrap();
        assert_eq!(module.problems, []);
        Lanes::new(&module.functions[0]).of("%out")
    }

    #[test]
    fn what_is_computed_from_the_lane_depends_on_it_and_what_is_of_the_warp_does_not() {
        assert_eq!(lanes("mov.u32 %out, %tid.x;"), 31);
        assert_eq!(lanes("mov.u32 %r1, %ctaid.x;\nadd.s32 %out, %r1, 1;"), 0);
        let tid = "mov.u32 %r1, %tid.x;\n";
        let check = |body: &str, expected: u8| {
            assert_eq!(lanes(&format!("{tid}{body}")), expected, "{body}");
        };
        check("shr.u32 %out, %r1, 5;", 0);
        check("shr.u32 %out, %r1, 2;", 0b11100);
        check("and.b32 %out, %r1, 3;", 0b00011);
        check("and.b32 %out, %r1, -32;", 0);
        check("shl.b32 %r2, %r1, 3;\nshr.u32 %out, %r2, 8;", 0);
        check("add.s32 %r2, %r1, 4;\nshr.u32 %out, %r2, 5;", 0b11100);
        check("mul.lo.s32 %r2, %r1, 8;\nand.b32 %out, %r2, 31;", 0b00011);
        check("mad.lo.s32 %r2, %r9, 32, %r1;\nshr.u32 %out, %r2, 5;", 0);
        check("mad.lo.s32 %r2, %r9, 33, %r1;\nshr.u32 %out, %r2, 5;", 31);
        check("mov.u32 %r2, %ctaid.x;\nadd.s32 %r3, %r1, %r2;\nshr.u32 %out, %r3, 5;", 31);
        check(
            "shr.s32 %r2, %r1, 31;\nshr.u32 %r3, %r2, 27;\nadd.s32 %r4, %r1, %r3;\nshr.s32 %out, %r4, 5;",
            0,
        );
        check("cvt.u64.u32 %rd1, %r1;\nshr.u64 %out, %rd1, 5;", 0);
        check("mul.wide.u32 %rd1, %r1, 4;\nadd.s64 %rd2, %rd9, %rd1;\nld.global.f32 %out, [%rd2+16];", 31);
        check("shr.u32 %r2, %r1, 5;\nmul.wide.u32 %rd1, %r2, 4;\nld.global.f32 %out, [%rd1];", 0);
        check("setp.lt.s32 %p1, %r1, 7;\nselp.f32 %out, %f1, %f2, %p1;", 31);
        check("setp.lt.s32 %p1, %r1, 7;\n@%p1 mov.f32 %out, %f2;", 31);
        check("cvt.rn.f32.u32 %out, %r1;", 31);
    }

    #[test]
    fn a_butterfly_makes_its_lanes_agree_and_one_lane_gives_all_its_value() {
        let step = |x: usize, mask: usize| {
            let y = x + 1;
            format!(
                "mov.b32 %r{x}, %f{x};\nshfl.sync.bfly.b32 %s{x}|%q{x}, %r{x}, {mask}, 31, -1;\n\
                 mov.b32 %g{x}, %s{x};\nmax.f32 %f{y}, %f{x}, %g{x};\n"
            )
        };
        let load = "mov.u32 %r30, %tid.x;\nmul.wide.u32 %rd1, %r30, 4;\nld.global.f32 %f1, [%rd1];\n";
        let of = |steps: &str, last: usize| lanes(&format!("{load}{steps}mov.f32 %out, %f{last};"));
        assert_eq!(of("", 1), 31);
        assert_eq!(of(&step(1, 1), 2), 0b11110);
        assert_eq!(of(&format!("{}{}", step(1, 1), step(2, 2)), 3), 0b11100);
        // Less the maximum, the lane's own value is its own again.
        let less = format!("{}sub.f32 %f9, %f1, %f2;\n", step(1, 1));
        assert_eq!(of(&less, 9), 31);
        assert_eq!(lanes(&format!("{load}shfl.sync.idx.b32 %out, %f1, 0, 31, -1;")), 0);
        assert_eq!(lanes(&format!("{load}shfl.sync.down.b32 %out, %f1, 1, 31, -1;")), 31);
    }

    #[test]
    fn a_loop_carries_what_is_added_in_it() {
        let body = "mov.f32 %out, 0f00000000;\n$L:\nmov.u32 %r1, %laneid;\ncvt.rn.f32.u32 %f1, %r1;\n\
                    add.f32 %f2, %out, %f1;\nmov.f32 %out, %f2;\nbra $L;";
        assert_eq!(lanes(body), 31);
    }
}
