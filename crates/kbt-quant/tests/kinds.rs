//! Kernels of many kinds, compiled, lifted and searched: what is lifted computes what the kernel's formula says, and so
//! does everything that is claimed of it, on random inputs. The formulas here are in f64 and know nothing of PTX.

#![allow(clippy::unwrap_used, reason = "a test that cannot run has failed")]

mod nvcc;

use kbt_device::{Arch, embedded_profile};
use kbt_quant::lang::eval::{Extent, Number, Tracked};
use kbt_quant::lang::{Program, Shape};
use kbt_quant::lift::{Region, lift};
use kbt_quant::outcome::{FunctionOutcome, LiftOutcome, lift_outcome};
use kbt_quant::rewrite::Limits;
use kbt_toolchain::{NvccOptions, NvccOutput};

/// A piece's inputs of each shape, each in the order of its registers: parameters as they are declared, loads as they
/// are made.
struct Given {
    elements: Vec<Vec<f64>>,
    rows: Vec<f64>,
    parameters: Vec<f64>,
}

impl Given {
    /// One value for each element.
    fn each(&self, f: impl Fn(&[f64], &[f64]) -> f64) -> Vec<f64> {
        let count = self.elements[0].len();
        let at = |i: usize| self.elements.iter().map(|e| e[i]).collect::<Vec<f64>>();
        (0..count).map(|i| f(&at(i), &self.parameters)).collect()
    }
}

struct Case {
    kernel: &'static str,
    /// Whether something is to be claimed.
    pays: bool,
    /// Registers of loads that are not negative: second moments, which are no squares in the kernel.
    positive: &'static [usize],
    /// The outputs, in the order in which they are computed.
    formula: fn(&Given) -> Vec<Vec<f64>>,
}

fn mean(xs: &[f64]) -> f64 {
    xs.iter().sum::<f64>() / xs.len() as f64
}

fn most(xs: &[f64]) -> f64 {
    xs.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

const CASES: &[Case] = &[
    Case {
        kernel: "affine_of_parameters",
        // Its one element a thread pays for the division of the parameters, which a reciprocal does for less.
        pays: true,
        positive: &[],
        formula: |g| vec![g.each(|x, p| (x[0] - p[0]) * p[1] * p[1] + p[0] / p[1])],
    },
    Case {
        kernel: "affine_of_four",
        pays: true,
        positive: &[],
        formula: |g| vec![g.each(|x, p| (x[0] - p[0]) * p[1] * p[1])],
    },
    Case {
        kernel: "layer_norm",
        pays: false,
        positive: &[],
        formula: |g| {
            let m = mean(&g.elements[0]);
            let v = mean(&g.elements[0].iter().map(|x| (x - m).powi(2)).collect::<Vec<_>>());
            vec![g.each(|x, p| (x[0] - m) / (v + p[0]).sqrt() * x[1] + x[2])]
        },
    },
    Case {
        kernel: "rms_norm_rsqrt",
        pays: false,
        positive: &[],
        formula: |g| {
            let v = mean(&g.elements[0].iter().map(|x| x * x).collect::<Vec<_>>());
            vec![g.each(|x, p| x[0] / (v + p[0]).sqrt() * x[1])]
        },
    },
    Case {
        kernel: "softmax_scaled",
        pays: true,
        positive: &[],
        formula: |g| {
            let v = g.each(|x, p| x[0] * p[0] / p[1]);
            let m = most(&v);
            let sum: f64 = v.iter().map(|x| (x - m).exp()).sum();
            vec![v.iter().map(|x| (x - m).exp() / sum).collect()]
        },
    },
    Case {
        kernel: "sigmoid",
        pays: true,
        positive: &[],
        formula: |g| vec![g.each(|x, p| 1.0 / (1.0 + (-p[0] * (x[0] - p[1])).exp()))],
    },
    Case {
        kernel: "sigmoid_exact",
        pays: true,
        positive: &[],
        formula: |g| vec![g.each(|x, _| 1.0 / (1.0 + (-x[0]).exp()))],
    },
    Case {
        kernel: "softmax_exact",
        pays: true,
        positive: &[],
        formula: |g| {
            let m = most(&g.elements[0]);
            let sum: f64 = g.elements[0].iter().map(|x| (x - m).exp()).sum();
            vec![g.each(|x, _| (x[0] - m).exp() / sum)]
        },
    },
    Case {
        kernel: "ada_grad",
        pays: true,
        positive: &[4],
        formula: |g| {
            // Loads: gradient, sum of squares, weight.
            let sum = |x: &[f64]| x[1] + x[0] * x[0];
            vec![g.each(|x, _| sum(x)), g.each(|x, p| x[2] - p[0] * x[0] / (sum(x) + p[1]).sqrt())]
        },
    },
    Case {
        kernel: "silu_gate",
        pays: true,
        positive: &[],
        formula: |g| vec![g.each(|x, _| x[1] * x[0] / (1.0 + (-x[0]).exp()))],
    },
    Case {
        kernel: "quantise_groups",
        pays: true,
        positive: &[],
        formula: |g| {
            let m = most(&g.each(|x, _| x[0].abs()));
            let scale = (m / g.parameters[0]).max(g.parameters[1].powi(2));
            vec![vec![scale], g.each(|x, _| x[0] / scale)]
        },
    },
    Case {
        kernel: "adam",
        pays: true,
        positive: &[14],
        formula: |g| {
            // Parameters: rate, beta1, beta2, eps, both corrections, decay. Loads: gradient, m, v, w.
            let first = |x: &[f64], p: &[f64]| p[1] * x[1] + (1.0 - p[1]) * x[0];
            let second = |x: &[f64], p: &[f64]| p[2] * x[2] + (1.0 - p[2]) * x[0] * x[0];
            vec![
                g.each(first),
                g.each(second),
                g.each(|x, p| {
                    let step = first(x, p) / p[4] / ((second(x, p) / p[5]).sqrt() + p[3]);
                    x[3] - p[0] * (step + p[6] * x[3])
                }),
            ]
        },
    },
    Case {
        kernel: "cross_entropy",
        pays: true,
        positive: &[],
        formula: |g| {
            let x = &g.elements[0];
            let m = most(x);
            let sum: f64 = x.iter().map(|x| (x - m).exp()).sum();
            vec![vec![(m + sum.ln() - g.rows[0]) * (1.0 - g.parameters[0])]]
        },
    },
    Case {
        kernel: "huber",
        // c (|d| - c / 2) as one multiply-add needs c c / 2, which the thread would have to work out itself.
        pays: false,
        positive: &[],
        formula: |g| {
            vec![g.each(|x, p| {
                let d = (x[0] - x[1]).abs();
                if d < p[0] { 0.5 * d * d } else { p[0] * (d - 0.5 * p[0]) }
            })]
        },
    },
    Case {
        kernel: "leaky_relu",
        pays: true,
        positive: &[],
        formula: |g| vec![g.each(|x, _| if x[0] > 0.0 { x[0] } else { 0.01 * x[0] })],
    },
    Case {
        kernel: "hard_swish",
        pays: true,
        positive: &[],
        formula: |g| vec![g.each(|x, _| x[0] * (x[0] + 3.0).clamp(0.0, 6.0) / 6.0)],
    },
    Case {
        kernel: "gelu_tanh",
        pays: false,
        positive: &[],
        formula: |g| {
            let root = (2.0 / std::f64::consts::PI).sqrt();
            vec![g.each(|x, _| 0.5 * x[0] * (1.0 + (root * (x[0] + 0.044715 * x[0].powi(3))).tanh()))]
        },
    },
    Case {
        kernel: "online_softmax",
        // All there is to gain is the multiply-add that ptxas makes of a product and a difference.
        pays: false,
        positive: &[],
        formula: |g| {
            // The loop's own: the factor is worked out before it. Rows: running maximum and sum.
            let c = g.parameters[0];
            let now = most(&g.elements[0]).max(g.rows[0]);
            let p: Vec<f64> = g.elements[0].iter().map(|x| (x * c - now * c).exp2()).collect();
            let sum = g.rows[1] * (g.rows[0] * c - now * c).exp2() + p.iter().sum::<f64>();
            vec![vec![now], p, vec![sum]]
        },
    },
];

fn hash(seed: u64) -> f64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// The number in a register's name.
fn number(name: &str) -> usize {
    let digits: String =
        name.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// Random values of the inputs, as f32 has them; and the same by shape and register.
fn draw(program: &Program, extent: Extent, case: &Case, seed: u64) -> (Vec<Vec<f64>>, Given) {
    let values: Vec<Vec<f64>> = program
        .inputs
        .iter()
        .enumerate()
        .map(|(n, input)| {
            // Parameters are positive, and so is what roots are taken of; the rest is not.
            let (lo, hi) = match input.shape {
                Shape::Const => (0.25, 0.75),
                _ if case.positive.contains(&number(&input.name)) => (0.1, 3.0),
                _ => (-3.0, 3.0),
            };
            let one = |i: usize| {
                f64::from((lo + hash(seed << 40 | (n as u64) << 20 | i as u64) * (hi - lo)) as f32)
            };
            (0..extent.len(input.shape)).map(one).collect()
        })
        .collect();
    let of = |wanted: &dyn Fn(Shape) -> bool| {
        let mut found: Vec<(usize, Vec<f64>)> = Vec::new();
        for (input, values) in program.inputs.iter().zip(&values).filter(|(i, _)| wanted(i.shape)) {
            found.push((number(&input.name), values.clone()));
        }
        found.sort_by_key(|(register, _)| *register);
        found.into_iter().map(|(_, values)| values).collect::<Vec<_>>()
    };
    let single = |values: Vec<Vec<f64>>| values.into_iter().map(|v| v[0]).collect();
    let given = Given {
        elements: of(&|s| s == Shape::Elem),
        rows: single(of(&|s| matches!(s, Shape::Row | Shape::Group))),
        parameters: single(of(&|s| s == Shape::Const)),
    };
    (values, given)
}

/// The program's outputs are the formula's, in real arithmetic and in f32.
fn check(text: &str, case: &Case) {
    let program: Program = text.parse().unwrap_or_else(|e| panic!("{}: {e}\n{text}", case.kernel));
    let extent = Extent::new(program.layout, (program.layout.row / program.layout.group) as usize);
    for seed in 0..50 {
        let (inputs, given) = draw(&program, extent, case, seed);
        let expected = (case.formula)(&given);
        let reals = program.evaluate(&inputs, extent);
        let single = |v: &Vec<f64>| v.iter().map(|&x| Tracked::input(x as f32)).collect::<Vec<_>>();
        let singles = program.evaluate(&inputs.iter().map(single).collect::<Vec<_>>(), extent);
        assert_eq!(program.outputs.len(), expected.len(), "{}: {text}", case.kernel);
        for ((name, node), expected) in program.outputs.iter().zip(&expected) {
            assert_eq!(reals[*node].len(), expected.len(), "{} {name}: {text}", case.kernel);
            for ((real, single), expected) in reals[*node].iter().zip(&singles[*node]).zip(expected) {
                // Constants are f32 in the kernel and in the program.
                let near = 1e-6 * (1.0 + expected.abs());
                assert!(
                    (real - expected).abs() <= near,
                    "{} {name}: {real} is not {expected}\n{text}",
                    case.kernel
                );
                let apart = (f64::from(single.value) - expected).abs();
                assert!(
                    apart <= single.error + near && apart <= 1e-4 * (1.0 + expected.abs()) + near,
                    "{} {name}: {single:?} is not {expected}\n{text}",
                    case.kernel
                );
            }
        }
    }
}

fn outcome(extra: &[&str]) -> Option<LiftOutcome> {
    let tools = nvcc::tools("no kernels of many kinds were lifted")?;
    let options = NvccOptions {
        output: NvccOutput::Ptx,
        line_info: true,
        extra: extra.iter().map(|flag| (*flag).to_owned()).collect(),
        ..NvccOptions::new(Arch::SM_90A)
    };
    let source = nvcc::root().join("crates/kbt-quant/tests/cuda/kinds.cu");
    let text = String::from_utf8(nvcc::compile(&tools, &source, &options)).unwrap();
    let module = kbt_ptx::parse(&text).unwrap();
    assert_eq!(module.problems, []);
    let functions = lift(&module, &|_| true, &Region::Whole);
    let profile = embedded_profile("h200-sxm").unwrap().unwrap();
    Some(lift_outcome("kinds.ptx", &functions, &profile, &Limits::default()).unwrap())
}

fn check_all(out: &LiftOutcome, pays: impl Fn(&Case, &FunctionOutcome)) {
    for f in &out.functions {
        assert_eq!((f.unlifted.as_slice(), f.unread.as_slice()), (&[][..], &[][..]), "{}", f.name);
        // Sines are the only thing here that the language has no word for, and each refusal says where.
        let refused: Vec<&str> = f.refused.iter().map(|r| r.instruction.as_str()).collect();
        let expected = if f.name == "rope" { 2 } else { 0 };
        assert_eq!(refused.len(), expected, "{}: {refused:?}", f.name);
        assert!(f.refused.iter().all(|r| r.places.iter().all(|p| p.source.is_some())), "{:?}", f.refused);
        for piece in &f.pieces {
            assert!(piece.rewrite.rejected.is_empty(), "{}: {:?}", f.name, piece.rewrite.rejected);
            assert!(piece.rewrite.graph.saturated, "{}", f.name);
        }
    }
    for case in CASES {
        let f = out.functions.iter().find(|f| f.name == case.kernel).unwrap();
        let [piece] = f.pieces.as_slice() else { panic!("{}: {} pieces", f.name, f.pieces.len()) };
        check(&piece.program, case);
        for candidate in &piece.rewrite.candidates {
            check(&candidate.program, case);
        }
        pays(case, f);
    }
}

#[test]
fn every_kind_is_lifted_whole_and_computes_its_formula_and_so_does_what_is_claimed() {
    let Some(out) = outcome(&[]) else { return };
    check_all(&out, |case, f| {
        assert_eq!(f.pieces[0].claim.pays, case.pays, "{}: {:?}", case.kernel, f.pieces[0].claim)
    });
}

#[test]
fn the_same_holds_of_code_compiled_with_fast_math() {
    let Some(out) = outcome(&["--use_fast_math"]) else { return };
    check_all(&out, |_, _| {});
}

#[test]
fn a_wrong_program_is_told_from_its_formula() {
    let case = CASES.iter().find(|c| c.kernel == "leaky_relu").unwrap();
    let text = "layout group=1 row=1\nelem f1\nout y = select(lt(0, f1), f1, f1 * 0.01)\n";
    check(text, case);
    for (right, wrong) in
        [("0.01", "0.0101"), ("lt(0, f1)", "lt(f1, 0)"), ("f1 * 0.01)", "f1 * 0.01) + 2^-15")]
    {
        let wrong = text.replace(right, wrong);
        assert!(std::panic::catch_unwind(|| check(&wrong, case)).is_err(), "{wrong}");
    }
    // What the evaluation itself is worth: an error bound that is too small would be seen.
    let x = <Tracked as Number>::constant(0.1);
    assert!(x.error > 0.0 && (f64::from(x.value) - 0.1).abs() <= x.error);
}
