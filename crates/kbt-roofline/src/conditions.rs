//! Conditions: one signal against one threshold, as data. Checks and candidates are made of them. The threshold
//! names its source; `calibrated` says whether it was set on measurements of planted bottlenecks.

use crate::outcome::{Statement, Threshold};
use crate::signals::implied::{AT_LEAST, AT_MOST};
use crate::signals::{Signal, Signals};
use kbt_evidence::{Figure, Provenance, Unit};

/// Which side of the threshold fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fires {
    Above,
    Below,
}

/// Where a threshold comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// It follows from the definition (a flag, a whole).
    Definition(&'static str),
    /// Somebody published it.
    Published(&'static str, &'static str),
    /// Taken to be so.
    Assumed(&'static str),
    /// Set on the planted kernels: what they read on its two sides.
    Planted(&'static str),
    /// Set on runs of one of them: what they read on its two sides.
    Runs(&'static str),
}

/// Where and when the planted kernels were read (kernels/planted, sheets in fixtures/facts/planted).
const PLANTED_ON: (&str, &str) = ("NVIDIA H200", "2026-11-30");

impl Source {
    fn provenance(self) -> Provenance {
        match self {
            Self::Definition(what) => Provenance::given(format!("by definition: {what}")),
            Self::Published(source, date) => Provenance::published(source, date),
            Self::Assumed(why) => Provenance::assumed(why),
            Self::Planted(read) => {
                let by = format!("the ten planted kernels, kbt roofline gather: {read}");
                Provenance::measured(by, PLANTED_ON.0, PLANTED_ON.1).read_back()
            }
            Self::Runs(read) => {
                let by = format!("kernels/planted/histogram.cu under ncu: {read}");
                Provenance::measured(by, PLANTED_ON.0, "2026-12-01").read_back()
            }
        }
    }

    const fn calibrated(self) -> bool {
        matches!(self, Self::Planted(_) | Self::Runs(_))
    }
}

/// One signal against one threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Condition {
    pub(crate) signal: Signal,
    pub(crate) fires: Fires,
    pub(crate) threshold: f64,
    pub(crate) source: Source,
}

/// A signal above a threshold.
pub(crate) const fn above(signal: Signal, threshold: f64, source: Source) -> Condition {
    Condition { signal, fires: Fires::Above, threshold, source }
}

/// A signal below a threshold.
pub(crate) const fn below(signal: Signal, threshold: f64, source: Source) -> Condition {
    Condition { signal, fires: Fires::Below, threshold, source }
}

/// Nsight Compute's own reading: below 60 % of both, neither is the limit.
pub(crate) const NCU_60: Source = Source::Published(
    "Nsight Compute, rule SOLBottleneck: below 60 % neither compute nor memory limits",
    "2026-11",
);
/// And above 80 %, the unit is close to its limit.
pub(crate) const NCU_80: Source = Source::Published(
    "Nsight Compute, rule SOLBottleneck: above 80 % the unit is close to its limit",
    "2026-11",
);
/// A level or pipe is a limit above, none below: the profiler's own 60 % lies between the two sides.
pub(crate) const HBM_BUSY: Source = Source::Planted(
    "device memory busy 91 % in hbm, at most 24 % in the nine others; the profiler's 60 % between",
);
pub(crate) const XU_BUSY: Source = Source::Planted(
    "the XU pipe busy 99 % in xu, at most 0.1 % in the nine others; the profiler's 60 % between",
);
pub(crate) const ALU_BUSY: Source = Source::Planted(
    "the ALU pipe busy 99 % in alu, at most 14 % in the nine others; the profiler's 60 % between",
);
pub(crate) const L2_BUSY: Source = Source::Planted(
    "L2 busy 84 to 95 % where spills, uncoalesced reads or its own reuse load it, at most 28 % elsewhere but for hbm; the profiler's 60 % between",
);
/// L2 has traffic of its own above, and only passes on device memory's below.
pub(crate) const L2_REUSE: Source = Source::Planted(
    "L2 bytes for each device-memory byte: 1.5 to 1.8 in the kernels that stream, 2.9 and more where L2 is read again",
);
pub(crate) const LOCAL_SECTORS: Source =
    Source::Planted("local memory has 99 % of the L1 sectors in spills, none in the nine others");
pub(crate) const SECTORS: Source =
    Source::Planted("8.0 times the sectors that the width needs in uncoalesced, 1.0 in the nine others");
pub(crate) const CONFLICTS: Source = Source::Planted(
    "bank conflicts add 93 % of the shared-memory wavefronts in bank_conflicts, at most 1.3 % in the nine others",
);
/// Updates of few addresses hold up the slice of L2 that has them.
pub(crate) const ATOMICS: Source = Source::Runs(
    "the busiest atomic unit 62 to 83 % with 1 to 1 048 576 counters in device memory; 19 % with 16 777 216, 31 % at most where each CTA counts in shared memory first",
);
pub(crate) const ATOMIC_SECTORS: Source = Source::Runs(
    "68 to 89 % of L2's sectors where each element updates a counter in device memory, 6 % at most where each CTA counts in shared memory first",
);
/// A yes or no.
pub(crate) const FLAG: Source = Source::Definition("1 is yes, 0 is no");

impl Condition {
    /// `None` where the signal is not known.
    pub(crate) fn holds(&self, signals: &Signals) -> Option<bool> {
        signals.get(self.signal).map(|v| match self.fires {
            Fires::Above => v > self.threshold,
            Fires::Below => v < self.threshold,
        })
    }

    pub(crate) fn applied(&self, signals: &Signals) -> Threshold {
        let read = signals.figure(self.signal).cloned();
        let unit = read.as_ref().map_or(Unit::Ratio, |f| f.unit);
        Threshold {
            signal: self.signal.name().to_owned(),
            meaning: self.signal.meaning().to_owned(),
            fires: if self.fires == Fires::Above { "above" } else { "below" }.to_owned(),
            threshold: Figure::new("threshold", self.threshold, unit, self.source.provenance()),
            calibrated: self.source.calibrated(),
            read,
        }
    }

    /// What was read where it would have spoken against a candidate, and did not.
    pub(crate) fn not_against(&self, signals: &Signals) -> Option<Statement> {
        let read = self.statement(signals)?;
        let (side, limit) = match self.fires {
            Fires::Above => ("above", self.threshold),
            Fires::Below => ("below", self.threshold),
        };
        let limit = match read.figures.first().map(|f| f.unit) {
            Some(Unit::Ratio) if limit <= 1.0 => format!("{:.0} %", limit * 100.0),
            _ => limit.to_string(),
        };
        Some(Statement { text: format!("{} ({side} {limit} would speak against it)", read.text), ..read })
    }

    /// What was read, as a statement.
    pub(crate) fn statement(&self, signals: &Signals) -> Option<Statement> {
        let figure = signals.figure(self.signal)?.clone();
        Some(Statement { text: reading(self.signal, &figure), figures: vec![figure] })
    }
}

/// A signal and its value as a reader wants it: shares as percent, flags as words.
pub(crate) fn reading(signal: Signal, figure: &Figure) -> String {
    use Signal as S;
    let value = figure.value;
    let yes = value > 0.5;
    match signal {
        S::TensorInstructions if yes => "matrix instructions are there".into(),
        S::TensorInstructions => "no matrix instructions".into(),
        S::LegacyMma if yes => "the matrix instruction is an older generation's".into(),
        S::LegacyMma => "the matrix instruction is this generation's".into(),
        S::AsyncCopies if yes => "loads run by themselves (TMA or cp.async)".into(),
        S::AsyncCopies => "loads go through registers, not TMA or cp.async".into(),
        S::WarpSpecialized if yes => "warps have roles".into(),
        S::WarpSpecialized => "no warp roles".into(),
        S::Strided if yes => "memory is addressed with a stride along a warp".into(),
        S::Strided => "memory is addressed contiguously along a warp".into(),
        S::DependentChain if yes => "each address depends on the last load".into(),
        S::DependentChain => "addresses do not depend on loads".into(),
        S::TensorKernel if yes => "the operator's formats have a tensor core".into(),
        S::TensorKernel => "the operator's arithmetic is not tensor-core work".into(),
        S::Stages => format!("{value:.0} stages in the load pipeline"),
        S::HostSyncs => format!("{value:.0} host synchronisations a call"),
        S::SpillBytes => format!("{value:.0} bytes a thread spilled"),
        S::ThreadsPerInst => format!("{value:.1} of 32 threads take part in an instruction"),
        S::SmFill => format!("{value:.2} CTAs for each SM"),
        S::TrafficRatio => format!("device memory moved {value:.2} times the useful bytes"),
        S::ImpliedTraffic => {
            format!("the busy percentage stands for {value:.0} times the useful bytes, none of them counted")
        }
        S::CommInside if yes => "communication of unknown size is inside the time".into(),
        S::CommInside => "no communication is inside the time".into(),
        S::IntermediateRatio => format!("intermediates move {value:.2} times the useful bytes"),
        S::SectorExcess => {
            let bound = [AT_LEAST, AT_MOST].into_iter().find(|b| figure.provenance.by.starts_with(b));
            let bound = bound.map_or_else(String::new, |b| format!("{b} "));
            format!("{bound}{value:.2} times the sectors that the access width needs")
        }
        S::StorageWidth => format!("inputs take {value:.2} times the bits that suffice"),
        S::ChainShare => format!("the chain of dependent loads takes {:.0} % of the time", value * 100.0),
        S::FmaPerLoad => format!("{value:.2} warp-level FMAs for each global load request"),
        S::L2Reuse => format!("L2 moves {value:.1} bytes for each byte of device memory"),
        S::InFlight => format!("{value:.2} times the bytes in flight that cover the latency"),
        S::ClockRatio => format!("the SM clock was {:.0} % of the one behind the ceilings", value * 100.0),
        _ => {
            let percent = format!("{:.0} %", value * 100.0);
            match signal {
                S::HbmBusy => format!("device memory is busy {percent} of the time"),
                S::ComputeBusy => format!("the useful arithmetic fills {percent} of the time"),
                S::L2Hit => format!("{percent} of the L2 sectors hit"),
                S::MemoryBusy => format!("the busiest memory level is busy {percent} of the time"),
                S::SectorWaste => format!("{percent} of the global sectors hold nothing that was asked for"),
                S::Residency => {
                    format!("registers and shared memory leave room for {percent} of an SM's warps")
                }
                S::L2Busy => format!("L2 is busy {percent} of the time"),
                S::L1Busy => format!("L1 and shared memory are busy {percent} of the time"),
                S::LsuBusy => format!("the load-store pipe is busy {percent} of the time"),
                S::Ex2Share => {
                    format!(
                        "the XU pipe is busy at least {percent} of the time, with the operator's exp2 alone"
                    )
                }
                S::XuBusy => format!("the XU pipe is busy {percent} of the time"),
                S::AluBusy => format!("the ALU pipe is busy {percent} of the time"),
                S::FmaBusy => format!("the FMA pipe is busy {percent} of the time"),
                S::SharedShare => format!("shared memory needs {percent} of the time"),
                S::HostGap => format!("{percent} of the time lies outside the kernels"),
                S::LaunchShare => format!("launch latency is {percent} of the time"),
                S::WaveEfficiency => format!("the waves hold work for {percent} of the SMs"),
                S::TileUse => format!("{percent} of the tiles is useful"),
                S::RoleBusy => format!("the busiest warp role is busy {percent} of the time"),
                S::Occupancy => format!("{percent} of the warps an SM holds are resident"),
                S::IssueActive => format!("{percent} of the issue slots are used"),
                S::AtomicBusy => {
                    format!("the atomic unit of the busiest L2 slice is busy {percent} of the time")
                }
                S::AtomicTraffic => format!("{percent} of L2's sectors are atomic updates"),
                S::AtomicShare => {
                    format!("the updates of one address, at one a clock, take {percent} of the time")
                }
                S::Spills => format!("{percent} of the L1 sectors are local memory"),
                S::ConflictShare => format!("bank conflicts add {percent} of the shared-memory wavefronts"),
                S::LongScoreboard => format!("{percent} of the stalled warps wait for memory"),
                S::SyncStall => format!("{percent} of the stalled warps wait at barriers or fences"),
                S::PowerRatio => format!("{percent} of the power limit was drawn"),
                _ => format!("{}: {percent}", signal.meaning()),
            }
        }
    }
}
