//! What an operation costs on a device: pipe cycles, issue slots and latency, from a device profile.
//!
//! A cost is per element and SM: an instruction that a thread executes once an element occupies its pipe for
//! 1 / rate cycles, where the rate is in lanes a clock and SM. Values that exist once a group cost a lane
//! 1/elements-a-lane of that, once a row 1/(row / lanes), constants nothing.

mod amount;
mod instructions;
mod lowering;

pub use amount::{Cost, ISSUE, ISSUE_LANES_PER_CLK_SM, PIPES};
pub use instructions::FLUSHING;

use crate::format::Format;
use crate::lang::{Layout, Op, Shape};
use amount::occupy;
use instructions::{COMPOUND, INSTRUCTIONS, ROUND_E2M1, SHUFFLE, instructions};
use kbt_device::{DeviceProfile, Lowered, Lowering, MissingFigure, Pipe, RateRow};
use kbt_evidence::Provenance;
use std::collections::BTreeMap;

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

/// What compiled code has: an operation of the language, or a PTX instruction that is none or costs something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Compiled {
    /// An operation.
    Op(Op),
    /// An instruction, by its name.
    Ptx(&'static str),
}

impl Compiled {
    /// A division, rounded as IEEE 754 says, by a number.
    pub const DIV_BY_NUMBER: Self = Self::Ptx(lowering::DIV_BY_NUMBER);

    /// The operation's or instruction's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Op(op) => op.name(),
            Self::Ptx(name) => name,
        }
    }
}

impl From<Op> for Compiled {
    fn from(op: Op) -> Self {
        Self::Op(op)
    }
}

/// The costs of a device for a layout.
#[derive(Debug)]
pub struct CostModel<'a> {
    profile: &'a DeviceProfile,
    layout: Layout,
    /// Functions that keep subnormals: compiled without `.ftz`.
    subnormals: Vec<Op>,
    /// Conversions cost what they cost themselves, whatever a device needs around them.
    bare: bool,
    /// How often a lane does what follows from constants alone, an element.
    constants: f64,
}

impl<'a> CostModel<'a> {
    /// The costs that `profile` gives.
    #[must_use]
    pub const fn new(profile: &'a DeviceProfile, layout: Layout) -> Self {
        Self { profile, layout, bare: false, subnormals: Vec::new(), constants: 0.0 }
    }

    /// The same for code that is compiled without `.ftz`, for these functions.
    #[must_use]
    pub fn keeping_subnormals(mut self, functions: &[Op]) -> Self {
        self.subnormals = functions.to_vec();
        self
    }

    /// The same for code that has what stands around a conversion in it already, or outside.
    #[must_use]
    pub const fn bare_conversions(mut self) -> Self {
        self.bare = true;
        self
    }

    /// The same for code that each thread computes from the kernel's parameters again, once for this many elements.
    #[must_use]
    pub const fn constants_in_threads(mut self, elements: f64) -> Self {
        self.constants = 1.0 / elements;
        self
    }

    /// Whether what follows from constants alone costs something.
    #[must_use]
    pub const fn constants_cost(&self) -> bool {
        self.constants > 0.0
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
            Shape::Const => self.constants,
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
        let kept = FLUSHING.iter().find(|(of, _)| *of == op && self.subnormals.contains(&op));
        self.named(kept.map_or_else(|| instructions(op), |(_, name)| std::slice::from_ref(name)))
    }

    /// What compiled code has, whatever this model's other functions do about subnormals.
    pub fn compiled(&self, what: Compiled) -> Result<OpCost, MissingFigure> {
        match what {
            Compiled::Op(op @ (Op::Exp2 | Op::Log2 | Op::Rcp | Op::Sqrt | Op::Rsqrt)) => {
                self.named(instructions(op))
            }
            Compiled::Op(op) => self.operation(op),
            Compiled::Ptx(name) => self.named(&[name]),
        }
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

    /// A division whose divisor is a number, with a result of shape `to`.
    pub fn division_by_number(&self, to: Shape) -> Result<OpCost, MissingFigure> {
        self.scaled(self.named(&[lowering::DIV_BY_NUMBER])?, to)
    }

    /// What it takes to have |a| of a shape in a register, for a consumer that takes no operand so.
    pub fn magnitude(&self, of: Shape) -> Result<OpCost, MissingFigure> {
        self.scaled(self.operation(Op::Add)?, of)
    }

    fn scaled(&self, mut one: OpCost, to: Shape) -> Result<OpCost, MissingFigure> {
        let mut cost = Cost::default();
        cost.add(&one.cost, self.times(to));
        one.cost = cost;
        Ok(one)
    }

    /// A node of the language with operands of shape `from` and a result of shape `to`: its cost an element, its
    /// latency, and how that is known.
    pub fn node(&self, op: Op, from: Shape, to: Shape) -> Result<Option<OpCost>, MissingFigure> {
        let lanes = f64::from(self.layout.lanes);
        let hops = lanes.log2();
        let a_lane = f64::from(self.layout.elements_a_lane());
        // Values a lane takes into a reduction, an element of the row, and how deep a tree over them is.
        let (combine, taken, results, across) = match op {
            Op::Num(_) | Op::Input(_) | Op::Neg | Op::Abs | Op::Out => return Ok(None),
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
                return self.scaled(self.operation(op)?, to).map(Some);
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
        if from == Shape::Const { 0.0 } else { self.times(from) / self.times(Shape::Row) }
    }

    fn named(&self, names: &[&str]) -> Result<OpCost, MissingFigure> {
        for name in names {
            // What is several instructions has a rate of its own in a measured profile, but that says nothing of
            // which pipes it takes: its instructions do.
            let compound = COMPOUND.iter().any(|start| name.starts_with(start));
            if let Some(row) = self.profile.rate(name).ok().filter(|_| !compound) {
                return Ok(Self::single(name, row));
            }
            let known = self.known(name);
            let found = known.map(|l| self.lowered(l.results, &l.instructions, &l.provenance));
            // Where the profile's own has an opcode that nothing gives a rate, the table's may do.
            let mined = match &found {
                Some(Ok(_)) => None,
                _ => lowering::find(name, self.profile.arch),
            };
            match (found, mined) {
                (_, Some(l)) => return self.lowered(l.results, &l.instructions, &l.provenance),
                (Some(found), None) => return found,
                (None, None) => {}
            }
        }
        match names.first() {
            Some(name) => Err(self.profile.rate(name).err().unwrap_or_else(|| self.missing(name))),
            None => Err(self.missing("an operation that no instruction is known for")),
        }
    }

    /// What the profile says that an operation is compiled to.
    fn known(&self, name: &str) -> Option<Lowering> {
        if lowering::IN_PLACE.contains(&name) {
            // Measured code uses the operand again, and so scales a copy that a choice gives.
            let mut function = self.profile.lowering(name).ok()?.clone();
            function.instructions.retain(|i| !i.opcode.starts_with("FSEL"));
            return Some(function);
        }
        if name != lowering::DIV_BY_NUMBER {
            return self.profile.lowering(name).ok().cloned();
        }
        // The reciprocal of a number is a number.
        let mut division = self.profile.lowering("div.rn.f32").ok()?.clone();
        division.instructions.retain(|i| !i.opcode.starts_with("MUFU.RCP"));
        Some(division)
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

#[cfg(test)]
pub(crate) mod tests;
