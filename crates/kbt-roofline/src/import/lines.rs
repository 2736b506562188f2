//! Which lines of an export are its table, and how their fields are set apart: commas and quotes as the profiler writes
//! them, or what a spreadsheet makes of them (semicolons, tabs, no quotes).

/// A record with the line it starts on.
pub(super) type Record = (usize, Vec<String>);

/// Whether a record is the table's head.
pub(super) fn is_header(record: &[String]) -> bool {
    record.first().is_some_and(|f| f == "ID") && record.iter().any(|f| f == "Kernel Name")
}

/// How a table is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    delimiter: char,
    /// Whether every field is quoted; else only those that need it.
    quoted: bool,
    /// Delimiters of the head, which every row of the table has at least.
    delimiters: usize,
    /// Which field is the kernel's name.
    kernel: usize,
}

impl Layout {
    /// The layout of the first line that is a table's head.
    pub(super) fn of(text: &str) -> Option<Self> {
        text.lines().find_map(|line| {
            [',', ';', '\t'].into_iter().find_map(|delimiter| {
                let fields = fields(line.trim_end_matches('\r'), delimiter).ok()?;
                is_header(&fields).then(|| Self {
                    delimiter,
                    quoted: line.starts_with('"'),
                    delimiters: fields.len() - 1,
                    kernel: fields.iter().position(|f| f == "Kernel Name").unwrap_or_default(),
                })
            })
        })
    }

    /// Whether a line can begin a record; the rest is output of the tool or the application.
    fn begins(self, line: &str) -> bool {
        if self.quoted {
            return line.starts_with('"');
        }
        // A row that was cut short is still a launch's, by its id.
        let id = line.split(self.delimiter).next().unwrap_or_default().trim_matches('"');
        let launch = !id.is_empty() && id.chars().all(|c| c.is_ascii_digit());
        let count = line.matches(self.delimiter).count();
        count >= self.delimiters || launch && count * 2 >= self.delimiters
    }

    /// The launch that a damaged line begins to describe: what it was is for whoever reads the rest.
    fn launch(self, line: &str) -> Option<String> {
        let fields = fields(&format!("{line}\""), self.delimiter).ok()?;
        let id = fields.first().filter(|id| !id.is_empty() && id.chars().all(|c| c.is_ascii_digit()))?;
        let kernel = fields.get(self.kernel).filter(|k| !k.is_empty());
        Some(format!("launch {id}{}", kernel.map_or_else(String::new, |k| format!(" of {k}"))))
    }

    /// Records of the lines that are of the table.
    pub(super) fn records(self, text: &str, problems: &mut Vec<String>) -> Vec<Record> {
        /// A quoted field that runs on for longer than this is no field.
        const LONGEST_FIELD: usize = 40;
        let lines: Vec<&str> = text.lines().map(|l| l.trim_end_matches('\r')).collect();
        let balanced = |s: &str| s.matches('"').count().is_multiple_of(2);
        let mut found = Vec::new();
        let mut index = 0;
        while index < lines.len() {
            let line = lines[index];
            index += 1;
            if line.starts_with("==WARNING==") || line.starts_with("==ERROR==") {
                problems.push(format!("line {index}: {line}"));
            }
            if !self.begins(line) {
                continue;
            }
            let start = index;
            let mut record = line.to_owned();
            let last = (index + LONGEST_FIELD).min(lines.len());
            while !balanced(&record) && index < last {
                record.push('\n');
                record.push_str(lines[index]);
                index += 1;
            }
            if !balanced(&record) {
                let what = self.launch(line).unwrap_or_else(|| "the line".to_owned());
                problems.push(format!("line {start}: a quote is never closed: {what} is left out"));
                index = start;
                continue;
            }
            match fields(&record, self.delimiter) {
                Ok(fields) if !fields.is_empty() => found.push((start, fields)),
                Ok(_) => {}
                Err(e) => problems.push(format!("line {start}: {e}")),
            }
        }
        found
    }
}

fn fields(record: &str, delimiter: char) -> Result<Vec<String>, csv::Error> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(u8::try_from(delimiter).unwrap_or(b','))
        .from_reader(record.as_bytes());
    match reader.records().next() {
        Some(fields) => fields.map(|f| f.iter().map(str::to_owned).collect()),
        None => Ok(Vec::new()),
    }
}
