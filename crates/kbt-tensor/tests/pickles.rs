//! Pickles that ask for more than they hold: what a few bytes may cost is bounded, and the error says by what.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use kbt_tensor::{ReadOptions, TensorFile};

/// A zip of stored entries: what `torch.save` writes.
fn zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    let four = |n: usize| u32::try_from(n).unwrap().to_le_bytes();
    let two = |n: usize| u16::try_from(n).unwrap().to_le_bytes();
    for (name, data) in entries {
        let (crc, size) = (crc32fast::hash(data).to_le_bytes(), four(data.len()));
        // Version, flags, method, time, date; then the checksum, both sizes, the lengths of name and extra field.
        let common =
            [&[20, 0, 0, 0, 0, 0, 0, 0, 0, 0], &crc[..], &size, &size, &two(name.len()), &[0, 0]].concat();
        directory.extend(
            [b"PK\x01\x02\x14\0", &common[..], &[0; 10], &four(archive.len()), name.as_bytes()].concat(),
        );
        archive.extend([b"PK\x03\x04", &common[..], name.as_bytes(), data].concat());
    }
    let (count, size, place) = (two(entries.len()), four(directory.len()), four(archive.len()));
    [archive, directory, [b"PK\x05\x06\0\0\0\0", &count[..], &count, &size, &place, &[0, 0]].concat()]
        .concat()
}

/// Opens a file with this pickle and a storage of six f32.
fn open(pickle: &[u8]) -> Result<TensorFile, String> {
    let file = zip(&[("a/data.pkl", pickle), ("a/data/0", &[0; 24])]);
    TensorFile::from_bytes(file, "x", &ReadOptions::default()).map_err(|e| e.to_string())
}

/// The operations that make an f32 tensor of one extent over the storage.
fn tensor(extent: u32, stride: u8) -> Vec<u8> {
    let rebuild = b"ctorch._utils\n_rebuild_tensor_v2\n(";
    let storage = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x06tQK\0";
    let shape = [&b"J"[..], &extent.to_le_bytes(), &[0x85, b'K', stride, 0x85]].concat();
    [&rebuild[..], storage, &shape, b"\x89ccollections\nOrderedDict\n)RtR"].concat()
}

/// A list of what these make.
fn list(items: &[Vec<u8>]) -> Vec<u8> {
    [b"\x80\x02](", &items.concat()[..], b"e."].concat()
}

#[test]
fn views_may_repeat_their_storage_up_to_a_bound_for_the_whole_file() {
    let file = open(&list(&[tensor(6, 1), tensor(1 << 26, 0)])).unwrap();
    assert_eq!(file.infos().map(|i| i.shape.clone()).collect::<Vec<_>>(), [[6], [1 << 26]]);
    let views = vec![tensor(1 << 26, 0); 5];
    let error = open(&list(&views)).unwrap_err();
    assert!(error.contains("tensor `4`") && error.contains("repeat 1342177260 bytes"), "{error}");
}

#[test]
fn keys_and_names_have_bounds() {
    let text = |length: usize| {
        [b"X", &u32::try_from(length).unwrap().to_le_bytes()[..], &vec![b'k'; length]].concat()
    };
    let dict = |key: &[u8]| [b"\x80\x02}", key, &tensor(6, 1), b"s."].concat();
    assert_eq!(open(&dict(&text(4096))).unwrap().infos().len(), 1);
    assert!(open(&dict(&text(4097))).unwrap_err().contains("a key of 4097 bytes"));
    // One key that leads to a list of a hundred thousand integers: each of them has its name.
    let many = [&b"]("[..], &b"K\0".repeat(100_000), b"e"].concat();
    let error = open(&[b"\x80\x02}", &text(4096)[..], &many, b"s."].concat()).unwrap_err();
    assert!(error.contains("names of more than 67108864 bytes"), "{error}");
}

#[test]
fn calls_take_few_arguments_and_a_pickle_makes_so_many_values() {
    let call = [&b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n("[..], &b"K\0".repeat(17), b"tR."].concat();
    let error = open(&call).unwrap_err();
    assert!(error.contains("_rebuild_tensor_v2 with 17 arguments"), "{error}");
    let error = open(&[b"\x80\x02(", &b"N".repeat((1 << 22) + 1)[..], b"t."].concat()).unwrap_err();
    assert!(error.contains("more than 4194304 values"), "{error}");
}
