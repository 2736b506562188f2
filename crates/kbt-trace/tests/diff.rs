//! Two traces beside each other.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::*;
use kbt_evidence::audit::uncovered_numbers;
use kbt_trace::Level;
use kbt_trace::diff::{Gate, diff};

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
    let gate = |text: &str| diff.violations(&[text.parse::<Gate>().unwrap()]);
    assert_eq!(gate("event tile=20").unwrap(), [""; 0]);
    assert_eq!(gate("event tile = 5%").unwrap(), ["PV event tile: +20.00 %, allowed +5.00 %"]);
    assert!(gate("speed=1").unwrap_err().to_string().contains("period"));
    assert!("period".parse::<Gate>().is_err());
    assert_eq!(uncovered_numbers(&serde_json::to_value(&diff).unwrap()), [""; 0]);
    assert!(diff.render_text().contains("event tile"));
}
