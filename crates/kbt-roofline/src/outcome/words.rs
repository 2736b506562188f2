//! The words of an outcome: statuses, calls, facts, standings, each with its name in files.

use serde::{Deserialize, Serialize};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident ($case:literal) { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = $case)]
        #[non_exhaustive]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// The word in files and reports.
            #[must_use]
            pub const fn as_str(self) -> &'static str { match self { $(Self::$variant => $word,)* } }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(self.as_str()) }
        }
    };
}

words! {
    /// How far the triage came.
    Status ("snake_case") {
        /// A diagnosis stands.
        Diagnosed = "diagnosed",
        /// Only the timing is missing: the initial roofline call stands, the diagnosis is refused.
        Initial = "initial",
        /// Facts are missing; no bottleneck is asserted.
        Refused = "refused",
        /// The question is none for a roofline.
        OutOfScope = "out_of_scope",
    }
}

words! {
    /// Which side of the roofline holds the kernel.
    Call ("kebab-case") {
        /// Left of the ridge, and the memory roof explains the time.
        MemoryBound = "memory-bound",
        /// Right of the ridge, and the arithmetic roof explains the time.
        ComputeBound = "compute-bound",
        /// Within the margin of the ridge.
        NearRidge = "near-ridge",
        /// Neither roof explains the time.
        Neither = "neither",
    }
}

words! {
    /// A fact that a triage needs.
    Fact ("snake_case") {
        /// What is computed.
        Operator = "operator",
        /// On what sizes.
        Shape = "shape",
        /// In which formats.
        Dtype = "dtype",
        /// How long it takes.
        Timing = "timing",
        /// What is read, written and reused.
        Dataflow = "dataflow",
        /// A ceiling of the device.
        Ceilings = "ceilings",
        /// A latency, where a chain of dependent loads or irregular access rules.
        Latency = "latency",
    }
}

words! {
    /// What a bound is about.
    Resource ("snake_case") {
        /// Device memory, useful bytes.
        Hbm = "hbm",
        /// Device memory, bytes as counted.
        HbmTraffic = "hbm_traffic",
        /// L2.
        L2 = "l2",
        /// Shared memory.
        Shared = "shared",
        /// Arithmetic at the operator's mix of formats.
        Compute = "compute",
        /// exp2 on the XU pipe.
        Xu = "xu",
        /// Launch latency.
        Launch = "launch",
        /// Arithmetic on the SM-waves that hold a CTA.
        Waves = "waves",
        /// Communication between GPUs.
        Communication = "communication",
        /// Host-device transfers.
        HostTransfer = "host_transfer",
        /// Submission by the host.
        Submission = "submission",
        /// A chain of dependent loads.
        Chain = "chain",
        /// Atomic updates of one address, one after another.
        Atomics = "atomics",
    }
}

words! {
    /// Which call a check belongs to.
    Side ("snake_case") {
        /// Asked first of a memory-bound kernel.
        Memory = "memory",
        /// Asked first of a compute-bound kernel.
        Compute = "compute",
        /// Asked first where neither roof holds.
        Neither = "neither",
    }
}

words! {
    /// What a check found.
    CheckStatus ("snake_case") {
        /// The contradiction is there.
        Fired = "fired",
        /// It is not.
        Clear = "clear",
        /// No signal to tell by.
        NotEvaluated = "not_evaluated",
    }
}

words! {
    /// Where a candidate stands.
    CandidateStanding ("snake_case") {
        /// Evidence for it, none against.
        Supported = "supported",
        /// Evidence for and against.
        Contested = "contested",
        /// No evidence for it; measurements are missing.
        Open = "open",
        /// Evidence against it, none for it.
        Unlikely = "unlikely",
        /// An experiment bore it out.
        Confirmed = "confirmed",
        /// An experiment contradicted it.
        Refuted = "refuted",
        /// Of a class that an experiment contradicted: not proposed again.
        Barred = "barred",
    }
}

impl CandidateStanding {
    /// Whether a candidate is still a suspect.
    pub(crate) const fn is_suspect(self) -> bool {
        !matches!(self, Self::Refuted | Self::Barred | Self::Unlikely)
    }
}

words! {
    /// What a result says of its experiment.
    Reading ("snake_case") {
        /// As predicted.
        Confirmed = "confirmed",
        /// Contradicted.
        Contradicted = "contradicted",
        /// Between the two.
        Inconclusive = "inconclusive",
    }
}

words! {
    /// The order of work.
    Priority ("UPPERCASE") {
        /// Correctness and credible timing.
        P0 = "P0",
        /// The primary bottleneck.
        P1 = "P1",
        /// Secondary scheduling and resource issues.
        P2 = "P2",
        /// Fine-tuning.
        P3 = "P3",
    }
}
