//! Control words: encodings, 12.8's words, CuAssembler's prefix.
#![no_main]

use kbt_sass::Control;

fn check(control: Control) {
    assert!(control.stall < 16 && control.wait_mask < 64 && control.reuse < 16);
    assert!(control.write_barrier.is_none_or(|b| b < 7) && control.read_barrier.is_none_or(|b| b < 7));
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    kbt_sass_fuzz::bounded(data, || {
        if let Some(word) = data.first_chunk() {
            check(Control::from_wide(u128::from_le_bytes(*word)));
        }
        if let Some(word) = data.first_chunk() {
            (0..3).for_each(|slot| check(Control::from_maxwell(u64::from_le_bytes(*word), slot)));
        }
        if let Ok(text) = std::str::from_utf8(data) {
            Control::from_words(text).into_iter().chain(Control::from_cuasm(text)).for_each(check);
        }
    });
});
