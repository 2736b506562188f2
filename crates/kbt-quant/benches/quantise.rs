//! Quantising a tensor against copying it: `cargo bench -p kbt-quant --bench quantise -- [FORMAT RULE] [--mb N]`.
//!
//! Both run on one thread, in turn, over the same memory; what counts is the ratio of their times, not the times. The
//! default is NVFP4 by TransformerEngine's rule over 1000 MB of normal values. `all` takes every format and rule.

#![allow(clippy::print_stdout, reason = "a benchmark prints its result")]

use kbt_quant::block::{BlockFormat, Quantiser, ScaleRule};
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Times of each side.
const ROUNDS: usize = 9;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut megabytes, mut names) = (1000, Vec::new());
    let mut args = std::env::args().skip(1).filter(|a| a != "--bench");
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--mb" => megabytes = args.next().ok_or("--mb: a number of megabytes is missing")?.parse()?,
            _ => names.push(arg),
        }
    }
    let cases: Vec<(BlockFormat, ScaleRule)> = match &names[..] {
        [] => vec![(BlockFormat::Nvfp4, ScaleRule::TransformerEngine)],
        [all] if all == "all" => BlockFormat::ALL
            .into_iter()
            .flat_map(|f| ScaleRule::ALL.map(|r| (f, r)))
            .filter(|(f, r)| r.check(*f).is_ok())
            .collect(),
        [format, rule] => vec![(format.parse()?, rule.parse()?)],
        _ => return Err("accepted: `all`, or a block format and a scale rule, and --mb N".into()),
    };
    // Whole blocks of every format.
    let elements = megabytes * 1_000_000 / 4 / 32 * 32;
    let xs = normal(elements);
    let amax = xs.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    let mut copied = vec![0.0f32; elements];
    for (format, rule) in cases {
        let quantiser = Quantiser::new(format, rule, amax)?;
        let blocks = elements / format.elements();
        let (mut codes, mut scales) = (vec![0u8; blocks * format.code_bytes()], vec![0u8; blocks]);
        let (mut copies, mut quantised) = (Vec::new(), Vec::new());
        // The first round touches the pages and does not count.
        for round in 0..=ROUNDS {
            let start = Instant::now();
            black_box(&mut copied).copy_from_slice(black_box(&xs));
            let copy = start.elapsed();
            let start = Instant::now();
            quantiser.tensor(black_box(&xs), black_box(&mut codes), black_box(&mut scales))?;
            let quantise = start.elapsed();
            if round > 0 {
                copies.push(copy);
                quantised.push(quantise);
            }
        }
        let (copy, quantise) = (median(&mut copies), median(&mut quantised));
        println!(
            "{format} {rule}: {:.0} MB in {:.1} ms, copied in {:.1} ms: {:.2} times the copy (medians of {ROUNDS}, in \
             turn), {:.2} by the least of each",
            elements as f64 * 4e-6,
            quantise.as_secs_f64() * 1e3,
            copy.as_secs_f64() * 1e3,
            quantise.as_secs_f64() / copy.as_secs_f64(),
            quantised[0].as_secs_f64() / copies[0].as_secs_f64(),
        );
    }
    Ok(())
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// About normal: sums of four uniform values.
fn normal(elements: usize) -> Vec<f32> {
    let mut state = 0x1234_5678_9abc_def1u64;
    (0..elements)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let uniform = (0..4).map(|i| (state >> (16 * i) & 0xffff) as f32 / 65536.0 - 0.5).sum::<f32>();
            uniform * 1.732
        })
        .collect()
}
