//! Tests of the inference as a whole: hidden resource maps, times with 1 % of noise, and no claim that is wrong.

use super::infer::infer;
use super::outcome::PipesOutcome;
use super::synthetic::{Device, explore};

/// Every claim of an outcome that the hidden map contradicts.
fn mistakes(device: &Device, outcome: &PipesOutcome) -> Vec<String> {
    let at = |name: &str| device.names.iter().position(|n| n == name).unwrap();
    let is_full = |i: usize, r: usize| (device.usages[i][r] - device.alone(i)).abs() < 1e-9;
    let share = |i: usize, j: usize| (0..device.usages[0].len()).any(|r| is_full(i, r) && is_full(j, r));
    let mut wrong = Vec::new();
    let rows: Vec<_> =
        outcome.instructions.iter().filter(|r| !r.bottleneck.is_empty() && r.companions.is_empty()).collect();
    for (k, a) in rows.iter().enumerate() {
        for b in &rows[k + 1..] {
            let (ab, ba) = (
                format!("{} + {}", a.instruction, b.instruction),
                format!("{} + {}", b.instruction, a.instruction),
            );
            if outcome.unidentifiable.iter().any(|u| u.what == ab || u.what == ba) {
                continue;
            }
            let together = a.bottleneck.iter().any(|r| b.bottleneck.contains(r));
            if together != share(at(&a.instruction), at(&b.instruction)) {
                let say = if together { "together" } else { "apart" };
                wrong.push(format!("{} and {} {say}", a.instruction, b.instruction));
            }
        }
    }
    for row in outcome.instructions.iter().filter(|r| r.companions.is_empty()) {
        let i = at(&row.instruction);
        for used in &row.usage {
            let resource = outcome.resources.iter().find(|r| r.name == used.resource).unwrap();
            let j = at(&resource.representative);
            // What the hidden map says of the representative's bottleneck; of several, all are one to throughput.
            let truth = (0..device.usages[j].len()).filter(|&r| is_full(j, r)).map(|r| device.usages[i][r]);
            let truth = truth.fold(0.0, f64::max);
            let slack = 0.03 * device.alone(i);
            if truth < used.least_cycles - slack || truth > used.most_cycles + slack {
                wrong.push(format!(
                    "{} uses {truth} of {}'s, not {used:?}",
                    row.instruction, resource.representative
                ));
            }
        }
    }
    wrong
}

/// The pipes of a Hopper SM as its documents have them, by numbers: ALU, FMA heavy, XU, LSU, FP64, tensor, uniform.
fn hopper_like() -> Device {
    let mut d = Device::new(7);
    let pipe = |d: &mut Device, r: usize, list: &[(&str, f64)]| {
        for (name, cycles) in list {
            let mut usage = vec![0.0; 7];
            usage[r] = *cycles;
            d.add(name, &usage);
        }
    };
    // Order as a spec might have it: kinds mixed, the ones that fill the issue port among them.
    pipe(&mut d, 0, &[("fma", 0.0), ("fmnmx", 2.0), ("fsetp", 2.0)]);
    pipe(
        &mut d,
        2,
        &[("ex2", 8.0), ("rcp", 8.0), ("popc", 8.0), ("flo", 8.0), ("brev", 8.0), ("f2i", 8.0), ("i2f", 8.0)],
    );
    pipe(&mut d, 1, &[("imad", 2.0), ("idp", 2.0), ("imad_hi", 4.0), ("hadd2_f32", 2.0)]);
    pipe(
        &mut d,
        0,
        &[
            ("lop3", 2.0),
            ("prmt", 2.0),
            ("sel", 2.0),
            ("fsel", 2.0),
            ("iadd3", 2.0),
            ("shf", 2.0),
            ("f2fp", 2.0),
        ],
    );
    pipe(
        &mut d,
        0,
        &[("i2fp", 2.0), ("vimnmx", 2.0), ("hmnmx2", 2.0), ("isetp", 2.0), ("plop3", 2.0), ("lea", 2.0)],
    );
    pipe(&mut d, 3, &[("shfl", 4.0), ("lds", 4.0), ("lds128", 16.0), ("ldsm", 4.0), ("sts", 4.0)]);
    pipe(&mut d, 4, &[("dadd", 2.0), ("dfma", 2.0)]);
    pipe(&mut d, 5, &[("hmma", 6.0), ("imma", 6.0)]);
    pipe(&mut d, 6, &[("redux", 8.0), ("uiadd3", 2.0), ("r2ur", 2.0)]);
    d.add("fadd", &[0.0; 7]);
    d
}

#[test]
fn a_hopper_like_map_is_recovered_from_three_hundred_mixes() {
    for seed in 1..=20 {
        let mut device = hopper_like();
        device.seed(seed);
        let mixes = explore(&mut device, 300);
        let outcome = infer(&mixes);
        assert_eq!(mistakes(&device, &outcome), Vec::<String>::new(), "seed {seed}");
        assert_eq!(outcome.resources.len(), 7, "seed {seed}: {}", outcome.render_text());
        assert!(mixes.mixes.len() <= 300);
        let lanes: Vec<f64> = outcome.resources.iter().map(|r| r.lanes_per_clk_sm).collect();
        assert_eq!(lanes, [64.0, 16.0, 64.0, 32.0, 64.0, 21.333, 64.0], "seed {seed}");
        assert_eq!(outcome.resources[0].members.len(), 15, "seed {seed}");
        assert!(
            outcome.unidentifiable.iter().any(|u| u.what == "fma" && u.why.contains("fills the issue port"))
        );
        let hi = outcome.row("imad_hi").unwrap().usage.iter().find(|u| u.resource == "r3").unwrap();
        assert_eq!(hi.units, Some(2.0), "seed {seed}");
    }
}

/// The same with operands: three registers an instruction of many, double words, and one that needs more than its pipe.
fn with_register_ports() -> Device {
    let mut device = hopper_like();
    for (i, name) in device.names.iter().enumerate() {
        device.ports[i] = match name.as_str() {
            "lop3" | "prmt" | "iadd3" | "shf" | "lea" | "imad" | "idp" => 1.5,
            "dadd" | "dfma" => 1.8,
            "hmma" | "imma" => 5.0,
            "lds128" | "sts" => 2.0,
            "fma" => 0.95,
            _ => 1.0,
        };
    }
    device.uneven = 0.04;
    // Two instructions, one of the ALU; its operands take longer than that.
    device
        .add("viadd_lop3", &[2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
        .with_opcodes(&[("VIADD", 1.0), ("LOP3", 1.0)]);
    device.ports.pop();
    device.ports.push(2.4);
    device
}

#[test]
fn register_ports_that_hold_up_mixes_are_not_taken_for_a_pipe() {
    for seed in 1..=10 {
        let mut device = with_register_ports();
        device.seed(seed);
        let mixes = explore(&mut device, 300);
        let outcome = infer(&mixes);
        assert_eq!(mistakes(&device, &outcome), Vec::<String>::new(), "seed {seed}");
        assert_eq!(outcome.resources.len(), 7, "seed {seed}: {}", outcome.render_text());
        assert_eq!(outcome.resources[0].members.len(), 15, "seed {seed}: {}", outcome.render_text());
        assert!(
            outcome.largest_error_percent < 8.0,
            "seed {seed}: {}: the ports are predicted",
            outcome.largest_error_percent
        );
        let said = outcome.unidentifiable.iter().find(|u| u.what == "viadd_lop3").unwrap();
        assert!(said.why.contains("register ports"), "{said:?}");
    }
}

#[test]
fn a_loss_where_two_resources_are_full_makes_no_mistake() {
    for seed in 1..=10 {
        let mut device = hopper_like();
        device.loss = 0.25;
        device.seed(seed);
        let outcome = infer(&explore(&mut device, 300));
        assert_eq!(mistakes(&device, &outcome), Vec::<String>::new(), "seed {seed}");
        assert_eq!(outcome.resources.len(), 7, "seed {seed}");
    }
}

#[test]
fn partial_uses_and_companions_are_found() {
    let mut device = Device::new(4);
    device.add("alu", &[2.0, 0.0, 0.0, 0.0]).add("xu", &[0.0, 8.0, 0.0, 0.0]);
    device.add("lsu", &[0.0, 0.0, 4.0, 0.0]).add("imad", &[0.0, 0.0, 0.0, 2.0]);
    // An XU operation that also takes the ALU for two cycles, and some that cannot be had without an ALU one.
    device.add("both", &[2.0, 8.0, 0.0, 0.0]);
    device.add("vote", &[4.0, 0.0, 0.0, 0.0]).with_opcodes(&[("VOTE", 1.0), ("ALU", 1.0)]);
    device.add("viadd", &[2.0, 0.0, 0.0, 2.0]).with_opcodes(&[("VIADD", 1.0), ("ALU", 1.0)]);
    device.add("odd", &[4.0, 0.0, 0.0, 0.0]).with_opcodes(&[("ODD", 1.0), ("STRANGE", 1.0)]);
    for seed in 1..=10 {
        device.seed(seed);
        let mixes = explore(&mut device, 300);
        let outcome = infer(&mixes);
        assert_eq!(mistakes(&device, &outcome), Vec::<String>::new(), "seed {seed}");
        let used = |name: &str, r: &str| {
            let row = outcome.row(name).unwrap();
            row.usage.iter().find(|u| u.resource == r).map(|u| (u.least_cycles, u.most_cycles))
        };
        // Two cycles; some of it might be a loss by waiting warps.
        let (least, most) = used("both", "r1").unwrap();
        assert!(least >= 1.0 && most == 2.0, "seed {seed}: {least} to {most}: {}", outcome.render_text());
        assert_eq!(outcome.row("vote").unwrap().bottleneck, ["r1"], "seed {seed}");
        assert!((used("vote", "r1").unwrap().0 - 2.0).abs() < 0.1, "seed {seed}: {:?}", used("vote", "r1"));
        // Two instructions in two cycles fill the issue port; what each takes shows all the same.
        assert_eq!(
            outcome.row("viadd").unwrap().bottleneck,
            ["r4"],
            "seed {seed}: {}",
            outcome.render_text()
        );
        let odd = outcome.unidentifiable.iter().find(|u| u.what == "odd").unwrap();
        assert!(odd.why.contains("STRANGE"), "{odd:?}");
        assert!(outcome.row("odd").unwrap().bottleneck.is_empty());
    }
}

#[test]
fn what_is_a_little_slower_than_its_companion_is_no_member_of_the_companions_resource() {
    let mut device = Device::new(2);
    device.noise = 0.0;
    device.add("alu", &[2.0, 0.0]).add("prmt", &[2.0, 0.0]).add("imad", &[0.0, 2.0]);
    device.add("near", &[2.5, 0.0]).with_opcodes(&[("NEAR", 1.0), ("ALU", 1.0)]);
    let outcome = infer(&explore(&mut device, 300));
    assert_eq!(outcome.resources[0].members, ["alu", "prmt"], "{}", outcome.render_text());
    let said = outcome.unidentifiable.iter().find(|u| u.what == "near").unwrap();
    assert!(said.why.contains("companions are the bottleneck"), "{said:?}");
}

#[test]
fn the_outcome_is_written_and_read_back_alike_and_every_number_is_covered() {
    let mut device = hopper_like();
    let outcome = infer(&explore(&mut device, 60));
    let back: PipesOutcome = serde_yaml::from_str(&outcome.to_yaml().unwrap()).unwrap();
    assert_eq!(back, outcome);
    let json = serde_json::to_value(&outcome).unwrap();
    assert_eq!(kbt_evidence::audit::uncovered_numbers(&json), Vec::<String>::new());
}

/// A map drawn at random: each instruction has a bottleneck, some have two, some use others in part.
fn random_map(seed: u64) -> Device {
    let mut draw = Device::new(0);
    draw.seed(seed);
    let mut pick = |n: usize| (draw.random() * n as f64) as usize;
    let resources = 3 + pick(4);
    let mut device = Device::new(resources);
    device.seed(seed ^ 0xabcd);
    let count = 12 + pick(20);
    let mut order: Vec<usize> = Vec::new();
    while order.len() < resources {
        let at = pick(count);
        if !order.contains(&at) {
            order.push(at);
        }
    }
    for i in 0..count {
        let cycles = [2.0, 2.0, 4.0, 8.0][pick(4)];
        let mut usage = vec![0.0; resources];
        // Each resource has an instruction to itself, and they come at random places of the list.
        let own = order.iter().position(|&at| at == i);
        usage[own.unwrap_or_else(|| pick(resources))] = cycles;
        match if own.is_some() { 9 } else { pick(10) } {
            0 => usage[pick(resources)] = cycles,
            // Whole and half cycles up to half of the bottleneck's.
            1 | 2 => {
                let r = pick(resources);
                if usage[r] == 0.0 {
                    usage[r] = 0.5 * (1 + pick(cycles as usize)) as f64;
                }
            }
            _ => {}
        }
        device.add(&format!("i{i}"), &usage);
    }
    device
}

#[test]
fn a_resource_that_none_has_to_itself_is_declared() {
    let mut device = Device::new(3);
    device.add("x", &[2.0, 0.0, 0.0]).add("y", &[0.0, 4.0, 0.0]);
    device.add("xz", &[2.0, 0.0, 2.0]).add("yz", &[0.0, 4.0, 4.0]);
    let outcome = infer(&explore(&mut device, 300));
    assert_eq!(mistakes(&device, &outcome), Vec::<String>::new());
    let said = outcome.unidentifiable.iter().find(|u| u.what == "xz + yz").unwrap();
    assert!(said.why.contains("a further one"), "{said:?}");
}

#[test]
fn on_random_maps_no_claim_is_wrong() {
    let (mut claims, mut total) = (0, 0);
    for seed in 1..=200 {
        let mut device = random_map(seed);
        let mixes = explore(&mut device, 300);
        assert!(mixes.mixes.len() <= 300, "seed {seed}");
        let outcome = infer(&mixes);
        let wrong = mistakes(&device, &outcome);
        assert_eq!(
            wrong,
            Vec::<String>::new(),
            "seed {seed}:\n{}\n{:?}",
            outcome.render_text(),
            device.usages
        );
        claims += outcome.instructions.iter().filter(|r| !r.bottleneck.is_empty()).count();
        total += outcome.instructions.len();
    }
    // Saying nothing would be right as well; it would be no inference.
    assert!(claims * 20 >= total * 19, "{claims} of {total} instructions have a resource");
}
