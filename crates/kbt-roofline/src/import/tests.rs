//! Exports of every shape, written by hand after the format of real ones.

use super::*;
use crate::{Ceilings, part, triage};

pub(super) const HEAD: &str = r#""ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC""#;
pub(super) const WHO: &str = r#""0","77","app","127.0.0.1","void gemm<float, 3>(float*, ""a"", int)","1","7","(256, 1, 1)","(112, 1, 1)","0","9.0""#;

fn details() -> String {
    format!(
        "==PROF== Connected to process 77 (/app)\n1234\nresult: ok, \"quoted\"\n==PROF== Profiling \"gemm\" - 0: 0%....100% - 9 passes\n\
         {HEAD},\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\",\"Rule Name\",\"Rule Type\",\"Rule Description\",\"Estimated Speedup Type\",\"Estimated Speedup\"\n\
         {WHO},\"GPU Speed Of Light Throughput\",\"Duration\",\"us\",\"13.10\"\n\
         {WHO},\"GPU Speed Of Light Throughput\",\"DRAM Throughput\",\"%\",\"45.02\"\n\
         {WHO},\"GPU Speed Of Light Throughput\",\"Memory Throughput\",\"Gbyte/s\",\"3,600.5\"\n\
         {WHO},\"GPU Speed Of Light Throughput\",\"SM Frequency\",\"Ghz\",\"1.24\"\n\
         {WHO},\"GPU Speed Of Light Throughput\",\"\",\"\",\"\",\"SOLBottleneck\",\"OPT\",\"This workload exhibits low\n   throughput, at last.\",\"local\",\"24.32\"\n\
         {WHO},\"Launch Statistics\",\"Registers Per Thread\",\"register/thread\",\"168\"\n\
         {WHO},\"Launch Statistics\",\"Function Cache Configuration\",\"\",\"CachePreferNone\"\n\
         {WHO},\"Occupancy\",\"Block Limit Registers\",\"block\",\"1\"\n\
         {WHO},\"Occupancy\",\"Block Limit Shared Mem\",\"block\",\"2\"\n\
         ==PROF== Disconnected from process 77\n"
    )
}

fn wide(values: &str) -> String {
    format!(
        "{HEAD},\"gpu__time_duration.sum\",\"dram__bytes_op_read.sum\",\"dram__bytes_op_write.sum\",\"lts__t_sector_hit_rate.pct\"\n\
         \"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"usecond\",\"Mbyte\",\"byte\",\"%\"\n{WHO},{values}\n"
    )
}

#[test]
fn the_details_page_is_read_among_other_output() {
    let import = import(details().as_bytes(), "n.csv", None).unwrap();
    let s = &import.sheet;
    assert_eq!(import.kernel, "void gemm<float, 3>(float*, \"a\", int)");
    let t = s.timing.as_ref().unwrap();
    assert_eq!((t.median_us, t.method), (Some(13.1), Some(TimingMethod::Profiler)));
    let i = s.implementation.as_ref().unwrap();
    assert_eq!(
        (i.grid_ctas, i.block_threads, i.registers_per_thread),
        (Some(112.0), Some(256.0), Some(168.0))
    );
    assert_eq!(i.ctas_per_sm, Some(1.0));
    let d = s.device.as_ref().unwrap();
    assert_eq!((d.compile_target.as_deref(), d.sm_clock_mhz), (Some("sm_90"), Some(1240.0)));
    let p = s.profiler.as_ref().unwrap();
    let m = p.metrics.as_ref().unwrap();
    assert_eq!(m["gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"], 45.02);
    assert_eq!(m["dram__bytes.sum.per_second"], 3.6005e12);
    let rules = p.rules.as_ref().unwrap();
    assert!(
        rules[0].starts_with("OPT SOLBottleneck: This workload exhibits low throughput, at last."),
        "{rules:?}"
    );
    assert!(rules[0].contains("may not be summed"));
    assert!(import.problems.iter().any(|p| p.contains("labels that no check reads")));
}

#[test]
fn powershell_and_a_european_locale_change_nothing() {
    let plain = import(details().as_bytes(), "n.csv", None).unwrap();
    let crlf = format!("\u{feff}{}", details().replace('\n', "\r\n"));
    assert_eq!(import(crlf.as_bytes(), "n.csv", None).unwrap().sheet, plain.sheet);
    let utf16: Vec<u8> = crlf.encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(import(&utf16, "n.csv", None).unwrap().sheet, plain.sheet);
    let european = details()
        .replace("\"13.10\"", "\"13,10\"")
        .replace("\"45.02\"", "\"45,02\"")
        .replace("3,600.5", "3.600,5")
        .replace("\"1.24\"", "\"1,24\"");
    let got = import(european.as_bytes(), "n.csv", None).unwrap();
    assert_eq!(got.sheet.profiler.unwrap().metrics, plain.sheet.profiler.unwrap().metrics);
}

#[test]
fn the_wide_raw_page_and_the_long_one_give_the_same_metrics() {
    let import_one = |text: &str| import(text.as_bytes(), "n.csv", None).unwrap().sheet;
    let from_wide = import_one(&wide("\"13.1\",\"134.2\",\"43,600,000\",\"100.39\""));
    let m = from_wide.profiler.as_ref().unwrap().metrics.clone().unwrap();
    assert_eq!(m["gpu__time_duration.sum"], 13_100.0);
    assert_eq!(metrics::dram_bytes(&m), Some(134.2e6 + 43.6e6));
    let long = format!(
        "{HEAD},\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n\
         {WHO},\"Command line profiler metrics\",\"gpu__time_duration.sum\",\"ns\",\"13,100\"\n\
         {WHO},\"Command line profiler metrics\",\"dram__bytes_op_read.sum\",\"byte\",\"134,200,000\"\n\
         {WHO},\"Command line profiler metrics\",\"dram__bytes_op_write.sum\",\"Mbyte\",\"43.6\"\n\
         {WHO},\"Command line profiler metrics\",\"lts__t_sector_hit_rate.pct\",\"%\",\"100.39\"\n"
    );
    let from_long = import_one(&long);
    assert_eq!(from_long.profiler.unwrap().metrics, Some(m));
}

#[test]
fn values_that_are_not_there_and_units_that_are_not_known_are_no_numbers() {
    let text = wide("\"13.1\",\"n/a\",\"\",\"100.39\"").replace("\"Mbyte\"", "\"furlong\"");
    let text = text.replace("\"n/a\"", "\"12.5\"");
    let import = import(text.as_bytes(), "n.csv", None).unwrap();
    let m = import.sheet.profiler.unwrap().metrics.unwrap();
    assert_eq!(m.keys().collect::<Vec<_>>(), ["gpu__time_duration.sum", "lts__t_sector_hit_rate.pct"]);
    assert!(import.problems[0].contains("furlong"), "{:?}", import.problems);
}

#[test]
fn launches_of_one_kernel_give_a_median_and_the_other_kernels_are_named() {
    let row = |id: u32, kernel: &str, us: f64| {
        WHO.replace("\"0\",\"77\"", &format!("\"{id}\",\"77\""))
            .replace("void gemm<float, 3>(float*, \"\"a\"\", int)", kernel)
            + &format!(",\"{us:.2}\"")
    };
    let text = format!(
        "{HEAD},\"gpu__time_duration.sum\"\n\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"us\"\n{}\n{}\n{}\n{}\n",
        row(0, "small", 1.0),
        row(1, "big", 10.0),
        row(2, "big", 14.0),
        row(3, "big", 11.0)
    );
    let got = import(text.as_bytes(), "n.csv", None).unwrap();
    let t = got.sheet.timing.unwrap();
    assert_eq!((got.launches, t.median_us, t.low_us, t.high_us), (3, Some(11.0), Some(10.0), Some(14.0)));
    assert_eq!(got.others, ["small (1.0 us in 1 launches)"]);
    let small = import(text.as_bytes(), "n.csv", Some("sma")).unwrap();
    assert_eq!(small.sheet.timing.unwrap().median_us, Some(1.0));
    let error = import(text.as_bytes(), "n.csv", Some("none")).unwrap_err().to_string();
    assert!(error.contains("big"), "{error}");
}

#[test]
fn an_exact_name_comes_before_one_that_contains_it_and_hides_no_other() {
    let row = |id: u32, kernel: &str| {
        WHO.replace("\"0\",\"77\"", &format!("\"{id}\",\"77\""))
            .replace("void gemm<float, 3>(float*, \"\"a\"\", int)", kernel)
            + ",\"1.5\""
    };
    let names = ["a_copy(int)", "copy(int)", "copy2(int)", "copy", "copy_all<int>(int)"];
    let rows: Vec<String> = names.iter().enumerate().map(|(i, n)| row(i as u32, n)).collect();
    let text =
        format!("{HEAD},\"gpu__time_duration.sum\"\n{}\"ms\"\n{}\n", "\"\",".repeat(11), rows.join("\n"));
    for (wanted, kernel) in [
        ("copy", "copy"),
        ("copy(int)", "copy(int)"),
        ("copy2", "copy2(int)"),
        ("copy_all", "copy_all<int>(int)"),
        ("_co", "a_copy(int)"),
    ] {
        let got = import(text.as_bytes(), "n.csv", Some(wanted)).unwrap();
        assert_eq!(got.kernel, kernel, "{wanted}");
        assert_eq!(got.others.len(), 4, "{:?}", got.others);
        assert_eq!(got.sheet.timing.unwrap().median_us, Some(1500.0), "milliseconds");
    }
}

#[test]
fn shared_memory_is_what_the_kernel_declares_and_what_the_launch_adds() {
    let of = |values: &str| {
        let columns = "\"launch__shared_mem_per_block_dynamic\",\"launch__shared_mem_per_block_static\"";
        let units = format!("{}\"Kbyte/block\",\"byte/block\"", "\"\",".repeat(11));
        let text = format!("{HEAD},{columns}\n{units}\n{WHO},{values}\n");
        import(text.as_bytes(), "s.csv", None).unwrap().sheet.implementation.unwrap().shared_bytes_per_cta
    };
    assert_eq!(of("\"32\",\"512\""), Some(32_512.0));
    assert_eq!(of("\"n/a\",\"512\""), Some(512.0));
}

#[test]
fn a_time_beside_an_empty_unit_is_left_out_and_said() {
    let text = wide("\"2\",\"1\",\"1\",\"50\"").replace("\"usecond\"", "\"\"");
    let got = import(text.as_bytes(), "u.csv", None).unwrap();
    assert!(got.sheet.timing.is_none());
    assert!(
        got.problems.iter().any(|p| p.contains("gpu__time_duration.sum has no unit")),
        "{:?}",
        got.problems
    );
    assert_eq!(got.sheet.profiler.unwrap().metrics.unwrap().len(), 3);
}

#[test]
fn what_is_no_export_or_cannot_be_told_is_refused() {
    for (text, word) in [
        ("hello\n", "--csv"),
        ("\"ID\",\"Kernel Name\",\"Device\"\n\"0\",\"k\",\"0\"\n", "metric columns"),
        (wide("\"117.344\",\"\",\"\",\"\"").as_str(), "LC_ALL=C"),
    ] {
        let error = import(text.as_bytes(), "n.csv", None).unwrap_err().to_string();
        assert!(error.starts_with("n.csv: ") && error.contains(word), "{error}");
    }
}

#[test]
fn an_imported_sheet_reads_back_and_is_refused_until_its_operator_is_known() {
    let import = import(details().as_bytes(), "n.csv", None).unwrap();
    let text = import.to_yaml().unwrap();
    let sheet = FactSheet::from_yaml(&text, "f.yaml").unwrap();
    let c = Ceilings::published(part("H200").unwrap());
    let outcome = triage(&sheet, Some(&c), &[]).unwrap();
    let missing: Vec<&str> = outcome.missing.iter().map(|f| f.as_str()).collect();
    assert_eq!(missing, ["operator", "shape", "dtype", "dataflow"]);
    let full = format!(
        "{text}operator: {{kind: gemm}}\nshape: {{m: 128, n: 7168, k: 16384}}\ndtypes: {{inputs: [bf16]}}\ndataflow: {{reuse: B once}}\n"
    );
    let outcome = triage(&FactSheet::from_yaml(&full, "f.yaml").unwrap(), Some(&c), &[]).unwrap();
    // Rules are leads: they stand among the assumptions, and no candidate rests on them.
    let o = outcome.outputs.unwrap();
    assert!(o.evidence.assumptions.iter().any(|a| a.contains("no verdict: OPT SOLBottleneck")));
    assert!(outcome.evidence.iter().all(|r| r.supports.iter().all(|s| !s.text.contains("SOLBottleneck"))));
    assert!(outcome.order.iter().any(|s| s.action.contains("CUDA events")));
}

#[test]
fn what_does_not_read_as_a_number_is_named_and_what_was_not_collected_is_not() {
    let of = |time: &str, hit: &str| {
        import(wide(&format!("{time},\"58.70\",\"7\",{hit}")).as_bytes(), "n.csv", None)
    };
    for (time, said) in [
        ("\"abc\"", "`abc` of gpu__time_duration.sum is no number"),
        ("\"13.1O\"", "`13.1O` of gpu__time_duration.sum is no number"),
        ("\"inf\"", "`inf` of gpu__time_duration.sum is no number"),
        ("\"-13.10\"", "gpu__time_duration.sum is -13.10, and no counter is negative"),
    ] {
        let import = of(time, "\"n/a\"").unwrap();
        let named = import.problems.iter().filter(|p| p.contains(said) && p.starts_with("line 3: ")).count();
        assert_eq!(named, 1, "{time}: {:?}", import.problems);
        assert!(!import.problems.iter().any(|p| p.contains("lts__")), "{:?}", import.problems);
        let metrics = import.sheet.profiler.unwrap().metrics.unwrap();
        assert!(!metrics.contains_key("gpu__time_duration.sum"), "{time}");
    }
    // Text is no damaged number: the details page has a cache's preference.
    let details = import(details().as_bytes(), "n.csv", None).unwrap();
    assert!(!details.problems.iter().any(|p| p.contains("no number")), "{:?}", details.problems);
    // A number past every range is damage too, and shown in short.
    let long = of(&format!("\"{}\"", "9".repeat(400)), "\"50\"").unwrap();
    assert!(long.problems.iter().any(|p| p.contains("9…` of gpu__time")), "{:?}", long.problems);
}

#[test]
fn a_row_that_ends_before_its_value_is_named() {
    let head = format!("{HEAD},\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n");
    let row = |rest: &str| format!("{WHO},\"Command line profiler metrics\",{rest}\n");
    let text = head + &row("\"gpu__time_duration.sum\",\"us\"") + &row("\"dram__bytes.sum\",\"byte\",\"64\"");
    let import = import(text.as_bytes(), "n.csv", None).unwrap();
    let said = "line 2: the row of gpu__time_duration.sum ends before its value";
    assert!(import.problems.iter().any(|p| p == said), "{:?}", import.problems);
    assert_eq!(import.sheet.profiler.unwrap().metrics.unwrap()["dram__bytes.sum"], 64.0);
}

#[test]
fn an_export_that_is_only_the_profiler_s_error_says_it_and_what_to_do() {
    let text =
        "app started\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access counters\n";
    let error = import(text.as_bytes(), "n.csv", None).unwrap_err();
    assert_eq!(error.line, Some(2));
    for word in ["ERR_NVGPUCTRPERM", "NVreg_RestrictProfilingToAdminUsers=0", "\"Kernel Name\""] {
        assert!(error.to_string().contains(word), "{error}");
    }
    assert!(!import(b"no\n", "n.csv", None).unwrap_err().to_string().contains("the profiler failed"));
}

#[test]
fn the_same_id_in_two_exports_of_one_file_is_two_launches() {
    let metrics = |us: &str| {
        format!(
            "{HEAD},\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n\
             {WHO},\"Command line profiler metrics\",\"gpu__time_duration.sum\",\"us\",\"{us}\"\n\
             {WHO},\"Command line profiler metrics\",\"dram__bytes.sum\",\"byte\",\"64\"\n"
        )
    };
    let import = import((metrics("10.5") + &metrics("12.5")).as_bytes(), "n.csv", None).unwrap();
    assert_eq!(import.launches, 2);
    assert_eq!(import.sheet.timing.unwrap().median_us, Some(11.5));
}

#[test]
fn a_communication_library_s_kernel_is_communication() {
    let inside = |text: &str| {
        let import = import(text.as_bytes(), "n.csv", None).unwrap();
        import.sheet.timing.unwrap().communication_included
    };
    assert_eq!(inside(&details()), None, "a name says nothing of a link within");
    let nccl =
        details().replace("void gemm<float, 3>(float*, \"\"a\"\", int)", "ncclDevKernel_AllReduce_Sum_bf16");
    assert!(nccl.contains("ncclDevKernel"));
    assert_eq!(inside(&nccl), Some(true));
}

/// The same export as a spreadsheet of another locale saves it: quotes only where a field needs them.
fn respelt(text: &str, delimiter: char) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let mut reader =
            csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(line.as_bytes());
        let fields: Vec<String> = match reader.records().next() {
            Some(Ok(fields)) if line.starts_with('"') => fields.iter().map(str::to_owned).collect(),
            _ => vec![line.to_owned()],
        };
        let quote = |f: &String| {
            let needs = f.contains([delimiter, '"']);
            if needs { format!("\"{}\"", f.replace('"', "\"\"")) } else { f.clone() }
        };
        out += &fields.iter().map(quote).collect::<Vec<_>>().join(&delimiter.to_string());
        out.push('\n');
    }
    out
}

#[test]
fn semicolons_tabs_and_missing_quotes_change_nothing() {
    let of = |text: &str| import(text.as_bytes(), "n.csv", None).unwrap();
    let plain = of(&wide("\"13.1\",\"134.2\",\"43,600,000\",\"100.39\""));
    assert!(plain.problems.is_empty(), "{:?}", plain.problems);
    let european = wide("\"13,1\",\"134,2\",\"43.600.000\",\"100,39\"");
    for text in [
        respelt(&european, ';'),
        respelt(&european, '\t'),
        format!("app: 3;4\n3;4\n{}done; bye\n", respelt(&european, ';')),
        european.replace("\",\"", "\";\""),
    ] {
        let got = of(&text);
        assert_eq!(got.sheet, plain.sheet, "{text}");
        assert!(got.problems.is_empty(), "{:?}", got.problems);
    }
    let long = format!(
        "{HEAD},\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n\
         {WHO},\"s\",\"gpu__time_duration.sum\",\"us\",\"13,1\"\n"
    );
    assert_eq!(of(&respelt(&long, ';')).sheet.timing.unwrap().median_us, Some(13.1));
}

#[test]
fn without_units_times_and_bytes_are_left_out_and_said_and_shares_stay() {
    let whole = wide("\"13.1\",\"134.2\",\"43,600,000\",\"100.39\"");
    let trimmed: String =
        whole.lines().filter(|l| !l.starts_with("\"\"")).map(|l| format!("{l}\n")).collect();
    let import = import(trimmed.as_bytes(), "n.csv", None).unwrap();
    assert!(import.sheet.timing.is_none());
    let metrics = import.sheet.profiler.unwrap().metrics.unwrap();
    assert_eq!(metrics.into_iter().collect::<Vec<_>>(), [("lts__t_sector_hit_rate.pct".to_owned(), 100.39)]);
    let said = import.problems.iter().filter(|p| p.contains("no units are in the table")).count();
    assert_eq!(said, 1, "{:?}", import.problems);
    assert!(
        import
            .problems
            .iter()
            .any(|p| p.contains("gpu__time_duration.sum") && p.contains("--print-units base"))
    );
}

#[test]
fn a_masked_value_is_named_and_never_a_number() {
    let import = import(wide("\"13.1\",\"****\",\"########\",\"100.39\"").as_bytes(), "n.csv", None).unwrap();
    for said in [
        "`****` stands in place of dram__bytes_op_read.sum",
        "`########` stands in place of dram__bytes_op_write.sum",
    ] {
        assert!(import.problems.iter().any(|p| p.contains(said)), "{:?}", import.problems);
    }
    let metrics = import.sheet.profiler.unwrap().metrics.unwrap();
    assert_eq!(metrics.keys().collect::<Vec<_>>(), ["gpu__time_duration.sum", "lts__t_sector_hit_rate.pct"]);
}

#[test]
fn launches_of_one_kernel_with_several_grids_give_the_one_that_took_most_time_and_name_the_others() {
    let row = |id: u32, grid: u32, us: f64| {
        WHO.replace("\"0\",\"77\"", &format!("\"{id}\",\"77\""))
            .replace("(112, 1, 1)", &format!("({grid}, 1, 1)"))
            + &format!(",\"{us:.2}\"")
    };
    let rows = [row(0, 8, 10.5), row(1, 1024, 403.26), row(2, 16, 11.5), row(3, 8, 12.5)].join("\n");
    let text = format!(
        "{HEAD},\"gpu__time_duration.sum\"\n\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"us\"\n{rows}\n"
    );
    let got = import(text.as_bytes(), "n.csv", None).unwrap();
    let t = got.sheet.timing.clone().unwrap();
    assert_eq!((got.launches, t.median_us, t.low_us), (1, Some(403.26), None));
    assert_eq!(got.sheet.implementation.as_ref().unwrap().grid_ctas, Some(1024.0));
    let left_out =
        ["8 CTAs of 256 threads: 2 launches, 23.0 us", "16 CTAs of 256 threads: 1 launch, 11.5 us"];
    assert_eq!(got.left_out, left_out);
    assert!(
        got.to_yaml()
            .unwrap()
            .contains(&format!("# left out, of another size than the launches read here: {}", left_out[0]))
    );
}

#[test]
fn a_launch_whose_row_was_cut_is_named_with_its_kernel() {
    let whole = WHO.to_owned() + ",\"10.00\"";
    let cut = whole.replace("\"0\",\"77\"", "\"1\",\"77\"").replace("void gemm", "void vec_add");
    let cut = &cut[..cut.len() - 3];
    let text = format!(
        "{HEAD},\"gpu__time_duration.sum\"\n\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"us\"\n{whole}\n{cut}\n"
    );
    let got = import(text.as_bytes(), "n.csv", None).unwrap();
    let said =
        "line 4: a quote is never closed: launch 1 of void vec_add<float, 3>(float*, \"a\", int) is left out";
    assert!(got.problems.iter().any(|p| p == said), "{:?}", got.problems);
}
