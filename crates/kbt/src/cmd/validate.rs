//! `kbt validate`: the calls into kbt-validate. Its options live in `args`, probes in `probe`; the user's command is
//! run by `process`.

mod args;
mod probe;
mod process;

pub(crate) use args::Args;

use crate::output::{Failure, Outcome, print, read_input, tell};
use args::{AgainstArg, BisectArgs, ClassArg, CompareArgs, FlakeArgs, Sub};
use kbt_evidence::Provenance;
use kbt_tensor::{ReadOptions, TensorFile};
use kbt_validate::bisect::{Against, BisectError, BisectFinding, BisectPlan, Knob, bisect};
use kbt_validate::compare::{ChangeClass, CompareError, Rules, Sides, Tensors, compare};
use kbt_validate::flake::{FlakeFinding, FlakePlan, flake};
use kbt_validate::runner::RunOutput;
use process::Process;
use std::collections::BTreeMap;
use std::path::Path;

pub(crate) fn run(args: Args) -> Outcome {
    match args.command {
        Sub::Compare(args) => run_compare(&args),
        Sub::Flake(args) => run_flake(&args),
        Sub::Bisect(args) => run_bisect(&args),
        Sub::Probe(args) => probe::run(&args),
    }
}

fn run_compare(args: &CompareArgs) -> Outcome {
    let mut options = ReadOptions::default();
    for text in &args.dtype {
        options = options.with_dtype(text)?;
    }
    let files = [Some(&args.saved), Some(&args.variant), args.reference.as_ref(), args.baseline.as_ref()];
    if files.into_iter().flatten().filter(|file| file.as_os_str() == "-").count() > 1 {
        return Err(Failure::input("standard input (-) holds one file; give the others by name"));
    }
    let mut names = Vec::new();
    let mut open = |path: &Path| -> Result<TensorFile, Failure> {
        let file = open_tensors(path, &options)?;
        names.extend(file.infos().map(|i| i.name.clone()));
        file.notes().iter().for_each(|note| tell!("kbt: {}: {note}", path.display()));
        Ok(file)
    };
    let (saved, variant) = (open(&args.saved)?, open(&args.variant)?);
    let reference = args.reference.as_deref().map(&mut open).transpose()?;
    let baseline = args.baseline.as_deref().map(&mut open).transpose()?;
    let mut seeds = Vec::new();
    for pair in &args.baseline_seed {
        let (output, right) = pair
            .split_once(',')
            .ok_or_else(|| Failure::input(format!("--baseline-seed {pair}: OUTPUT,REFERENCE expected")))?;
        seeds.push((open(Path::new(output))?, open(Path::new(right))?));
    }
    if let Some(name) = options.dtypes.keys().find(|name| !names.contains(name)) {
        return Err(Failure::input(format!("--dtype {name}: no file has a tensor `{name}`")));
    }
    reaches_both(&saved, &variant, &options)?;
    let seeds: Vec<(&dyn Tensors, &dyn Tensors)> =
        seeds.iter().map(|(o, r)| (o as &dyn Tensors, r as &dyn Tensors)).collect();
    let sides = Sides {
        saved: &saved,
        variant: &variant,
        reference: reference.as_ref().map(|r| r as &dyn Tensors),
        rows: None,
        baseline: baseline.as_ref().map(|b| b as &dyn Tensors),
        seeds: &seeds,
    };
    let class = match args.class {
        ClassArg::Reorder => ChangeClass::Reorder,
        ClassArg::Algebra => ChangeClass::Algebra,
    };
    let rules = Rules { class, factor: args.factor, allow_constant: args.allow_constant, ..Rules::default() };
    let provenance =
        Provenance::given(format!("{} against {}", args.variant.display(), args.saved.display()));
    let comparison = compare(&sides, &rules, provenance).map_err(|error| match error {
        CompareError::Refused(why) => Failure::Refused(why),
        other => other.into(),
    })?;
    gate(comparison.passed(), print(args.format, &comparison, ToString::to_string))
}

/// Two lone tensors are compared whatever they are called; a type that is given for one of them alone by its name is a
/// slip, and no difference between them.
fn reaches_both(saved: &TensorFile, variant: &TensorFile, options: &ReadOptions) -> Result<(), Failure> {
    let lone = |file: &TensorFile| file.infos().next().filter(|_| file.infos().len() == 1).cloned();
    let (Some(a), Some(b)) = (lone(saved), lone(variant)) else { return Ok(()) };
    let given = |name: &str| options.dtypes.contains_key(name);
    if a.name == b.name || a.dtype == b.dtype || given(&a.name) == given(&b.name) {
        return Ok(());
    }
    let (reached, other) = if given(&a.name) { (a, b) } else { (b, a) };
    let (reached, other, dtype, held) = (reached.name, other.name, reached.dtype, other.dtype);
    Err(Failure::input(format!(
        "--dtype {reached}={dtype} does not reach `{other}`, which is compared with it and is {held}; accepted: --dtype \
         {other}={dtype} beside it"
    )))
}

fn open_tensors(path: &Path, options: &ReadOptions) -> Result<TensorFile, Failure> {
    if path.as_os_str() == "-" {
        return Ok(TensorFile::from_bytes(read_input(path)?, "stdin", options)?);
    }
    Ok(TensorFile::open(path, options)?)
}

/// Exit code 1 where a gate failed, once the findings are printed.
fn gate(passed: bool, printed: Outcome) -> Outcome {
    let code = printed?;
    if passed { Ok(code) } else { Err(Failure::Gate) }
}

fn run_flake(args: &FlakeArgs) -> Outcome {
    let mut references = BTreeMap::new();
    for text in &args.reference {
        let parsed = text.split_once('=').and_then(|(set, file)| Some((set.parse::<u32>().ok()?, file)));
        let (set, file) = parsed.ok_or_else(|| {
            Failure::input(format!("--reference {text}: SET=FILE expected, e.g. 0=saved.safetensors"))
        })?;
        if set >= args.run.sets {
            return Err(Failure::input(format!(
                "--reference {text}: there are {} input sets, from 0",
                args.run.sets
            )));
        }
        if references.insert(set, RunOutput::from_bytes(read_input(Path::new(file))?)?).is_some() {
            return Err(Failure::input(format!("--reference {text}: input set {set} has one already")));
        }
    }
    let plan = FlakePlan {
        runs: args.runs,
        sets: args.run.sets,
        confidence: args.run.confidence,
        target_rate: args.run.rate,
        env: Vec::new(),
    };
    let process = Process::new(&args.run, Some(args.runs))?;
    let mut result = flake(&process, &plan, &references, process.provenance("flake"));
    process.end_progress();
    process.check_between()?;
    if result.finding == FlakeFinding::RunFailed && result.runs_count == 1 {
        return Err(Failure::input(format!("the command {}", result.statement())));
    }
    result.provenance = process.provenance("flake");
    if result.finding == FlakeFinding::OtherInputs {
        print(args.run.format, &result, ToString::to_string)?;
        return Err(Failure::Refused("the runs did not see the same inputs".to_owned()));
    }
    let printed = print(args.run.format, &result, ToString::to_string);
    if result.finding == FlakeFinding::Uncompared {
        printed?;
        return Err(Failure::Refused("nothing was compared".to_owned()));
    }
    gate(result.passed(), printed)
}

fn run_bisect(args: &BisectArgs) -> Outcome {
    let knob = |text: &String| -> Result<Knob, Failure> {
        let parts = text.split_once('=').and_then(|(name, values)| Some((name, values.split_once(',')?)));
        let (name, (base, changed)) = parts
            .filter(|p| !p.0.is_empty())
            .ok_or_else(|| Failure::input(format!("--knob {text}: NAME=BASE,CHANGED expected")))?;
        if kbt_target::RESERVED.contains(&name) {
            let why = format!(
                "--knob {text}: `{name}` is set by kbt for each run; accepted: a variable of the command's own"
            );
            return Err(Failure::input(why));
        }
        Ok(Knob { name: name.to_owned(), base: base.to_owned(), changed: changed.to_owned() })
    };
    let knobs = args.knob.iter().map(knob).collect::<Result<Vec<_>, _>>()?;
    let plan = BisectPlan {
        rate: args.run.rate,
        confidence: args.run.confidence,
        max_runs: args.max_runs,
        sets: args.run.sets,
        against: match args.against {
            AgainstArg::Baseline => Against::Baseline,
            AgainstArg::Itself => Against::Itself,
        },
    };
    let process = Process::new(&args.run, None)?;
    let result = bisect(&process, &knobs, &plan, process.provenance("bisect"));
    process.end_progress();
    process.check_between()?;
    let mut result = result.map_err(|error| match error {
        BisectError::OtherInputs(_) => Failure::Refused(error.to_string()),
        other => other.into(),
    })?;
    result.provenance = process.provenance("bisect");
    result.baseline.provenance = result.provenance.clone();
    let printed = print(args.run.format, &result, ToString::to_string);
    match &result.finding {
        BisectFinding::Unfinished(_) => {
            printed?;
            Err(Failure::Refused(format!("{}; allow more with --max-runs", result.statement())))
        }
        BisectFinding::BaselineFlaky => gate(false, printed),
        BisectFinding::Knobs(_) | BisectFinding::Clean => printed,
    }
}
