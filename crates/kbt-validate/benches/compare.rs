//! How fast a pair of outputs in files is compared, and how much memory that takes.
//!
//! `cargo bench -p kbt-validate --bench compare -- --mb 4000 --dir /tmp` writes a pair of bf16 outputs of that size
//! together and a reference in f32, and compares them: the same bits, one element in a thousand different, all
//! different, and judged against the reference. Each figure is set against the time that only reading the same bytes
//! takes with as many threads, in the same run. The files are removed afterwards.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

use kbt_evidence::Provenance;
use kbt_tensor::{Dtype, ReadOptions, Tensor, TensorFile};
use kbt_validate::compare::{ChangeClass, Rules, Sides, Tensors, compare};
use std::fs::{File, read_to_string, remove_file};
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

/// What is compared: its name, the variant's file, and whether the reference takes part.
const MODES: [(&str, &str, bool); 4] = [
    ("the same bits", "saved", false),
    ("one in a thousand differs", "some", false),
    ("all differ", "all", false),
    ("all differ, against a reference", "all", true),
];
const COLUMNS: usize = 128;
/// Elements made once and written again and again.
const PATTERN: usize = 1 << 20;
const MB: f64 = 1e6;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if !args.iter().any(|a| a == "--bench") {
        println!("run as: cargo bench -p kbt-validate --bench compare -- [--mb N] [--dir DIR]");
        return;
    }
    let option = |name: &str| args.iter().position(|a| a == name).map(|i| args[i + 1].clone());
    let folder = option("--dir").map_or_else(std::env::temp_dir, PathBuf::from);
    if let Some(mode) = option("--mode") {
        return measure(&folder, mode.parse().unwrap());
    }
    let pair: usize = option("--mb").map_or(400, |n| n.parse().unwrap()) * 1_000_000;
    write(&folder, (pair / 4).next_multiple_of(PATTERN));
    // A process each: the most memory that one took would be counted for the next.
    for mode in 0..MODES.len() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let output = command.args(&args).args(["--mode", &mode.to_string()]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        print!("{}", String::from_utf8(output.stdout).unwrap());
    }
    for name in ["saved", "some", "all", "right"] {
        remove_file(file(&folder, name)).unwrap();
    }
}

fn file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("kbt-bench-compare-{name}.safetensors"))
}

/// Writes outputs of `elements` elements: normal values in [-1, 1), and others some ulps beside them.
fn write(folder: &Path, elements: usize) {
    let mut noise = Noise(1);
    let right: Vec<f32> =
        (0..PATTERN).map(|_| noise.below(1 << 24) as f32 / f32::powi(2.0, 23) - 1.0).collect();
    let saved = Tensor::from_f32("o", vec![PATTERN], Dtype::Bf16, &right).unwrap().into_bytes();
    let mut beside = |one_in: u64| -> Vec<u8> {
        let codes = saved.as_chunks::<2>().0.iter().map(|code| u16::from_le_bytes(*code));
        let moved = codes
            .map(|code| if noise.below(one_in) == 0 { code ^ (1 + noise.below(3) as u16) } else { code });
        moved.flat_map(u16::to_le_bytes).collect()
    };
    let (some, all) = (beside(1000), beside(1));
    let right: Vec<u8> = right.iter().flat_map(|v| v.to_le_bytes()).collect();
    for (name, dtype, pattern) in
        [("saved", "BF16", &saved), ("some", "BF16", &some), ("all", "BF16", &all), ("right", "F32", &right)]
    {
        let times = elements / PATTERN;
        let header = format!(
            r#"{{"o":{{"dtype":"{dtype}","shape":[{},{COLUMNS}],"data_offsets":[0,{}]}}}}"#,
            elements / COLUMNS,
            times * pattern.len()
        );
        let mut out = BufWriter::new(File::create(file(folder, name)).unwrap());
        out.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
        out.write_all(header.as_bytes()).unwrap();
        (0..times).for_each(|_| out.write_all(pattern).unwrap());
        out.flush().unwrap();
    }
}

fn measure(folder: &Path, mode: usize) {
    let (what, variant, judged) = MODES[mode];
    let paths =
        ["saved", variant].into_iter().chain(judged.then_some("right")).map(|name| file(folder, name));
    let paths: Vec<PathBuf> = paths.collect();
    let bytes: u64 = paths.iter().map(|path| path.metadata().unwrap().len()).sum();
    let pair: u64 = paths[..2].iter().map(|path| path.metadata().unwrap().len()).sum();
    // Once to have the files in memory, and the better of the rest: the machine may do other things too.
    let best = |f: &dyn Fn()| {
        f();
        let times = (0..3).map(|_| {
            let (start, cpu) = (Instant::now(), cpu_seconds());
            f();
            (start.elapsed().as_secs_f64(), cpu_seconds() - cpu)
        });
        times.fold((f64::MAX, f64::MAX), |a, b| (a.0.min(b.0), a.1.min(b.1)))
    };
    let (floor, floor_cpu) = best(&|| read_alone(&paths));
    let files: Vec<TensorFile> =
        paths.iter().map(|path| TensorFile::open(path, &ReadOptions::default()).unwrap()).collect();
    let reference = files.get(2).map(|f| f as &dyn Tensors);
    let class = if judged { ChangeClass::Algebra } else { ChangeClass::Reorder };
    let (wall, cpu) = best(&|| {
        let sides = Sides { reference, ..Sides::new(&files[0], &files[1]) };
        let result =
            compare(&sides, &Rules { class, ..Rules::default() }, Provenance::given("bench")).unwrap();
        assert_eq!(result.tensors[0].bits.differing_count == 0, variant == "saved");
    });
    let (pair, bytes) = (pair as f64 / MB, bytes as f64 / MB);
    println!(
        "{what}: {pair:.0} MB in {wall:.3} s, {:.2} GB/s of the pair ({:.2} GB/s read in all), {:.2} times reading alone; \
         {:.2} GB a CPU second, {:.2} times reading alone; most memory {} MB",
        pair / wall / 1e3,
        bytes / wall / 1e3,
        wall / floor,
        pair / cpu / 1e3,
        cpu / floor_cpu,
        most_memory_mb(),
    );
}

/// Reads the files with as many threads as there are cores, a part each.
fn read_alone(paths: &[PathBuf]) {
    let threads = thread::available_parallelism().unwrap().get() as u64;
    thread::scope(|scope| {
        for part in 0..threads {
            scope.spawn(move || {
                let mut buffer = vec![0; 1 << 16];
                for path in paths {
                    let mut file = File::open(path).unwrap();
                    let length = file.metadata().unwrap().len() / threads;
                    file.seek(SeekFrom::Start(part * length)).unwrap();
                    let mut rest = file.take(length);
                    while rest.read(&mut buffer).unwrap() > 0 {}
                }
            });
        }
    });
}

/// Seconds that the process computed, its own and the system's for it.
fn cpu_seconds() -> f64 {
    let stat = read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(11).take(2);
    // Ticks of a hundredth of a second on every Linux of today.
    fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn most_memory_mb() -> u64 {
    let status = read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
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
