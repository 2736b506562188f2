//! What `--device` resolves to: a live GPU, a recording of one, or a compile target with no device behind it.

use crate::recording::{Recording, RecordingError};
use kbt_device::{Arch, DeviceChoice, DeviceProfile, ProfileError};
use kbt_gpu::{DeviceInfo, Gpu, GpuError};
use std::path::Path;

/// Where the ladder's measurements come from.
#[derive(Debug)]
pub enum Backend {
    /// A GPU in this machine.
    Live(Box<DeviceInfo>),
    /// A recording of a real run.
    Recorded(Box<Recording>),
    /// A profile with no recorded runs behind it: a compile target, or a profile file.
    Model(Box<DeviceProfile>),
}

/// A device that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// A live GPU was asked for and there is none.
    #[error("--device {choice}: {source}")]
    Gpu {
        /// What was asked for.
        choice: String,
        /// Why not.
        source: GpuError,
    },
    /// A recording.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// A profile file.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A compile target without a profile.
    #[error(
        "--device model:{arch}: no profile of {arch} is embedded; embedded: {known}. `kbt microbench mine --arch {arch} --out FILE.yaml` makes one, and --device FILE.yaml uses it"
    )]
    NoModel {
        /// The target.
        arch: Arch,
        /// The embedded profiles.
        known: String,
    },
    /// A path that cannot be read.
    #[error("--device {path}: {source}")]
    Io {
        /// The path.
        path: String,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl Backend {
    /// Resolves a choice. `Auto` takes a GPU where there is one, else the newest recording.
    pub fn resolve(choice: &DeviceChoice) -> Result<Self, BackendError> {
        match choice {
            DeviceChoice::Auto => match live(0) {
                Ok(backend) => Ok(backend),
                Err(e) if e.is_absent() => Ok(Self::Recorded(Box::new(Recording::newest()?))),
                Err(source) => Err(BackendError::Gpu { choice: choice.to_string(), source }),
            },
            DeviceChoice::Live(ordinal) => {
                live(*ordinal).map_err(|source| BackendError::Gpu { choice: choice.to_string(), source })
            }
            DeviceChoice::Recorded(name) => Ok(Self::Recorded(Box::new(Recording::embedded(name)?))),
            DeviceChoice::Model(arch) => model(*arch),
            DeviceChoice::Path(path) => at_path(path),
        }
    }

    /// A short name for the run's spec: what was resolved, not what was asked.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Live(info) => format!("live: {}", info.name),
            Self::Recorded(r) => format!("recorded: {} ({}, {})", r.meta.name, r.meta.device, r.meta.date),
            Self::Model(p) => format!("model: {} ({})", p.name, p.arch),
        }
    }

    /// The compile target to study machine code for.
    #[must_use]
    pub fn arch(&self) -> Arch {
        match self {
            // sm_90 alone has WGMMA behind the suffix; the suffix is what kernels of our own are compiled for.
            Self::Live(info) => Arch { sm: info.sm() as u16, suffix: (info.sm() >= 90).then_some('a') },
            Self::Recorded(r) => r.profile().arch,
            Self::Model(p) => p.arch,
        }
    }
}

fn live(ordinal: u32) -> Result<Backend, GpuError> {
    Gpu::open(ordinal).map(|gpu| Backend::Live(Box::new(gpu.info().clone())))
}

fn model(arch: Arch) -> Result<Backend, BackendError> {
    match kbt_device::embedded_profile(&arch.to_string()) {
        Some(profile) => Ok(Backend::Model(Box::new(profile?))),
        None => {
            let known = kbt_device::embedded_profiles().collect::<Vec<_>>().join(", ");
            Err(BackendError::NoModel { arch, known })
        }
    }
}

fn at_path(path: &Path) -> Result<Backend, BackendError> {
    if path.is_dir() {
        return Ok(Backend::Recorded(Box::new(Recording::load(path)?)));
    }
    let text = std::fs::read_to_string(path)
        .map_err(|source| BackendError::Io { path: path.display().to_string(), source })?;
    Ok(Backend::Model(Box::new(DeviceProfile::from_yaml(&text, &path.display().to_string())?.read_back())))
}
