//! Any bytes, and the same inside a tensor file: the format is found by content.
#![no_main]

use kbt_tensor::{Dtype, Tensor, TensorSet};
use kbt_trace::Input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    kbt_trace_fuzz::everything(Input::Auto, data);
    let words = data.len() / 4;
    let tensor = Tensor::new("profile", Dtype::I32, vec![words], data[..words * 4].to_vec());
    let mut set = TensorSet::new();
    set.insert(tensor.expect("as many bytes as its shape says")).expect("its name is the only one");
    kbt_trace_fuzz::everything(Input::Auto, &set.to_safetensors().expect("it has one tensor"));
});
