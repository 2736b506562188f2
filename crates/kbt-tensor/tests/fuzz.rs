//! No reader panics, whatever the bytes: random ones, and the fixtures with bytes changed, cut or repeated.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use kbt_tensor::{Dtype, ReadOptions, TensorSet};
use proptest::prelude::*;
use std::path::Path;

fn fixtures() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    files.iter().map(|f| std::fs::read(f).unwrap()).collect()
}

/// Damaged files may still be sound, and then every tensor must decode.
fn read(bytes: Vec<u8>) {
    let hints: ReadOptions = ReadOptions { dtypes: [("x".to_owned(), Dtype::E4m3)].into() };
    if let Ok(set) = TensorSet::from_bytes(bytes, "x", &hints) {
        for tensor in set.iter() {
            let _ = (tensor.to_f32(), tensor.to_f64(), tensor.sha256());
        }
    }
}

/// Starts that send the bytes behind them to each of the readers.
const STARTS: [&[u8]; 4] = [b"\x93NUMPY\x01\x00", b"PK\x03\x04", b"\x40\0\0\0\0\0\0\0{", b""];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes(start in 0..STARTS.len(), bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        read([STARTS[start], &bytes].concat());
    }

    #[test]
    fn damaged_files(
        which in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let files = fixtures();
        let mut bytes = files[which.index(files.len())].clone();
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        read(bytes);
    }

    #[test]
    fn damaged_pickles_in_a_sound_zip(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        // The zip's checksum would hide most changes from the pickle reader.
        let state = &fixtures()[fixture_index("state.pt")];
        read(with_pickle_changed(state, &changes));
    }
}

fn fixture_index(name: &str) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().file_name()).collect();
    names.sort();
    names.iter().position(|n| n == name).unwrap()
}

/// Changes bytes of the stored `data.pkl` and puts the right CRC-32 in both of its zip headers.
fn with_pickle_changed(zip: &[u8], changes: &[(prop::sample::Index, u8)]) -> Vec<u8> {
    let mut zip = zip.to_vec();
    let le = |b: &[u8]| b.iter().rev().fold(0usize, |v, &b| v << 8 | usize::from(b));
    let start = 30 + le(&zip[26..28]) + le(&zip[28..30]);
    let size = le(&zip[22..26]);
    for (place, value) in changes {
        zip[start + place.index(size)] = *value;
    }
    let crc = crc32fast::hash(&zip[start..start + size]).to_le_bytes();
    let directory = zip.windows(4).position(|w| w == b"PK\x01\x02").unwrap();
    zip[14..18].copy_from_slice(&crc);
    zip[directory + 16..directory + 20].copy_from_slice(&crc);
    zip
}

#[test]
fn the_changed_pickle_reaches_the_pickle_reader() {
    let state = &fixtures()[fixture_index("state.pt")];
    let stop = with_pickle_changed(state, &[]);
    assert!(TensorSet::from_bytes(stop, "x", &ReadOptions::default()).is_ok());
}
