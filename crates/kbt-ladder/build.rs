//! Lists the files of fixtures/recordings, so that they are embedded and a replay needs no checkout.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let manifest = env::var_os("CARGO_MANIFEST_DIR").ok_or(io::ErrorKind::NotFound)?;
    let root = Path::new(&manifest).join("../../fixtures/recordings");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut table = String::from("&[\n");
    if root.is_dir() {
        for recording in sorted(&root)? {
            let name = recording.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let mut folders = vec![recording.clone()];
            while let Some(folder) = folders.pop() {
                for path in sorted(&folder)? {
                    if path.is_dir() {
                        folders.push(path);
                        continue;
                    }
                    let within =
                        path.strip_prefix(&recording).unwrap_or(&path).to_string_lossy().replace('\\', "/");
                    let bytes = path.canonicalize()?;
                    writeln!(
                        table,
                        "({name:?}, {within:?}, include_bytes!({:?})),",
                        bytes.display().to_string()
                    )
                    .map_err(io::Error::other)?;
                }
            }
        }
    }
    table.push(']');
    let out = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    fs::write(Path::new(&out).join("recordings.rs"), table)
}

fn sorted(folder: &Path) -> io::Result<Vec<std::path::PathBuf>> {
    let mut paths: Vec<_> = fs::read_dir(folder)?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    paths.sort();
    Ok(paths)
}
