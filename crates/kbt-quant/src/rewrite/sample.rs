//! Inputs to evaluate programs on: drawn at random within the declared ranges, masked elements included, such that
//! the program's assumptions hold.

use crate::lang::eval::{Extent, Number};
use crate::lang::{Layout, Op, Program, Range, Shape};

/// A small generator: the same inputs on every run and machine.
#[derive(Debug, Clone)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn bits(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    pub(super) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.unit() * n as f64) as usize
    }
}

/// How large drawn values are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Size {
    /// Within about 12 of zero.
    Usual,
    /// Up to thousands: exp2 underflows, groups flush.
    Huge,
    /// Within 2^-8 of zero: everything nearly equal.
    Tiny,
    /// The ends of each range, both zeros, the least normal and subnormal numbers, and any magnitude between.
    Ends,
}

/// The layout with groups of at most `most` elements, or of one a lane: a group's algebra is the same at any size, and the
/// time that it takes is not.
pub(super) fn layout(of: Layout, most: u32) -> Layout {
    let each = of.elements_a_lane().min((most / of.lanes).max(1));
    Layout { group: of.lanes * each, ..of }
}

/// A value at an end of the range, or of a magnitude that any f32 in it may have.
fn end(range: Range, rng: &mut Rng) -> f64 {
    let tiny = f64::from(f32::MIN_POSITIVE);
    let least = f64::from(f32::from_bits(1));
    let finite = |x: f64| x.clamp(-f64::from(f32::MAX), f64::from(f32::MAX));
    let (lo, hi) = (finite(range.lo), finite(range.hi));
    let all = [lo, hi, lo, hi, 0.0, -0.0, tiny, -tiny, least, -least, 1.0, -1.0];
    let fits: Vec<f64> = all.into_iter().filter(|x| lo <= *x && *x <= hi).collect();
    if rng.below(4) > 0 {
        return fits[rng.below(fits.len())];
    }
    let magnitude = |x: f64| x.abs().max(least).log2();
    let (from, to) = match (lo > 0.0, hi < 0.0) {
        (true, _) => (magnitude(lo), magnitude(hi)),
        (_, true) => (magnitude(hi), magnitude(lo)),
        _ => (least.log2(), magnitude(lo).max(magnitude(hi))),
    };
    let value = (from + rng.unit() * (to - from)).exp2();
    let negative = hi < 0.0 || (lo < 0.0 && rng.below(2) == 0);
    f64::from(if negative { -value } else { value } as f32).clamp(lo, hi)
}

/// Which elements are masked (given -inf, where their range has it).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Mask {
    /// None.
    None,
    /// A quarter of them, and one whole group.
    Some,
    /// All of them.
    All,
}

/// How often inputs are drawn before giving up, and after how many tries another [`Reach`] is taken.
const TRIES: usize = 1920;
const PATIENCE: usize = 32;

/// How far below and above 0 values are drawn.
#[derive(Debug, Clone, Copy)]
struct Reach {
    below: f64,
    above: f64,
}

impl Reach {
    /// What assumptions bound from above, a sum or a product, is met by an upper end that is halved again and again while the
    /// lower one stays far out; what they bound from below by a lower end that is, and an upper one that grows; what they bound
    /// from both by both.
    fn new(size: f64, tries: usize) -> Self {
        let turn = tries / PATIENCE;
        let by = f64::exp2(turn.div_ceil(3) as f64);
        match turn % 3 {
            0 => Self { below: size, above: size / by },
            1 => Self { below: size / by, above: size * by * by / 4.0 },
            _ => Self { below: size / by, above: size / by },
        }
    }
}

fn draw(range: Range, size: Size, tries: usize, rng: &mut Rng) -> f64 {
    let size = match size {
        Size::Ends => return end(range, rng),
        Size::Usual => 12.0,
        Size::Huge => 4096.0,
        Size::Tiny => 1.0 / 256.0,
    };
    let reach = Reach::new(size, tries);
    let value = if range.lo > 0.0 {
        // A positive quantity: its magnitude varies, not its distance from zero.
        let lo = range.lo.max(1.0 / 64.0).min(range.hi);
        let usual = if reach.above > size { reach.above } else { reach.above.min(8.0) };
        let hi = range.hi.min(usual).max(lo);
        (lo.log2() + rng.unit() * (hi.log2() - lo.log2())).exp2()
    } else {
        let lo = range.lo.max(-reach.below).min(range.hi);
        let hi = range.hi.min(reach.above).max(lo);
        lo + rng.unit() * (hi - lo)
    };
    // Inputs are f32: round, and stay within the range.
    f64::from(value as f32).clamp(range.lo, range.hi)
}

/// One set of inputs, or `None` if the assumptions could not be met in [`TRIES`].
pub(super) fn inputs(
    program: &Program,
    extent: Extent,
    size: Size,
    mask: Mask,
    rng: &mut Rng,
) -> Option<Vec<Vec<f64>>> {
    let ranges = ranges(program);
    let mut held: Option<(Vec<Vec<f64>>, Fine)> = None;
    let most = if size == Size::Ends { TRIES / 10 } else { TRIES };
    for tries in 0..most {
        let mut drawn: Vec<Vec<f64>> = program
            .inputs
            .iter()
            .zip(&ranges)
            .map(|(input, &range)| {
                let count = extent.len(input.shape);
                let maskable = input.shape == Shape::Elem && range.lo == f64::NEG_INFINITY;
                let group = count / extent.len(Shape::Group).max(1);
                let lost = rng.below(extent.len(Shape::Group));
                let mut values: Vec<f64> = (0..count).map(|_| draw(range, size, tries, rng)).collect();
                for (i, value) in values.iter_mut().enumerate() {
                    let masked = match mask {
                        Mask::None => false,
                        Mask::Some => i / group.max(1) == lost || rng.below(4) == 0,
                        Mask::All => true,
                    };
                    if maskable && masked {
                        *value = f64::NEG_INFINITY;
                    }
                }
                values
            })
            .collect();
        // What the assumptions held on already stays; the rest is drawn again.
        if let Some((kept, fine)) = held.take() {
            for (input, (new, old)) in program.inputs.iter().zip(drawn.iter_mut().zip(&kept)) {
                for (i, value) in new.iter_mut().enumerate() {
                    *value = if fine.stays(input.shape, i, extent) { old[i] } else { *value };
                }
            }
        }
        match failing(program, &drawn, extent) {
            Failing::None => return Some(drawn),
            Failing::Some(fine) if tries % PATIENCE + 1 < PATIENCE => held = Some((drawn, fine)),
            _ => {}
        }
    }
    None
}

/// The same with one input equal to another, in a quarter of its values where it has many. `None` where no two can be.
pub(super) fn equal(
    program: &Program,
    mut inputs: Vec<Vec<f64>>,
    extent: Extent,
    rng: &mut Rng,
) -> Option<Vec<Vec<f64>>> {
    let shape = |i: usize| program.inputs[i].shape;
    let all = 0..inputs.len();
    let pairs = all.clone().flat_map(|i| all.clone().map(move |j| (i, j)));
    let ranges = ranges(program);
    let meet = |i: usize, j: usize| ranges[i].lo.max(ranges[j].lo) <= ranges[i].hi.min(ranges[j].hi);
    let pairs: Vec<(usize, usize)> =
        pairs.filter(|&(i, j)| i != j && shape(j) <= shape(i) && meet(i, j)).collect();
    if pairs.is_empty() {
        return None;
    }
    let (to, from) = pairs[rng.below(pairs.len())];
    let count = inputs[to].len();
    for i in 0..count {
        let value = inputs[from][extent.index(shape(from), shape(to), i)];
        let range = ranges[to];
        if (count == 1 || rng.below(4) == 0) && range.lo <= value && value <= range.hi {
            inputs[to][i] = value;
        }
    }
    Some(inputs)
}

/// Where inputs may lie: within their declared ranges and within what is assumed of them directly. An assumption that
/// leaves nothing of a range is left to fail.
fn ranges(program: &Program) -> Vec<Range> {
    let mut ranges: Vec<Range> = program.inputs.iter().map(|input| input.range).collect();
    for a in &program.assumptions {
        let Op::Input(i) = program.nodes[a.node].op else { continue };
        let known = ranges[i as usize];
        let both = Range { lo: known.lo.max(a.range.lo), hi: known.hi.min(a.range.hi) };
        if both.lo <= both.hi {
            ranges[i as usize] = both;
        }
    }
    ranges
}

/// Which elements and groups the assumptions hold of.
#[derive(Debug, Clone)]
struct Fine {
    elements: Vec<bool>,
    groups: Vec<bool>,
}

impl Fine {
    /// Whether this value of an input of a shape is kept: an element where it and its group are fine, what a group has where
    /// the group is, and whatever rows and the kernel have.
    fn stays(&self, shape: Shape, i: usize, extent: Extent) -> bool {
        let group = |i: usize| self.groups.get(i).copied().unwrap_or(false);
        match shape {
            Shape::Elem => {
                self.elements.get(i).copied().unwrap_or(false) && group(extent.index(Shape::Group, shape, i))
            }
            Shape::Group => group(i),
            _ => true,
        }
    }
}

/// Where a program's assumptions fail.
enum Failing {
    None,
    /// Only in what is assumed of elements and groups; which of them are fine.
    Some(Fine),
    /// In what is assumed of rows or constants.
    More,
}

fn failing(program: &Program, inputs: &[Vec<f64>], extent: Extent) -> Failing {
    if program.assumptions.is_empty() {
        return Failing::None;
    }
    let values = program.evaluate(inputs, extent);
    let all = |shape| vec![true; extent.len(shape)];
    let mut fine = Fine { elements: all(Shape::Elem), groups: all(Shape::Group) };
    let mut more = false;
    for a in &program.assumptions {
        // NaN is what the rules' own conditions are about; rounding may exceed a bound by a little of the bound itself.
        let slack = |bound: f64| if bound.is_finite() { 1e-6 * bound.abs() } else { 0.0 };
        let (lo, hi) = (a.range.lo - slack(a.range.lo), a.range.hi + slack(a.range.hi));
        let within = |x: f64| x.is_nan() || (lo <= x && x <= hi);
        let mut none = Vec::new();
        let list = match program.shapes[a.node] {
            Shape::Elem => &mut fine.elements,
            Shape::Group => &mut fine.groups,
            _ => &mut none,
        };
        for (i, _) in values[a.node].iter().enumerate().filter(|(_, x)| !within(**x)) {
            match list.get_mut(i) {
                Some(fine) => *fine = false,
                None => more = true,
            }
        }
    }
    let every = fine.elements.iter().chain(&fine.groups).all(|f| *f);
    match (more, every) {
        (true, _) => Failing::More,
        (false, true) => Failing::None,
        (false, false) => Failing::Some(fine),
    }
}

/// Whether the program's assumptions hold on these inputs.
pub(super) fn holds(program: &Program, inputs: &[Vec<f64>], extent: Extent) -> bool {
    matches!(failing(program, inputs, extent), Failing::None)
}

/// A value in f64 on sampled inputs. Two formulas of one value differ by f64's rounding, and a comparison of values that
/// nearly meet may turn by it: what follows from such a comparison is not certain, and tells no two terms apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sampled {
    pub(super) value: f64,
    pub(super) certain: bool,
    /// How far the rounding of f64, and of constants that rules work out, may have moved it.
    pub(super) error: f64,
}

/// The rounding of a constant that rules work out: they keep 40 bits of it.
const CONSTANT: f64 = 1.0 / (1u64 << 39) as f64;

impl Sampled {
    pub(super) const fn known(value: f64) -> Self {
        Self { value, certain: true, error: 0.0 }
    }

    fn new(value: f64, certain: bool, carried: f64) -> Self {
        let error = carried + value.abs() * f64::EPSILON;
        let known = error.is_finite();
        let error = if known { error } else { 0.0 };
        // Of what is infinite or NaN there is no error; of a number without a bound nothing is certain.
        Self { value, certain: certain && (known || !value.is_finite()), error }
    }
}

impl Number for Sampled {
    fn constant(x: f64) -> Self {
        Self { error: if x.is_finite() { x.abs() * CONSTANT } else { 0.0 }, ..Self::known(x) }
    }

    fn apply(op: Op, args: &[Self]) -> Self {
        let values: Vec<f64> = args.iter().map(|a| a.value).collect();
        let value = f64::apply(op, &values);
        let x = args.first().copied().unwrap_or(Self::known(f64::NAN));
        let y = args.get(1).copied().unwrap_or(Self::known(f64::NAN));
        let z = args.get(2).copied().unwrap_or(Self::known(f64::NAN));
        // An operand without error brings none, whatever it is multiplied by.
        let of = |error: f64, by: f64| if error == 0.0 { 0.0 } else { error * by.abs() };
        let product = || of(x.error, y.value) + of(y.error, x.value) + of(x.error, y.error);
        let ends = || {
            let at = |by: f64| (f64::apply(op, &[x.value + by]) - value).abs();
            if x.error == 0.0 { 0.0 } else { at(x.error).max(at(-x.error)) }
        };
        let carried = match op {
            Op::Neg | Op::Abs => x.error,
            Op::Add => x.error + y.error,
            Op::Mul => product(),
            Op::Fma => product() + z.error,
            Op::Div => (x.error + of(y.error, value)) / (y.value.abs() - y.error).max(0.0),
            Op::Max => x.error.max(y.error),
            Op::Select => y.error.max(z.error),
            Op::Lt | Op::Le | Op::Eq => 0.0,
            Op::Exp2 | Op::Log2 | Op::Rcp | Op::Sqrt | Op::SqrtRn | Op::Rsqrt | Op::Tanh | Op::Cvt(_) => {
                ends()
            }
            _ => 0.0,
        };
        let carried = if op == Op::Div && x.error == 0.0 && y.error == 0.0 { 0.0 } else { carried };
        let meets = match (op, values.as_slice()) {
            (Op::Lt | Op::Le | Op::Eq, &[a, b]) => {
                (a - b).abs() <= 1e-9 * a.abs().max(b.abs()) + 1e-12 + x.error + y.error
            }
            _ => false,
        };
        Self::new(value, !meets && args.iter().all(|a| a.certain), carried)
    }

    fn greater(self, other: Self) -> Self {
        let error = self.error.max(other.error);
        Self { value: self.value.greater(other.value), certain: self.certain && other.certain, error }
    }

    fn plus(self, other: Self) -> Self {
        Self::new(self.value.plus(other.value), self.certain && other.certain, self.error + other.error)
    }
}
