//! What the trace says of each class of fix, and when it may not say.
//!
//! A verdict needs a coarse trace whose cost was measured and lies within the limit. It rests on one argument: the
//! step cannot become shorter by more than what the roles that set its pace lose to the class in question.

use crate::analyse::{CRITICAL_PERCENT, slack_percent};
use crate::outcome::{Critical, Hardware, RoleStats, TraceOutcome, WaitStats};
use crate::{Level, Work, spelt};
use kbt_evidence::{Evidence, Figure, FixClass, Provenance, Standing, Step, Unit, Verdict};

/// A loss below this part of the step is not worth a class of fix.
const NEGLIGIBLE_PERCENT: f64 = 2.0;
/// A role with more slack than this could take on work.
const SPARE_PERCENT: f64 = 10.0;

/// The classes that step 2 rules on.
const CLASSES: [FixClass; 4] =
    [FixClass::MemoryTraffic, FixClass::TensorThroughput, FixClass::RoleBalance, FixClass::HandoffSplit];

/// What would tell whether a wait ends with a load, an MMA or another role.
const NAME_EDGES: &str =
    "name the barriers that TMA or an MMA completes, the role that issues it, and that role's work";

/// A wait of these roles that may end with a load or an MMA, or with neither: the trace does not say.
fn unsaid<'a>(roles: &[&'a RoleStats]) -> Option<&'a WaitStats> {
    let unsaid = |w: &&WaitStats| match w.hardware {
        Some(Hardware::Unstated) => true,
        Some(Hardware::Tma | Hardware::Mma) => false,
        None => w.released_by.is_empty(),
    };
    roles.iter().flat_map(|r| &r.waits).find(unsaid)
}

fn refused_for(class: FixClass, wait: &WaitStats, what: &str) -> Verdict {
    let reason = format!("whether the wait on {} ends with {what} is not recorded", spelt(&wait.on));
    Verdict::new(class, Standing::Refused, Step::Trace, reason).next(NAME_EDGES)
}

impl TraceOutcome {
    /// One verdict for each class that step 2 rules on.
    #[must_use]
    pub fn verdicts(&self) -> Vec<Verdict> {
        if let Some((reason, next)) = self.refusal() {
            let reason = spelt(&reason).into_owned();
            let refused = |class| {
                Verdict::new(class, Standing::Refused, Step::Trace, reason.clone()).next(next.clone())
            };
            return CLASSES.map(refused).to_vec();
        }
        let critical = self.critical_roles();
        vec![
            self.memory(&critical),
            self.tensor(&critical),
            self.balance(&critical),
            self.handoff_split(&critical),
        ]
    }

    /// Why no verdict can be given at all, and what would allow one.
    fn refusal(&self) -> Option<(String, String)> {
        let observe = "time the kernel at off, barrier, coarse and detail, alternating (kbt trace observe)";
        if self.trace.level == Some(Level::Detail) {
            let reason = "recorded at level detail, which can invert a verdict".to_owned();
            return Some((reason, "record at level coarse".into()));
        }
        if !self.absolute.is_accepted() {
            return Some((self.absolute.reason().to_owned(), observe.into()));
        }
        if self.trace.level.is_none() {
            let reason = "the trace does not state its level".to_owned();
            return Some((reason, "record with kbt/trace.cuh at level coarse".into()));
        }
        let short = |r: &&RoleStats| r.slack_cycles.is_some() && r.steady_steps < 8;
        if let Some(role) = self.roles.iter().find(short) {
            let reason = format!("{} has {} steps: too few for a steady state", role.name, role.steady_steps);
            return Some((reason, "trace a longer sequence, or more CTAs".into()));
        }
        let named = |name: &str| self.roles.iter().filter(|r| r.name == name).count();
        match &self.critical {
            Critical::Unknown { reason } => {
                Some((reason.clone(), "record waits, arrivals and the barriers' edges".into()))
            }
            Critical::Roles { .. } => None,
            Critical::Cycle { .. } | Critical::Hardware { .. } => {
                let shared = self.critical_names().into_iter().find(|name| named(name) > 1)?;
                let reason =
                    format!("several roles are named {shared}: which of them sets the pace is not known");
                Some((reason, "give each role a name of its own".into()))
            }
        }
    }

    /// Names of the roles that set the pace.
    fn critical_names(&self) -> Vec<&str> {
        match &self.critical {
            Critical::Roles { roles } | Critical::Cycle { roles, .. } => {
                roles.iter().map(String::as_str).collect()
            }
            Critical::Hardware { role, .. } => vec![role],
            Critical::Unknown { .. } => Vec::new(),
        }
    }

    fn critical_roles(&self) -> Vec<&RoleStats> {
        let names = self.critical_names();
        // Of roles that share a name those alone that have no slack.
        let sets_pace = |r: &RoleStats| match self.critical {
            Critical::Roles { .. } => slack_percent(r).is_some_and(|slack| slack < CRITICAL_PERCENT),
            _ => true,
        };
        self.roles.iter().filter(|r| names.contains(&r.name.as_str()) && sets_pace(r)).collect()
    }

    fn memory(&self, critical: &[&RoleStats]) -> Verdict {
        let class = FixClass::MemoryTraffic;
        let tma = |w: &WaitStats| w.hardware == Some(Hardware::Tma);
        let known = self.roles.iter().flat_map(|r| &r.waits).any(tma);
        let loads = critical.iter().find(|r| r.work.is_some_and(|w| w.load));
        let lost = self.lost(critical, tma, "for loads");
        let (standing, reason) = match (loads, unsaid(critical)) {
            _ if !known => {
                let reason = "which waits end with a load is not recorded".to_owned();
                return Verdict::new(class, Standing::Refused, Step::Trace, reason).next(NAME_EDGES);
            }
            _ if lost.value >= NEGLIGIBLE_PERCENT => {
                (Standing::Open, "the roles that set the pace wait for loads".to_owned())
            }
            (Some(role), _) => {
                (Standing::Open, format!("{}, which issues the loads, sets the pace", role.name))
            }
            (None, Some(wait)) => return refused_for(class, wait, "a load"),
            (None, None) => {
                (Standing::RuledOut, "the roles that set the pace hardly wait for loads".to_owned())
            }
        };
        self.verdict(class, standing, reason, vec![lost])
    }

    fn tensor(&self, critical: &[&RoleStats]) -> Verdict {
        let class = FixClass::TensorThroughput;
        if critical.iter().any(|r| r.work.is_none()) {
            return Verdict::new(
                class,
                Standing::Refused,
                Step::Trace,
                "which roles issue MMAs is not recorded",
            )
            .next("state each role's work in the trace");
        }
        let slack = self.slack_figures(|r| r.work.is_some_and(|w| w.tensor));
        let waits_mma = self.lost(critical, |w| w.hardware == Some(Hardware::Mma), "for MMAs");
        let issuer = critical.iter().find(|r| r.work.is_some_and(|w| w.tensor));
        let (standing, reason) = match (issuer, unsaid(critical)) {
            (Some(role), _) => (Standing::Open, format!("{}, which issues MMAs, sets the pace", role.name)),
            (None, _) if waits_mma.value >= NEGLIGIBLE_PERCENT => {
                (Standing::Open, "the roles that set the pace wait for MMAs".to_owned())
            }
            (None, Some(wait)) => return refused_for(class, wait, "an MMA"),
            (None, None) => {
                (Standing::RuledOut, "no role that sets the pace issues MMAs or waits for them".to_owned())
            }
        };
        self.verdict(class, standing, reason, slack.into_iter().chain([waits_mma]).collect())
    }

    fn balance(&self, critical: &[&RoleStats]) -> Verdict {
        // A warp that only issues loads has time to spare by nature and no registers to work with.
        let could_work = |r: &RoleStats| r.work.is_none_or(|w| w != Work { load: true, ..Work::default() });
        let figures = self.slack_figures(could_work);
        let has_time = |r: &RoleStats| slack_percent(r).is_some_and(|s| s >= SPARE_PERCENT);
        let spare: Vec<&RoleStats> = self.roles.iter().filter(|r| could_work(r) && has_time(r)).collect();
        // Nor has a role that only issues loads, and waits, work to give.
        let gives = |r: &RoleStats| could_work(r) || !has_time(r);
        let givers = |taker: &RoleStats| -> Vec<&str> {
            let others = critical.iter().filter(|r| !std::ptr::eq(**r, taker) && gives(r));
            others.map(|r| r.name.as_str()).collect()
        };
        let mut pairs: Vec<(Vec<&str>, Vec<&str>)> = Vec::new();
        for taker in &spare {
            let from = givers(taker);
            match pairs.iter_mut().find(|pair| pair.1 == from) {
                Some(pair) => pair.0.push(&taker.name),
                None if from.is_empty() => {}
                None => pairs.push((vec![&taker.name], from)),
            }
        }
        let untold = self.roles.iter().find(|r| could_work(r) && slack_percent(r).is_none());
        if let Some(role) = untold.filter(|_| pairs.is_empty()) {
            let reason = format!("how much time {} has to spare is not recorded", spelt(&role.name));
            return Verdict::new(FixClass::RoleBalance, Standing::Refused, Step::Trace, reason)
                .next("record that role's steps and its waits");
        }
        let (standing, reason) = match (spare.is_empty(), pairs.is_empty()) {
            (true, _) => (Standing::RuledOut, "no role that could take on work has time to spare".to_owned()),
            (false, true) => (
                Standing::RuledOut,
                "no role that sets the pace has work that another with time to spare could take".to_owned(),
            ),
            (false, false) => {
                let each = pairs.iter().map(|(to, from)| {
                    format!("{} could take work from {}", to.join(" and "), from.join(" and "))
                });
                (Standing::Open, each.collect::<Vec<_>>().join("; "))
            }
        };
        self.verdict(FixClass::RoleBalance, standing, reason, figures)
    }

    fn handoff_split(&self, critical: &[&RoleStats]) -> Verdict {
        let class = FixClass::HandoffSplit;
        if self.handoff.is_none() {
            return Verdict::new(
                class,
                Standing::Refused,
                Step::Trace,
                "no barrier is marked as part of a handoff",
            )
            .next("mark the handoff's barriers in the trace");
        }
        let lost = self.lost(critical, |w| w.handoff, "at the handoff");
        // Never ruled out from waits alone: on an H200 the attention kernel in bf16 and fp8 lost less than this at the
        // handoff, and another split was 2 % faster all the same, since it also changes who contends with whom.
        let reason = if lost.value < NEGLIGIBLE_PERCENT {
            "the roles that set the pace hardly wait at the handoff; contention does not show in waits, so a sweep decides"
        } else {
            "the roles that set the pace wait at the handoff"
        };
        self.verdict(class, Standing::Open, reason.to_owned(), vec![lost])
    }

    fn verdict(
        &self,
        class: FixClass,
        standing: Standing,
        reason: String,
        mut figures: Vec<Figure>,
    ) -> Verdict {
        if let Some((report, coarse)) =
            self.observer.as_ref().and_then(|o| Some((o, o.level(Level::Coarse)?)))
        {
            let cost = Figure::new(
                "cost of coarse tracing",
                coarse.inflation_percent,
                Unit::Percent,
                report.provenance.clone(),
            );
            let spread = format!("{:.1} % interval of the median", coarse.confidence_percent);
            figures.push(cost.with_spread(coarse.low_percent, coarse.high_percent, spread));
        }
        // It goes to texts that are not this crate's.
        let reason = spelt(&reason).into_owned();
        let statement = reason.clone();
        Verdict::new(class, standing, Step::Trace, reason).with(Evidence::supports(statement, figures))
    }

    /// The largest part of the step that one of `roles` is blocked at the barriers picked.
    fn lost(&self, roles: &[&RoleStats], pick: impl Fn(&WaitStats) -> bool, what: &str) -> Figure {
        let floor = self.wait_floor_cycles.unwrap_or(0.0);
        let of = |role: &&RoleStats| {
            let blocked = role.waits.iter().filter(|w| pick(w));
            let cycles: f64 = blocked.filter_map(|w| Some((w.cycles? - w.per_step * floor).max(0.0))).sum();
            100.0 * cycles / role.mean_period_cycles.filter(|p| *p > 0.0).unwrap_or(f64::INFINITY)
        };
        let percent = roles.iter().map(of).fold(0.0, f64::max);
        self.percent(format!("step lost {what} by the roles that set the pace"), percent)
    }

    fn slack_figures(&self, pick: impl Fn(&RoleStats) -> bool) -> Vec<Figure> {
        let figure =
            |r: &RoleStats| Some(self.percent(format!("slack of {}", spelt(&r.name)), slack_percent(r)?));
        self.roles.iter().filter(|r| pick(r)).filter_map(figure).collect()
    }

    fn percent(&self, name: String, value: f64) -> Figure {
        let inputs = [("trace", &self.provenance)];
        Figure::new(
            name,
            value,
            Unit::Percent,
            Provenance::computed("share of the role's mean period", inputs),
        )
    }
}
