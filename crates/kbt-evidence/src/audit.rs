//! The rule "a number has a provenance above it", over a JSON value.

use serde_json::Value;

/// The JSON paths of all numbers that no `provenance` covers.
///
/// A number is covered if the object that holds it, or an object further up, has an object under the key
/// `provenance`. Numbers inside a provenance itself (a clock, say) are part of the statement and are exempt.
#[must_use]
pub fn uncovered_numbers(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk(value, false, &mut String::from("$"), &mut found);
    found
}

fn walk(value: &Value, covered: bool, path: &mut String, found: &mut Vec<String>) {
    match value {
        Value::Number(_) if !covered => found.push(path.clone()),
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                descend(&format!("[{i}]"), item, covered, path, found);
            }
        }
        Value::Object(map) => {
            let covered = covered || map.get("provenance").is_some_and(Value::is_object);
            for (key, item) in map.iter().filter(|(key, _)| *key != "provenance") {
                descend(&format!(".{key}"), item, covered, path, found);
            }
        }
        _ => {}
    }
}

fn descend(step: &str, value: &Value, covered: bool, path: &mut String, found: &mut Vec<String>) {
    let length = path.len();
    path.push_str(step);
    walk(value, covered, path, found);
    path.truncate(length);
}

#[cfg(test)]
mod tests {
    use super::uncovered_numbers;
    use serde_json::json;

    #[test]
    fn only_numbers_with_no_provenance_above_them_are_named() {
        let value = json!({
            "a": {"cycles": 3, "provenance": {"kind": "assumed", "by": "x", "sm_clock_mhz": 1980}},
            "b": [{"cycles": 4}, {"deep": {"cycles": 5}, "provenance": {"kind": "mined", "by": "y"}}],
            "c": {"cycles": 6, "provenance": "just a word"},
        });
        assert_eq!(uncovered_numbers(&value), ["$.b[0].cycles", "$.c.cycles"]);
    }
}
