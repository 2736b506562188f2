//! What a kernel's machine code says of its implementation. The listing is read by whoever has it; here opcodes
//! become the facts that checks read.

use kbt_evidence::Provenance;

/// Facts of one kernel's machine code.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineCode {
    /// The function's name in the listing.
    pub function: String,
    /// Bytes that one thread spills, each store counted once; 0 where nothing is spilled.
    pub spill_bytes: f64,
    /// Whether some warps run regions of their own.
    pub has_roles: bool,
    /// The matrix instruction: `wgmma`, `tcgen05`, `mma.sync`; none where there is none.
    pub matrix_instruction: Option<&'static str>,
    /// Whether data reaches shared memory without passing through registers.
    pub asynchronous_copies: bool,
    /// Bytes of the widest access of one thread to global memory; none where there is no such access.
    pub widest_access_bytes: Option<f64>,
    /// How this is known: the tools and their versions.
    pub provenance: Provenance,
}

impl MachineCode {
    /// Reads the facts off a function's opcodes (`LDG.E.128.CONSTANT`), of every instruction or of each kind once.
    #[must_use]
    pub fn of<'a>(
        function: impl Into<String>,
        opcodes: impl IntoIterator<Item = &'a str>,
        spill_bytes: u64,
        has_roles: bool,
        provenance: Provenance,
    ) -> Self {
        let mut found = Self {
            function: function.into(),
            spill_bytes: spill_bytes as f64,
            has_roles,
            matrix_instruction: None,
            asynchronous_copies: false,
            widest_access_bytes: None,
            provenance,
        };
        for opcode in opcodes {
            let (base, modifiers) = opcode.split_once('.').unwrap_or((opcode, ""));
            found.matrix_instruction = found.matrix_instruction.max(matrix(base));
            found.asynchronous_copies |= copies(base);
            if matches!(base, "LDG" | "STG") {
                let bytes = access_bytes(modifiers);
                found.widest_access_bytes = Some(found.widest_access_bytes.unwrap_or(0.0).max(bytes));
            }
        }
        found
    }
}

/// The PTX name of a matrix instruction. Where a function has several the newest counts, which is also the last in
/// alphabetical order.
fn matrix(base: &str) -> Option<&'static str> {
    match base {
        "HGMMA" | "QGMMA" | "IGMMA" | "BGMMA" => Some("wgmma"),
        "HMMA" | "QMMA" | "IMMA" | "BMMA" | "DMMA" | "OMMA" => Some("mma.sync"),
        tcgen05 if tcgen05.starts_with("UTC") && tcgen05.ends_with("MMA") => Some("tcgen05"),
        _ => None,
    }
}

/// cp.async, the bulk copies and those of tensors.
fn copies(base: &str) -> bool {
    matches!(base, "LDGSTS" | "UBLKCP") || base.starts_with("UTMALD")
}

/// Bytes of one thread's access: 4 where the opcode names no width.
fn access_bytes(modifiers: &str) -> f64 {
    let width = |m: &str| match m {
        "U8" | "S8" => Some(1.0),
        "U16" | "S16" => Some(2.0),
        "64" => Some(8.0),
        "128" => Some(16.0),
        "256" => Some(32.0),
        _ => None,
    };
    modifiers.split('.').find_map(width).unwrap_or(4.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(opcodes: &[&str]) -> MachineCode {
        MachineCode::of("f", opcodes.iter().copied(), 0, false, Provenance::mined("nvdisasm 13.0"))
    }

    #[test]
    fn opcodes_say_what_multiplies_how_data_comes_and_how_wide() {
        let plain = of(&["LDG.E.128.CONSTANT", "HMMA.16816.F32.BF16", "STG.E.64"]);
        assert_eq!((plain.matrix_instruction, plain.asynchronous_copies), (Some("mma.sync"), false));
        assert_eq!(plain.widest_access_bytes, Some(16.0));
        let hopper = of(&["UTMALDG.2D", "HGMMA.64x128x16.F32.BF16", "HMMA.16816.F32", "STG.E"]);
        assert_eq!((hopper.matrix_instruction, hopper.asynchronous_copies), (Some("wgmma"), true));
        assert_eq!(hopper.widest_access_bytes, Some(4.0));
        assert_eq!(of(&["UTCHMMA", "LDGSTS.E.BYPASS.128"]).matrix_instruction, Some("tcgen05"));
        let none = of(&["FFMA", "UTMASTG.2D", "LDG.E.U16"]);
        assert_eq!((none.matrix_instruction, none.asynchronous_copies), (None, false));
        assert_eq!(none.widest_access_bytes, Some(2.0));
        assert_eq!(of(&["FFMA"]).widest_access_bytes, None);
    }
}
