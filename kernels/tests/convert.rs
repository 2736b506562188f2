//! The kernels that convert every f32: ptxas must take each for the targets that have the instruction.
#![allow(clippy::print_stderr, clippy::unwrap_used, reason = "a test that cannot run says so, or has failed")]

use kbt_device::Arch;
use kbt_kernels::convert::{conversions, ptx};
use kbt_quant::format::{Conversion, Format};
use kbt_toolchain::{PtxasOptions, Toolchain};

#[test]
fn ptxas_assembles_each_conversion_where_the_device_has_it_and_not_before() {
    if std::env::var_os("KBT_CUDA").is_none() {
        eprintln!(
            "KBT_CUDA is not set: no PTX was assembled; `cargo xtask test` sets it after `cargo xtask setup`"
        );
        return;
    }
    let tools = Toolchain::find().unwrap();
    for arch in [Arch { sm: 89, suffix: None }, Arch { sm: 90, suffix: None }, Arch::SM_100A, Arch::SM_103A] {
        let sm = u32::from(arch.sm);
        for conversion in conversions(sm) {
            let text = ptx(conversion, sm).unwrap();
            if let Err(error) = tools.ptxas(text.as_bytes(), arch, &PtxasOptions::default()) {
                panic!("{conversion:?} for {arch}: {error}\n{text}");
            }
        }
    }
    // The list is no shorter than the truth: what it leaves out for sm_90 does not assemble there.
    let sm_90 = Arch { sm: 90, suffix: None };
    for format in [Format::E2m1, Format::E2m3, Format::E3m2, Format::Ue8m0] {
        let text = ptx(Conversion::usual(format), 90).unwrap();
        assert!(tools.ptxas(text.as_bytes(), sm_90, &PtxasOptions::default()).is_err(), "{format}");
    }
}
