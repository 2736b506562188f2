//! What `ptxas -v` says about a compilation: registers, stack, spills, and its warnings.

use serde::{Deserialize, Serialize};

/// The resources of each function, and the compiler's messages.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ResourceReport {
    /// One entry a function, in the order of the log.
    pub functions: Vec<ResourceUsage>,
    /// Warnings, errors and coded remarks.
    pub messages: Vec<CompilerMessage>,
    /// Lines that look like resource usage and were not understood.
    pub problems: Vec<String>,
}

/// What one function takes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ResourceUsage {
    /// The mangled name.
    pub function: String,
    /// The target compiled for; none for a function that is no entry.
    pub arch: Option<String>,
    /// Registers a thread; the log states them for entries only.
    pub registers: Option<u32>,
    /// Named barriers.
    pub barriers: u32,
    /// Static shared memory.
    pub shared_bytes: u64,
    /// The function's own stack frame, which holds local arrays and spills.
    pub stack_bytes: u64,
    /// Bytes that the code stores to spill, counted once for each instruction.
    pub spill_store_bytes: u64,
    /// Bytes that the code loads back.
    pub spill_load_bytes: u64,
}

/// How serious the compiler says a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// A remark; the advisories of wgmma and setmaxnreg come as one.
    Info,
    /// A warning.
    Warning,
    /// An error.
    Error,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompilerMessage {
    /// How serious.
    pub severity: Severity,
    /// The number it carries, for example `C7510`.
    pub code: Option<String>,
    /// Its text.
    pub text: String,
}

impl ResourceReport {
    /// Reads the log of ptxas or nvcc.
    #[must_use]
    pub fn parse(log: &str) -> Self {
        let mut report = Self::default();
        let mut current: Option<ResourceUsage> = None;
        for line in log.lines() {
            let Some((severity, text)) = ptxas_line(line) else {
                if line.contains("bytes stack frame") {
                    match (current.as_mut(), frame(line)) {
                        (Some(usage), Some((stack, stores, loads))) => {
                            usage.stack_bytes = stack;
                            usage.spill_store_bytes = stores;
                            usage.spill_load_bytes = loads;
                        }
                        _ => report.problems.push(line.trim().to_owned()),
                    }
                }
                continue;
            };
            if let Some((function, arch)) = entry(text) {
                report.functions.extend(current.take());
                current = Some(ResourceUsage { function, arch: Some(arch), ..ResourceUsage::default() });
            } else if let Some(name) = text.strip_prefix("Function properties for ") {
                if current.as_ref().is_none_or(|c| c.function != name) {
                    report.functions.extend(current.take());
                    current = Some(ResourceUsage { function: name.to_owned(), ..ResourceUsage::default() });
                }
            } else if let Some(used) = text.strip_prefix("Used ") {
                if !current.as_mut().is_some_and(|usage| read_used(used, usage)) {
                    report.problems.push(text.to_owned());
                }
            } else {
                report.messages.extend(message(severity, text));
            }
        }
        report.functions.extend(current);
        report
    }

    /// A function's resources, by mangled name.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<&ResourceUsage> {
        self.functions.iter().find(|f| f.function == name)
    }

    /// The remarks that the compiler serialised wgmma (C7510, C7511 and others, one for each reason it had).
    pub fn wgmma_serialised(&self) -> impl Iterator<Item = &CompilerMessage> {
        self.messages.iter().filter(|m| m.text.contains("wgmma") && m.text.contains("serialized"))
    }

    /// The messages with a code, for example `C7508` (setmaxnreg ignored).
    pub fn coded<'a>(&'a self, code: &'a str) -> impl Iterator<Item = &'a CompilerMessage> {
        self.messages.iter().filter(move |m| m.code.as_deref() == Some(code))
    }
}

/// `ptxas info    : TEXT` and its kin: severity and text.
fn ptxas_line(line: &str) -> Option<(Severity, &str)> {
    let rest = line.trim_start().strip_prefix("ptxas")?;
    let (place, text) = rest.split_once(':')?;
    let severity = match place.trim().rsplit([' ', ';']).next()? {
        "info" => Severity::Info,
        "warning" => Severity::Warning,
        "error" | "fatal" => Severity::Error,
        _ => return None,
    };
    Some((severity, text.trim()))
}

/// `Compiling entry function 'NAME' for 'sm_90a'`.
fn entry(text: &str) -> Option<(String, String)> {
    let mut quoted = text.strip_prefix("Compiling entry function ")?.split('\'').skip(1).step_by(2);
    Some((quoted.next()?.to_owned(), quoted.next()?.to_owned()))
}

/// `N bytes stack frame, N bytes spill stores, N bytes spill loads`.
fn frame(line: &str) -> Option<(u64, u64, u64)> {
    let number = |what: &str| {
        line.split(',').find(|part| part.contains(what))?.split_whitespace().next()?.parse().ok()
    };
    Some((number("stack frame")?, number("spill stores")?, number("spill loads")?))
}

/// `32 registers, used 1 barriers, 104 bytes cumulative stack size, 400 bytes smem`, after `Used `.
fn read_used(text: &str, usage: &mut ResourceUsage) -> bool {
    for part in text.split(',') {
        let part = part.trim().trim_start_matches("used ");
        let Some((number, what)) = part.split_once(' ') else { continue };
        let Ok(number) = number.parse::<u64>() else { continue };
        match what {
            "registers" => usage.registers = u32::try_from(number).ok(),
            "barriers" => usage.barriers = u32::try_from(number).unwrap_or(u32::MAX),
            "bytes smem" => usage.shared_bytes = number,
            _ => {}
        }
    }
    usage.registers.is_some()
}

/// A message worth keeping: any warning or error, and remarks that carry a code.
fn message(severity: Severity, text: &str) -> Option<CompilerMessage> {
    let coded = text.strip_prefix('(').and_then(|t| t.split_once(')')).filter(|(code, _)| {
        code.strip_prefix('C').is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
    });
    match coded {
        Some((code, rest)) => {
            Some(CompilerMessage { severity, code: Some(code.to_owned()), text: rest.trim().to_owned() })
        }
        None if severity == Severity::Info => None,
        None => Some(CompilerMessage { severity, code: None, text: text.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logs of ptxas 13.0.88 over kernels of our own.
    const LOG: &str = "\
ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.
ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register resources for the wgmma pipeline in the function '_Z1smmPfi'
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z1tPfPKfi' for 'sm_90a'
ptxas info    : Function properties for _Z1tPfPKfi
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 31 registers, used 0 barriers
ptxas info    : Compile time = 6.284 ms
ptxas info    : Function properties for _Z6helperPKfi
    16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'k2' for 'sm_90a'
ptxas info    : Function properties for k2
    104 bytes stack frame, 116 bytes spill stores, 120 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 104 bytes cumulative stack size, 400 bytes smem
ptxas info    : Compile time = 15.321 ms
ptxas warning : Too big maxrregcount value specified 9999, will be ignored
";

    #[test]
    fn functions_and_messages_of_a_log_are_read() {
        let report = ResourceReport::parse(LOG);
        let usage = |function: &str, arch: Option<&str>| ResourceUsage {
            function: function.to_owned(),
            arch: arch.map(str::to_owned),
            ..ResourceUsage::default()
        };
        assert_eq!(
            report.functions,
            [
                ResourceUsage { registers: Some(31), ..usage("_Z1tPfPKfi", Some("sm_90a")) },
                ResourceUsage { stack_bytes: 16, ..usage("_Z6helperPKfi", None) },
                ResourceUsage {
                    registers: Some(32),
                    barriers: 1,
                    shared_bytes: 400,
                    stack_bytes: 104,
                    spill_store_bytes: 116,
                    spill_load_bytes: 120,
                    ..usage("k2", Some("sm_90a"))
                },
            ]
        );
        assert_eq!(report.problems, [""; 0]);
        assert_eq!(report.coded("C7508").count(), 1);
        assert_eq!(report.wgmma_serialised().map(|m| m.code.as_deref()).collect::<Vec<_>>(), [Some("C7511")]);
        let last = report.messages.last().unwrap();
        assert_eq!((last.severity, last.code.as_deref()), (Severity::Warning, None));
    }

    #[test]
    fn errors_are_kept_and_what_is_not_understood_is_listed() {
        let report = ResourceReport::parse(
            "ptxas kernel.ptx, line 4; error   : Unknown symbol '%f1'\n\
             ptxas fatal   : Ptx assembly aborted due to errors\n    \
             8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
             ptxas info    : Used many registers\nunrelated\n",
        );
        assert!(report.messages.iter().all(|m| m.severity == Severity::Error));
        assert_eq!(report.messages.len(), 2);
        assert_eq!(report.problems.len(), 2);
        assert_eq!(report.functions, []);
    }
}
