//! The reader against NVIDIA's own tools: every listing form of our own kernels, for every target.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "test helpers")]

mod common;

use common::{ARCHES, LEGACY, Tools, is_full, kernels};
use kbt_sass::metrics::{LocalAccess, local_accesses};
use kbt_sass::{Function, Graph, Listing, Unit, parse};
use std::collections::{BTreeMap, BTreeSet};

/// The targets that every form is read for; the others get those with hex, the most to go wrong, unless
/// `KBT_SASS_FORMS=all`.
const ALL_FORMS: [&str; 1] = ["sm_103a"];

/// The forms, as tool and flags.
const FORMS: &[(&str, &[&str])] = &[
    ("nvdisasm", &["-c"]),
    ("nvdisasm", &["-c", "-hex"]),
    ("nvdisasm", &["-hex"]),
    ("nvdisasm", &["-c", "-g"]),
    ("nvdisasm", &["-c", "-gi"]),
    ("nvdisasm", &["-c", "-gp"]),
    ("nvdisasm", &["-c", "-raw"]),
    ("nvdisasm", &["-c", "-ndf"]),
    ("nvdisasm", &["-c", "-sf"]),
    ("nvdisasm", &["-c", "-plr"]),
    ("nvdisasm", &["-c", "-plr", "-lrm", "narrow"]),
    ("nvdisasm", &["-c", "-hex", "-lrm", "count"]),
    ("cuobjdump", &["-sass"]),
    ("cuobjdump", &["-sass", "-res-usage"]),
];

fn listing(tools: &Tools, tool: &str, flags: &[&str], cubin: &str) -> Listing {
    let mut args = flags.to_vec();
    args.push(cubin);
    let listing = parse(&tools.run(tool, &args).0).unwrap();
    assert_eq!(listing.problems, [], "{tool} {flags:?} {cubin}");
    listing
}

/// Compares one function with what the JSON says of it. Symbolic targets are compared as addresses.
fn same(function: &Function, json: &Function, what: &str) {
    // Without a note of the assembler the JSON knows no suffix.
    let (ours, theirs) = (function.arch.unwrap(), json.arch.unwrap());
    assert!(
        ours == theirs || (ours.sm == theirs.sm && theirs.suffix.is_none()),
        "{what}: {ours} and {theirs}"
    );
    // Live-register listings leave the padding out.
    let (code, step) = (Graph::new(json).code_len, json.instruction_bytes());
    assert!(function.instructions.len() >= code, "{what}");
    for (ours, theirs) in function.instructions.iter().zip(&json.instructions) {
        assert_eq!(
            (ours.address, ours.guard, ours.opcode()),
            (theirs.address, theirs.guard, theirs.opcode()),
            "{what}"
        );
        // The text form of XMAD has a blank there (12.8), the JSON has none.
        let plain = |text: &str| text.replace("] [", "][");
        let target = |text: &str| text.replace("`(", "").replace(')', "");
        // The JSON names functions, cuobjdump has their addresses, text listings have labels for both.
        let by_name =
            matches!(theirs.mnemonic(), "CALL" | "CAL" | "RET") && !theirs.operands().contains("0x");
        let equal = if ours.operands().contains("`(") {
            target(ours.operands()) == theirs.operands()
                || (!by_name && !ours.targets.is_empty() && ours.targets == theirs.targets)
        } else {
            // cuobjdump gives a branch to the start of 32 bytes as the address of the control word there.
            let to_control = step == 8 && !ours.targets.is_empty() && ours.targets == theirs.targets;
            by_name || to_control || plain(ours.operands()) == theirs.operands()
        };
        assert!(equal, "{what}: {ours} and {theirs}");
    }
}

#[test]
fn every_form_of_every_target_is_read_whole_and_equals_what_the_tools_say() {
    if let Some(tools) = Tools::find() {
        check_toolkit(&tools);
    }
}

#[test]
fn the_listings_of_further_toolkits_are_read_as_well() {
    Tools::more().iter().for_each(check_toolkit);
}

fn check_toolkit(tools: &Tools) {
    let mut compared = BTreeMap::new();
    // A disassembler of another toolkit may have dropped the older targets.
    let legacy = LEGACY.into_iter().filter(|_| tools.is_whole());
    for arch in legacy.chain(ARCHES) {
        for kernel in kernels(arch) {
            let Some((cubin, said)) = tools.try_cubin(kernel, arch, &[]) else { continue };
            *compared.entry(arch).or_default() += check_forms(tools, kernel, arch, &cubin);
            check_spills(tools, kernel, arch, &cubin, &said);
            // An old machine code's control flow is followed by the tools of its own toolkit alone.
            if tools.is_whole() {
                check_blocks(tools, arch, &cubin);
            }
        }
    }
    let total: usize = compared.values().sum();
    eprintln!("{}: {total} instructions compared, {compared:?}", tools.versions());
    assert!(ARCHES[..5].iter().all(|arch| compared.contains_key(arch)), "{compared:?}");
}

/// Address, guard, opcode and operands of every instruction in every form, against `nvdisasm -json`. Returns how
/// many instructions were compared.
fn check_forms(tools: &Tools, kernel: &str, arch: &str, cubin: &str) -> usize {
    let json = listing(tools, "nvdisasm", &["-json"], cubin);
    assert!(json.instructions().count() > 200, "{arch}");
    assert!(json.disassembler.as_deref().unwrap().starts_with("nvdisasm 1"));
    // Before 13.0 most machine code has no note of its assembler.
    if tools.versions().starts_with("ptxas 13") {
        assert!(json.assembler.as_deref().unwrap().starts_with("ptxas 1"), "{:?}", json.assembler);
    }
    let unknown = kbt_sass::measure(&json, kbt_sass::MeasureOptions::default()).unknown_mnemonics;
    assert_eq!(unknown, [], "mnemonics of {kernel} for {arch} that no row of the pipe table has");
    let every_form = is_full() || ALL_FORMS.contains(&arch);
    let mut compared = 0;
    for (tool, flags) in FORMS {
        if !every_form && *flags != ["-c", "-hex"] && *flags != ["-sass"] {
            continue;
        }
        // Live registers need the control flow.
        if !tools.is_whole() && flags.iter().any(|f| matches!(*f, "-plr" | "-lrm")) {
            continue;
        }
        let text = listing(tools, tool, flags, cubin);
        let what = format!("{tool} {flags:?} {kernel} {arch} {}", tools.versions());
        assert_eq!(text.functions.len(), json.functions.len(), "{what}");
        for function in &text.functions {
            let theirs = json.function(&function.name).unwrap_or_else(|| panic!("{what}"));
            same(function, theirs, &what);
            compared += function.instructions.len();
        }
        let with_hex = *tool == "cuobjdump" || flags.contains(&"-hex");
        // 12.8 prints its scheduling words for sm_120, with hex or without.
        let printed = arch.starts_with("sm_12") && tools.versions().contains("nvdisasm 12.8");
        assert!(text.instructions().all(|i| i.control.is_some() == (with_hex || printed)), "{what}");
    }
    if LEGACY.contains(&arch) {
        // cuobjdump does not say where SYNC and BRK go, nvdisasm does.
        let (with, without) =
            (listing(tools, "nvdisasm", &["-c"], cubin), listing(tools, "cuobjdump", &["-sass"], cubin));
        for function in &without.functions {
            let theirs = &with.function(&function.name).unwrap().instructions;
            for (ours, theirs) in function.instructions.iter().zip(theirs) {
                if matches!(ours.mnemonic(), "SYNC" | "BRK" | "CONT") {
                    assert_eq!(ours.targets, theirs.targets, "{arch} {} {:#x}", function.name, ours.address);
                }
            }
        }
    }
    // Before 13.4 the JSON has no source lines.
    if every_form && tools.versions().contains("nvdisasm 13.5") {
        let lines = listing(tools, "nvdisasm", &["-json", "-g"], cubin);
        let text = listing(tools, "nvdisasm", &["-c", "-g"], cubin);
        for (a, b) in lines.instructions().zip(text.instructions()) {
            let place = |i: &kbt_sass::Instruction| i.line.as_ref().map(|l| (l.file.clone(), l.line));
            assert_eq!(place(a), place(b), "{kernel} {arch} {:#x}", a.address);
        }
    }
    compared
}

/// Spill store and load bytes by function, from `ptxas -v`.
fn ptxas_spills(said: &str) -> BTreeMap<String, (u64, u64)> {
    let mut spills = BTreeMap::new();
    let mut name = None;
    for line in said.lines() {
        if let Some(rest) = line.split("Function properties for ").nth(1) {
            name = Some(rest.trim().to_owned());
        } else if line.contains("bytes spill stores") {
            let numbers: Vec<u64> = line.split_ascii_whitespace().filter_map(|w| w.parse().ok()).collect();
            spills.insert(name.take().unwrap(), (numbers[1], numbers[2]));
        }
    }
    spills
}

/// Spill bytes, with annotations (nvdisasm) and by slots (cuobjdump), against `ptxas -v`.
fn check_spills(tools: &Tools, kernel: &str, arch: &str, cubin: &str, said: &str) {
    let expect = ptxas_spills(said);
    for (tool, flags) in [("nvdisasm", &["-c"][..]), ("cuobjdump", &["-sass"])] {
        for function in &listing(tools, tool, flags, cubin).functions {
            let mut found = (0, 0);
            for (insn, access) in function.instructions.iter().zip(local_accesses(function)) {
                let width = insn.modifiers().find_map(|m| m.parse::<u64>().ok()).unwrap_or(32) / 8;
                match access {
                    Some(LocalAccess::Spill) if insn.mnemonic() == "STL" => found.0 += width,
                    Some(LocalAccess::Spill) => found.1 += width,
                    _ => {}
                }
            }
            let what = format!("{} {arch} by {tool}", function.name);
            assert_eq!(Some(&found), expect.get(&function.name), "{what}: {said}");
        }
    }
    assert!(kernel != "forms" || expect["spilling"].0 > 0, "{arch}: nothing spilled: {said}");
}

#[test]
fn live_register_tables_and_counts_agree() {
    for tools in Tools::find().iter().chain(&Tools::more()).filter(|tools| tools.is_whole()) {
        let arches = if is_full() { &ARCHES[..] } else { &["sm_80", "sm_90a", "sm_103a"] };
        for (kernel, arch) in arches.iter().flat_map(|arch| kernels(arch).iter().map(move |k| (k, arch))) {
            if is_full() || *kernel == "forms" {
                check_live(tools, kernel, arch);
            }
        }
    }
}

fn check_live(tools: &Tools, kernel: &str, arch: &str) {
    if let Some((cubin, _)) = tools.try_cubin(kernel, arch, &[]) {
        let counts = listing(tools, "nvdisasm", &["-c", "-lrm", "count"], &cubin);
        for flags in [&["-c", "-plr"][..], &["-c", "-plr", "-lrm", "narrow"]] {
            let table = listing(tools, "nvdisasm", flags, &cubin);
            for (a, b) in counts.instructions().zip(table.instructions()) {
                assert!(a.live.is_some(), "{arch}: {a}");
                assert_eq!(a.live, b.live, "{arch} {flags:?}: {a}");
            }
        }
    }
}

/// Block boundaries from `nvdisasm -bbcfg -poff`: the first offset of each node, but for those nodes that only
/// a label without a reference begins and no branch ends before.
fn bbcfg_starts(dot: &str, referenced: &BTreeSet<String>, function: &Function) -> BTreeSet<u64> {
    let behind_branch = |address: u64| {
        let Some(i) = function.index_at(address).checked_sub(1) else { return false };
        let before = &function.instructions[i];
        // WARPSYNC.ALL goes on where it stands.
        before.opcode() != "WARPSYNC.ALL"
            && matches!(
                before.mnemonic(),
                "BRA" | "BRX" | "EXIT" | "RET" | "CALL" | "WARPSYNC" | "SYNC" | "BRK"
            )
    };
    let mut starts = BTreeSet::new();
    for label in dot.split("[label=\"{<entry>").skip(1) {
        let rows: Vec<&str> = label.split("\"]").next().unwrap().split("\\l").collect();
        let named: Vec<&str> = rows.iter().filter_map(|r| r.trim().strip_suffix(':')).collect();
        let only_annotated =
            !named.is_empty() && named.iter().all(|n| n.starts_with(".L_x_") && !referenced.contains(*n));
        let offset = rows.iter().find_map(|r| {
            let r = r.trim_start_matches('|');
            let r = r.split_once('>').filter(|_| r.starts_with("<exit")).map_or(r, |(_, rest)| rest);
            u64::from_str_radix(r.split_once(':')?.0, 16).ok()
        });
        starts.extend(offset.filter(|a| !only_annotated || behind_branch(*a)));
    }
    starts
}

/// Block boundaries against `nvdisasm -bbcfg`, annotation labels removed.
fn check_blocks(tools: &Tools, arch: &str, cubin: &str) {
    let text = String::from_utf8(tools.run("nvdisasm", &["-c", cubin]).0).unwrap();
    let functions = parse(text.as_bytes()).unwrap().functions;
    let mut referenced = BTreeSet::new();
    for line in text.lines().filter(|l| l.trim_start().starts_with("/*")) {
        let words = line.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_')));
        referenced.extend(words.filter(|w| w.starts_with(".L_x_")).map(str::to_owned));
    }
    let dot = String::from_utf8(tools.run("nvdisasm", &["-bbcfg", "-poff", cubin]).0).unwrap();
    let mut clusters = BTreeMap::new();
    for cluster in dot.split("subgraph \"cluster_").skip(1) {
        clusters.insert(cluster.split('"').next().unwrap().to_owned(), cluster);
    }
    for function in &functions {
        let graph = Graph::new(function);
        let address = |i: usize| function.instructions[i].address;
        let ours: BTreeSet<u64> = graph.blocks.iter().map(|b| address(b.instructions.start)).collect();
        // A subroutine is a cluster of its own there.
        let names = std::iter::once(&function.name).chain(function.subroutines.iter().map(|(name, _)| name));
        let theirs = names.flat_map(|name| bbcfg_starts(clusters[name], &referenced, function));
        let end = function.instructions.get(graph.code_len).map_or(u64::MAX, |i| i.address);
        let theirs: BTreeSet<u64> = theirs.filter(|a| *a < end).collect();
        let apart: Vec<_> = ours.symmetric_difference(&theirs).map(|a| format!("{a:#x}")).collect();
        assert!(apart.is_empty(), "{} {arch}: {apart:?}", function.name);
    }
}

#[test]
fn loops_and_roles_of_a_warp_specialised_kernel_are_found() {
    let Some(tools) = Tools::find() else { return };
    for arch in ["sm_90a", "sm_100a", "sm_103a", "sm_120a"] {
        let (cubin, _) = tools.cubin("roles", arch, &[]);
        let listing = listing(&tools, "nvdisasm", &["-c", "-hex"], &cubin);
        let analysis = kbt_sass::Analysis::new(&listing.functions[0], &Unit::mufu(), &Unit::f2fp());
        let names: Vec<_> = analysis.roles.iter().map(|r| r.name.as_str()).collect();
        assert!(names.contains(&"setmaxnreg:40") && names.contains(&"setmaxnreg:232"), "{arch}: {names:?}");
        let section = analysis.section();
        let consumer = section.regions.iter().find(|r| r.name == "setmaxnreg:232").unwrap();
        let producer = section.regions.iter().find(|r| r.name == "setmaxnreg:40").unwrap();
        assert!(
            consumer.mnemonics.contains_key("MUFU") && !producer.mnemonics.contains_key("MUFU"),
            "{arch}"
        );
        assert!(producer.mnemonics.contains_key("LDG") && !consumer.mnemonics.contains_key("LDG"), "{arch}");
        let (cubin, _) = tools.cubin("roles", arch, &["-DNO_BUDGETS"]);
        let listing = self::listing(&tools, "nvdisasm", &["-c"], &cubin);
        let by_branch =
            kbt_sass::Analysis::new(&listing.functions[0], &Unit::mufu(), &Unit::f2fp()).section();
        let loads: Vec<_> = by_branch.regions.iter().map(|r| r.mnemonics.contains_key("LDG")).collect();
        assert!(loads == [true, false] || loads == [false, true], "{arch}: {:?}", by_branch.regions.len());
        let users = consumer.loops.iter().filter(|l| l.of_loop.unwrap().kind == kbt_sass::LoopKind::User);
        assert!(
            users.count() >= 1 && consumer.loops.len() > 2,
            "{arch}: a wait loop and a loop of the source"
        );
    }
}
