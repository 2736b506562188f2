//! How fast a trace is decoded and analysed, and in how much memory.
//!
//! `throughput generate FILE [RECORDS]` writes a trace of four roles in a pipeline of K tiles, shaped like that of an
//! attention kernel: 10^8 records by default, 800 MB. `throughput analyse FILE` analyses it on one thread and on all,
//! and prints both times, their ratio and the peak of memory.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program of the command line")]

use kbt_trace::bindings as b;
use kbt_trace::kbt::{FileWriter, RingRecords, tag};
use kbt_trace::{
    AnalyseOptions, Barrier, BarrierPurpose, Edge, EventName, EventPurpose, Level, ReadOptions, Releaser,
    Role, StepRule, TraceInfo, Work, analyse, open,
};
use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::num::NonZeroUsize;
use std::time::Instant;

/// Steps of each role in a CTA.
const STEPS: u64 = 128;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["generate", file] => generate(file, 100_000_000),
        ["generate", file, records] => generate(file, records.parse()?),
        ["analyse", file] => measure(file),
        _ => Err("usage: throughput generate FILE [RECORDS] | throughput analyse FILE".into()),
    }
}

fn names() -> TraceInfo {
    let mut info = TraceInfo::new(Level::Coarse, Some(1755.0));
    let role = |name: &str, wait, work| Role::new(name, StepRule::Wait(wait)).works(work);
    let load = Work { load: true, ..Work::default() };
    let math = Work { math: true, ..Work::default() };
    let tensor = Work { tensor: true, ..Work::default() };
    info.roles = vec![
        role("Load", 1, load),
        role("Softmax0", 0, math),
        role("Softmax1", 0, math),
        role("PV", 2, tensor),
    ];
    info.events =
        ["Q.K^T", "softmax", "store P", "P.V"].map(|n| EventName::new(n, EventPurpose::Plain)).to_vec();
    info.barriers = [
        ("K full", BarrierPurpose::Plain),
        ("K empty", BarrierPurpose::Plain),
        ("P first", BarrierPurpose::First),
        ("P empty", BarrierPurpose::Free),
    ]
    .map(|(name, purpose)| Barrier::new(name, purpose))
    .to_vec();
    let edge = |barrier, arriving, waiting| Edge { barrier, arriving, waiting };
    for softmax in [1, 2] {
        info.edges.push(edge(0, Releaser::Hardware { issuer: Some(0) }, softmax));
        info.edges.push(edge(1, Releaser::Role(softmax), 0));
        info.edges.push(edge(2, Releaser::Role(softmax), 3));
        info.edges.push(edge(3, Releaser::Role(3), softmax));
    }
    info
}

/// Numbers without an obvious order, the same in every run (xorshift).
struct Noise(u64);

impl Noise {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// The rings of one CTA.
fn cta(index: u32, noise: &mut Noise) -> Vec<RingRecords> {
    let open = u64::from(index) * 1_000_003;
    let mut lanes: [Vec<b::kbt_trace_record>; 4] = Default::default();
    let mut at = open + 900;
    for step in 0..STEPS {
        let jitter = noise.below(300);
        let mut put = |lane: usize, kind, id, offset: u64| {
            lanes[lane]
                .push(b::kbt_trace_record { tag: tag(kind, id, step as u32), clock: (at + offset) as u32 });
        };
        let span = |put: &mut dyn FnMut(usize, u32, u32, u64), lane, begin, end, id, from, to| {
            put(lane, begin, id, from);
            put(lane, end, id, to);
        };
        const WAIT: (u32, u32) = (b::KBT_TRACE_WAIT_BEGIN, b::KBT_TRACE_WAIT_END);
        const EVENT: (u32, u32) = (b::KBT_TRACE_BEGIN, b::KBT_TRACE_END);
        span(&mut put, 0, WAIT.0, WAIT.1, 1, 0, 20 + jitter);
        put(0, b::KBT_TRACE_ARRIVE, 0, 40 + jitter);
        for softmax in [1, 2] {
            span(&mut put, softmax, WAIT.0, WAIT.1, 0, 100, 160 + jitter);
            span(&mut put, softmax, EVENT.0, EVENT.1, 0, 170 + jitter, 500 + jitter);
            put(softmax, b::KBT_TRACE_ARRIVE, 1, 510 + jitter);
            span(&mut put, softmax, EVENT.0, EVENT.1, 1, 520 + jitter, 1100 + jitter);
            span(&mut put, softmax, WAIT.0, WAIT.1, 3, 1110 + jitter, 1150 + jitter);
            span(&mut put, softmax, EVENT.0, EVENT.1, 2, 1160 + jitter, 1400 + jitter);
            put(softmax, b::KBT_TRACE_ARRIVE, 2, 1410 + jitter);
        }
        span(&mut put, 3, WAIT.0, WAIT.1, 2, 600, 1460 + jitter);
        span(&mut put, 3, EVENT.0, EVENT.1, 3, 1470 + jitter, 1900 + jitter);
        put(3, b::KBT_TRACE_ARRIVE, 3, 1910 + jitter);
        at += 1800 + jitter;
    }
    let ring = |(role, records): (usize, Vec<b::kbt_trace_record>)| RingRecords {
        header: b::kbt_trace_ring {
            opened: b::KBT_TRACE_RING_OPEN,
            closed: b::KBT_TRACE_RING_CLOSED,
            cta: index,
            smid: index % 132,
            role: role as u32,
            total: records.len() as u32,
            open_clock: open,
            close_clock: at + 2000,
            open_global_ns: u64::from(index) * 1000,
            close_global_ns: u64::from(index) * 1000 + 200_000,
            ..Default::default()
        },
        records,
    };
    lanes.into_iter().enumerate().map(ring).collect()
}

fn generate(file: &str, records: u64) -> Result<(), Box<dyn Error>> {
    let (mut rings, mut noise, mut written) = (Vec::new(), Noise(88_172_645_463_325_252), 0);
    for index in 0.. {
        if written >= records {
            break;
        }
        let cta = cta(index, &mut noise);
        written += cta.iter().map(|r| r.records.len() as u64).sum::<u64>();
        rings.extend(cta);
    }
    let mut out = BufWriter::new(File::create(file)?);
    FileWriter::write(&mut out, &names(), 4096, &rings)?;
    println!("{file}: {written} records in {} rings", rings.len());
    Ok(())
}

fn measure(file: &str) -> Result<(), Box<dyn Error>> {
    let run = |threads: usize| -> Result<_, Box<dyn Error>> {
        let start = Instant::now();
        let mut source = open(Box::new(File::open(file)?), file, &ReadOptions::default())?;
        let options = AnalyseOptions {
            name: file.to_owned(),
            timeline_steps: 4,
            threads: NonZeroUsize::new(threads),
            ..AnalyseOptions::default()
        };
        let outcome = analyse(source.as_mut(), &options)?;
        Ok((start.elapsed().as_secs_f64(), outcome))
    };
    let cores = std::thread::available_parallelism()?.get();
    // The first run also brings the file into the page cache.
    let (one, outcome) = run(1)?;
    let (all, again) = run(cores)?;
    if again != outcome {
        return Err("the outcome depends on the number of threads".into());
    }
    println!("{}", outcome.render_text());
    println!(
        "{} records: {one:.2} s on one thread, {all:.2} s on {cores}: {:.2} times as fast; peak of memory {}",
        outcome.trace.records,
        one / all,
        peak()
    );
    Ok(())
}

/// The peak of resident memory, where the system tells it.
fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.map_or_else(|| "not told by this system".into(), |l| l.trim().to_owned())
}
