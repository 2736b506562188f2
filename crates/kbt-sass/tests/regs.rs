//! Sweeps of real kernels through ptxas: caps and role budgets.

#![allow(clippy::unwrap_used, reason = "test helpers")]

mod common;

use common::Tools;
use kbt_device::Arch;
use kbt_sass::parse;
use kbt_sass::regs::{Build, Compiler, Sweep, sweep};
use std::collections::BTreeMap;
use std::path::Path;

impl Compiler for Tools {
    fn assemble(&self, ptx: &str, arch: Arch) -> Result<Build, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
        let (source, cubin) = (path("k.ptx"), path("k.cubin"));
        std::fs::write(&source, ptx).unwrap();
        let target = format!("-arch={arch}");
        let (_, said) = self.run("ptxas", &[&target, "-v", &source, "-o", &cubin]);
        let listing = parse(&self.run("nvdisasm", &["-c", &cubin]).0).map_err(|e| e.to_string())?;
        let remarks = said.lines().filter(|l| l.contains("(C")).map(ToOwned::to_owned).collect();
        Ok(Build { listing, registers: BTreeMap::new(), remarks })
    }
}

fn attention(tools: &Tools) -> String {
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    let include = format!("-I{}", kernels.join("include").display());
    let source = kernels.join("attention/attention.cu").display().to_string();
    String::from_utf8(tools.run("nvcc", &["-arch=sm_90a", "-ptx", &include, "-o", "-", &source]).0).unwrap()
}

#[test]
fn a_small_cap_spills_more_and_the_sweep_says_which_is_best() {
    let Some(tools) = Tools::find() else { return };
    let source = common::fixtures().join("kernels/forms.cu").display().to_string();
    let ptx = tools.run("nvcc", &["-arch=sm_90a", "-ptx", "-o", "-", &source]).0;
    let ptx = String::from_utf8(ptx).unwrap();
    let found = sweep(&ptx, Arch::SM_90A, &Sweep::Cap(vec![32, 168]), &tools).unwrap();
    let of =
        |cap| found.rows.iter().find(|r| r.function == "spilling" && r.setting_registers == [cap]).unwrap();
    let (tight, wide) = (of(32), of(168));
    assert!(
        tight.spill_store_bytes > 100 && tight.spill_store_bytes > wide.spill_store_bytes,
        "{tight:?} {wide:?}"
    );
    assert!(wide.best && !tight.best);
    assert_eq!(found.rows.iter().filter(|r| r.best && r.function == "softmax_chunked").count(), 1);
}

#[test]
fn role_budgets_follow_the_kernel_and_each_role_has_its_own_cost() {
    let Some(tools) = Tools::find() else { return };
    // P.V, loads, and two softmax warpgroups: with equal budgets the machine code cannot tell which role has two.
    let roles = Sweep::Roles { most: 3, warpgroups: Some(vec![1, 1, 2]) };
    let found = sweep(&attention(&tools), Arch::SM_90A, &roles, &tools).unwrap();
    let plan = &found.plans[0];
    // The launch has 128 registers a thread.
    assert_eq!((plan.warpgroups.as_slice(), plan.pool_registers), (&[1, 1, 2][..], 512));
    assert_eq!(found.rows.len(), 3);
    for row in &found.rows {
        let sum: u32 = row.setting_registers.iter().zip(&plan.warpgroups).map(|(r, w)| r * w).sum();
        assert!(sum <= 512, "{row:?}");
        // The machine code has the budgets that were set.
        let mut set: Vec<_> = row.roles.iter().filter_map(|r| r.setmaxnreg_registers).collect();
        let mut asked = row.setting_registers.clone();
        set.sort_unstable();
        asked.sort_unstable();
        assert_eq!(set, asked, "{row:?}");
    }
    assert_eq!(found.rows[0].setting_registers, [160, 32, 160]);
    assert_eq!(found.rows[0].spill_store_bytes, 0, "{:?}", found.rows[0]);
}
