//! A made-up run directory through the whole crate.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use kbt_evidence::Step;
use kbt_report::ReportError;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use support::outcomes;

/// Kept in the build folder, so that a page can be looked at.
fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("kbt-report").join(name)
}

fn full(name: &str) -> (PathBuf, String, String) {
    let dir = folder(name);
    support::write_run(&dir, &outcomes::all());
    let (html, markdown) = kbt_report::render(&dir).unwrap();
    (dir, html, markdown)
}

/// The made-up run with one step's file changed.
fn changed(name: &str, step: Step, change: impl FnOnce(&mut Value)) -> PathBuf {
    let dir = folder(name);
    let mut steps = outcomes::all();
    change(&mut steps.iter_mut().find(|(s, _)| *s == step).unwrap().1);
    support::write_run(&dir, &steps);
    dir
}

#[test]
fn a_full_run_gives_both_files_whole_and_small() {
    let dir = folder("20261130T130509Z-fp4");
    support::write_run(&dir, &outcomes::all());
    let written = kbt_report::write(&dir).unwrap();
    let html = std::fs::metadata(&written.html).unwrap().len();
    assert!((50_000..2_000_000).contains(&html), "{html} bytes");
    assert!(std::fs::read_to_string(&written.markdown).unwrap().starts_with("# attention, P·V in fp4\n"));
    let partial = std::fs::read_dir(&dir)
        .unwrap()
        .any(|f| f.unwrap().path().extension().is_some_and(|e| e == "partial"));
    assert!(!partial);
}

#[test]
fn the_recorded_runs_read_whole_with_every_plot() {
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings/h200-sxm");
    for mode in ["bf16", "fp8", "fp4"] {
        let dir = folder(&format!("recorded-{mode}"));
        support::empty_run(&dir, mode);
        for step in Step::ALL {
            let name = format!("{}-{step}.json", step.index());
            std::fs::copy(recordings.join(mode).join(&name), dir.join("steps").join(&name)).unwrap();
        }
        let (html, markdown) = kbt_report::render(&dir).unwrap();
        balanced(&html);
        assert!(html.len() < 2_000_000, "{mode}: {} bytes", html.len());
        assert!(!markdown.contains("This step has not run"), "{mode}");
        assert!(!markdown.contains("****"), "{mode}: strong type within strong type");
        let labels = plots(&html);
        for wanted in ["Roofline", "Pressure on the pipes", "The sweep", " steps of ", "in program order"] {
            // bf16 quantises nothing: there is no cheaper program to set beside the one in use.
            let none = mode == "bf16" && wanted == "Pressure on the pipes";
            assert!(none || labels.iter().any(|l| l.contains(wanted)), "{mode}, {wanted}: {labels:?}");
        }
    }
}

#[test]
fn the_markdown_reads_well() {
    let dir = folder("markdown");
    let mut steps = outcomes::all();
    // Their words are other crates', and long.
    steps[0].1 =
        support::refused(Step::Triage, "no shape and no dtype", "facts.yaml with `shape` and `dtypes`");
    steps[1].1 =
        support::refused(Step::Rates, "a model has no rates", "kbt microbench run --out PROFILE.yaml");
    support::write_run(&dir, &steps);
    std::fs::remove_file(dir.join("facts.yaml")).unwrap();
    insta::assert_snapshot!(kbt_report::render(&dir).unwrap().1);
}

#[test]
fn the_page_is_well_formed_and_loads_nothing() {
    let (_, html, _) = full("page");
    balanced(&html);
    for load in ["http:", "https:", "<link", "<script src", "<img", "<iframe", "@import", "src=", "url(//"] {
        assert!(!html.contains(load), "{load}");
    }
    // On a narrow screen a column's title stands beside each value, and takes as many lines as it needs.
    let title = html.split("td::before {").nth(1).and_then(|rest| rest.split('}').next()).unwrap();
    assert!(title.contains("float: left") && !title.contains("position: absolute"), "{title}");
    let ids: Vec<&str> = attribute(&html, " id=\"").collect();
    let unique: BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(ids.len(), unique.len(), "an id is there twice");
    for target in attribute(&html, "href=\"#") {
        assert!(unique.contains(target), "#{target} leads nowhere");
    }
}

/// The values of an attribute, which is given with its opening quote.
fn attribute<'a>(html: &'a str, start: &'a str) -> impl Iterator<Item = &'a str> {
    html.split(start).skip(1).filter_map(|rest| rest.split('"').next())
}

/// Every element that opens closes, in order.
fn balanced(html: &str) {
    const VOID: [&str; 3] = ["meta", "br", "!DOCTYPE"];
    let mut open: Vec<&str> = Vec::new();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        let end = rest[at..].find('>').map(|e| at + e).unwrap();
        let tag = &rest[at + 1..end];
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        rest = &rest[end + 1..];
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "before {}", rest.chars().take(80).collect::<String>());
        } else if !VOID.contains(&name) && !tag.ends_with('/') {
            open.push(name);
            // What a script or a style holds is no markup.
            if name == "script" || name == "style" {
                let close = format!("</{name}>");
                rest = &rest[rest.find(&close).unwrap()..];
            }
        }
    }
    assert_eq!(open, [""; 0]);
}

#[test]
fn the_roles_of_a_run_s_trace_stand_in_its_matrix() {
    let (dir, html, _) = full("roles");
    let roles = kbt_report::traced_roles(&dir).unwrap();
    assert!(!roles.is_empty());
    assert!(roles.iter().all(|r| r.value > 0.0 && r.value <= 1.0), "{roles:?}");
    let busiest = roles.iter().map(|r| r.value).fold(0.0, f64::max);
    let said = format!("the busiest warp role is busy {:.0} % of the time", busiest * 100.0);
    assert!(html.to_lowercase().contains(&said), "{said}");
}

#[test]
fn every_number_in_a_table_says_how_it_is_known() {
    let (_, html, _) = full("numbers");
    let mut numbers = 0;
    for row in html.split("<tr").skip(1).map(|r| r.split("</tr>").next().unwrap()) {
        let of_row = row.split("<td class=\"known\" ").nth(1).is_some_and(|k| k.contains("class=\"b "));
        for cell in row.split("<td class=\"num\" ").skip(1).map(|c| c.split("</td>").next().unwrap()) {
            let (_, cell) = cell.split_once('>').unwrap();
            if cell.contains(|c: char| c.is_ascii_digit()) {
                numbers += 1;
                assert!(of_row || cell.contains("class=\"b "), "{row}");
            }
        }
    }
    assert!(numbers > 150, "{numbers}");
    // On a narrow screen, where a row is a card, each cell is named by its column.
    let cells = html.matches("<td").count();
    assert_eq!(html.matches(" data-label=\"").count(), cells);
    assert!(html.contains("content: attr(data-label)"), "the style shows the names");
    // A number in a sentence is followed by its badge, or by its interval and then its badge.
    for after in html.split("class=\"value").skip(1).map(|a| a.split_once("</span>").unwrap().1) {
        let after = after.trim_start();
        let after = match after.strip_prefix("<span class=\"spread\">") {
            Some(spread) => spread.split_once("</span>").unwrap().1.trim_start(),
            None => after,
        };
        assert!(after.starts_with("<a class=\"b "), "{}", after.chars().take(80).collect::<String>());
    }
    // A tab stop a number would hide what else can be reached by the keyboard.
    assert!(
        html.split("<a class=\"b ").skip(1).all(|a| a.split('>').next().unwrap().contains("tabindex=\"-1\""))
    );
}

#[test]
fn the_line_of_the_triage_says_that_the_trace_came_after_it() {
    let told = "(before the trace had looked)";
    let (_, html, md) = full("before-the-trace");
    assert_eq!([html.matches(told).count(), md.matches(told).count()], [1, 1]);
}

#[test]
fn every_step_has_its_section_whatever_became_of_it() {
    let dir = folder("few");
    let refused =
        (Step::Trace, support::refused(Step::Trace, "a trace needs a measurement", "a run on the device"));
    support::write_run(&dir, &[outcomes::all().remove(0), refused]);
    std::fs::remove_file(dir.join("summary.json")).unwrap();
    let (html, markdown) = kbt_report::render(&dir).unwrap();
    for step in Step::ALL {
        assert!(html.contains(&format!("<section id=\"{step}\"")), "{step}");
    }
    assert!(markdown.contains("This run is not finished"), "{markdown}");
    assert!(markdown.contains("**What would give it:** A run on the device."), "{markdown}");
    assert_eq!(markdown.matches("This step has not run").count(), 5);
    assert!(markdown.contains("Refused: a trace needs a measurement."), "{markdown}");
    assert!(!markdown.contains("before the trace had looked"));
}

#[test]
fn what_the_journal_sent_back_does_not_count() {
    let dir = folder("sent-back");
    support::write_run(&dir, &outcomes::all());
    let conflict = json!({
        "class": "reorder", "ruled_out_by": "schedule", "reason": "interleaved", "contradicted_by": "handoff", "claim": "faster"
    });
    let event = format!("{}\n{{\"event\":\"step_fini", json!({"event": "sent_back", "conflict": conflict}));
    let path = dir.join("journal.jsonl");
    std::fs::write(&path, std::fs::read_to_string(&path).unwrap() + &event).unwrap();
    let (_, markdown) = kbt_report::render(&dir).unwrap();
    assert_eq!(markdown.matches("This step has not run").count(), 4, "steps 3 to 6 will be made again");
}

fn damage(result: Result<(String, String), ReportError>, file: &str, field: &str, message: &str) {
    let Err(error) = result else { panic!("{file}: no error") };
    let ReportError::Damaged { path, field: found, .. } = &error else { panic!("{error}") };
    assert!(path.ends_with(file), "{error}");
    assert_eq!(found, field, "{error}");
    assert!(error.to_string().contains(message), "{error}");
}

#[test]
fn damage_is_an_error_that_names_file_and_field() {
    let read = |dir: &Path| kbt_report::render(dir);
    let dir = changed("type", Step::Trace, |v| v["outcome"]["roles"][1]["busy_cycles"] = json!("many"));
    damage(read(&dir), "steps/2-trace.json", "outcome.roles[1].busy_cycles", "expected f64");
    let dir = changed("gone", Step::Handoff, |v| {
        v["outcome"]["points"][0].as_object_mut().unwrap().remove("setting");
    });
    damage(read(&dir), "steps/5-handoff.json", "outcome.points[0]", "missing field `setting`");
    let dir = changed("provenance", Step::Rates, |v| {
        v["outcome"]["rates"][0]["provenance"] = json!({"kind": "guessed"})
    });
    damage(read(&dir), "steps/1-rates.json", "outcome.rates[0].provenance.kind", "unknown variant `guessed`");
    let dir = changed("schema", Step::Validate, |v| v["outcome"]["schema"] = json!("kbt.validate/9"));
    damage(read(&dir), "steps/6-validate.json", "outcome.schema", "this version reads `kbt.validate/1`");
    let dir = changed("other-step", Step::Validate, |v| v["step"] = json!("trace"));
    damage(read(&dir), "steps/6-validate.json", "step", "expected `validate`");
    let dir = changed("no-outcome", Step::Algebra, |v| v["outcome"] = Value::Null);
    damage(read(&dir), "steps/4-algebra.json", "outcome", "not refused");

    let (dir, ..) = full("files");
    let torn = dir.join("steps/3-schedule.json");
    let text = std::fs::read_to_string(&torn).unwrap();
    std::fs::write(&torn, text.replace("64", "65")).unwrap();
    damage(read(&dir), "steps/3-schedule.json", ".", "not the one that the journal finished");
    std::fs::remove_file(&torn).unwrap();
    damage(read(&dir), "steps/3-schedule.json", ".", "missing");
    std::fs::write(
        dir.join("summary.json"),
        "{\"schema\": \"kbt.summary/1\", \"classes\": [{\"class\": \"magic\"}]}",
    )
    .unwrap();
    damage(read(&dir), "summary.json", "classes[0].class", "unknown variant `magic`");
    std::fs::write(dir.join("run.json"), "{\"schema\": \"kbt.run/1\"").unwrap();
    damage(read(&dir), "run.json", ".", "EOF");

    let (dir, ..) = full("facts");
    std::fs::write(dir.join("facts.yaml"), "shape: {batch: [}").unwrap();
    damage(read(&dir), "facts.yaml", ".", "facts.yaml");
    let none = folder("none");
    let _ = std::fs::remove_dir_all(&none);
    assert!(matches!(read(&none).unwrap_err(), ReportError::NotARun(_)));
}

#[test]
fn a_hostile_name_is_text_in_both_files() {
    let dir = changed("hostile", Step::Trace, |v| {
        v["outcome"]["roles"][0]["name"] = json!("<script>alert(1)</script>|*x*");
        v["outcome"]["timeline"]["rows"][0]["role"] = json!("<b>&\"");
    });
    let (html, markdown) = kbt_report::render(&dir).unwrap();
    balanced(&html);
    assert!(!html.contains("<script>alert"));
    assert!(markdown.contains("\\<script>alert(1)\\</script>\\|\\*x\\*"));
}

#[test]
fn a_roofline_alone_is_a_file_of_its_own() {
    let plot = outcomes::triaged().plot.unwrap();
    let svg = kbt_report::roofline_svg(&plot).unwrap();
    balanced(&svg);
    assert!(
        svg.starts_with("<svg width=\"900\"") && svg.contains("xmlns=\"http://www.w3.org/2000/svg\""),
        "{svg}"
    );
    assert!(svg.contains("HBM read") && svg.contains("TFLOP/s") && !svg.contains("var(--"), "{svg}");
    // A kernel without operations is named and has no place.
    let mut none = plot.clone();
    none.points[0].flop_per_byte = 0.0;
    none.points[0].flop_per_s = 0.0;
    let svg = kbt_report::roofline_svg(&none).unwrap();
    assert!(svg.contains("no useful operations") && !svg.contains("=\"-"), "{svg}");
    let empty = kbt_report::roofline_svg(&kbt_roofline::outcome::RooflinePlot::default()).unwrap();
    balanced(&empty);
}

/// The labels of the page's plots.
fn plots(html: &str) -> Vec<&str> {
    attribute(html, "role=\"img\" aria-label=\"").collect()
}

#[test]
fn every_step_that_has_a_picture_draws_it() {
    let (_, html, _) = full("plots");
    let labels = plots(&html);
    for wanted in [
        "Roofline",
        "Pressure on the pipes, before and after",
        "The chain of rewrites",
        "The sweep: each setting&#39;s time over the baseline&#39;s",
    ] {
        let wanted = wanted.replace("&#39;", "'");
        assert!(labels.iter().any(|l| l.replace("&#39;", "'") == wanted), "{wanted}: {labels:?}");
    }
    assert!(labels.iter().any(|l| l.contains(" steps of ")), "the pipeline: {labels:?}");
    // The sweep has the model's curve and intervals.
    let sweep =
        html.split("role=\"img\" aria-label=\"The sweep").nth(1).unwrap().split("</svg>").next().unwrap();
    assert!(sweep.contains("measured, with its interval") && sweep.contains(">\nmodel\n<"), "{sweep}");
    // Each plot is followed by where its numbers come from, or by a table that says so.
    assert!(html.matches("<figcaption").count() >= labels.len());
}

#[test]
fn without_a_cheaper_program_the_pipes_compare_the_forms() {
    let dir = changed("forms", Step::Algebra, |v| {
        let extra = v["outcome"]["forms"][0].clone();
        let forms = v["outcome"]["forms"].as_array_mut().unwrap();
        forms.push(extra);
        let last = forms.last_mut().unwrap();
        last["name"] = json!("cheaper-form");
        last["predicted"]["cycles_per_element"] = json!(0.001);
        v["outcome"].as_object_mut().unwrap().remove("rewrite");
    });
    let (html, _) = kbt_report::render(&dir).unwrap();
    let labels = plots(&html);
    assert!(labels.contains(&"Pressure on the pipes, before and after"), "{labels:?}");
    assert!(!labels.contains(&"The chain of rewrites"), "{labels:?}");
    let bars =
        html.split("role=\"img\" aria-label=\"Pressure").nth(1).unwrap().split("</svg>").next().unwrap();
    assert!(bars.contains("cheaper-form"), "{bars}");
}

#[test]
fn commands_name_the_run_s_own_files_where_they_are_there() {
    let (dir, _, without) = full("commands");
    let same = "kbt roofline triage commands/facts.yaml --device recorded:h200-sxm --run commands";
    assert!(without.contains(same), "{without}");
    std::fs::write(dir.join("profile.yaml"), "").unwrap();
    std::fs::write(dir.join("trace.kbttrace"), "").unwrap();
    let (_, with) = kbt_report::render(&dir).unwrap();
    for wanted in ["--device commands/profile.yaml", "kbt trace stats commands/trace.kbttrace"] {
        assert!(with.contains(wanted) && !without.contains(wanted), "{wanted}");
    }
    assert!(!with.contains("trace stats TRACE"), "{with}");
}

#[test]
fn predictions_and_verdicts_in_the_order_of_work_say_how_they_are_known() {
    let (_, html, _) = full("order");
    let order = html.split("<caption>Order of work").nth(1).unwrap().split("</table>").next().unwrap();
    let mut numbered = 0;
    for row in order.split("<tr").skip(2) {
        if row.contains("redicted ") || row.contains("tep 4 (") || row.contains("tep 5 (") {
            numbered += 1;
            assert!(row.contains("class=\"b "), "{row}");
        }
    }
    assert!(numbered >= 2, "{order}");
    let experiment = html.split("Falsifiable experiment").nth(1).unwrap().split("</dd>").next().unwrap();
    assert!(experiment.contains("predicted") && experiment.contains("class=\"b "), "{experiment}");
}

#[test]
fn what_later_steps_found_stands_in_the_matrix() {
    let (_, html, _) = full("ladder");
    let matrix = html.split("<caption>Evidence matrix, best candidate first").nth(1).unwrap();
    let matrix = matrix.split("</table>").next().unwrap();
    assert!(matrix.contains("Step 5 (handoff)") || matrix.contains("step 5 (handoff)"), "{matrix}");
}
