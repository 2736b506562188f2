//! Collects the variants of a schedule outcome: finds the function and region of each, counts, bounds, compares.

use super::busiest::busiest_loop;
use super::work::Work;
use super::{Comparison, SCHEMA, ScheduleOutcome, Section, SectionKind, Variant, VariantKind};
use crate::metrics::provenance;
use crate::{
    Analysis, CAVEAT, Function, Interval, Listing, LoopKind, Unit, bound, bound_of_function, bound_of_loop,
    diff,
};
use kbt_device::DeviceProfile;
use kbt_evidence::Provenance;

/// Collects variants.
#[derive(Debug)]
pub struct ScheduleBuilder<'p> {
    outcome: ScheduleOutcome,
    region: Option<String>,
    functions: Vec<(Function, Provenance)>,
    units: [Unit; 2],
    profile: Option<&'p DeviceProfile>,
    warps_per_scheduler: u32,
    regions: Vec<Region>,
}

/// What is kept of each variant's region, to hold the next against the first.
#[derive(Debug)]
struct Region {
    has_loop: bool,
    work: Work,
}

/// A variant to add.
#[derive(Debug, Clone)]
pub struct VariantInput<'l> {
    /// Its name.
    pub name: &'l str,
    /// What makes it differ.
    pub kind: VariantKind,
    /// The assembler and what it was told.
    pub built_by: &'l str,
    /// Its listing.
    pub listing: &'l Listing,
    /// The function in it; `None` takes the only one.
    pub function: Option<&'l str>,
    /// What the compiler remarked.
    pub remarks: Vec<String>,
}

/// A variant that cannot be added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VariantError {
    /// The listing has no such function.
    #[error("variant `{variant}`: {wanted}; the listing has {there}")]
    Function {
        /// The variant.
        variant: String,
        /// What was asked for.
        wanted: String,
        /// What there is.
        there: String,
    },
}

impl<'p> ScheduleBuilder<'p> {
    /// Starts for a region: the name of a loop or role region of the function (`loop:0`, `setmaxnreg:232`), or
    /// `None` for the busiest user loop in terms of the two units, else the whole function. `profile` gives the
    /// rates for the bound; `warps_per_scheduler` is how many warps run the region at once.
    #[must_use]
    pub fn new(
        subject: impl Into<String>,
        region: Option<String>,
        units: [Unit; 2],
        profile: Option<&'p DeviceProfile>,
        warps_per_scheduler: u32,
    ) -> Self {
        let outcome = ScheduleOutcome {
            schema: SCHEMA.to_owned(),
            subject: subject.into(),
            region: region.clone().unwrap_or_default(),
            variants: Vec::new(),
            comparisons: Vec::new(),
            problems: Vec::new(),
            caveat: CAVEAT.to_owned(),
        };
        Self {
            outcome,
            region,
            functions: Vec::new(),
            units,
            profile,
            warps_per_scheduler,
            regions: Vec::new(),
        }
    }

    /// Adds a variant.
    pub fn add(&mut self, input: VariantInput<'_>) -> Result<(), VariantError> {
        let function = find(&input)?;
        let [a, b] = &self.units;
        let analysis = Analysis::new(function, a, b);
        // Loops are numbered within a function, and another optimisation level has other loops: a region that was
        // not named is each variant's own busiest loop.
        let name = match &self.region {
            Some(name) => name.clone(),
            None => busiest_loop(&analysis).unwrap_or_else(|| WHOLE.to_owned()),
        };
        if self.outcome.region.is_empty() {
            self.outcome.region.clone_from(&name);
        }
        let part = region(&analysis, &name).unwrap_or_else(|| {
            let problem = format!(
                "variant `{}` has no region `{name}`: its metrics are of the whole function",
                input.name
            );
            self.outcome.problems.push(problem);
            analysis.whole()
        });
        let metrics = analysis.count(&name, SectionKind::Region, &part);
        let provenance = provenance(input.listing);
        let warps = self.warps_per_scheduler;
        let index = (0..analysis.loops.len()).find(|i| analysis.loop_name(*i) == name);
        let bound = self.profile.map(|p| match (index, name == WHOLE) {
            (_, true) => bound_of_function(&analysis, p, warps, input.listing).0,
            (Some(index), _) => bound_of_loop(&analysis, index, p, warps, input.listing).0,
            (None, false) => bound(&analysis, &part, p, warps, input.listing),
        });
        let region = Region { has_loop: name != WHOLE, work: Work::of(&analysis, &part) };
        let trips = self.trips(input.name, &region);
        self.regions.push(region);
        for problem in &input.listing.problems {
            self.outcome.problems.push(format!("variant `{}`: {problem}", input.name));
        }
        self.outcome.variants.push(Variant {
            name: input.name.to_owned(),
            kind: input.kind,
            built_by: input.built_by.to_owned(),
            spills_elsewhere: spills_elsewhere(&analysis, &metrics),
            metrics,
            bound,
            trips,
            remarks: input.remarks,
            time: None,
            provenance: provenance.clone(),
        });
        self.functions.push((function.clone(), provenance));
        Ok(())
    }

    /// How many trips of a region do what one of the first variant's does; where nobody can say, why.
    fn trips(&mut self, name: &str, region: &Region) -> Option<f64> {
        let Some(first) = self.regions.first() else { return Some(1.0) };
        let whose = &self.outcome.variants[0].name;
        let trips = match (first.has_loop, region.has_loop) {
            (false, false) => Ok(1.0),
            (true, true) => region
                .work
                .trips_for(&first.work)
                .map_err(|counts| format!("a trip of the one and of the other: {counts}")),
            (true, false) => Err("the first has a loop and this one has none".to_owned()),
            (false, true) => Err("this one has a loop and the first has none".to_owned()),
        };
        match trips {
            Ok(1.0) => Some(1.0),
            Ok(n) => {
                self.outcome.problems.push(format!(
                    "`{whose}` and `{name}` unroll their loop differently: {n} trips of `{name}` do what one of `{whose}` does"
                ));
                Some(n)
            }
            Err(why) => {
                self.outcome.problems.push(format!(
                    "`{whose}` and `{name}` are not compared trip by trip, since how they unroll their loop is not known: {why}"
                ));
                None
            }
        }
    }

    /// Compares all pairs and gives the outcome.
    #[must_use]
    pub fn finish(mut self) -> ScheduleOutcome {
        for (j, (b, provenance)) in self.functions.iter().enumerate() {
            for (i, (a, _)) in self.functions[..j].iter().enumerate() {
                let found = diff(a, b);
                self.outcome.comparisons.push(Comparison {
                    a: self.outcome.variants[i].name.clone(),
                    b: self.outcome.variants[j].name.clone(),
                    kind: found.kind,
                    added: found.added.values().sum(),
                    removed: found.removed.values().sum(),
                    spills_change: found.b_spills.cast_signed() - found.a_spills.cast_signed(),
                    provenance: provenance.clone(),
                });
            }
        }
        self.outcome
    }
}

const WHOLE: &str = "whole function";

fn find<'l>(input: &VariantInput<'l>) -> Result<&'l Function, VariantError> {
    let functions = &input.listing.functions;
    let found = match input.function {
        Some(name) => functions.iter().find(|f| f.name == name),
        None => functions.first().filter(|_| functions.len() == 1),
    };
    found.ok_or_else(|| VariantError::Function {
        variant: input.name.to_owned(),
        wanted: input.function.map_or("no function was named".to_owned(), |n| format!("no function `{n}`")),
        there: functions.iter().map(|f| format!("`{}`", f.name)).collect::<Vec<_>>().join(", "),
    })
}

/// Where registers are spilled, where that is not in the region: the first of the loops, else the function.
fn spills_elsewhere(analysis: &Analysis<'_>, region: &Section) -> Option<String> {
    if region.local_memory.spills() {
        return None;
    }
    let part = |name: &str, kind: SectionKind, body: &Interval| {
        let local = analysis.count(name, kind, body).local_memory;
        let (out, back) = (
            local.spill_store_bytes + local.shared_spill_store_bytes,
            local.spill_load_bytes + local.shared_spill_load_bytes,
        );
        local.spills().then(|| format!("{name} spills {out} bytes and loads {back} back"))
    };
    let mut loops = (0..analysis.loops.len()).filter(|i| analysis.loops[*i].kind == LoopKind::User);
    loops
        .find_map(|i| part(analysis.loop_name(i), SectionKind::Region, &analysis.loops[i].body))
        .or_else(|| part(WHOLE, SectionKind::Region, &analysis.whole()))
}

fn region(analysis: &Analysis<'_>, name: &str) -> Option<Interval> {
    if name == WHOLE {
        return Some(analysis.whole());
    }
    let role = analysis.roles.iter().find(|r| r.name == name).map(|r| r.body.clone());
    role.or_else(|| {
        let index = (0..analysis.loops.len()).find(|i| analysis.loop_name(*i) == name)?;
        Some(analysis.loops[index].body.clone())
    })
}
