//! What a variant of a kernel is: a source file, its knobs, a target; and the digest that names its machine code.
//! The build script includes this file too, so it depends on nothing of this crate. Compiling is in `cache.rs`.

use kbt_device::Arch;
use std::collections::{BTreeMap, BTreeSet};

/// One way to compile a kernel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Variant {
    /// The source, relative to `kernels/`: `attention/attention.cu`.
    pub source: String,
    /// The compile-time knobs, as preprocessor definitions.
    pub defines: BTreeMap<String, String>,
    /// The one target.
    pub arch: Arch,
}

impl Variant {
    /// A kernel with its default knobs for sm_90a.
    #[must_use]
    pub fn new(source: impl Into<String>) -> Self {
        Self { source: source.into(), defines: BTreeMap::new(), arch: Arch::SM_90A }
    }

    /// The same variant with one more knob set.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.defines.insert(name.into(), value.to_string());
        self
    }

    /// The same variant for another target.
    #[must_use]
    pub fn for_arch(mut self, arch: Arch) -> Self {
        self.arch = arch;
        self
    }

    /// The digest of everything its machine code follows from: the target, the knobs, the text of the source and of
    /// every file that it includes, and the compiler. 32 hex digits. None if the source does not exist.
    #[must_use]
    pub fn digest(&self, sources: &Sources, compiler: &str) -> Option<String> {
        let mut hasher = blake3::Hasher::new();
        let mut field = |text: &str| {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        };
        field("kbt-kernel/1");
        field(compiler);
        field(&self.arch.to_string());
        field(&self.source);
        for (name, value) in &self.defines {
            field(name);
            field(value);
        }
        field("");
        for path in sources.closure(&self.source)? {
            field(path);
            field(&sources.files[path]);
        }
        Some(hasher.finalize().to_hex()[..32].to_owned())
    }
}

/// The CUDA sources and headers by path relative to `kernels/`, with `/` between folders.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// Path to text.
    pub files: BTreeMap<String, String>,
}

impl Sources {
    /// The source and every file of this set that it includes, directly or through others; sorted. Files that are
    /// not of this set (the toolkit's own headers) are left out: the compiler's version stands for them.
    #[must_use]
    pub fn closure(&self, source: &str) -> Option<BTreeSet<&str>> {
        let (first, _) = self.files.get_key_value(source)?;
        let mut open = vec![first.as_str()];
        let mut seen = BTreeSet::new();
        while let Some(path) = open.pop() {
            if seen.insert(path) {
                let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                open.extend(includes(&self.files[path]).filter_map(|name| self.resolve(folder, name)));
            }
        }
        Some(seen)
    }

    /// An include as the compiler finds it: beside the including file, then under `include/`.
    fn resolve(&self, folder: &str, name: &str) -> Option<&str> {
        [folder, "include"].into_iter().find_map(|folder| {
            let (path, _) = self.files.get_key_value(&normal(folder, name))?;
            Some(path.as_str())
        })
    }
}

/// The names in the `#include` lines of a text.
fn includes(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim_start();
        let close = if rest.starts_with('<') { '>' } else { '"' };
        rest.get(1..)?.split_once(close).map(|(name, _)| name)
    })
}

/// `folder/name` without `.` and `..`.
fn normal(folder: &str, name: &str) -> String {
    let mut parts = Vec::new();
    for part in folder.split('/').chain(name.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The variants of the attention kernel that are compiled when this crate is built, by name: in each mode the plain
/// setting and those that the ladder compares with it. Any other is compiled on demand. The knobs are stated in
/// full, as `attention::Knobs` states them, because a variant is known by all of its definitions.
#[must_use]
pub fn defaults() -> Vec<(String, Variant)> {
    let plain = Variant::new("attention/attention.cu")
        .with("KBT_PV_MODE", 0)
        .with("KBT_QUANT_FORM", 0)
        .with("KBT_SPLIT_NUM", 1)
        .with("KBT_SPLIT_DEN", 2)
        .with("KBT_CHUNKS", 4)
        .with("KBT_TOPOLOGY", 0)
        .with("KBT_SOURCE_ORDER", 0)
        .with("KBT_EXP2_EIGHTHS", 0)
        .with("KBT_RESCALE_LOG2", 0)
        .with("KBT_SOFTMAX_REGISTERS", 0)
        .with("KBT_TILE_N", 128)
        .with("KBT_ROLLED", 0)
        .with("KBT_HEAD_DIM", 128)
        .with("KBT_TRACE_LEVEL", 0);
    let mut all = Vec::new();
    for (mode, number, forms) in
        [("bf16", 0, &[("linear", 0)][..]), ("fp8", 1, &[("linear", 0), ("log2", 2)]), ("fp4", 2, &FP4_FORMS)]
    {
        for (form, form_number) in forms {
            let base = plain.clone().with("KBT_PV_MODE", number).with("KBT_QUANT_FORM", form_number);
            let name = format!("{mode}-{form}");
            all.push((format!("{name}-coarse"), base.clone().with("KBT_TRACE_LEVEL", 2)));
            // The registers of the scores leave room for one MMA tile that is converted late.
            let registers =
                base.clone().with("KBT_TOPOLOGY", 1).with("KBT_SPLIT_NUM", 7).with("KBT_SPLIT_DEN", 8);
            let pipelined = u32::from(number < 2 || *form_number < 2) * 2;
            let registers = registers.with("KBT_SOURCE_ORDER", pipelined);
            if number < 2 {
                all.push((format!("{name}-registers-d64"), registers.clone().with("KBT_HEAD_DIM", 64)));
            }
            let tile = [176, 192, 128][number];
            all.push((format!("{name}-registers"), registers.with("KBT_TILE_N", tile)));
            // The log2 forms of fp4 have one source order.
            if *form_number < 2 {
                all.push((format!("{name}-exp-first"), base.clone().with("KBT_SOURCE_ORDER", 1)));
            }
            all.push((name, base));
        }
    }
    all
}

const FP4_FORMS: [(&str, u32); 4] = [("linear", 0), ("linear-rcp", 1), ("log2", 2), ("log2-fused", 3)];

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> Sources {
        Sources { files: files.iter().map(|(p, t)| ((*p).to_owned(), (*t).to_owned())).collect() }
    }

    #[test]
    fn the_closure_follows_includes_and_leaves_the_toolkits_out() {
        let sources = sources(&[
            (
                "a/a.cu",
                "#include \"b.cuh\"\n  # include <kbt/c.h>\n#include <stdint.h>\n// #include \"x.h\"\n",
            ),
            ("a/b.cuh", "#include \"../a/b.cuh\"\n#include \"kbt/d.cuh\"\n"),
            ("include/kbt/c.h", ""),
            ("include/kbt/d.cuh", "#include \"c.h\"\n#include \n#include"),
            ("a/x.h", ""),
        ]);
        let closure: Vec<_> = sources.closure("a/a.cu").unwrap().into_iter().collect();
        assert_eq!(closure, ["a/a.cu", "a/b.cuh", "include/kbt/c.h", "include/kbt/d.cuh"]);
        assert!(sources.closure("a/none.cu").is_none());
    }

    #[test]
    fn the_digest_changes_with_everything_that_the_code_follows_from() {
        let set = sources(&[("k.cu", "#include \"h.h\""), ("h.h", "1"), ("other.h", "")]);
        let variant = Variant::new("k.cu").with("A", 1);
        let digest = |v: &Variant, s: &Sources, c: &str| v.digest(s, c).unwrap();
        let base = digest(&variant, &set, "nvcc 13.0.88");
        assert_eq!(base.len(), 32);
        assert_eq!(base, digest(&variant.clone(), &set, "nvcc 13.0.88"));
        let header = sources(&[("k.cu", "#include \"h.h\""), ("h.h", "2")]);
        for other in [
            digest(&variant, &set, "nvcc 13.1.80"),
            digest(&variant.clone().with("A", 2), &set, "nvcc 13.0.88"),
            digest(&variant.clone().with("B", 1), &set, "nvcc 13.0.88"),
            digest(&variant.clone().for_arch(Arch::SM_100A), &set, "nvcc 13.0.88"),
            digest(&variant, &header, "nvcc 13.0.88"),
        ] {
            assert_ne!(base, other);
        }
        let unrelated = sources(&[("k.cu", "#include \"h.h\""), ("h.h", "1"), ("other.h", "changed")]);
        assert_eq!(base, digest(&variant, &unrelated, "nvcc 13.0.88"));
        assert!(Variant::new("none.cu").digest(&set, "").is_none());
    }

    #[test]
    fn default_variants_have_names_of_their_own() {
        let all = defaults();
        let names: BTreeSet<_> = all.iter().map(|(name, _)| name).collect();
        let variants: BTreeSet<_> = all.iter().map(|(_, variant)| variant).collect();
        assert_eq!((names.len(), variants.len()), (all.len(), all.len()));
    }
}
