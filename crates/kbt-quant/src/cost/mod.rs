//! What an operation costs on a device: pipe cycles, issue slots and latency, from a device profile.
//!
//! A cost is per element and SM: an instruction that a thread executes once an element occupies its pipe for
//! 1 / rate cycles, where the rate is in lanes a clock and SM. Values that exist once a group cost a lane
//! 1/elements-a-lane of that, once a row 1/(row / lanes), constants nothing.

mod lowering;

use crate::format::Format;
use crate::lang::{Layout, Op, Shape};
use kbt_device::{DeviceProfile, Lowered, MissingFigure, Pipe, RateRow};
use kbt_evidence::Provenance;
use std::collections::BTreeMap;

/// Warp schedulers of an SM times lanes of a warp: what can be issued a clock. No SM since Volta issues more than one
/// instruction a clock and scheduler.
pub const ISSUE_LANES_PER_CLK_SM: f64 = 128.0;

/// Pipes that costs are kept for, in the order of [`Cost::cycles`]; the issue port comes last.
pub const PIPES: [Pipe; 7] =
    [Pipe::Alu, Pipe::Fma, Pipe::FmaHeavy, Pipe::Fp16, Pipe::Xu, Pipe::Lsu, Pipe::Unknown];

/// The place of the issue port in [`Cost::cycles`].
pub const ISSUE: usize = PIPES.len();

/// What something costs, per element.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// Cycles of each of [`PIPES`] and of the issue port, an element and SM.
    pub cycles: [f64; ISSUE + 1],
    /// Instructions issued an element.
    pub issue_slots: f64,
}

impl Cost {
    /// Adds `times` of another cost.
    pub fn add(&mut self, other: &Self, times: f64) {
        for (a, b) in self.cycles.iter_mut().zip(other.cycles) {
            *a += b * times;
        }
        self.issue_slots += other.issue_slots * times;
    }

    /// The busiest pipe's cycles, the issue port among them.
    #[must_use]
    pub fn busiest(&self) -> f64 {
        self.cycles.iter().copied().fold(0.0, f64::max)
    }

    /// The busiest pipe's name.
    #[must_use]
    pub fn busiest_pipe(&self) -> &'static str {
        let (mut best, mut name) = (0.0, "issue");
        for (cycles, pipe) in self.named() {
            if cycles > best {
                (best, name) = (cycles, pipe);
            }
        }
        name
    }

    /// Cycles and name of each pipe; unknown pipes are left out, as only their issue slots count.
    pub fn named(&self) -> impl Iterator<Item = (f64, &'static str)> + '_ {
        let names = PIPES.iter().map(|p| p.as_str()).chain(["issue"]);
        self.cycles.iter().copied().zip(names).filter(|(_, name)| *name != "unknown")
    }
}

/// One operation on one element, as machine code has it.
#[derive(Debug, Clone, PartialEq)]
pub struct OpCost {
    /// Its cost where it is done once an element.
    pub cost: Cost,
    /// Cycles from operand to result.
    pub latency_cycles: f64,
    /// How the numbers are known.
    pub provenance: Provenance,
}

/// The costs of a device for a layout.
#[derive(Debug)]
pub struct CostModel<'a> {
    profile: &'a DeviceProfile,
    layout: Layout,
    /// Conversions cost what they cost themselves, whatever a device needs around them.
    bare: bool,
}

/// Names under which a profile may have an operation's rate, best first.
const fn instructions(op: Op) -> &'static [&'static str] {
    match op {
        Op::Exp2 => &["ex2.approx.ftz.f32", "ex2.approx.f32"],
        Op::Log2 => &["lg2.approx.ftz.f32", "lg2.approx.f32"],
        Op::Rcp => &["rcp.approx.ftz.f32", "rcp.approx.f32"],
        Op::Sqrt => &["sqrt.approx.ftz.f32", "sqrt.approx.f32"],
        Op::SqrtRn => &["sqrt.rn.f32"],
        Op::Rsqrt => &["rsqrt.approx.ftz.f32", "rsqrt.approx.f32"],
        Op::Tanh => &["tanh.approx.f32"],
        Op::Lt | Op::Le | Op::Eq => &["setp.lt.f32"],
        Op::Select => &["selp.f32", "selp.b32"],
        Op::Add => &["add.rn.f32", "add.f32", "fma.rn.f32"],
        Op::Mul => &["mul.rn.f32", "mul.f32", "fma.rn.f32"],
        Op::Fma => &["fma.rn.f32"],
        Op::Div => &["div.rn.f32"],
        Op::Max => &["max.f32"],
        Op::Cvt(Format::E2m1) => &["cvt.rn.satfinite.e2m1x2.f32"],
        Op::Cvt(Format::E2m3) => &["cvt.rn.satfinite.e2m3x2.f32"],
        Op::Cvt(Format::E3m2) => &["cvt.rn.satfinite.e3m2x2.f32"],
        Op::Cvt(Format::E4m3) => &["cvt.rn.satfinite.e4m3x2.f32"],
        Op::Cvt(Format::E5m2) => &["cvt.rn.satfinite.e5m2x2.f32"],
        Op::Cvt(Format::Ue8m0) => &["cvt.rz.satfinite.ue8m0x2.f32"],
        Op::Cvt(Format::Bf16) => &["cvt.rn.bf16x2.f32"],
        Op::Cvt(Format::F16) => &["cvt.rn.f16x2.f32"],
        _ => &[],
    }
}

/// The instruction whose rate an opcode's is, by how the opcode begins.
const INSTRUCTIONS: [(&str, &str); 15] = [
    ("FFMA", "fma.rn.f32"),
    ("FADD", "add.rn.f32"),
    ("FMUL", "mul.rn.f32"),
    ("FMNMX", "max.f32"),
    ("SHFL", SHUFFLE),
    ("MUFU.EX2", "ex2.approx.ftz.f32"),
    ("MUFU.RCP", "rcp.approx.ftz.f32"),
    ("MUFU.LG2", "lg2.approx.ftz.f32"),
    ("MUFU.RSQ", "rsqrt.approx.ftz.f32"),
    ("MUFU.SQRT", "sqrt.approx.ftz.f32"),
    ("MUFU.TANH", "tanh.approx.f32"),
    ("F2FP.SATFINITE.E4M3.F32", "cvt.rn.satfinite.e4m3x2.f32"),
    ("F2FP.SATFINITE.E5M2.F32", "cvt.rn.satfinite.e5m2x2.f32"),
    ("F2FP.BF16.F32", "cvt.rn.bf16x2.f32"),
    ("F2FP.F16.F32", "cvt.rn.f16x2.f32"),
];

/// How the names of what is several instructions begin.
const COMPOUND: [&str; 3] = ["div.", "sqrt.rn.", "e2m1."];
const ROUND_E2M1: &str = "e2m1.round.below7";
const SHUFFLE: &str = "shfl.sync.bfly.b32";

impl<'a> CostModel<'a> {
    /// The costs that `profile` gives.
    #[must_use]
    pub const fn new(profile: &'a DeviceProfile, layout: Layout) -> Self {
        Self { profile, layout, bare: false }
    }

    /// The same for code that has what stands around a conversion in it already, or outside.
    #[must_use]
    pub const fn bare_conversions(mut self) -> Self {
        self.bare = true;
        self
    }

    /// The profile's name.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.profile.name
    }

    /// How often a lane does something of this shape, an element.
    #[must_use]
    pub fn times(&self, shape: Shape) -> f64 {
        match shape {
            Shape::Const => 0.0,
            Shape::Row => f64::from(self.layout.lanes) / f64::from(self.layout.row),
            Shape::Group | Shape::Lane => 1.0 / f64::from(self.layout.elements_a_lane()),
            Shape::Elem => 1.0,
        }
    }

    /// One scalar operation.
    pub fn operation(&self, op: Op) -> Result<OpCost, MissingFigure> {
        if op == Op::Cvt(Format::E2m1) && self.profile.arch.sm < 100 {
            return if self.bare { self.named(&[ROUND_E2M1]) } else { self.emulated_fp4() };
        }
        self.named(instructions(op))
    }

    /// One step of a butterfly over lanes.
    pub fn shuffle(&self) -> Result<OpCost, MissingFigure> {
        self.named(&[SHUFFLE])
    }

    /// A device without FP4 matrix products rounds to the e2m1 grid in FP32, multiplies by the scale and packs the
    /// product to bf16.
    fn emulated_fp4(&self) -> Result<OpCost, MissingFigure> {
        let parts =
            [self.named(&[ROUND_E2M1])?, self.operation(Op::Mul)?, self.operation(Op::Cvt(Format::Bf16))?];
        let mut cost = Cost::default();
        for part in &parts {
            cost.add(&part.cost, 1.0);
        }
        let names = ["round to e2m1", "multiply by the scale", "pack to bf16"];
        let inputs = names.into_iter().zip(parts.iter().map(|p| &p.provenance));
        Ok(OpCost {
            cost,
            latency_cycles: parts.iter().map(|p| p.latency_cycles).sum(),
            provenance: Provenance::computed("instructions an element over their rates", inputs),
        })
    }

    /// A node of the language with operands of shape `from` and a result of shape `to`: its cost an element, its
    /// latency, and how that is known.
    pub fn node(&self, op: Op, from: Shape, to: Shape) -> Result<Option<OpCost>, MissingFigure> {
        let lanes = f64::from(self.layout.lanes);
        let hops = lanes.log2();
        let a_lane = f64::from(self.layout.elements_a_lane());
        // Values a lane takes into a reduction, an element of the row, and how deep a tree over them is.
        let (combine, taken, results, across) = match op {
            Op::Num(_) | Op::Input(_) | Op::Neg | Op::Out => return Ok(None),
            Op::GroupMax => (Op::Max, a_lane, self.times(Shape::Group), hops),
            Op::GroupSum => (Op::Add, a_lane, self.times(Shape::Group), hops),
            Op::LaneSum => (Op::Add, a_lane, self.times(Shape::Group), 0.0),
            // A value a group is the same in all lanes already.
            Op::RowMax if from == Shape::Group => {
                (Op::Max, self.row_values(from), self.times(Shape::Row), 0.0)
            }
            Op::RowMax => (Op::Max, self.row_values(from), self.times(Shape::Row), hops),
            // The accumulator takes every value; lanes are added once, after the last tile.
            Op::RowSum => (Op::Add, self.row_values(from) + 1.0, self.times(Shape::Row), 0.0),
            _ => {
                let mut one = self.operation(op)?;
                let mut cost = Cost::default();
                cost.add(&one.cost, self.times(to));
                one.cost = cost;
                return Ok(Some(one));
            }
        };
        let step = self.operation(combine)?;
        let mut total = OpCost {
            cost: Cost::default(),
            latency_cycles: (taken.log2().ceil().max(0.0) + across) * step.latency_cycles,
            provenance: step.provenance.clone(),
        };
        total.cost.add(&step.cost, (taken - 1.0 + across) * results);
        if across > 0.0 {
            let shuffle = self.named(&[SHUFFLE])?;
            total.cost.add(&shuffle.cost, across * results);
            total.latency_cycles += across * shuffle.latency_cycles;
            total.provenance = Provenance::computed(
                "instructions an element over their rates",
                [("combine", &step.provenance), ("shuffle", &shuffle.provenance)],
            );
        }
        Ok(Some(total))
    }

    /// Values of a shape that a lane holds of one row.
    fn row_values(&self, from: Shape) -> f64 {
        self.times(from) / self.times(Shape::Row)
    }

    fn named(&self, names: &[&str]) -> Result<OpCost, MissingFigure> {
        for name in names {
            // What is several instructions has a rate of its own in a measured profile, but that says nothing of
            // which pipes it takes: its instructions do.
            let compound = COMPOUND.iter().any(|start| name.starts_with(start));
            if let Some(row) = self.profile.rate(name).ok().filter(|_| !compound) {
                return Ok(Self::single(name, row));
            }
            if let Ok(known) = self.profile.lowering(name) {
                return self.lowered(known.results, &known.instructions, &known.provenance);
            }
            if let Some(mined) = lowering::find(name, self.profile.arch) {
                return self.lowered(mined.results, &mined.instructions, &mined.provenance);
            }
        }
        match names.first() {
            Some(name) => Err(self.profile.rate(name).err().unwrap_or_else(|| self.missing(name))),
            None => Err(self.missing("an operation that no instruction is known for")),
        }
    }

    fn missing(&self, what: &str) -> MissingFigure {
        MissingFigure {
            profile: self.profile.name.clone(),
            what: format!("rate for `{what}`"),
            measure_with: format!("kbt microbench run --only '{what}' --out PROFILE.yaml"),
        }
    }

    /// An instruction that the profile has by name.
    fn single(name: &str, row: &RateRow) -> OpCost {
        let lanes = row.lanes_per_clk_sm.unwrap_or(f64::INFINITY);
        let packed = match row.results_per_clk_sm {
            Some(results) => results / lanes,
            None if name.starts_with("cvt.") && name.contains("x2.") => 2.0,
            None => 1.0,
        };
        let mut cost = Cost::default();
        occupy(&mut cost, row.pipe, 1.0 / packed, lanes);
        OpCost {
            cost,
            latency_cycles: row.latency_clk.unwrap_or_else(|| lowering::latency(row.pipe, name)),
            provenance: row.provenance.clone(),
        }
    }

    fn lowered(
        &self,
        results: f64,
        instructions: &[Lowered],
        how: &Provenance,
    ) -> Result<OpCost, MissingFigure> {
        let mut cost = Cost::default();
        let mut latency_cycles = 0.0;
        let mut sources: BTreeMap<String, Provenance> = BTreeMap::new();
        sources.insert("lowering".to_owned(), how.clone());
        for one in instructions {
            let count = one.count / results;
            let row = self.rate_of(one)?;
            let lanes = row.and_then(|r| r.lanes_per_clk_sm).unwrap_or(f64::INFINITY);
            occupy(&mut cost, one.pipe, count, lanes);
            let latency = row.and_then(|r| r.latency_clk);
            if !matches!(one.pipe, Pipe::Cbu | Pipe::Unknown) {
                latency_cycles +=
                    one.count.ceil() * latency.unwrap_or_else(|| lowering::latency(one.pipe, &one.opcode));
            }
            if let Some(row) = row {
                sources.insert(row.instruction.clone(), row.provenance.clone());
            }
        }
        let inputs = sources.iter().map(|(name, p)| (name.as_str(), p));
        let provenance = Provenance::computed("instructions an element over their rates", inputs);
        Ok(OpCost { cost, latency_cycles, provenance })
    }

    /// The rate of an instruction within a lowering; `None` where only its issue slot is counted.
    fn rate_of(&self, one: &Lowered) -> Result<Option<&RateRow>, MissingFigure> {
        let plain =
            INSTRUCTIONS.iter().find(|(start, _)| one.opcode.starts_with(start)).map(|(_, name)| *name);
        if let Some(row) = plain.and_then(|name| self.profile.rate(name).ok()) {
            return Ok(Some(row));
        }
        if let Some(row) = self.profile.rate_of_opcode(&one.opcode) {
            return Ok(Some(row));
        }
        // Functions, conversions and shuffles have rates of their own: one does not stand for another.
        let own = ["MUFU.", "F2FP.", "SHFL"].iter().any(|start| one.opcode.starts_with(start));
        if let Some(name) = plain.filter(|_| own) {
            return self.profile.rate(name).map(Some);
        }
        let stand_in = match one.pipe {
            // All plain instructions of these pipes have one rate.
            Pipe::Alu => "max.f32",
            Pipe::Fma | Pipe::FmaLite => "fma.rn.f32",
            // The other functions of this pipe have no row of their own in every profile.
            Pipe::Xu => "rcp.approx.ftz.f32",
            Pipe::Cbu | Pipe::Unknown => return Ok(None),
            _ => return Err(self.missing(plain.unwrap_or(&one.opcode))),
        };
        self.profile.rate(stand_in).map(Some)
    }
}

/// Pipes take whole lanes a clock. A measured rate within a hundredth of a whole number is that number: what is left is
/// the measurement's own error, and must not decide between programs that load a pipe alike.
fn whole(lanes: f64) -> f64 {
    if (lanes - lanes.round()).abs() <= 0.01 * lanes { lanes.round() } else { lanes }
}

fn occupy(cost: &mut Cost, pipe: Pipe, count: f64, lanes: f64) {
    let lanes = whole(lanes);
    let mut on = |pipe: Pipe, lanes: f64| {
        if let Some(at) = PIPES.iter().position(|p| *p == pipe) {
            cost.cycles[at] += count / lanes;
        }
    };
    match pipe {
        // The heavy half is part of the FMA pipe: what runs there takes the whole pipe's slots too.
        Pipe::FmaHeavy => {
            on(Pipe::FmaHeavy, lanes);
            on(Pipe::Fma, ISSUE_LANES_PER_CLK_SM.max(lanes));
        }
        Pipe::FmaLite => on(Pipe::Fma, lanes),
        other => on(other, lanes),
    }
    cost.cycles[ISSUE] += count / ISSUE_LANES_PER_CLK_SM;
    cost.issue_slots += count;
}

#[cfg(test)]
pub(crate) mod tests;
