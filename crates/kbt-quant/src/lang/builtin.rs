//! Programs that come with the crate: the quantisation of P, the numerator of softmax, in attention.
//!
//! The layout is that of a WGMMA accumulator: four lanes share a row, and each holds four of a group's sixteen
//! elements. `offset` moves P up in the scale's range; output and row sum both carry 2^offset.

/// Name and text of each built-in program.
pub const BUILTIN: &[(&str, &str)] = &[
    ("softmax-nvfp4-linear", LINEAR),
    ("softmax-nvfp4-linear-rcp", LINEAR_RCP),
    ("softmax-nvfp4-log2", LOG2),
    ("softmax-nvfp4-log2-fused", LOG2_FUSED),
    ("softmax-nvfp4-two-level", TWO_LEVEL),
    ("softmax-fp8-linear", FP8_LINEAR),
    ("softmax-fp8", FP8),
    ("softmax-bf16", BF16),
];

/// A built-in program's text.
#[must_use]
pub fn builtin(name: &str) -> Option<&'static str> {
    BUILTIN.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
}

macro_rules! attention {
    ($($body:literal)*) => {
        concat!(
            "layout group=16 lanes=4 row=128\n",
            "elem s in [-inf, 1e30]            # scores; -inf where masked\n",
            "row m_old in [-1e30, 1e30]        # running maximum; finite also where a whole row is masked\n",
            "const c in [2^-20, 2^10]          # softmax scale times log2 e\n",
            "m = max(m_old, row_max(s))\n",
            $($body),*
        )
    };
}

/// exp2, the group's maximum of P, a division by 6, a division for each element.
const LINEAR: &str = attention!(
    "const offset in [0, 11.3923174]   # log2 2688 uses the whole range of an e4m3 scale\n"
    "arg = fma(s, c, fma(-m, c, offset))\n"
    "assume arg in [-inf, 11.4]\n"
    "p = exp2(arg)\n"
    "scale = max(group_max(p) / 6, 2^-126)   # a fully masked group: 0/2^-126, not 0/0\n"
    "x = p / scale\n"
    "assume x in [0, 6.1]\n"
    "out code = cvt_e2m1(x)\n"
    "out sf = cvt_e4m3(scale)\n"
    "out sum = row_sum(p)\n"
    "out m_new = m\n"
);

/// The same with one approximate reciprocal a group and multiplications.
const LINEAR_RCP: &str = attention!(
    "const offset in [0, 11.3923174]\n"
    "arg = fma(s, c, fma(-m, c, offset))\n"
    "assume arg in [-inf, 11.4]\n"
    "p = exp2(arg)\n"
    "scale = max(group_max(p) * 0.16666667163372040, 2^-126)\n"
    "x = p * rcp(scale)\n"
    "assume x in [0, 6.1]\n"
    "out code = cvt_e2m1(x)\n"
    "out sf = cvt_e4m3(scale)\n"
    "out sum = row_sum(p)\n"
    "out m_new = m\n"
);

/// The group's maximum before exp2, the scale folded into the argument; two passes, as published kernels have it.
const LOG2: &str = attention!(
    "const offset in [0, 11.3923174]\n"
    "arg = fma(s, c, fma(-m, c, offset))\n"
    "assume arg in [-inf, 11.4]\n"
    "b = max(group_max(arg), -100) - 2.584962500721156\n"
    "scale = exp2(b)\n"
    "x = exp2(arg - b)\n"
    "assume x in [0, 6.1]\n"
    "out code = cvt_e2m1(x)\n"
    "out sf = cvt_e4m3(scale)\n"
    "out sum = row_sum(lane_sum(x) * scale)\n"
    "out m_new = m\n"
);

/// The same with the two passes over the elements fused into one FMA with a constant per group.
const LOG2_FUSED: &str = attention!(
    "const offset in [0, 11.3923174]\n"
    "bias = fma(-m, c, offset)\n"
    "b = max(fma(group_max(s), c, bias - 2.584962500721156), -102.584962500721156)\n"
    "assume b in [-102.6, 8.9]\n"
    "scale = exp2(b)\n"
    "x = exp2(fma(s, c, bias - b))\n"
    "assume x in [0, 6.1]\n"
    "out code = cvt_e2m1(x)\n"
    "out sf = cvt_e4m3(scale)\n"
    "out sum = row_sum(lane_sum(x) * scale)\n"
    "out m_new = m\n"
);

/// SageAttention3's: the group's maximum is taken of the scores and gives the scale by exp2, but P is formed first
/// and then divided.
const TWO_LEVEL: &str = attention!(
    "bias = fma(-m, c, 11.392317422778762)\n"
    "arg = fma(s, c, bias)\n"
    "assume arg in [-inf, 11.4]\n"
    "p = exp2(arg)\n"
    "b = max(fma(group_max(s), c, bias - 2.584962500721156), -126)\n"
    "assume b in [-126, 8.9]\n"
    "scale = exp2(b)\n"
    "x = p / scale\n"
    "assume x in [0, 6.1]\n"
    "out code = cvt_e2m1(x)\n"
    "out sf = cvt_e4m3(scale)\n"
    "out sum = row_sum(p)\n"
    "out m_new = m\n"
);

/// fp8 with P scaled by 2^8 after exp2.
const FP8_LINEAR: &str = attention!(
    "arg = fma(s, c, -(m * c))\n"
    "assume arg in [-inf, 0]\n"
    "p = exp2(arg)\n"
    "out code = cvt_e4m3(p * 256)\n"
    "out sum = row_sum(p)\n"
    "out m_new = m\n"
);

/// fp8 with the factor 2^8 in exp2's argument; the row sum carries it too.
const FP8: &str = attention!(
    "arg = fma(s, c, fma(-m, c, 8))\n"
    "assume arg in [-inf, 8]\n"
    "p = exp2(arg)\n"
    "out code = cvt_e4m3(p)\n"
    "out sum = row_sum(p)\n"
    "out m_new = m\n"
);

/// bf16: no scale, nothing to quantise.
const BF16: &str = attention!(
    "arg = fma(s, c, -(m * c))\n"
    "assume arg in [-inf, 0]\n"
    "p = exp2(arg)\n"
    "out code = cvt_bf16(p)\n"
    "out sum = row_sum(p)\n"
    "out m_new = m\n"
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lang::Program;

    #[test]
    fn every_built_in_program_reads_and_its_text_reads_back_as_itself() {
        for (name, text) in BUILTIN {
            let program: Program = text.parse().unwrap_or_else(|e| panic!("{name}: {e}"));
            let again: Program =
                program.to_string().parse().unwrap_or_else(|e| panic!("{name}: {e}\n{program}"));
            assert_eq!(again.to_string(), program.to_string(), "{name}");
            assert_eq!(again.outputs.len(), program.outputs.len());
        }
    }

    #[test]
    fn printed_text_is_stable() {
        insta::assert_snapshot!(LINEAR.parse::<Program>().unwrap().to_string());
    }
}
