//! NVIDIA's compilers and disassemblers, where `KBT_CUDA` and `KBT_CUDA_MORE` name them, and the machine code of our
//! own kernels.

#![allow(dead_code, reason = "each test binary takes what it needs")]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "test helpers")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The targets that the fixtures are compiled for.
pub(crate) const ARCHES: [&str; 7] = ["sm_75", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a"];
/// Older targets, which compilers up to 12.9 still have.
pub(crate) const LEGACY: [&str; 6] = ["sm_50", "sm_52", "sm_60", "sm_61", "sm_62", "sm_70"];
/// The target that PTX for the older ones is made for, by a compiler that no longer has them.
const OLDEST: &str = "sm_75";
/// PTX versions to say where ptxas does not know the compiler's own: our kernels use nothing newer.
const PTX_VERSIONS: [&str; 2] = ["8.8", "8.7"];

/// A toolkit; what it lacks (a compiler, a disassembler) is the default toolkit's.
pub(crate) struct Tools {
    /// The toolkit's own folder, then the default one.
    roots: Vec<PathBuf>,
    dir: tempfile::TempDir,
    versions: OnceLock<String>,
}

impl Tools {
    /// The default toolkit, or `None` with a loud word about it: the one allowed reason to skip.
    pub(crate) fn find() -> Option<Self> {
        let Some(root) = std::env::var_os("KBT_CUDA") else {
            eprintln!("SKIPPED: KBT_CUDA is not set, so nothing was compared with NVIDIA's tools");
            return None;
        };
        Some(Self::at(vec![root.into()]))
    }

    /// The toolkits that `KBT_CUDA_MORE` names, separated as in PATH: folders with `bin/` in them, where any of
    /// ptxas, nvdisasm and cuobjdump may be.
    pub(crate) fn more() -> Vec<Self> {
        let (Some(default), Some(named)) = (Self::find(), std::env::var_os("KBT_CUDA_MORE")) else {
            return Vec::new();
        };
        let toolkit = |own: PathBuf| {
            assert!(own.join("bin").is_dir(), "KBT_CUDA_MORE: {} has no bin/", own.display());
            Self::at(vec![own, default.roots[0].clone()])
        };
        std::env::split_paths(&named).map(toolkit).collect()
    }

    fn at(roots: Vec<PathBuf>) -> Self {
        Self { roots, dir: tempfile::tempdir().unwrap(), versions: OnceLock::new() }
    }

    /// Whether the disassemblers are of the same toolkit as the assembler. Others list its machine code too, but
    /// may refuse to follow its control flow.
    pub(crate) fn is_whole(&self) -> bool {
        let own = |tool: &str| self.roots[0].join("bin").join(tool).is_file();
        own("nvdisasm") && own("cuobjdump")
    }

    /// `ptxas 12.8.93, nvdisasm 12.8.55`.
    pub(crate) fn versions(&self) -> &str {
        let version = |tool: &str| {
            let said = String::from_utf8_lossy(&self.run(tool, &["--version"]).0).into_owned();
            let version = said.split(", V").nth(1).and_then(|v| v.split_ascii_whitespace().next());
            format!("{tool} {}", version.unwrap())
        };
        self.versions.get_or_init(|| {
            format!("{}, {}, {}", version("ptxas"), version("nvdisasm"), version("cuobjdump"))
        })
    }

    /// Runs a tool and returns its standard output and standard error; it must succeed.
    pub(crate) fn run(&self, tool: &str, args: &[&str]) -> (Vec<u8>, String) {
        let (output, errors) = self.output(tool, args);
        assert!(output.status.success(), "{tool} {args:?}: {errors}");
        (output.stdout, errors)
    }

    fn output(&self, tool: &str, args: &[&str]) -> (Output, String) {
        let bins = || self.roots.iter().map(|root| root.join("bin"));
        let path = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect::<Vec<_>>();
        let path = std::env::join_paths(bins().chain(path)).unwrap();
        let program = bins().map(|bin| bin.join(tool)).find(|file| file.is_file());
        let program = program.unwrap_or_else(|| panic!("no {tool} in {:?}", self.roots));
        let output = Command::new(program).args(args).env("PATH", path).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (output, errors)
    }

    /// Compiles a fixture and returns the cubin's path and what ptxas said.
    pub(crate) fn cubin(&self, kernel: &str, arch: &str, options: &[&str]) -> (String, String) {
        self.try_cubin(kernel, arch, options).unwrap_or_else(|| panic!("ptxas does not know {arch}"))
    }

    /// The same, `None` where the assembler has no such target.
    pub(crate) fn try_cubin(&self, kernel: &str, arch: &str, options: &[&str]) -> Option<(String, String)> {
        let name = format!("{kernel}-{arch}-{}", options.join("").replace(['/', ' ', '='], ""));
        let file =
            |ending: &str| self.dir.path().join(format!("{name}.{ending}")).to_string_lossy().into_owned();
        let (ptx, cubin) = (file("ptx"), file("cubin"));
        let compiled_for = if LEGACY.contains(&arch) { OLDEST } else { arch };
        let source = source(kernel).to_string_lossy().into_owned();
        let include = project().join("kernels/include").to_string_lossy().into_owned();
        let target = format!("-arch={compiled_for}");
        let mut args = vec![&*target, "-ptx", "-std=c++17", "-lineinfo", "-I", &include, "-o", &ptx];
        args.extend(options);
        args.push(&source);
        let default = Self::at(self.roots.last().cloned().into_iter().collect());
        default.run("nvcc", &args);
        let text = std::fs::read_to_string(&ptx).unwrap();
        let text = text.replace(&format!(".target {compiled_for}"), &format!(".target {arch}"));
        let version = text.lines().find(|l| l.starts_with(".version")).unwrap().to_owned();
        let lower = PTX_VERSIONS.iter().map(|v| text.replace(&version, &format!(".version {v}")));
        let target = format!("-arch={arch}");
        for text in std::iter::once(text.clone()).chain(lower) {
            std::fs::write(&ptx, text).unwrap();
            let args = [&*target, "-v", "-lineinfo", "-o", &cubin, &ptx];
            let (output, errors) = self.output("ptxas", &args);
            let said = String::from_utf8_lossy(&output.stdout).into_owned() + &errors;
            if output.status.success() {
                return Some((cubin, said));
            }
            if said.contains("is not defined for option 'gpu-name'") {
                return None;
            }
            assert!(said.contains("Unsupported .version"), "ptxas {args:?}: {said}");
        }
        panic!("ptxas knows none of the PTX versions {PTX_VERSIONS:?} and `{version}`");
    }
}

/// Whether every form of every target is compared (`KBT_SASS_FORMS=all`), which takes minutes.
pub(crate) fn is_full() -> bool {
    std::env::var_os("KBT_SASS_FORMS").is_some_and(|forms| forms == "all")
}

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A kernel's source: a fixture, or one of the project's own.
fn source(kernel: &str) -> PathBuf {
    let own = project().join("kernels").join(kernel).join(format!("{kernel}.cu"));
    if own.is_file() { own } else { fixtures().join("kernels").join(format!("{kernel}.cu")) }
}

/// The folder of this crate's fixtures.
pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/sass")
}

/// Kernels that compile for a target.
pub(crate) fn kernels(arch: &str) -> &'static [&'static str] {
    match arch {
        "sm_90a" => &["forms", "roles", "quant_step", "attention"],
        "sm_100a" | "sm_103a" | "sm_120a" => &["forms", "roles", "quant_step"],
        _ => &["forms", "quant_step"],
    }
}
