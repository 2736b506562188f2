//! Tables of step 1 and of the device profile: instruction rates, mixes, suspects and ceilings.

use super::{Column, Kind, Layout, Source, Spread, column, group, number, spread, text, word};
use kbt_evidence::{Step, Unit};

const RATES: Source = Source::Outcome(Step::Rates);

/// As kbt-microbench states it.
const REPEATS: Spread = Spread::Percent { path: "spread_percent", what: "p10 to p90 of repeats" };

const RATE_COLUMNS: &[Column] = &[
    word("opcode"),
    word("pipe"),
    spread("lanes_per_clk_sm", Unit::LanesPerClkSm, REPEATS),
    spread("results_per_clk_sm", Unit::ResultsPerClkSm, REPEATS),
    number("latency_clk", Unit::Cycles),
    number("spread_percent", Unit::Percent).quiet(),
    text("refused"),
];

const MIX_COLUMNS: &[Column] = &[
    number("lanes_per_clk_sm", Unit::LanesPerClkSm),
    number("separate_lanes_per_clk_sm", Unit::LanesPerClkSm).quiet(),
    number("shared_lanes_per_clk_sm", Unit::LanesPerClkSm).quiet(),
    text("refused"),
];

const PARTS: &[Column] = &[column("parts", Kind::Mix, true)];

pub(super) const TABLES: &[Layout] = &[
    Layout::new(
        "rates",
        "an instruction of the softmax step",
        RATES,
        &["rates"],
        &[word("instruction")],
        &[group(&[word("role"), text("does")]), group(RATE_COLUMNS)],
    ),
    Layout::new(
        "mixes",
        "instructions of the softmax step issued together",
        RATES,
        &["mixes"],
        PARTS,
        &[group(MIX_COLUMNS)],
    ),
    Layout::new(
        "suspects",
        "an instruction suspected of being expensive",
        RATES,
        &["suspects"],
        &[word("instruction")],
        &[group(&[word("standing"), text("reason")])],
    ),
    Layout::new(
        "ceilings",
        "a ceiling of the device",
        Source::Profile,
        &["ceilings"],
        &[word("kind")],
        &[group(&[
            spread("bytes_per_s", Unit::BytesPerSecond, REPEATS),
            spread("flop_per_s", Unit::FlopPerSecond, REPEATS),
            spread("seconds", Unit::Seconds, REPEATS),
            number("spread_percent", Unit::Percent).quiet(),
        ])],
    ),
    // `kbt microbench compare` is for whole profiles.
    Layout::new(
        "device_rates",
        "an instruction of the device profile",
        Source::Profile,
        &["rates"],
        &[word("instruction")],
        &[group(RATE_COLUMNS)],
    )
    .not_compared(),
    Layout::new(
        "device_mixes",
        "instructions of the device profile issued together",
        Source::Profile,
        &["mixes"],
        PARTS,
        &[group(MIX_COLUMNS)],
    )
    .not_compared(),
];
