//! The buffer of flash-attention-fp4.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kbt_trace_fuzz::everything(kbt_trace::Input::Fa4Fp4, data));
