//! What an entry must be before anything is made of it.

use super::{Entry, data, version};
use crate::verify::LARGEST_BODY;
use kbt_device::Arch;

/// The most elements that one instruction can give a lane: the accumulators of the largest matrix product.
const MOST_RESULTS: f64 = 65_536.0;
/// No body of more operations than this can be timed.
const MOST_UNROLL: u32 = LARGEST_BODY as u32 / 2;
/// Copies of a value that a thread's registers can hold beside its chains.
const MOST_ROTATE: u32 = 32;

/// A way back of more instructions of one mnemonic than this is no way back.
const MOST_BACK: f64 = 16.0;

impl Entry {
    /// Why no row can be made of the entry, and what would do.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.name.trim().is_empty() || self.name.chars().any(char::is_control) {
            return Err("a name of one line with something in it is expected".into());
        }
        if self.compound != self.target.is_empty() {
            return Err("needs `target` mnemonics, or `compound: true` and none".into());
        }
        if let Some(empty) = self.target.iter().find(|t| t.trim_end_matches('*').is_empty()) {
            return Err(format!("target `{empty}` names no mnemonic; write one, as FFMA or F2FP.*"));
        }
        if !(self.results > 0.0 && self.results <= MOST_RESULTS) {
            return Err(format!(
                "results is {}; a number above 0 and up to {MOST_RESULTS} is expected",
                self.results
            ));
        }
        if let Some(ptx) = self.ptx.as_deref().filter(|v| version(v).is_none()) {
            return Err(format!("ptx `{ptx}` is no PTX version; two numbers as in \"8.6\" are expected"));
        }
        for (key, name) in [("only", &self.only), ("except", &self.except)]
            .into_iter()
            .flat_map(|(key, list)| list.iter().map(move |name| (key, name)))
        {
            if name.starts_with("sm_") || format!("sm_{name}").parse::<Arch>().is_err() {
                return Err(format!(
                    "{key}: `{name}` is no compile target; write it without sm_, as 90a or 120a"
                ));
            }
        }
        if self.chains.is_empty() {
            return Err("needs at least one form under `chains`".into());
        }
        for (form, chain) in &self.chains {
            if chain.rotate == 0 || chain.ops == 0 || chain.unroll < 8 * chain.ops {
                return Err(format!("form `{form}`: rotate and ops are at least 1, unroll at least 8 x ops"));
            }
            if chain.unroll > MOST_UNROLL || chain.rotate > MOST_ROTATE {
                return Err(format!(
                    "form `{form}`: unroll {} and rotate {}; up to {MOST_UNROLL} and {MOST_ROTATE} can be used: the larger \
                     body holds 2 x unroll operations, and at most {LARGEST_BODY} instructions",
                    chain.unroll, chain.rotate
                ));
            }
            for name in chain.with.keys().chain(chain.temp.keys()) {
                if name == "x" || !name.bytes().all(|b| b.is_ascii_lowercase()) {
                    return Err(format!(
                        "form `{form}`: `{name}` is no name for a register; use letters a-w, y, z"
                    ));
                }
            }
            if let Some(name) = chain.with.keys().find(|name| chain.temp.contains_key(*name)) {
                return Err(format!(
                    "form `{form}`: `{name}` is under `with` and under `temp`; name one of them otherwise"
                ));
            }
            if let Some((name, kind)) = chain.temp.iter().find(|(_, k)| !data::is_register_kind(k)) {
                return Err(format!(
                    "form `{form}`: temp `{name}` has kind `{kind}`; {}",
                    data::REGISTER_KINDS
                ));
            }
            if !self.compound && !chain.back.is_empty() {
                return Err(format!(
                    "form `{form}`: `back` is for compound operations; of others all that is no `target` is the way back"
                ));
            }
            if let Some((opcode, n)) = chain.back.iter().find(|(_, n)| !(**n > 0.0 && **n <= MOST_BACK)) {
                return Err(format!(
                    "form `{form}`: back `{opcode}` is {n}; a number above 0 and up to {MOST_BACK} is expected"
                ));
            }
            if !chain.step.contains("%x") {
                return Err(format!("form `{form}`: the step does not use its state `%x`"));
            }
        }
        Ok(())
    }
}
