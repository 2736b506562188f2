//! The environment and the command line of a target's processes. It is built from nothing: [`MINIMUM`], what the file
//! lists, the knobs, and [`RESERVED`].

use crate::Scalar;
use crate::file::TraceLevel;
use crate::knob::SetBy;
use crate::launch::LaunchRequest;
use crate::process::ProcessLauncher;
use std::collections::BTreeMap;
use std::path::Path;

/// The variables that every process gets from kbt's own environment, where set there.
pub const MINIMUM: &[&str] =
    &["PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "TMPDIR", "KBT_CUDA"];

/// The variables that kbt sets for each run.
pub const RESERVED: &[&str] = &[
    "KBT_ARCH",
    "KBT_COMPUTE_ARCH",
    "KBT_INPUT_SET",
    "KBT_INPUTS",
    "KBT_OUT",
    "KBT_DUMP",
    "KBT_TRACE",
    "KBT_TRACE_OUT",
    "KBT_TURN",
];

/// The names that stand in braces in the build's command for what kbt puts there.
pub(crate) const IN_BUILD: &[&str] = &["KBT_ARCH", "KBT_COMPUTE_ARCH", "KBT_DUMP"];

/// Where compilers that run inside a process keep what they compiled. Some of them name an entry by its source
/// alone and not by the variables that shaped it, so that a setting could be served another setting's kernel.
/// kbt's own cache of the built-in kernels is named by everything that shapes one, and is shared.
pub const CACHES: &[&str] = &[
    "CUDA_CACHE_PATH",
    "CUTE_DSL_CACHE_DIR",
    "FLASHINFER_WORKSPACE_BASE",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "TRITON_CACHE_DIR",
];

impl ProcessLauncher<'_> {
    /// The environment of a run, complete.
    #[must_use]
    pub fn environment(&self, request: &LaunchRequest) -> BTreeMap<String, String> {
        let mut env = inherited(MINIMUM.iter().copied());
        env.extend(inherited(self.target.run.pass_env.iter().map(String::as_str)));
        if let Some(cache) = &request.cache {
            // What the file says comes after and so wins, be it a variable passed on or set.
            let passed = |name: &&&str| !self.target.run.pass_env.iter().any(|p| p == **name);
            for name in CACHES.iter().filter(passed) {
                env.insert((*name).to_owned(), absolute(&cache.join(name)));
            }
        }
        env.extend(self.target.run.env.iter().map(|(k, v)| (k.clone(), v.to_string())));
        for knob in self.target.knobs.iter().filter(|k| k.set == SetBy::Env) {
            let value = request.setting.get(&knob.name).unwrap_or(knob.default.as_str());
            env.insert(knob.name.clone(), value.to_owned());
        }
        self.tell_arch(&mut env);
        env.insert("KBT_INPUT_SET".into(), request.input_set.to_string());
        let level = request.trace.as_ref().map_or(TraceLevel::Off, |(level, _)| *level);
        env.insert("KBT_TRACE".into(), level.as_str().into());
        if let Some(extra) = self.target.trace.as_ref().and_then(|t| t.levels.get(&level)) {
            env.extend(extra.iter().map(|(k, v)| (k.clone(), v.to_string())));
        }
        let trace_out = request.trace.as_ref().map(|(_, path)| path);
        let paths = [
            ("KBT_INPUTS", request.inputs.as_ref()),
            ("KBT_OUT", request.out.as_ref()),
            ("KBT_DUMP", request.dump.as_ref()),
            ("KBT_TRACE_OUT", trace_out),
        ];
        for (name, path) in paths {
            if let Some(path) = path {
                env.insert(name.into(), absolute(path));
            }
        }
        if let Some(gpu) = &request.gpu {
            env.insert("CUDA_VISIBLE_DEVICES".into(), gpu.clone());
        }
        env
    }

    /// The command of a run: program and arguments, with the knobs that are set by argument in place.
    #[must_use]
    pub fn command(&self, request: &LaunchRequest) -> Vec<String> {
        let mut command = self.target.run.command.clone();
        for knob in self.target.knobs.iter().filter(|k| k.set == SetBy::Argument) {
            let value = request.setting.get(&knob.name).unwrap_or(knob.default.as_str());
            for argument in command.iter_mut().skip(1) {
                *argument = argument.replace(&format!("{{{}}}", knob.name), value);
            }
        }
        command
    }

    /// The build's command with `{KBT_ARCH}`, `{KBT_COMPUTE_ARCH}` and `{KBT_DUMP}` in place, where they are known.
    pub(crate) fn in_place(&self, command: &[String], dump: Option<&Path>) -> Vec<String> {
        let [arch, compute, folder] = [self.arch.clone(), self.compute(), dump.map(absolute)];
        let known = [("{KBT_ARCH}", arch), ("{KBT_COMPUTE_ARCH}", compute), ("{KBT_DUMP}", folder)];
        let put = |argument: &String| {
            known.iter().fold(argument.clone(), |text, (name, value)| match value {
                Some(value) => text.replace(name, value),
                None => text,
            })
        };
        command.iter().map(put).collect()
    }

    /// The environment of a process that is no run: the build, the reference.
    pub(crate) fn beside_a_run<'p>(
        &self,
        own: &BTreeMap<String, Scalar>,
        paths: impl IntoIterator<Item = (&'static str, Option<&'p Path>)>,
    ) -> BTreeMap<String, String> {
        let mut env = inherited(MINIMUM.iter().copied());
        env.extend(inherited(self.target.run.pass_env.iter().map(String::as_str)));
        env.extend(own.iter().map(|(k, v)| (k.clone(), v.to_string())));
        self.tell_arch(&mut env);
        env.extend(paths.into_iter().filter_map(|(name, path)| Some((name.to_owned(), absolute(path?)))));
        env
    }

    fn tell_arch(&self, env: &mut BTreeMap<String, String>) {
        if let Some(arch) = &self.arch {
            env.insert("KBT_ARCH".into(), arch.clone());
        }
        env.extend(self.compute().map(|compute| ("KBT_COMPUTE_ARCH".into(), compute)));
    }

    /// The virtual architecture of the compile target, as nvcc has it: `compute_90a` of `sm_90a`.
    fn compute(&self) -> Option<String> {
        self.arch.as_ref().map(|arch| format!("compute_{}", arch.strip_prefix("sm_").unwrap_or(arch)))
    }
}

/// A path for a process that may have another working directory.
fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).to_string_lossy().into_owned()
}

fn inherited<'n>(names: impl Iterator<Item = &'n str>) -> BTreeMap<String, String> {
    names.filter_map(|n| Some((n.to_owned(), std::env::var(n).ok()?))).collect()
}
