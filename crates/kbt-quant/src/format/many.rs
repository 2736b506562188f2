//! Many values to codes, with vectors.

use super::{Conversion, Format, Rounding};
use crate::simd::{Kernel, Level};
use std::marker::PhantomData;

impl Conversion {
    /// The codes of `xs` into `codes`, as far as both go; the same codes as [`Self::encode`], many times faster.
    pub fn encode_all(self, xs: &[f32], codes: &mut [u16]) {
        encode_all(Level::widest(), self, xs, codes);
    }
}

fn encode_all(level: Level, to: Conversion, xs: &[f32], codes: &mut [u16]) {
    // The choice of the format is made here, outside of the loop.
    macro_rules! each {
        ($($format:ident)*) => {
            match (to.format, to.rounding) {
                $((Format::$format, Rounding::Rn) => {
                    level.run(Each { to, xs, codes, element: PhantomData::<element::$format> });
                })*
                _ => {
                    for (code, &x) in codes.iter_mut().zip(xs) {
                        *code = to.encode(x);
                    }
                }
            }
        };
    }
    each!(E2m1 E2m3 E3m2 E4m3 E5m2 Bf16 F16);
}

/// The loop of [`Conversion::encode_all`] for one format under `rn`.
struct Each<'a, F> {
    to: Conversion,
    xs: &'a [f32],
    codes: &'a mut [u16],
    element: PhantomData<F>,
}

impl<F: Element> Kernel for Each<'_, F> {
    #[inline(always)]
    fn run(self) {
        let to = Conversion { overflow: self.to.overflow, relu: self.to.relu, ..F::USUAL };
        for (code, &x) in self.codes.iter_mut().zip(self.xs) {
            *code = to.encode(x);
        }
    }
}

/// A format known when a loop is compiled, which then has no choices in it.
pub(crate) trait Element {
    /// Its usual conversion.
    const USUAL: Conversion;
}

/// The formats as types.
pub(crate) mod element {
    use super::{Conversion, Element, Format};

    macro_rules! elements { ($($format:ident)*) => { $(
        pub(crate) struct $format;
        impl Element for $format {
            const USUAL: Conversion = Conversion::usual(Format::$format);
        }
    )* } }
    elements! { E2m1 E2m3 E3m2 E4m3 E5m2 Bf16 F16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_gives_the_codes_of_encode_at_every_cut_point() {
        for to in Conversion::all() {
            let mut xs = Vec::new();
            for run in to.definition() {
                xs.extend([run.start.wrapping_sub(1), run.start, run.start + 1].map(f32::from_bits));
            }
            let expected: Vec<u16> = xs.iter().map(|&x| to.encode(x)).collect();
            for level in Level::available() {
                let mut codes = vec![0xaaaa; xs.len()];
                encode_all(level, to, &xs, &mut codes);
                for ((x, ours), code) in xs.iter().zip(&codes).zip(&expected) {
                    assert_eq!(ours, code, "{to:?} of {:08x} at {level:?}", x.to_bits());
                }
            }
        }
    }
}
