//! What was lifted from PTX, what of it could do with less, and what was refused, as a file.

use super::lift_claim::{claim, half_flushed, repeated, verdict};
use super::lift_masks::wholly_masked;
use super::rewrite::of_costs;
use super::{RewriteOutcome, SCHEMA};
use crate::cost::{Cost, CostModel};
use crate::lift::{LiftedFunction, Match, Pattern, Piece, Place, patterns};
use crate::rewrite::{Limits, SearchError, search};
use kbt_device::MissingFigure;
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A place in the PTX and, where it says so, in the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceOutcome {
    /// The line of the PTX.
    pub ptx_line: u32,
    /// `FILE:LINE` of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// A pattern, where it is and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatternOutcome {
    /// Which.
    pub pattern: Pattern,
    /// What stands there.
    pub found: String,
    /// What could.
    pub instead: String,
    /// What must hold for it.
    pub condition: String,
    /// Every instruction it stands for.
    pub places: Vec<PlaceOutcome>,
    /// What the search made of it.
    pub verdict: String,
}

/// The code as it is compiled, priced instruction by instruction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompiledOutcome {
    /// Cycles of the busiest pipe, an element and SM.
    pub cycles_per_element: f64,
    /// Which.
    pub busiest_pipe: String,
    /// Instructions of arithmetic issued, an element.
    pub issue_slots: f64,
    /// How the numbers are known.
    pub provenance: Provenance,
}

/// What is claimed of a piece.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClaimOutcome {
    /// Whether a candidate pays.
    pub pays: bool,
    /// The candidates that do, by their place in the list.
    pub candidates: Vec<usize>,
    /// The share of the busiest pipe's cycles that the best of them saves, against the cheaper of the piece's program
    /// and its compiled instructions.
    pub cycles_saved_ratio: f64,
    /// The share of issue slots.
    pub slots_saved_ratio: f64,
    /// In words.
    pub statement: String,
    /// How the numbers are known.
    pub provenance: Provenance,
}

/// A piece.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PieceOutcome {
    /// Its program.
    pub program: String,
    /// First and last PTX line of each copy.
    pub ptx_lines: Vec<[u32; 2]>,
    /// Source lines it covers, by file.
    pub source: Vec<String>,
    /// Arithmetic instructions of one copy.
    pub instructions_count: usize,
    /// Where each input comes from.
    pub inputs: BTreeMap<String, String>,
    /// What is taken for granted.
    pub assumed: Vec<String>,
    /// What follows from the program.
    pub follows: Vec<String>,
    /// Operations on converted values that stay as they are.
    pub kept: BTreeMap<String, usize>,
    /// The patterns in it.
    pub patterns: Vec<PatternOutcome>,
    /// The code as compiled.
    pub compiled: CompiledOutcome,
    /// What is claimed.
    pub claim: ClaimOutcome,
    /// The search.
    pub rewrite: RewriteOutcome,
}

/// Arithmetic that is no program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnliftedOutcome {
    /// First and last PTX line.
    pub ptx_lines: [u32; 2],
    /// Why.
    pub because: String,
    /// Where it shows.
    pub place: PlaceOutcome,
}

/// Instructions that were refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedInstruction {
    /// The opcode.
    pub instruction: String,
    /// Why.
    pub because: String,
    /// How many.
    pub count: usize,
    /// Where.
    pub places: Vec<PlaceOutcome>,
}

/// A function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionOutcome {
    /// Its name.
    pub name: String,
    /// Its line in the PTX.
    pub ptx_line: u32,
    /// Straight blocks looked at.
    pub blocks_count: usize,
    /// Pieces, those that pay first.
    pub pieces: Vec<PieceOutcome>,
    /// Arithmetic that is no program.
    pub unlifted: Vec<UnliftedOutcome>,
    /// Instructions that were refused.
    pub refused: Vec<RefusedInstruction>,
    /// What of the function was not read: the outcome says nothing of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<UnreadOutcome>,
}

/// Text of a function that the reader did not understand, or its missing end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadOutcome {
    /// The line of the PTX.
    pub ptx_line: u32,
    /// What is wrong.
    pub message: String,
}

/// The result of a lift.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiftOutcome {
    /// `kbt.quant/1`.
    pub schema: String,
    /// The PTX file.
    pub file: String,
    /// The device whose profile gave the costs.
    pub device: String,
    /// The functions.
    pub functions: Vec<FunctionOutcome>,
    /// How lines and counts are known.
    pub provenance: Provenance,
}

/// A lift that could not be priced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiftError {
    /// The profile lacks a rate.
    #[error(transparent)]
    Missing(#[from] MissingFigure),
}

impl LiftOutcome {
    /// The functions of which something was not read, each with the first such thing.
    pub fn unread(&self) -> impl Iterator<Item = (&FunctionOutcome, &UnreadOutcome)> {
        self.functions.iter().filter_map(|f| Some((f, f.unread.first()?)))
    }
}

impl PlaceOutcome {
    fn new(place: &Place) -> Self {
        let source = place.source.as_ref().map(|(file, line)| format!("{file}:{line}"));
        Self { ptx_line: place.ptx_line, source }
    }
}

/// Searches every piece and says what pays. `profile`'s costs are taken at each piece's own layout.
pub fn lift_outcome(
    file: &str,
    functions: &[LiftedFunction],
    profile: &kbt_device::DeviceProfile,
    limits: &Limits,
) -> Result<LiftOutcome, LiftError> {
    let functions: Result<Vec<FunctionOutcome>, LiftError> =
        functions.iter().map(|f| function(f, profile, limits)).collect();
    Ok(LiftOutcome {
        schema: SCHEMA.to_owned(),
        file: file.to_owned(),
        device: profile.name.clone(),
        functions: functions?,
        provenance: Provenance::given(file),
    })
}

fn function(
    f: &LiftedFunction,
    profile: &kbt_device::DeviceProfile,
    limits: &Limits,
) -> Result<FunctionOutcome, LiftError> {
    let mut pieces = Vec::new();
    let mut unsearched = Vec::new();
    for p in &f.pieces {
        match piece(&f.name, p, profile, limits) {
            Ok(done) => pieces.push(done),
            Err(SearchError::Missing(missing)) => return Err(missing.into()),
            Err(error) => unsearched.extend(p.lines.iter().map(|&(from, to)| {
                UnliftedOutcome {
                    ptx_lines: [from, to],
                    because: format!("lifted, but not searched: {error}"),
                    place: p
                        .places
                        .iter()
                        .flatten()
                        .next()
                        .map_or_else(|| PlaceOutcome { ptx_line: from, source: None }, PlaceOutcome::new),
                }
            })),
        }
    }
    // Stable: pieces that save alike stay in their order.
    pieces.sort_by(|a, b| {
        let key = |p: &PieceOutcome| (p.claim.pays, p.claim.cycles_saved_ratio);
        key(b).0.cmp(&key(a).0).then(key(b).1.total_cmp(&key(a).1))
    });
    let places = |list: &[Place]| list.iter().map(PlaceOutcome::new).collect::<Vec<_>>();
    Ok(FunctionOutcome {
        name: f.name.clone(),
        ptx_line: f.line,
        blocks_count: f.blocks,
        pieces,
        unlifted: f
            .unlifted
            .iter()
            .map(|u| UnliftedOutcome {
                ptx_lines: [u.lines.0, u.lines.1],
                because: u.because.clone(),
                place: PlaceOutcome::new(&u.place),
            })
            .chain(unsearched)
            .collect(),
        unread: f
            .unread
            .iter()
            .map(|p| UnreadOutcome { ptx_line: p.line, message: p.message.clone() })
            .collect(),
        refused: f
            .refused
            .iter()
            .map(|r| RefusedInstruction {
                instruction: r.instruction.clone(),
                because: r.because.clone(),
                count: r.places.len(),
                places: places(&r.places),
            })
            .collect(),
    })
}

fn piece(
    function: &str,
    piece: &Piece,
    profile: &kbt_device::DeviceProfile,
    limits: &Limits,
) -> Result<PieceOutcome, SearchError> {
    let model = CostModel::new(profile, piece.program.layout)
        .bare_conversions()
        .constants_in_threads(piece.elements.max(1.0))
        .keeping_subnormals(&piece.subnormals);
    let line = piece.lines.first().map_or(0, |l| l.0);
    let found = search(&piece.program, &model, limits)?;
    let name = format!("{function} from PTX line {line}");
    let mut rewrite = RewriteOutcome::new(&name, &profile.name, &found);
    for candidate in rewrite.candidates.iter_mut().chain(&mut rewrite.rejected) {
        candidate.guards.extend(piece.narrowed.iter().cloned());
    }
    for (candidate, found) in rewrite.candidates.iter_mut().zip(&found.candidates) {
        candidate.guards.extend(half_flushed(piece, found));
        candidate.guards.extend(wholly_masked(piece, &found.priced.program));
    }
    let (compiled, cost) = compiled(piece, &model)?;
    let claim = claim(&rewrite, &compiled, &cost);
    let mut matches = patterns(&piece.program);
    // Where iterations share a divisor too, that says more.
    matches.retain(|m| !piece.repeated.iter().any(|r| (r.pattern, r.node) == (m.pattern, m.node)));
    matches.extend(piece.repeated.iter().cloned());
    let verdict = |m: &Match| match m.pattern {
        Pattern::LoopInvariant => repeated(piece, m, &model),
        _ => Ok(verdict(m, &piece.program, &claim, &found, &rewrite)),
    };
    let patterns = matches
        .iter()
        .map(|m| {
            Ok(PatternOutcome {
                pattern: m.pattern,
                found: m.found.clone(),
                instead: m.instead.clone(),
                condition: m.condition.clone(),
                places: piece.places[m.node].iter().map(PlaceOutcome::new).collect(),
                verdict: verdict(m)?,
            })
        })
        .collect::<Result<_, MissingFigure>>()?;
    Ok(PieceOutcome {
        program: piece.program.to_string(),
        ptx_lines: piece.lines.iter().map(|&(a, b)| [a, b]).collect(),
        source: source_lines(piece),
        instructions_count: piece.instructions,
        inputs: piece
            .program
            .inputs
            .iter()
            .map(|i| i.name.clone())
            .zip(piece.inputs.iter().cloned())
            .collect(),
        assumed: piece.assumed.clone(),
        follows: piece.follows.clone(),
        kept: piece.kept.clone(),
        patterns,
        compiled,
        claim,
        rewrite,
    })
}

/// The source lines of a piece, `FILE:FIRST-LAST`.
fn source_lines(piece: &Piece) -> Vec<String> {
    let mut files: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for (file, line) in piece.places.iter().flatten().filter_map(|p| p.source.as_ref()) {
        let range = files.entry(file).or_insert((*line, *line));
        *range = (range.0.min(*line), range.1.max(*line));
    }
    files.into_iter().map(|(file, (from, to))| format!("{file}:{from}-{to}")).collect()
}

/// What the instructions cost as they stand: chains one by one, multiply-adds fused where they are fused.
fn compiled(piece: &Piece, model: &CostModel<'_>) -> Result<(CompiledOutcome, Cost), MissingFigure> {
    let mut cost = Cost::default();
    let mut sources: BTreeMap<String, Provenance> = BTreeMap::new();
    for (op, times) in &piece.compiled {
        let one = model.compiled(*op)?;
        cost.add(&one.cost, *times);
        sources.insert(op.name().to_owned(), one.provenance);
    }
    if piece.shuffles > 0.0 {
        let one = model.shuffle()?;
        cost.add(&one.cost, piece.shuffles);
        sources.insert("shuffle".to_owned(), one.provenance);
    }
    let outcome = CompiledOutcome {
        cycles_per_element: cost.busiest(),
        busiest_pipe: cost.busiest_pipe().to_owned(),
        issue_slots: cost.issue_slots,
        provenance: of_costs(&sources),
    };
    Ok((outcome, cost))
}
