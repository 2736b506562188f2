//! The GPU's own conversions over every f32, compared with kbt-quant's.
//!
//! A kernel of one `cvt` is written as PTX for the conversion asked for, and the driver compiles it: no toolkit is
//! needed where the GPU is. Codes come back in chunks; the host's threads compare them with its own encoder and collect
//! them as runs of equal codes, which say what the hardware does on all 2^32 inputs.

use kbt_gpu::{Args, DeviceInfo, Gpu, GpuError, LaunchShape};
use kbt_quant::format::runs::{self, Collector, Run};
use kbt_quant::format::{Conversion, Format};
use std::fmt::Write as _;

/// Inputs of one launch.
const CHUNK: usize = 1 << 26;
const THREADS: u32 = 256;
/// Differences that are kept one by one.
const KEPT: usize = 16;
const ENTRY: &str = "convert";

/// An input on which hardware and encoder differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// The input's bits.
    pub input: u32,
    /// The hardware's code.
    pub hardware: u16,
    /// The encoder's code.
    pub encoder: u16,
}

/// A conversion by hardware, compared.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// The PTX instruction.
    pub instruction: String,
    /// Inputs with different codes.
    pub differing: u64,
    /// The first of them, in the order of their bits.
    pub first: Vec<Difference>,
    /// The hardware's codes over all inputs.
    pub runs: Vec<Run>,
    /// BLAKE3 of the runs as text, in hex.
    pub digest: String,
}

/// Why a conversion was not compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// No PTX instruction converts so.
    #[error("PTX has no such conversion: {0:?}")]
    NoInstruction(Conversion),
    /// The device has no such instruction.
    #[error("{instruction} needs compute capability {needed}, and {device} has {found}")]
    Device {
        /// The instruction.
        instruction: String,
        /// The least compute capability.
        needed: u32,
        /// The device.
        device: String,
        /// Its compute capability.
        found: u32,
    },
    /// The driver.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// A thread of the host ended early.
    #[error("a thread that compared codes panicked")]
    Thread,
}

/// The least compute capability with a conversion to this format, as 89 for 8.9. Source: what ptxas 13.0.88 assembles;
/// `.satfinite` for bf16 and f16 as for FP8.
#[must_use]
pub const fn least_sm(format: Format) -> u32 {
    match format {
        Format::E4m3 | Format::E5m2 => 89,
        Format::Bf16 | Format::F16 => 90,
        Format::E2m1 | Format::E2m3 | Format::E3m2 | Format::Ue8m0 => 100,
    }
}

/// The conversions that a device of this compute capability has an instruction for.
pub fn conversions(sm: u32) -> impl Iterator<Item = Conversion> {
    let mut seen = std::collections::BTreeSet::new();
    Conversion::all()
        .filter(move |c| least_sm(c.format) <= sm)
        .filter(move |c| c.instruction().is_some_and(|name| seen.insert(name)))
}

/// The kernel for a conversion, for a device of this compute capability: thread i converts the f32 with the bits
/// `first + 2i` and `first + 2i + 1`, and writes both codes as one word, the first in the lower half.
#[must_use]
pub fn ptx(conversion: Conversion, sm: u32) -> Option<String> {
    let instruction = conversion.instruction()?;
    // Only targets with a suffix have the conversions to FP4, FP6 and ue8m0.
    let (version, suffix) = if sm >= 100 { ("8.8", "a") } else { ("8.1", "") };
    let convert = match conversion.format {
        Format::Bf16 | Format::F16 => {
            format!("{instruction} %h0, %f0;\n  {instruction} %h1, %f1;\n  mov.b32 %r0, {{%h0, %h1}};")
        }
        // A pair arrives as two nibbles or two bytes; the first source operand is the upper one.
        Format::E2m1 => format!("{instruction} %c, %f1, %f0;\n  cvt.u32.u8 %r0, %c;\n{}", spread(4)),
        _ => format!("{instruction} %h0, %f1, %f0;\n  cvt.u32.u16 %r0, %h0;\n{}", spread(8)),
    };
    Some(format!(
        ".version {version}\n.target sm_{sm}{suffix}\n.address_size 64\n\n\
         .visible .entry {ENTRY}(.param .u64 codes, .param .u32 first)\n{{\n  \
         .reg .b8 %c;\n  .reg .b16 %h0, %h1;\n  .reg .b32 %r0, %r1, %i, %n, %t;\n  .reg .f32 %f0, %f1;\n  \
         .reg .b64 %to;\n  \
         ld.param.u64 %to, [codes];\n  ld.param.u32 %n, [first];\n  \
         mov.u32 %i, %ctaid.x;\n  mov.u32 %t, %ntid.x;\n  mov.u32 %r1, %tid.x;\n  mad.lo.u32 %i, %i, %t, %r1;\n  \
         mad.wide.u32 %to, %i, 4, %to;\n  \
         shl.b32 %t, %i, 1;\n  add.u32 %n, %n, %t;\n  mov.b32 %f0, %n;\n  add.u32 %n, %n, 1;\n  mov.b32 %f1, %n;\n  \
         {convert}\n  st.global.u32 [%to], %r0;\n  ret;\n}}\n"
    ))
}

/// Moves the upper of two codes of `bits` bits each into the upper half of the word.
fn spread(bits: u32) -> String {
    let low = (1u32 << bits) - 1;
    format!(
        "  shr.u32 %r1, %r0, {bits};\n  and.b32 %r0, %r0, {low};\n  shl.b32 %r1, %r1, 16;\n  or.b32 %r0, %r0, %r1;"
    )
}

/// Converts all 2^32 inputs on the device and compares each code with the encoder's.
pub fn compare(gpu: &Gpu, conversion: Conversion) -> Result<Comparison, ConvertError> {
    let info: &DeviceInfo = gpu.info();
    let instruction = conversion.instruction().ok_or(ConvertError::NoInstruction(conversion))?;
    let (needed, found) = (least_sm(conversion.format), info.sm());
    if found < needed {
        let device = info.name.clone();
        return Err(ConvertError::Device { instruction, needed, device, found });
    }
    let text = ptx(conversion, found).ok_or(ConvertError::NoInstruction(conversion))?;
    let function = gpu.load(text.as_bytes())?.function(ENTRY)?;
    let mut buffer = gpu.alloc(CHUNK * 2)?;
    let mut codes = vec![0u16; CHUNK];
    let mut total = Part::default();
    for first in (0..=u32::MAX).step_by(CHUNK) {
        // What the kernel does not write must not pass for a code.
        buffer.poison()?;
        let mut args = Args::new();
        args.push_buffer(&buffer).push(first);
        let shape = LaunchShape::linear((CHUNK / 2) as u32 / THREADS, THREADS);
        // SAFETY: the kernel takes an address and a number; it writes one word a thread, and there is one for each.
        unsafe { gpu.launch(&function, shape, &mut args)? };
        buffer.read_into(0, &mut codes)?;
        total.append(part(conversion, first, &codes)?);
    }
    let runs = total.runs.into_runs();
    let digest = blake3::hash(runs::to_text(&runs).as_bytes()).to_hex().to_string();
    Ok(Comparison { instruction, differing: total.differing, first: total.first, runs, digest })
}

#[derive(Default)]
struct Part {
    differing: u64,
    first: Vec<Difference>,
    runs: Collector,
}

impl Part {
    fn append(&mut self, next: Self) {
        self.differing += next.differing;
        let room = KEPT.saturating_sub(self.first.len());
        self.first.extend(next.first.into_iter().take(room));
        self.runs.append(next.runs);
    }
}

/// Compares the codes of one chunk, on all threads of the host.
fn part(conversion: Conversion, first: u32, codes: &[u16]) -> Result<Part, ConvertError> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get().min(16));
    let share = codes.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (first..=u32::MAX)
            .step_by(share)
            .zip(codes.chunks(share))
            .map(|(first, codes)| {
                scope.spawn(move || {
                    let mut part = Part::default();
                    part.runs.add(first, codes);
                    conversion.compare(first, codes, |input, hardware, encoder| {
                        part.differing += 1;
                        if part.first.len() < KEPT {
                            part.first.push(Difference { input, hardware, encoder });
                        }
                    });
                    part
                })
            })
            .collect();
        let mut total = Part::default();
        for worker in workers {
            total.append(worker.join().map_err(|_| ConvertError::Thread)?);
        }
        Ok(total)
    })
}

impl Comparison {
    /// The table of cut points: first and last input of every run and its code, in hex, one run a line.
    #[must_use]
    pub fn cut_points(&self) -> String {
        let mut text = String::new();
        for (i, run) in self.runs.iter().enumerate() {
            let last = self.runs.get(i + 1).map_or(u32::MAX, |next| next.start - 1);
            let _ = writeln!(text, "{:08x} {last:08x} {:02x}", run.start, run.code);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_with_two_wrong_codes_says_which() {
        let to = Conversion::usual(Format::E5m2);
        let first = 0x4000_0000u32;
        let mut codes: Vec<u16> = (first..first + 50_000).map(|b| to.encode(f32::from_bits(b))).collect();
        let right = part(to, first, &codes).unwrap();
        assert_eq!((right.differing, right.first.len()), (0, 0));
        codes[7] = 0xffff;
        codes[49_999] ^= 1;
        let wrong = part(to, first, &codes).unwrap();
        assert_eq!(wrong.differing, 2);
        assert_eq!(wrong.first.iter().map(|d| d.input - first).collect::<Vec<_>>(), [7, 49_999]);
        assert_eq!(wrong.first[0].hardware, 0xffff);
    }

    #[test]
    fn a_device_has_the_conversions_of_its_capability() {
        let names = |sm| conversions(sm).filter_map(|c| c.instruction()).collect::<Vec<_>>();
        assert!(names(80).is_empty());
        assert_eq!(names(89).len(), 4);
        assert_eq!(names(90).len(), 4 + 20);
        // Two of each of three formats, four of ue8m0.
        assert_eq!(names(100).len(), 24 + 6 + 4);
        assert!(names(100).contains(&"cvt.rp.ue8m0x2.f32".to_owned()));
    }
}
