//! safetensors: the bytes as they are, and as a header whose length fits.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    kbt_tensor_fuzz::everything(data);
    let end = data.iter().rposition(|&byte| byte == b'}').map_or(0, |at| at + 1);
    let length = (end as u64).to_le_bytes();
    kbt_tensor_fuzz::everything(&[&length, data].concat());
});
