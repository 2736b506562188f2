//! Elements read with their bytes the other way round.

use std::io::{self, Read};

/// Bytes taken at a time; a multiple of every element's width.
const BLOCK: usize = 1 << 16;

/// Turns big-endian elements into little-endian ones as they are read.
pub(crate) struct Swapped<R> {
    inner: R,
    width: usize,
    block: Vec<u8>,
    /// How much of the block was given out.
    given: usize,
}

impl<R: Read> Swapped<R> {
    /// Over whole elements of `width` bytes.
    pub(crate) fn new(inner: R, width: usize) -> Self {
        Self { inner, width: width.max(1), block: Vec::new(), given: 0 }
    }
}

impl<R: Read> Read for Swapped<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == self.block.len() {
            self.block.clear();
            self.given = 0;
            self.inner.by_ref().take(BLOCK as u64).read_to_end(&mut self.block)?;
            // An element that is cut off stays as it is: whoever counts the bytes sees that some are missing.
            self.block.chunks_exact_mut(self.width).for_each(<[u8]>::reverse);
        }
        let n = buffer.len().min(self.block.len() - self.given);
        buffer[..n].copy_from_slice(&self.block[self.given..self.given + n]);
        self.given += n;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_turned_round_whatever_the_pieces_they_are_read_in() {
        let bytes: Vec<u8> = (0..BLOCK + 12).map(|i| i as u8).collect();
        let mut turned = bytes.clone();
        turned.chunks_exact_mut(4).for_each(<[u8]>::reverse);
        for piece in [1, 3, 4096, BLOCK + 1] {
            let (mut reader, mut read) = (Swapped::new(&bytes[..], 4), Vec::new());
            let mut buffer = vec![0; piece];
            while let n @ 1.. = reader.read(&mut buffer).unwrap() {
                read.extend_from_slice(&buffer[..n]);
            }
            assert_eq!(read, turned, "in pieces of {piece}");
        }
    }
}
