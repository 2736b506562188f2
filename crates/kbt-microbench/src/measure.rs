//! From clock counts to a rate: bodies of U and 2U operations at the same trip count, warps x chains swept to
//! the plateau, repeats with their spread, and a latency from one chain in one warp.
//!
//! The device is behind a trait, so all of this runs against a model of one in tests.

use crate::prepare::{Prepared, Verified};

/// Warps an SM that are swept.
const WARPS: [u32; 4] = [4, 8, 16, 32];
/// Cycles that the smaller body's window should last: long enough that warps starting and ending apart do not
/// matter, short enough for some hundred rows.
const WINDOW_CYCLES: f64 = 40_000.0;
/// Repeats at the best point.
const REPEATS: usize = 11;
/// Repeats that lie further apart than this are made again in a longer window, in which what disturbs them is less.
pub const STEADY_PERCENT: f64 = 0.5;
/// How much longer, one after the other.
const LONGER: [f64; 2] = [4.0, 16.0];
/// Most trips of a window.
const MOST_TRIPS: f64 = 131_072.0;
/// Two points this close are one plateau.
const PLATEAU: f64 = 0.01;
/// Warp instructions that an SM's four schedulers issue a clock.
pub const ISSUE_PER_CLK: f64 = 4.0;

/// Runs a kernel and reads its clocks.
pub trait Runner {
    /// Cycles from the first warp's start to the last warp's end in an SM, the median over the SMs.
    fn cycles(&mut self, kernel: &str, chains: u32, warps: u32, trips: u32) -> Result<f64, String>;
}

/// What was measured of one form.
#[derive(Debug, Clone, PartialEq)]
pub struct FormRate {
    /// SM cycles for one operation of a warp, all warps together: 32 / lanes.
    pub clk_per_op: f64,
    /// The same with the loop's own instructions in it, of the larger body: the instruction takes no longer than this,
    /// whatever the loop costs.
    pub with_loop_clk: f64,
    /// p10 to p90 over the repeats, relative to the median.
    pub spread_percent: f64,
    /// Warps an SM at the best point.
    pub warps: u32,
    /// Chains a thread at the best point.
    pub chains: u32,
    /// Whether a point with less, or with more, of both is as fast: the sweep reached the top.
    pub plateau: bool,
    /// Cycles from one operation to the next that needs its result; `None` where the form cannot tell.
    pub latency_clk: Option<f64>,
}

impl FormRate {
    /// Operations of a lane a clock and SM.
    #[must_use]
    pub fn lanes(&self) -> f64 {
        32.0 / self.clk_per_op
    }
}

/// Measures one form.
pub fn measure(prepared: &Prepared, runner: &mut dyn Runner) -> Result<FormRate, String> {
    // The best point is where the larger body as a whole is done fastest, its loop included. The difference of the bodies
    // is no guide: where the loop's own cost is not hidden it is not the same in both, and the difference may come out
    // faster than the instruction is.
    let mut points: Vec<(u32, u32, f64)> = Vec::new();
    for verified in prepared.verified.iter().filter(|v| v.chains > 1 || prepared.verified.len() == 1) {
        for warps in WARPS {
            points.push((verified.chains, warps, point(runner, verified, warps, WINDOW_CYCLES)?.sustained));
        }
    }
    let &(chains, warps, best) = best_point(&points).ok_or_else(|| "no verified kernel to run".to_owned())?;
    let plateau = points.iter().any(|&(c, w, clk)| {
        let beside = (c <= chains && w <= warps) || (c >= chains && w >= warps);
        beside && (c, w) != (chains, warps) && clk <= best * (1.0 + PLATEAU)
    });
    let verified =
        prepared.with_chains(chains).ok_or_else(|| "the best point's kernel is not verified".to_owned())?;
    let mut steadiest = repeat(runner, verified, warps, WINDOW_CYCLES)?;
    for longer in LONGER {
        if steadiest.1 <= STEADY_PERCENT {
            break;
        }
        let again = repeat(runner, verified, warps, WINDOW_CYCLES * longer)?;
        if again.1 < steadiest.1 {
            steadiest = again;
        }
    }
    let (clk_per_op, spread_percent) = steadiest;
    Ok(FormRate {
        clk_per_op,
        with_loop_clk: best,
        spread_percent,
        warps,
        chains,
        plateau,
        latency_clk: latency(prepared, runner)?,
    })
}

/// Of the points on the plateau (chains, warps, clk with the loop) the one with the most warps, then the most chains. With
/// two warps a scheduler now and then both stand at the loop's branch, more often the shorter the body is, and the difference
/// of the bodies comes out too small by what that costs: on an H200 1.7 cycles a trip and warp for the ALU, 0.8 for FP64,
/// whatever the body, and none that could be seen with four warps a scheduler or more.
fn best_point(points: &[(u32, u32, f64)]) -> Option<&(u32, u32, f64)> {
    let best = points.iter().map(|p| p.2).reduce(f64::min)?;
    let on_plateau = points.iter().filter(|p| p.2 <= best * (1.0 + PLATEAU));
    on_plateau.max_by(|a, b| (a.1, a.0).cmp(&(b.1, b.0)))
}

/// The median of the repeats at a point, and p10 to p90 relative to it, in percent.
fn repeat(
    runner: &mut dyn Runner,
    verified: &Verified,
    warps: u32,
    window: f64,
) -> Result<(f64, f64), String> {
    let mut repeats = Vec::with_capacity(REPEATS);
    for _ in 0..REPEATS {
        repeats.push(point(runner, verified, warps, window)?.net);
    }
    repeats.sort_by(f64::total_cmp);
    let at = |share: f64| repeats[((repeats.len() - 1) as f64 * share).round() as usize];
    Ok((at(0.5), (at(0.9) - at(0.1)) / at(0.5) * 100.0))
}

/// Cycles an operation at one point.
struct Point {
    /// From the difference of the two bodies: without the loop.
    net: f64,
    /// Of the larger body as it is.
    sustained: f64,
}

fn point(runner: &mut dyn Runner, verified: &Verified, warps: u32, window: f64) -> Result<Point, String> {
    let [small, large] = &verified.plans;
    let probe = runner.cycles(&small.name, verified.chains, warps, 8)?;
    let trips = (window / (probe / 8.0).max(1.0)).clamp(8.0, MOST_TRIPS) as u32;
    let a = runner.cycles(&small.name, verified.chains, warps, trips)?;
    let b = runner.cycles(&large.name, verified.chains, warps, trips)?;
    let passes = f64::from(trips) * f64::from(warps);
    if b <= a {
        return Err(format!(
            "twice the operations took no longer ({a:.0} and {b:.0} cycles): the window is not the loop"
        ));
    }
    Ok(Point {
        net: (b - a) / (f64::from(large.ops[0] - small.ops[0]) * passes),
        sustained: b / (f64::from(large.ops[0]) * passes),
    })
}

/// The latency of an operation, where one chain in one warp is a chain of that operation alone.
fn latency(prepared: &Prepared, runner: &mut dyn Runner) -> Result<Option<f64>, String> {
    let Some(single) = prepared.with_chains(1).filter(|_| prepared.parts.len() == 1) else { return Ok(None) };
    let part = &prepared.parts[0];
    // Two opcodes in turn have one mean latency, which is neither's.
    if single.code.per_op.iter().filter(|p| p.target).count() > 1 {
        return Ok(None);
    }
    // Instructions that take an issue slot only (NOPs that spell out a latency) belong to it.
    let alone = single.code.back.is_empty()
        && (part.entry.compound || single.code.companions().all(|c| c.pipe.is_none()));
    if !part.chain.latency || !alone {
        return Ok(None);
    }
    point(runner, single, 1, WINDOW_CYCLES).map(|p| Some(p.net))
}

#[cfg(test)]
pub(crate) mod model {
    //! A model of an SM for tests: pipes with an issue interval, one latency, one issue port a scheduler.

    use super::Runner;
    use crate::prepare::Prepared;
    use std::collections::BTreeMap;

    /// Issue interval (clk a warp instruction and scheduler) of each opcode's pipe, and its latency.
    pub(crate) struct Model<'a> {
        pub(crate) prepared: &'a Prepared,
        pub(crate) pipes: BTreeMap<&'static str, (&'static str, f64)>,
        pub(crate) latency: f64,
        pub(crate) overhead: f64,
    }

    impl Runner for Model<'_> {
        fn cycles(&mut self, kernel: &str, chains: u32, warps: u32, trips: u32) -> Result<f64, String> {
            let verified = self.prepared.with_chains(chains).ok_or("no such kernel")?;
            let plan = verified.plans.iter().find(|p| p.name == kernel).ok_or("no such kernel")?;
            let ops = f64::from(plan.ops[0]);
            let per_scheduler = f64::from(warps) / 4.0;
            let mut busy: BTreeMap<&str, f64> = BTreeMap::new();
            for op in &verified.code.per_op {
                let (pipe, interval) = self.pipes.get(op.opcode.as_str()).copied().unwrap_or(("other", 1.0));
                *busy.entry(pipe).or_default() += op.count * interval * ops * per_scheduler.max(1.0);
                *busy.entry("issue").or_default() += op.count * ops * per_scheduler.max(1.0);
            }
            let throughput = busy.values().fold(0.0f64, |a, b| a.max(*b));
            let serial = ops / f64::from(chains) * self.latency;
            Ok(f64::from(trips) * (throughput.max(serial) + self.overhead) + 30.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::model::Model;
    use super::*;
    use crate::prepare::tests::prepared;

    #[test]
    fn a_pipe_of_sixteen_lanes_reads_sixteen_and_its_latency_whatever_the_loop_costs() {
        let p = prepared("ex2", "MUFU.EX2", &[("MUFU.EX2", 1.0)]);
        for overhead in [0.0, 40.0] {
            let pipes = [("MUFU.EX2", ("xu", 8.0))].into();
            let rate = measure(&p, &mut Model { prepared: &p, pipes, latency: 18.0, overhead }).unwrap();
            assert!((rate.lanes() - 16.0).abs() < 0.01, "{rate:?}");
            assert!((rate.latency_clk.unwrap() - 18.0).abs() < 0.01, "{rate:?}");
            assert!(rate.plateau && rate.spread_percent < 0.01);
        }
    }

    #[test]
    fn a_point_whose_difference_beats_the_instruction_is_not_the_best() {
        /// With few warps the loop's cost is seen in the smaller body alone, so that the difference is too small.
        struct Exposed<'a>(Model<'a>);
        impl Runner for Exposed<'_> {
            fn cycles(&mut self, kernel: &str, chains: u32, warps: u32, trips: u32) -> Result<f64, String> {
                let clk = self.0.cycles(kernel, chains, warps, trips)?;
                let bubble = if warps < 32 && kernel.ends_with("_u1") { 8.0 } else { 0.0 };
                Ok(clk + bubble * f64::from(trips))
            }
        }
        let p = prepared("redux", "REDUX", &[("REDUX", 1.0)]);
        let pipes = [("REDUX", ("adu", 8.0))].into();
        let model = Model { prepared: &p, pipes, latency: 18.0, overhead: 40.0 };
        let rate = measure(&p, &mut Exposed(model)).unwrap();
        assert_eq!((rate.warps, (rate.lanes() * 100.0).round()), (32, 1600.0), "{rate:?}");
    }

    #[test]
    fn a_branch_that_two_warps_do_not_hide_in_the_shorter_body_biases_no_rate() {
        /// An ALU whose shorter body loses 1.7 cycles a trip and warp with two warps a scheduler; more warps start and end
        /// further apart, so that the least time with the loop is at two.
        struct TwoWarps<'a>(Model<'a>, bool);
        impl Runner for TwoWarps<'_> {
            fn cycles(&mut self, kernel: &str, chains: u32, warps: u32, trips: u32) -> Result<f64, String> {
                let clk = self.0.cycles(kernel, chains, warps, trips)?;
                let seen = self.1 && warps <= 8 && kernel.ends_with("_u1");
                let per_scheduler = f64::from(warps.max(4)) / 4.0;
                let lost = if seen { 1.7 * per_scheduler * f64::from(trips) } else { 0.0 };
                Ok(clk + lost + 2.0 * per_scheduler * f64::from(trips) + 4.0 * f64::from(warps))
            }
        }
        let p = prepared("prmt", "PRMT", &[("PRMT", 1.0)]);
        let lanes = |biased: bool| {
            let model =
                Model { prepared: &p, pipes: [("PRMT", ("alu", 2.0))].into(), latency: 4.0, overhead: 0.0 };
            let rate = measure(&p, &mut TwoWarps(model, biased)).unwrap();
            assert!(rate.warps > 8, "{rate:?}");
            assert!(32.0 / rate.with_loop_clk <= rate.lanes(), "{rate:?}");
            rate.lanes()
        };
        assert!((lanes(true) - 64.0).abs() < 0.05, "{}", lanes(true));
        assert_eq!(lanes(true), lanes(false));
        // What the least time alone would take reads as the H200 did.
        let model =
            Model { prepared: &p, pipes: [("PRMT", ("alu", 2.0))].into(), latency: 4.0, overhead: 0.0 };
        let few = repeat(&mut TwoWarps(model, true), p.with_chains(4).unwrap(), 8, WINDOW_CYCLES).unwrap();
        assert!((32.0 / few.0 - 64.43).abs() < 0.05, "{}", 32.0 / few.0);
    }

    #[test]
    fn opcodes_that_take_turns_have_no_latency_of_their_own() {
        let mut p = prepared("add", "HADD2", &[("HADD2", 0.5), ("HFMA2.MMA", 0.5)]);
        for v in &mut p.verified {
            v.code.per_op.iter_mut().for_each(|op| op.target = true);
        }
        let pipes = [("HADD2", ("half", 2.0)), ("HFMA2.MMA", ("mma", 2.0))].into();
        let rate = measure(&p, &mut Model { prepared: &p, pipes, latency: 8.0, overhead: 0.0 }).unwrap();
        assert_eq!(rate.latency_clk, None);
    }

    #[test]
    fn repeats_that_lie_apart_are_made_again_in_a_longer_window() {
        /// Every other window is disturbed for a thousand cycles.
        struct Disturbed<'a>(Model<'a>, u64);
        impl Runner for Disturbed<'_> {
            fn cycles(&mut self, kernel: &str, chains: u32, warps: u32, trips: u32) -> Result<f64, String> {
                self.1 =
                    self.1.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let disturbance = if self.1 >> 63 == 0 { 0.0 } else { 1000.0 };
                Ok(self.0.cycles(kernel, chains, warps, trips)? + disturbance)
            }
        }
        let p = prepared("x", "X", &[("X", 1.0)]);
        let model = Model { prepared: &p, pipes: [("X", ("x", 2.0))].into(), latency: 4.0, overhead: 0.0 };
        let rate = measure(&p, &mut Disturbed(model, 1)).unwrap();
        assert!(rate.spread_percent <= STEADY_PERCENT, "{rate:?}");
        assert!((rate.lanes() / 64.0 - 1.0).abs() < 0.005, "{rate:?}");
    }

    #[test]
    fn a_latency_that_no_sweep_hides_is_no_plateau() {
        let p = prepared("x", "X", &[("X", 1.0)]);
        let pipes = [("X", ("x", 1.0))].into();
        let rate = measure(&p, &mut Model { prepared: &p, pipes, latency: 4000.0, overhead: 0.0 }).unwrap();
        assert!(!rate.plateau, "{rate:?}");
    }

    #[test]
    fn a_chain_with_another_instruction_in_it_gives_no_latency() {
        let p = prepared("cvt", "F2FP", &[("F2FP", 1.0), ("PRMT", 1.0)]);
        let pipes = [("F2FP", ("alu", 2.0)), ("PRMT", ("alu", 2.0))].into();
        let rate = measure(&p, &mut Model { prepared: &p, pipes, latency: 8.0, overhead: 0.0 }).unwrap();
        assert_eq!(rate.latency_clk, None);
        assert!((rate.lanes() - 32.0).abs() < 0.01, "contaminated: {rate:?}");
    }

    #[test]
    fn a_window_that_does_not_grow_is_refused() {
        struct Flat;
        impl Runner for Flat {
            fn cycles(&mut self, _: &str, _: u32, _: u32, _: u32) -> Result<f64, String> {
                Ok(100.0)
            }
        }
        let p = prepared("x", "X", &[("X", 1.0)]);
        assert!(measure(&p, &mut Flat).unwrap_err().contains("took no longer"));
    }
}
