//! The pipe table: mnemonic, optional modifier, range of architectures, pipe, source, confidence.
//!
//! Data only. A group is the rows that share pipe, range, source and confidence. F2FP and some others are in
//! none of NVIDIA's instruction lists, so the lists are no base for this table; mnemonics that it lacks are
//! reported as unknown by whoever counts them.

use super::Confidence::{self, Documented, Guessed, Measured, SchedulerTable};
use kbt_device::Pipe;

/// One row.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) mnemonic: &'static str,
    /// Applies only where the mnemonic has this modifier.
    pub(super) modifier: Option<&'static str>,
    /// First compute capability, times ten.
    pub(super) from: u16,
    /// Last compute capability, times ten.
    pub(super) to: u16,
    pub(super) pipe: Option<Pipe>,
    pub(super) source: &'static str,
    pub(super) confidence: Confidence,
}

/// Last compute capability for rows without an end.
const ON: u16 = 999;

const NCU: &str = "Nsight Compute documentation, pipe descriptions";
const NCU_AMPERE: &str = "Nsight Compute documentation: the ALU does fast FP32 to FP16 conversion";
const SCHED: &str = "ptxas scheduling groups as shown by denvdis and DocumentSASS";
const B300: &str = "pipe counters on a B300 (ademeure/QuickRunCUDA catalog)";
const H200: &str = "pipe counters of an H200: ncu over the kernels of kbt microbench pipes --counter-kernels";
const ONE_BY_ONE: &str = "H200: in turn with SEL at the rate of one ALU; ptxas spaces it from ALU instructions as one pipe on sm_86 to sm_120";
const SPACED: &str = "ptxas 13.0 spaces it from ALU instructions as one pipe, and from FFMA not";
const FORUM: &str = "NVIDIA developer forum 302018: FP16 and FMA pipes by chip";
const TWO_HALVES: &str = "ptxas alternates HFMA2 and HFMA2.MMA, so the two are apart";
const HFMA2_IN_TENSOR: &str = "pipe counters of an H200: apart from FMA, as tensor_op_hmma_type_hfma2";
const NVPROF: &str = "nvprof metric descriptions for compute capability 5.x and 6.x: one group of units executes FP32 and integers";
const NVPROF_UNITS: &str = "nvprof metric descriptions for compute capability 5.x and 6.x, function units";
const NVPROF_CLASS: &str = "by class: integer work of compute capability 5.x and 6.x runs on the FP32 units";
const ISSUE_ONLY: &str = "takes an issue slot and no execution pipe";
const CONTROL: &str = "control of waits and budgets; no pipe counter of it is known";

/// `rows!(pipe, from..=to, source, confidence; "A", "B.MOD", ...)`; a dot separates the modifier.
macro_rules! rows {
    ($pipe:expr, $from:expr, $to:expr, $source:expr, $confidence:expr; $($name:literal $(. $modifier:literal)?),* $(,)?) => {
        &[$(Row {
            mnemonic: $name,
            modifier: modifier!($($modifier)?),
            from: $from,
            to: $to,
            pipe: $pipe,
            source: $source,
            confidence: $confidence,
        }),*]
    };
}
macro_rules! modifier {
    () => {
        None
    };
    ($modifier:literal) => {
        Some($modifier)
    };
}

/// All rows, by group.
pub(super) const TABLE: &[&[Row]] = &[
    // FP32 arithmetic. From GA10x on FMA is two halves, and these take either.
    rows!(Some(Pipe::Fma), 70, ON, NCU, Documented; "FADD", "FMUL", "FFMA", "FADD32I", "FMUL32I", "FFMA32I"),
    rows!(Some(Pipe::Fma), 100, 109, B300, Measured; "FADD2", "FMUL2", "FFMA2"),
    // Integer multiply-add: the FMA pipe, and from GA10x on its heavy half alone.
    rows!(Some(Pipe::Fma), 70, 80, NCU, Documented; "IMAD", "IMUL", "IMAD32I", "IMUL32I"),
    rows!(Some(Pipe::FmaHeavy), 86, ON, NCU, Documented; "IMAD", "IMUL", "IMAD32I", "IMUL32I"),
    rows!(Some(Pipe::Alu), 70, 79, SCHED, SchedulerTable; "IDP", "IDP4A"),
    rows!(Some(Pipe::Fma), 80, 80, SCHED, SchedulerTable; "IDP", "IDP4A"),
    rows!(Some(Pipe::FmaHeavy), 86, 89, SCHED, SchedulerTable; "IDP", "IDP4A"),
    rows!(Some(Pipe::FmaHeavy), 90, 90, H200, Measured; "IDP", "VIADD"),
    rows!(Some(Pipe::FmaHeavy), 90, 90, SCHED, SchedulerTable; "IDP4A"),
    rows!(Some(Pipe::FmaHeavy), 91, ON, SCHED, SchedulerTable; "IDP", "IDP4A"),
    rows!(Some(Pipe::Fma), 91, ON, SCHED, SchedulerTable; "VIADD"),
    // Half precision: a pipe of its own up to GA100, FMA from GA10x on and on GH100.
    rows!(Some(Pipe::Fp16), 70, 80, FORUM, Documented; "HADD2", "HMUL2", "HFMA2", "HADD2_32I", "HMUL2_32I", "HFMA2_32I"),
    rows!(Some(Pipe::Fma), 86, ON, FORUM, Documented; "HADD2", "HMUL2", "HFMA2", "HADD2_32I", "HMUL2_32I", "HFMA2_32I"),
    rows!(Some(Pipe::FmaHeavy), 86, 89, B300, Guessed; "HADD2"."F32"),
    rows!(Some(Pipe::FmaHeavy), 90, 90, H200, Measured; "HADD2"."F32"),
    rows!(Some(Pipe::FmaHeavy), 91, ON, B300, Measured; "HADD2"."F32"),
    rows!(Some(Pipe::Fp16), 70, 80, SCHED, SchedulerTable; "HSET2", "HSETP2"),
    rows!(Some(Pipe::Alu), 86, 89, SPACED, SchedulerTable; "HSETP2"),
    rows!(Some(Pipe::Alu), 90, 90, ONE_BY_ONE, Measured; "HSETP2"),
    rows!(Some(Pipe::Alu), 91, ON, SPACED, SchedulerTable; "HSETP2"),
    rows!(Some(Pipe::Alu), 86, ON, SPACED, Guessed; "HSET2"),
    rows!(Some(Pipe::Fp16), 80, 89, TWO_HALVES, Guessed; "HFMA2.MMA"),
    rows!(Some(Pipe::Fp16), 90, 90, HFMA2_IN_TENSOR, Measured; "HFMA2.MMA"),
    rows!(Some(Pipe::Fp16), 80, 80, SCHED, SchedulerTable; "HMNMX2"),
    // The scheduling group says FP16, the counters say ALU.
    rows!(Some(Pipe::Alu), 86, 89, B300, Guessed; "HMNMX2"),
    rows!(Some(Pipe::Alu), 90, 90, H200, Measured; "HMNMX2"),
    rows!(Some(Pipe::Alu), 91, 99, B300, Guessed; "HMNMX2"),
    rows!(Some(Pipe::Alu), 86, 99, B300, Guessed; "VHMNMX"),
    rows!(Some(Pipe::Alu), 100, ON, B300, Measured; "HMNMX2", "VHMNMX"),
    // Integer, logic, compare, select, and the fast conversions.
    rows!(
        Some(Pipe::Alu), 70, ON, NCU, Documented;
        "IADD3", "IADD", "IADD32I", "IABS", "IMNMX", "ISETP", "ICMP", "LEA", "LOP", "LOP3", "LOP32I", "SHF", "SHL",
        "SHR", "SEL", "PRMT", "MOV", "MOV32I", "FMNMX", "FSEL", "FSET", "FSETP", "FCMP", "SGXT", "BMSK",
        "VABSDIFF", "VABSDIFF4", "PLOP3", "PSETP", "P2R", "R2P", "ISCADD", "LEPC",
    ),
    rows!(Some(Pipe::Alu), 75, ON, SCHED, SchedulerTable; "I2I"),
    rows!(Some(Pipe::Alu), 75, 89, SCHED, SchedulerTable; "VOTE", "CS2R"),
    rows!(Some(Pipe::Alu), 90, 90, H200, Measured; "VOTE", "CS2R", "I2FP", "VIMNMX"),
    rows!(Some(Pipe::Alu), 91, ON, SCHED, SchedulerTable; "VOTE", "CS2R", "I2FP", "VIMNMX"),
    rows!(Some(Pipe::Alu), 75, ON, NCU_AMPERE, Documented; "F2FP"),
    rows!(Some(Pipe::Alu), 80, 89, SCHED, SchedulerTable; "I2FP"),
    rows!(Some(Pipe::Alu), 80, ON, SCHED, SchedulerTable; "F2IP", "I2IP"),
    rows!(Some(Pipe::Alu), 90, ON, SCHED, SchedulerTable; "VIMNMX3", "VIADDMNMX"),
    rows!(Some(Pipe::Alu), 100, ON, SCHED, SchedulerTable; "FMNMX3", "CSEL"),
    // Double precision.
    rows!(Some(Pipe::Fp64), 70, ON, NCU, Documented; "DADD", "DMUL", "DFMA", "DSETP", "DMNMX", "DSET"),
    // Transcendentals and the slow conversions share one pipe.
    rows!(
        Some(Pipe::Xu), 70, ON, NCU, Documented;
        "MUFU", "F2F", "F2I", "I2F", "FRND", "POPC", "FLO", "BREV",
    ),
    rows!(Some(Pipe::Xu), 70, ON, SCHED, Guessed; "FCHK"),
    // Loads, stores, atomics, shuffles.
    rows!(
        Some(Pipe::Lsu), 70, ON, NCU, Documented;
        "LD", "LDG", "LDS", "LDL", "ST", "STG", "STS", "STL", "ATOM", "ATOMS", "ATOMG", "RED", "REDG", "SHFL",
        "S2R",
    ),
    rows!(
        Some(Pipe::Lsu), 70, ON, SCHED, SchedulerTable;
        "STSM", "LDGSTS", "MATCH", "CCTL", "CCTLL", "CCTLT", "MEMBAR", "QSPC", "SYNCS", "ARRIVES", "REDAS",
        "ATOMAS", "STAS", "LDGMC", "ISBEWR", "LDTRAM", "AL2P", "ALD", "AST", "IPA", "PIXLD", "B2R", "R2B", "MOVM",
    ),
    rows!(Some(Pipe::Lsu), 70, 89, SCHED, SchedulerTable; "LDSM"),
    rows!(Some(Pipe::Lsu), 90, 90, H200, Measured; "LDSM"),
    rows!(Some(Pipe::Lsu), 91, ON, SCHED, SchedulerTable; "LDSM"),
    // Address divergence unit: constants with an address, barriers; on GH100 the reductions of a warp too.
    rows!(Some(Pipe::Adu), 70, ON, NCU, Documented; "LDC", "BAR"),
    rows!(Some(Pipe::Adu), 70, 89, SCHED, SchedulerTable; "S2UR"),
    rows!(Some(Pipe::Adu), 90, 90, H200, Measured; "S2UR", "REDUX"),
    rows!(Some(Pipe::Adu), 91, ON, SCHED, SchedulerTable; "S2UR"),
    rows!(Some(Pipe::Adu), 70, ON, SCHED, SchedulerTable; "UCGABAR_ARV", "UCGABAR_WAIT", "SETLMEMBASE", "GETLMEMBASE"),
    // Branches and convergence.
    rows!(
        Some(Pipe::Cbu), 70, ON, NCU, Documented;
        "BRA", "BRX", "BRXU", "JMP", "JMX", "JMXU", "CALL", "RET", "EXIT", "BSSY", "BSYNC", "BREAK", "WARPSYNC",
        "YIELD", "KILL", "BPT", "RTT", "NANOSLEEP", "RPCMOV", "BMOV", "PREEXIT", "PMTRIG",
    ),
    // The uniform datapath; the names that leave it again for another pipe are below.
    rows!(
        Some(Pipe::Uniform), 75, ON, NCU, Documented;
        "UIADD3", "UIADD3.64", "UIMAD", "UISETP", "ULEA", "ULOP", "ULOP3", "ULOP32I", "UMOV", "UMOV.64", "UP2UR",
        "UPLOP3", "UPOPC", "UPRMT", "UPSETP", "UR2UP", "USEL", "USGXT", "USHF", "USHL", "USHR", "UBMSK", "UBREV",
        "UCLEA", "UFLO", "VOTEU", "R2UR", "ULDC", "LDCU", "CREDUX", "ELECT",
    ),
    rows!(Some(Pipe::Uniform), 75, 89, NCU, Documented; "REDUX"),
    rows!(Some(Pipe::Uniform), 91, ON, NCU, Documented; "REDUX"),
    rows!(
        Some(Pipe::Uniform), 90, ON, SCHED, SchedulerTable;
        "UVIADD", "UVIMNMX", "UVIRTCOUNT", "UIADD", "UIABS", "UIMNMX", "ULEPC", "UCS2UR", "UF2F", "UF2FP", "UF2I",
        "UF2IP", "UFADD", "UFFMA", "UFMNMX", "UFMUL", "UFRND", "UFSEL", "UFSET", "UFSETP", "UI2F", "UI2FP", "UI2I",
        "UI2IP", "UGETNEXTWORKID", "UMEMSETS", "UREDGR", "USTGR", "UPCI",
    ),
    // Matrix instructions that read registers or shared memory.
    rows!(
        Some(Pipe::Tensor), 70, ON, NCU, Documented;
        "HMMA", "IMMA", "BMMA", "DMMA", "QMMA", "OMMA", "HGMMA", "IGMMA", "QGMMA", "BGMMA",
    ),
    // Tensor-core commands and tensor memory of Blackwell.
    rows!(
        Some(Pipe::Tc), 100, ON, NCU, Documented;
        "UTCHMMA", "UTCQMMA", "UTCIMMA", "UTCOMMA", "UTCMXQMMA", "UTCBAR", "UTCCP", "UTCSHIFT", "UTCATOMSWS",
        "UTCLDSWS", "UTCSTSWS",
    ),
    rows!(Some(Pipe::Tmem), 100, ON, NCU, Documented; "LDT", "LDTM", "STT", "STTM"),
    // The bulk copy engine.
    rows!(
        Some(Pipe::Tma), 90, ON, NCU, Documented;
        "UTMALDG", "UTMASTG", "UTMAREDG", "UTMAPF", "UTMACCTL", "UTMACMDFLUSH", "UBLKCP", "UBLKRED", "UBLKPF",
    ),
    // Texture and surface.
    rows!(
        Some(Pipe::Tex), 70, ON, NCU, Documented;
        "TEX", "TLD", "TLD4", "TMML", "TXD", "TXQ", "SUATOM", "SULD", "SURED", "SUST", "SUQUERY", "FOOTPRINT",
    ),
    // Maxwell and Pascal: one group of units for FP32 and integers, so both count as FMA; XMAD is their multiply.
    rows!(
        Some(Pipe::Fma), 50, 69, NVPROF, Documented;
        "FADD", "FMUL", "FFMA", "FADD32I", "FMUL32I", "FFMA32I", "IADD", "IADD3", "IADD32I", "IMAD", "IMUL", "XMAD",
        "ISCADD", "ISCADD32I", "ISAD", "IMADSP",
    ),
    rows!(
        Some(Pipe::Fma), 50, 69, NVPROF_CLASS, Guessed;
        "LOP", "LOP3", "LOP32I", "SHL", "SHR", "SHF", "LEA", "BFE", "BFI", "PRMT", "IMNMX", "ISETP", "ISET", "ICMP",
        "FMNMX", "FSETP", "FSET", "FCMP", "FSEL", "SEL", "MOV", "MOV32I", "PSETP", "PSET", "CSET", "CSETP", "P2R",
        "R2P", "I2I", "VADD", "VABSDIFF", "VABSDIFF4", "VMNMX", "VSET", "VSETP", "VSHL", "VSHR", "VMAD",
    ),
    rows!(Some(Pipe::Fp64), 50, 69, NVPROF_UNITS, Documented; "DADD", "DMUL", "DFMA", "DSETP", "DSET", "DMNMX"),
    rows!(Some(Pipe::Fp16), 53, 69, NVPROF_UNITS, Documented; "HADD2", "HMUL2", "HFMA2", "HADD2_32I", "HMUL2_32I", "HFMA2_32I"),
    rows!(Some(Pipe::Fp16), 53, 69, NVPROF_UNITS, Guessed; "HSET2", "HSETP2"),
    // RRO prepares the argument of MUFU.
    rows!(Some(Pipe::Xu), 50, 69, NVPROF_UNITS, Documented; "MUFU", "POPC", "FLO"),
    rows!(Some(Pipe::Xu), 50, 69, NVPROF_UNITS, Guessed; "RRO", "F2F", "F2I", "I2F", "BREV", "FCHK"),
    rows!(Some(Pipe::Lsu), 50, 69, NVPROF_UNITS, Documented; "LDS", "STS", "LDC", "ATOMS"),
    rows!(
        Some(Pipe::Lsu), 50, 69, NVPROF_UNITS, Guessed;
        "LDU", "ATOM", "RED", "SHFL", "S2R", "CS2R", "MEMBAR", "CCTL", "CCTLL", "CCTLT", "AL2P", "ALD", "AST", "IPA", "ISBERD",
        "OUT", "PIXLD", "BAR", "B2R", "R2B",
    ),
    // Global and local memory go through the texture units there.
    rows!(
        Some(Pipe::Tex), 50, 69, NVPROF_UNITS, Documented;
        "LD", "LDG", "LDL", "ST", "STG", "STL", "TEX", "TEXS", "TLD", "TLDS", "TLD4", "TLD4S", "TMML", "TXA", "TXD",
        "TXQ", "SUATOM", "SULD", "SURED", "SUST",
    ),
    rows!(
        Some(Pipe::Cbu), 50, 69, NVPROF_UNITS, Documented;
        "BRA", "BRX", "JMP", "JMX", "CAL", "JCAL", "RET", "EXIT", "SSY", "SYNC", "PBK", "BRK", "PCNT", "CONT", "PRET",
        "PEXIT", "LONGJMP", "PLONGJMP", "BPT", "KIL", "RTT", "RAM", "SAM",
    ),
    rows!(Some(Pipe::Fma), 50, 69, NVPROF_CLASS, Guessed; "VOTE", "LEPC"),
    rows!(None, 50, ON, ISSUE_ONLY, Documented; "NOP"),
    rows!(None, 50, 69, CONTROL, Guessed; "DEPBAR", "TEXDEPBAR", "GETCRSPTR", "GETLMEMBASE", "SETCRSPTR", "SETLMEMBASE"),
    rows!(
        None, 70, ON, CONTROL, Guessed;
        "DEPBAR", "LDGDEPBAR", "ERRBAR", "CGAERRBAR", "WARPGROUP", "WARPGROUPSET", "USETMAXREG", "USETSHMSZ",
        "ACQBULK", "ACQSHMINIT", "FENCE", "ENDCOLLECTIVE",
    ),
];
