//! What programs compute: in f64 as the reals, and in f32 operation by operation with a running error bound.
//!
//! One environment is one row of inputs. Values of shape `Row` and `Const` have one entry, `Group` one a group,
//! `Elem` one an element, `Lane` one a group and lane.

use super::{Layout, Op, Program, Shape};
use crate::format::{Conversion, Format};
use std::cmp::Ordering;

/// Relative error of `ex2.approx.ftz.f32`, `lg2.approx.ftz.f32`, `sqrt.approx.ftz.f32` and `rsqrt.approx.ftz.f32` that
/// bounds allow: 2^-22 (PTX ISA 9.0 states 2 ulp for ex2.approx, 2^-22 absolute near 1 for lg2.approx, less than 2^-22
/// for both roots).
pub const APPROXIMATE: f64 = 1.0 / 4_194_304.0;
/// Relative error of `tanh.approx.f32` that bounds allow (PTX ISA 9.0).
pub const TANH: f64 = 1.0 / 2048.0;
/// Relative error of one correctly rounded f32 operation.
pub const ROUNDED: f64 = 1.0 / 16_777_216.0;

/// The lengths of values over one row.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    layout: Layout,
    groups: usize,
}

impl Extent {
    /// A row of `groups` groups.
    #[must_use]
    pub const fn new(layout: Layout, groups: usize) -> Self {
        Self { layout, groups }
    }

    /// Entries of a value of this shape.
    #[must_use]
    pub const fn len(self, shape: Shape) -> usize {
        match shape {
            Shape::Const | Shape::Row => 1,
            Shape::Group => self.groups,
            Shape::Lane => self.groups * self.layout.lanes as usize,
            Shape::Elem => self.groups * self.layout.group as usize,
        }
    }

    /// The entry of a value of `from` that goes with entry `i` of one of `to`.
    #[must_use]
    pub const fn index(self, from: Shape, to: Shape, i: usize) -> usize {
        if self.len(from) == 1 { 0 } else { i / (self.len(to) / self.len(from)) }
    }
}

/// A kind of number that programs are evaluated over.
pub trait Number: Copy {
    /// A constant.
    fn constant(x: f64) -> Self;
    /// An operation that is not a reduction; `args` has as many operands as it takes.
    fn apply(op: Op, args: &[Self]) -> Self;
    /// The greater, as machine code has it: a number wins over NaN.
    fn greater(self, other: Self) -> Self;
    /// The sum.
    fn plus(self, other: Self) -> Self;
}

/// The value of one node from those of its operands. `args` pairs each operand's shape with its values.
pub fn apply<N: Number>(op: Op, shape: Shape, args: &[(Shape, &[N])], extent: Extent) -> Vec<N> {
    let fold = |combine: fn(N, N) -> N| -> Vec<N> {
        let Some((from, values)) = args.first() else { return Vec::new() };
        let each = extent.len(*from) / extent.len(shape);
        values.chunks(each.max(1)).filter_map(|chunk| chunk.iter().copied().reduce(combine)).collect()
    };
    match op {
        Op::GroupMax | Op::RowMax => fold(N::greater),
        Op::GroupSum | Op::LaneSum | Op::RowSum => fold(N::plus),
        Op::Num(bits) => vec![N::constant(f64::from_bits(bits))],
        _ => (0..extent.len(shape))
            .map(|i| {
                let at: Vec<N> =
                    args.iter().map(|(from, values)| values[extent.index(*from, shape, i)]).collect();
                N::apply(op, &at)
            })
            .collect(),
    }
}

impl Program {
    /// The values of all nodes; `inputs` has the values of each input.
    pub fn evaluate<N: Number>(&self, inputs: &[Vec<N>], extent: Extent) -> Vec<Vec<N>> {
        let mut values: Vec<Vec<N>> = Vec::with_capacity(self.nodes.len());
        for (node, &shape) in self.nodes.iter().zip(&self.shapes) {
            let value = match node.op {
                Op::Input(i) => inputs[i as usize].clone(),
                op => {
                    let args: Vec<(Shape, &[N])> =
                        node.args.iter().map(|&a| (self.shapes[a], values[a].as_slice())).collect();
                    apply(op, shape, &args, extent)
                }
            };
            values.push(value);
        }
        values
    }
}

/// How a conversion of the language converts.
#[must_use]
pub fn conversion(format: Format) -> Conversion {
    Conversion::usual(format)
}

impl Number for f64 {
    fn constant(x: f64) -> Self {
        x
    }

    fn apply(op: Op, args: &[Self]) -> Self {
        let x = args.first().copied().unwrap_or(Self::NAN);
        let y = args.get(1).copied().unwrap_or(Self::NAN);
        match op {
            Op::Neg => -x,
            Op::Abs => x.abs(),
            Op::Exp2 => x.exp2(),
            Op::Log2 => x.log2(),
            Op::Rcp => 1.0 / x,
            Op::Add => x + y,
            Op::Mul => x * y,
            Op::Div => x / y,
            Op::Fma => x.mul_add(y, args.get(2).copied().unwrap_or(Self::NAN)),
            Op::Sqrt | Op::SqrtRn => x.sqrt(),
            Op::Rsqrt => 1.0 / x.sqrt(),
            Op::Tanh => x.tanh(),
            Op::Max => x.greater(y),
            Op::Lt => Self::from(u8::from(x < y)),
            Op::Le => Self::from(u8::from(x <= y)),
            Op::Eq => Self::from(u8::from(x == y)),
            Op::Select if x != 0.0 => y,
            Op::Select => args.get(2).copied().unwrap_or(Self::NAN),
            Op::Cvt(format) => Self::from(conversion(format).round(sticky(x))),
            _ => x,
        }
    }

    fn greater(self, other: Self) -> Self {
        self.max(other)
    }

    fn plus(self, other: Self) -> Self {
        self + other
    }
}

/// The f32 that converts as `x` does: rounded to odd, so that no cut point is crossed.
#[must_use]
pub fn sticky(x: f64) -> f32 {
    let nearest = x as f32;
    if !nearest.is_finite() || f64::from(nearest) == x || x.is_nan() {
        // Beyond f32 every conversion saturates alike; infinity only where x is.
        return if nearest.is_infinite() && x.is_finite() { f32::MAX.copysign(nearest) } else { nearest };
    }
    // Towards zero, then the last bit set.
    let truncated =
        if f64::from(nearest).abs() > x.abs() { nearest.to_bits() - 1 } else { nearest.to_bits() };
    f32::from_bits(truncated | 1)
}

/// An f32 as a kernel would have it, beside the real value and how far apart they may lie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tracked {
    /// The f32, with exp2, log2, rcp, roots and tanh correctly rounded; results of exp2 and rcp and operands of
    /// approximate roots are flushed below 2^-126.
    pub value: f32,
    /// The real value (to f64's precision).
    pub real: f64,
    /// A bound on |value - real| for any implementation within the stated errors, the GPU's included.
    pub error: f64,
}

impl Tracked {
    /// An input: exact.
    #[must_use]
    pub const fn input(x: f32) -> Self {
        Self { value: x, real: x as f64, error: 0.0 }
    }

    /// A conversion is a staircase: the error of its result is what the operand's reaches, whole steps or nothing.
    fn converted(format: Format, x: Self) -> Self {
        let to = conversion(format);
        let end = |x: f64| f64::from(to.round(sticky(x)));
        let (value, real) = (to.round(x.value), end(x.real));
        let apart = (f64::from(value) - real).abs();
        let ends = if x.error > 0.0 { [end(x.real - x.error), end(x.real + x.error)] } else { [real; 2] };
        let error = ends.iter().map(|end| (end - real).abs()).fold(apart, f64::max);
        Self::new(value, real, error)
    }

    fn new(value: f32, real: f64, error: f64) -> Self {
        let agree = value as f64 == real || (value.is_nan() && real.is_nan());
        let error = if agree && !error.is_finite() { 0.0 } else { error };
        Self { value, real, error }
    }
}

/// How far a root of what lies within `error` of `x` may lie from that of `x`.
fn root_error(x: f64, error: f64, root: fn(f64) -> f64) -> f64 {
    if error == 0.0 {
        return 0.0;
    }
    (root((x - error).max(0.0)) - root(x)).abs().max((root(x + error) - root(x)).abs())
}

fn flush(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE { 0.0f32.copysign(x) } else { x }
}

impl Number for Tracked {
    fn constant(x: f64) -> Self {
        Self::new(x as f32, x, (f64::from(x as f32) - x).abs())
    }

    fn apply(op: Op, args: &[Self]) -> Self {
        let nan = Self { value: f32::NAN, real: f64::NAN, error: 0.0 };
        let x = args.first().copied().unwrap_or(nan);
        let y = args.get(1).copied().unwrap_or(nan);
        let tiny = f64::from(f32::MIN_POSITIVE);
        let real = |op| f64::apply(op, &args.iter().map(|a| a.real).collect::<Vec<_>>());
        // The error of the operands carried through, plus the rounding of the result.
        match op {
            Op::Neg => Self::new(-x.value, -x.real, x.error),
            Op::Abs => Self::new(x.value.abs(), x.real.abs(), x.error),
            Op::Add => x.plus(y),
            Op::Mul => {
                let value = x.value * y.value;
                let carried = x.real.abs() * y.error + y.real.abs() * x.error + x.error * y.error;
                Self::new(value, real(op), carried + f64::from(value).abs() * ROUNDED + tiny * ROUNDED)
            }
            Op::Fma => {
                let z = args.get(2).copied().unwrap_or(nan);
                let value = x.value.mul_add(y.value, z.value);
                let carried = x.real.abs() * y.error + y.real.abs() * x.error + x.error * y.error + z.error;
                Self::new(value, real(op), carried + f64::from(value).abs() * ROUNDED + tiny * ROUNDED)
            }
            Op::Div => {
                let value = x.value / y.value;
                let relative = y.error / (y.real.abs() - y.error).max(tiny);
                let carried = x.error / y.real.abs() + real(op).abs() * relative;
                Self::new(value, real(op), carried + f64::from(value).abs() * ROUNDED + tiny * ROUNDED)
            }
            Op::Rcp => {
                let value = flush(1.0 / x.value);
                let relative = x.error / (x.real.abs() - x.error).max(tiny) + APPROXIMATE;
                Self::new(value, real(op), real(op).abs() * relative + tiny)
            }
            Op::Exp2 => {
                let value = flush(f64::from(x.value).exp2() as f32);
                let relative = (x.error * std::f64::consts::LN_2).exp_m1() + APPROXIMATE;
                Self::new(value, real(op), real(op) * relative + tiny)
            }
            Op::Log2 => {
                let value = f64::from(x.value).log2() as f32;
                let relative = x.error / (x.real.abs() - x.error).max(tiny);
                let carried = relative / std::f64::consts::LN_2;
                Self::new(value, real(op), carried + APPROXIMATE * (1.0 + f64::from(value).abs()))
            }
            Op::Sqrt | Op::SqrtRn => {
                let value = if op == Op::Sqrt { flush(x.value).sqrt() } else { x.value.sqrt() };
                // Below the least normal f32 the operand may be flushed.
                let flushed = if op == Op::Sqrt && x.real.abs() - x.error < tiny { tiny.sqrt() } else { 0.0 };
                let own = if op == Op::Sqrt { APPROXIMATE } else { ROUNDED };
                let carried = root_error(x.real, x.error, f64::sqrt);
                Self::new(value, real(op), carried + f64::from(value).abs() * own + flushed)
            }
            Op::Rsqrt => {
                let value = flush(x.value).sqrt().recip();
                let carried = root_error(x.real, x.error, |x| 1.0 / x.sqrt());
                let flushed = if x.real.abs() - x.error < tiny { f64::INFINITY } else { 0.0 };
                Self::new(value, real(op), carried + real(op).abs() * APPROXIMATE + flushed)
            }
            Op::Tanh => {
                let value = f64::from(x.value).tanh() as f32;
                // The slope is 1 at most.
                Self::new(value, real(op), x.error.min(2.0) + f64::from(value).abs() * TANH + tiny)
            }
            Op::Lt | Op::Le | Op::Eq => {
                let value = f64::apply(op, &[f64::from(x.value), f64::from(y.value)]);
                // Where the operands' errors may turn the comparison, the result is known to lie in [0, 1] only.
                let errors = x.error + y.error;
                let apart = (x.real - y.real).abs().partial_cmp(&errors) == Some(Ordering::Greater);
                let turns = errors != 0.0 && !apart;
                Self { value: value as f32, real: real(op), error: if turns { 1.0 } else { 0.0 } }
            }
            Op::Select => {
                let z = args.get(2).copied().unwrap_or(nan);
                let (value, other) = if x.value == 0.0 { (z, y) } else { (y, z) };
                if x.error == 0.0 {
                    return value;
                }
                // Either arm is right: the error reaches from the one to the other.
                let apart = (value.real - other.real).abs() + value.error.max(other.error);
                let error = if apart.is_nan() { f64::INFINITY } else { apart };
                Self { value: value.value, real: real(op), error }
            }
            Op::Max => x.greater(y),
            Op::Cvt(format) => Self::converted(format, x),
            _ => x,
        }
    }

    fn greater(self, other: Self) -> Self {
        let error = match (self.real.is_nan(), other.real.is_nan()) {
            (true, _) => other.error,
            (_, true) => self.error,
            _ => self.error.max(other.error),
        };
        Self::new(self.value.max(other.value), self.real.max(other.real), error)
    }

    fn plus(self, other: Self) -> Self {
        let value = self.value + other.value;
        let error = self.error + other.error + f64::from(value).abs() * ROUNDED;
        Self::new(value, self.real + other.real, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting_and_reductions_follow_shapes() {
        let text = "layout group=4 lanes=2 row=8\nelem s\nrow m\nout a = group_max(s) + m\nout b = row_sum(lane_sum(s))";
        let program: Program = text.parse().unwrap();
        let extent = Extent::new(program.layout, 2);
        let s = vec![1.0, 2.0, 3.0, 4.0, 8.0, 7.0, 6.0, 5.0];
        let values = program.evaluate(&[s, vec![10.0f64]], extent);
        assert_eq!(values[program.outputs[0].1], [14.0, 18.0]);
        assert_eq!(values[program.outputs[1].1], [36.0]);
        let lane = program.nodes.iter().position(|n| n.op == Op::LaneSum).unwrap();
        assert_eq!(values[lane], [3.0, 7.0, 15.0, 11.0]);
    }

    #[test]
    fn a_sticky_f32_never_crosses_a_cut_point() {
        for (x, code) in [(0.25 + 1e-12, 1), (0.25, 0), (0.75 - 1e-12, 1), (5.0 + 1e-9, 7), (5.0, 6)] {
            assert_eq!(conversion(Format::E2m1).encode(sticky(x)), code, "{x}");
        }
        assert_eq!(sticky(1e300), f32::MAX);
        assert_eq!(sticky(f64::NEG_INFINITY), f32::NEG_INFINITY);
    }

    #[test]
    fn roots_and_choices_are_bounded_and_a_comparison_that_may_turn_is_known_to() {
        let head = "layout group=1 row=8\nelem s\nr = 0.1 * s\n";
        let program: Program = format!(
            "{head}out a = sqrt(r * r + 0.3) + rsqrt(r * r + 0.3) + sqrt_rn(r * r)\nout b = tanh(r)\n\
             out c = select(lt(r * 10, s), 3, -2)\nout d = select(eq(s, 2), r, s)\nout e = select(le(s, 0), -inf, 1)"
        )
        .parse()
        .unwrap();
        let s: Vec<f32> = (0..8).map(|i| i as f32 - 3.0).collect();
        let values =
            program.evaluate(&[s.into_iter().map(Tracked::input).collect()], Extent::new(program.layout, 8));
        let of = |name: &str| &values[program.outputs.iter().find(|(n, _)| n == name).unwrap().1];
        for (name, relative) in [("a", 1e-5), ("b", 1e-3), ("d", 1e-6)] {
            for y in of(name) {
                let apart = (f64::from(y.value) - y.real).abs();
                assert!(apart <= y.error && y.error <= relative * (y.real.abs() + 1e-3), "{name} {y:?}");
            }
        }
        // 0.1 s 10 against s: rounding decides, so either arm is right, and the bound reaches from one to the other.
        assert!(of("c").iter().filter(|y| y.real.abs() > 0.0).all(|y| y.error >= 5.0), "{:?}", of("c"));
        // Inputs are exact, and so is what is said of them.
        assert!(of("e").iter().all(|y| y.error == 0.0), "{:?}", of("e"));
    }

    #[test]
    fn a_conversion_is_off_by_a_step_where_its_operand_may_cross_a_boundary() {
        let at = |real: f64, error: f64| {
            let x = Tracked { value: real as f32, real, error };
            let y = Tracked::apply(Op::Cvt(Format::E2m1), &[x]);
            (y.value, y.error)
        };
        assert_eq!(at(2.5, 0.0), (2.0, 0.0));
        assert_eq!(at(2.5, 1e-7), (2.0, 1.0), "2 or 3");
        assert_eq!(at(2.6, 1e-7), (3.0, 0.0));
        assert_eq!(at(0.3, 3.0), (0.5, 3.5), "from -3 to 3");
        assert_eq!(at(2.6, f64::INFINITY), (3.0, 9.0));
    }

    #[test]
    fn the_error_bound_holds_on_a_chain() {
        let text = "layout group=1 row=8\nelem s\nout y = exp2(fma(s, 0.1803, 3.7)) / 7.3 + log2(s * s + 1)";
        let program: Program = text.parse().unwrap();
        let extent = Extent::new(program.layout, 8);
        let s: Vec<f32> = (0..8).map(|i| i as f32 * 3.37 - 11.0).collect();
        let values = program.evaluate(&[s.into_iter().map(Tracked::input).collect()], extent);
        for y in &values[program.outputs[0].1] {
            let apart = (f64::from(y.value) - y.real).abs();
            assert!(apart <= y.error && y.error < 1e-4 * y.real.abs(), "{y:?}");
        }
    }
}
