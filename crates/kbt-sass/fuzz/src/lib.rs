//! What the fuzz targets share: a listing put through everything that reads one, under a bound on memory.

use kbt_sass::{Listing, MeasureOptions, ParseError, parse, parse_stream};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Read;

/// Bytes that an input may cost, for each of its own: an instruction of ten characters may be a block and a loop, and
/// each of these has counts by mnemonic and pipe.
const BYTES_FOR_EACH: usize = 8 * 1024;
/// Bytes that any input may cost.
const BYTES_AT_LEAST: usize = 4 << 20;

struct Counting;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
}

fn add(bytes: usize) {
    // The runtime allocates while a thread ends, too.
    let _ = HELD.try_with(|held| {
        held.set(held.get().wrapping_add(bytes));
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: every call goes to the system's allocator as it is; only sizes are counted beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        let _ = HELD.try_with(|held| held.set(held.get().saturating_sub(layout.size())));
        // SAFETY: the pointer came from `alloc` above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs something over an input and fails where it held more memory than the input can ask for.
pub fn bounded(input: &[u8], run: impl FnOnce()) {
    let before = HELD.get();
    MOST.set(before);
    run();
    let most = MOST.get().saturating_sub(before);
    let allowed = BYTES_AT_LEAST + BYTES_FOR_EACH * input.len();
    assert!(most <= allowed, "{most} bytes held for an input of {}", input.len());
}

/// Reads input as a listing and puts it through all that takes one.
pub fn everything(bytes: &[u8]) {
    let whole = parse(bytes);
    let mut functions = Vec::new();
    let streamed = parse_stream(Pieces(bytes), |f| functions.push(f));
    let streamed = streamed.map(|listing| Listing { functions, ..listing });
    // What is no listing may be called by another name where it is read piece by piece.
    assert_eq!(streamed.is_ok(), whole.is_ok(), "{:?} and {:?}", streamed.err(), whole.err());
    let (Ok(listing), Ok(streamed)) = (whole, streamed) else { return };
    assert!(listing == streamed, "read in pieces: {streamed:?}\nread whole: {listing:?}");
    let outcome = kbt_sass::measure(&listing, MeasureOptions { blocks: true, ..MeasureOptions::default() });
    let counted: u64 = outcome.functions.iter().map(|f| f.instructions).sum();
    assert!(counted <= listing.instructions().count() as u64);
    let _ = (outcome.render_text(), outcome.verdicts());
    let _ = kbt_sass::lint(&listing);
    let same = kbt_sass::diff_listings(&listing, &listing, |_| true);
    let _ = same.render_text();
    let json = serde_json::to_string(&outcome).expect("an outcome is JSON");
    let back = serde_json::from_str::<kbt_sass::outcome::MetricsOutcome>(&json).expect("and is read back");
    assert!(kbt_sass::gate(&back, &outcome, &kbt_sass::Tolerance::default()).passes());
}

/// A few bytes at a time.
struct Pieces<'a>(&'a [u8]);

impl Read for Pieces<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let n = to.len().min(self.0.len()).min(61);
        to[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        Ok(n)
    }
}

/// A listing that the gate compares with.
///
/// # Errors
/// None: the text is a listing.
pub fn small_listing() -> Result<Listing, ParseError> {
    parse(include_bytes!("../corpus/text/nvdisasm-hex"))
}
