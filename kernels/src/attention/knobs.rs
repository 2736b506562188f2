//! The knobs of the attention kernel: their names in the environment, their values, and the preprocessor
//! definitions they become. The handoff contract is checked here before anything is compiled.

use crate::variant::Variant;
use std::fmt;
use std::str::FromStr;

macro_rules! knob {
    ($(#[$doc:meta])* $name:ident, $variable:literal { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// The environment variable that sets it.
            pub const VARIABLE: &'static str = $variable;
            /// Every value, in the order of its number in the CUDA source.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its value as text.
            #[must_use]
            pub const fn as_str(self) -> &'static str { match self { $(Self::$variant => $text,)* } }

            /// Its number in the CUDA source.
            #[must_use]
            pub const fn code(self) -> u32 { self as u32 }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(self.as_str()) }
        }

        impl FromStr for $name {
            type Err = KnobError;
            fn from_str(text: &str) -> Result<Self, KnobError> {
                Self::ALL.iter().copied().find(|v| v.as_str() == text).ok_or_else(|| KnobError::Value {
                    variable: $variable,
                    value: text.to_owned(),
                    accepted: [$($text,)*].join(", "),
                })
            }
        }
    };
}

knob! {
    /// What P and V are multiplied in.
    PvMode, "KBT_PV_MODE" {
        /// bf16.
        Bf16 = "bf16",
        /// e4m3, P scaled by 2^8.
        Fp8 = "fp8",
        /// The NVFP4 grid (codes, scales and products exact), multiplied in bf16.
        Fp4 = "fp4",
    }
}
knob! {
    /// How P's scale is found and applied.
    QuantForm, "KBT_QUANT_FORM" {
        /// Maximum after exp2, IEEE division.
        Linear = "linear",
        /// Maximum after exp2, approximate reciprocal and multiply.
        LinearRcp = "linear_rcp",
        /// Maximum before exp2, scale folded into the argument.
        Log2 = "log2",
        /// The same with scale and softmax bias folded into one FMA.
        Log2Fused = "log2_fused",
    }
}
knob! {
    /// Where P goes.
    Topology, "KBT_TOPOLOGY" {
        /// Through shared memory, behind two mbarriers.
        Smem = "smem",
        /// Stays in registers as the A operand.
        Registers = "registers",
    }
}
knob! {
    /// The order of exp2 and conversion in the source.
    SourceOrder, "KBT_SOURCE_ORDER" {
        /// Chunk by chunk.
        Chunked = "chunked",
        /// All exp2 first.
        ExpFirst = "exp_first",
        /// The exp2 of a group beside the conversion of the one before it: software pipelining by hand.
        Pipelined = "pipelined",
    }
}
knob! {
    /// How much the kernel records.
    TraceLevel, "KBT_TRACE" {
        /// Nothing: the machine code of a kernel without a tracer.
        Off = "off",
        /// The compiler barriers of level coarse alone.
        Barrier = "barrier",
        /// Waits, arrivals, chunk writes and MMA tiles.
        Coarse = "coarse",
        /// Every phase.
        Detail = "detail",
    }
}

/// A knob that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KnobError {
    /// A value that the knob does not have.
    #[error("{variable} is `{value}`; accepted: {accepted}")]
    Value {
        /// The environment variable.
        variable: &'static str,
        /// What it holds.
        value: String,
        /// What it may hold.
        accepted: String,
    },
    /// More registers than the launch leaves, or fewer than a warp has when it asks: `setmaxnreg.inc` is undefined there.
    #[error("KBT_SOFTMAX_REGISTERS is {registers}; this topology takes {least} to {most}")]
    Registers {
        /// What was asked for.
        registers: u32,
        /// What each thread has at launch.
        least: u32,
        /// What there is.
        most: u32,
    },
    /// The split breaks the handoff contract.
    #[error(
        "split {num}/{den}: the producer signals after {first_chunks} of {chunks} chunks, but the consumer then reads \
         {first_tiles} of {tiles} MMA tiles"
    )]
    Contract {
        /// Numerator of the split.
        num: u32,
        /// Denominator of the split.
        den: u32,
        /// Chunks before signal 1.
        first_chunks: u32,
        /// Chunks a tile.
        chunks: u32,
        /// MMA tiles issued after signal 1.
        first_tiles: u32,
        /// MMA tiles in all.
        tiles: u32,
    },
}

/// One setting of every knob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Knobs {
    /// What P.V is multiplied in.
    pub pv_mode: PvMode,
    /// How P is quantised.
    pub quant_form: QuantForm,
    /// Numerator of the split.
    pub split_num: u32,
    /// Denominator of the split.
    pub split_den: u32,
    /// Stores of P a tile.
    pub chunks: u32,
    /// Where P goes.
    pub topology: Topology,
    /// Source order.
    pub source_order: SourceOrder,
    /// Eighths of the elements whose exp2 is a polynomial on the FMA pipe.
    pub exp2_eighths: u32,
    /// Growth of a row's maximum, in powers of two, that is let pass without rescaling.
    pub rescale_log2: u32,
    /// Registers a thread of the softmax warpgroups; 0 for what the topology leaves them.
    pub softmax_registers: u32,
    /// Keys of a tile: 128, or with P in registers at head dimension 128 also 176 (192 in fp8).
    pub tile_n: u32,
    /// The conversion of P as a rolled loop, which puts the scores in local memory: what not to do, measurable.
    pub rolled: bool,
    /// Trace level.
    pub trace: TraceLevel,
    /// Head dimension, 64 or 128: what the kernel is compiled for rather than a choice.
    pub head_dim: u32,
}

impl Knobs {
    /// The setting that tuning starts from: the plain form of every knob.
    #[must_use]
    pub const fn plain(pv_mode: PvMode) -> Self {
        Self {
            pv_mode,
            quant_form: QuantForm::Linear,
            split_num: 1,
            split_den: 2,
            chunks: 4,
            topology: Topology::Smem,
            source_order: SourceOrder::Chunked,
            exp2_eighths: 0,
            rescale_log2: 0,
            softmax_registers: 0,
            tile_n: 128,
            rolled: false,
            trace: TraceLevel::Off,
            head_dim: 128,
        }
    }

    /// The variables that [`Self::from_variables`] reads.
    pub const VARIABLES: &[&str] = &[
        PvMode::VARIABLE,
        QuantForm::VARIABLE,
        "KBT_SPLIT_NUM",
        "KBT_SPLIT_DEN",
        "KBT_CHUNKS",
        Topology::VARIABLE,
        SourceOrder::VARIABLE,
        "KBT_EXP2_EIGHTHS",
        "KBT_RESCALE_LOG2",
        "KBT_SOFTMAX_REGISTERS",
        "KBT_TILE_N",
        "KBT_ROLLED",
        TraceLevel::VARIABLE,
    ];

    /// Reads the knobs from variables, the plain setting where one is absent, for a head dimension of 64 or 128.
    pub fn from_variables(get: impl Fn(&str) -> Option<String>, head_dim: u32) -> Result<Self, KnobError> {
        fn read<T: FromStr<Err = KnobError>>(value: Option<String>, plain: T) -> Result<T, KnobError> {
            value.map_or(Ok(plain), |v| v.parse())
        }
        let whole = |variable: &'static str, plain: u32, accepted: &str, ok: &dyn Fn(u32) -> bool| {
            let Some(value) = get(variable) else { return Ok(plain) };
            let error = || KnobError::Value { variable, value: value.clone(), accepted: accepted.to_owned() };
            value.parse().ok().filter(|v| ok(*v)).ok_or_else(error)
        };
        let plain = Self::plain(read(get(PvMode::VARIABLE), PvMode::Bf16)?);
        let knobs = Self {
            quant_form: read(get(QuantForm::VARIABLE), plain.quant_form)?,
            split_num: whole("KBT_SPLIT_NUM", plain.split_num, "1 to 64", &|v| (1..=64).contains(&v))?,
            split_den: whole("KBT_SPLIT_DEN", plain.split_den, "1 to 64", &|v| (1..=64).contains(&v))?,
            chunks: whole("KBT_CHUNKS", plain.chunks, "2, 4, 8", &|v| matches!(v, 2 | 4 | 8))?,
            topology: read(get(Topology::VARIABLE), plain.topology)?,
            source_order: read(get(SourceOrder::VARIABLE), plain.source_order)?,
            exp2_eighths: whole("KBT_EXP2_EIGHTHS", 0, "0 to 8", &|v| v <= 8)?,
            rescale_log2: whole("KBT_RESCALE_LOG2", 0, "0 to 8", &|v| v <= 8)?,
            softmax_registers: whole(
                "KBT_SOFTMAX_REGISTERS",
                0,
                "0, or a multiple of 8 from 128 to 232",
                &|v| v == 0 || (v % 8 == 0 && (128..=232).contains(&v)),
            )?,
            tile_n: whole("KBT_TILE_N", 128, "128, 176, 192", &|v| matches!(v, 128 | 176 | 192))?,
            rolled: whole("KBT_ROLLED", 0, "0, 1", &|v| v <= 1)? == 1,
            trace: read(get(TraceLevel::VARIABLE), plain.trace)?,
            head_dim,
            ..plain
        };
        knobs.check()?;
        Ok(knobs)
    }

    /// MMA tiles along the keys of one P.V step.
    #[must_use]
    pub const fn tiles(&self) -> u32 {
        match self.pv_mode {
            PvMode::Fp8 => self.tile_n / 32,
            PvMode::Bf16 | PvMode::Fp4 => self.tile_n / 16,
        }
    }

    /// How many of `k` parts come before signal 1: the kernel's own rounding.
    #[must_use]
    pub fn first_part(&self, k: u32) -> u32 {
        (k * self.split_num / self.split_den).clamp(1, k - 1)
    }

    /// Registers a thread that the softmax warpgroups may have: from what each thread has at launch (65,536 over 512 or 384
    /// threads) to that and what the other roles give back.
    #[must_use]
    pub const fn softmax_registers_range(&self) -> (u32, u32) {
        match (self.topology, self.head_dim, self.pv_mode) {
            (Topology::Registers, 128, _) | (Topology::Registers, _, PvMode::Fp4) => (168, 232),
            _ => (128, 160),
        }
    }

    /// The handoff contract, which P in registers has no part in, and the registers that there are.
    pub fn check(&self) -> Result<(), KnobError> {
        let large = if self.pv_mode == PvMode::Fp8 { 192 } else { 176 };
        let may_be_large = self.topology == Topology::Registers && self.head_dim == 128;
        if self.tile_n != 128 && !(may_be_large && self.tile_n == large) {
            return Err(KnobError::Value {
                variable: "KBT_TILE_N",
                value: self.tile_n.to_string(),
                accepted: if may_be_large { format!("128, {large}") } else { "128".to_owned() },
            });
        }
        let (least, most) = self.softmax_registers_range();
        if self.softmax_registers != 0 && !(least..=most).contains(&self.softmax_registers) {
            return Err(KnobError::Registers { registers: self.softmax_registers, least, most });
        }
        let (chunks, tiles) = (self.chunks, self.tiles());
        let (first_chunks, first_tiles) = (self.first_part(chunks), self.first_part(tiles));
        if self.topology == Topology::Smem && first_chunks * tiles < first_tiles * chunks {
            let (num, den) = (self.split_num, self.split_den);
            return Err(KnobError::Contract { num, den, first_chunks, chunks, first_tiles, tiles });
        }
        Ok(())
    }

    /// The same kernel with the knobs that cannot matter set to their plain values, so that one machine code has
    /// one name.
    #[must_use]
    pub fn canonical(mut self) -> Self {
        let plain = Self::plain(self.pv_mode);
        self.quant_form = match (self.pv_mode, self.quant_form) {
            (PvMode::Bf16, _) | (PvMode::Fp8, QuantForm::LinearRcp) => plain.quant_form,
            (PvMode::Fp8, QuantForm::Log2Fused) => QuantForm::Log2,
            (_, form) => form,
        };
        if self.topology == Topology::Registers {
            self.chunks = plain.chunks;
        }
        let log2 = matches!(self.quant_form, QuantForm::Log2 | QuantForm::Log2Fused);
        if self.pv_mode == PvMode::Fp4 && log2 {
            self.source_order = plain.source_order;
            self.exp2_eighths = plain.exp2_eighths;
        }
        if self.softmax_registers == self.softmax_registers_range().1 {
            self.softmax_registers = plain.softmax_registers;
        }
        self
    }

    /// The variables of knobs that were set and change nothing beside the others.
    #[must_use]
    pub fn without_effect(&self) -> Vec<&'static str> {
        let c = self.canonical();
        let changed = [
            (QuantForm::VARIABLE, self.quant_form != c.quant_form),
            ("KBT_CHUNKS", self.chunks != c.chunks),
            (SourceOrder::VARIABLE, self.source_order != c.source_order),
            ("KBT_EXP2_EIGHTHS", self.exp2_eighths != c.exp2_eighths),
        ];
        changed.into_iter().filter(|(_, is)| *is).map(|(variable, _)| variable).collect()
    }

    /// The variant of the source that this setting is.
    #[must_use]
    pub fn variant(&self) -> Variant {
        let k = self.canonical();
        let (a, b) = (k.split_num, k.split_den);
        let divisor = gcd(a, b);
        Variant::new("attention/attention.cu")
            .with("KBT_PV_MODE", k.pv_mode.code())
            .with("KBT_QUANT_FORM", k.quant_form.code())
            .with("KBT_SPLIT_NUM", a / divisor)
            .with("KBT_SPLIT_DEN", b / divisor)
            .with("KBT_CHUNKS", k.chunks)
            .with("KBT_TOPOLOGY", k.topology.code())
            .with("KBT_SOURCE_ORDER", k.source_order.code())
            .with("KBT_EXP2_EIGHTHS", k.exp2_eighths)
            .with("KBT_RESCALE_LOG2", k.rescale_log2)
            .with("KBT_SOFTMAX_REGISTERS", k.softmax_registers)
            .with("KBT_TILE_N", k.tile_n)
            .with("KBT_ROLLED", u32::from(k.rolled))
            .with("KBT_HEAD_DIM", k.head_dim)
            .with("KBT_TRACE_LEVEL", k.trace.code())
    }
}

const fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests;
