//! Where scales lie in memory for the tensor cores: tiles of 128 rows by 4 scales, 512 bytes each.

/// The byte of the scale of row `row` and block `block` of that row, in a matrix whose rows have `blocks` blocks.
/// Tiles follow each other along the row first. Source: the layout that cuBLAS and CUTLASS state for block scales.
#[must_use]
pub const fn scale_offset(row: usize, block: usize, blocks: usize) -> usize {
    let tile = row / 128 * blocks.div_ceil(4) + block / 4;
    tile * 512 + row % 32 * 16 + row / 32 % 4 * 4 + block % 4
}

/// Bytes of the scales of a matrix: whole tiles, so rows are padded to 128 and blocks to 4.
#[must_use]
pub const fn scale_storage(rows: usize, blocks: usize) -> usize {
    rows.div_ceil(128) * blocks.div_ceil(4) * 512
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scale_has_its_own_byte() {
        let (rows, blocks) = (256, 7);
        let mut seen = vec![false; scale_storage(rows, blocks)];
        for row in 0..rows {
            for block in 0..blocks {
                let at = scale_offset(row, block, blocks);
                assert!(!seen[at], "{row} {block}");
                seen[at] = true;
            }
        }
        assert_eq!(scale_offset(0, 1, blocks), 1);
        assert_eq!(scale_offset(1, 0, blocks), 16);
        assert_eq!(scale_offset(32, 0, blocks), 4);
        assert_eq!(scale_offset(0, 4, blocks), 512);
        assert_eq!(scale_offset(128, 0, blocks), 1024);
    }

    #[test]
    fn memory_order_is_the_published_nesting() {
        // Walking memory byte by byte: row tiles, column tiles, 32 rows, the four quarters of a row tile, four blocks.
        let (rows, blocks) = (256, 8);
        let mut byte = 0;
        for row_tile in 0..2 {
            for column_tile in 0..2 {
                for row in 0..32 {
                    for quarter in 0..4 {
                        for block in 0..4 {
                            let at = (row_tile * 128 + quarter * 32 + row, column_tile * 4 + block);
                            assert_eq!(scale_offset(at.0, at.1, blocks), byte, "{at:?}");
                            byte += 1;
                        }
                    }
                }
            }
        }
        assert_eq!(byte, scale_storage(rows, blocks));
        assert_eq!(scale_storage(1, 1), 512, "a tile is never cut");
    }
}
