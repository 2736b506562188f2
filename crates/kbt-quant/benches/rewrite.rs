//! What a search takes: each built-in program on the H200's measured rates and on ptxas's for sm_103a, in seconds and as
//! a multiple of one replay of the same program.

#![allow(clippy::print_stdout, reason = "a benchmark prints its result")]

use kbt_device::embedded_profile;
use kbt_quant::cost::CostModel;
use kbt_quant::lang::{BUILTIN, Program};
use kbt_quant::rewrite::{Limits, replay, search};
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    println!("{:28} {:10} {:>10} {:>16}", "program", "device", "search, s", "replays as long");
    for device in ["h200-sxm", "sm_103a"] {
        let profile = embedded_profile(device).ok_or("no such profile")??;
        for (name, text) in BUILTIN {
            let program: Program = text.parse()?;
            let start = Instant::now();
            black_box(replay(&program, &program));
            let one = start.elapsed().as_secs_f64();
            let start = Instant::now();
            black_box(search(&program, &CostModel::new(&profile, program.layout), &Limits::default())?);
            let took = start.elapsed().as_secs_f64();
            println!("{name:28} {device:10} {took:10.3} {:16.1}", took / one);
        }
    }
    Ok(())
}
