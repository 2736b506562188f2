//! What a device is: the facts the driver states once.

use crate::error::check;
use crate::{GpuError, Monitor};
use cudarc::driver::sys;
use kbt_evidence::Provenance;
use std::ffi::CStr;

/// Static facts of a device, as the driver states them.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceInfo {
    /// Its ordinal.
    pub ordinal: u32,
    /// Its own name, for example `NVIDIA H200`.
    pub name: String,
    /// Compute capability: major, minor.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors.
    pub sm_count: u32,
    /// The CUDA version that the driver supports: major, minor.
    pub cuda_version: (u32, u32),
    /// The driver's own version, for example `580.159.04`; unknown without NVML.
    pub driver_version: Option<String>,
    /// L2 capacity in bytes.
    pub l2_bytes: u64,
    /// Most shared memory a block can ask for, in bytes.
    pub smem_optin: u32,
    /// Highest SM clock in MHz; 0 where neither the driver nor NVML states it.
    pub max_sm_clock_mhz: f64,
    /// Highest memory clock in MHz.
    pub max_memory_clock_mhz: f64,
    /// Device memory in bytes.
    pub memory_bytes: u64,
    /// PCI bus id, for example `0000:19:00.0`.
    pub pci_bus_id: String,
}

impl DeviceInfo {
    /// The compute capability as one number: 90 for 9.0, 103 for 10.3.
    #[must_use]
    pub const fn sm(&self) -> u32 {
        self.compute_capability.0 * 10 + self.compute_capability.1
    }

    /// The driver as provenances name it: its own version where known, and the CUDA version it supports.
    #[must_use]
    pub fn driver(&self) -> String {
        let (major, minor) = self.cuda_version;
        match &self.driver_version {
            Some(version) => format!("{version} (CUDA {major}.{minor})"),
            None => format!("CUDA {major}.{minor}"),
        }
    }

    /// The provenance of a measurement made on this device today by `command`.
    #[must_use]
    pub fn measured(&self, command: impl Into<String>) -> Provenance {
        Provenance::measured(command, self.name.as_str(), crate::today()).with_driver(self.driver())
    }

    pub(crate) fn query(ordinal: u32, device: sys::CUdevice, cuda: u32) -> Result<Self, GpuError> {
        use sys::CUdevice_attribute_enum as A;
        let get = |attribute: A| {
            let mut value = 0;
            // SAFETY: `value` outlives the call, the device handle came from the driver.
            check(unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, device) }, || {
                format!("cuDeviceGetAttribute({attribute:?})")
            })?;
            Ok::<u32, GpuError>(u32::try_from(value).unwrap_or(0))
        };
        let mut memory = 0;
        // SAFETY: as above.
        check(unsafe { sys::cuDeviceTotalMem_v2(&raw mut memory, device) }, || {
            "cuDeviceTotalMem".to_owned()
        })?;
        // SAFETY: the driver writes at most the length it is given, terminator included.
        let name = text("cuDeviceGetName", |p, n| unsafe { sys::cuDeviceGetName(p, n, device) })?;
        // SAFETY: as above.
        let bus = text("cuDeviceGetPCIBusId", |p, n| unsafe { sys::cuDeviceGetPCIBusId(p, n, device) })?;
        let monitor = Monitor::for_bus_id(&bus);
        // Newer drivers may state no clock here.
        let stated = f64::from(get(A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?) / 1e3;
        let max_sm_clock_mhz = if stated > 0.0 { stated } else { monitor.max_sm_clock_mhz().unwrap_or(0.0) };
        Ok(Self {
            ordinal,
            name,
            compute_capability: (
                get(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                get(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            sm_count: get(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            cuda_version: (cuda / 1000, cuda % 1000 / 10),
            driver_version: monitor.driver_version(),
            l2_bytes: u64::from(get(A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?),
            smem_optin: get(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            max_sm_clock_mhz,
            max_memory_clock_mhz: f64::from(get(A::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?) / 1e3,
            memory_bytes: memory as u64,
            pci_bus_id: bus,
        })
    }
}

/// Text that the driver writes into a buffer of ours.
fn text(
    call: &str,
    write: impl FnOnce(*mut std::ffi::c_char, i32) -> sys::CUresult,
) -> Result<String, GpuError> {
    const LEN: usize = 256;
    let mut bytes = [0; LEN];
    check(write(bytes.as_mut_ptr(), LEN as i32), || call.to_owned())?;
    bytes[LEN - 1] = 0;
    // SAFETY: the last byte is zero, so the string ends within the buffer.
    Ok(unsafe { CStr::from_ptr(bytes.as_ptr()) }.to_string_lossy().into_owned())
}

#[cfg(test)]
pub(crate) fn example() -> DeviceInfo {
    DeviceInfo {
        ordinal: 0,
        name: "NVIDIA H200".into(),
        compute_capability: (9, 0),
        sm_count: 132,
        cuda_version: (13, 0),
        driver_version: Some("580.159.04".into()),
        l2_bytes: 60 << 20,
        smem_optin: 232_448,
        max_sm_clock_mhz: 1980.0,
        max_memory_clock_mhz: 3201.0,
        memory_bytes: 141 << 30,
        pci_bus_id: "0000:19:00.0".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_names_device_driver_and_day() {
        let info = example();
        assert_eq!(info.sm(), 90);
        let p = info.measured("kbt microbench run");
        assert_eq!(p.device.as_deref(), Some("NVIDIA H200"));
        assert_eq!(p.driver.as_deref(), Some("580.159.04 (CUDA 13.0)"));
        assert_eq!(p.date.as_deref().map(str::len), Some(10));
        let unknown = DeviceInfo { driver_version: None, ..info };
        assert_eq!(unknown.driver(), "CUDA 13.0");
    }
}
