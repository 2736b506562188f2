//! The pickle of a PyTorch file, in a sound zip with a storage, in both byte orders.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let storage: Vec<u8> = (0..64).collect();
    for order in [&b"little"[..], b"big"] {
        let entries = [
            ("a/data.pkl", data),
            ("a/byteorder", order),
            ("a/data/0", &storage[..]),
            ("a/data/1", &storage[..24]),
        ];
        kbt_tensor_fuzz::everything(&kbt_tensor_fuzz::zip(&entries));
    }
});
