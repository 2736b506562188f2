//! What the launches of one run took, as the lines of a target's run or as JSON.

use kbt_gpu::Gpu;
use serde::Serialize;

/// The times of one run, and the device's state under their load.
#[derive(Debug, Serialize)]
pub(super) struct Launches {
    schema: &'static str,
    /// The digest of the machine code.
    kernel: String,
    times_us: Vec<f64>,
    device: String,
    driver: String,
    pub(super) clock_mhz: Option<f64>,
    power_w: Option<f64>,
    throttle: Vec<String>,
}

impl Launches {
    /// Asks the device for its state: to be called while it is still under the load of the launches.
    pub(super) fn new(gpu: &Gpu, kernel: &str, times_us: Vec<f64>) -> Self {
        let state = gpu.monitor().sample();
        let info = gpu.info();
        let throttle = state.throttle.iter().flatten().filter(|r| r.is_throttling());
        Self {
            schema: "kbt.kernel.launches/1",
            kernel: kernel.to_owned(),
            times_us,
            device: info.name.clone(),
            driver: info.driver(),
            clock_mhz: state.sm_clock_mhz,
            power_w: state.power_w,
            throttle: throttle.map(|reason| format!("{reason:?}")).collect(),
        }
    }

    /// The lines of the protocol of kbt-target.
    pub(super) fn lines(&self) -> String {
        let number = |key: &str, value: Option<f64>| value.map(|v| format!("kbt-{key} {v}\n"));
        let times = self.times_us.iter().map(|us| format!("kbt-time-us {us:.3}\n"));
        let of = [format!("kbt-device {}\n", self.device), format!("kbt-driver {}\n", self.driver)];
        let state = [number("clock-mhz", self.clock_mhz), number("power-w", self.power_w)];
        let throttle = self.throttle.iter().map(|reason| format!("kbt-throttle {reason}\n"));
        times.chain(of).chain(state.into_iter().flatten()).chain(throttle).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_those_of_the_protocol() {
        let launches = Launches {
            schema: "kbt.kernel.launches/1",
            kernel: "d".to_owned(),
            times_us: vec![12.0, 12.3456],
            device: "NVIDIA H200".to_owned(),
            driver: "580 (CUDA 13.0)".to_owned(),
            clock_mhz: Some(1980.0),
            power_w: None,
            throttle: vec!["PowerCap".to_owned()],
        };
        let lines = "kbt-time-us 12.000\nkbt-time-us 12.346\nkbt-device NVIDIA H200\nkbt-driver 580 (CUDA 13.0)\n\
                     kbt-clock-mhz 1980\nkbt-throttle PowerCap\n";
        assert_eq!(launches.lines(), lines);
    }
}
