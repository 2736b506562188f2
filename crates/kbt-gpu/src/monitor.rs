//! Clocks, power and throttle reasons, through NVML loaded by name. Nothing here can fail: what cannot be
//! had is `None`.

use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

type Handle = *mut c_void;
type Status = c_uint;
const OK: Status = 0;
const INSUFFICIENT_SIZE: Status = 7;
/// NVML's numbers for a clock domain.
const CLOCK_SM: c_uint = 1;
const CLOCK_MEMORY: c_uint = 2;

/// Why the clocks are below what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThrottleReason {
    /// Nothing runs.
    Idle,
    /// Somebody set application clocks.
    ApplicationClocks,
    /// Power limit, by software.
    PowerCap,
    /// Hardware slowdown: temperature, power brake or voltage.
    HardwareSlowdown,
    /// Held to another GPU's clock.
    SyncBoost,
    /// Temperature, by software.
    Thermal,
    /// Temperature, by hardware.
    HardwareThermal,
    /// Power brake, by hardware.
    PowerBrake,
    /// Held by the display's clock.
    Display,
}

/// NVML's bit for each reason (`nvmlClocksThrottleReason*`).
const REASONS: [(c_ulonglong, ThrottleReason); 9] = [
    (0x001, ThrottleReason::Idle),
    (0x002, ThrottleReason::ApplicationClocks),
    (0x004, ThrottleReason::PowerCap),
    (0x008, ThrottleReason::HardwareSlowdown),
    (0x010, ThrottleReason::SyncBoost),
    (0x020, ThrottleReason::Thermal),
    (0x040, ThrottleReason::HardwareThermal),
    (0x080, ThrottleReason::PowerBrake),
    (0x100, ThrottleReason::Display),
];

impl ThrottleReason {
    fn from_bits(bits: c_ulonglong) -> Vec<Self> {
        REASONS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, reason)| *reason).collect()
    }

    /// Whether a measurement under it is slower than the device can be. Idle and chosen clocks are not.
    #[must_use]
    pub const fn is_throttling(self) -> bool {
        !matches!(self, Self::Idle | Self::ApplicationClocks | Self::Display)
    }
}

/// The state of a device at one moment. What NVML cannot say, or the user may not ask, is `None`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeviceState {
    /// SM clock now, in MHz.
    pub sm_clock_mhz: Option<f64>,
    /// Memory clock now, in MHz.
    pub memory_clock_mhz: Option<f64>,
    /// Power draw in watts.
    pub power_w: Option<f64>,
    /// Temperature in degrees Celsius.
    pub temperature_c: Option<f64>,
    /// Why the clocks are low; an empty list where they are not.
    pub throttle: Option<Vec<ThrottleReason>>,
    /// Processes that hold a compute context on the device, this one included.
    pub compute_processes: Option<u32>,
}

impl DeviceState {
    /// Whether the clocks are held down by power or temperature; `None` where that is unknown.
    #[must_use]
    pub fn is_throttling(&self) -> Option<bool> {
        self.throttle.as_ref().map(|reasons| reasons.iter().any(|r| r.is_throttling()))
    }

    /// Whether other processes use the device; `None` where that is unknown.
    #[must_use]
    pub fn is_shared(&self) -> Option<bool> {
        self.compute_processes.map(|n| n > 1)
    }
}

/// Reads a device's state. Always there; without NVML everything is unknown.
#[derive(Debug, Clone, Copy)]
pub struct Monitor {
    device: Option<Device>,
}

#[derive(Debug, Clone, Copy)]
struct Device {
    nvml: &'static Nvml,
    handle: Handle,
}

// SAFETY: NVML is thread-safe and its handles are plain identifiers.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

macro_rules! nvml {
    ($($field:ident = $symbol:literal: fn($($arg:ty),*);)*) => {
        /// The functions used, each of which an NVML may lack.
        #[derive(Debug)]
        struct Nvml { $($field: Option<unsafe extern "C" fn($($arg),*) -> Status>,)* _library: Library }

        impl Nvml {
            fn from_library(library: Library) -> Self {
                // SAFETY: the signatures are those of nvml.h, stable since the symbols' versions.
                unsafe { Self { $($field: library.get($symbol).ok().map(|s| *s),)* _library: library } }
            }
        }
    };
}

nvml! {
    init = b"nvmlInit_v2\0": fn();
    by_bus_id = b"nvmlDeviceGetHandleByPciBusId_v2\0": fn(*const c_char, *mut Handle);
    driver_version = b"nvmlSystemGetDriverVersion\0": fn(*mut c_char, c_uint);
    max_clock = b"nvmlDeviceGetMaxClockInfo\0": fn(Handle, c_uint, *mut c_uint);
    clock = b"nvmlDeviceGetClockInfo\0": fn(Handle, c_uint, *mut c_uint);
    power = b"nvmlDeviceGetPowerUsage\0": fn(Handle, *mut c_uint);
    temperature = b"nvmlDeviceGetTemperature\0": fn(Handle, c_uint, *mut c_uint);
    throttle = b"nvmlDeviceGetCurrentClocksThrottleReasons\0": fn(Handle, *mut c_ulonglong);
    processes = b"nvmlDeviceGetComputeRunningProcesses_v3\0": fn(Handle, *mut c_uint, *mut c_void);
}

/// The library, loaded and initialised once for the process.
fn nvml() -> Option<&'static Nvml> {
    static NVML: OnceLock<Option<Nvml>> = OnceLock::new();
    NVML.get_or_init(|| {
        let names = ["libnvidia-ml.so.1", "libnvidia-ml.so", "nvml.dll"];
        // SAFETY: loading NVIDIA's management library runs only its own initialisers.
        let library = names.iter().find_map(|name| unsafe { Library::new(*name) }.ok())?;
        let nvml = Nvml::from_library(library);
        // SAFETY: takes no arguments and may be called once per process.
        (unsafe { (nvml.init?)() } == OK).then_some(nvml)
    })
    .as_ref()
}

impl Monitor {
    pub(crate) fn for_bus_id(bus_id: &str) -> Self {
        let find = || {
            let nvml = nvml()?;
            let bus_id = CString::new(bus_id).ok()?;
            let mut handle = std::ptr::null_mut();
            // SAFETY: the text ends in a zero byte, the output outlives the call.
            let status = unsafe { (nvml.by_bus_id?)(bus_id.as_ptr(), &raw mut handle) };
            (status == OK).then_some(Device { nvml, handle })
        };
        Self { device: find() }
    }

    /// Whether NVML knows the device.
    #[must_use]
    pub const fn is_available(&self) -> bool {
        self.device.is_some()
    }

    /// The state now. Takes some tens of microseconds up to a few milliseconds.
    #[must_use]
    pub fn sample(&self) -> DeviceState {
        let Some(device) = &self.device else { return DeviceState::default() };
        let mhz = |domain| device.number(|n| n.clock, |f, h, out| unsafe { f(h, domain, out) });
        DeviceState {
            sm_clock_mhz: mhz(CLOCK_SM).map(f64::from),
            memory_clock_mhz: mhz(CLOCK_MEMORY).map(f64::from),
            // SAFETY (here and below): called with a handle of NVML's and outputs that outlive the call.
            power_w: device
                .number(|n| n.power, |f, h, out| unsafe { f(h, out) })
                .map(|milliwatts: c_uint| f64::from(milliwatts) / 1e3),
            temperature_c: device
                .number(|n| n.temperature, |f, h, out| unsafe { f(h, 0, out) })
                .map(|celsius: c_uint| f64::from(celsius)),
            throttle: device
                .number(|n| n.throttle, |f, h, out| unsafe { f(h, out) })
                .map(ThrottleReason::from_bits),
            compute_processes: device.processes(),
        }
    }

    /// The highest SM clock in MHz.
    #[must_use]
    pub fn max_sm_clock_mhz(&self) -> Option<f64> {
        // SAFETY: called with a handle of NVML's and an output that outlives the call.
        let call = |f: unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> Status, handle, out| unsafe {
            f(handle, CLOCK_SM, out)
        };
        self.device?.number(|n| n.max_clock, call).map(f64::from)
    }

    /// The driver's version, for example `580.159.04`.
    #[must_use]
    pub fn driver_version(&self) -> Option<String> {
        let get = self.device?.nvml.driver_version?;
        let mut text = [0; 96];
        // SAFETY: NVML writes at most the length it is given.
        if unsafe { get(text.as_mut_ptr(), 95) } != OK {
            return None;
        }
        // SAFETY: the last byte is still zero.
        Some(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    }
}

impl Device {
    fn number<F, T: Default>(
        &self,
        function: impl FnOnce(&Nvml) -> Option<F>,
        call: impl FnOnce(F, Handle, *mut T) -> Status,
    ) -> Option<T> {
        let mut value = T::default();
        (call(function(self.nvml)?, self.handle, &raw mut value) == OK).then_some(value)
    }

    fn processes(&self) -> Option<u32> {
        let get = self.nvml.processes?;
        let mut count = 0;
        // SAFETY: with room for no entry NVML only states how many there are.
        match unsafe { get(self.handle, &raw mut count, std::ptr::null_mut()) } {
            OK | INSUFFICIENT_SIZE => Some(count),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_nvml_everything_is_unknown_and_nothing_fails() {
        let monitor = Monitor::for_bus_id("ffff:ff:1f.7");
        assert!(!monitor.is_available());
        assert_eq!(monitor.sample(), DeviceState::default());
        assert_eq!(monitor.sample().is_throttling(), None);
        assert_eq!(monitor.driver_version(), None);
    }

    #[test]
    fn reasons_are_read_from_their_bits_and_idle_is_no_throttling() {
        assert_eq!(ThrottleReason::from_bits(0x24), [ThrottleReason::PowerCap, ThrottleReason::Thermal]);
        let state =
            |bits| DeviceState { throttle: Some(ThrottleReason::from_bits(bits)), ..DeviceState::default() };
        assert_eq!(state(0x001).is_throttling(), Some(false));
        assert_eq!(state(0x104).is_throttling(), Some(true));
        assert_eq!(state(0).is_throttling(), Some(false));
    }
}
