//! A device for tests whose resources are known to the test alone: times follow from hidden usages, with noise.

use super::classes::{Request, View};
use super::mixes::{MixTime, Mixes, Refused, Solo};
use kbt_device::Arch;
use kbt_evidence::Provenance;

/// Hidden usages, cycles an operation, by instruction and resource; and one issue slot a cycle.
pub(crate) struct Device {
    resources: usize,
    pub(crate) names: Vec<String>,
    pub(crate) usages: Vec<Vec<f64>>,
    /// Opcodes of an operation, and how many of them are under test; one of its own by default.
    pub(crate) opcodes: Vec<Vec<(String, f64)>>,
    /// Cycles of the register ports for an operation, which the machine code would tell.
    pub(crate) ports: Vec<f64>,
    /// By how much more the ports take, because the banks are not asked alike.
    pub(crate) uneven: f64,
    /// Largest relative error of a time.
    pub(crate) noise: f64,
    /// Pairs that cannot be mixed, the lower place first.
    pub(crate) refused: Vec<(usize, usize)>,
    /// Whatever is lost where two separate resources are both full.
    pub(crate) loss: f64,
    random: u64,
}

impl Device {
    pub(crate) fn new(resources: usize) -> Self {
        Self {
            resources,
            names: Vec::new(),
            usages: Vec::new(),
            opcodes: Vec::new(),
            ports: Vec::new(),
            uneven: 0.0,
            noise: 0.01,
            refused: Vec::new(),
            loss: 0.0,
            random: 7,
        }
    }

    pub(crate) fn add(&mut self, name: &str, usage: &[f64]) -> &mut Self {
        assert_eq!(usage.len(), self.resources);
        self.names.push(name.to_owned());
        self.usages.push(usage.to_vec());
        self.opcodes.push(vec![(name.to_uppercase(), 1.0)]);
        self.ports.push(0.0);
        self
    }

    /// Opcodes of the last instruction, the first under test.
    pub(crate) fn with_opcodes(&mut self, opcodes: &[(&str, f64)]) -> &mut Self {
        let list = opcodes.iter().map(|(o, n)| ((*o).to_owned(), *n)).collect();
        self.opcodes.pop();
        self.opcodes.push(list);
        self
    }

    pub(crate) fn seed(&mut self, seed: u64) -> &mut Self {
        self.random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        self
    }

    /// A number from 0 to 1.
    pub(crate) fn random(&mut self) -> f64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn issued(&self, i: usize) -> f64 {
        self.opcodes[i].iter().map(|(_, n)| n).sum()
    }

    /// The time of so many operations of each, without noise.
    pub(crate) fn time(&self, mix: &[(usize, f64)]) -> f64 {
        let mut busy: Vec<f64> =
            (0..self.resources).map(|r| mix.iter().map(|&(i, n)| n * self.usages[i][r]).sum()).collect();
        busy.sort_by(f64::total_cmp);
        let at = |k: usize| busy.len().checked_sub(k).map_or(0.0, |i| busy[i]);
        let (most, second) = (at(1), at(2));
        let lost = if most > 0.0 { self.loss * (second / most).powi(8) } else { 0.0 };
        let issue: f64 = mix.iter().map(|&(i, n)| n * self.issued(i)).sum();
        issue.max(most * (1.0 + lost)).max(self.port_cycles(mix) * (1.0 + self.uneven))
    }

    fn port_cycles(&self, mix: &[(usize, f64)]) -> f64 {
        mix.iter().map(|&(i, n)| n * self.ports[i]).sum()
    }

    fn measured(&mut self, mix: &[(usize, f64)]) -> f64 {
        let error = self.noise * (2.0 * self.random() - 1.0);
        self.time(mix) * (1.0 + error)
    }

    pub(crate) fn alone(&self, i: usize) -> f64 {
        self.time(&[(i, 1.0)])
    }

    fn counts(&self, request: &Request) -> [u32; 2] {
        let [i, j] = request.of;
        super::plan::counts(
            [self.alone(i), self.alone(j)],
            [self.issued(i), self.issued(j)],
            [1, 1],
            request.share,
        )
    }

    fn solos(&mut self) -> Vec<Solo> {
        (0..self.names.len())
            .map(|i| Solo {
                instruction: self.names[i].clone(),
                opcodes: self.opcodes[i].iter().cloned().collect(),
                targets: vec![self.opcodes[i][0].0.clone()],
                register_port_cycles: Some([self.ports[i]; 2]),
                measured_cycles: self.measured(&[(i, 1.0)]),
            })
            .collect()
    }
}

/// Measures what is asked for until nothing is, or the budget is spent.
pub(crate) fn explore(device: &mut Device, budget: usize) -> Mixes {
    let mut mixes = Mixes::new(Arch::SM_90A, Provenance::measured("a test", "no device", "2026-01-01"));
    mixes.solos = device.solos();
    loop {
        let wanted = View::new(&mixes).next(budget);
        if wanted.is_empty() {
            return mixes;
        }
        for request in wanted {
            let [i, j] = request.of;
            if device.refused.contains(&(i.min(j), i.max(j))) {
                let what = format!("{} + {}", device.names[i], device.names[j]);
                mixes.refused.push(Refused { what, why: "a test".to_owned() });
                continue;
            }
            let counts = device.counts(&request);
            let mix = [(i, f64::from(counts[0])), (j, f64::from(counts[1]))];
            let time = device.measured(&mix);
            mixes.mixes.push(MixTime {
                of: [device.names[i].clone(), device.names[j].clone()],
                counts,
                register_port_cycles: Some([device.port_cycles(&mix); 2]),
                measured_cycles: time,
            });
        }
    }
}
