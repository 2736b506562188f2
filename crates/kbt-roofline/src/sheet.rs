//! Reading and writing fact sheets: lines in errors, and the provenance of each value.

mod limits;

use crate::facts::{FactSheet, SCHEMA};
use crate::lines::LineIndex;
use crate::words::with_nearest;
use kbt_evidence::{Figure, Provenance, Unit};

/// A fact sheet, result or export that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin}{}: {message}", line.map_or_else(String::new, |l| format!(":{l}")))]
pub struct SheetError {
    /// The file.
    pub origin: String,
    /// The line, where one is to blame.
    pub line: Option<usize>,
    /// What is wrong, and what would be accepted.
    pub message: String,
}

impl SheetError {
    pub(crate) fn new(origin: &str, line: Option<usize>, message: impl Into<String>) -> Self {
        Self { origin: origin.to_owned(), line, message: message.into() }
    }

    pub(crate) fn yaml(origin: &str, error: &serde_yaml::Error) -> Self {
        let line = error.location().map(|l| l.line());
        // The parser ends its message with the position, which the error states by itself.
        let text = error.to_string();
        let message = text.split(" at line ").next().unwrap_or(&text);
        let message = with_nearest(
            message
                .replace("expected f64", "expected a number")
                .replace("expected u64", "expected a whole number"),
        );
        Self { origin: origin.to_owned(), line, message }
    }
}

impl FactSheet {
    /// Reads a sheet from YAML; `origin` names the file in errors and provenance. Measurements that the sheet
    /// states become recordings.
    pub fn from_yaml(text: &str, origin: &str) -> Result<Self, SheetError> {
        let lines = LineIndex::of(text);
        let given_twice = |of: &dyn Fn(&str) -> bool| {
            let (path, first, second) = lines.twice(of)?;
            let message = format!("`{path}` is given twice, on lines {first} and {second}; keep one");
            Some(SheetError::new(origin, Some(*second), message))
        };
        let mut sheet: Self = serde_yaml::from_str(text).map_err(|e| {
            let message = e.to_string();
            // The parser names the key and the line of what holds it.
            let key = message.split_once("duplicate field `").and_then(|(_, rest)| rest.split('`').next());
            let here = |key: &str| given_twice(&|path| path.rsplit('.').next() == Some(key));
            key.and_then(here).unwrap_or_else(|| SheetError::yaml(origin, &e))
        })?;
        // Of a counter that stands twice the parser takes the last.
        if let Some(error) = given_twice(&|path| path.starts_with("profiler.metrics.")) {
            return Err(error);
        }
        sheet.origin = origin.to_owned();
        sheet.lines = lines;
        if sheet.schema != SCHEMA {
            return Err(sheet.error("schema", format!("schema `{}` is not `{SCHEMA}`", sheet.schema)));
        }
        let value = serde_yaml::to_value(&sheet).map_err(|e| SheetError::yaml(origin, &e))?;
        if let Some(path) = not_finite(&value, "") {
            return Err(
                sheet.error(&path, format!("`{path}` is no finite number; leave out what is not known"))
            );
        }
        sheet.check_numbers()?;
        sheet.read_back();
        Ok(sheet)
    }

    /// Writes the sheet as YAML.
    pub fn to_yaml(&self) -> Result<String, SheetError> {
        serde_yaml::to_string(self).map_err(|e| SheetError::yaml(&self.origin, &e))
    }

    /// What to call the kernel in messages.
    #[must_use]
    pub fn title(&self) -> &str {
        self.name.as_deref().unwrap_or("the kernel")
    }

    pub(crate) fn error(&self, path: &str, message: impl Into<String>) -> SheetError {
        SheetError::new(&self.origin, self.lines.line(path), message)
    }

    /// Sizes that no tensor can have, which is another thing than sizes that are missing.
    fn check_shape(&self) -> Result<(), SheetError> {
        let Some(s) = &self.shape else { return Ok(()) };
        let sizes = [
            ("batch", s.batch),
            ("m", s.m),
            ("n", s.n),
            ("k", s.k),
            ("heads", s.heads),
            ("kv_heads", s.kv_heads),
            ("seqlen", s.seqlen),
            ("seqlen_kv", s.seqlen_kv),
            ("head_dim", s.head_dim),
            ("rows", s.rows),
            ("columns", s.columns),
            ("elements", s.elements),
            ("output_elements", s.output_elements),
            ("channels", s.channels),
            ("height", s.height),
            ("width", s.width),
            ("filters", s.filters),
            ("kernel_height", s.kernel_height),
            ("kernel_width", s.kernel_width),
            ("stride", s.stride),
            ("groups", s.groups),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, v)| *v == Some(0)) {
            return Err(
                self.error(&format!("shape.{name}"), format!("`shape.{name}` is 0; 1 or more is needed"))
            );
        }
        if let (Some(heads), Some(kv)) = (s.heads, s.kv_heads)
            && heads % kv != 0
        {
            return Err(self.error(
                "shape.kv_heads",
                format!("`shape.kv_heads` is {kv}, which does not divide the {heads} of `shape.heads`"),
            ));
        }
        for (name, size) in [("channels", s.channels), ("filters", s.filters)] {
            if let (Some(groups), Some(size)) = (s.groups, size)
                && size % groups != 0
            {
                let told =
                    format!("`shape.groups` is {groups}, which does not divide the {size} of `shape.{name}`");
                return Err(self.error("shape.groups", told));
            }
        }
        let padding = s.padding.unwrap_or(0);
        for (name, size, window) in
            [("kernel_height", s.height, s.kernel_height), ("kernel_width", s.width, s.kernel_width)]
        {
            if let (Some(size), Some(window)) = (size, window)
                && window > size.saturating_add(padding.saturating_mul(2))
            {
                return Err(self.error(
                    &format!("shape.{name}"),
                    format!(
                        "`shape.{name}` is {window}, larger than the input of {size} padded by {padding}"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Numbers that no measurement and no shape can have. Percentages above 100 do occur in real profiles and
    /// are reported as contradictions, not refused.
    fn check_numbers(&self) -> Result<(), SheetError> {
        let positive = |path: &str, value: Option<f64>| match value {
            Some(v) if !(v.is_finite() && v > 0.0) => {
                Err(self.error(path, format!("`{path}` is {v}; a positive number is needed")))
            }
            _ => Ok(()),
        };
        if let Some(t) = &self.timing {
            positive("timing.median_us", t.median_us)?;
            positive("timing.kernel_us", t.kernel_us)?;
            positive("timing.kernels", t.kernels)?;
            if let Some(cache) = t.cache.as_deref().filter(|c| !["warm", "cold"].contains(c)) {
                return Err(self
                    .error("timing.cache", format!("`timing.cache` is `{cache}`; warm or cold is needed")));
            }
            positive("timing.low_us", t.low_us)?;
            positive("timing.high_us", t.high_us)?;
            let order = [("low_us", t.low_us), ("median_us", t.median_us), ("high_us", t.high_us)];
            let given: Vec<(&str, f64)> = order.iter().filter_map(|(n, v)| Some((*n, (*v)?))).collect();
            if let Some([(low, a), (high, b)]) = given.array_windows().find(|[(_, a), (_, b)]| a > b) {
                let end = if *low == "low_us" { low } else { high };
                let told = format!(
                    "`timing.{low}` is {a} and `timing.{high}` {b}; low_us <= median_us <= high_us must hold"
                );
                return Err(self.error(&format!("timing.{end}"), told));
            }
        }
        if let Some(o) = &self.operator {
            positive("operator.hbm_bytes", o.hbm_bytes)?;
            positive("operator.inputs", o.inputs)?;
            positive("operator.outputs", o.outputs)?;
            // A transpose, a copy or a gather computes nothing.
            for (path, value) in
                [("operator.flop", o.flop), ("operator.flop_per_element", o.flop_per_element)]
            {
                if value.is_some_and(|f| !(f.is_finite() && f >= 0.0)) {
                    return Err(self.error(path, format!("`{path}` must be 0 or more")));
                }
            }
        }
        self.check_shape()?;
        self.check_limits()?;
        self.check_agreement()?;
        if let Some(d) = &self.device {
            positive("device.sm_count", d.sm_count)?;
            positive("device.sm_clock_mhz", d.sm_clock_mhz)?;
        }
        if let Some(i) = &self.implementation {
            positive("implementation.grid_ctas", i.grid_ctas)?;
            positive("implementation.ctas_per_sm", i.ctas_per_sm)?;
        }
        self.check_ceilings()
    }

    fn read_back(&mut self) {
        let stated = [
            self.operator.as_mut().and_then(|s| s.provenance.as_mut()),
            self.shape.as_mut().and_then(|s| s.provenance.as_mut()),
            self.dtypes.as_mut().and_then(|s| s.provenance.as_mut()),
            self.dataflow.as_mut().and_then(|s| s.provenance.as_mut()),
            self.implementation.as_mut().and_then(|s| s.provenance.as_mut()),
            self.timing.as_mut().and_then(|s| s.provenance.as_mut()),
            self.device.as_mut().and_then(|s| s.provenance.as_mut()),
            self.profiler.as_mut().and_then(|s| s.provenance.as_mut()),
        ];
        let ceilings = self.ceilings.iter_mut().map(|c| &mut c.provenance);
        for p in stated.into_iter().flatten().chain(ceilings) {
            *p = p.clone().read_back();
        }
    }

    /// How the value at a path is known: what its section states, else given by the sheet's line.
    pub(crate) fn provenance(&self, path: &str) -> Provenance {
        let section = path.split('.').next().unwrap_or(path);
        let stated = match section {
            "operator" => self.operator.as_ref().and_then(|s| s.provenance.as_ref()),
            "shape" => self.shape.as_ref().and_then(|s| s.provenance.as_ref()),
            "dtypes" => self.dtypes.as_ref().and_then(|s| s.provenance.as_ref()),
            "dataflow" => self.dataflow.as_ref().and_then(|s| s.provenance.as_ref()),
            "implementation" => self.implementation.as_ref().and_then(|s| s.provenance.as_ref()),
            "timing" => self.timing.as_ref().and_then(|s| s.provenance.as_ref()),
            "device" => self.device.as_ref().and_then(|s| s.provenance.as_ref()),
            "profiler" => self.profiler.as_ref().and_then(|s| s.provenance.as_ref()),
            _ => None,
        };
        stated.cloned().unwrap_or_else(|| {
            let origin = if self.origin.is_empty() { "the fact sheet" } else { &self.origin };
            Provenance::given(match self.lines.line(path) {
                Some(line) => format!("{origin}:{line}"),
                None => origin.to_owned(),
            })
        })
    }

    /// A value of the sheet as a figure.
    pub(crate) fn figure(&self, path: &str, name: &str, value: f64, unit: Unit) -> Figure {
        Figure::new(name, value, unit, self.provenance(path))
    }
}

/// The path of the first number that is infinite or none.
fn not_finite(value: &serde_yaml::Value, path: &str) -> Option<String> {
    let under = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        serde_yaml::Value::Number(n) => n.as_f64().is_some_and(|v| !v.is_finite()).then(|| path.to_owned()),
        serde_yaml::Value::Sequence(items) => {
            items.iter().enumerate().find_map(|(i, v)| not_finite(v, &under(&i.to_string())))
        }
        serde_yaml::Value::Mapping(map) => {
            map.iter().find_map(|(k, v)| not_finite(v, &under(k.as_str().unwrap_or_default())))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kbt_evidence::Known;

    #[test]
    fn a_value_is_known_by_its_line_or_by_what_its_section_states() {
        let text = "timing:\n  median_us: 3\ndevice:\n  name: H200\n  provenance: \
                    {kind: measured, by: c, device: d, date: 2026-11-30}\n";
        let sheet = FactSheet::from_yaml(text, "f.yaml").unwrap();
        let p = sheet.provenance("timing.median_us");
        assert_eq!((p.kind, p.by.as_str()), (Known::Given, "f.yaml:2"));
        assert_eq!(sheet.provenance("device.sm_count").kind, Known::Recorded);
    }

    #[test]
    fn bad_sheets_name_the_line_and_what_would_be_accepted() {
        for (text, line, word) in [
            ("schema: kbt.facts/9\n", 1, "kbt.facts/1"),
            ("timing:\n  median_us: -4\n", 2, "positive"),
            ("profiler:\n  metrics:\n    a__b.sum: .nan\n", 3, "finite"),
            ("operator:\n  kind: elementwise\n  inputs: .inf\n", 3, "finite"),
            ("timing:\n  median_us: 4\n  mean_us: 4\n", 3, "median_us"),
            ("dtypes:\n  inputs: [bf8]\n", 2, "fp8_e4m3"),
            ("timing:\n  median_us: 4\n  low_us: 5\n  high_us: 6\n", 3, "low_us <= median_us"),
            ("ceilings:\n- kind: hbm_copy\n  provenance: {kind: assumed, by: x}\n", 2, "exactly one"),
            ("operator: [x]\n", 1, "operator"),
            (
                "timing:\n  median_us: 4\n  kernels: 1\n  median_us: 5\n",
                4,
                "`timing.median_us` is given twice, on lines 2 and 4",
            ),
            ("name: a\ntiming:\n  median_us: 4\nname: b\n", 4, "`name` is given twice, on lines 1 and 4"),
            (
                "profiler:\n  metrics:\n    a__b.sum: 1\n    a__b.sum: 2\n",
                4,
                "`profiler.metrics.a__b.sum` is given twice",
            ),
            ("timing:\n  medain_us: 4\n", 2, "did you mean `median_us`?"),
            ("timming:\n  median_us: 4\n", 1, "did you mean `timing`?"),
            ("timing:\n  method: cuda-event\n", 2, "did you mean `cuda_events`?"),
            ("operator:\n  kind: layernorm\n", 2, "did you mean `normalization`?"),
            ("dtypes:\n  output: half\n", 2, "did you mean `fp16`?"),
            ("dataflow:\n  access: coalesced\n", 2, "did you mean `regular`?"),
            ("ceilings:\n- kind: hbm_coyp\n", 2, "did you mean `hbm_copy`?"),
            ("timing:\n  median_us: 4 us\n", 2, "expected a number"),
            ("timing:\n  cache: wram\n", 2, "warm or cold"),
            ("operator:\n  kind: counts\n  flop: 1\n  hbm_bytes: 8\n  hbm_read_bytes: 9\n", 5, "is 8"),
            ("operator: {kind: gemm}\ndtypes:\n  inputs: [bf16, bf16, fp16]\n", 3, "the operator 2 inputs"),
            ("implementation:\n  registers_per_thread: 256\n", 2, "from 1 to 255"),
            ("implementation:\n  block_threads: 1025\n", 2, "from 1 to 1024"),
            ("implementation:\n  grid_ctas: 1.5\n", 2, "a whole number of 1 or more"),
            (
                "implementation:\n  tensor_instructions: no\n  mma_instruction: wgmma\n",
                2,
                "`mma_instruction` is `wgmma`",
            ),
            ("implementation:\n  roles:\n  - {name: load, busy_percent: 101}\n", 3, "0 to 100"),
            ("implementation:\n  roles:\n  - {name: load, busy_percent: -1}\n", 3, "0 to 100"),
            ("profiler:\n  metrics:\n    a__b.pct: -2\n", 3, "no counter is negative"),
            ("timing:\n  communication_us: -2\n", 2, "a number of 0 or more"),
            ("timing:\n  median_us: 4\n  low_us: 5\n", 3, "`timing.low_us` is 5 and `timing.median_us` 4"),
            ("timing:\n  median_us: 4\n  high_us: 3\n", 3, "`timing.high_us` 3"),
            ("timing:\n  low_us: 9\n  high_us: 3\n", 2, "low_us <= median_us"),
            ("timing:\n  low_us: -1\n", 2, "a positive number"),
            ("timing:\n  kernels: 0.5\n", 2, "a whole number of 1 or more"),
            ("timing:\n  launches: 0\n", 2, "a whole number of 1 or more"),
            ("implementation:\n  bytes_in_flight_per_sm: -3\n", 2, "a number of 0 or more"),
            ("implementation:\n  pipeline_stages: 2.5\n", 2, "a whole number of 1 or more"),
            ("implementation:\n  host_syncs: -1\n", 2, "a whole number of 0 or more"),
            ("implementation:\n  access_bytes_per_thread: 0\n", 2, "a whole number of 1 or more"),
            ("shape:\n  channels: 64\n  groups: 3\n", 3, "does not divide the 64 of `shape.channels`"),
            ("shape:\n  filters: 10\n  groups: 4\n", 3, "does not divide the 10 of `shape.filters`"),
            ("device:\n  power_limit_w: -700\n", 2, "a number of 1 or more"),
            ("operator:\n  inputs: 1.5\n", 2, "a whole number"),
            (
                "ceilings:\n- kind: hbm_copy\n  flop_per_s: 3.2e12\n  provenance: {kind: assumed, by: x}\n",
                2,
                "ceiling `hbm_copy` is in `bytes_per_s`, and `flop_per_s` is given",
            ),
            (
                "ceilings:\n- kind: fp32\n  seconds: 3.2\n  provenance: {kind: assumed, by: x}\n",
                2,
                "ceiling `fp32` is in `flop_per_s`",
            ),
            ("implementation:\n  async_copies: perhaps\n", 2, "true, false, yes, no, on or off"),
        ] {
            let error = FactSheet::from_yaml(text, "f.yaml").unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
            assert!(error.to_string().starts_with(&format!("f.yaml:{line}: ")), "{error}");
        }
    }

    #[test]
    fn flags_may_be_words_and_one_input_needs_no_list() {
        let of = |flag: &str| {
            let text = format!(
                "implementation: {{async_copies: {flag}, persistent: on}}\ndtypes: {{inputs: bf16}}\n"
            );
            FactSheet::from_yaml(&text, "f.yaml").unwrap()
        };
        for (word, flag) in [("yes", true), ("No", false), ("off", false), ("true", true), ("\"on\"", true)] {
            let sheet = of(word);
            assert_eq!(sheet.implementation.unwrap().async_copies, Some(flag), "{word}");
            assert_eq!(sheet.dtypes.unwrap().inputs, Some(vec![crate::Dtype::Bf16]));
        }
        assert_eq!(of("~").implementation.unwrap().async_copies, None);
    }

    #[test]
    fn a_sheet_survives_writing_and_may_hold_a_question_alone() {
        let sheet = FactSheet::from_yaml("question: why so slow\n", "f.yaml").unwrap();
        let again = FactSheet::from_yaml(&sheet.to_yaml().unwrap(), "f.yaml").unwrap();
        assert_eq!(again.question, sheet.question);
    }
}
