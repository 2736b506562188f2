//! Which suspects can be what limits: each is held against the exponential, of which every element needs one.

use super::{RatesOutcome, Suspect};
use crate::pv;
use crate::table::has_plateau;
use kbt_device::{MixRow, Pipe};
use kbt_evidence::{Evidence, Figure, FixClass, Standing, Step, Unit, Verdict};

/// A suspect that takes no more than this share of the exponential's time, beside it, is none.
const HARMLESS: f64 = 0.5;
/// A mix that reaches this share of what separate pipes allow runs on separate pipes.
const SEPARATE: f64 = 0.9;
/// Beyond this share of what separate pipes allow a measurement contradicts its bound; rates repeat to 1 %.
const IMPOSSIBLE: f64 = 1.02;
/// Within this of the ALU's rate is the full ALU rate.
const FULL_RATE: f64 = 0.97;

impl RatesOutcome {
    fn results(&self, instruction: &str) -> Option<Figure> {
        let row = self.rate(instruction)?;
        let name = format!("{instruction} rate");
        Some(Figure::new(name, row.results_per_clk_sm?, Unit::ResultsPerClkSm, row.provenance.clone()))
    }

    fn lanes(&self, instruction: &str) -> Option<Figure> {
        let row = self.rate(instruction)?;
        let name = format!("{instruction} instructions");
        Some(Figure::new(name, row.lanes_per_clk_sm?, Unit::LanesPerClkSm, row.provenance.clone()))
    }

    fn refused(&self, instruction: &str, what: &str) -> Suspect {
        Suspect {
            instruction: instruction.to_owned(),
            standing: Standing::Refused,
            reason: format!(
                "the profile {} has no rate of {what}; `kbt microbench run --only '^{what}$' --out PROFILE.yaml` gives it",
                self.profile
            ),
            figures: Vec::new(),
        }
    }

    /// The exponential itself: the step's slowest instruction an element is where another choice could help.
    pub(super) fn exponential(&self) -> Option<Suspect> {
        let ex2 = self.results(pv::EX2)?;
        let fma = self.results("fma.rn.f32")?;
        let room = fma.value / ex2.value;
        Some(Suspect {
            instruction: pv::EX2.to_owned(),
            standing: Standing::Open,
            reason: format!(
                "{:.1} exponentials a clock and SM: {room:.0} multiply-adds fit in the time of one, so computing a \
                 fraction of them by polynomial may help",
                ex2.value
            ),
            figures: vec![ex2, fma],
        })
    }

    /// Whether a suspect can be what limits: one result an element, held against the exponential's.
    pub(super) fn judge(&self, instruction: &str) -> Suspect {
        let Some(own) = self.results(instruction) else { return self.refused(instruction, instruction) };
        let Some(ex2) = self.results(pv::EX2) else { return self.refused(instruction, pv::EX2) };
        let share = Figure::computed(
            format!("time of {instruction} an element, of the exponential's"),
            ex2.value / own.value,
            Unit::Ratio,
            "rate of the exponential / rate of the suspect",
            &[&ex2, &own],
        );
        let (beside, how) = self.runs_beside(instruction);
        let full = self.full_alu_rate(instruction);
        let harmless = share.value <= HARMLESS && beside;
        let rate = if full.is_some() { ", the full ALU rate" } else { "" };
        let reason = format!(
            "{:.1} results a clock and SM{rate}: {:.2} of the exponential's time an element, {how}{}",
            own.value,
            share.value,
            if harmless { "; a cheaper instruction for it cannot help" } else { "" }
        );
        let mut figures = vec![share, own, ex2];
        figures.extend(full);
        figures.extend(self.mix_figures(instruction));
        let standing = if harmless { Standing::RuledOut } else { Standing::Open };
        Suspect { instruction: instruction.to_owned(), standing, reason, figures }
    }

    /// The ALU's rate, if the suspect runs at it.
    fn full_alu_rate(&self, instruction: &str) -> Option<Figure> {
        let (own, alu) = (self.lanes(instruction)?, self.lanes(pv::ALU)?);
        let on_alu = self.rate(instruction)?.pipe == Pipe::Alu;
        (on_alu && own.value >= FULL_RATE * alu.value).then_some(alu)
    }

    fn mix(&self, instruction: &str) -> Option<&MixRow> {
        self.mixes.iter().find(|m| m.parts.iter().any(|(n, _)| n == instruction))
    }

    /// Whether an instruction runs beside the exponential, and how that is known.
    fn runs_beside(&self, instruction: &str) -> (bool, String) {
        if let Some((mix, together, apart)) =
            self.mix(instruction).and_then(|m| Some((m, m.lanes_per_clk_sm?, m.separate_lanes_per_clk_sm?)))
        {
            let share = together / apart;
            let bound =
                if has_plateau(&mix.provenance) { "" } else { " at least (its sweep found no plateau)" };
            if share > IMPOSSIBLE {
                let said = format!(
                    "mixed with it {:.0} % of what separate pipes allow, which is impossible: one of the rates or the mix is \
                     not what it says; measure them again",
                    share * 100.0
                );
                return (false, said);
            }
            let said = format!("mixed with it {:.0} % of what separate pipes allow{bound}", share * 100.0);
            return (share >= SEPARATE, said);
        }
        let pipe = |name: &str| self.rate(name).map_or(Pipe::Unknown, |r| r.pipe);
        match (pipe(instruction), pipe(pv::EX2)) {
            (own, ex2) if own == Pipe::Unknown || ex2 == Pipe::Unknown => {
                (false, "and whether it runs beside it is not known".to_owned())
            }
            (own, ex2) if own == ex2 => (false, format!("on the same pipe ({own})")),
            (own, ex2) => (true, format!("on the {own} pipe beside the {ex2} pipe")),
        }
    }

    fn mix_figures(&self, instruction: &str) -> Vec<Figure> {
        let Some(mix) = self.mix(instruction) else { return Vec::new() };
        let named = |what: &str, value: Option<f64>| {
            let name = format!("{} with {instruction}, {what}", pv::EX2);
            value.map(|v| Figure::new(name, v, Unit::LanesPerClkSm, mix.provenance.clone()))
        };
        [named("together", mix.lanes_per_clk_sm), named("on separate pipes", mix.separate_lanes_per_clk_sm)]
            .into_iter()
            .flatten()
            .collect()
    }

    /// What has no rate, of the exponential and the suspects that are refused.
    fn without_rate(&self) -> Vec<&str> {
        let refused = self.suspects.iter().filter(|s| s.standing == Standing::Refused);
        let mut names: Vec<&str> = Vec::new();
        for name in std::iter::once(pv::EX2).chain(refused.map(|s| s.instruction.as_str())) {
            if self.results(name).is_none() && !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Why a part of what was asked has no answer: a suspect that could not be judged, beside others that could or not.
    #[must_use]
    pub fn unanswered(&self) -> Option<String> {
        let refused = |s: &&Suspect| s.standing == Standing::Refused;
        self.suspects.iter().find(refused)?;
        let names: Vec<&str> = self.suspects.iter().filter(refused).map(|s| s.instruction.as_str()).collect();
        Some(format!("no rate of {}, so no answer for {}", self.without_rate().join(", "), names.join(", ")))
    }

    /// What the rates say of choosing other instructions: one verdict, a piece of evidence for each suspect.
    ///
    /// Ruled out only where every suspect is; a suspect that is ruled out among others that are open speaks
    /// against.
    #[must_use]
    pub fn verdicts(&self) -> Vec<Verdict> {
        let of = |s: Standing| self.suspects.iter().filter(move |x| x.standing == s);
        let names = |s: Standing| of(s).map(|x| x.instruction.as_str()).collect::<Vec<_>>().join(", ");
        let (open, out, refused) =
            (names(Standing::Open), names(Standing::RuledOut), names(Standing::Refused));
        let (standing, reason) = if !open.is_empty() {
            let not = if out.is_empty() { String::new() } else { format!("; not {out}") };
            (Standing::Open, format!("another choice may help for {open}{not}"))
        } else if self.suspects.is_empty() {
            (
                Standing::Refused,
                "no instruction with a known rate takes enough of the time to be judged".to_owned(),
            )
        } else if !refused.is_empty() && self.kernel.is_some() {
            (Standing::Refused, format!("what {refused} cost beside the rest is not known"))
        } else if !refused.is_empty() {
            (Standing::Refused, format!("no rate of {}", self.without_rate().join(", ")))
        } else {
            (Standing::RuledOut, format!("none of {out} is what limits"))
        };
        let mut verdict = Verdict::new(FixClass::InstructionChoice, standing, Step::Rates, reason);
        for suspect in &self.suspects {
            let statement = format!("{}: {}", suspect.instruction, suspect.reason);
            let evidence = if suspect.standing == standing {
                Evidence::supports(statement, suspect.figures.clone())
            } else {
                Evidence::against(statement, suspect.figures.clone())
            };
            verdict = verdict.with(evidence);
        }
        if let Some(first) = self.missing.first() {
            verdict = verdict.next(first.clone());
        }
        vec![verdict]
    }
}
