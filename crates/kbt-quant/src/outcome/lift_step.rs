//! What the ladder's algebra step says of a kernel whose arithmetic was lifted from its PTX: the pieces that could be
//! cheaper, ranked, and the verdict. A piece is a part of a kernel, so what it could save is never a recommendation by
//! itself: whether the piece is what limits the kernel is for a timing to say.

use super::lift::PieceOutcome;
use super::{AlgebraOutcome, LiftOutcome, SCHEMA};
use kbt_evidence::{Evidence, Figure, FixClass, Standing, Step, Unit, Verdict};

/// Pieces that are named as evidence.
const NAMED: usize = 5;

impl AlgebraOutcome {
    /// The outcome of a lift; the piece that could save most stands for the search.
    #[must_use]
    pub fn of_lift(lift: LiftOutcome) -> Self {
        let rewrite = lift.ranked().first().map(|(_, piece)| piece.rewrite.clone());
        Self {
            schema: SCHEMA.to_owned(),
            mode: None,
            rewrite,
            forms: Vec::new(),
            budget: None,
            measured: Vec::new(),
            refused: None,
            lift: Some(lift),
        }
    }
}

impl LiftOutcome {
    /// The pieces that could be cheaper, with their functions, those that save most first.
    #[must_use]
    pub fn ranked(&self) -> Vec<(&str, &PieceOutcome)> {
        let pieces = self.functions.iter().flat_map(|f| f.pieces.iter().map(|p| (f.name.as_str(), p)));
        let mut paying: Vec<_> = pieces.filter(|(_, p)| p.claim.pays).collect();
        let saved = |p: &PieceOutcome| (p.claim.cycles_saved_ratio, p.claim.slots_saved_ratio);
        paying.sort_by(|(_, a), (_, b)| {
            let (a, b) = (saved(a), saved(b));
            b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
        });
        paying
    }

    fn pieces(&self) -> usize {
        self.functions.iter().map(|f| f.pieces.len()).sum()
    }

    fn unlifted(&self) -> usize {
        self.functions.iter().map(|f| f.unlifted.len()).sum()
    }

    /// One line for the terminal.
    #[must_use]
    pub fn headline(&self) -> String {
        let (all, out) = (self.pieces(), self.unlifted());
        let ranked = self.ranked();
        let pieces = if all == 1 { "piece" } else { "pieces" };
        let mut line = format!("algebra: {all} {pieces} lifted from PTX, {} could be cheaper", ranked.len());
        if out > 0 {
            line += &format!(", {out} could not be lifted");
        }
        match ranked.first() {
            Some((_, best)) => format!("{line}; the first at {}: {}", place(best), best.claim.statement),
            None => line,
        }
    }

    /// What the step says of eliminating instructions by algebra.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let verdict =
            |standing, reason: String| Verdict::new(FixClass::Algebra, standing, Step::Algebra, reason);
        let ranked = self.ranked();
        if let Some((_, best)) = ranked.first() {
            let reason = format!(
                "{} of {} lifted pieces of arithmetic could be cheaper on {}; whether they limit the kernel is for a \
                 timing to say",
                ranked.len(),
                self.pieces(),
                self.device
            );
            let found =
                ranked.iter().take(NAMED).fold(verdict(Standing::Open, reason), |v, (function, piece)| {
                    v.with(evidence(function, piece))
                });
            return found.next(format!("rewrite {} and time both kernels", place(best)));
        }
        match (self.pieces(), self.unlifted()) {
            (0, 0) => verdict(Standing::Refused, "the PTX has no straight piece of arithmetic".into())
                .next("kbt quant lift FILE.ptx --lines FIRST-LAST names a region"),
            (0, n) => verdict(Standing::Refused, format!("none of {n} pieces of arithmetic could be lifted"))
                .next("kbt quant lift FILE.ptx says why, piece by piece"),
            (all, 0) => {
                verdict(Standing::RuledOut, format!("none of {all} lifted pieces has a cheaper program under the rules"))
            }
            (all, n) => verdict(
                Standing::Open,
                format!("none of {all} lifted pieces has a cheaper program under the rules; {n} could not be lifted"),
            )
            .next("kbt quant lift FILE.ptx says why, piece by piece"),
        }
    }
}

fn place(piece: &PieceOutcome) -> String {
    match (piece.source.first(), piece.ptx_lines.first()) {
        (Some(source), _) => source.clone(),
        (None, Some([first, last])) => format!("PTX {first}-{last}"),
        (None, None) => "an unknown place".to_owned(),
    }
}

fn evidence(function: &str, piece: &PieceOutcome) -> Evidence {
    let compiled = &piece.compiled;
    let figure =
        |name: &str, cycles: f64| Figure::new(name, cycles, Unit::Cycles, compiled.provenance.clone());
    let mut figures = vec![figure("as compiled, cycles an element and SM", compiled.cycles_per_element)];
    let best = piece.claim.candidates.first().and_then(|&i| piece.rewrite.candidates.get(i));
    figures.extend(best.map(|c| figure("the candidate, cycles an element and SM", c.cycles_per_element)));
    Evidence::supports(format!("{function}, {}: {}", place(piece), piece.claim.statement), figures)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lift::{Region, lift};
    use crate::outcome::lift_outcome;
    use crate::rewrite::Limits;

    /// A division by a value that a reciprocal would serve, and a plain addition.
    const PTX: &str = ".version 8.8\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n.reg .f32 %f<9>;\n.reg .b64 \
                       %rd<9>;\nld.param.u64 %rd1, [p];\nld.global.f32 %f1, [%rd1];\nld.global.f32 %f2, [%rd1+4];\nBODY\nst.global.f32 \
                       [%rd1], %f4;\nret;\n}\n";

    fn outcome(body: &str) -> AlgebraOutcome {
        let text = PTX.replace("BODY", body);
        let module = kbt_ptx::parse(&text).unwrap();
        let functions = lift(&module, &|_| true, &Region::default());
        let lifted =
            lift_outcome("k.ptx", &functions, &crate::cost::tests::hopper(), &Limits::default()).unwrap();
        AlgebraOutcome::of_lift(lifted)
    }

    #[test]
    fn what_could_be_cheaper_is_open_and_what_cannot_is_ruled_out() {
        let paying = outcome("div.rn.f32 %f3, %f1, %f2;\nadd.f32 %f4, %f3, %f3;");
        let [verdict] = &paying.verdicts()[..] else { panic!("one verdict") };
        assert_eq!(verdict.standing, Standing::Open, "{verdict:?}");
        assert!(!verdict.evidence.is_empty() && paying.rewrite.is_some());
        assert!(paying.headline().contains("1 could be cheaper"), "{}", paying.headline());
        let plain = outcome("add.f32 %f4, %f1, %f2;");
        assert_ne!(plain.verdicts()[0].standing, Standing::Recommended);
        assert!(plain.rewrite.is_none());
        let json = serde_json::to_value(&paying).unwrap();
        assert_eq!(kbt_evidence::audit::uncovered_numbers(&json), Vec::<String>::new());
        assert_eq!(serde_json::from_value::<AlgebraOutcome>(json).unwrap(), paying);
    }
}
