//! Where the tools may lie, and in which order the places are asked.

use crate::{NotFound, Tool, ToolError};
use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The places to look at, as plain data: `KBT_CUDA`, `target/cuda` of each root and the `cuda` folder beside the
/// executable, `CUDA_HOME`, `PATH`, `/usr/local/cuda`. The first place that has a tool gives it, so nvdisasm may
/// come from elsewhere than nvcc.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// The value of `KBT_CUDA`. Set, it must name a folder with at least one tool; a relative path is tried from
    /// the current folder and from each root.
    pub kbt_cuda: Option<OsString>,
    /// Workspace roots whose `target/cuda` is looked at.
    pub roots: Vec<PathBuf>,
    /// The running executable: `cuda` is looked for in its folder (a copied bundle) and in the cargo target
    /// folder that it lies in.
    pub executable: Option<PathBuf>,
    /// The value of `CUDA_HOME`.
    pub cuda_home: Option<OsString>,
    /// The value of `PATH`.
    pub path: Option<OsString>,
    /// The toolkit's usual place.
    pub system: Option<PathBuf>,
}

impl Search {
    /// The search that this process's environment asks for, with the current folder as a root.
    #[must_use]
    pub fn from_env() -> Self {
        let set = |name| env::var_os(name).filter(|v| !v.is_empty());
        Self {
            kbt_cuda: set("KBT_CUDA"),
            roots: env::current_dir().ok().into_iter().collect(),
            executable: env::current_exe().ok(),
            cuda_home: set("CUDA_HOME"),
            path: set("PATH"),
            system: Some(PathBuf::from("/usr/local/cuda")),
        }
    }

    /// Adds a workspace root, ahead of those known.
    #[must_use]
    pub fn with_root(mut self, root: impl Into<PathBuf>) -> Self {
        self.roots.insert(0, root.into());
        self
    }

    /// Looks for every tool.
    pub fn find(&self) -> Result<Toolchain, NotFound> {
        let mut found = Found::default();
        if let Some(value) = &self.kbt_cuda {
            let name = format!("KBT_CUDA={}", Path::new(value).display());
            let under_roots = self.roots.iter().map(|root| root.join(value));
            let dirs = std::iter::once(PathBuf::from(value)).chain(under_roots).flat_map(layouts).collect();
            // A KBT_CUDA that names nothing is a mistake to report: another compiler would answer in its place.
            if found.look(name.clone(), dirs) == 0 {
                return Err(NotFound { searched: vec![format!("{name} (no tool there)")] });
            }
        }
        for root in &self.roots {
            let place = root.join("target/cuda");
            found.look(place.display().to_string(), layouts(place));
        }
        let folders = || self.executable.iter().flat_map(|e| e.ancestors().skip(1));
        let cargo_target = folders().find(|dir| dir.file_name().is_some_and(|name| name == "target"));
        for folder in folders().take(1).chain(cargo_target) {
            let place = folder.join("cuda");
            found.look(place.display().to_string(), layouts(place));
        }
        if let Some(home) = &self.cuda_home {
            found.look(format!("CUDA_HOME={}", Path::new(home).display()), layouts(PathBuf::from(home)));
        }
        if let Some(path) = &self.path {
            found.look("PATH".to_owned(), env::split_paths(path).collect());
        }
        if let Some(system) = &self.system {
            found.look(system.display().to_string(), layouts(system.clone()));
        }
        if found.tools.is_empty() {
            return Err(NotFound { searched: found.searched });
        }
        Ok(Toolchain { tools: found.tools, searched: found.searched, versions: Arc::default() })
    }
}

#[derive(Default)]
struct Found {
    searched: Vec<String>,
    tools: BTreeMap<Tool, PathBuf>,
}

impl Found {
    /// Takes the tools that are in one of `dirs` and not known yet; returns how many tools it saw there.
    fn look(&mut self, place: String, dirs: Vec<PathBuf>) -> usize {
        if !self.searched.contains(&place) {
            self.searched.push(place);
        }
        let mut seen = 0;
        for tool in Tool::ALL {
            if let Some(path) = dirs.iter().find_map(|dir| executable_in(dir, tool.name())) {
                self.tools.entry(tool).or_insert(path);
                seen += 1;
            }
        }
        seen
    }
}

/// The folders in which a place may keep its tools: a toolkit, a bin folder, a Python site folder with wheels.
fn layouts(place: PathBuf) -> Vec<PathBuf> {
    vec![place.join("bin"), place.join("nvidia/cu13/bin"), place]
}

/// The absolute path of the executable file `name` in `dir`, if there is one.
fn executable_in(dir: &Path, name: &str) -> Option<PathBuf> {
    let path = std::path::absolute(dir.join(format!("{name}{}", env::consts::EXE_SUFFIX))).ok()?;
    is_executable(&path).then_some(path)
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(path: &Path) -> bool {
    path.is_file()
}

/// The tools that were found. Cheap to clone; a tool's version is asked once.
#[derive(Debug, Clone)]
pub struct Toolchain {
    tools: BTreeMap<Tool, PathBuf>,
    searched: Vec<String>,
    pub(crate) versions: Arc<Mutex<BTreeMap<Tool, String>>>,
}

impl Toolchain {
    /// The tools that [`Search::from_env`] finds.
    pub fn find() -> Result<Self, NotFound> {
        Search::from_env().find()
    }

    /// A tool's absolute path.
    pub fn path(&self, tool: Tool) -> Result<&Path, ToolError> {
        self.tools
            .get(&tool)
            .map(PathBuf::as_path)
            .ok_or_else(|| ToolError::Missing { tool, searched: self.searched.clone() })
    }

    /// Whether a tool was found.
    #[must_use]
    pub fn has(&self, tool: Tool) -> bool {
        self.tools.contains_key(&tool)
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// A folder with executable files at the given paths.
    fn tree(files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        dir
    }

    #[test]
    fn the_first_place_in_order_gives_each_tool() {
        let dir = tree(&[
            "kbt_cuda/bin/ptxas",
            "root/target/cuda/bin/ptxas",
            "root/target/cuda/nvidia/cu13/bin/nvcc",
            "bundle/cuda/bin/nvdisasm",
            "home/bin/nvdisasm",
            "home/bin/cuobjdump",
            "path/cuobjdump",
            "system/bin/ncu",
        ]);
        let at = |p: &str| dir.path().join(p);
        let search = Search {
            kbt_cuda: Some(at("kbt_cuda").into()),
            roots: vec![at("root")],
            executable: Some(at("bundle/kbt")),
            cuda_home: Some(at("home").into()),
            path: Some(at("path").into()),
            system: Some(at("system")),
        };
        let tools = search.find().unwrap();
        for (tool, path) in [
            (Tool::Ptxas, "kbt_cuda/bin/ptxas"),
            (Tool::Nvcc, "root/target/cuda/nvidia/cu13/bin/nvcc"),
            (Tool::Nvdisasm, "bundle/cuda/bin/nvdisasm"),
            (Tool::Cuobjdump, "home/bin/cuobjdump"),
            (Tool::Ncu, "system/bin/ncu"),
        ] {
            assert_eq!(tools.path(tool).unwrap(), at(path));
        }
        let relative =
            Search { kbt_cuda: Some("target/cuda".into()), roots: vec![at("root")], ..Search::default() };
        assert_eq!(relative.find().unwrap().path(Tool::Ptxas).unwrap(), at("root/target/cuda/bin/ptxas"));
    }

    #[test]
    fn what_is_missing_is_named_with_the_places_searched() {
        let dir = tree(&["path/ptxas"]);
        fs::write(dir.path().join("path/nvcc"), "no executable").unwrap();
        let path = Some(dir.path().join("path").into_os_string());
        let search = Search { path, ..Search::default() };
        let error = search.find().unwrap().path(Tool::Nvcc).unwrap_err().to_string();
        assert!(error.starts_with("nvcc not found; searched PATH; "), "{error}");
        let nowhere = Search { kbt_cuda: Some("/nowhere".into()), ..search };
        assert_eq!(nowhere.find().unwrap_err().searched, ["KBT_CUDA=/nowhere (no tool there)"]);
        let error = Search::default().with_root("/r").find().unwrap_err().to_string();
        assert!(error.contains("/r/target/cuda") && error.contains("cargo xtask setup"), "{error}");
    }
}
