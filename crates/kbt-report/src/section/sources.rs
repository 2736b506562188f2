//! How each number is known, and the commands that give it again.

use super::plural;
use crate::doc::{Block, Inline, Line, Section, Source, Sources, code, line};
use crate::run::Run;
use kbt_evidence::{Known, Provenance};

pub(super) fn section(sources: &Sources, run: &Run) -> Section {
    let mut blocks = reproduce(run);
    let all: Vec<(usize, Provenance)> =
        sources.all().into_iter().enumerate().map(|(i, p)| (i + 1, p)).collect();
    blocks.push(Block::Heading("Sources".into()));
    for known in Known::ALL.into_iter().rev() {
        let of: Vec<_> = all.iter().filter(|(_, p)| p.kind == known).cloned().collect();
        if !of.is_empty() {
            let title =
                line![Inline::Badge(Source { known, id: None }), format!(" {}", plural(of.len(), "source"))];
            blocks.push(Block::Fold { title, blocks: vec![Block::Sources(of)] });
        }
    }
    Section {
        id: "sources",
        title: "How each number is known, and how to get it again".into(),
        short: "Sources",
        step: None,
        aside: Line::new(),
        blocks,
    }
}

fn reproduce(run: &Run) -> Vec<Block> {
    let spec = &run.spec;
    let what = match (&spec.target, &spec.pv_mode) {
        (Some(target), Some(mode)) => format!("--target {target} --pv-mode {mode}"),
        (Some(target), None) => format!("--target {target}"),
        (None, mode) => format!("--pv-mode {}", mode.as_deref().unwrap_or("bf16")),
    };
    let quick = if spec.quick { " --quick" } else { "" };
    let mut blocks = vec![
        Block::Paragraph(line!["The run as a whole, and this report from its directory:"]),
        Block::Command(format!("kbt tune {what} --device {}{quick}", device(&spec.device))),
        Block::Command(format!("kbt report {}", run.name)),
    ];
    let mut more: Vec<(&str, String)> = Vec::new();
    if run.facts.is_some() {
        more.push((
            "triage of the same facts, with what the later steps found",
            format!("kbt roofline triage {0}/facts.yaml --device {1} --run {0}", run.name, ceilings(run)),
        ));
    }
    if run.files.contains("trace.kbttrace") {
        more.push((
            "the roles and waits of the trace",
            format!("kbt trace stats {}/trace.kbttrace", run.name),
        ));
    }
    if run.files.contains("sweep") {
        let best = run.handoff.as_ref().and_then(|d| d.outcome.as_ref()).and_then(|o| o.best).unwrap_or(0);
        more.push((
            "one setting of the sweep again",
            format!("kbt split run-one {}/sweep/spec.json --index {best}", run.name),
        ));
    }
    if !more.is_empty() {
        blocks.push(Block::Paragraph(line![
            "Parts of it alone, from the folder that holds ",
            code(&run.name),
            ":"
        ]));
        for (what, command) in more {
            blocks.push(Block::Paragraph(line![what]));
            blocks.push(Block::Command(command));
        }
    }
    blocks
}

/// The option that names the device that a run resolved to: `recorded: h200-sxm (…)` was `recorded:h200-sxm`.
fn device(resolved: &str) -> String {
    let name = |rest: &str| rest.split(" (").next().unwrap_or(rest).trim().to_owned();
    match resolved.split_once(": ") {
        Some(("live", _)) => "live".into(),
        Some(("recorded", rest)) => format!("recorded:{}", name(rest)),
        Some(("model", rest)) => {
            let arch = rest.rsplit_once('(').map_or(rest, |(_, a)| a.trim_end_matches(')'));
            format!("model:{arch}")
        }
        _ => resolved.to_owned(),
    }
}

/// A triage reads ceilings and measures none, so a live run's are its own profile's.
fn ceilings(run: &Run) -> String {
    if run.files.contains("profile.yaml") {
        format!("{}/profile.yaml", run.name)
    } else {
        device(&run.spec.device)
    }
}

#[cfg(test)]
mod tests {
    use super::device;

    #[test]
    fn the_option_is_that_of_the_resolved_device() {
        for (resolved, option) in [
            ("live: NVIDIA H200", "live"),
            ("recorded: h200-sxm (NVIDIA H200, 2026-11-30)", "recorded:h200-sxm"),
            ("model: sm_103a (sm_103a)", "model:sm_103a"),
            ("model: gb300 (sm_103a)", "model:sm_103a"),
        ] {
            assert_eq!(device(resolved), option);
        }
    }
}
