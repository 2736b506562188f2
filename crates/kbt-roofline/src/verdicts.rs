//! A triage read as verdicts of the ladder and as one line. A side of the roofline is ruled out only by measured
//! ceilings and a measured time.

use crate::candidates::BottleneckClass;
use crate::contradictions::ISSUE_OVER_BYTES;
use crate::outcome::{
    Call, CandidateRow, CandidateStanding as Standing, Contradiction, Resource, Status, TriageOutcome,
};
use kbt_evidence::{Evidence, Figure, FixClass, Standing as Ruled, Step, Verdict};

/// A side whose roof needs less than this share of the time cannot be what the time is spent on.
const IDLE_SIDE: f64 = 0.4;
/// At this share of a measured roof there is nothing left to win on that side.
const AT_ROOF: f64 = 0.95;
/// Shares of launch and of empty SMs below which the launch shape cannot matter.
const LAUNCH_IDLE: f64 = 0.02;

impl TriageOutcome {
    /// What the triage says of each class of fix it can speak to.
    #[must_use]
    pub fn verdicts(&self) -> Vec<Verdict> {
        if self.status != Status::Diagnosed {
            return self.refused_verdicts();
        }
        let memory = match self.against_memory() {
            Some(c) => self.memory().with(Evidence::against(c.what.clone(), vec![c.figure.clone()])),
            None => self.memory(),
        };
        let mut verdicts = vec![memory, self.tensor(), self.launch()];
        let told: Vec<FixClass> = verdicts.iter().map(|v| v.class).collect();
        for row in &self.evidence {
            let Some(class) = row.class.fix_class() else { continue };
            let spoken = verdicts.iter().any(|v| v.class == class);
            if !told.contains(&class) && !spoken && !row.supports.is_empty() {
                verdicts.push(self.open(class, &[row]));
            }
        }
        verdicts
    }

    fn refused_verdicts(&self) -> Vec<Verdict> {
        let why = self.refusal.clone().unwrap_or_else(|| "facts are missing".to_owned());
        let next = self.supply.first().map(|s| format!("supply {}", s.keys));
        [FixClass::MemoryTraffic, FixClass::TensorThroughput, FixClass::LaunchShape]
            .into_iter()
            .map(|class| {
                let v = Verdict::new(class, Ruled::Refused, Step::Triage, why.clone());
                match &next {
                    Some(n) => v.next(n.clone()),
                    None => v,
                }
            })
            .collect()
    }

    fn rows(&self, class: FixClass) -> Vec<&CandidateRow> {
        self.evidence.iter().filter(|r| r.class.fix_class() == Some(class)).collect()
    }

    fn share(&self, resource: Resource) -> Option<&Figure> {
        self.bounds.iter().find(|b| b.resource == resource)?.share.as_ref()
    }

    /// The class as its candidates leave it.
    fn open(&self, class: FixClass, rows: &[&CandidateRow]) -> Verdict {
        let best = rows.iter().find(|r| !r.supports.is_empty()).or(rows.first());
        let Some(best) = best else {
            return Verdict::new(
                class,
                Ruled::Open,
                Step::Triage,
                "no candidate of this class has evidence yet",
            );
        };
        let standing = if best.standing == Standing::Confirmed { Ruled::Recommended } else { Ruled::Open };
        let share =
            best.share.as_ref().map_or(String::new(), |s| format!(", {:.0} % of the time", s.value * 100.0));
        let mut verdict =
            Verdict::new(class, standing, Step::Triage, format!("{}: {}{share}", best.standing, best.title));
        if let Some(share) = &best.share {
            let side = if best.supports.is_empty() { Evidence::against } else { Evidence::supports };
            verdict = verdict.with(side("what it would account for".to_owned(), vec![share.clone()]));
        }
        for row in rows {
            for s in &row.supports {
                verdict = verdict.with(Evidence::supports(s.text.clone(), s.figures.clone()));
            }
            // What speaks against a row that nothing speaks for says something of the class only where no row is better.
            let told = |row: &CandidateRow| !row.supports.is_empty() || row.candidate == best.candidate;
            for s in row.against.iter().filter(|_| told(row)) {
                verdict = verdict.with(Evidence::against(s.text.clone(), s.figures.clone()));
            }
        }
        let experiment = self.experiments.iter().find(|e| rows.iter().any(|r| r.candidate == e.candidate));
        match (experiment, best.needed.first()) {
            (Some(e), _) => verdict.next(format!("{}; predicted {}", e.factor, e.prediction)),
            (None, Some(n)) => verdict.next(n.clone()),
            (None, None) => verdict,
        }
    }

    fn memory(&self) -> Verdict {
        let class = FixClass::MemoryTraffic;
        let rows = self.rows(class);
        let useful = self.share(Resource::Hbm);
        let counted = self.share(Resource::HbmTraffic);
        let alive = |r: &&CandidateRow| {
            matches!(r.standing, Standing::Supported | Standing::Contested | Standing::Confirmed)
        };
        if let Some(share) = counted.or(useful).filter(|s| s.value < IDLE_SIDE)
            && measured(share)
            && self.sheet_device.is_none()
            && !rows.iter().any(alive)
        {
            let reason = format!(
                "device memory needs {:.0} % of the time at its measured ceiling: fewer bytes cannot help",
                share.value * 100.0
            );
            return Verdict::new(class, Ruled::RuledOut, Step::Triage, reason.clone())
                .with(Evidence::supports(reason, vec![share.clone()]));
        }
        self.open(class, &rows)
    }

    fn tensor(&self) -> Verdict {
        let class = FixClass::TensorThroughput;
        let rows = self.rows(class);
        let compute = self.share(Resource::Compute);
        let supported = rows.iter().any(|r| !r.supports.is_empty());
        if let Some(share) = compute.filter(|s| measured(s)).filter(|_| self.sheet_device.is_none()) {
            let reason = if share.value >= AT_ROOF {
                Some(format!(
                    "the arithmetic fills {:.0} % of its measured roof: no busier to be had",
                    share.value * 100.0
                ))
            } else if share.value < IDLE_SIDE && self.call == Some(Call::MemoryBound) && !supported {
                Some(format!(
                    "memory-bound, and the arithmetic needs {:.0} % of the time",
                    share.value * 100.0
                ))
            } else {
                None
            };
            if let Some(reason) = reason {
                return Verdict::new(class, Ruled::RuledOut, Step::Triage, reason.clone())
                    .with(Evidence::supports(reason, vec![share.clone()]));
            }
        }
        self.open(class, &rows)
    }

    fn launch(&self) -> Verdict {
        let class = FixClass::LaunchShape;
        let rows = self.rows(class);
        let launch = self.share(Resource::Launch);
        // A wave bound is there only where waves are not full.
        let waves = self.bounds.iter().any(|b| b.resource == Resource::Waves);
        let filled = self
            .checks
            .iter()
            .any(|c| c.id == "small_shape" && c.status == crate::outcome::CheckStatus::Clear);
        if let Some(share) = launch.filter(|s| s.value < LAUNCH_IDLE && measured(s))
            && !waves
            && filled
            && !rows.iter().any(|r| !r.supports.is_empty())
        {
            let reason = format!(
                "every SM holds CTAs, waves are full, and the launch is {:.1} % of the time",
                share.value * 100.0
            );
            return Verdict::new(class, Ruled::RuledOut, Step::Triage, reason.clone())
                .with(Evidence::supports(reason, vec![share.clone()]));
        }
        self.open(class, &rows)
    }

    /// One line for the terminal.
    #[must_use]
    pub fn headline(&self) -> String {
        match (self.status, self.call) {
            (Status::Diagnosed, Some(call)) => {
                let first = self.lead().map_or(String::new(), |r| {
                    let share = r
                        .share
                        .as_ref()
                        .map_or(String::new(), |s| format!(" ({:.0} % of the time)", s.value * 100.0));
                    let word = match r.standing {
                        Standing::Confirmed => "confirmed",
                        Standing::Open => "first to measure:",
                        _ => "first suspect",
                    };
                    format!("; {word} {}{share}", r.title)
                });
                let rough = if self.order_of_magnitude { ", order of magnitude" } else { "" };
                let against = self.against_memory().map_or(String::new(), |c| format!("; but {}", c.what));
                format!("{call}{rough}{first}{against}")
            }
            (Status::Initial, _) if let Some(c) = self.against_memory() => {
                format!("no initial call: by intensity memory-bound, but {}", c.what)
            }
            (Status::Initial, Some(call)) => format!("initial call {call}; no diagnosis without a timing"),
            _ => format!("refused: {}", self.refusal.as_deref().unwrap_or("facts are missing")),
        }
    }

    /// What the issue slots of the machine code say against a memory-bound call.
    #[must_use]
    pub fn against_memory(&self) -> Option<&Contradiction> {
        self.contradictions.iter().find(|c| c.figure.name == ISSUE_OVER_BYTES)
    }

    /// The candidate to name: the first that is not out by an experiment or by evidence against it alone.
    pub(crate) fn lead(&self) -> Option<&CandidateRow> {
        let suspects = || self.evidence.iter().filter(|r| r.standing.is_suspect());
        let first = suspects().find(|r| r.matters()).or_else(|| suspects().next())?;
        // Of what nothing speaks for, that which the next experiment is about.
        let next = self.experiments.first().filter(|_| first.standing == Standing::Open);
        next.and_then(|e| self.evidence.iter().find(|r| r.candidate == e.candidate)).or(Some(first))
    }

    /// The class that stands first, where one has evidence.
    #[must_use]
    pub fn first_class(&self) -> Option<BottleneckClass> {
        self.evidence
            .first()
            .filter(|r| matches!(r.standing, Standing::Supported | Standing::Contested | Standing::Confirmed))
            .map(|r| r.class)
    }
}

fn measured(figure: &Figure) -> bool {
    figure.provenance.kind.is_measurement()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::CheckStatus;
    use crate::{Ceilings, FactSheet, part, triage};
    use kbt_evidence::{Provenance, Unit};

    /// A diagnosis without evidence, in which one resource takes a measured share of the time.
    fn with_share(resource: Resource, value: f64, call: Call) -> TriageOutcome {
        let text = include_str!("../../../fixtures/facts/attention-without-overlap.yaml");
        let sheet = FactSheet::from_yaml(text, "f.yaml").unwrap();
        let device = sheet.device.as_ref().and_then(|d| d.name.clone()).unwrap();
        let mut o = triage(&sheet, Some(&Ceilings::published(part(&device).unwrap())), &[]).unwrap();
        o.evidence.clear();
        o.call = Some(call);
        let known = Provenance::measured("kbt tune", "NVIDIA H200", "2026-11-30");
        let mut bound = o.bounds[0].clone();
        bound.resource = resource;
        bound.share = Some(Figure::new("share", value, Unit::Ratio, known));
        o.bounds = vec![bound];
        for check in o.checks.iter_mut().filter(|c| c.id == "small_shape") {
            check.status = CheckStatus::Clear;
        }
        o
    }

    #[test]
    fn each_threshold_rules_out_on_its_own_side_alone() {
        for (class, resource, call) in [
            (FixClass::MemoryTraffic, Resource::Hbm, Call::ComputeBound),
            (FixClass::TensorThroughput, Resource::Compute, Call::MemoryBound),
        ] {
            let idle = |value| rules_out(class, resource, value, call);
            assert_eq!([0.39, 0.41].map(idle), [true, false], "{class:?}");
        }
        let tensor =
            |value| rules_out(FixClass::TensorThroughput, Resource::Compute, value, Call::ComputeBound);
        assert_eq!([0.94, 0.96].map(tensor), [false, true]);
        let launch = |value| rules_out(FixClass::LaunchShape, Resource::Launch, value, Call::ComputeBound);
        assert_eq!([0.019, 0.021].map(launch), [true, false]);
    }

    fn rules_out(class: FixClass, resource: Resource, value: f64, call: Call) -> bool {
        let verdicts = with_share(resource, value, call).verdicts();
        verdicts.iter().find(|v| v.class == class).unwrap().standing == Ruled::RuledOut
    }
}
