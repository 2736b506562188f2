//! Zip archives as they are: npz and PyTorch files.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    kbt_tensor_fuzz::everything(data);
});
