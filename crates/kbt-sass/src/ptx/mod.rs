//! What PTX shows of the traffic through shared memory: who stores, who is told, who reads.
//!
//! All threads run one control-flow graph; what one thread tells another goes through barriers. Addresses are
//! followed through integer arithmetic from the shared variables; loads, calls and floating point end that.
//! Not seen: functions that are called, addresses that come out of memory, flags in global or shared memory
//! that threads poll, and writes by other CTAs of a cluster.

mod code;
mod effect;
mod eval;
mod handoff;
mod loops;
mod proxy;
mod range;
mod value;

pub use handoff::{Cover, Handoff, Share, Uncounted};

use code::Code;
use effect::{Effect, effects};
use kbt_ptx::{Function, Module};
use std::collections::HashMap;
use value::Base;

/// A function with what its instructions do to shared memory.
pub(crate) struct Traffic<'p> {
    code: Code<'p>,
    effects: Vec<(usize, Effect)>,
}

impl<'p> Traffic<'p> {
    pub(crate) fn new(module: &'p Module, function: &'p Function) -> Self {
        let code = Code::new(function);
        let effects = effects(&code, variables(module, function));
        Self { code, effects }
    }

    fn insn(&self, index: usize) -> &'p kbt_ptx::Instruction {
        self.code.ops[index].insn
    }
}

pub(crate) use handoff::handoffs;
pub(crate) use proxy::{Unfenced, unfenced};

/// The shared variables that a function can name. Arrays of external size all begin at the same place.
fn variables<'p>(module: &'p Module, function: &'p Function) -> HashMap<&'p str, Base> {
    let mut found = HashMap::new();
    let local = function.body.iter().filter_map(|s| match s {
        kbt_ptx::Statement::Declaration(d) => Some(d),
        _ => None,
    });
    for d in module.declarations.iter().chain(local) {
        let external = d.name == ".extern";
        let is_shared = d.name == ".shared" || d.text.split(' ').any(|w| w == ".shared");
        if !is_shared {
            continue;
        }
        // The name is the word before the size: `.align 16 .b8 s[64]`, `.extern .shared .b8 s[]`.
        let before = d.text.split(['[', '=']).next().unwrap_or_default();
        if let Some(name) = before.split([' ', ',']).rfind(|w| !w.is_empty()) {
            let nth = if external { 0 } else { found.len() + 1 };
            found.insert(name, Base::Variable(nth));
        }
    }
    found
}
