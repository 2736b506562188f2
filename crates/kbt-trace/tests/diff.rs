//! Two traces beside each other.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::*;
use kbt_evidence::audit::uncovered_numbers;
use kbt_trace::Level;
use kbt_trace::bindings as b;
use kbt_trace::diff::{Gate, Limit, TraceDiff, diff};

#[test]
fn changes_are_per_role_and_metric_and_gates_name_what_grew() {
    let b = outcome(&file(&info(Level::Coarse), 1024, &pipeline(0, 30, 0)));
    let mut shorter = pipeline(0, 30, 0);
    // P·V's tiles end 100 cycles earlier.
    for record in shorter[1].records.iter_mut().skip(3).step_by(4) {
        record.clock -= 100;
    }
    let a = outcome(&file(&info(Level::Coarse), 1024, &shorter));
    let diff = diff(&a, &b);
    let change = |role: &str, metric: &str| {
        diff.changes.iter().find(|c| c.role == role && c.metric == metric).unwrap().change_percent
    };
    assert_eq!(change("Softmax", "period"), Some(0.0));
    assert_eq!(change("PV", "event tile"), Some(20.0));
    assert!(diff.notes.iter().any(|n| n.starts_with("first trace")), "{:?}", diff.notes);
    let gate = |text: &str| violations(&diff, text);
    assert_eq!(gate("event tile=20").unwrap(), [""; 0]);
    assert_eq!(gate("event tile = 5%").unwrap(), ["PV event tile: +20.00 %, allowed +5.00 %"]);
    assert_eq!(gate("PV: event tile<=600").unwrap(), [""; 0]);
    assert_eq!(gate("PV: event tile<=599.5 clk").unwrap(), ["PV event tile: 600.00, allowed at most 599.50"]);
    assert_eq!(gate("period p90=0").unwrap(), [""; 0]);
    assert_eq!(
        gate("round trip P_full<=59").unwrap(),
        ["PV round trip P_full: 60.00, allowed at most 59.00"]
    );
    assert_eq!(gate("prologue<=3000").unwrap(), ["PV prologue: 3120.00, allowed at most 3000.00"]);
    assert!(gate("speed=1").unwrap_err().contains("period"));
    assert!(gate("Softmax: event tile=1").unwrap_err().contains("Softmax: wait P_empty"));
    assert!(gate("Nobody: period=1").unwrap_err().contains("PV: …"));
    for text in ["period", "period=", "=3", ": period=1", "period=inf", "period<=x"] {
        assert!(text.parse::<Gate>().unwrap_err().to_string().contains("METRIC=PERCENT"), "{text}");
    }
    assert_eq!(uncovered_numbers(&serde_json::to_value(&diff).unwrap()), [""; 0]);
    assert!(diff.render_text().contains("event tile"));
}

fn violations(diff: &TraceDiff, gate: &str) -> Result<Vec<String>, String> {
    let mut diff = diff.clone();
    diff.judge(&[gate.parse::<Gate>().unwrap()]).map_err(|e| e.to_string())?;
    Ok(diff.violations)
}

#[test]
fn a_gate_does_not_pass_for_want_of_a_number() {
    let whole = outcome(&file(&info(Level::Coarse), 1024, &pipeline(0, 30, 0)));
    // P·V without its waits and tiles: only their begins are left.
    let mut silent = pipeline(0, 30, 0);
    silent[1].records.retain(|r| r.tag >> b::KBT_TRACE_KIND_SHIFT != b::KBT_TRACE_END);
    let silent = outcome(&file(&info(Level::Coarse), 1024, &silent));
    let gone = diff(&whole, &silent);
    assert_eq!(
        violations(&gone, "event tile=50").unwrap(),
        ["PV event tile: not in the second trace, so that the gate cannot be judged"]
    );
    let new = diff(&silent, &whole);
    assert_eq!(
        violations(&new, "event tile=50").unwrap(),
        ["PV event tile: not in the first trace, so that the gate cannot be judged"]
    );
    assert_eq!(violations(&new, "event tile<=700").unwrap(), [""; 0], "a value needs one trace");
}

#[test]
fn rings_are_compared_and_gated() {
    let a = outcome(&file(&info(Level::Coarse), 1024, &filled_and_freed(0, 30)));
    let mut later = filled_and_freed(0, 30);
    later[1].records.iter_mut().skip(4).step_by(5).for_each(|arrive| arrive.clock += 16);
    let b = outcome(&file(&info(Level::Coarse), 1024, &later));
    let diff = diff(&a, &b);
    assert_eq!(diff.rings.len(), 1);
    let grown = diff.rings[0].change_percent.unwrap();
    assert!((2.3..2.5).contains(&grown), "16 of 640 more, of a time that is longer: {grown}");
    assert_eq!(violations(&diff, "ring P=3").unwrap(), [""; 0]);
    assert_eq!(violations(&diff, "ring P=2").unwrap().len(), 1);
    assert!(diff.render_text().contains("slots"), "{}", diff.render_text());
}

#[test]
fn what_is_odd_about_either_trace_is_in_the_comparison() {
    let whole = outcome(&file(&info(Level::Coarse), 1024, &pipeline(0, 30, 0)));
    let mut damaged = pipeline(0, 30, 0);
    damaged[0].records[50].tag = kbt_trace::kbt::tag(9, 0, 0);
    let damaged = outcome(&file(&info(Level::Coarse), 1024, &damaged));
    for (a, b, which) in [(&damaged, &whole, "first"), (&whole, &damaged, "second")] {
        let text = diff(a, b).render_text();
        let says = format!("note: {which} trace: Softmax: 1 x a record of unknown kind");
        assert!(text.contains(&says), "{text}");
    }
    assert!(damaged.problems.iter().any(|p| p.kind.damages()));
    assert!(!whole.problems.iter().any(|p| p.kind.damages()), "{:?}", whole.problems);
}

#[test]
fn steady_steps_are_not_gated_against_a_prologue() {
    let long = outcome(&file(&info(Level::Coarse), 1024, &pipeline(0, 30, 0)));
    let short = outcome(&file(&info(Level::Coarse), 1024, &pipeline(0, 5, 0)));
    for (a, b, which) in [(&long, &short, "first"), (&short, &long, "second")] {
        let found = violations(&diff(a, b), "Softmax: period=3").unwrap();
        assert_eq!(
            found,
            [format!(
                "Softmax period: steady steps in the {which} trace alone, so that the gate cannot be judged"
            )]
        );
    }
    assert_eq!(violations(&diff(&short, &short), "period=3").unwrap(), [""; 0], "like with like");
    assert_eq!(
        violations(&diff(&long, &short), "Softmax: period<=1000").unwrap(),
        [""; 0],
        "a value needs one trace"
    );
}

#[test]
fn devices_that_differ_are_said() {
    let trace = |device: &str| {
        let mut info = info(Level::Coarse);
        info.meta.insert("device".into(), device.into());
        outcome(&file(&info, 1024, &pipeline(0, 30, 0)))
    };
    let text = diff(&trace("Test GPU"), &trace("Another GPU")).render_text();
    assert!(text.contains("note: the devices differ: Test GPU and Another GPU"), "{text}");
    assert!(!diff(&trace("Test GPU"), &trace("Test GPU")).render_text().contains("devices"));
}

#[test]
fn roles_that_share_a_name_are_compared_each_with_its_own() {
    let trace = |busy: u64| {
        let mut info = info(Level::Coarse);
        info.roles[1].name = "Softmax".into();
        let mut rings = pipeline(0, 30, 0);
        for record in rings[1].records.iter_mut().skip(3).step_by(4) {
            record.clock -= 600 - busy as u32;
        }
        outcome(&file(&info, 1024, &rings))
    };
    let diff = diff(&trace(500), &trace(600));
    let change = |role: &str, metric: &str| {
        diff.changes.iter().find(|c| c.role == role && c.metric == metric).map(|c| c.change_percent)
    };
    assert_eq!(change("Softmax #2", "event tile"), Some(Some(20.0)));
    assert_eq!(change("Softmax #1", "event tile"), None);
    assert_eq!(
        violations(&diff, "event tile=5").unwrap(),
        ["Softmax #2 event tile: +20.00 %, allowed +5.00 %"]
    );
    let error = violations(&diff, "Softmax: event tile=5").unwrap_err();
    assert!(error.contains("Softmax #2"), "{error}");
}

#[test]
fn a_name_that_the_second_trace_alone_has_twice_is_numbered_in_both() {
    let trace = |name: &str, steps: u64| {
        let mut info = info(Level::Coarse);
        info.roles[1].name = name.into();
        outcome(&file(&info, 1024, &pipeline(0, steps, 0)))
    };
    let roles = |diff: &TraceDiff| -> Vec<String> {
        let mut roles: Vec<_> = diff.changes.iter().map(|c| c.role.clone()).collect();
        roles.dedup();
        roles
    };
    let once = diff(&trace("PV", 30), &trace("Softmax", 30));
    assert_eq!(roles(&once), ["Softmax #1", "PV", "Softmax #2"]);
    // Problems know the name alone.
    let short = diff(&trace("Softmax", 30), &trace("Softmax", 5));
    assert_eq!(
        violations(&short, "Softmax #2: period=3").unwrap(),
        ["Softmax #2 period: steady steps in the first trace alone, so that the gate cannot be judged"]
    );
}

/// [`pipeline`] where P·V waits for two barriers that are both named P_full, and its tiles are of two events of one name.
fn twins(second: u64) -> kbt_trace::outcome::TraceOutcome {
    let mut info = info(Level::Coarse);
    info.barriers[K_FULL as usize] = info.barriers[P_FULL as usize].clone();
    info.events[CHUNK as usize] = info.events[TILE as usize].clone();
    let mut pv = Vec::new();
    for step in 0..30 {
        let at = 500 + step * 1000;
        pv.extend([
            (b::KBT_TRACE_WAIT_BEGIN, P_FULL, at),
            (b::KBT_TRACE_WAIT_END, P_FULL, at + 100),
            (b::KBT_TRACE_WAIT_BEGIN, K_FULL, at + 200),
            (b::KBT_TRACE_WAIT_END, K_FULL, at + 200 + second),
            (b::KBT_TRACE_BEGIN, CHUNK, at + 500),
            (b::KBT_TRACE_END, CHUNK, at + 600),
            (b::KBT_TRACE_BEGIN, TILE, at + 600),
            (b::KBT_TRACE_END, TILE, at + 600 + second),
        ]);
    }
    outcome(&file(&info, 1024, &[ring(0, PV, 0, &pv, 33_000)]))
}

#[test]
fn barriers_and_events_that_share_a_name_are_compared_each_with_its_own() {
    let diff = diff(&twins(100), &twins(150));
    let change =
        |metric: &str| diff.changes.iter().find(|c| c.metric == metric).and_then(|c| c.change_percent);
    assert_eq!((change("wait P_full #1"), change("wait P_full #2")), (Some(0.0), Some(50.0)));
    assert_eq!((change("event tile #1"), change("event tile #2")), (Some(0.0), Some(50.0)));
    assert_eq!(change("wait P_full"), None);
    assert_eq!(
        violations(&diff, "wait P_full #2=5").unwrap(),
        ["PV wait P_full #2: +50.00 %, allowed +5.00 %"]
    );
    let error = violations(&diff, "wait P_full=5").unwrap_err();
    assert!(error.contains("wait P_full #2"), "{error}");
}

#[test]
fn a_gate_takes_a_name_that_holds_its_signs() {
    for (text, metric, limit) in [
        ("event n=4=3", "event n=4", Limit::Growth(3.0)),
        ("event n=4<=3", "event n=4", Limit::Value(3.0)),
        ("event a<=b<=3", "event a<=b", Limit::Value(3.0)),
        ("event a<=b=3", "event a<=b", Limit::Growth(3.0)),
    ] {
        let gate: Gate = text.parse().unwrap();
        assert_eq!((gate.what.as_str(), gate.limit), (metric, limit), "{text}");
    }
}

#[test]
fn a_gate_takes_names_with_colons() {
    let trace = |tile: u32| {
        let mut info = info(Level::Coarse);
        info.roles[0].name = "wg:0".into();
        info.roles[1].name = "wg:0: PV".into();
        info.barriers[P_FULL as usize].name = "P: full".into();
        info.events[TILE as usize].name = "mma:tile".into();
        let mut rings = pipeline(0, 30, 0);
        rings[1].records.iter_mut().skip(3).step_by(4).for_each(|record| record.clock -= tile);
        outcome(&file(&info, 1024, &rings))
    };
    let grown = diff(&trace(100), &trace(0));
    let over = ["wg:0: PV event mma:tile: +20.00 %, allowed +5.00 %"];
    for gate in ["event mma:tile=5", "wg:0: PV: event mma:tile=5", "wg:0: PV:event mma:tile=5"] {
        assert_eq!(violations(&grown, gate).unwrap(), over, "{gate}");
    }
    for gate in ["event mma:tile=25", "wg:0: period=5", "wg:0: PV: wait P: full=5", "wait P: full=5"] {
        assert_eq!(violations(&grown, gate).unwrap(), [""; 0], "{gate}");
    }
    let error = violations(&grown, "wg:0: PV: event tile=5").unwrap_err();
    assert!(error.contains("wg:0: PV: event mma:tile") && !error.contains("wg:0: period"), "{error}");
    let error = violations(&grown, "wg:1: period=5").unwrap_err();
    assert!(error.contains("wg:0: …") && error.contains("event mma:tile"), "{error}");
}
