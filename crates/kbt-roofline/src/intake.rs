//! Intake: is the question one for a roofline at all, and which facts are there. Both are word lists and tables.

use crate::facts::{FactSheet, OperatorKind};
use crate::outcome::{Fact, Supply};

/// What the question is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// An operator's performance, or no question at all.
    Performance,
    /// Something else, with the topic.
    Other(&'static str),
    /// Words that name neither.
    Unclear,
}

/// Words of questions about performance; one that ends in `*` is a beginning.
const PERFORMANCE: &[&str] = &[
    "kernel*",
    "tflop*",
    "flops",
    "gflop*",
    "pflop*",
    "slow*",
    "faster",
    "fused",
    "fuse",
    "fusion",
    "roofline*",
    "bottleneck*",
    "bound",
    "latency",
    "latencies",
    "throughput*",
    "utili*",
    "tensor core*",
    "occupancy",
    "optimi*",
    "speed up",
    "speedup*",
    "stall*",
    "tma",
    "wgmma",
    "performance",
    "performant",
    "perf",
    "why does",
    "operator*",
    "gemm*",
    "matmul*",
    "attention*",
    "flashattention*",
    "softmax*",
    "rmsnorm*",
    "layernorm*",
    "elementwise",
    "gradient*",
    "us per",
    "ms per",
    "launch overhead*",
    "profil*",
    "where do i look",
];

/// Topics that no roofline answers, with their words.
const OTHER: &[(&str, &[&str])] = &[
    (
        PRICE,
        &[
            "price*",
            "pricing",
            "cost",
            "costs",
            "how much is",
            "expensive",
            "afford*",
            "tco",
            "buy*",
            "cheap*",
            "rent",
            "rental",
            "dollar*",
            "$",
            "€",
            "msrp",
        ],
    ),
    (
        RACKS,
        &[
            "rack*",
            "nvl72",
            "chassis",
            "cooling",
            "data centre*",
            "data center*",
            "datacenter*",
            "how heavy",
            "weigh",
            "weighs",
            "physical dimensions",
            "power supply",
            "power supplies",
        ],
    ),
    (
        CAPACITY,
        &[
            "capacity",
            "how much memory",
            "how many gb",
            "how many gigabytes",
            "how large is the memory",
            "vram",
            "gb of memory",
            "memory size",
            "fit in",
            "fits in",
            "fit into",
            "fits into",
            "fit on",
            "fits on",
            "oom",
            "out of memory",
        ],
    ),
    ("device specifications", &["specs", "specification*", "data sheet", "datasheet", "how many sms", "tdp"]),
    ("availability", &["availab*", "release date", "ship date", "lead time", "in stock"]),
    // Of a rack, or of what fits into it, that comes before.
    (PRICE, &["how many gpus"]),
];

const PRICE: &str = "price";
const RACKS: &str = "racks";
const CAPACITY: &str = "memory capacity";

/// Memories inside an SM or a chip: what fits there is a question of the kernel.
const ON_CHIP: &[&str] = &["shared memory", "smem", "register*", "l1", "l2", "tmem", "tensor memory"];

/// Whether a text says a phrase in whole words. One that ends in `*` is a beginning, and a sign stands anywhere.
fn says(text: &str, phrase: &str) -> bool {
    let (phrase, beginning) = phrase.strip_suffix('*').map_or((phrase, false), |p| (p, true));
    let sign = !phrase.contains(char::is_alphanumeric);
    text.match_indices(phrase).any(|(at, _)| {
        let free = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
        let (before, after) = (&text[..at], &text[at + phrase.len()..]);
        sign || free(before.chars().next_back()) && (beginning || free(after.chars().next()))
    })
}

/// Whether a text names a time of a kernel's size: `1.4 ms`, `350us`.
fn says_a_time(text: &str) -> bool {
    let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || ",;?!()".contains(c)).collect();
    let unit = |w: &str| ["ns", "us", "µs", "μs", "ms", "microseconds", "milliseconds"].contains(&w);
    let number = |w: &str| w.parse::<f64>().is_ok();
    let joined = |w: &str| {
        let at = w.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(w.len());
        number(&w[..at]) && unit(w[at..].trim_end_matches('.'))
    };
    words.iter().any(|w| joined(w))
        || words.windows(2).any(|w| number(w[0]) && unit(w[1].trim_end_matches('.')))
}

/// Reads the question.
pub(crate) fn scope(sheet: &FactSheet) -> Scope {
    let Some(question) = sheet.question.as_deref().filter(|q| !q.trim().is_empty()) else {
        return Scope::Performance;
    };
    let text = question.to_lowercase();
    let any = |words: &[&str]| words.iter().any(|w| says(&text, w));
    if any(PERFORMANCE) || says_a_time(&text) {
        return Scope::Performance;
    }
    // Beside a kernel and its time only what is clearly about something else is.
    let timed = sheet.operator.is_some() && sheet.timing.as_ref().is_some_and(|t| t.median_us.is_some());
    let clear = |topic: &str| [PRICE, RACKS, CAPACITY].contains(&topic);
    let other = OTHER.iter().find(|(topic, words)| {
        (!timed || clear(topic)) && any(words) && !(*topic == CAPACITY && any(ON_CHIP))
    });
    match other {
        Some((topic, _)) => Scope::Other(topic),
        // A question without either kind of word is about the kernel that comes with it, if one does.
        None if sheet.operator.is_some() => Scope::Performance,
        None => Scope::Unclear,
    }
}

/// Facts a sheet lacks, in the order to ask for them.
pub(crate) fn missing(sheet: &FactSheet) -> Vec<Fact> {
    let mut found = crate::work::derive(sheet).err().unwrap_or_default();
    if sheet.timing.as_ref().is_none_or(|t| t.median_us.is_none()) {
        found.push(Fact::Timing);
    }
    let access = sheet.dataflow.as_ref().and_then(|d| d.access);
    let chain =
        sheet.dataflow.as_ref().is_some_and(|d| d.chain_length.is_some() && d.chain_latency_ns.is_some());
    if matches!(
        access,
        Some(crate::facts::AccessPattern::DependentChain | crate::facts::AccessPattern::Irregular)
    ) && !chain
        && crate::bounds::moved_bytes(sheet).is_none()
    {
        found.push(Fact::Latency);
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// What to write for a missing fact. `roofs` are the kinds of ceiling that this operator lacks.
pub(crate) fn supply(sheet: &FactSheet, fact: Fact, roofs: &[&str]) -> Supply {
    let kind = sheet.operator.as_ref().and_then(|o| o.kind);
    let (keys, example) = match fact {
        Fact::Operator => (
            "operator.kind (gemm, attention, normalization, elementwise, reduction, convolution) or operator.flop and operator.hbm_bytes",
            "operator: {kind: gemm, formula: \"C = A B\"}",
        ),
        Fact::Shape => match kind {
            Some(OperatorKind::Attention) => (
                "shape.batch, heads, seqlen, head_dim, causal",
                "shape: {batch: 4, heads: 16, seqlen: 4096, head_dim: 128, causal: false}",
            ),
            Some(OperatorKind::Normalization) => {
                ("shape.rows, columns", "shape: {rows: 32768, columns: 8192}")
            }
            Some(OperatorKind::Elementwise | OperatorKind::Reduction) => {
                ("shape.elements", "shape: {elements: 16777216}")
            }
            Some(OperatorKind::Convolution) => (
                "shape.batch, channels, height, width, filters, kernel_height, kernel_width",
                "shape: {batch: 32, channels: 64, height: 56, width: 56, filters: 64, kernel_height: 3, kernel_width: 3, padding: 1}",
            ),
            Some(OperatorKind::Counts) => (
                "operator.flop, operator.hbm_bytes",
                "operator: {kind: counts, flop: 6.66e10, hbm_bytes: 1.6e9}",
            ),
            _ => ("shape.m, n, k, batch", "shape: {m: 8192, n: 8192, k: 8192}"),
        },
        Fact::Dtype => (
            "dtypes.inputs, accumulate, output, and mma where it differs",
            "dtypes: {inputs: [bf16], accumulate: fp32, output: bf16}",
        ),
        Fact::Timing => (
            "timing.median_us, method, warmup_launches, launches, communication_included",
            "timing: {median_us: 412.0, method: cuda_events, warmup_launches: 50, launches: 100, communication_included: false}",
        ),
        Fact::Dataflow => (
            "dataflow.reuse: which inputs and outputs are reused and where they stay, or operator.hbm_bytes",
            "dataflow: {reuse: \"A and B read once a tile, C written once; nothing stays in L2 between calls\"}",
        ),
        Fact::Ceilings => (
            "ceilings, or another --device",
            "ceilings: [{kind: hbm_copy, bytes_per_s: 4.3e12, provenance: {kind: given, by: own copy benchmark}}]",
        ),
        Fact::Latency => (
            "dataflow.chain_length and chain_latency_ns, or profiler.metrics with dram__bytes.sum: irregular access follows a latency model, not a roofline; rows at independent places are `access: gather`, which needs neither",
            "dataflow: {access: dependent_chain, chain_length: 4096, chain_latency_ns: 600}",
        ),
    };
    match roofs.first().filter(|_| fact == Fact::Ceilings) {
        Some(kind) => {
            let number = if kind.starts_with("hbm") { "bytes_per_s: 4.3e12" } else { "flop_per_s: 9.7e12" };
            Supply {
                fact,
                keys: format!("a ceiling of kind {}, or another --device", roofs.join(", ")),
                example: format!(
                    "ceilings: [{{kind: {kind}, {number}, provenance: {{kind: given, by: own benchmark}}}}]"
                ),
            }
        }
        None => Supply { fact, keys: keys.to_owned(), example: example.to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_about_the_narrowest_topic_that_it_names() {
        for (question, topic) in [
            ("How many GPUs fit in an NVL72 rack?", "racks"),
            ("What does a rack cost?", "price"),
            ("How many GPUs do I need?", "price"),
            ("Does a 70B model fit in 141 GB?", "memory capacity"),
        ] {
            let sheet = FactSheet { question: Some(question.to_owned()), ..FactSheet::default() };
            assert_eq!(scope(&sheet), Scope::Other(topic), "{question}");
        }
    }

    #[test]
    fn words_count_whole_and_a_timed_kernel_is_the_subject_unless_something_else_clearly_is() {
        let timed = |question: &str| {
            let text = "operator: {kind: gemm}\ntiming: {median_us: 1400}\n";
            let mut sheet = FactSheet::from_yaml(text, "f.yaml").unwrap();
            sheet.question = Some(question.to_owned());
            scope(&sheet)
        };
        for question in [
            "Why is the weight gradient taking 1.4 ms on H200?",
            "Is 350us good?",
            "What is the current limit?",
            "Is all the available bandwidth used?",
            "Does the datasheet rate apply?",
            "Would the tile fit in shared memory with 4 stages?",
            "Do other dimensions help?",
            "Does tracking the weights help?",
            "Is the parent's layout at fault?",
        ] {
            assert_eq!(timed(question), Scope::Performance, "{question}");
        }
        for (question, topic) in [
            ("What does an H100 cost?", PRICE),
            ("How many fit in a rack?", RACKS),
            ("Will it OOM?", CAPACITY),
        ] {
            assert_eq!(timed(question), Scope::Other(topic), "{question}");
        }
        let alone = |question: &str| {
            scope(&FactSheet { question: Some(question.to_owned()), ..FactSheet::default() })
        };
        assert_eq!(alone("When is the B300 available?"), Scope::Other("availability"));
        assert_eq!(alone("Is the current one different?"), Scope::Unclear);
        assert_eq!(alone("Is $30000 right?"), Scope::Other(PRICE));
    }
}
