//! Files written by numpy, `ml_dtypes`, safetensors and in PyTorch's format, read back to known values. The
//! fixtures are described in `fixtures/README.md`.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use kbt_tensor::{Dtype, ReadOptions, Tensor, TensorError, TensorFile, TensorSet, npy_bytes};
use std::io::Read;
use std::path::{Path, PathBuf};

const M: [f32; 6] = [1.0, -2.0, 0.5, 3.0, 4.25, -6.0];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn options(dtypes: &[&str]) -> ReadOptions {
    dtypes.iter().fold(ReadOptions::default(), |o, d| o.with_dtype(d).unwrap())
}

/// Reads one tensor both whole and as a stream, and checks that they agree.
fn tensor(file: &str, dtypes: &[&str], name: &str) -> Tensor {
    let options = options(dtypes);
    let whole = TensorSet::read(&fixture(file), &options).unwrap().require(name).unwrap().clone();
    let mut streamed = Vec::new();
    let file = TensorFile::open(&fixture(file), &options).unwrap();
    file.stream(name).unwrap().read_to_end(&mut streamed).unwrap();
    assert_eq!(streamed, whole.bytes());
    whole
}

#[test]
fn numpy_files_of_every_order_come_out_row_major() {
    for name in ["f32", "f32_fortran", "f32_big_endian", "f16", "bf16"] {
        let t = tensor(&format!("{name}.npy"), &[], name);
        assert_eq!((t.shape(), t.to_f32().unwrap().as_slice()), (&[2, 3][..], &M[..]), "{name}");
    }
    assert_eq!(tensor("bf16.npy", &[], "bf16").dtype(), Dtype::Bf16);
}

#[test]
fn types_that_npy_lost_are_read_with_the_callers_word_only() {
    for (name, dtype, expect) in [
        // ml_dtypes rounds 4.25 to 4.5 (nearest even) in e4m3 and to 4 in e5m2.
        ("e4m3", "e4m3", vec![1.0, -2.0, 0.5, 3.0, 4.0, -6.0]),
        ("e5m2", "e5m2", vec![1.0, -2.0, 0.5, 3.0, 4.0, -6.0]),
        ("e8m0", "e8m0", vec![0.25, 1.0, 2.0]),
        ("e2m1", "e2m1", vec![1.0, -2.0, 0.5, 3.0, 4.0, -6.0]),
    ] {
        let file = format!("{name}.npy");
        let error = TensorSet::read(&fixture(&file), &ReadOptions::default()).unwrap_err().to_string();
        assert!(error.contains("--dtype NAME=e4m3"), "{error}");
        let t = tensor(&file, &[&format!("{name}={dtype}")], name);
        assert_eq!(t.to_f32().unwrap(), expect, "{name}");
    }
    let wrong = TensorSet::read(&fixture("f32.npy"), &options(&["f32=e4m3"])).unwrap_err().to_string();
    assert!(wrong.contains("cannot be taken as e4m3"), "{wrong}");
    assert!(TensorSet::read(&fixture("structured.npy"), &ReadOptions::default()).is_err());
}

#[test]
fn an_array_of_python_objects_is_no_tensor() {
    let mut bytes =
        b"\x93NUMPY\x01\x00\x46\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".to_vec();
    bytes.resize(10 + 0x46, b' ');
    let error = TensorSet::from_bytes(bytes, "x", &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("pickled Python objects"), "{error}");
}

#[test]
fn a_stream_begins_anywhere() {
    for (file, name) in [
        ("f32.npy", "f32"),
        ("f32_big_endian.npy", "f32_big_endian"),
        ("f32_fortran.npy", "f32_fortran"),
        ("pair.npz", "a"),
        ("packed.npz", "a"),
        ("state.pt", "t"),
        ("state.pt", "tail"),
        ("big_endian.pt", "big_endian"),
        ("unaligned.safetensors", "m"),
    ] {
        let file = TensorFile::open(&fixture(file), &ReadOptions::default()).unwrap();
        let whole = file.load(name).unwrap().into_bytes();
        for start in 0..=whole.len() + 1 {
            let mut rest = Vec::new();
            file.stream_from(name, start as u64).unwrap().read_to_end(&mut rest).unwrap();
            assert_eq!(rest, whole[start.min(whole.len())..], "{name} from {start}");
        }
    }
    let seekable = |file: &str, name: &str| {
        TensorFile::open(&fixture(file), &ReadOptions::default()).unwrap().is_seekable(name)
    };
    assert!(seekable("f32.npy", "f32") && seekable("f32_big_endian.npy", "f32_big_endian"));
    assert!(!seekable("pair.npz", "a") && !seekable("f32_fortran.npy", "f32_fortran"));
}

#[test]
fn npz_entries_are_read_stored_and_packed() {
    assert_eq!(tensor("pair.npz", &[], "a").to_f32().unwrap(), M);
    assert_eq!(tensor("pair.npz", &[], "b").dtype(), Dtype::I64);
    assert_eq!(tensor("packed.npz", &[], "a").to_f32().unwrap(), M);
    assert_eq!(tensor("zip64.npz", &[], "a").to_f32().unwrap(), M);
    assert_eq!(tensor("packed.npz", &[], "zeros").bytes(), [0; 200]);
}

#[test]
fn safetensors_are_read_wherever_their_data_starts() {
    let file = "unaligned.safetensors";
    assert_eq!(tensor(file, &[], "m").to_f32().unwrap(), M);
    assert_eq!(tensor(file, &[], "p").to_f32().unwrap(), [1.0, 448.0]);
    assert_eq!(tensor(file, &[], "q").to_f32().unwrap(), [0.5, 6.0, -6.0, -1.0]);
    let scalar = tensor(file, &[], "s");
    assert_eq!((scalar.shape(), scalar.to_f32().unwrap()), (&[][..], vec![1.0]));
    assert_eq!(tensor(file, &[], "empty").shape(), [0, 5]);
    // A byte tensor may carry the codes of another type.
    let packed = tensor(file, &["a=e2m1"], "a");
    assert_eq!((packed.shape(), packed.to_f32().unwrap()), (&[6][..], vec![0.5, 0.0, 1.0, 0.0, 1.5, 0.0]));
    assert_eq!(tensor("python.safetensors", &[], "h").to_f32().unwrap(), M);
}

#[test]
fn pytorch_views_are_taken_apart_by_stride_and_offset() {
    for (name, dtype, shape, expect) in [
        ("w", Dtype::F32, vec![2, 3], vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
        ("t", Dtype::F32, vec![3, 2], vec![0.0, 3.0, 1.0, 4.0, 2.0, 5.0]),
        ("tail", Dtype::F32, vec![2], vec![4.0, 5.0]),
        ("wide", Dtype::F32, vec![2, 2], vec![5.0; 4]),
        ("h", Dtype::Bf16, vec![2], vec![1.0, -2.5]),
        ("q", Dtype::E4m3, vec![2], vec![1.0, 448.0]),
    ] {
        let t = tensor("state.pt", &[], name);
        assert_eq!((t.dtype(), t.shape(), t.to_f32().unwrap()), (dtype, shape.as_slice(), expect), "{name}");
    }
    assert_eq!(tensor("state.pt", &[], "nest.n").bytes(), (-7i64).to_le_bytes());
    let file = TensorFile::open(&fixture("state.pt"), &ReadOptions::default()).unwrap();
    assert_eq!(file.notes(), ["`nest.epoch` is an integer, no tensor; left out"]);
    let big = tensor("big_endian.pt", &[], "big_endian");
    assert_eq!(big.to_f32().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
}

#[test]
fn a_pickle_that_would_run_something_is_refused_and_named() {
    let error = TensorSet::read(&fixture("evil.pt"), &ReadOptions::default()).unwrap_err();
    assert!(matches!(error, TensorError::PickleRefused { .. }));
    assert!(error.to_string().contains("posix.system"), "{error}");
    // A pickle without a zip around it, in a new and in the oldest protocol, and one that only looks like it.
    for (code, says) in [
        (&b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R."[..], "`posix.system`"),
        (b"cposix\nsystem\n(S'id'\ntR.", "`posix.system`"),
        (b"(iposix\nsystem\n.", "`posix.system`"),
        (b"\x80\x02K\x01.", "before 1.6"),
        (b"column\nheadings\n", "not recognised"),
    ] {
        let error =
            TensorSet::from_bytes(code.to_vec(), "x", &ReadOptions::default()).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let beyond = TensorSet::read(&fixture("beyond.pt"), &ReadOptions::default()).unwrap_err().to_string();
    assert!(beyond.contains("28 bytes of a storage of 24"), "{beyond}");
}

#[test]
fn damage_is_found() {
    let mut zip = std::fs::read(fixture("pair.npz")).unwrap();
    let last = zip.windows(4).position(|w| w == (-6f32).to_le_bytes()).unwrap();
    zip[last] ^= 1;
    let error = TensorSet::from_bytes(zip, "pair", &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("CRC-32"), "{error}");

    let mut set = TensorSet::new();
    set.insert(Tensor::from_f32("m", vec![6], Dtype::F32, &M).unwrap()).unwrap();
    let mut bytes = set.to_safetensors().unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    let error = TensorSet::from_bytes(bytes, "x", &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("SHA-256"), "{error}");
}

#[test]
fn zip_lies_are_named() {
    let whole = std::fs::read(fixture("pair.npz")).unwrap();
    let central = whole.windows(4).position(|w| w == b"PK\x01\x02").unwrap();
    let end = whole.len() - 22;
    let read = |bytes: Vec<u8>| {
        TensorSet::from_bytes(bytes, "x", &ReadOptions::default()).map_err(|e| e.to_string())
    };
    for (place, value, says) in [
        (central + 8, 1, "encrypted"),
        (central + 10, 99, "method 99"),
        (central + 20, 0xf0, "beyond the file"),
        (central + 44, 0x70, "beyond the file"),
        (central + 42, 1, "not where the directory says"),
        (central, 0, "something else after 0 records"),
        (end + 18, 0xf0, "directory lies beyond"),
        (end, 0, "cut off"),
    ] {
        let mut bytes = whole.clone();
        bytes[place] = value;
        let error = read(bytes).unwrap_err();
        assert!(error.contains(says), "{place} {value}: {error}");
    }
    assert!(read(whole[..end - 1].to_vec()).is_err());
}

#[test]
fn header_lies_are_named() {
    let file = |header: &str, data: usize| {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.resize(bytes.len() + data, 0);
        TensorSet::from_bytes(bytes, "x", &ReadOptions::default()).map(|s| s.len()).map_err(|e| e.to_string())
    };
    let a = r#""a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}"#;
    assert_eq!(file(&format!("{{{a}}}"), 2), Ok(1));
    for (header, data, says) in [
        (format!("{{{a}}}"), 1, "data_offsets"),
        (format!("{{{a}}}"), 3, "belong to no tensor"),
        (format!(r#"{{{a},"b":{{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}}}"#), 2, "overlaps"),
        (format!(r#"{{{a},"b":{{"dtype":"U8","shape":[1],"data_offsets":[3,4]}}}}"#), 4, "hole"),
        (r#"{"a":{"dtype":"Q4","shape":[2],"data_offsets":[0,2]}}"#.to_owned(), 2, "F8_E4M3"),
        (
            r#"{"a":{"dtype":"F64","shape":[9223372036854775807,4],"data_offsets":[0,2]}}"#.to_owned(),
            2,
            "memory",
        ),
        (r#"{"a":3}"#.to_owned(), 0, "`a`"),
    ] {
        let error = file(&header, data).unwrap_err();
        assert!(error.contains(says), "{header}: {error}");
    }
}

#[test]
fn what_is_written_reads_back_equal_and_is_the_same_every_time() {
    let mut inputs = TensorSet::new();
    inputs.insert(Tensor::from_f32("q", vec![1], Dtype::F32, &[1.0]).unwrap()).unwrap();
    let mut set = TensorSet::new();
    for (index, dtype) in Dtype::ALL.into_iter().enumerate() {
        let bytes = (0..dtype.bytes_for(6).unwrap()).map(|b| (b * 7 + index) as u8 & 1).collect();
        set.insert(Tensor::new(format!("t{index}"), dtype, vec![2, 3], bytes).unwrap()).unwrap();
    }
    set.record_inputs(&inputs);
    let bytes = set.to_safetensors().unwrap();
    assert_eq!(bytes, set.to_safetensors().unwrap());
    let back = TensorSet::from_bytes(bytes, "x", &ReadOptions::default()).unwrap();
    assert_eq!(back, set);
    assert_eq!(back.input_digests()["q"], inputs.require("q").unwrap().sha256());
    assert_eq!(back.metadata()["input_dtype.q"], "f32");
    for t in set.iter().filter(|t| t.dtype() != Dtype::E2m1) {
        let hint = options(&[&format!("x={}", t.dtype())]);
        let back = TensorSet::from_bytes(npy_bytes(t).unwrap(), "x", &hint).unwrap();
        assert_eq!(back.require("x").unwrap().clone().renamed(t.name()), *t);
    }
    assert_eq!(
        npy_bytes(&Tensor::from_f32("m", vec![2, 3], Dtype::F32, &M).unwrap()).unwrap(),
        std::fs::read(fixture("f32.npy")).unwrap(),
        "byte for byte what numpy writes"
    );
}

#[test]
fn a_file_appears_whole_and_leaves_nothing_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("o.safetensors");
    let mut set = TensorSet::new();
    set.insert(Tensor::from_f32("m", vec![6], Dtype::F32, &M).unwrap()).unwrap();
    set.write_safetensors(&path).unwrap();
    assert_eq!(TensorSet::read(&path, &ReadOptions::default()).unwrap(), set);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(set.write_safetensors(&folder.path().join("none/o.safetensors")).is_err());
}
