//! What the trace points of the attention kernel cost at level off: nothing. Its machine code is compared, byte for byte,
//! with that of the same sources without a single trace point in them.
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

use kbt_kernels::attention::{Knobs, PvMode, Topology, TraceLevel};
use kbt_kernels::cache::{self, Cache};
use kbt_kernels::variant::Sources;
use kbt_toolchain::Toolchain;

/// The sources with every call on the tracer taken out, line numbers kept, and how many there were.
fn without_trace_points(sources: &Sources) -> (Sources, usize) {
    let mut removed = 0;
    let mut bare = |text: &str| -> String {
        let line = |line: &str| {
            let call = line.trim_start();
            // A wait that is traced keeps its wait: that is a line of its own.
            if call.starts_with("trace.") {
                assert!(call.contains(");"), "a call over several lines: {line}");
                removed += 1;
                return "\n".to_owned();
            }
            format!("{line}\n")
        };
        text.lines().map(line).collect()
    };
    let files = sources
        .files
        .iter()
        .map(|(path, text)| {
            let ours = path.starts_with("attention/");
            (path.clone(), if ours { bare(text) } else { text.clone() })
        })
        .collect();
    (Sources { files }, removed)
}

#[test]
fn level_off_is_the_machine_code_without_trace_points() {
    if std::env::var_os("KBT_CUDA").is_none() {
        eprintln!("KBT_CUDA is not set: `level_off_is_the_machine_code_without_trace_points` did not run");
        return;
    }
    let tools = Toolchain::find().expect("KBT_CUDA has the tools");
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path());
    let (bare, removed) = without_trace_points(cache::sources());
    assert!(removed > 20, "{removed} trace points");
    let left =
        bare.files.iter().find(|(path, text)| path.starts_with("attention/") && text.contains(" trace."));
    assert_eq!(left, None);
    let cubin = |knobs: &Knobs, sources: &Sources| {
        cache.compile(&knobs.variant(), sources, Some(&tools)).unwrap().cubin.to_vec()
    };
    let smem = Knobs { trace: TraceLevel::Off, ..Knobs::plain(PvMode::Bf16) };
    let registers = Knobs { topology: Topology::Registers, ..smem };
    let fp4 = Knobs { trace: TraceLevel::Off, ..Knobs::plain(PvMode::Fp4) };
    for knobs in [smem, registers, fp4] {
        assert!(cubin(&knobs, cache::sources()) == cubin(&knobs, &bare), "{knobs:?}");
    }
    // The comparison sees a trace point where there is one.
    let coarse = Knobs { trace: TraceLevel::Coarse, ..smem };
    assert!(cubin(&coarse, cache::sources()) != cubin(&coarse, &bare));
}
