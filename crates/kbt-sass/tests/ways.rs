//! The bound of kernels without a loop leaves out what need not execute: slow paths as CUDA's compilers make them.

#![allow(clippy::unwrap_used, reason = "test helpers")]

mod common;

use common::Tools;
use kbt_device::{Arch, DeviceProfile};
use kbt_evidence::Provenance;
use kbt_sass::outcome::busiest_loop;
use kbt_sass::{
    Analysis, Function, Instruction, Listing, LoopKind, Unit, bound_of_function, bound_of_loop, parse,
};

const ARCHES: [&str; 3] = ["sm_90a", "sm_100a", "sm_120a"];

fn listing(tools: &Tools, arch: &str, options: &[&str]) -> Listing {
    let (cubin, _) = tools.cubin("slow_paths", arch, options);
    parse(&tools.run("nvdisasm", &["-c", "-hex", &cubin]).0).unwrap()
}

fn analysis(function: &Function) -> Analysis<'_> {
    Analysis::new(function, &Unit::mufu(), &Unit::f2fp())
}

#[test]
fn the_slow_paths_of_a_division_and_a_sine_are_no_part_of_the_least() {
    let Some(tools) = Tools::find() else { return };
    let profile = DeviceProfile::new("test", Arch::SM_90A, Provenance::assumed("a test"));
    for arch in ARCHES {
        let listing = listing(&tools, arch, &[]);
        // The store and the division's reciprocal are on every way; the slow path's own opcodes are on none.
        for (name, on, off) in [
            ("divide", &["STG.E", "MUFU.RCP", "EXIT"][..], &["CALL", "RET", "MUFU.RSQ"][..]),
            ("sine", &["STG.E", "FFMA", "EXIT"], &["LDG.E.CONSTANT", "IMAD.WIDE.U32", "DMUL"]),
            ("sine_double", &["STG.E.64", "DFMA", "EXIT"], &["CALL", "RET", "LDG.E.64.CONSTANT"]),
        ] {
            let analysis = analysis(listing.function(name).unwrap());
            let (bound, part) = bound_of_function(&analysis, &profile, 1, &listing);
            let opcodes: Vec<&str> =
                part.indices().map(|i| analysis.function.instructions[i].opcode()).collect();
            let has = |op: &&str| opcodes.iter().any(|o| o.starts_with(*op));
            assert!(on.iter().all(has) && !off.iter().any(has), "{arch} {name}: {opcodes:?}");
            assert_eq!(bound.busiest, "issue", "no rates are known");
            assert_eq!(bound.lower_bound_cycles, part.len() as f64, "{arch} {name}");
            assert_eq!(bound.left_out_instructions, (analysis.whole().len() - part.len()) as u64);
            assert!(bound.left_out_instructions > part.len() as u64 / 2, "{arch} {name}: {bound:?}");
            assert!(bound.stall_cycles.unwrap() >= bound.lower_bound_cycles, "{arch} {name}: {bound:?}");
            assert_eq!(
                busiest_loop(&analysis),
                None,
                "{arch} {name}: the library's loop is not the kernel's"
            );
        }
    }
}

#[test]
fn a_loop_of_the_source_around_the_library_s_is_the_one_that_is_looked_at() {
    let Some(tools) = Tools::find() else { return };
    let profile = DeviceProfile::new("test", Arch::SM_90A, Provenance::assumed("a test"));
    for arch in ARCHES {
        for options in [&[][..], &["-use_fast_math"]] {
            let listing = listing(&tools, arch, options);
            let analysis = analysis(listing.function("sum_of_sines").unwrap());
            let name = busiest_loop(&analysis).unwrap();
            assert_eq!(name, "loop:0", "{arch} {options:?}");
            let library = analysis.loops.iter().filter(|l| l.kind == LoopKind::Library).count();
            assert_eq!(library, usize::from(options.is_empty()), "{arch} {options:?}");
            // The cheapest trip: what the sum needs, without the reduction of a huge argument.
            let index = (0..analysis.loops.len()).find(|i| analysis.loop_name(*i) == name).unwrap();
            let (bound, part) = bound_of_loop(&analysis, index, &profile, 1, &listing);
            let insns: Vec<&Instruction> =
                part.indices().map(|i| &analysis.function.instructions[i]).collect();
            assert!(
                insns.iter().any(|i| i.mnemonic() == "FADD") && insns.iter().any(|i| i.mnemonic() == "LDG")
            );
            assert!(!insns.iter().any(|i| i.has_modifier("CONSTANT")), "{arch} {options:?}: {insns:?}");
            assert_eq!(bound.left_out_instructions > 40, options.is_empty(), "{arch} {options:?}: {bound:?}");
        }
    }
}
