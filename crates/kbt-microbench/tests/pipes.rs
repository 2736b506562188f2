//! What a real ptxas makes of the kernels of `pipes`. Needs the compilers that KBT_CUDA names; without the variable the
//! tests say so and return.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests")]

use kbt_device::Arch;
use kbt_microbench::pipes::assemble::{Assembler, Built, Item};
use kbt_microbench::pipes::subjects::subjects;
use kbt_microbench::pipes::{Refused, counts};
use kbt_microbench::prepare::PreparedPart;
use kbt_toolchain::Toolchain;

fn tools(test: &str) -> Option<Toolchain> {
    if std::env::var_os("KBT_CUDA").is_none() {
        eprintln!("KBT_CUDA is not set: {test} not run");
        return None;
    }
    Some(Toolchain::find().unwrap())
}

fn part(name: &str) -> PreparedPart {
    subjects(Arch::SM_90A).unwrap().into_iter().find(|p| p.entry.name == name).unwrap()
}

fn build(tools: &Toolchain, items: &[Item]) -> Vec<Result<Built, Refused>> {
    Assembler::new(tools, Arch::SM_90A, None).unwrap().build(items).unwrap()
}

#[test]
fn instructions_alone_are_what_their_names_say_and_keep_their_companions() {
    let Some(tools) = tools("instructions_alone_are_what_their_names_say_and_keep_their_companions") else {
        return;
    };
    let names =
        ["lop3.b32", "fma.rn.f16", "add.immediate.u32", "read.warpid", "redux.sync.add.s32", "add.uniform"];
    let parts: Vec<PreparedPart> = names.iter().map(|n| part(n)).collect();
    let built = build(&tools, &parts.iter().map(Item::solo).collect::<Vec<_>>());
    let solos: Vec<_> = built.into_iter().map(|b| b.unwrap().solo(1.0)).collect();
    let targets: Vec<&str> = solos.iter().map(|s| s.targets[0].as_str()).collect();
    assert_eq!(targets, ["LOP3.LUT", "HFMA2", "VIADD", "S2R", "REDUX.SUM.S32", "UIADD3"]);
    assert!(solos[0].is_clean() && solos[1].is_clean());
    assert_eq!(solos[2].opcodes["LOP3.LUT"], 1.0, "{:?}", solos[2].opcodes);
}

#[test]
fn a_mix_holds_what_its_parts_hold_alone_and_another_count_is_refused() {
    let Some(tools) = tools("a_mix_holds_what_its_parts_hold_alone_and_another_count_is_refused") else {
        return;
    };
    let parts = ["ex2.approx.ftz.f32", "setp.lt.s32"].map(part);
    let solos: Vec<_> =
        build(&tools, &parts.each_ref().map(Item::solo)).into_iter().map(|b| b.unwrap().solo(4.0)).collect();
    let counts = counts([8.0, 4.0], [1.0, 2.0], [1, 1], 0.6);
    let mix = Item::mix([&parts[0], &parts[1]], [&solos[0], &solos[1]], counts);
    assert!(build(&tools, std::slice::from_ref(&mix))[0].is_ok());
    let mut wrong = mix;
    wrong.alone[1].insert("PRMT".to_owned(), 1.0);
    let refused = build(&tools, &[wrong]).remove(0).unwrap_err();
    assert!(refused.why.contains("PRMT") && refused.why.contains("compiled in another way"), "{refused:?}");
}

#[test]
fn moves_may_trade_pipes_where_neither_pipe_matters_and_nowhere_else() {
    let Some(tools) = tools("moves_may_trade_pipes_where_neither_pipe_matters_and_nowhere_else") else {
        return;
    };
    // A reduction's result is moved from a uniform register: by IMAD.U32, or by MOV beside many IMADs.
    let parts = ["redux.sync.add.s32", "read.clock_hi.uniform", "mad.lo.s32"].map(part);
    let solos: Vec<_> = build(&tools, &parts.each_ref().map(Item::solo))
        .into_iter()
        .zip([8.0, 8.0, 2.0])
        .map(|(b, cycles)| b.unwrap().solo(cycles))
        .collect();
    assert_eq!(solos[0].opcodes["IMAD.U32"], 1.0, "{:?}", solos[0].opcodes);
    let mix =
        |other: usize, counts| Item::mix([&parts[0], &parts[other]], [&solos[0], &solos[other]], counts);
    let mut built = build(&tools, &[mix(1, [3, 5]), mix(1, [5, 3]), mix(1, [4, 4]), mix(2, [1, 7])]);
    let beside_mad = built.pop().unwrap().unwrap_err();
    assert!(
        beside_mad.why.contains("IMAD.U32") && beside_mad.why.contains("in another way"),
        "{beside_mad:?}"
    );
    for built in built {
        assert!(built.is_ok(), "{:?}", built.err());
    }
}

#[test]
fn a_kept_module_is_the_same_and_two_users_of_shared_memory_are_refused() {
    let Some(tools) = tools("a_kept_module_is_the_same_and_two_users_of_shared_memory_are_refused") else {
        return;
    };
    let dir = std::env::temp_dir().join(format!("kbt-pipes-{}", std::process::id()));
    let assembler = Assembler::new(&tools, Arch::SM_90A, Some(&dir)).unwrap();
    let item = Item::solo(&part("popc.b32")).named_as_is();
    let first = assembler.build(std::slice::from_ref(&item)).unwrap().remove(0).unwrap();
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 2, "one machine code and one listing");
    let again = assembler.build(&[item]).unwrap().remove(0).unwrap();
    assert_eq!((&first.cubin, first.verified().plans[0].name.as_str()), (&again.cubin, "popc_b32"));
    std::fs::remove_dir_all(&dir).unwrap();

    let parts = ["ld.shared.b32", "ldmatrix.x1"].map(part);
    let solos: Vec<_> =
        build(&tools, &parts.each_ref().map(Item::solo)).into_iter().map(|b| b.unwrap().solo(4.0)).collect();
    let mix = Item::mix([&parts[0], &parts[1]], [&solos[0], &solos[1]], [3, 5]);
    let refused = build(&tools, &[mix]).remove(0).unwrap_err();
    assert!(refused.why.contains("same shared memory"), "{refused:?}");
}

#[test]
fn a_template_that_ptxas_rejects_does_not_take_the_others_along() {
    let Some(tools) = tools("a_template_that_ptxas_rejects_does_not_take_the_others_along") else { return };
    let mut bad = part("prmt.b32");
    bad.chain.step = "frobnicate.b32 %x, %x;".to_owned();
    let built = build(
        &tools,
        &[Item::solo(&part("lop3.b32")), Item::solo(&bad), Item::solo(&part("shf.l.wrap.b32"))],
    );
    assert_eq!(built.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    let refused = built[1].as_ref().unwrap_err();
    assert!(refused.why.contains("frobnicate"), "{refused:?}");
}

#[test]
fn what_stands_for_a_resource_leaves_the_register_ports_free() {
    let Some(tools) = tools("what_stands_for_a_resource_leaves_the_register_ports_free") else { return };
    // Cycles that each takes alone, by its rate.
    let names = [
        ("lop3.b32", 2.0),
        ("mad.lo.s32", 2.0),
        ("shfl.sync.bfly.b32", 4.0),
        ("add.rn.f64", 2.0),
        ("fma.rn.f64", 2.0),
        ("dp4a.s32", 2.0),
        ("prmt.b32", 2.0),
        ("shf.l.wrap.b32", 2.0),
    ];
    let items: Vec<Item> = names.iter().map(|(n, _)| Item::solo(&part(n))).collect();
    for ((name, cycles), built) in names.iter().zip(build(&tools, &items)) {
        let built = built.unwrap();
        let [least, most] = built.register_port_cycles;
        assert!(
            0.0 < least && least <= most && most <= 0.6 * cycles,
            "{name}: {least} to {most} of {cycles}"
        );
        assert_eq!(built.solo(*cycles).register_port_cycles.unwrap()[1], (most * 1000.0).round() / 1000.0);
    }
}
