//! The cache of compiled variants, over a small kernel of its own and the compilers of KBT_CUDA.
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

use kbt_kernels::attention::{Knobs, PvMode, QuantForm, TraceLevel};
use kbt_kernels::cache::{self, BuildError, Cache, Origin};
use kbt_kernels::variant::{self, Sources, Variant};
use kbt_toolchain::Toolchain;
use std::fs;

/// The tools under test; without KBT_CUDA there are none, and the test says that it did not run.
fn tools(test: &str) -> Option<Toolchain> {
    if std::env::var_os("KBT_CUDA").is_none() {
        eprintln!(
            "KBT_CUDA is not set: `{test}` did not run; `cargo xtask test` sets it after `cargo xtask setup`"
        );
        return None;
    }
    Some(Toolchain::find().expect("KBT_CUDA has the tools"))
}

fn sources() -> Sources {
    let files = [
        (
            "scale/scale.cu",
            "#include \"kbt/factor.h\"\nextern \"C\" __global__ void scale(float *x) { x[threadIdx.x] *= FACTOR * KNOB; }\n",
        ),
        ("include/kbt/factor.h", "#define FACTOR 3.0f\n"),
    ];
    Sources { files: files.map(|(path, text)| (path.to_owned(), text.to_owned())).into() }
}

fn scale(knob: &str) -> Variant {
    Variant::new("scale/scale.cu").with("KNOB", knob)
}

#[test]
fn a_variant_is_compiled_once_and_a_damaged_entry_again() {
    let Some(tools) = tools("a_variant_is_compiled_once_and_a_damaged_entry_again") else { return };
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path().join("cubins"));
    let get = |knob: &str| cache.compile(&scale(knob), &sources(), Some(&tools)).unwrap();
    let first = get("2.0f");
    assert_eq!(first.origin, Origin::Compiled);
    assert!(first.cubin.starts_with(b"\x7fELF") && first.ptx.starts_with(b"//"));
    assert!(first.resources.function("scale").unwrap().registers.is_some());
    assert!(first.compiler.starts_with("nvcc "), "{}", first.compiler);
    let again = get("2.0f");
    assert_eq!((again.origin, &again.cubin, &again.digest), (Origin::Cached, &first.cubin, &first.digest));
    assert_ne!(get("4.0f").digest, first.digest);

    let damaged = dir.path().join("cubins").join(&first.digest).join("kernel.cubin");
    fs::write(&damaged, &first.cubin[..100]).unwrap();
    assert_eq!(get("2.0f").origin, Origin::Compiled);
    assert_eq!(fs::read(&damaged).unwrap(), *first.cubin);
    let left: Vec<_> =
        fs::read_dir(dir.path().join("cubins")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn what_cannot_be_compiled_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path());
    let error = cache.compile(&scale("2"), &sources(), None).unwrap_err();
    assert!(matches!(error, BuildError::NoCompiler { .. }), "{error}");
    let Some(tools) = tools("what_cannot_be_compiled_says_why") else { return };
    let error = cache.compile(&scale("no_such_name"), &sources(), Some(&tools)).unwrap_err().to_string();
    assert!(error.contains("KNOB=no_such_name") && error.contains("identifier"), "{error}");
    let error = cache.compile(&Variant::new("none.cu"), &sources(), Some(&tools)).unwrap_err().to_string();
    assert_eq!(error, "kernel source `none.cu` does not exist; known are scale/scale.cu");
    assert!(fs::read_dir(dir.path()).unwrap().next().is_none());
}

#[test]
fn every_default_variant_is_embedded() {
    let Some(_) = tools("every_default_variant_is_embedded") else { return };
    let cache = Cache::new("/nowhere");
    for (name, variant) in variant::defaults() {
        let built = cache.obtain(&variant, None).unwrap();
        assert_eq!(built.origin, Origin::Embedded, "{name}");
        assert_eq!(variant.digest(cache::sources(), &built.compiler).as_ref(), Some(&built.digest), "{name}");
        assert!(built.cubin.starts_with(b"\x7fELF"), "{name}");
        assert_eq!(built.resources.problems, [""; 0], "{name}");
    }
}

/// The table states the knobs as numbers; the kernel's own knobs must come to the same definitions.
#[test]
fn what_the_ladder_runs_first_is_among_the_defaults() {
    let defaults = variant::defaults();
    for pv_mode in PvMode::ALL {
        for quant_form in [QuantForm::Linear, QuantForm::Log2] {
            for trace in [TraceLevel::Off, TraceLevel::Coarse] {
                let knobs = Knobs { quant_form, trace, ..Knobs::plain(*pv_mode) };
                let variant = knobs.variant();
                assert!(defaults.iter().any(|(_, v)| *v == variant), "{knobs:?}");
            }
        }
    }
}
