//! What a question is about: an operator's performance, or something that no roofline answers. Word lists and tables;
//! the cases in the tests are the specification.

use crate::facts::FactSheet;

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

/// Words that ask about performance, whatever else the question names; one that ends in `*` is a beginning.
const ASKS: &[&str] = &[
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
    "utili*",
    "occupancy",
    "optimi*",
    "speed up",
    "speedup*",
    "stall*",
    "profil*",
    "where do i look",
    "us per",
    "ms per",
    "launch overhead*",
];

/// Words of kernels and their work: the subject of a question, unless it is about money.
const SUBJECTS: &[&str] = &[
    "kernel*",
    "tflop*",
    "flops",
    "gflop*",
    "pflop*",
    "throughput*",
    "tensor core*",
    "tma",
    "wgmma",
    "mma",
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
    "instruction*",
    "exp2",
    "barrier*",
    "epilogue*",
    "prologue*",
    "transpose*",
    "warp*",
    "prefill",
    "decode step*",
    "hbm traffic",
];

/// Money by itself.
const MONEY: &[&str] = &[
    "dollar*", "$", "€", "euro", "euros", "usd", "tco", "msrp", "pricing", "purchas*", "rent", "rental",
    "rented", "renting",
];

/// Words of cost. Work costs time as well: they are about money where no kernel comes with the question, or beside one
/// of `PAID`, or beside hardware that is priced.
const COST: &[&str] = &[
    "price*",
    "cost",
    "costs",
    "how much is",
    "how much are",
    "expensive",
    "afford*",
    "buy*",
    "cheap*",
    "kostet",
    "kosten",
    "teuer*",
    "preis*",
    "billig*",
];

/// What money is paid from or for, with a word of cost.
const PAID: &[&str] = &["per hour", "an hour", "per month", "a month", "cloud", "my budget", "our budget"];

/// Hardware that has a price.
const HARDWARE: &[&str] = &[
    "gpu",
    "gpus",
    "card",
    "cards",
    "server",
    "servers",
    "rack",
    "racks",
    "machine",
    "machines",
    "workstation*",
    "h100*",
    "h200*",
    "h800*",
    "b100*",
    "b200*",
    "b300*",
    "gb200*",
    "gb300*",
    "gh200*",
    "a100*",
    "v100*",
    "l40*",
    "rtx*",
    "nvl72",
    "dgx*",
    "hgx*",
];

/// Words between a cost and the hardware that has it: `the price of a B200`, `which GPU should I buy`. A place where
/// something runs (`on a B200`) is no such link.
const LINKS: &[&str] = &[
    "a", "an", "the", "one", "two", "of", "for", "is", "are", "has", "have", "lowest", "best", "should",
    "would", "will", "do", "does", "can", "i", "we", "to", "nvidia", "new", "single", "ein", "eine", "einer",
    "die", "der",
];

/// Topics that no roofline answers, with their words.
const OTHER: &[(&str, &[&str])] = &[
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
            "too big for memory",
            "too large for memory",
            "too big for the memory",
            "too large for the memory",
            "too big for device memory",
            "too large for device memory",
            "too big for the gpu",
            "too large for the gpu",
        ],
    ),
    (INSTALLATION, &["install*", "uninstall*", "download*"]),
    ("device specifications", &["specs", "specification*", "data sheet", "datasheet", "how many sms", "tdp"]),
    ("availability", &["availab*", "release date", "ship date", "lead time", "in stock"]),
    // Of a rack, or of what fits into it, that comes before.
    (PRICE, &["how many gpus"]),
];

const PRICE: &str = "price";
const RACKS: &str = "racks";
const CAPACITY: &str = "memory capacity";
const INSTALLATION: &str = "installation";

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

/// Whether a word is one of a list.
fn is_one(word: &str, list: &[&str]) -> bool {
    list.iter().any(|w| w.strip_suffix('*').map_or(word == *w, |beginning| word.starts_with(beginning)))
}

/// Whether a word of cost stands beside hardware, with nothing but links between them.
fn prices_hardware(text: &str) -> bool {
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).collect();
    let link = |w: &&str| is_one(w, LINKS) || w.parse::<u32>().is_ok();
    // `how much is` is a cost of two links.
    let joined = words.join(" ").replace("how much is", "price").replace("how much are", "price");
    let told: Vec<&str> = joined.split(' ').filter(|w| !link(w)).collect();
    told.windows(2).any(|w| {
        (is_one(w[0], COST) && is_one(w[1], HARDWARE)) || (is_one(w[0], HARDWARE) && is_one(w[1], COST))
    })
}

/// Reads the question.
pub(crate) fn scope(sheet: &FactSheet) -> Scope {
    let Some(question) = sheet.question.as_deref().filter(|q| !q.trim().is_empty()) else {
        return Scope::Performance;
    };
    let text = question.to_lowercase();
    let any = |words: &[&str]| words.iter().any(|w| says(&text, w));
    if any(ASKS) || says_a_time(&text) {
        return Scope::Performance;
    }
    if any(MONEY) || (any(COST) && (any(PAID) || prices_hardware(&text))) {
        return Scope::Other(PRICE);
    }
    if any(SUBJECTS) {
        return Scope::Performance;
    }
    // Beside a kernel a cost is one of time.
    let kernel = sheet.operator.is_some();
    if !kernel && any(COST) {
        return Scope::Other(PRICE);
    }
    // Beside its time only what is clearly about something else is.
    let timed = kernel && sheet.timing.as_ref().is_some_and(|t| t.median_us.is_some());
    let clear = |topic: &str| [PRICE, RACKS, CAPACITY, INSTALLATION].contains(&topic);
    let other = OTHER.iter().find(|(topic, words)| {
        (!timed || clear(topic)) && any(words) && !(*topic == CAPACITY && any(ON_CHIP))
    });
    match other {
        Some((topic, _)) => Scope::Other(topic),
        // A question without either kind of word is about the kernel that comes with it, if one does.
        None if kernel => Scope::Performance,
        None => Scope::Unclear,
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
            // Work costs time.
            "Are the exp2 instructions too expensive here?",
            "Is the IEEE division expensive?",
            "Are the barriers the expensive part?",
            "What does the extra HBM traffic cost?",
            "Does a cheaper conversion help?",
            "How much does the transpose cost?",
            "How much does the second pass cost on an H200?",
            "Which part of the decode step costs the most time?",
            "Is the cost of the epilogue hidden behind the MMA?",
            "What is the price of the extra write of the intermediate?",
            "What does fp8 buy me here?",
            "Can we afford another stage in the register budget?",
            "Is the GPU idle while the expensive part runs?",
            "Is a second pass cheaper on a B200?",
            "How much is lost at the tail?",
            "Is the tile too big for shared memory?",
            "My kernel is slow on the H200 that we rent. What limits it?",
        ] {
            assert_eq!(timed(question), Scope::Performance, "{question}");
        }
        for (question, topic) in [
            ("What does an H100 cost?", PRICE),
            ("How many fit in a rack?", RACKS),
            ("Will it OOM?", CAPACITY),
            ("Is the KV cache too big for memory?", CAPACITY),
            ("What is the price of a B200?", PRICE),
            ("What does an H200 cost?", PRICE),
            ("Which is the cheapest GPU?", PRICE),
            ("Which GPU should I buy for this GEMM?", PRICE),
            ("Is a GPU that runs this attention worth 30 000 dollars?", PRICE),
            ("What does this kernel cost per hour in the cloud?", PRICE),
            ("How much is an H100?", PRICE),
            ("Wie viel kostet eine B200?", PRICE),
            ("How do I install CUDA?", INSTALLATION),
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
