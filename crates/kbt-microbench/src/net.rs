//! The net rate of an instruction, from forms whose feedback may cost instructions of its own.
//!
//! A form measures the time of the target together with what else its step compiles to. Instructions on
//! another pipe run beside the target and cost it nothing as long as their pipe is less busy; instructions on
//! the same pipe add to its time, and are taken off at their own measured rate. What cannot be resolved so is
//! refused, with the reason.

use crate::measure::ISSUE_PER_CLK;
use crate::verify::{FormCode, PerOp};
use kbt_device::{Arch, Pipe, RateRow};
use std::collections::BTreeMap;

/// How far a measured time may be off. Nets differ where they differ by more than both their times allow, for which a
/// companion's time counts as well.
const ERROR: f64 = 0.02;
/// A companion pipe this close to the whole time may be what limits.
pub(crate) const NEARLY: f64 = 0.97;

/// One form as measured.
#[derive(Debug, Clone)]
pub struct Form<'a> {
    /// Its name.
    pub name: &'a str,
    /// What an operation compiles to.
    pub code: &'a FormCode,
    /// SM cycles an operation of a warp.
    pub clk_per_op: f64,
}

/// The outcome for an instruction.
#[derive(Debug, Clone, PartialEq)]
pub struct Net {
    /// SM cycles an operation of a warp, without companions; or why there is no number.
    pub clk_per_op: Result<f64, String>,
    /// The form the number comes from.
    pub form: Option<String>,
    /// One line a form: what was seen and what follows.
    pub reasoning: Vec<String>,
}

/// SM cycles a warp instruction, by full mnemonic, of instructions whose rate is clean.
pub type CleanRates = BTreeMap<String, f64>;

/// What is known beside the run at hand of the instructions that stand beside a target on other pipes. It says which of
/// them may be what was timed, and is never taken off a time.
#[derive(Debug, Clone, Default)]
pub struct Known {
    rates: CleanRates,
    /// SM cycles of the fastest instruction on each pipe.
    fastest: BTreeMap<Pipe, f64>,
}

impl Known {
    /// The rates of `rows`.
    pub fn add<'a>(&mut self, rows: impl IntoIterator<Item = &'a RateRow>) {
        for row in rows {
            let (Some(opcode), Some(lanes)) = (&row.opcode, row.lanes_per_clk_sm) else { continue };
            let clk = 32.0 / lanes;
            self.rates.entry(opcode.clone()).or_insert(clk);
            let fastest = self.fastest.entry(row.pipe).or_insert(clk);
            *fastest = fastest.min(clk);
        }
    }

    /// The rates of the profiles of `arch` that come with kbt.
    #[must_use]
    pub fn embedded(arch: Arch) -> Self {
        let mut known = Self::default();
        for profile in kbt_device::embedded_profiles().filter_map(kbt_device::embedded_profile).flatten() {
            if profile.arch == arch {
                known.add(&profile.rates);
            }
        }
        known
    }

    /// SM cycles that an instruction takes at least: its own, those of its kin, or those of the fastest on its pipe.
    fn least_clk(&self, opcode: &str, pipe: Pipe) -> Option<f64> {
        let own = self.rates.get(opcode).copied();
        own.or_else(|| relative(&self.rates, opcode)).or_else(|| self.fastest.get(&pipe).copied())
    }
}

/// The rate of a companion that is no row of its own: that of the plain mnemonic (`IMAD` for `IMAD.MOV.U32`), or
/// of others with the same base mnemonic (`ISETP.GE.AND` for `ISETP.NE.AND`) where those agree.
pub(crate) fn relative(rates: &CleanRates, opcode: &str) -> Option<f64> {
    let base = |o: &str| o.split('.').next().unwrap_or_default().to_owned();
    let plain = base(opcode);
    rates.get(&plain).copied().or_else(|| {
        let kin: Vec<f64> = rates.iter().filter(|(o, _)| base(o) == plain).map(|(_, r)| *r).collect();
        let (low, high) = (kin.iter().copied().reduce(f64::min)?, kin.iter().copied().reduce(f64::max)?);
        (high <= low * 1.03).then_some(low)
    })
}

/// Whether a form's target shares its pipe with none of its companions, and no other pipe limits it.
#[must_use]
pub fn is_clean(code: &FormCode) -> bool {
    let target = target_pipes(code);
    code.companions().all(|c| c.pipe.is_none_or(|p| !target.iter().any(|t| shares(*t, p))))
}

/// A form's net time that is believed.
struct Believed<'a> {
    name: &'a str,
    clean: bool,
    clk: f64,
    /// How far it may be off, clk.
    error: f64,
}

impl Believed<'_> {
    fn agrees(&self, other: &Self) -> bool {
        (self.clk - other.clk).abs() <= self.error + other.error
    }

    fn off_percent(&self, other: &Self) -> f64 {
        (other.clk / self.clk - 1.0) * 100.0
    }
}

/// Solves one instruction from its forms in the order of their preference, which the machine code gives
/// ([`crate::choice`]): the first that is believed is taken, whatever the others' times are. Those can say that its
/// number is not to be believed, and never put another in its place.
#[must_use]
pub fn solve(forms: &[Form<'_>], rates: &CleanRates, known: &Known) -> Net {
    let mut reasoning = Vec::new();
    let (mut believed, mut refusals) = (Vec::new(), Vec::new());
    for form in forms {
        let seen = format!("{}: {:.2} lanes as measured", form.name, 32.0 / form.clk_per_op);
        match net_of(form, rates, known) {
            Ok((net, error)) if is_clean(form.code) => {
                let beside = list(form.code.companions());
                let beside = if beside.is_empty() {
                    String::new()
                } else {
                    format!(", beside {beside} on other pipes")
                };
                reasoning.push(format!("{seen}, nothing else on its pipe{beside}"));
                believed.push(Believed { name: form.name, clean: true, clk: net, error });
            }
            Ok((net, error)) => {
                let same = list(same_pipe(form.code));
                reasoning.push(format!("{seen}; net of {same} on the same pipe {:.2}", 32.0 / net));
                believed.push(Believed { name: form.name, clean: false, clk: net, error });
            }
            Err(why) => {
                reasoning.push(format!("{seen}; {why}"));
                refusals.push(format!("{}: {why}", form.name));
            }
        }
    }
    let Some((taken, others)) = believed.split_first() else {
        let why = if refusals.is_empty() { "no form was measured".to_owned() } else { refusals.join("; ") };
        return Net { clk_per_op: Err(why), form: None, reasoning };
    };
    let mut doubt = None;
    for other in others {
        let off = taken.off_percent(other);
        let agrees = taken.agrees(other);
        let verdict = if agrees { "agrees" } else { "DISAGREES" };
        let kind = if other.clean { "the rate" } else { "the net" };
        reasoning
            .push(format!("{kind} of `{}` {verdict} with `{}` ({off:+.1} % time)", other.name, taken.name));
        // A clean form may be slower, for reasons of its own; nothing clean is faster than its instruction.
        doubt = doubt.or_else(|| match (agrees, taken.clean, other.clean) {
            (false, true, true) if off < 0.0 => Some(format!(
                "unresolvable: `{}` is {:.1} % faster than `{}`, and nothing in their machine code says why",
                other.name, -off, taken.name
            )),
            (false, false, _) => {
                Some(format!("unresolvable: the nets of its forms lie {:.1} % apart", off.abs()))
            }
            _ => None,
        });
    }
    if let Some(why) = doubt {
        reasoning.push(why.clone());
        return Net { clk_per_op: Err(why), form: None, reasoning };
    }
    Net { clk_per_op: Ok(taken.clk), form: Some(taken.name.to_owned()), reasoning }
}

/// The net time of one form and how far it may be off, or why it has none.
fn net_of(form: &Form<'_>, rates: &CleanRates, known: &Known) -> Result<(f64, f64), String> {
    let total = form.clk_per_op;
    let instructions: f64 = form.code.per_op.iter().map(|p| p.count).sum();
    let targets: f64 = form.code.per_op.iter().filter(|p| p.target).map(|p| p.count).sum();
    // The issue port limits an instruction alone only where it is the only one: FFMA fills it by itself.
    if instructions > targets && instructions / ISSUE_PER_CLK >= NEARLY * total {
        return Err(format!("its {instructions:.1} instructions an operation fill the issue port"));
    }
    let target = target_pipes(form.code);
    let mut busy: BTreeMap<Pipe, f64> = BTreeMap::new();
    let mut shared = 0.0;
    for companion in form.code.companions() {
        let Some(pipe) = companion.pipe else { continue };
        let own = rates.get(&companion.opcode).copied();
        if target.iter().any(|t| shares(*t, pipe)) {
            let clk = own.ok_or_else(|| {
                format!("{} is on the same pipe ({pipe}) and has no clean rate in this run", companion.opcode)
            })?;
            shared += companion.count * clk;
        } else {
            let clk = own.or_else(|| known.least_clk(&companion.opcode, pipe)).ok_or_else(|| {
                format!(
                    "{} keeps the {pipe} pipe busy for nobody knows how long: neither this run nor a profile of this \
                     target has its rate; measure it in the same run",
                    companion.opcode
                )
            })?;
            *busy.entry(pipe).or_default() += companion.count * clk;
        }
    }
    if let Some((pipe, clk)) = busy.iter().find(|(_, clk)| **clk >= NEARLY * total) {
        return Err(format!(
            "the {pipe} pipe is busy for {:.0} % of its time with companions",
            clk / total * 100.0
        ));
    }
    if shared >= NEARLY * total {
        return Err("its companions alone explain its time".to_owned());
    }
    // Of a target that takes two pipes in turn, only whole cleanliness is simple enough to believe.
    if shared > 0.0 && target.len() > 1 {
        return Err("the target takes more than one pipe, and a companion shares one of them".to_owned());
    }
    Ok((total - shared, ERROR * (total + shared)))
}

fn target_pipes(code: &FormCode) -> Vec<Pipe> {
    code.per_op.iter().filter(|p| p.target).filter_map(|p| p.pipe).collect()
}

fn same_pipe(code: &FormCode) -> impl Iterator<Item = &PerOp> {
    let target = target_pipes(code);
    code.companions().filter(move |c| c.pipe.is_some_and(|p| target.iter().any(|t| shares(*t, p))))
}

/// Whether two pipes are one, or one a part of the other.
#[must_use]
pub fn shares(a: Pipe, b: Pipe) -> bool {
    let fma = |p| matches!(p, Pipe::Fma | Pipe::FmaHeavy | Pipe::FmaLite);
    // Half precision is part of FMA on the chips at hand where it is not a pipe of its own.
    let half = |p| p == Pipe::Fp16;
    let unknown = a == Pipe::Unknown || b == Pipe::Unknown;
    let halves = matches!((a, b), (Pipe::FmaHeavy, Pipe::FmaLite) | (Pipe::FmaLite, Pipe::FmaHeavy));
    a == b || unknown || (fma(a) && fma(b) && !halves) || (half(a) && fma(b)) || (fma(a) && half(b))
}

fn list<'a>(ops: impl Iterator<Item = &'a PerOp>) -> String {
    ops.map(|p| format!("{} {}", trimmed(p.count), p.opcode)).collect::<Vec<_>>().join(", ")
}

/// `1`, `0.5`, `0.17`.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepare::tests::prepared;

    fn code(per_op: &[(&str, f64)]) -> FormCode {
        prepared("cvt", "F2FP", per_op).verified.remove(0).code
    }

    fn solved(forms: &[Form<'_>], rates: &CleanRates) -> Net {
        solve(forms, rates, &Known::default())
    }

    fn rates() -> CleanRates {
        [("PRMT".to_owned(), 0.5), ("FADD".to_owned(), 0.25), ("LOP3.LUT".to_owned(), 0.5)].into()
    }

    #[test]
    fn the_packing_chain_and_the_merging_chain_end_in_one_rate() {
        let (merge, prmt) = (code(&[("F2FP", 1.0)]), code(&[("F2FP", 1.0), ("PRMT", 1.0)]));
        let forms = [
            Form { name: "clean", code: &merge, clk_per_op: 0.5 },
            Form { name: "prmt", code: &prmt, clk_per_op: 1.0 },
        ];
        let net = solved(&forms, &rates());
        assert_eq!((net.clk_per_op, net.form.as_deref()), (Ok(0.5), Some("clean")));
        insta::assert_snapshot!(net.reasoning.join("\n"), @"
        clean: 64.00 lanes as measured, nothing else on its pipe
        prmt: 32.00 lanes as measured; net of 1 PRMT on the same pipe 64.00
        the net of `prmt` agrees with `clean` (+0.0 % time)
        ");
        // Without the clean form the packing chain alone still gives the net rate.
        assert_eq!(solved(&forms[1..], &rates()).clk_per_op, Ok(0.5));
        // And without the companion's own rate it gives none.
        assert!(solved(&forms[1..], &CleanRates::new()).clk_per_op.unwrap_err().contains("PRMT"));
    }

    #[test]
    fn forms_that_disagree_are_unresolvable() {
        let (a, b) = (code(&[("F2FP", 1.0), ("PRMT", 1.0)]), code(&[("F2FP", 1.0), ("LOP3.LUT", 1.0)]));
        let forms =
            [Form { name: "a", code: &a, clk_per_op: 1.0 }, Form { name: "b", code: &b, clk_per_op: 1.2 }];
        assert!(solved(&forms, &rates()).clk_per_op.unwrap_err().starts_with("unresolvable"));
    }

    #[test]
    fn the_order_of_the_forms_decides_and_their_times_only_whether_it_is_believed() {
        let alone = code(&[("F2FP", 1.0)]);
        let of_times = |first: f64, second: f64| {
            let forms = [("few_reads", first), ("more_reads", second)].map(|(name, clk_per_op)| Form {
                name,
                code: &alone,
                clk_per_op,
            });
            solved(&forms, &rates())
        };
        for (first, second) in [(0.5, 0.49), (0.49, 0.5), (0.508, 0.492), (0.5, 0.55)] {
            let net = of_times(first, second);
            assert_eq!((net.clk_per_op, net.form.as_deref()), (Ok(first), Some("few_reads")));
        }
        assert!(of_times(0.5, 0.55).reasoning.last().unwrap().contains("DISAGREES"));
        let why = of_times(0.55, 0.5).clk_per_op.unwrap_err();
        assert!(why.contains("`more_reads` is 9.1 % faster than `few_reads`"), "{why}");
    }

    #[test]
    fn a_companion_on_another_pipe_is_free_until_its_pipe_or_the_issue_port_is_full() {
        let beside = code(&[("F2FP", 1.0), ("FADD", 1.0)]);
        let form = |clk| [Form { name: "f", code: &beside, clk_per_op: clk }];
        assert_eq!(solved(&form(0.55), &rates()).clk_per_op, Ok(0.55));
        assert!(solved(&form(0.5), &rates()).clk_per_op.unwrap_err().contains("issue port"));
        let slow: CleanRates = [("FADD".to_owned(), 2.0)].into();
        assert!(solved(&form(2.0), &slow).clk_per_op.unwrap_err().contains("fma pipe is busy"));
        // What was not measured beside it is asked of the profiles, and else it has no number.
        let none = CleanRates::new();
        let why = solved(&form(0.55), &none).clk_per_op.unwrap_err();
        assert!(why.contains("FADD keeps the fma pipe busy for nobody knows how long"), "{why}");
        let known = Known::embedded(Arch::SM_90A);
        assert_eq!(solve(&form(0.55), &none, &known).clk_per_op, Ok(0.55));
        let shuffled = code(&[("F2FP", 1.0), ("SHFL.BFLY", 1.0)]);
        let form = |clk| [Form { name: "f", code: &shuffled, clk_per_op: clk }];
        assert!(solve(&form(1.0), &none, &known).clk_per_op.unwrap_err().contains("busy for 100 %"));
        assert_eq!(solve(&form(1.5), &none, &known).clk_per_op, Ok(1.5));
    }
}
