//! What ptxas remarks on: serialised matrix instructions, ignored register budgets.

use super::{Finding, LintRule};

/// Codes of ptxas' remarks, and the rule that each breaks. Found in what ptxas 12.9 to 13.5 print; remarks of
/// serialisation are known by their words too, because new reasons get new codes.
const CODES: [(&str, LintRule); 9] = [
    ("C7508", LintRule::BudgetIgnored),
    ("C7510", LintRule::WgmmaSerialised),
    ("C7511", LintRule::WgmmaSerialised),
    ("C7512", LintRule::WgmmaSerialised),
    ("C7513", LintRule::WgmmaSerialised),
    ("C7514", LintRule::WgmmaSerialised),
    ("C7515", LintRule::WgmmaSerialised),
    ("C7516", LintRule::WgmmaSerialised),
    // A wait that the source does not have: the products before it are not in flight any more.
    ("C7517", LintRule::WgmmaSerialised),
];

/// The finding that a remark is, if it is one; `code` as in `C7510`.
#[must_use]
pub fn lint_remark(code: Option<&str>, text: &str) -> Option<Finding> {
    let by_code = CODES.iter().find(|(c, _)| Some(*c) == code).map(|(_, rule)| *rule);
    let serialised = text.contains("wgmma") && text.contains("serialized");
    let rule = by_code.or(serialised.then_some(LintRule::WgmmaSerialised))?;
    // `... in the function 'NAME'`
    let quoted = text.rsplit_once("function '").and_then(|(_, rest)| rest.split('\'').next());
    let place = quoted.filter(|name| !name.is_empty()).unwrap_or("ptxas");
    let message = code.map_or_else(|| format!("ptxas: {text}"), |c| format!("ptxas {c}: {text}"));
    let mut finding = Finding::new(rule, place, message);
    // `... around line 213`: a line of the PTX.
    let line = text.split_once("around line ").map(|(_, rest)| rest.split(' ').next().unwrap_or(rest));
    finding.source = line.filter(|l| l.bytes().all(|b| b.is_ascii_digit())).map(|l| format!("line {l}"));
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remarks_name_their_function_line_and_rule() {
        let found =
            lint_remark(Some("C7511"), "… instructions are serialized … in the function 'k'").unwrap();
        assert_eq!((found.rule, found.place.as_str()), (LintRule::WgmmaSerialised, "k"));
        let found =
            lint_remark(Some("C7517"), "a wait is injected in around line 213 by … in function 'k'").unwrap();
        assert_eq!(found.source.as_deref(), Some("line 213"));
        assert!(found.to_string().contains("k: line 213: ptxas C7517: "), "{found}");
        let found = lint_remark(Some("C7599"), "wgmma instructions are serialized").unwrap();
        assert_eq!((found.rule, found.place.as_str()), (LintRule::WgmmaSerialised, "ptxas"));
        assert_eq!(lint_remark(Some("C7508"), "ignored").unwrap().rule, LintRule::BudgetIgnored);
        assert_eq!(lint_remark(Some("C7519"), "an arrive is injected"), None);
        assert_eq!(lint_remark(None, "anything else"), None);
    }
}
