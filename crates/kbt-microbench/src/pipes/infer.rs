//! From times to resources and usages. No name of a pipe is known here.

use super::classes::{Classes, View};
use super::mixes::{Mixes, Solo};
use super::net::{Opcodes, Span};
use super::outcome::{
    InstructionRow, LANES, Measured, PipesOutcome, Predicted, Resource, SCHEMA, Unidentifiable, Use,
};
use super::pair::{Relation, SAME, STEP};
use super::versus::Comparison;
use crate::rows::round;
use kbt_evidence::Provenance;

/// Explains the times by resources. The comparison with counters is left open.
#[must_use]
pub fn infer(mixes: &Mixes) -> PipesOutcome {
    let view = View::new(mixes);
    let classes = view.classes();
    let gross = usages(&view, &classes);
    let opcodes = Opcodes::solve(mixes, &gross, classes.representatives.len());
    let names: Vec<String> = (1..=classes.representatives.len()).map(|r| format!("r{r}")).collect();
    let units = units(mixes, &classes);
    let instructions: Vec<InstructionRow> = (0..mixes.solos.len())
        .map(|i| row(&mixes.solos[i], i, &classes, &opcodes, (&names, &units), mixes))
        .collect();
    let resources = resources(mixes, &classes, &instructions, &names);
    let instructions = with_units(instructions, &resources);
    let predicted = predictions(mixes, &view, &gross);
    let mut errors: Vec<f64> = predicted.iter().map(|p| p.error_percent.abs()).collect();
    errors.sort_by(f64::total_cmp);
    let mut provenance = Provenance::modelled(
        "linear resource model of instruction throughput, explained from mixes of two; its errors on these mixes \
         stand beside the predictions",
    );
    provenance.inputs = vec![format!("{} mixes and {} solos", mixes.mixes.len(), mixes.solos.len())];
    PipesOutcome {
        schema: SCHEMA.to_owned(),
        arch: mixes.arch,
        device: mixes.device.clone(),
        provenance,
        unidentifiable: unidentifiable(mixes, &view, &classes, &opcodes, &instructions),
        resources,
        instructions,
        measured: Measured { provenance: mixes.provenance.clone(), mixes: mixes.mixes.clone() },
        predicted,
        largest_error_percent: errors.last().copied().unwrap_or(0.0),
        median_error_percent: errors.get(errors.len() / 2).copied().unwrap_or(0.0),
        refused: mixes.refused.clone(),
        not_as_in_profile: Vec::new(),
        comparison: Comparison::refused("no pipe counters were given"),
    }
}

/// What each operation uses of each resource, companions included; `None` where it was not tested.
fn usages(view: &View, classes: &Classes) -> Vec<Vec<Option<Span>>> {
    let use_of = |i: usize, r: usize| {
        let representative = classes.representatives[r];
        if classes.of[i].contains(&r) {
            return Some(Span::of_measured(view.alone[i].cycles));
        }
        match view.relation(i, representative) {
            Relation::Untested | Relation::Hidden => None,
            // One that fills the issue port has no class, and may still be full with a representative; one that fills
            // the register ports is as slow for them, and what it uses of a pipe is less or more.
            Relation::Full { .. } if !view.alone[i].fills_ports() => {
                Some(Span::of_measured(view.alone[i].cycles))
            }
            _ => {
                let range = view.usage(i, representative);
                Some(Span { least: range.least, most: range.most, sure: range.explained })
            }
        }
    };
    (0..view.alone.len())
        .map(|i| (0..classes.representatives.len()).map(|r| use_of(i, r)).collect())
        .collect()
}

/// Cycles of the cheapest instruction without companions that is full with each representative.
fn units(mixes: &Mixes, classes: &Classes) -> Vec<f64> {
    let unit = |(r, &representative): (usize, &usize)| {
        let members = mixes.solos.iter().zip(&classes.of).filter(|(s, of)| s.is_clean() && of.contains(&r));
        let own = mixes.solos[representative].measured_cycles;
        members.map(|(s, _)| s.measured_cycles / s.issued()).fold(own, f64::min)
    };
    classes.representatives.iter().enumerate().map(unit).collect()
}

fn row(
    solo: &Solo,
    i: usize,
    classes: &Classes,
    opcodes: &Opcodes,
    (names, units): (&[String], &[f64]),
    mixes: &Mixes,
) -> InstructionRow {
    let net = opcodes.net(i);
    // What a companion with this bottleneck leaves over may be the companion's own, in this company.
    let less_sure = |u: Use| {
        let taken = mixes.solos.iter().zip(&classes.of).any(|(other, of)| {
            let companion = |o: &String| solo.opcodes.contains_key(o) && !solo.targets.contains(o);
            other.targets.iter().any(companion) && of.iter().any(|&r| names[r] == u.resource)
        });
        if taken { Use { least_cycles: 0.0, ..u } } else { u }
    };
    let usage: Vec<Use> = net
        .iter()
        .zip(names)
        .filter_map(|(span, name)| {
            let s = span.as_ref()?;
            Some(Use {
                resource: name.clone(),
                least_cycles: round(s.least, 1000.0),
                most_cycles: round(s.most, 1000.0),
                units: None,
            })
        })
        .collect();
    // A bottleneck of the whole operation is one of the target where the target surely uses it: beside companions, as
    // much as half of what the cheapest other instruction uses.
    let own = |r: usize, least: f64| least >= if solo.is_clean() { STEP } else { STEP.max(units[r] / 2.0) };
    let is_own = |r: &&usize| net.get(**r).and_then(Option::as_ref).is_some_and(|s| own(**r, s.least));
    let mut bottleneck: Vec<String> =
        classes.of[i].iter().filter(is_own).map(|&r| names[r].clone()).collect();
    if bottleneck.is_empty() && !solo.is_clean() && !classes.of[i].is_empty() {
        // Beside companions that are known to be slower, the resource it surely uses most is its own limit.
        let place = |u: &&Use| names.iter().position(|n| *n == u.resource);
        let sure = usage.iter().filter(|u| {
            u.most_cycles - u.least_cycles < STEP && place(u).is_some_and(|r| own(r, u.least_cycles))
        });
        bottleneck.extend(
            sure.max_by(|a, b| a.least_cycles.total_cmp(&b.least_cycles)).map(|u| u.resource.clone()),
        );
    }
    let usage =
        usage.into_iter().map(|u| if bottleneck.contains(&u.resource) { u } else { less_sure(u) }).collect();
    InstructionRow {
        instruction: solo.instruction.clone(),
        opcode: solo.targets.join("+"),
        companions: solo.opcodes.keys().filter(|o| !solo.targets.contains(o)).cloned().collect(),
        cycles: round(solo.measured_cycles, 1000.0),
        bottleneck,
        usage,
    }
}

fn resources(mixes: &Mixes, classes: &Classes, rows: &[InstructionRow], names: &[String]) -> Vec<Resource> {
    let resource = |(name, &representative): (&String, &usize)| {
        let members: Vec<&InstructionRow> = rows.iter().filter(|r| r.bottleneck.contains(name)).collect();
        // Without companions where there is one: a difference carries the errors of all its parts.
        let clean = |m: &&&InstructionRow| m.companions.is_empty();
        let any = members.iter().any(|m| m.companions.is_empty());
        let measured = members.iter().filter(|m| !any || clean(m));
        let uses = measured.flat_map(|m| &m.usage).filter(|u| u.resource == *name);
        let unit = uses.map(|u| u.most_cycles).fold(f64::INFINITY, f64::min);
        let unit = if unit.is_finite() { unit } else { mixes.solos[representative].measured_cycles };
        // A measured cycle count within the error of a whole or half one is that.
        let unit = snapped(unit).unwrap_or(unit);
        let whole = members.iter().map(|m| m.cycles).fold(f64::INFINITY, f64::min);
        Resource {
            most_unit_cycles: Some(whole)
                .filter(|w| !any && w.is_finite() && *w > unit * (1.0 + SAME))
                .map(|w| round(w, 1000.0)),
            name: name.clone(),
            representative: mixes.solos[representative].instruction.clone(),
            unit_cycles: round(unit, 1000.0),
            lanes_per_clk_sm: round(LANES / unit, 1000.0),
            members: members.iter().map(|m| m.instruction.clone()).collect(),
        }
    };
    names.iter().zip(&classes.representatives).map(resource).collect()
}

/// The whole or half number that a value is within the measuring error.
fn snapped(value: f64) -> Option<f64> {
    let near = (value / STEP).round() * STEP;
    ((value - near).abs() <= SAME * value).then_some(near).filter(|n| *n > 0.0)
}

fn with_units(mut rows: Vec<InstructionRow>, resources: &[Resource]) -> Vec<InstructionRow> {
    for used in rows.iter_mut().flat_map(|r| &mut r.usage) {
        let unit = resources.iter().find(|r| r.name == used.resource).map(|r| r.unit_cycles);
        let middle = f64::midpoint(used.least_cycles, used.most_cycles);
        let narrow = used.most_cycles - used.least_cycles <= (2.0 * SAME * middle).max(0.3);
        used.units = unit
            .filter(|_| narrow)
            .and_then(|u| if used.most_cycles <= 0.0 { Some(0.0) } else { snapped(middle / u) });
    }
    rows
}

/// The model's time of each mix: the busiest of the issue port, the register ports, the two instructions themselves,
/// and each resource with the uses that are sure.
fn predictions(mixes: &Mixes, view: &View, gross: &[Vec<Option<Span>>]) -> Vec<Predicted> {
    let predict = |mix: &super::mixes::MixTime| {
        let [i, j] = [mixes.index(&mix.of[0])?, mixes.index(&mix.of[1])?];
        let [n, m] = mix.counts.map(f64::from);
        let (a, b) = (view.alone[i], view.alone[j]);
        let used = |k: usize, r: usize| gross[k][r].as_ref().map_or(0.0, |s| s.least);
        let busiest = (0..gross[i].len()).map(|r| n * used(i, r) + m * used(j, r)).fold(0.0, f64::max);
        let known =
            (n * a.issued + m * b.issued).max(mix.register_port_cycles.map_or(0.0, |[least, _]| least));
        let cycles = busiest.max(n * a.cycles).max(m * b.cycles).max(known);
        Some(Predicted {
            of: mix.of.clone(),
            counts: mix.counts,
            predicted_cycles: round(cycles, 1000.0),
            error_percent: round((cycles / mix.measured_cycles - 1.0) * 100.0, 100.0),
        })
    };
    mixes.mixes.iter().filter_map(predict).collect()
}

fn unidentifiable(
    mixes: &Mixes,
    view: &View,
    classes: &Classes,
    opcodes: &Opcodes,
    rows: &[InstructionRow],
) -> Vec<Unidentifiable> {
    let mut list = Vec::new();
    let mut say = |what: &str, why: String| list.push(Unidentifiable { what: what.to_owned(), why });
    let name = |i: usize| mixes.solos[i].instruction.as_str();
    for (i, row) in rows.iter().enumerate() {
        let what = row.instruction.as_str();
        let alone = view.alone[i];
        if alone.fills_issue() && row.bottleneck.is_empty() {
            say(
                what,
                format!(
                    "fills the issue port ({:.2} cycles for {:.0} instructions): what it runs on takes at least {:.0} \
                     lanes/clk/SM together, and parts of it that are never the limit cannot be told apart",
                    alone.cycles,
                    alone.issued,
                    LANES * alone.issued / alone.cycles
                ),
            );
        } else if alone.fills_ports() && row.bottleneck.is_empty() {
            say(what, "fills the register ports: its operands take as long to read as it takes".to_owned());
        } else if classes.of[i].is_empty() && !alone.fills_known() {
            say(what, "its mixes with the representatives could not be measured, or tell nothing".to_owned());
        } else if let Some(why) = opcodes.unsolved(i) {
            say(what, why.to_owned());
        } else if row.bottleneck.is_empty() {
            say(what, "its companions are the bottleneck; what it uses itself stays below that".to_owned());
        }
        for (r, &representative) in classes.representatives.iter().enumerate() {
            if classes.of[i].contains(&r) {
                if view.relation(i, representative) == (Relation::Full { clear: false }) {
                    say(
                        &pair(what, name(representative)),
                        "a little faster than one resource would allow".to_owned(),
                    );
                }
            } else if view.relation(i, representative) == Relation::Between
                && !view.usage(i, representative).explained
            {
                let why = "slower than separate resources, faster than one, and no use in whole or half cycles \
                           explains all ratios: a loss by waiting warps, or a queue in common";
                say(&pair(what, name(representative)), why.to_owned());
            }
        }
    }
    for (i, j) in view.unplaced(classes) {
        let why = if view.alone[i].fills_ports() || view.alone[j].fills_ports() {
            "their times add up, and one fills the register ports: what it uses of pipes is not known"
        } else {
            "their times add up, and no resource found is the bottleneck of both: a further one that no instruction \
             has to itself"
        };
        say(&pair(name(i), name(j)), why.to_owned());
    }
    let untested = (0..view.alone.len())
        .flat_map(|i| classes.representatives.iter().map(move |&r| (i, r)))
        .filter(|&(i, r)| i != r && view.relation(i, r) == Relation::Untested)
        .filter(|&(i, r)| !classes.of[i].iter().any(|&c| classes.representatives[c] == r))
        .count();
    if untested > 0 {
        let why =
            format!("{untested} such pairs were not measured: uses beside the bottleneck may exist there");
        say("an instruction and a resource", why);
    }
    list
}

fn pair(a: &str, b: &str) -> String {
    format!("{a} + {b}")
}
