//! `kbt trace stats`: the names that scripts use, units, errors, names that a file gives.

use super::*;

#[test]
fn stats_has_the_fields_and_role_names_that_scripts_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile.bin");
    std::fs::write(&file, fa4(|at| at)).unwrap();
    let stats = json(&["stats", file.to_str().unwrap(), "--input", "fa4-fp4", "--format", "json"]);
    let roles = stats["roles"].as_array().unwrap();
    let names: Vec<_> = roles.iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["MMA", "Softmax0", "Softmax1", "Correction"]);
    let softmax = &roles[1];
    assert_eq!((&softmax["steps"], &softmax["busy_cycles"]), (&30.into(), &2429.0.into()));
    for quantile in ["median", "p10", "p90"] {
        assert_eq!(softmax["period_cycles"][quantile], 4381.0);
    }
    assert_eq!((&softmax["waits"][0]["on"], &softmax["waits"][0]["cycles"]), (&"S".into(), &1952.0.into()));
}

#[test]
fn nanoseconds_without_a_clock_are_refused_and_name_the_option() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile.bin");
    std::fs::write(&file, fa4(|at| at / 32 * 32)).unwrap();
    let file = file.to_str().unwrap();
    let output = kbt(&["stats", file]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("--clock-mhz"), "{}", text(&output.stderr));
    assert_eq!(kbt(&["stats", file, "--clock-mhz", "1500"]).status.code(), Some(0));
    assert_eq!(kbt(&["stats", file, "--clock-mhz", "-3"]).status.code(), Some(2));
    assert_eq!(kbt(&["stats", "/nowhere.kbttrace"]).status.code(), Some(2));
}

#[test]
fn a_reason_is_given_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("torn.json");
    std::fs::write(&file, r#"{"traceEvents": [7]}"#).unwrap();
    for name in [file.to_str().unwrap(), "no-such-file"] {
        let output = kbt(&["stats", name]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        let reason = if name == "no-such-file" { "No such file" } else { "invalid type" };
        assert_eq!(message.matches(reason).count(), 1, "{message}");
    }
}

#[test]
fn names_from_a_file_forge_no_line_and_a_launch_is_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("t.json"), folder.path().join("out"));
    let range = |launch: u64, i: u64| {
        let at = 1_000_000 * launch + 640 * (launch + 1) * i;
        serde_json::json!({"rangeName": "mma\nnote: all is well\u{1b}[2J", "startTs": at, "endTs": at + 320,
            "warpLocs": [{"smId": 0, "ctaId": [0, 0, 0], "warpId": 4}]})
    };
    let launch = |l: u64| serde_json::json!({"ranges": (0..30).map(|i| range(l, i)).collect::<Vec<_>>()});
    std::fs::write(&file, serde_json::json!({"launches": [launch(0), launch(1)]}).to_string()).unwrap();
    let file = file.to_str().unwrap();
    let args = ["stats", file, "--clock-mhz", "1000", "--launch", "1"];
    let printed = text(&kbt(&args).stdout);
    assert!(
        printed.contains("period 1280 ") && printed.contains("mma\\nnote: all is well\\u{1b}[2J"),
        "{printed}"
    );
    assert!(!printed.lines().any(|line| line.starts_with("note: all")), "{printed}");
    let stats = json(&[&args[..], &["--format", "json"]].concat());
    assert_eq!(stats["roles"][0]["events"][0]["name"], "mma\nnote: all is well\u{1b}[2J");
    let gated = kbt(&["diff", file, file, "--clock-mhz", "1000", "--gate", "event no=1"]);
    let said = text(&gated.stderr);
    assert!(
        gated.status.code() == Some(2) && said.lines().count() == 1 && !said.contains('\u{1b}'),
        "{said}"
    );
    assert_eq!(kbt(&["stats", file, "--clock-mhz", "1000", "--launch", "2"]).status.code(), Some(2));
    for to in ["svg", "perfetto", "chrome"] {
        let args = ["export", file, "--to", to, "--clock-mhz", "1000", "-o", out.to_str().unwrap()];
        let written = kbt(&args);
        assert_eq!(written.status.code(), Some(0), "{to}: {}", text(&written.stderr));
        assert!(!text(&written.stderr).contains('\u{1b}'), "{to}");
    }
}
