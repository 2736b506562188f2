//! `kbt sass lint`.

use super::input::InputArgs;
use crate::output::{Failure, Format, Outcome, print};
use kbt_sass::outcome::LintOutcome;
use kbt_sass::{LintRule, metrics};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Args)]
pub(super) struct LintArgs {
    /// A listing, cubin, fatbin, executable or PTX file; `-` is standard input. PTX shows most: its fences,
    /// handoffs and what ptxas remarks are looked at beside the machine code.
    file: PathBuf,
    #[command(flatten)]
    input: InputArgs,
    /// Rules that may be broken: spill-in-loop, spill, local-array-in-loop, dynamic-index, wgmma-serialised,
    /// missing-proxy-fence, handoff-short, register-budget-ignored.
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    allow: Vec<LintRule>,
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn run(args: LintArgs) -> Outcome {
    let (listing, loaded) = super::listing(&args.file, &args.input)?;
    super::whole(&args.file, &listing)?;
    let findings = kbt_sass::lint(&listing);
    let mut ptx = loaded.lint()?;
    if !loaded.is_ptx() {
        ptx.notes.push(
            "not looked at, which only PTX shows: missing-proxy-fence, handoff-short, and what ptxas remarks"
                .to_owned(),
        );
    }
    let outcome = LintOutcome::new(findings, ptx, &args.allow, metrics::provenance(&listing));
    print(args.format, &outcome, LintOutcome::render_text)?;
    if outcome.findings.is_empty() { Ok(ExitCode::SUCCESS) } else { Err(Failure::Gate) }
}
