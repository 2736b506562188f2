//! What the sweep's best setting came to against its baseline, whether that is beyond the noise, and whether validation
//! admits the setting.

use crate::doc::{Block, Inline, Mark, Sources, code, line, strong};
use crate::number;
use crate::run::Run;
use kbt_target::Setting;
use kbt_validate::outcome::{VariantResult, VariantStanding};

pub(super) fn block(sources: &Sources, run: &Run) -> Option<Block> {
    let split = run.handoff.as_ref()?.outcome.as_ref()?;
    let base = split.baseline()?;
    let best = split
        .best
        .and_then(|i| split.points.iter().find(|p| p.index == i))
        .filter(|p| p.index != base.index)?;
    // The confirmation is on fresh samples, so it has not been picked for being low.
    let confirmed = split.confirmed.iter().find(|c| c.index == best.index);
    let (ratio, provenance) = match confirmed.and_then(|c| Some((c.to_baseline?, &c.provenance))) {
        Some(found) => found,
        None => (best.to_baseline?, &best.provenance),
    };
    let interval = ratio.low_ratio.zip(ratio.high_ratio);
    let spread = interval.map(|(l, h)| format!("{} to {}", number::ratio(l), number::ratio(h)));
    let value = Inline::Number { text: number::ratio(ratio.ratio), spread, source: sources.of(provenance) };
    let changed = code(best.setting.differs_from(&base.setting).to_string());
    let mut said = if interval.is_some_and(|(_, high)| high < 1.0) {
        line![strong("Best setting of the sweep: "), changed, " takes ", value, " of its baseline's time"]
    } else {
        line![
            strong("No setting of the sweep beats its baseline beyond the noise: "),
            "the best, ",
            changed,
            ", takes ",
            value,
            " of its time"
        ]
    };
    let variants = run.validate.as_ref().and_then(|d| d.outcome.as_ref()).map(|o| o.variants.as_slice());
    let variant = validated(variants.unwrap_or_default(), &best.setting, &base.setting);
    said.extend(match variant.map(VariantResult::standing) {
        Some(VariantStanding::Right) => line!["; ", Inline::Mark(Mark::Good, "validated".into())],
        Some(VariantStanding::Wrong) => {
            line!["; ", Inline::Mark(Mark::Bad, "validation found it wrong".into())]
        }
        Some(VariantStanding::Unknown) => {
            line!["; ", Inline::Mark(Mark::Unclear, "not fully validated".into())]
        }
        None => line!["; ", Inline::Mark(Mark::Unclear, "not among the validated variants".into())],
    });
    said.extend(line![". The baseline is ", code(base.setting.to_string()), "."]);
    Some(Block::Paragraph(said))
}

/// The validated variant that is this setting. A variant lists the knobs that it changes, so it must agree with the
/// setting in all of them, and must list every knob in which the setting is known to be changed: against the sweep's
/// baseline, or as another variant changes it.
fn validated<'a>(
    variants: &'a [VariantResult],
    setting: &Setting,
    base: &Setting,
) -> Option<&'a VariantResult> {
    let changed = setting.differs_from(base);
    let listed = |k: &str, v: &str| variants.iter().any(|x| x.knobs.get(k).is_some_and(|y| y == v));
    let must: Vec<&String> = setting
        .0
        .iter()
        .filter(|(k, v)| changed.get(k).is_some() || listed(k, v.as_str()))
        .map(|(k, _)| k)
        .collect();
    variants.iter().find(|x| {
        x.knobs.iter().all(|(k, v)| setting.get(k) == Some(v.as_str()))
            && must.iter().all(|k| x.knobs.contains_key(*k))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kbt_validate::compare::ChangeClass;

    #[test]
    fn a_setting_is_validated_only_as_the_variant_that_it_is() {
        let variant = |name: &str, knobs: &[(&str, &str)]| {
            let mut v = VariantResult::new(name, ChangeClass::Reorder);
            v.knobs = knobs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            v
        };
        let base = Setting::default().with("FORM", "log2").with("DEN", "2").with("MODE", "fp4");
        let best = base.clone().with("DEN", "4");
        let plain =
            [variant("plain", &[]), variant("log2", &[("FORM", "log2")]), variant("den", &[("DEN", "4")])];
        let name = |all: &[VariantResult]| validated(all, &best, &base).map(|v| v.name.clone());
        assert_eq!(name(&plain), None, "none of them has both changes");
        let mut all = plain.to_vec();
        all.push(variant("other", &[("FORM", "log2"), ("DEN", "4"), ("MODE", "fp8")]));
        assert_eq!(name(&all), None);
        all.push(variant("tuned", &[("FORM", "log2"), ("DEN", "4")]));
        assert_eq!(name(&all).as_deref(), Some("tuned"));
    }
}
