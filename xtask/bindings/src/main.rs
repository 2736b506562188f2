//! Regenerates the Rust bindings of the C headers that kernels and Rust share, or checks (`--check`) that what is
//! committed is what bindgen makes of them. Needs libclang (`apt-get install libclang-dev`); nothing else here does.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool prints")]

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

/// Header to bindings, from the repository's root.
const BINDINGS: [(&str, &str); 2] = [
    ("kernels/include/kbt/trace_format.h", "crates/kbt-trace/src/bindings.rs"),
    ("kernels/include/kbt/attention.h", "kernels/src/bindings.rs"),
];

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let check = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--check"] => true,
        _ => {
            eprintln!("usage: kbt-bindings [--check]");
            return ExitCode::from(2);
        }
    };
    match run(check) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("kbt-bindings: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether every file is, or now is, what bindgen makes.
fn run(check: bool) -> Result<bool, Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    // bindgen panics where it finds no libclang: ask first, and say it in one line.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let clang = std::panic::catch_unwind(bindgen::clang_version);
    std::panic::set_hook(hook);
    if clang.is_err() {
        return Err(
            "libclang cannot be loaded; install it (apt-get install libclang-dev) or name its folder in \
                    LIBCLANG_PATH"
                .into(),
        );
    }
    let mut fresh = true;
    for (header, to) in BINDINGS {
        let made = generate(&root, header)?;
        let path = root.join(to);
        if check {
            let committed = std::fs::read_to_string(&path).unwrap_or_default();
            if let Some(line) = first_difference(&committed, &made) {
                println!(
                    "{to}:{line}: not what bindgen makes of {header}; `cargo xtask bindings` regenerates it"
                );
                fresh = false;
            }
        } else {
            std::fs::write(&path, made).map_err(|e| format!("{}: {e}", path.display()))?;
            println!("{to}: written from {header}");
        }
    }
    Ok(fresh)
}

fn generate(root: &Path, header: &str) -> Result<String, Box<dyn Error>> {
    let rust = bindgen::RustTarget::stable(85, 0).map_err(|e| e.to_string())?;
    let bindings = bindgen::Builder::default()
        .header(root.join(header).to_string_lossy())
        .allowlist_item("(kbt|KBT)_.*")
        .derive_debug(true)
        .derive_copy(true)
        .derive_default(true)
        .layout_tests(true)
        .use_core()
        .rust_target(rust)
        .rust_edition(bindgen::RustEdition::Edition2024)
        .rustfmt_configuration_file(Some(root.join("rustfmt.toml")))
        .generate()
        .map_err(|e| format!("{header}: {e}"))?;
    Ok(bindings.to_string())
}

/// The first line, from 1, in which two texts differ.
fn first_difference(a: &str, b: &str) -> Option<usize> {
    let same = a.lines().zip(b.lines()).take_while(|(a, b)| a == b).count();
    (a != b).then_some(same + 1)
}

#[cfg(test)]
mod tests {
    use super::first_difference;

    #[test]
    fn the_first_differing_line_is_named() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some(2));
        assert_eq!(first_difference("a\n", "a\nb\n"), Some(2));
        assert_eq!(first_difference("", "a"), Some(1));
    }
}
