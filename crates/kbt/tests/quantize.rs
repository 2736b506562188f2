//! `kbt quant` as scripts see it: codes, errors with their place, exit codes.
#![allow(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use std::io::Write;
use std::process::{Command, Stdio};

/// Exit code, standard output and standard error of `kbt quant ARGS` with this input.
fn quant(args: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kbt"))
        .arg("quant")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that refuses its options may end before it reads.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let out = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (out.status.code(), text(out.stdout), text(out.stderr))
}

/// The printed codes, on one line.
fn codes(args: &[&str], input: &str) -> String {
    let (code, out, err) = quant(args, input);
    assert_eq!(code, Some(0), "{args:?}: {err}");
    assert!(out.ends_with('\n') && !out.contains(' '), "one code a line: {out:?}");
    out.lines().collect::<Vec<_>>().join(" ")
}

/// 1, -0, NaN, infinity, 464, 0.3.
const INPUT: &str = "3f800000\n80000000\nffc00000\n7f800000\n43e80000\n3e99999a\n";

#[test]
fn every_format_and_mode_prints_one_code_a_line() {
    for (args, expected) in [
        (&["--to", "e2m1"][..], "02 08 07 07 07 01"),
        (&["--to", "e2m3"], "08 20 1f 1f 1f 02"),
        (&["--to", "e3m2"], "0c 20 1f 1f 1f 05"),
        (&["--to", "e4m3"], "38 80 7f 7e 7e 2a"),
        (&["--to", "e4m3", "--no-satfinite"], "38 80 7f 7f 7e 2a"),
        (&["--to", "e4m3", "--relu"], "38 00 7f 7e 7e 2a"),
        (&["--to", "e5m2"], "3c 80 7f 7b 5f 35"),
        (&["--to", "ue8m0"], "7f 00 ff fe 87 7d"),
        (&["--to", "ue8m0", "--rounding", "rp"], "7f 00 ff fe 88 7e"),
        (&["--to", "bf16"], "3f80 8000 7fff 7f80 43e8 3e9a"),
        (&["--to", "bf16", "--rounding", "rm"], "3f80 8000 7fff 7f80 43e8 3e99"),
        (&["--to", "f16"], "3c00 8000 7fff 7c00 5f40 34cd"),
        (&["--to", "f16", "--satfinite", "--rounding", "rz"], "3c00 8000 7fff 7bff 5f40 34cc"),
    ] {
        assert_eq!(codes(&[&["quantize", "--hex"], args].concat(), INPUT), expected, "{args:?}");
    }
    assert_eq!(codes(&["quantize", "--to", "e4m3"], "1.0\n-2.5\n"), "38 c2");
    assert_eq!(quant(&["quantize", "--to", "e4m3", "--hex"], "").0, Some(0), "no input, no codes");
}

#[test]
fn a_block_prints_its_scale_and_its_codes() {
    // Greatest magnitude 6 with no scale for the tensor: scale 1, the values are the codes' own.
    let ramp = ["0", "0.5", "1", "1.5", "2", "3", "4", "-6"].join("\n");
    let sixteen = format!("{ramp}\n{ramp}\n");
    let args = |block, rule| ["quantize", "--block", block, "--scale-rule", rule, "--tensor-amax", "0"];
    for rule in ["te", "transformer-engine", "flashinfer", "flashinfer-exact", "torchao", "sage3"] {
        assert_eq!(
            codes(&args("nvfp4", rule), &sixteen),
            "38 00 01 02 03 04 05 06 0f 00 01 02 03 04 05 06 0f"
        );
    }
    let thirty_two = sixteen.repeat(2);
    for rule in ["floor", "round-up", "ocp-floor", "rceil"] {
        assert!(codes(&args("mxfp4", rule), &thirty_two).starts_with("7f 00 01 02 03 04 05 06 0f 00"));
    }
    // floor(log2 6) is 2 and e4m3 reaches 2^8: scale 2^-6, and 0.5 becomes 32.
    assert!(codes(&args("mxfp8", "floor"), &thirty_two).starts_with("79 00 60 68"));
}

#[test]
fn the_scale_of_the_tensor_is_told_and_codes_times_scales_are_the_values() {
    let sixteen: String = (0..16).map(|i| format!("{i}\n")).collect();
    let args = ["quantize", "--block", "nvfp4", "--scale-rule", "te"];
    let (code, out, err) = quant(&args, &sixteen);
    // 15 / 2688: 15, the greatest, is 6 * 448 of it.
    assert_eq!((code, out.lines().next(), out.lines().last()), (Some(0), Some("7e"), Some("07")));
    assert!(err.contains("0.0055803573 (3bb6db6e)") && err.contains("magnitude of 15"), "{err}");
    let (_, out, err) = quant(&[&args[..], &["--format", "json"]].concat(), &sixteen);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["tensor"]["scale_hex"], "3bb6db6e", "{err}");
    let scale = json["tensor"]["scale"].as_f64().unwrap();
    assert!((6.0 * 448.0 * scale - 15.0).abs() < 1e-5 && json["tensor"]["amax"] == 15.0, "{out}");
    // A rule without such a scale says nothing of one.
    let (_, _, err) = quant(&["quantize", "--block", "nvfp4", "--scale-rule", "sage3"], &sixteen);
    assert_eq!(err, "");
}

#[test]
fn the_list_of_programs_is_text_or_json() {
    let (_, text, _) = quant(&["rewrite", "--list"], "");
    let (_, json, _) = quant(&["rewrite", "--list", "--format", "json"], "");
    let json: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    let named = |p: &serde_json::Value| {
        format!("{}\n{}\n", p["name"].as_str().unwrap(), p["program"].as_str().unwrap())
    };
    assert_eq!(json.iter().map(named).collect::<String>(), text);
    assert!(text.starts_with("softmax-nvfp4-linear\nlayout "), "{text}");
}

#[test]
fn bad_input_names_its_line_and_what_is_accepted() {
    for (args, input, expect) in [
        (&["quantize", "--to", "e4m3", "--hex"][..], "3f800000\nzz\n", "-:2: `zz`"),
        (&["quantize", "--to", "e4m3", "--hex"], "3f8000001\n", "-:1: `3f8000001`"),
        (
            &["quantize", "--to", "e4m3", "--hex"],
            "3f80000\n",
            "-:1: `3f80000` is not an f32's bits as eight hex digits",
        ),
        (&["quantize", "--to", "e4m3"], "1\n\nx\n", "-:3: `x`"),
        (
            &["quantize", "--to", "e4m3"],
            "1\n-1e39\n",
            "-:2: `-1e39` is not a decimal number within f32's range",
        ),
        (
            &["quantize", "--block", "mxfp4", "--scale-rule", "floor", "--tensor-amax", "5"],
            "1\n",
            "--tensor-amax 5: mxfp4 with `floor` has no scale for the tensor",
        ),
        (
            &["quantize", "--block", "nvfp4", "--scale-rule", "sage3", "--tensor-amax", "5"],
            "1\n",
            "nvfp4 with `sage3` has no scale",
        ),
        (&["lift", "-"], ".version 9.0\n.target sm_90a\n.address_size 64\n", "-: no function in this PTX"),
        (&["rewrite", "--list", "softmax-nvfp4-linear"], "", "cannot be used with '[PROGRAM]'"),
        (&["rewrite", "--cuda", "--format", "json", "softmax-nvfp4-linear"], "", "cannot be used with"),
        (&["rewrite", "--candidates", "0", "softmax-nvfp4-linear"], "", "a whole number from 1 up"),
        (&["quantize", "--to", "e4m4", "--hex"], "", "e5m2"),
        (&["quantize", "--to", "e4m3", "--rounding", "rz"], "", "PTX has rn"),
        (&["quantize", "--to", "bf16", "--rounding", "rp", "--relu"], "", "goes with rn and rz"),
        (&["quantize", "--block", "mxfp4", "--scale-rule", "te"], "", "floor, round-up"),
        (&["quantize", "--block", "nvfp4", "--scale-rule", "fast"], "", "torchao"),
        (&["quantize", "--block", "nvfp4", "--scale-rule", "te"], "1\n", "16-element blocks"),
        (&["quantize", "--block", "nvfp4", "--scale-rule", "te", "--tensor-amax=-1"], "", "from 0 up"),
        (&["quantize"], "", "--to"),
        (
            &["quantize", "--to", "e4m3", "--scale-rule", "te"],
            "1\n",
            "--scale-rule te: only blocks have a scale; it goes with --block, which takes nvfp4, mxfp4",
        ),
        (&["quantize", "--scale-rule", "floor"], "1\n", "it goes with --block, which takes nvfp4"),
        (
            &["quantize", "--to", "e4m3", "--tensor-amax", "3"],
            "1\n",
            "--tensor-amax 3: only blocks have a scale",
        ),
        (&["quantize", "--block", "nvfp4"], "1\n", "--scale-rule"),
        (&["check", "-"], "schema: kbt.scheme/1\nname: x\nelement: e2m9\noffset_log2: 0\n", "-:3:10: "),
        (
            &["check", "-"],
            "schema: kbt.scheme/1\nname: x\nelement: e4m3\noffset_log2: 900\n",
            "-:4:1: offset_log2",
        ),
        (
            &["rewrite", "-"],
            "layout group=16 lanes=64\n",
            "-:1:23: lanes=64 share a row: a power of two up to",
        ),
        (
            &["rewrite", "-"],
            "layout group=1\nelem s\nout y = s * 1e999\n",
            "-:3:13: 1e999 is greater than any f32",
        ),
        (
            &["rewrite", "-"],
            "layout group=1\nelem s in [0, 2^99999]\nout y = s\n",
            "-:2:15: 2^99999 is greater",
        ),
    ] {
        let (code, out, err) = quant(args, input);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}: {err}");
        assert!(err.contains(expect), "{args:?}: {err}");
    }
}

#[test]
fn a_scheme_that_overflows_fails_the_check() {
    let scheme = |offset| {
        format!(
            "schema: kbt.scheme/1\nname: x\nelement: e4m3\noffset_log2: {offset}\nrescale_threshold_log2: 4\n"
        )
    };
    let (code, out, _) = quant(&["check", "-"], &scheme(8));
    assert_eq!(code, Some(1));
    assert!(out.contains("DOES NOT FIT") && out.contains("89 %"), "{out}");
    assert_eq!(quant(&["check", "-"], &scheme(4)).0, Some(0));
}

/// Two kernels; the second is what is cut.
const PTX: &str = ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry first(.param .f32 k)\n{\n\
    ld.param.f32 %f1, [k];\nld.global.f32 %f2, [%rd1];\nsub.f32 %f3, %f2, %f1;\nmul.f32 %f4, %f3, 0f40000000;\n\
    st.global.f32 [%rd1], %f4;\nret;\n}\n.visible .entry second()\n{\nld.global.f32 %f1, [%rd1];\n\
    mul.f32 %f2, %f1, %f1;\nst.global.f32 [%rd1], %f2;\nret;\n}\n";

#[test]
fn a_cut_or_broken_function_is_lifted_as_far_as_it_was_read_and_fails() {
    assert_eq!(quant(&["lift", "-"], PTX).0, Some(0));
    // Cut in the middle of the second function, within an instruction.
    let cut = &PTX[..PTX.rfind("%f2;\nret").unwrap()];
    let (code, out, err) = quant(&["lift", "-"], cut);
    assert_eq!(code, Some(2));
    assert!(out.contains("NOT READ: line 13: the text ends inside `second`"), "{out}");
    assert!(out.contains("out f4 = (f2 - f1) * 2"), "{out}");
    assert!(
        err.contains("-:17: the text ends inside `st.global.f32 [%rd1],`; `second` is lifted only as far"),
        "{err}"
    );
    // The first function is whole: what it says stands, and the cut is told.
    let (code, out, err) = quant(&["lift", "-", "--function", "first"], cut);
    assert_eq!(code, Some(0));
    assert!(!out.contains("NOT READ") && err.contains("the text ends inside `second`"), "{out} {err}");
    let (code, out, _) = quant(&["lift", "-", "--function", "second", "--format", "json"], cut);
    assert_eq!(code, Some(2));
    assert!(out.contains("\"unread\"") && out.contains("\"ptx_line\": 13"), "{out}");
    // A literal that is none.
    let (code, out, err) = quant(&["lift", "-"], &PTX.replace("0f40000000", "0f4000"));
    assert_eq!(code, Some(2));
    assert!(
        out.contains("NOT READ: line 9: `0f4000` in `mul.f32` is no literal: an f32 is 0f and 8"),
        "{out}"
    );
    assert!(err.contains("-:9: `0f4000`"), "{err}");
    // Nothing but a header that is cut.
    let (code, _, err) = quant(&["lift", "-"], &PTX[..PTX.find("(.param").unwrap() + 3]);
    assert_eq!(code, Some(2));
    assert!(err.contains("the text ends inside `.visible .entry first(.p`"), "{err}");
}
