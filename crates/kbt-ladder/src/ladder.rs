//! Walking the steps: each once, in order, under the board's rule; what is finished is kept before going on.

use crate::record::Timing;
use crate::{Board, Conflict, Origin, Ruling, RunDir, RunError, StepRecord};
use kbt_evidence::{Provenance, Step, Verdict};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Instant;

/// What a step found.
#[derive(Debug, Clone)]
pub struct StepOutput {
    /// Live or recorded.
    pub origin: Origin,
    /// One line.
    pub headline: String,
    /// Its verdicts.
    pub verdicts: Vec<Verdict>,
    /// Its outcome as JSON.
    pub outcome: Value,
}

/// Why a step has no outcome.
#[derive(Debug, Clone)]
pub enum StepFailure {
    /// Refused for want of evidence; the ladder goes on.
    Refused {
        /// Why.
        reason: String,
        /// What would give the evidence.
        needs: String,
    },
    /// The run cannot go on.
    Fatal(String),
}

/// What earlier steps left for later ones.
#[derive(Debug)]
pub struct History<'a> {
    /// The finished steps.
    pub steps: &'a BTreeMap<Step, StepRecord>,
    /// The verdicts that stand.
    pub board: &'a Board,
    /// What sent the ladder back, so that a step run again may look closer.
    pub sent_back: &'a [Conflict],
}

/// Whoever can run steps: live, from a recording, or a test.
pub trait Runner {
    /// Runs one step.
    fn run(&mut self, step: Step, history: &History<'_>) -> Result<StepOutput, StepFailure>;

    /// Told as the ladder goes, for progress lines.
    fn progress(&mut self, _note: Progress<'_>) {}
}

/// What the ladder tells while it walks.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A step begins.
    Begins(Step),
    /// A step was finished by an earlier process.
    Resumed(&'a StepRecord),
    /// A step is finished now.
    Done(&'a StepRecord),
    /// The ladder goes back.
    GoesBack(&'a Conflict),
    /// A recommendation was struck.
    Struck(&'a Conflict),
}

/// The walk over the steps of one run.
#[derive(Debug)]
pub struct Ladder<'a> {
    run: &'a mut RunDir,
    board: Board,
}

impl<'a> Ladder<'a> {
    /// A walk that keeps its steps in `run`.
    pub fn new(run: &'a mut RunDir) -> Self {
        Self { run, board: Board::default() }
    }

    /// Runs every step that is not finished yet; returns the board.
    pub fn climb(mut self, runner: &mut dyn Runner) -> Result<Board, RunError> {
        // Rulings withdrawn before a resume stay withdrawn.
        for conflict in self.run.sent_back().to_vec() {
            self.board.go_back(&conflict);
        }
        let mut index = 0;
        while let Some(step) = Step::ALL.get(index).copied() {
            let record = match self.run.finished().get(&step) {
                Some(record) => {
                    runner.progress(Progress::Resumed(record));
                    record.clone()
                }
                None => {
                    runner.progress(Progress::Begins(step));
                    let record = self.run_step(step, runner)?;
                    runner.progress(Progress::Done(&record));
                    self.run.keep(record.clone())?;
                    record
                }
            };
            index = match self.put(&record, runner) {
                Some(conflict) => {
                    self.run.send_back(&conflict)?;
                    self.board.go_back(&conflict);
                    runner.progress(Progress::GoesBack(&conflict));
                    conflict.ruled_out_by.index()
                }
                None => index + 1,
            };
        }
        Ok(self.board)
    }

    fn put(&mut self, record: &StepRecord, runner: &mut dyn Runner) -> Option<Conflict> {
        for verdict in &record.verdicts {
            match self.board.put(verdict.clone()) {
                Ruling::Accepted => {}
                Ruling::Struck(conflict) => runner.progress(Progress::Struck(&conflict)),
                Ruling::GoBack(conflict) => return Some(conflict),
            }
        }
        None
    }

    fn run_step(&self, step: Step, runner: &mut dyn Runner) -> Result<StepRecord, RunError> {
        let started = Instant::now();
        let history =
            History { steps: self.run.finished(), board: &self.board, sent_back: self.run.sent_back() };
        let output = runner.run(step, &history);
        let timing = Timing {
            wall_s: (started.elapsed().as_secs_f64() * 1e3).round() / 1e3,
            provenance: Provenance::measured(
                "kbt tune, wall clock of the step",
                "host",
                crate::rundir::now_iso(),
            ),
        };
        let base = StepRecord {
            schema: StepRecord::SCHEMA.into(),
            step,
            origin: Origin::Refused,
            headline: String::new(),
            verdicts: Vec::new(),
            outcome: None,
            needs: None,
            timing,
        };
        match output {
            Ok(output) => Ok(StepRecord {
                origin: output.origin,
                headline: output.headline,
                verdicts: output.verdicts,
                outcome: Some(output.outcome),
                ..base
            }),
            Err(StepFailure::Refused { reason, needs }) => {
                Ok(StepRecord { headline: reason, needs: Some(needs), ..base })
            }
            Err(StepFailure::Fatal(message)) => Err(RunError::Damaged {
                path: self.run.path().to_owned(),
                message: format!("step {step}: {message}"),
            }),
        }
    }
}
