//! Cycles of pipes and issue slots.

use kbt_device::Pipe;

/// Warp schedulers of an SM times lanes of a warp: what can be issued a clock. No SM since Volta issues more than one
/// instruction a clock and scheduler.
pub const ISSUE_LANES_PER_CLK_SM: f64 = 128.0;

/// Pipes that costs are kept for, in the order of [`Cost::cycles`]; the issue port comes last.
pub const PIPES: [Pipe; 7] =
    [Pipe::Alu, Pipe::Fma, Pipe::FmaHeavy, Pipe::Fp16, Pipe::Xu, Pipe::Lsu, Pipe::Unknown];

/// The place of the issue port in [`Cost::cycles`].
pub const ISSUE: usize = PIPES.len();

/// What something costs, per element.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// Cycles of each of [`PIPES`] and of the issue port, an element and SM.
    pub cycles: [f64; ISSUE + 1],
    /// Instructions issued an element.
    pub issue_slots: f64,
}

impl Cost {
    /// Adds `times` of another cost.
    pub fn add(&mut self, other: &Self, times: f64) {
        for (a, b) in self.cycles.iter_mut().zip(other.cycles) {
            *a += b * times;
        }
        self.issue_slots += other.issue_slots * times;
    }

    /// The busiest pipe's cycles, the issue port among them.
    #[must_use]
    pub fn busiest(&self) -> f64 {
        self.cycles.iter().copied().fold(0.0, f64::max)
    }

    /// The busiest pipe's name.
    #[must_use]
    pub fn busiest_pipe(&self) -> &'static str {
        let (mut best, mut name) = (0.0, "issue");
        for (cycles, pipe) in self.named() {
            if cycles > best {
                (best, name) = (cycles, pipe);
            }
        }
        name
    }

    /// Cycles and name of each pipe; unknown pipes are left out, as only their issue slots count.
    pub fn named(&self) -> impl Iterator<Item = (f64, &'static str)> + '_ {
        let names = PIPES.iter().map(|p| p.as_str()).chain(["issue"]);
        self.cycles.iter().copied().zip(names).filter(|(_, name)| *name != "unknown")
    }
}

/// Pipes take whole lanes a clock. A measured rate within a hundredth of a whole number is that number: what is left is
/// the measurement's own error, and must not decide between programs that load a pipe alike.
pub(super) fn whole(lanes: f64) -> f64 {
    if (lanes - lanes.round()).abs() <= 0.01 * lanes { lanes.round() } else { lanes }
}

pub(super) fn occupy(cost: &mut Cost, pipe: Pipe, count: f64, lanes: f64) {
    let lanes = whole(lanes);
    let mut on = |pipe: Pipe, lanes: f64| {
        if let Some(at) = PIPES.iter().position(|p| *p == pipe) {
            cost.cycles[at] += count / lanes;
        }
    };
    match pipe {
        // The heavy half is part of the FMA pipe: what runs there takes the whole pipe's slots too.
        Pipe::FmaHeavy => {
            on(Pipe::FmaHeavy, lanes);
            on(Pipe::Fma, ISSUE_LANES_PER_CLK_SM.max(lanes));
        }
        Pipe::FmaLite => on(Pipe::Fma, lanes),
        other => on(other, lanes),
    }
    cost.cycles[ISSUE] += count / ISSUE_LANES_PER_CLK_SM;
    cost.issue_slots += count;
}
