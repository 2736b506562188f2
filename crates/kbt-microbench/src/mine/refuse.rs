//! Where the control fields say no rate, as data: opcodes, chips, why. Each row is a class, with the evidence
//! against it.

use kbt_device::Arch;

/// Opcodes whose written interval is not their throughput.
struct Wrong {
    /// Mnemonics, with the first modifiers where those count; with a leading dot, a modifier of any mnemonic.
    names: &'static [&'static str],
    /// Compute capabilities times ten; none for all.
    sms: &'static [u16],
    /// Why, with the evidence.
    why: &'static str,
}

/// Parts for the desktop and for embedded use, whose FP64 and tensor tables are those of other chips.
const CONSUMER: &[u16] = &[75, 86, 87, 88, 89, 110, 120, 121];

const WRONG: &[Wrong] = &[
    Wrong {
        names: &["DFMA", "DADD", "DMUL", "DSETP", "DMNMX"],
        sms: CONSUMER,
        why: "parts for the desktop inherit the FP64 table of the data center's (sm_75, sm_86: 32 written, 2 real)",
    },
    Wrong {
        names: &[".F64", ".S64", ".U64"],
        sms: &[75, 86, 87, 88, 89],
        why: "parts for the desktop inherit the 64-bit conversions of the data center's (16 written; NVIDIA's throughput \
              table says 2 for 7.5, 8.6 and 8.9)",
    },
    Wrong {
        names: &["HMMA", "IMMA", "QMMA", "OMMA", "BMMA"],
        sms: CONSUMER,
        why: "parts for the desktop inherit the tensor table of the data center's (sm_120: a gap of 11 does not match its \
              peak)",
    },
    Wrong {
        names: &["FMNMX", "FSETP", "FSET"],
        sms: &[120, 121],
        why: "disputed: ptxas writes 128 lanes, NVIDIA's throughput table says 64 for the comparison, minimum and maximum \
              of f32",
    },
    Wrong {
        names: &["DFMA", "DADD", "DMUL", "DSETP", "DMNMX", ".F64", ".S64", ".U64"],
        sms: &[103],
        why: "the 64-bit paths of sm_103 are cut down, and their intervals are not written (B300: 1.6 lanes measured)",
    },
    Wrong {
        names: &[
            "F2F.F32.F64",
            "F2F.F16.F64",
            "F2I.F64",
            "F2I.U32.F64",
            "F2I.S64.F64",
            "F2I.U64.F64",
            "I2F.S64",
            "I2F.U64",
            "I2F.F64.S64",
            "I2F.F64.U64",
            "FRND.F64",
        ],
        sms: &[],
        why: "a conversion that reads a 64-bit source takes longer than is written (H200: 8 clk written, 9 measured)",
    },
    Wrong {
        names: &["DMMA"],
        sms: &[],
        why: "its scoreboard hides the interval (A100: 31 TFLOPS written, 19.5 real)",
    },
    Wrong {
        names: &["MATCH"],
        sms: &[],
        why: "the stall is that of the issue alone (B300: 8 written, about 375 clk measured)",
    },
    Wrong {
        names: &["REDUX", "CREDUX"],
        sms: &[],
        why: "a reduction goes through the uniform datapath or the address divergence unit, whose intervals are not written",
    },
    Wrong {
        names: &["HGMMA", "IGMMA", "QGMMA", "BGMMA"],
        sms: &[],
        why: "a warpgroup's matrix instruction runs on its own after the issue, and the stall is that of the issue",
    },
];

/// Why the written interval of an opcode is known not to be its throughput on a target.
pub(super) fn known_wrong(opcode: &str, arch: Arch) -> Option<&'static str> {
    let parts: Vec<&str> = opcode.split('.').collect();
    let is = |name: &&str| match name.strip_prefix('.') {
        Some(modifier) => parts[1..].contains(&modifier),
        None => opcode.strip_prefix(name).is_some_and(|tail| tail.is_empty() || tail.starts_with('.')),
    };
    WRONG
        .iter()
        .find(|row| row.names.iter().any(is) && (row.sms.is_empty() || row.sms.contains(&arch.sm)))
        .map(|row| row.why)
}
