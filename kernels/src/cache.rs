//! From a variant to its machine code: embedded, else kept from an earlier compilation, else compiled now and kept.
//!
//! An entry of the cache is a folder named by the digest. It is written under another name and renamed when it is
//! complete, so that a reader or a second writer never sees half of it, and its content is checked on reading.

use crate::variant::{Sources, Variant};
use kbt_toolchain::{NvccOptions, NvccOutput, PtxasOptions, ResourceReport, Tool, ToolError, Toolchain};
use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{env, fs};

/// A default variant, compiled when this crate was built.
#[derive(Debug)]
pub struct Embedded {
    /// Its name in [`crate::variant::defaults`].
    pub name: &'static str,
    /// Its source below `kernels/`.
    pub source: &'static str,
    /// Its knobs.
    pub defines: &'static [(&'static str, &'static str)],
    /// Its target.
    pub arch: &'static str,
    /// Its digest.
    pub digest: &'static str,
    /// The compilers and their versions.
    pub compiler: &'static str,
    /// The PTX that the machine code was assembled from.
    pub ptx: &'static [u8],
    /// The machine code.
    pub cubin: &'static [u8],
    /// What ptxas said.
    pub log: &'static str,
}

impl Embedded {
    /// The variant it was compiled from.
    #[must_use]
    pub fn is(&self, variant: &Variant) -> bool {
        self.source == variant.source
            && self.arch == variant.arch.to_string()
            && self.defines.iter().copied().eq(variant.defines.iter().map(|(n, v)| (n.as_str(), v.as_str())))
    }
}

/// The default variants; empty where the crate was built without nvcc.
#[must_use]
pub fn embedded() -> &'static [Embedded] {
    static TABLE: &[Embedded] = include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
    TABLE
}

/// The CUDA sources and headers as they were when this crate was built.
#[must_use]
pub fn sources() -> &'static Sources {
    static TABLE: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/sources.rs"));
    static SOURCES: OnceLock<Sources> = OnceLock::new();
    SOURCES.get_or_init(|| Sources {
        files: TABLE.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect(),
    })
}

/// Where machine code came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Compiled when this crate was built.
    Embedded,
    /// Kept from an earlier compilation.
    Cached,
    /// Compiled now.
    Compiled,
}

/// A variant's machine code and what is known about it.
#[derive(Debug, Clone)]
pub struct Built {
    /// The variant.
    pub variant: Variant,
    /// Its digest.
    pub digest: String,
    /// The compilers and their versions: `nvcc 13.0.88, ptxas 13.0.88`.
    pub compiler: String,
    /// The PTX that the machine code was assembled from.
    pub ptx: Cow<'static, [u8]>,
    /// The machine code.
    pub cubin: Cow<'static, [u8]>,
    /// Registers, stack, spills and remarks, as ptxas printed them.
    pub resources: ResourceReport,
    /// Where it came from.
    pub origin: Origin,
}

/// Why a variant has no machine code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The variant names no source.
    #[error("kernel source `{0}` does not exist; known are {1}")]
    NoSource(String, String),
    /// It is not embedded and there is nothing to compile it with.
    #[error("variant {variant} is not among the embedded ones and must be compiled: {reason}")]
    NoCompiler {
        /// The variant, in words.
        variant: String,
        /// What was searched.
        reason: String,
    },
    /// The compiler refused it.
    #[error("variant {variant}: {source}")]
    Compile {
        /// The variant, in words.
        variant: String,
        /// The compiler's own message.
        source: ToolError,
    },
    /// The cache, or a temporary folder, cannot be written.
    #[error("{}: {source} (compiled kernels are kept in a folder that KBT_CACHE can name)", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl BuildError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { path: path.to_path_buf(), source }
    }
}

/// The folder of compiled variants.
#[derive(Debug, Clone)]
pub struct Cache {
    dir: PathBuf,
}

impl Cache {
    /// A cache in a folder of the caller's choice.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// `KBT_CACHE`, else `kbt/cubins` in the user's cache folder, else in the folder for temporary files.
    #[must_use]
    pub fn from_env() -> Self {
        let set = |name| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        Self::new(set("KBT_CACHE").unwrap_or_else(|| {
            set("XDG_CACHE_HOME")
                .or_else(|| Some(set("HOME")?.join(".cache")))
                .unwrap_or_else(env::temp_dir)
                .join("kbt/cubins")
        }))
    }

    /// The machine code of a variant of the built-in sources. Without a toolchain only the embedded ones are had.
    pub fn obtain(&self, variant: &Variant, tools: Option<&Toolchain>) -> Result<Built, BuildError> {
        if let Some(found) = embedded().iter().find(|e| e.is(variant)) {
            return Ok(Built {
                variant: variant.clone(),
                digest: found.digest.to_owned(),
                compiler: found.compiler.to_owned(),
                ptx: Cow::Borrowed(found.ptx),
                cubin: Cow::Borrowed(found.cubin),
                resources: ResourceReport::parse(found.log),
                origin: Origin::Embedded,
            });
        }
        self.compile(variant, sources(), tools)
    }

    /// The same for any set of sources, never from the embedded ones.
    pub fn compile(
        &self,
        variant: &Variant,
        sources: &Sources,
        tools: Option<&Toolchain>,
    ) -> Result<Built, BuildError> {
        let missing = |reason: String| BuildError::NoCompiler { variant: in_words(variant), reason };
        let tools = match tools {
            Some(tools) => tools,
            None => return Err(missing("no CUDA compiler was given".to_owned())),
        };
        let version = |tool| tools.version(tool).map_err(|e| missing(e.to_string()));
        let compiler = format!("nvcc {}, ptxas {}", version(Tool::Nvcc)?, version(Tool::Ptxas)?);
        let digest = variant.digest(sources, &compiler).ok_or_else(|| {
            let known: Vec<_> =
                sources.files.keys().map(String::as_str).filter(|f| f.ends_with(".cu")).collect();
            BuildError::NoSource(variant.source.clone(), known.join(", "))
        })?;
        let (files, origin) = match self.read(&digest) {
            Some(files) => (files, Origin::Cached),
            None => {
                let files = compile(variant, sources, tools)?;
                self.write(&digest, &files)?;
                (files, Origin::Compiled)
            }
        };
        Ok(Built {
            variant: variant.clone(),
            digest,
            compiler,
            ptx: Cow::Owned(files.ptx),
            cubin: Cow::Owned(files.cubin),
            resources: ResourceReport::parse(&String::from_utf8_lossy(&files.log)),
            origin,
        })
    }

    /// The files of an entry that is complete and undamaged.
    fn read(&self, digest: &str) -> Option<Files> {
        let dir = self.dir.join(digest);
        let file = |name: &str| fs::read(dir.join(name)).ok();
        let files = Files { ptx: file("kernel.ptx")?, cubin: file("kernel.cubin")?, log: file("ptxas.log")? };
        (file("content.blake3")? == files.content().as_bytes()).then_some(files)
    }

    /// Puts an entry in place, whole or not at all.
    fn write(&self, digest: &str, files: &Files) -> Result<(), BuildError> {
        fs::create_dir_all(&self.dir).map_err(BuildError::io(&self.dir))?;
        let new = tempfile::Builder::new()
            .prefix(".new-")
            .tempdir_in(&self.dir)
            .map_err(BuildError::io(&self.dir))?;
        let content = files.content();
        for (name, bytes) in [
            ("kernel.ptx", files.ptx.as_slice()),
            ("kernel.cubin", &files.cubin),
            ("ptxas.log", &files.log),
            ("content.blake3", content.as_bytes()),
        ] {
            let path = new.path().join(name);
            fs::write(&path, bytes).map_err(BuildError::io(&path))?;
        }
        let to = self.dir.join(digest);
        if fs::rename(new.path(), &to).is_ok() {
            // The folder has its final name: there is nothing left to remove.
            let _ = new.keep();
            return Ok(());
        }
        // Another process was first, or an earlier entry is damaged.
        if self.read(digest).is_some() {
            return Ok(());
        }
        fs::remove_dir_all(&to).map_err(BuildError::io(&to))?;
        fs::rename(new.path(), &to).map_err(BuildError::io(&to))?;
        let _ = new.keep();
        Ok(())
    }
}

struct Files {
    ptx: Vec<u8>,
    cubin: Vec<u8>,
    log: Vec<u8>,
}

impl Files {
    fn content(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for part in [&self.ptx, &self.cubin, &self.log] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        hasher.finalize().to_hex().to_string()
    }
}

/// Lays the sources out in a temporary folder and compiles there.
fn compile(variant: &Variant, sources: &Sources, tools: &Toolchain) -> Result<Files, BuildError> {
    let temp = env::temp_dir();
    let dir = tempfile::Builder::new().prefix("kbt-").tempdir().map_err(BuildError::io(&temp))?;
    for path in sources.closure(&variant.source).unwrap_or_default() {
        let to = dir.path().join(path);
        let folder = to.parent().unwrap_or(dir.path());
        fs::create_dir_all(folder).map_err(BuildError::io(folder))?;
        fs::write(&to, &sources.files[path]).map_err(BuildError::io(&to))?;
    }
    let options = NvccOptions {
        output: NvccOutput::Ptx,
        defines: variant.defines.clone(),
        includes: vec![dir.path().join("include")],
        ..NvccOptions::new(variant.arch)
    };
    let error = |source| BuildError::Compile { variant: in_words(variant), source };
    let ptx = tools.nvcc(&dir.path().join(&variant.source), &options).map_err(error)?;
    let made = tools.ptxas(&ptx.bytes, variant.arch, &PtxasOptions::default()).map_err(error)?;
    Ok(Files { ptx: ptx.bytes, cubin: made.cubin, log: made.log.into_bytes() })
}

/// `attention/attention.cu for sm_90a with KBT_CHUNKS=4`.
fn in_words(variant: &Variant) -> String {
    let knobs: Vec<_> = variant.defines.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let with = if knobs.is_empty() { "" } else { " with " };
    format!("{} for {}{with}{}", variant.source, variant.arch, knobs.join(" "))
}
