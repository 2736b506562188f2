//! Kernels that measure ceilings: their PTX, and the check that their machine code does what is counted.
//!
//! Bytes and operations are counted by construction here ([`Kernel::per_cta`]); the device side only divides by
//! the time. Data that the tensor cores multiply is random: on zeros a card draws less power and reads faster
//! than it is.

mod memory;
mod tensor;

use crate::ptx;
use kbt_device::{Arch, CeilingKind};
use kbt_toolchain::{NvdisasmOptions, PtxasOptions, ToolError, Toolchain};

pub use tensor::{OPERAND_BYTES, is_tensor, random_operands};

/// Threads of a block of the memory kernels.
pub const MEMORY_THREADS: u32 = 256;
/// Bytes that a block of a memory kernel moves a pass, in one direction.
pub const TILE_BYTES: u64 = 32 << 10;

/// One ceiling kernel.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// What it measures.
    pub kind: CeilingKind,
    /// Its name in the module.
    pub name: &'static str,
    /// Its PTX, without a header.
    pub ptx: String,
    /// The SASS mnemonics that must be there and how many; `*` for any tail.
    pub expect: Vec<(&'static str, usize)>,
    /// Bytes or FLOP that a block moves or does in one pass.
    pub per_cta: f64,
}

/// The kernels for a compile target: those with WGMMA only on `sm_90a`.
#[must_use]
pub fn kernels(arch: Arch) -> Vec<Kernel> {
    let mut all = memory::kernels();
    if arch == Arch::SM_90A {
        all.extend(tensor::kernels());
    }
    all
}

/// A checked module of all ceiling kernels.
#[derive(Debug, Clone)]
pub struct Module {
    /// Its machine code.
    pub cubin: Vec<u8>,
    /// The compiler.
    pub ptxas: String,
    /// The kernels whose code is as meant.
    pub kernels: Vec<Kernel>,
    /// Kinds that were refused, and why.
    pub refused: Vec<(CeilingKind, String)>,
}

/// Assembles the kernels and counts what must be in them.
pub fn prepare(arch: Arch, tools: &Toolchain) -> Result<Module, ToolError> {
    let kernels = kernels(arch);
    let mut text = ptx::header(arch, None);
    for kernel in &kernels {
        text.push_str(&kernel.ptx);
    }
    let assembled = tools.ptxas(text.as_bytes(), arch, &PtxasOptions::default())?;
    let listing = tools.disassemble(&assembled.cubin, &NvdisasmOptions::default())?;
    let listing = kbt_sass::parse(listing.as_bytes());
    let mut module =
        Module { cubin: assembled.cubin, ptxas: assembled.version, kernels: Vec::new(), refused: Vec::new() };
    for kernel in kernels {
        let wrong = match &listing {
            Ok(listing) => missing(listing, &kernel),
            Err(error) => Some(error.to_string()),
        };
        match wrong {
            Some(why) => module.refused.push((kernel.kind, why)),
            None => module.kernels.push(kernel),
        }
    }
    Ok(module)
}

/// What the machine code of a kernel lacks, or has too much of.
fn missing(listing: &kbt_sass::Listing, kernel: &Kernel) -> Option<String> {
    let Some(function) = listing.function(kernel.name) else {
        return Some(format!("the listing has no kernel `{}`", kernel.name));
    };
    kernel.expect.iter().find_map(|(pattern, expected)| {
        let is = |opcode: &str| match pattern.strip_suffix('*') {
            Some(head) => opcode.starts_with(head),
            None => opcode == *pattern,
        };
        let found = function.instructions.iter().filter(|i| is(i.opcode())).count();
        (found != *expected)
            .then(|| format!("kernel `{}` has {found} {pattern}, {expected} were written", kernel.name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ceiling_kernel_is_in_its_machine_code() {
        if std::env::var_os("KBT_CUDA").is_none() {
            eprintln!("KBT_CUDA is not set: every_ceiling_kernel_is_in_its_machine_code not run");
            return;
        }
        let tools = Toolchain::find().unwrap();
        for (arch, count) in [(Arch::SM_90A, 12), (Arch::SM_103A, 6)] {
            let module = prepare(arch, &tools).unwrap();
            assert_eq!(module.refused, [], "{arch}");
            assert_eq!(module.kernels.len(), count, "{arch}");
        }
    }
}
