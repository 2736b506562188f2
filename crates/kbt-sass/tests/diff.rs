//! Differences between builds of the same kernels.

#![allow(clippy::unwrap_used, reason = "test helpers")]

mod common;

use common::{Tools, fixtures};
use kbt_sass::{DiffKind, Function, diff, diff_listings, parse};

fn text(name: &str) -> String {
    std::fs::read_to_string(fixtures().join("listings").join(format!("{name}.sm_90a.sass"))).unwrap()
}

fn kinds(a: &str, b: &str) -> Vec<(String, DiffKind)> {
    let (a, b) = (parse(a.as_bytes()).unwrap(), parse(b.as_bytes()).unwrap());
    diff_listings(&a, &b, |_| true).functions.into_iter().map(|f| (f.a, f.kind)).collect()
}

#[test]
fn the_same_listing_is_identical_and_one_changed_line_is_told_in_its_place() {
    let old = text("forms");
    assert!(kinds(&old, &old).iter().all(|(_, kind)| *kind == DiffKind::Identical));
    let line = old.lines().find(|l| l.contains("MUFU.EX2")).unwrap();
    let new = old.replacen(line, &line.replace("MUFU.EX2", "MUFU.RCP"), 1);
    let (a, b) = (parse(old.as_bytes()).unwrap(), parse(new.as_bytes()).unwrap());
    let found = diff_listings(&a, &b, |_| true);
    let changed: Vec<_> = found.functions.iter().filter(|f| f.kind != DiffKind::Identical).collect();
    assert_eq!(changed.len(), 1);
    assert_eq!(changed[0].kind, DiffKind::Changed);
    assert_eq!((changed[0].added["MUFU.RCP"], changed[0].removed["MUFU.EX2"]), (1, 1));
    let marks: String = changed[0].alignment.iter().map(|l| l.mark.as_str()).collect();
    assert_eq!(marks, "  -+  ", "two lines around the change");
    let shown = found.render_text();
    assert!(shown.contains("proves no speed"), "{shown}");
}

#[test]
fn the_same_build_is_identical_and_another_target_is_not() {
    let Some(tools) = Tools::find() else { return };
    let function = |arch: &str, options: &[&str]| -> Function {
        let (cubin, _) = tools.cubin("forms", arch, options);
        let listing = parse(&tools.run("nvdisasm", &["-c", "-hex", &cubin]).0).unwrap();
        listing.functions.into_iter().find(|f| f.name == "softmax_chunked").unwrap()
    };
    let base = function("sm_90a", &[]);
    let again = diff(&base, &function("sm_90a", &["-DUNUSED"]));
    assert_eq!((again.kind, again.by_encoding), (DiffKind::Identical, true));
    let other = diff(&base, &function("sm_100a", &[]));
    assert!(other.kind > DiffKind::RenamedOnly, "{:?}", other.kind);
    assert!(!other.alignment.is_empty());
}

/// Two kernels of thirty thousand instructions, one with every twentieth replaced: more
/// edits than an exact alignment is asked for.
#[test]
fn a_whole_kernel_is_aligned_however_much_changed() {
    const OPCODES: [&str; 7] =
        ["FFMA", "MUFU.EX2", "FADD", "F2FP.BF16.F32.PACK_AB", "HGMMA.64x128x16.F32", "LDS", "PRMT"];
    let listing = |edited: bool| {
        let mut text = String::from("\t.target\tsm_90a\n\t.section\t.text.k,\"ax\",@progbits\n");
        let mut state = 1_u32;
        for n in 0..30_000_u32 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let opcode =
                if edited && n % 20 == 0 { "IADD3" } else { OPCODES[(state >> 16) as usize % OPCODES.len()] };
            text += &format!("/*{:05x}*/ {opcode} R{}, R{} ;\n", n * 16, n % 200, state % 200);
        }
        text += &format!("/*{:05x}*/ EXIT ;\n", 480_000);
        parse(text.as_bytes()).unwrap().functions.remove(0)
    };
    let found = diff(&listing(false), &listing(true));
    assert_eq!((found.kind, found.added["IADD3"]), (DiffKind::Changed, 1500));
    let added = found.alignment.iter().filter(|l| l.mark == "+").count();
    assert!((1500..1900).contains(&added), "{added} lines added");
}
