//! The lints over machine code and PTX of our own kernels: what is planted is found, what is right is left alone.

#![allow(clippy::unwrap_used, reason = "test helpers")]

mod common;

use common::{Tools, fixtures};
use kbt_sass::{Cover, LintRule, PtxLint, lint, lint_ptx, lint_remark, parse};
use std::path::{Path, PathBuf};

fn text(name: &str) -> String {
    std::fs::read_to_string(fixtures().join("listings").join(format!("{name}.sm_90a.sass"))).unwrap()
}

#[test]
fn lint_tells_spills_arrays_and_indices_apart_and_finds_nothing_in_clean_code() {
    let rules = |name| {
        let found = lint(&parse(text(name).as_bytes()).unwrap());
        found.into_iter().map(|f| (f.place.split(' ').next().unwrap().to_owned(), f.rule)).collect::<Vec<_>>()
    };
    assert_eq!(rules("forms"), []);
    let found = rules("spilling");
    let has = |function: &str, rule| found.contains(&(function.to_owned(), rule));
    assert!(has("spilling", LintRule::SpillInLoop) && has("spilling", LintRule::Spill), "{found:?}");
    assert!(has("local_array", LintRule::LocalArrayInLoop) && has("local_array", LintRule::DynamicIndex));
    assert!(!has("local_array", LintRule::Spill) && !has("spilling", LintRule::DynamicIndex), "{found:?}");
}

#[test]
fn a_finding_names_its_place_its_loop_and_what_would_help() {
    let found = lint(&parse(text("spilling").as_bytes()).unwrap());
    let spill = found.iter().find(|f| f.rule == LintRule::SpillInLoop).unwrap();
    let shown = spill.to_string();
    assert!(spill.place.starts_with("spilling loop:") && spill.address.is_some(), "{shown}");
    assert!(
        spill.message.contains("loop depth 1") && shown.contains("fix: ") && shown.contains("why: "),
        "{shown}"
    );
}

#[test]
fn wgmma_that_is_waited_for_one_by_one_is_found() {
    let mma = "HGMMA.64x64x16.F32.BF16 R24, gdesc[UR4], R24, gsb0";
    let wait = "WARPGROUP.DEPBAR.LE gsb0, 0x0";
    let check = |body: &[&str], expect: bool| {
        let mut text = "\t.target\tsm_90a\n\t.section\t.text.f,\"ax\",@progbits\n".to_owned();
        for (n, line) in body.iter().chain(&["@P0 BRA 0x0", "EXIT"]).enumerate() {
            text += &format!("/*{:04x}*/ {line} ;\n", n * 16);
        }
        let found = lint(&parse(text.as_bytes()).unwrap());
        assert_eq!(found.iter().any(|f| f.rule == LintRule::WgmmaSerialised), expect, "{body:?}: {found:?}");
    };
    check(&[mma, wait, mma, wait], true);
    check(&[mma, mma, wait], false);
    check(&[mma, wait], false);
}

fn kernels() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels")
}

/// PTX of the attention kernel, with its knobs set; `root` holds the sources.
fn attention(tools: &Tools, root: &Path, knobs: &[(&str, u32)]) -> String {
    let defines: Vec<String> = knobs.iter().map(|(name, value)| format!("-DKBT_{name}={value}")).collect();
    let include = format!("-I{}", root.join("include").display());
    let source = root.join("attention/attention.cu").display().to_string();
    let mut args = vec!["-arch=sm_90a", "-ptx", &include, "-o", "-"];
    args.extend(defines.iter().map(String::as_str));
    args.push(&source);
    String::from_utf8(tools.run("nvcc", &args).0).unwrap()
}

fn look(ptx: &str) -> PtxLint {
    let module = kbt_ptx::parse(ptx).unwrap();
    assert_eq!(module.problems, []);
    lint_ptx(&module)
}

/// How many of `k` parts come before the split: the kernel's rule.
fn first(k: u64, num: u64, den: u64) -> u64 {
    (k * num / den).clamp(1, k - 1)
}

#[test]
fn the_attention_kernels_handoff_is_read_at_every_split_and_nothing_else_is_found() {
    let Some(tools) = Tools::find() else { return };
    // Mode, split, chunks; fp8 has half as many products a tile.
    for (mode, num, den, chunks) in
        [(0, 1, 2, 4), (0, 3, 4, 8), (1, 3, 4, 4), (1, 1, 4, 4), (2, 1, 4, 8), (2, 1, 2, 2)]
    {
        let knobs = [
            ("PV_MODE", mode),
            ("SPLIT_NUM", num),
            ("SPLIT_DEN", den),
            ("CHUNKS", chunks),
            ("TRACE_LEVEL", mode),
        ];
        let found = look(&attention(&tools, &kernels(), &knobs));
        assert_eq!((&found.findings[..], &found.notes[..]), (&[][..], &[][..]), "{knobs:?}");
        // Two softmax warpgroups hand over to one consumer. A kernel that traces has its roles twice, and that one copy
        // never meets the other cannot be read off.
        let handoffs = if mode == 0 { 2 } else { 8 };
        assert_eq!(found.handoffs.len(), handoffs, "{knobs:?}: {found:?}");
        let (chunks, tiles) = (u64::from(chunks), if mode == 1 { 4 } else { 8 });
        for handoff in &found.handoffs {
            let (stored, multiplied) = (handoff.stored.unwrap(), handoff.multiplied.unwrap());
            let chunk = stored.all_instructions / chunks;
            let split = (u64::from(num), u64::from(den));
            assert_eq!(stored.first_instructions, chunk * first(chunks, split.0, split.1), "{knobs:?}");
            assert_eq!((stored.all_instructions, multiplied.all_instructions), (8, tiles));
            assert_eq!(multiplied.first_instructions, first(tiles, split.0, split.1), "{knobs:?}");
            assert_eq!((handoff.cover, handoff.by_address), (Some(Cover::Covered), true));
        }
    }
    for (mode, dim) in [(0, 128), (1, 128), (2, 128), (0, 64), (1, 64), (2, 64)] {
        let knobs = [("TOPOLOGY", 1), ("PV_MODE", mode), ("HEAD_DIM", dim)];
        assert_eq!(look(&attention(&tools, &kernels(), &knobs)), PtxLint::default(), "{knobs:?}");
    }
}

#[test]
fn a_split_that_rounds_apart_is_found_short() {
    let Some(tools) = Tools::find() else { return };
    // The kernel's own check of the contract is taken out of a copy: 7/8 is 3 of 4 chunks and 7 of 8 products.
    let dir = tempfile::tempdir().unwrap();
    for folder in ["attention", "include/kbt"] {
        std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        for entry in std::fs::read_dir(kernels().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let text = text.replace("kFirstChunks * kMmaTiles >= kFirstTiles * kChunks", "true");
            std::fs::write(dir.path().join(folder).join(path.file_name().unwrap()), text).unwrap();
        }
    }
    let found = look(&attention(&tools, dir.path(), &[("SPLIT_NUM", 7), ("SPLIT_DEN", 8), ("CHUNKS", 4)]));
    let rules: Vec<_> = found.findings.iter().map(|f| f.rule).collect();
    assert_eq!(rules, [LintRule::HandoffShort; 2], "{found:?}");
    let message = &found.findings[0].message;
    assert!(message.contains("3/4 stored") && message.contains("7/8 multiplied"), "{message}");
}

#[test]
fn each_proxy_fence_that_is_taken_out_of_the_attention_kernel_is_missed() {
    let Some(tools) = Tools::find() else { return };
    let ptx = attention(&tools, &kernels(), &[("PV_MODE", 0)]);
    let fence = "fence.proxy.async.shared::cta;";
    let places: Vec<usize> = ptx.match_indices(fence).map(|(at, _)| at).collect();
    assert_eq!(places.len(), 2);
    for at in places {
        let planted = format!("{}{}", &ptx[..at], &ptx[at + fence.len()..]);
        let found = look(&planted).findings;
        // Both products of the handoff, in the consumer's two halves.
        assert_eq!(found.len(), 2, "{found:?}");
        for finding in found {
            assert_eq!(finding.rule, LintRule::MissingProxyFence);
            let line: usize = finding.source.unwrap().strip_prefix("line ").unwrap().parse().unwrap();
            let stored = planted.lines().nth(line - 1).unwrap();
            assert!(stored.contains("stmatrix"), "{stored}");
            assert!(
                finding.message.contains("4 stores") && finding.message.contains("wgmma"),
                "{}",
                finding.message
            );
        }
    }
}

#[test]
fn products_that_the_compiler_serialises_are_found_in_its_remarks_and_in_its_code() {
    let Some(tools) = Tools::find() else { return };
    let include = format!("-I{}", kernels().join("include").display());
    let (cubin, said) = tools.cubin("serialised", "sm_90a", &[&include]);
    // `ptxas info    : (C7511) Potential ...`
    let coded = |line: &str| {
        let (code, text) = line.split_once(": (C")?.1.split_once(") ")?;
        lint_remark(Some(&format!("C{code}")), text)
    };
    let remarked: Vec<_> = said.lines().filter_map(coded).collect();
    let is_ours = |f: &&kbt_sass::Finding| f.rule == LintRule::WgmmaSerialised && f.place == "touched";
    assert!(remarked.iter().any(|f| is_ours(&f)), "{said}");
    assert!(remarked.iter().all(|f| f.place != "overlapped"), "{said}");
    let listing = parse(&tools.run("nvdisasm", &["-c", &cubin]).0).unwrap();
    let found: Vec<_> = lint(&listing).into_iter().filter(|f| f.rule == LintRule::WgmmaSerialised).collect();
    assert!(!found.is_empty() && found.iter().all(|f| f.place.starts_with("touched loop:")), "{found:?}");
}
