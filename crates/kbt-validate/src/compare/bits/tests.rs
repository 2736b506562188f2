//! Counts worked by hand, and the vector loops against one element at a time.

use super::*;
use crate::rng::Rng;

fn count(dtype: Dtype, saved: &[u64], variant: &[u64]) -> Bits {
    let bytes = |codes: &[u64]| -> Vec<u8> {
        match dtype {
            Dtype::E2m1 => codes.as_chunks::<2>().0.iter().map(|[a, b]| (a | b << 4) as u8).collect(),
            _ => codes.iter().flat_map(|c| c.to_le_bytes()[..dtype.bits() / 8].to_vec()).collect(),
        }
    };
    let mut counter = BitCounter::new(dtype, 0);
    // Two chunks, so that places carry over.
    let (a, b) = (bytes(saved), bytes(variant));
    let half = a.len() / 2;
    counter.push(&a[..half], &b[..half]);
    counter.push(&a[half..], &b[half..]);
    counter.finish(&[2, saved.len() / 2])
}

fn ranges(bits: &Bits) -> Vec<(u64, u64, u64)> {
    bits.distribution.iter().map(|r| (r.from_ulps, r.to_ulps, r.elements_count)).collect()
}

#[test]
fn distances_are_counted_in_ulps_and_the_first_place_is_named() {
    let bits = count(Dtype::Bf16, &[0x3f80, 0x3f80, 0x0000, 0x8001], &[0x3f80, 0x3f85, 0x8000, 0x0001]);
    assert_eq!((bits.elements_count, bits.differing_count, bits.max_ulps), (4, 3, 5));
    assert_eq!(bits.first_index.as_deref(), Some(&[0, 1][..]));
    assert_eq!(ranges(&bits), [(0, 0, 1), (2, 3, 1), (4, 7, 1)]);
}

#[test]
fn a_place_far_into_a_tensor_is_counted_from_its_start() {
    let saved = vec![7; 4000];
    let mut variant = saved.clone();
    variant[3456] = 8;
    let bits = count(Dtype::F32, &saved, &variant);
    assert_eq!((bits.differing_count, bits.first_index), (1, Some(vec![1, 1456])));
}

/// Every type over whole blocks, and codes over all of its range, against the distances of its ranks.
#[test]
fn whole_blocks_are_counted_as_element_by_element() {
    let mut rng = Rng::new(5);
    for dtype in Dtype::ALL {
        for (spread, one_in) in [(1, 3), (0x80, 1), (u64::MAX, 1)] {
            let top = if dtype.bits() == 64 { u64::MAX } else { (1 << dtype.bits()) - 1 };
            let saved: Vec<u64> = (0..2048).map(|_| rng.next() & top).collect();
            let moved = |code: &u64| {
                if rng.below(one_in) == 0 { code ^ (rng.next() & top & spread) } else { *code }
            };
            let variant: Vec<u64> = saved.iter().map(moved).collect();
            let bits = count(dtype, &saved, &variant);
            let mut expect = BitCounter::new(dtype, 0);
            for (index, (&a, &b)) in saved.iter().zip(&variant).enumerate().filter(|(_, (a, b))| a != b) {
                expect.differing += 1;
                expect.first.get_or_insert(index);
                expect.element(a, b, index);
                if !expect.form.is_special(a) && !expect.form.is_special(b) {
                    let ulps = dtype.rank(a).abs_diff(dtype.rank(b));
                    assert_eq!(u128::from(expect.form.place(a).abs_diff(expect.form.place(b))), ulps);
                }
            }
            expect.elements = 2048;
            assert_eq!(bits, expect.finish(&[2, 1024]), "{dtype} {spread:#x}");
        }
    }
}

#[test]
fn specials_are_placed_exactly_and_are_no_distances() {
    // NaN to NaN with other bits, infinity to number, number to NaN, one infinity to the other.
    let saved = [0x7fc0_0000, 0x7f80_0000, 0x3f80_0000, 0x7f80_0000];
    let variant = [0xffc0_0001, 0x7f7f_ffff, 0x7fc0_0000, 0xff80_0000];
    let bits = count(Dtype::F32, &saved, &variant);
    assert_eq!((bits.special_differing_count, bits.nan_payload_count, bits.max_ulps), (3, 1, 0));
    assert_eq!((bits.first_index, bits.first_special_index), (Some(vec![0, 0]), Some(vec![0, 1])));
    assert!(bits.distribution.is_empty());
    let bits = count(Dtype::E4m3, &[0x7e, 0x7f], &[0x7f, 0xff]);
    assert_eq!((bits.special_differing_count, bits.nan_payload_count), (1, 1));
}

#[test]
fn packed_codes_and_whole_ranges_work() {
    let bits = count(Dtype::E2m1, &[1, 2, 3, 0xf], &[1, 3, 3, 0x7]);
    assert_eq!((bits.differing_count, bits.max_ulps), (2, 14));
    assert_eq!(bits.first_index.as_deref(), Some(&[0, 1][..]));
    let bits = count(Dtype::U64, &[0, 5], &[u64::MAX, 5]);
    assert_eq!(ranges(&bits), [(1 << 63, u64::MAX, 1)]);
    let same = count(Dtype::F64, &[7, 8], &[7, 8]);
    assert_eq!((same.differing_count, same.first_index, same.distribution.len()), (0, None, 0));
}

#[test]
fn every_level_counts_the_same() {
    let mut rng = Rng::new(9);
    for dtype in Dtype::ALL {
        let saved: Vec<u8> = (0..4096).map(|_| rng.next() as u8).collect();
        let moved = |byte: &u8| if rng.below(5) == 0 { byte ^ 1 << rng.below(8) } else { *byte };
        let variant: Vec<u8> = saved.iter().map(moved).collect();
        let counted: Vec<Bits> = Level::available()
            .map(|level| {
                let mut counter = BitCounter { level, ..BitCounter::new(dtype, 0) };
                counter.push(&saved, &variant);
                counter.finish(&[4096 * 8 / dtype.bits()])
            })
            .collect();
        assert!(counted[0].differing_count > 0);
        assert!(counted.iter().all(|bits| *bits == counted[0]), "{dtype}: {counted:?}");
    }
}
