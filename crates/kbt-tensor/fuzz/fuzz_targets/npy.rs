//! npy, alone and as the entry of an npz: the same tensor.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let alone = kbt_tensor_fuzz::everything(data);
    let within = kbt_tensor_fuzz::everything(&kbt_tensor_fuzz::zip(&[("x.npy", data)]));
    if data.starts_with(b"\x93NUMPY") {
        assert_eq!(alone, within);
    }
});
