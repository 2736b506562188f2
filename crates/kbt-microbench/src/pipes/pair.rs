//! Two instructions and the times of their mixes: what they share, as far as these times can tell.
//!
//! The model: each instruction occupies resources for so many cycles, and a mix takes as long as its busiest
//! resource, `T = max over r of (sum of n_i * usage_ir)`; the issue port, one instruction a cycle, is one of them, and
//! the register ports, whose demand the machine code tells, are another.

/// Times within this of each other are the same: about twice a measuring error of 1 %.
pub(crate) const SAME: f64 = 0.025;
/// Times up to this much above what the register ports need at most are explained by them: the two banks are not asked
/// alike at every moment.
pub(crate) const PORTS: f64 = 0.08;
/// What waiting warps may lose where two resources are busy, and where both are full nearly all the time: a time this
/// close to the least asks for no further use.
const LOSS: [f64; 2] = [0.06, 0.3];
/// Both are nearly full where the shorter time is this share of the longer.
const BALANCED: f64 = 0.8;
/// Above this share of what two have in common at most, they are called one even if they are a little faster.
const NEARLY: f64 = 0.8;
/// A use of a bottleneck this close to all of it is all of it.
const WHOLE: f64 = 0.9;
/// Usages are whole or half cycles.
pub(crate) const STEP: f64 = 0.5;

/// One instruction as the model sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Alone {
    /// Cycles an operation, alone.
    pub cycles: f64,
    /// Instructions an operation issues.
    pub issued: f64,
    /// Cycles of the register ports for an operation, at least and at most; 0 where that is not known.
    pub ports: [f64; 2],
    /// Usages of an operation are multiples of this: whole or half cycles of an opcode that may come once in several.
    pub step: f64,
}

impl Alone {
    /// Whether it fills the issue port by itself, so that nothing slower can be seen behind it.
    pub(crate) fn fills_issue(&self) -> bool {
        self.cycles <= self.issued * (1.0 + SAME)
    }

    /// Whether the register ports alone explain its time.
    pub(crate) fn fills_ports(&self) -> bool {
        self.cycles <= self.ports[1] * (1.0 + PORTS)
    }

    /// Whether a resource that the machine code tells is its bottleneck.
    pub(crate) fn fills_known(&self) -> bool {
        self.fills_issue() || self.fills_ports()
    }
}

/// One mix of a pair: operations of the first and of the second, and the time of a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    pub counts: [f64; 2],
    pub cycles: f64,
    /// Cycles of the register ports for the round, at least and at most; 0 where that is not known.
    pub ports: [f64; 2],
}

impl Point {
    /// Whether the register ports explain the time, so that it says nothing of pipes but an upper bound.
    fn is_by_ports(&self) -> bool {
        self.cycles <= self.ports[1] * (1.0 + PORTS)
    }
}

/// What a pair shares.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Relation {
    /// Not measured.
    Untested,
    /// Measured, but the issue or register ports allow no more than a shared resource would.
    Hidden,
    /// Their times add up: the bottleneck of each is one and the same. `clear` unless it is a little faster.
    Full { clear: bool },
    /// As fast as the slower of the two, or as the issue or register ports.
    Apart,
    /// Something in between.
    Between,
}

impl Relation {
    pub(crate) const fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. })
    }
    /// Measured to be no full sharing.
    pub(crate) const fn is_not_full(&self) -> bool {
        matches!(self, Self::Apart | Self::Between)
    }
}

/// What the model allows a point: at least, and at most.
fn bounds(a: Alone, b: Alone, p: &Point) -> (f64, f64) {
    let [n, m] = p.counts;
    let (x, y) = (n * a.cycles, m * b.cycles);
    (x.max(y).max(n * a.issued + m * b.issued).max(p.ports[0]), x + y)
}

/// The relation that the points of a pair show.
pub(crate) fn relation(a: Alone, b: Alone, points: &[Point]) -> Relation {
    if points.is_empty() {
        return Relation::Untested;
    }
    let (mut full, mut nearly, mut apart, mut seen) = (true, true, true, false);
    for p in points {
        let (least, most) = bounds(a, b, p);
        let adds_up = p.cycles >= most * (1.0 - SAME);
        if least * (1.0 + SAME) >= most * (1.0 - SAME) || (p.is_by_ports() && adds_up) {
            continue;
        }
        seen = true;
        full &= adds_up;
        nearly &= (p.cycles - least) / (most - least) >= NEARLY && !p.is_by_ports();
        apart &= p.cycles <= least * (1.0 + SAME) || p.is_by_ports();
    }
    match (seen, full, nearly, apart) {
        (false, ..) => Relation::Hidden,
        (_, true, ..) => Relation::Full { clear: true },
        (_, _, _, true) => Relation::Apart,
        (_, _, true, _) => Relation::Full { clear: false },
        _ => Relation::Between,
    }
}

/// The cycles that an operation of `a` occupies the bottleneck of `b`: least and most that the points allow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Range {
    pub least: f64,
    pub most: f64,
    /// Whether some use explains the points at all.
    pub explained: bool,
}

/// What `a` may use of the bottleneck of `b`. Explanations tried: a use of `b`'s bottleneck by `a`, one of `a`'s by
/// `b`, both; and only where none of these explains the points, a third resource that both use in part.
pub(crate) fn usage(a: Alone, b: Alone, points: &[Point]) -> Range {
    let limit = |s: Alone| ((s.cycles * WHOLE / s.step).floor() as u32).max(1);
    // A bound that holds whatever else is shared: b alone takes its time, and a's use comes on top.
    let top = points
        .iter()
        .map(|p| (p.cycles * (1.0 + SAME) - p.counts[1] * b.cycles) / p.counts[0])
        .fold(a.cycles, f64::min)
        .max(0.0);
    let allowed = |times: &[f64]| times.iter().zip(points).all(|(t, p)| *t <= p.cycles * (1.0 + SAME));
    // Bit k: the point k is as long as this says.
    let mask = |times: &[f64]| {
        let meets = |(k, (t, p)): (usize, (&f64, &Point))| u32::from(*t >= p.cycles * (1.0 - SAME)) << k;
        times.iter().zip(points).enumerate().map(meets).sum::<u32>()
    };
    let times = |f: &dyn Fn(&Point) -> f64| points.iter().map(f).collect::<Vec<f64>>();
    let all = (1u32 << points.len()) - 1;
    let floor = mask(&times(&|p| {
        let least = bounds(a, b, p).0;
        let [x, y] = [p.counts[0] * a.cycles, p.counts[1] * b.cycles];
        let loss = LOSS[usize::from(x.min(y) >= BALANCED * x.max(y))];
        if p.is_by_ports() || p.cycles <= least * (1.0 + loss) { p.cycles } else { least }
    }));
    let steps =
        |s: Alone| (0..=limit(s)).map(move |k| f64::from(k) * s.step).filter(move |u| *u <= s.cycles * WHOLE);
    let of = |first: f64, second: f64| times(&|p: &Point| p.counts[0] * first + p.counts[1] * second);
    let by_b: Vec<u32> = steps(b).map(|y| of(a.cycles, y)).filter(|t| allowed(t)).map(|t| mask(&t)).collect();
    let third = || -> Vec<u32> {
        let pairs = steps(a).flat_map(|p| steps(b).map(move |q| (p, q)));
        pairs.map(|(p, q)| of(p, q)).filter(|t| allowed(t)).map(|t| mask(&t)).collect()
    };
    let fits = |others: &[u32]| -> Vec<f64> {
        let covers = |x: &f64| {
            let t = of(*x, b.cycles);
            allowed(&t) && others.iter().any(|m| m | mask(&t) | floor == all)
        };
        steps(a).filter(covers).collect()
    };
    let mut found = fits(&by_b);
    if found.is_empty() {
        found = fits(&third());
    }
    match (found.first(), found.last()) {
        (Some(&least), Some(&most)) => Range { least, most, explained: true },
        _ => Range { least: 0.0, most: top, explained: false },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALU: Alone = Alone { cycles: 2.0, issued: 1.0, ports: [0.0; 2], step: STEP };
    const XU: Alone = Alone { cycles: 8.0, issued: 1.0, ports: [0.0; 2], step: STEP };

    fn points(list: &[(f64, f64, f64)]) -> Vec<Point> {
        list.iter().map(|&(n, m, cycles)| Point { counts: [n, m], cycles, ports: [0.0; 2] }).collect()
    }

    #[test]
    fn times_that_add_up_are_one_bottleneck_and_the_slower_of_two_is_none() {
        assert_eq!(relation(ALU, ALU, &points(&[(3.0, 5.0, 15.8)])), Relation::Full { clear: true });
        assert_eq!(relation(ALU, ALU, &points(&[(3.0, 5.0, 10.2)])), Relation::Apart);
        // Nearly: until another ratio contradicts.
        assert_eq!(relation(ALU, ALU, &points(&[(3.0, 5.0, 15.0)])), Relation::Full { clear: false });
        let more = points(&[(3.0, 5.0, 15.0), (5.0, 3.0, 12.0)]);
        assert_eq!(relation(ALU, ALU, &more), Relation::Between);
        assert_eq!(relation(ALU, XU, &points(&[(7.0, 1.0, 18.0)])), Relation::Between);
        assert_eq!(relation(ALU, XU, &[]), Relation::Untested);
        let fma = Alone { cycles: 1.0, ..ALU };
        assert!(fma.fills_issue() && !ALU.fills_issue());
        assert_eq!(relation(fma, fma, &points(&[(3.0, 5.0, 8.0)])), Relation::Hidden);
    }

    #[test]
    fn a_time_that_the_register_ports_explain_says_nothing_of_pipes() {
        let with = |list: &[(f64, f64, f64)], ports: f64| {
            points(list).into_iter().map(|p| Point { ports: [0.5 * ports, ports], ..p }).collect::<Vec<_>>()
        };
        // Slower than separate pipes would be, and no slower than the operands can be read.
        let between = [(3.0, 5.0, 12.5)];
        assert_eq!(relation(ALU, ALU, &with(&between, 0.0)), Relation::Between);
        assert_eq!(relation(ALU, ALU, &with(&between, 12.0)), Relation::Apart);
        assert_eq!(usage(ALU, ALU, &with(&between, 12.0)).least, 0.0);
        assert_eq!(relation(ALU, ALU, &with(&between, 10.5)), Relation::Between);
        // Times that add up because of the ports are no evidence of one pipe.
        assert_eq!(relation(ALU, ALU, &with(&[(3.0, 5.0, 16.0)], 15.8)), Relation::Hidden);
        let wide = Alone { cycles: 2.45, issued: 2.0, ports: [1.0, 2.4], step: STEP };
        assert!(
            wide.fills_known() && !wide.fills_issue() && !Alone { ports: [1.0, 2.2], ..wide }.fills_known()
        );
    }

    #[test]
    fn a_half_use_is_found_by_two_ratios() {
        // XU operations that also take the ALU for two cycles.
        let found = usage(XU, ALU, &points(&[(1.0, 7.0, 16.0), (1.0, 2.0, 8.0)]));
        assert_eq!((found.least, found.most, found.explained), (2.0, 2.0, true));
    }

    #[test]
    fn an_opcode_that_comes_once_in_several_operations_is_used_in_smaller_steps() {
        // Twelve operations hold one of what the other is alone: six of those together, eight cycles each and a little.
        let read = Alone { cycles: 8.0, issued: 3.0, ..ALU };
        let mixed = points(&[(5.0, 12.0, 50.6)]);
        let twelfths = Alone { cycles: 2.1, issued: 1.25, step: STEP / 12.0, ..ALU };
        assert_eq!(usage(read, twelfths, &mixed).least, 0.0);
        // In whole steps only a use that is none would explain it.
        assert!(usage(read, Alone { step: STEP, ..twelfths }, &mixed).least > 4.0);
    }

    #[test]
    fn one_ratio_leaves_two_explanations_open() {
        let found = usage(ALU, ALU, &points(&[(5.0, 5.0, 15.0)]));
        assert!(found.explained && found.least < found.most, "{found:?}");
    }

    #[test]
    fn a_third_resource_is_told_from_a_partial_use_by_three_ratios() {
        // Both use 1.5 of 2 cycles of something else.
        let time = |n: f64, m: f64| (1.5 * (n + m)).max(2.0 * n.max(m));
        let at = |n: f64, m: f64| (n, m, time(n, m));
        let found = usage(ALU, ALU, &points(&[at(3.0, 5.0), at(5.0, 3.0), at(5.0, 5.0)]));
        assert!(found.explained && found.least == 0.0 && found.most < 0.6, "{found:?}");
    }

    #[test]
    fn what_no_use_explains_says_so_and_still_has_a_bound() {
        let found = usage(ALU, ALU, &points(&[(3.0, 5.0, 10.0), (5.0, 3.0, 15.0)]));
        assert!(!found.explained && found.most < 0.2, "{found:?}");
    }
}
