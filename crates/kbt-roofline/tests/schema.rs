//! The JSON schema of fact sheets names exactly the fields that the reader accepts.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

use kbt_roofline::FactSheet;
use serde_json::Value;
use std::collections::BTreeSet;

/// The fields of an object, as the reader's own message lists them.
fn accepted(sheet: &str) -> BTreeSet<String> {
    let error = FactSheet::from_yaml(sheet, "f").unwrap_err().to_string();
    let (_, list) = error.split_once("expected").unwrap();
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn properties(value: &Value) -> BTreeSet<String> {
    value["properties"].as_object().unwrap().keys().cloned().collect()
}

#[test]
fn schema_and_reader_know_the_same_fields_and_words() {
    let schema: Value = serde_json::from_str(include_str!("../schema/facts.v1.schema.json")).unwrap();
    assert_eq!(properties(&schema), accepted("zzz: 1\n"));
    for section in
        ["operator", "shape", "dtypes", "dataflow", "implementation", "timing", "device", "profiler"]
    {
        assert_eq!(
            properties(&schema["properties"][section]),
            accepted(&format!("{section}: {{zzz: 1}}\n")),
            "{section}"
        );
    }
    for section in ["ceilings", "results"] {
        assert_eq!(
            properties(&schema["properties"][section]["items"]),
            accepted(&format!("{section}: [{{zzz: 1}}]\n")),
            "{section}"
        );
    }
    let words = |value: &Value| -> BTreeSet<String> {
        value["enum"].as_array().unwrap().iter().map(|v| v.as_str().unwrap().to_owned()).collect()
    };
    for (at, sheet) in [
        ("/properties/timing/properties/method", "timing: {method: zzz}\n"),
        ("/properties/dataflow/properties/access", "dataflow: {access: zzz}\n"),
        ("/properties/operator/properties/kind", "operator: {kind: zzz}\n"),
        ("/$defs/dtype", "dtypes: {inputs: [zzz]}\n"),
        ("/properties/ceilings/items/properties/kind", "ceilings: [{kind: zzz}]\n"),
    ] {
        let known = words(schema.pointer(at).unwrap());
        // The reader may name each word once, the schema its aliases too.
        assert!(accepted(sheet).is_subset(&known), "{at}: {:?} {known:?}", accepted(sheet));
    }
}
