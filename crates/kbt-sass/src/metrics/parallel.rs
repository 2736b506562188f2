//! Reading and counting at once, on two threads: a listing of a gigabyte is read while it is counted.
//!
//! Who reads hands functions over in batches. Where the other thread is behind, the reader counts the batch
//! itself, so that neither waits for the other and no more than a few batches are ever held. Which thread counted
//! a function shows nowhere: results go by the place in the listing.

use super::{Measure, MeasureOptions};
use crate::{Function, Listing};
use std::sync::mpsc;

/// Instructions that make a batch: enough that handing it over costs nothing beside counting it.
const BATCH: usize = 4096;
/// Batches that wait to be counted.
const WAITING: usize = 2;

/// Functions that follow each other in the listing.
struct Batch {
    /// The place of the first.
    first: usize,
    functions: Vec<Function>,
    instructions: usize,
}

impl Batch {
    const fn at(first: usize) -> Self {
        Self { first, functions: Vec::new(), instructions: 0 }
    }

    fn count(self, measure: &mut Measure) {
        for (n, function) in self.functions.into_iter().enumerate() {
            measure.nth(self.first + n, &function);
        }
    }
}

/// Counts what `read` hands over, function by function, and returns the counts with what `read` returns. The
/// result is the same as that of [`Measure::function`] over the same functions.
///
/// ```
/// # use kbt_sass::{MeasureOptions, ParseError, metrics::measure_parallel, parse_stream};
/// # let file = &b"Function : k\n/*0000*/ EXIT ;\n"[..];
/// let (measure, listing) = measure_parallel(MeasureOptions::default(), |each| parse_stream(file, each))?;
/// assert_eq!(measure.finish(&listing).functions.len(), 1);
/// # Ok::<(), ParseError>(())
/// ```
pub fn measure_parallel<E>(
    options: MeasureOptions,
    read: impl FnOnce(&mut dyn FnMut(Function)) -> Result<Listing, E>,
) -> Result<(Measure, Listing), E> {
    let (send, receive) = mpsc::sync_channel::<Batch>(WAITING);
    let mut theirs = Measure::new(options.clone());
    let mut ours = Measure::new(options);
    std::thread::scope(|scope| {
        let other =
            std::thread::Builder::new().name("kbt-sass-measure".to_owned()).spawn_scoped(scope, move || {
                receive.into_iter().for_each(|batch| batch.count(&mut theirs));
                theirs
            });
        let mut batch = Batch::at(0);
        let listing = read(&mut |function| {
            batch.instructions += function.instructions.len();
            batch.functions.push(function);
            if batch.instructions >= BATCH {
                let next = Batch::at(batch.first + batch.functions.len());
                // Full, or there is no other thread to be had.
                if let Err(mpsc::TrySendError::Full(batch) | mpsc::TrySendError::Disconnected(batch)) =
                    send.try_send(std::mem::replace(&mut batch, next))
                {
                    batch.count(&mut ours);
                }
            }
        });
        drop(send);
        batch.count(&mut ours);
        if let Ok(other) = other {
            ours.join(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        Ok((ours, listing?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Unit, measure, parse, parse_each};

    #[test]
    fn two_threads_count_what_one_counts_in_the_same_order() {
        let mut text = "\t.target\tsm_90a\n".to_owned();
        for f in 0..600 {
            text += &format!("\t.section\t.text.f{f},\"ax\",@progbits\n");
            for n in 0..30 + f % 7 {
                let line = ["MUFU.EX2 R0, R1", "F2FP.BF16.F32.PACK_AB R4, R2, R0", "FROB R9"][(n * f) % 3];
                text += &format!("/*{:04x}*/ {line} ;\n", n * 16);
            }
        }
        let options = MeasureOptions { a: Unit::mufu(), blocks: true, ..MeasureOptions::default() };
        let alone = measure(&parse(text.as_bytes()).unwrap(), options.clone());
        for _ in 0..3 {
            let (both, listing) =
                measure_parallel(options.clone(), |each| parse_each(text.as_bytes(), each)).unwrap();
            assert_eq!(both.finish(&listing), alone);
        }
        assert_eq!(alone.functions.len(), 600);
        assert!(alone.unknown_mnemonics[0].instructions > 1000);
    }

    #[test]
    fn an_error_of_the_reader_is_returned() {
        let error = measure_parallel(MeasureOptions::default(), |_| Err::<Listing, _>("broken")).unwrap_err();
        assert_eq!(error, "broken");
    }
}
