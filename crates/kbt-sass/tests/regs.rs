//! Sweeps of real kernels through ptxas: caps and role budgets.

#![allow(clippy::unwrap_used, reason = "test helpers")]

mod common;

use common::Tools;
use kbt_device::{Arch, DeviceProfile};
use kbt_sass::parse;
use kbt_sass::regs::{Build, Compiler, Sweep, study, sweep};
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
        let listing = parse(&self.run("nvdisasm", &["-c", "-hex", &cubin]).0).map_err(|e| e.to_string())?;
        let remarks = said.lines().filter(|l| l.contains("(C")).map(ToOwned::to_owned).collect();
        let mut registers = BTreeMap::new();
        let mut entry = "";
        for line in said.lines() {
            entry = line
                .split("Compiling entry function '")
                .nth(1)
                .and_then(|l| l.split('\'').next())
                .unwrap_or(entry);
            if let Some(n) = line.split("Used ").nth(1).and_then(|l| l.split(' ').next()?.parse().ok()) {
                registers.insert(entry.to_owned(), n);
            }
        }
        Ok(Build { listing, registers, remarks })
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
    // Their predicted cycles tell them apart.
    assert_eq!(found.as_good_as(&found.rows[0]).len(), 1);
    let text = found.render_text();
    assert!(text.contains("best for attention_forward: 160/32/160 "), "{text}");
    let own: Vec<&str> = text.lines().filter(|l| l.ends_with("(the kernel's own setting)")).collect();
    assert!(matches!(own.as_slice(), [one] if one.contains(" 160/32/160 ")), "{text}");
}

#[test]
fn the_cycles_of_every_setting_are_of_the_loop_that_computes() {
    let Some(tools) = Tools::find() else { return };
    let source = common::fixtures().join("kernels/copies.cu").display().to_string();
    let ptx = String::from_utf8(tools.run("nvcc", &["-arch=sm_90a", "-ptx", "-o", "-", &source]).0).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings/h200-sxm/profile.yaml");
    let profile = DeviceProfile::from_yaml(&std::fs::read_to_string(path).unwrap(), "profile.yaml").unwrap();
    let roles = Sweep::Roles { most: 20, warpgroups: None };
    let found = study(&ptx, Arch::SM_90A, &roles, Some(&profile), &tools).unwrap();
    assert!(found.rows.len() > 5, "{}", found.render_text());
    for row in &found.rows {
        // With one budget for both roles the machine code does not tell which is which.
        let told = row.setting_registers[0] != row.setting_registers[1];
        assert_eq!(row.predicted.is_some(), told, "{row:?}");
        if let Some(predicted) = &row.predicted {
            // The loop of 176 sums, which two warps a scheduler run, not that of the copies.
            assert_eq!((predicted.region.as_str(), predicted.warps), ("loop:0", 2), "{row:?}");
        }
    }
}

#[test]
fn the_registers_at_launch_are_those_that_the_assembler_gives() {
    let Some(tools) = Tools::find() else { return };
    let ptx = |threads: u32, bounds: &str, inc: u32, dec: u32| {
        format!(
            ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 p)\n.maxntid {threads}, 1, 1\n\
             {bounds}\n{{\n.reg .pred %p;\n.reg .b32 %r;\n.reg .b64 %a;\nmov.u32 %r, %tid.x;\nsetp.lt.u32 %p, %r, 128;\n\
             ld.param.u64 %a, [p];\n@%p bra $L;\nsetmaxnreg.inc.sync.aligned.u32 {inc};\nst.global.u32 [%a], %r;\nret;\n\
             $L:\nsetmaxnreg.dec.sync.aligned.u32 {dec};\nret;\n}}\n"
        )
    };
    for (threads, bounds, inc, dec, launch, pool) in [
        (384, ".minnctapersm 1", 160, 24, 160, 480),
        (384, ".minnctapersm 1", 120, 24, 120, 360),
        (384, ".minnctapersm 1", 240, 24, 168, 504),
        (384, ".minnctapersm 2", 120, 24, 80, 240),
        (512, ".minnctapersm 1", 104, 24, 104, 416),
        (256, ".minnctapersm 1", 128, 40, 128, 256),
        (256, ".minnctapersm 1", 64, 24, 64, 128),
        (256, ".minnctapersm 1", 232, 24, 232, 464),
        (256, ".minnctapersm 1", 256, 24, 255, 512),
        (384, ".maxnreg 128", 160, 24, 128, 384),
    ] {
        let text = ptx(threads, bounds, inc, dec);
        let what = format!("{threads} threads, {bounds}, {inc}/{dec}");
        // The model alone, then with the compiler's own count; both are the cubin's.
        let module = kbt_ptx::parse(&text).unwrap();
        match kbt_sass::regs::RolePlan::new(&module.functions[0], None, 1) {
            Ok(plan) => assert_eq!((plan.launch_registers, plan.pool_registers), (launch, pool), "{what}"),
            Err(e) => panic!("{what}: {e}"),
        }
        let roles = Sweep::Roles { most: 1, warpgroups: None };
        let found = sweep(&text, Arch::SM_90A, &roles, &tools).unwrap();
        assert_eq!(found.plans[0].launch_registers, launch, "{what}");
        assert_eq!(found.rows[0].registers, Some(launch), "{what}");
    }
    // Without a bound on its CTAs ptxas ignores the budgets: it is launched with what it needs.
    let found =
        sweep(&ptx(384, "", 160, 24), Arch::SM_90A, &Sweep::Roles { most: 1, warpgroups: None }, &tools)
            .unwrap();
    assert!(found.plans[0].launch_registers < 24, "{:?}", found.plans[0]);
}
