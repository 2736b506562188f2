//! PTX: the lint, and the edits that a sweep of register budgets makes.
#![no_main]

use kbt_sass::regs::{Build, Compiler, Sweep, sweep};

/// Takes what the sweep made of the text for a listing.
struct Echo;

impl Compiler for Echo {
    fn assemble(&self, ptx: &str, _: kbt_device::Arch) -> Result<Build, String> {
        // An edit of PTX is PTX still.
        kbt_ptx::parse(ptx).map_err(|e| e.to_string())?;
        Err("refused".to_owned())
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    kbt_sass_fuzz::bounded(data, || {
        let Ok(text) = std::str::from_utf8(data) else { return };
        if let Ok(module) = kbt_ptx::parse(text) {
            let _ = kbt_sass::lint_ptx(&module);
        }
        let arch = kbt_device::Arch::SM_90A;
        let _ = sweep(text, arch, &Sweep::Cap(vec![64, 128]), &Echo);
        let _ = sweep(text, arch, &Sweep::Budget(232, vec![200, 240]), &Echo);
    });
});
