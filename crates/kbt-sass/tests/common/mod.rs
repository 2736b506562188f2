//! NVIDIA's compilers and disassemblers, where `KBT_CUDA` names them, and the machine code of our own kernels.

#![allow(dead_code, reason = "each test binary takes what it needs")]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "test helpers")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The targets that the fixtures are compiled for.
pub(crate) const ARCHES: [&str; 7] = ["sm_75", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a"];

/// The toolkit in use.
pub(crate) struct Tools {
    bin: PathBuf,
    dir: tempfile::TempDir,
}

impl Tools {
    /// The tools, or `None` with a loud word about it: the one allowed reason to skip.
    pub(crate) fn find() -> Option<Self> {
        let Some(root) = std::env::var_os("KBT_CUDA") else {
            eprintln!("SKIPPED: KBT_CUDA is not set, so nothing was compared with NVIDIA's tools");
            return None;
        };
        let bin = Path::new(&root).join("bin");
        Some(Self { bin, dir: tempfile::tempdir().unwrap() })
    }

    /// Runs a tool and returns its standard output and standard error; it must succeed.
    pub(crate) fn run(&self, tool: &str, args: &[&str]) -> (Vec<u8>, String) {
        let path = std::env::join_paths(
            std::iter::once(self.bin.clone())
                .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
        );
        let output =
            Command::new(self.bin.join(tool)).args(args).env("PATH", path.unwrap()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{tool} {args:?}: {errors}");
        (output.stdout, errors)
    }

    /// Compiles a fixture and returns the cubin's path and what ptxas said.
    pub(crate) fn cubin(&self, kernel: &str, arch: &str, options: &[&str]) -> (String, String) {
        let source = fixtures().join("kernels").join(format!("{kernel}.cu"));
        let name = format!("{kernel}-{arch}-{}.cubin", options.join("").replace(['/', ' ', '='], ""));
        let cubin = self.dir.path().join(name).to_string_lossy().into_owned();
        let arch = format!("-arch={arch}");
        let mut args = vec![arch.as_str(), "-cubin", "-lineinfo", "-Xptxas", "-v", "-o", &cubin];
        args.extend(options);
        let source = source.to_string_lossy().into_owned();
        args.push(&source);
        let (_, said) = self.run("nvcc", &args);
        (cubin, said)
    }
}

/// The folder of this crate's fixtures.
pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/sass")
}

/// Fixture kernels that compile for a target.
pub(crate) fn kernels(arch: &str) -> &'static [&'static str] {
    match arch {
        "sm_90a" | "sm_100a" | "sm_103a" | "sm_120a" => &["forms", "roles"],
        _ => &["forms"],
    }
}
