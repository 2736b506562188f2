//! Listings in any text form, and what looks like one.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    kbt_sass_fuzz::bounded(data, || {
        let _ = (kbt_sass::input_kind(data), kbt_sass::cubin_assembler(data));
        kbt_sass_fuzz::everything(data);
    });
});
