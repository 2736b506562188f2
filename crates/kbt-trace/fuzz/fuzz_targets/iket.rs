//! The JSON of NVIDIA's in-kernel event tracer, both shapes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kbt_trace_fuzz::everything(kbt_trace::Input::Iket, data));
