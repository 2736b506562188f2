//! How fast a large listing is read and counted, and how much memory that takes.
//!
//! `cargo bench -p kbt-sass --bench stream -- --mb 1000` makes the listing as it goes, in the columns of
//! `cuobjdump -sass`, from the committed listings of our own kernels; `--from FILE` repeats a real listing instead;
//! `--write FILE` writes it, for `kbt sass metrics FILE`. Each figure is set against the time that only finding
//! the lines of the same bytes takes, in the same run.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

use kbt_sass::metrics::{Measure, MeasureOptions, measure_parallel};
use kbt_sass::{Function, Listing, parse, parse_stream};
use std::fmt::Write as _;
use std::io::{self, Read};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if !args.iter().any(|a| a == "--bench") {
        println!("run as: cargo bench -p kbt-sass --bench stream -- [--mb N] [--from FILE] [--write FILE]");
        return;
    }
    let option = |name: &str| args.iter().position(|a| a == name).map(|i| args[i + 1].clone());
    let bytes = option("--mb").map_or(64, |n| n.parse().unwrap()) * 1_000_000;
    let piece = option("--from").map_or_else(own_kernels, |file| std::fs::read_to_string(file).unwrap());
    if let Some(file) = option("--write") {
        io::copy(&mut Repeat::new(&piece, bytes), &mut std::fs::File::create(file).unwrap()).unwrap();
        return;
    }
    if let Some(mode) = option("--mode") {
        return run(&mode, &piece, bytes, option("--floor").map(|s| s.parse().unwrap()));
    }
    // A process each: memory that one has given back would be counted for the next.
    let mut floor: Option<String> = None;
    for mode in MODES {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(&args).args(["--mode", mode]);
        if let Some(floor) = &floor {
            command.args(["--floor", floor]);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(output.stdout).unwrap();
        print!("{said}");
        floor = floor.or_else(|| Some(said.split(" s,").next()?.rsplit(' ').next()?.to_owned()));
    }
}

const MODES: [&str; 4] =
    ["lines alone", "read", "read and counted, one thread", "read and counted, two threads"];

fn run(mode: &str, piece: &str, bytes: u64, floor: Option<f64>) {
    let mut input = Repeat::new(piece, bytes);
    let start = Instant::now();
    if mode == MODES[0] {
        let (mut block, mut lines) = (vec![0; 256 * 1024], 0);
        while let Ok(n @ 1..) = input.read(&mut block) {
            lines += memchr::memchr_iter(b'\n', &block[..n]).count();
        }
        assert!(lines > 0);
    } else if mode == MODES[1] {
        parse_stream(&mut input, |_| {}).unwrap();
    } else if mode == MODES[2] {
        let mut measure = Measure::new(MeasureOptions::default());
        let listing = parse_stream(&mut input, |f| measure.function(&f)).unwrap();
        check(measure, &listing);
    } else {
        let (measure, listing) =
            measure_parallel(MeasureOptions::default(), |each| parse_stream(&mut input, each)).unwrap();
        check(measure, &listing);
    }
    let (s, mb, peak) = (start.elapsed().as_secs_f64(), bytes as f64 / 1e6, input.peak_anonymous / 1000);
    let ratio = floor.map_or(String::new(), |f| format!(", {:.1} times the lines alone", s / f));
    println!("{mode}: {mb:.0} MB in {s:.2} s, {:.0} MB/s{ratio}; anonymous memory {peak} MB", mb / s);
}

fn check(measure: Measure, listing: &Listing) {
    let outcome = measure.finish(listing);
    assert!(outcome.functions.iter().all(|f| f.instructions > 0));
    // The last copy of the piece is cut where the size asked for ends.
    assert!(outcome.problems.len() <= 3, "{:?}", outcome.problems);
}

/// The committed listings as cuobjdump prints them.
fn own_kernels() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/sass/listings");
    let mut out = String::new();
    for name in ["forms.sm_90a.sass", "roles.sm_90a.sass"] {
        let listing = parse(&std::fs::read(folder.join(name)).unwrap()).unwrap();
        listing.functions.iter().for_each(|function| cuobjdump(function, &mut out));
    }
    out
}

fn cuobjdump(function: &Function, out: &mut String) {
    let arch = function.arch.unwrap();
    let _ = write!(out, "\n\tcode for {arch}\n\t.target\t{arch}\n\n\t\tFunction : {}\n", function.name);
    let _ = writeln!(out, "\t.headerflags\t@\"EF_CUDA_ACCELERATORS EF_CUDA_SM{}\"", arch.sm);
    for insn in &function.instructions {
        let (word, mut text) = (insn.encoding.unwrap(), insn.text().to_owned());
        if let (Some(label), Some(target)) = (text.find("`("), insn.targets.first()) {
            text.replace_range(label.., &format!("{target:#x}"));
        }
        let guard = insn.guard.map_or(String::new(), |g| format!("{g} "));
        let line = format!("        /*{:04x}*/ {guard:>18}{text} ;", insn.address);
        let _ = writeln!(out, "{line:<97}/* {:#018x} */", word as u64);
        let _ = writeln!(out, "{:<97}/* {:#018x} */", "", (word >> 64) as u64);
    }
    out.push_str("\t\t..........\n\n\n");
}

/// A text over and over, up to so many bytes.
struct Repeat<'a> {
    piece: &'a [u8],
    at: usize,
    left: u64,
    /// The most anonymous memory of this process so far, in kB.
    peak_anonymous: u64,
}

impl<'a> Repeat<'a> {
    fn new(piece: &'a str, bytes: u64) -> Self {
        Self { piece: piece.as_bytes(), at: 0, left: bytes, peak_anonymous: 0 }
    }
}

impl Read for Repeat<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.at == self.piece.len() {
            self.at = 0;
            self.peak_anonymous = self.peak_anonymous.max(anonymous());
        }
        let n =
            to.len().min(self.piece.len() - self.at).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        to[..n].copy_from_slice(&self.piece[self.at..self.at + n]);
        self.at += n;
        self.left -= n as u64;
        Ok(n)
    }
}

/// Anonymous memory that this process has, in kB; 0 where the system does not say.
fn anonymous() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:"));
    line.and_then(|l| l.split_ascii_whitespace().next()?.parse().ok()).unwrap_or(0)
}
