//! Compiles the default variants into OUT_DIR, two at a time, and writes the tables that the crate includes: the
//! sources, so that an installed kbt can compile other variants, and the machine code, empty where there is no nvcc.

#[path = "src/variant.rs"]
#[allow(dead_code, unreachable_pub, reason = "the crate uses all of it")]
mod variant;

use kbt_device::Arch;
use kbt_toolchain::{NvccOptions, NvccOutput, PtxasOptions, Search, Tool, Toolchain};
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use variant::{Sources, Variant};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    println!("cargo::rerun-if-env-changed=KBT_CUDA");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/variant.rs");
    let sources = read_sources(&root)?;
    write_sources(&sources, &out.join("sources.rs"))?;

    let table = match working_nvcc(&root, &out) {
        Ok(tools) => compile_all(&root, &out, &sources, &tools)?,
        Err(reason) => {
            println!("cargo::warning=built without live kernels: {}", reason.replace('\n', " "));
            String::new()
        }
    };
    fs::write(out.join("embedded.rs"), format!("&[\n{table}]\n"))?;
    Ok(())
}

/// The tools, if their nvcc can compile for sm_90a: one that is too old, or has no host compiler, counts as none.
fn working_nvcc(root: &Path, out: &Path) -> std::result::Result<Toolchain, String> {
    let search = Search {
        roots: root.parent().map(Path::to_path_buf).into_iter().collect(),
        executable: None,
        ..Search::from_env()
    };
    let tools = search.find().map_err(|e| e.to_string())?;
    let probe = out.join("probe.cu");
    fs::write(&probe, "__global__ void probe() {}\n").map_err(|e| e.to_string())?;
    tools.nvcc(&probe, &NvccOptions::new(Arch::SM_90A)).map_err(|e| e.to_string())?;
    Ok(tools)
}

/// Every CUDA source and C header below the folders of `kernels/`.
fn read_sources(root: &Path) -> Result<Sources> {
    let mut sources = Sources::default();
    let mut open = Vec::new();
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        if path.is_dir() && !["src", "tests", "planted"].iter().any(|folder| path.ends_with(folder)) {
            println!("cargo::rerun-if-changed={}", path.display());
            open.push(path);
        }
    }
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "cu" || e == "cuh" || e == "h") {
                let name = path.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
                sources.files.insert(name, fs::read_to_string(&path)?);
            }
        }
    }
    Ok(sources)
}

/// The sources as a table of the texts that were read, so that it and the digests can never tell of different states.
fn write_sources(sources: &Sources, to: &Path) -> Result<()> {
    let mut table = String::from("&[\n");
    for (name, text) in &sources.files {
        writeln!(table, "    ({name:?}, {text:?}),")?;
    }
    table.push_str("]\n");
    Ok(fs::write(to, table)?)
}

/// Compiles what OUT_DIR does not hold yet and returns the table's entries.
fn compile_all(root: &Path, out: &Path, sources: &Sources, tools: &Toolchain) -> Result<String> {
    let compiler = format!("nvcc {}, ptxas {}", tools.version(Tool::Nvcc)?, tools.version(Tool::Ptxas)?);
    let variants = variant::defaults();
    let next = AtomicUsize::new(0);
    let worker = || -> Result<Vec<(usize, String)>> {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((name, variant)) = variants.get(index) else { return Ok(done) };
            done.push((index, compile(root, out, sources, tools, &compiler, name, variant)?));
        }
    };
    let mut entries = std::thread::scope(|scope| -> Result<Vec<_>> {
        let threads = [scope.spawn(worker), scope.spawn(worker)];
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().map_err(|_| "a compile thread panicked")??);
        }
        Ok(all)
    })?;
    entries.sort_unstable();
    Ok(entries.into_iter().map(|(_, entry)| entry).collect())
}

/// Makes one variant's files unless they are there for the same digest; returns its entry.
fn compile(
    root: &Path,
    out: &Path,
    sources: &Sources,
    tools: &Toolchain,
    compiler: &str,
    name: &str,
    variant: &Variant,
) -> Result<String> {
    let digest = variant.digest(sources, compiler).ok_or_else(|| {
        format!("kernels/{}: no such file; variant `{name}` of src/variant.rs names it", variant.source)
    })?;
    let stem = Path::new(&variant.source).file_stem().unwrap_or_default().to_string_lossy();
    let file = |extension: &str| out.join(format!("{stem}-{name}.{extension}"));
    if fs::read_to_string(file("digest")).ok().as_deref() != Some(&digest) {
        let options = NvccOptions {
            output: NvccOutput::Ptx,
            defines: variant.defines.clone(),
            includes: vec![root.join("include")],
            ..NvccOptions::new(variant.arch)
        };
        let error = |e| format!("variant `{name}` of kernels/{}: {e}", variant.source);
        let ptx = tools.nvcc(&root.join(&variant.source), &options).map_err(error)?;
        let made = tools.ptxas(&ptx.bytes, variant.arch, &PtxasOptions::default()).map_err(error)?;
        fs::write(file("ptx"), &ptx.bytes)?;
        fs::write(file("cubin"), &made.cubin)?;
        fs::write(file("log"), &made.log)?;
        fs::write(file("digest"), &digest)?;
    }
    let defines: Vec<_> = variant.defines.iter().collect();
    Ok(format!(
        "    Embedded {{\n        name: {name:?},\n        source: {:?},\n        defines: &{defines:?},\n        \
         arch: {:?},\n        digest: {digest:?},\n        compiler: {compiler:?},\n        \
         ptx: include_bytes!({:?}),\n        cubin: include_bytes!({:?}),\n        log: include_str!({:?}),\n    }},\n",
        variant.source,
        variant.arch.to_string(),
        file("ptx"),
        file("cubin"),
        file("log"),
    ))
}
