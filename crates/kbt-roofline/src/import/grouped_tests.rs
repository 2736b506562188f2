//! Thousands in launch sizes and in whatever else is counted whole, in the file's own locale.

use super::tests::{HEAD, WHO};
use super::*;

/// A wide export with a time, a grid and a block, each as written.
fn export(delimiter: char, time: &str, grid: &str, block: &str, id: &str) -> String {
    let q = |fields: &[&str]| {
        let quoted: Vec<String> = fields.iter().map(|f| format!("\"{f}\"")).collect();
        quoted.join(&delimiter.to_string())
    };
    let units = ["", "", "", "", "", "us", "register/thread"];
    format!(
        "{}\n{}\n{}\n",
        q(&[
            "ID",
            "Kernel Name",
            "Block Size",
            "Grid Size",
            "CC",
            "gpu__time_duration.sum",
            "launch__registers_per_thread"
        ]),
        q(&units),
        q(&[id, "k", block, grid, "9.0", time, "168"])
    )
}

fn sizes(text: &str) -> (Option<f64>, Option<f64>, Option<f64>, Vec<String>) {
    let got = import(text.as_bytes(), "n.csv", None).unwrap();
    let i = got.sheet.implementation.unwrap();
    (i.grid_ctas, i.block_threads, got.sheet.timing.and_then(|t| t.median_us), got.problems)
}

#[test]
fn sizes_with_thousands_are_read_in_the_locale_of_the_file() {
    for (time, grid, block, us) in [
        ("13.25", "(1,024, 1, 1)", "(1,024, 1, 1)", 13.25),
        ("13.25", "(1,024, 1,024, 2)", "(1024,1,1)", 13.25),
        ("13,25", "(1.024, 1, 1)", "(1.024; 1; 1)", 13.25),
        ("13,25", "(1 024, 1, 1)", "(1\u{202f}024, 1, 1)", 13.25),
        ("13.25", "(1'024, 1, 1)", "(1\u{2019}024,1,1)", 13.25),
        // Nothing but the sizes tells how the file groups.
        ("1.024", "(1.024, 1, 1)", "(1.024, 1, 1)", 1024.0),
        ("1,024", "(1,024, 1, 1)", "(1,024, 1, 1)", 1024.0),
    ] {
        for (delimiter, id) in [(',', "7"), (';', "1.234"), ('\t', "1,234")] {
            let (ctas, threads, median, problems) = sizes(&export(delimiter, time, grid, block, id));
            let wanted = if grid.contains(", 2)") { 2.0 * 1024.0 * 1024.0 } else { 1024.0 };
            assert_eq!(
                (ctas, threads, median),
                (Some(wanted), Some(1024.0), Some(us)),
                "{grid} {problems:?}"
            );
            assert!(problems.is_empty(), "{problems:?}");
        }
    }
}

#[test]
fn a_size_that_is_not_three_whole_numbers_is_refused_by_name() {
    for (time, grid) in [
        ("13.25", "(1.024, 1, 1)"),
        ("13,25", "(1,024, 1, 1)"),
        ("13.25", "(1,024,8,1)"),
        ("13.25", "(1,02, 1, 1)"),
        ("13.25", "(112, 1)"),
        ("13.25", "(112, x, 1)"),
        ("13.25", "(0, 1, 1)"),
        ("13.25", "112"),
    ] {
        let (ctas, threads, _, problems) = sizes(&export(',', time, grid, "(256, 1, 1)", "0"));
        assert_eq!((ctas, threads), (None, Some(256.0)), "{grid}");
        let said =
            format!("line 3: `{grid}` of Grid Size is not three whole numbers, as in (1024, 1, 1), in ");
        assert!(problems.iter().any(|p| p.starts_with(&said)), "{grid}: {problems:?}");
    }
}

#[test]
fn counts_with_thousands_are_whole_on_either_page() {
    let of = |time: &str, threads: &str| {
        let long = format!(
            "{HEAD},\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n\
             {WHO},\"GPU Speed Of Light Throughput\",\"Duration\",\"us\",\"{time}\"\n\
             {WHO},\"Launch Statistics\",\"Block Size\",\"\",\"{threads}\"\n"
        );
        let wide = export(',', time, "(1, 1, 1)", "(1, 1, 1)", "0")
            .replace("launch__registers_per_thread", "launch__block_size")
            .replace("register/thread", "")
            .replace("\"168\"", &format!("\"{threads}\""));
        [long, wide].map(|text| {
            let got = import(text.as_bytes(), "n.csv", None).unwrap();
            (got.sheet.profiler.unwrap().metrics.unwrap().get("launch__block_size").copied(), got.problems)
        })
    };
    for (time, threads) in [("13.25", "1,024"), ("13,25", "1.024"), ("1.024", "1.024"), ("1,024", "1,024")] {
        for (metric, problems) in of(time, threads) {
            assert_eq!(metric, Some(1024.0), "{time} {threads}: {problems:?}");
        }
    }
    for (time, threads) in [("13.25", "1.024"), ("13,25", "1,024"), ("13.25", "256.5")] {
        for (metric, problems) in of(time, threads) {
            assert_eq!(metric, None, "{time} {threads}");
            let said = format!("`{threads}` of launch__block_size is no whole number in a file that writes");
            assert!(problems.iter().any(|p| p.contains(&said)), "{problems:?}");
        }
    }
}

#[test]
fn a_row_that_ends_before_its_columns_is_said() {
    let head = "\"ID\",\"Kernel Name\",\"gpu__time_duration.sum\",\"dram__bytes.sum\",\"sm__cycles_active.avg\"\n\
                \"\",\"\",\"us\",\"byte\",\"cycle\"\n\"0\",\"k\",\"10\",\"64\",\"900\"\n";
    let problems = |last: &str| import(format!("{head}{last}").as_bytes(), "n.csv", None).unwrap().problems;
    assert_eq!(problems("\"1\",\"k\",\"10\",\"64\",\"900\"\n"), Vec::<String>::new());
    let told = "line 4: the row ends after 3 of 5 columns: dram__bytes.sum and what follows of launch 1 is not there";
    assert_eq!(problems("\"1\",\"k\",\"10\"\n"), [told]);
}
