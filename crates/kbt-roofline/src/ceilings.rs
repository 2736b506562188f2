//! What the device can do, as the triage uses it: one figure for each roof, from the strongest source at hand.
//! Measured and recorded figures come first; published ones fill the gaps and are called assumptions.

mod kinds;
mod products;

use crate::facts::FactSheet;
use crate::published::{self, Part};
use kbt_device::{Arch, DeviceProfile};
use kbt_evidence::{Figure, Known, Provenance, Unit};
use std::collections::BTreeMap;

pub use kinds::RoofKind;

/// The ceilings of one device.
#[derive(Debug, Clone, PartialEq)]
pub struct Ceilings {
    /// The device, by its own name or the part's.
    pub device: String,
    /// Its compile target.
    pub arch: Arch,
    /// SMs.
    pub sm_count: Option<Figure>,
    /// The SM clock that rates are turned into time with.
    pub sm_clock_mhz: Option<Figure>,
    /// Power limit.
    pub power_limit_w: Option<Figure>,
    /// What L2 holds.
    pub l2_bytes: Option<Figure>,
    /// What sources disagree on, for the reader.
    pub disputes: Vec<String>,
    roofs: BTreeMap<RoofKind, Figure>,
    /// Roofs that the sheet's own user measured.
    of_sheet: Vec<RoofKind>,
}

impl Ceilings {
    /// The ceilings of a profile, gaps filled with the published figures of the same part.
    #[must_use]
    pub fn from_profile(profile: &DeviceProfile) -> Self {
        let name = profile.device.as_deref().unwrap_or(&profile.name);
        let plain = |name: &str, value: f64, unit| Figure::new(name, value, unit, profile.provenance.clone());
        let mut found = Self {
            device: name.to_owned(),
            arch: profile.arch,
            sm_count: profile.sm_count.map(|n| plain("SM count", f64::from(n), Unit::Count)),
            sm_clock_mhz: profile.sm_clock_mhz.map(|c| plain("SM clock", c, Unit::Megahertz)),
            power_limit_w: None,
            l2_bytes: None,
            disputes: Vec::new(),
            roofs: BTreeMap::new(),
            of_sheet: Vec::new(),
        };
        for ceiling in &profile.ceilings {
            found.add_ceiling(ceiling);
        }
        // A bare compile target takes the part that stands for it; a device only its own data sheet.
        let part = published::part(name)
            .or_else(|| profile.device.is_none().then(|| published::model_part(profile.arch)).flatten());
        if let Some(part) = part {
            found.fill(part);
        }
        let ex2 = profile.rates.iter().find(|r| {
            r.lanes_per_clk_sm.is_some()
                && (r.instruction.starts_with("ex2.approx") || r.opcode.as_deref() == Some("MUFU.EX2"))
        });
        if let Some((row, lanes)) = ex2.and_then(|row| Some((row, row.lanes_per_clk_sm?))) {
            let rate = Figure::new("ex2 rate", lanes, Unit::LanesPerClkSm, row.provenance.clone());
            found.add_per_clock(RoofKind::Ex2, &rate, 1.0);
        }
        found.fill_arch();
        found
    }

    /// The published ceilings of a part.
    #[must_use]
    pub fn published(part: &Part) -> Self {
        let mut found = Self {
            device: part.name.clone(),
            arch: part.arch,
            sm_count: None,
            sm_clock_mhz: None,
            power_limit_w: None,
            l2_bytes: None,
            disputes: Vec::new(),
            roofs: BTreeMap::new(),
            of_sheet: Vec::new(),
        };
        found.fill(part);
        found.fill_arch();
        found
    }

    /// The same, with what the sheet's own user measured: where that is better known, or where the sheet's device is
    /// another one. Then these ceilings say nothing of a roof that the sheet states, nor of SMs and clocks.
    #[must_use]
    pub fn with_sheet(mut self, sheet: &FactSheet) -> Self {
        self.of_sheet = sheet.ceilings.iter().filter_map(|c| RoofKind::of(c.kind)).collect();
        let named = sheet.device.as_ref().and_then(|d| d.name.as_deref());
        if let Some(other) = named.filter(|n| !published::same_device(n, &self.device)) {
            let stated = self.of_sheet.clone();
            let memory = stated.iter().any(|k| k.is_device_memory());
            self.roofs.retain(|k, _| !(stated.contains(k) || memory && k.is_device_memory()));
            (self.sm_count, self.sm_clock_mhz) = (None, None);
            (self.power_limit_w, self.l2_bytes) = (None, None);
            if let Some(part) = published::part(other) {
                self.machine_of(part);
            }
        }
        for ceiling in &sheet.ceilings {
            // What its user measured on the machine itself comes before a recording of the same part.
            if let (Some(kind), true) = (RoofKind::of(ceiling.kind), ceiling.provenance.kind.is_measurement())
            {
                self.roofs.remove(&kind);
            }
        }
        for ceiling in &sheet.ceilings {
            self.add_ceiling(ceiling);
        }
        if let Some(bytes) = sheet.device.as_ref().and_then(|d| d.l2_bytes) {
            self.l2_bytes = Some(sheet.figure("device.l2_bytes", "L2 size", bytes, Unit::Bytes));
        }
        self
    }

    /// Whether a roof is the sheet's own; a mix is where both its ends are.
    #[must_use]
    pub(crate) fn of_sheet(&self, kind: RoofKind) -> bool {
        match kind {
            RoofKind::HbmMix => {
                self.roofs.keys().filter(|k| k.is_device_memory()).all(|k| self.of_sheet.contains(k))
            }
            _ => self.of_sheet.contains(&kind),
        }
    }

    /// A roof.
    #[must_use]
    pub fn roof(&self, kind: RoofKind) -> Option<&Figure> {
        self.roofs.get(&kind)
    }

    /// Every roof there is.
    pub fn roofs(&self) -> impl Iterator<Item = (RoofKind, &Figure)> {
        self.roofs.iter().map(|(k, f)| (*k, f))
    }

    /// The device-memory roof for traffic of which `read_share` is reads. A copy is slower a byte than reads or writes
    /// alone, since the bus turns around: where the copy and the purer direction are equally well known, the time of a
    /// byte is taken to grow evenly from the one to the other.
    #[must_use]
    pub fn hbm(&self, read_share: f64) -> Option<(RoofKind, Figure)> {
        /// Within this of a measured mix, that one is taken as it is.
        const SAME_MIX: f64 = 0.03;
        let pure = if read_share >= 0.5 { RoofKind::HbmRead } else { RoofKind::HbmWrite };
        let away = (read_share - 0.5).abs() * 2.0;
        if let (Some(copy), Some(pure)) = (self.roofs.get(&RoofKind::HbmCopy), self.roofs.get(&pure))
            && copy.provenance.kind == pure.provenance.kind
            && self.roofs.get(&RoofKind::HbmPeak).is_none_or(|p| p.provenance.kind <= copy.provenance.kind)
            && (2.0 * SAME_MIX..=1.0 - 2.0 * SAME_MIX).contains(&away)
        {
            let rate = 1.0 / (away / pure.value + (1.0 - away) / copy.value);
            let how = format!(
                "{:.0} % reads: the time of a byte between those of {} and {}",
                read_share * 100.0,
                copy.name,
                pure.name
            );
            let kind = RoofKind::HbmMix;
            let figure = Figure::computed(kind.as_str(), rate, kind.unit(), &how, &[copy, pure]);
            return Some((kind, figure));
        }
        self.hbm_of_one_mix(read_share).map(|(kind, figure)| (kind, figure.clone()))
    }

    fn hbm_of_one_mix(&self, read_share: f64) -> Option<(RoofKind, &Figure)> {
        let order = match read_share {
            r if r >= 0.9 => [RoofKind::HbmRead, RoofKind::HbmCopy, RoofKind::HbmPeak],
            r if r <= 0.1 => [RoofKind::HbmWrite, RoofKind::HbmCopy, RoofKind::HbmPeak],
            _ => [RoofKind::HbmCopy, RoofKind::HbmRead, RoofKind::HbmPeak],
        };
        let found = || order.iter().filter_map(|k| self.roofs.get(k).map(|f| (*k, f)));
        // The best known one first; the order above decides among equals.
        let best = found().map(|(_, f)| f.provenance.kind).max()?;
        found().find(|(_, f)| f.provenance.kind == best)
    }

    /// Whether every roof among `kinds` was measured, now or in a recording.
    #[must_use]
    pub fn measured(&self, kinds: &[RoofKind]) -> bool {
        kinds.iter().all(|k| self.roofs.get(k).is_some_and(|f| f.provenance.kind.is_measurement()))
    }

    fn add(&mut self, kind: RoofKind, figure: Figure) {
        let better = |old: &Figure| figure.provenance.kind > old.provenance.kind;
        if self.roofs.get(&kind).is_none_or(better) {
            self.roofs.insert(kind, figure);
        }
    }

    fn add_ceiling(&mut self, ceiling: &kbt_device::Ceiling) {
        let Some(kind) = RoofKind::of(ceiling.kind) else { return };
        let value = match kind.unit() {
            Unit::BytesPerSecond => ceiling.bytes_per_s,
            Unit::Seconds => ceiling.seconds,
            _ => ceiling.flop_per_s,
        };
        if let Some(value) = value {
            self.add(kind, Figure::new(kind.as_str(), value, kind.unit(), ceiling.provenance.clone()));
        }
    }

    /// SMs, clock and power limit, where they are not known.
    fn machine_of(&mut self, part: &Part) {
        let plain = |name: &str, value: f64, unit| Figure::new(name, value, unit, part.provenance.clone());
        self.sm_count.get_or_insert_with(|| plain("SM count", part.sm_count, Unit::Count));
        self.sm_clock_mhz.get_or_insert_with(|| plain("SM clock", part.sm_clock_mhz, Unit::Megahertz));
        self.power_limit_w.get_or_insert_with(|| plain("power limit", part.power_limit_w, Unit::Watts));
        if let Some(l2) = &part.l2 {
            let size = || Figure::new("L2 size", l2.bytes, Unit::Bytes, l2.provenance.clone());
            self.l2_bytes.get_or_insert_with(size);
        }
    }

    fn fill(&mut self, part: &Part) {
        self.machine_of(part);
        if let Some(what) = &part.disputed {
            self.disputes.push(format!("{}: {what}", part.name));
        }
        for f in part.figures.iter().filter(|f| f.dense) {
            let provenance = f.provenance.clone().unwrap_or_else(|| part.provenance.clone());
            if let Some(value) = f.bytes_per_s.or(f.flop_per_s) {
                self.add(f.kind, Figure::new(f.kind.as_str(), value, f.kind.unit(), provenance));
            }
            if let Some(what) = &f.disputed {
                self.disputes.push(format!("{} {}: {what}", part.name, f.kind.as_str()));
            }
        }
    }

    /// Roofs that follow from the architecture's rates, the SM count and the clock.
    fn fill_arch(&mut self) {
        let Some(arch) = published::arch_figures(self.arch) else { return };
        let rate = |name: &str, value, unit| Figure::new(name, value, unit, arch.provenance.clone());
        let fp32 = rate("fp32 lanes", arch.fp32_lanes_per_clk_sm, Unit::LanesPerClkSm);
        self.add_per_clock(RoofKind::Fp32, &fp32, 2.0);
        if let Some(lanes) = arch.fp64_lanes_per_clk_sm {
            // The source of the row speaks of its other rates.
            let known =
                Provenance::assumed("FP64 lanes by general knowledge of the architecture, no source checked");
            let fp64 = Figure::new("fp64 lanes", lanes, Unit::LanesPerClkSm, known);
            self.add_per_clock(RoofKind::Fp64, &fp64, 2.0);
        }
        let ex2 = rate("ex2 rate", arch.ex2_lanes_per_clk_sm, Unit::LanesPerClkSm);
        self.add_per_clock(RoofKind::Ex2, &ex2, 1.0);
        let shared = rate("shared memory", arch.shared_bytes_per_clk_sm, Unit::BytesPerClkSm);
        self.add_per_clock(RoofKind::SharedRead, &shared, 1.0);
    }

    fn add_per_clock(&mut self, kind: RoofKind, rate: &Figure, operations: f64) {
        let (Some(sms), Some(clock)) = (&self.sm_count, &self.sm_clock_mhz) else { return };
        let value = rate.value * operations * sms.value * clock.value * 1e6;
        let how = format!("{} x {} SMs x {} MHz", rate.value * operations, sms.value, clock.value);
        let figure = Figure::computed(kind.as_str(), value, kind.unit(), &how, &[rate, sms, clock]);
        self.add(kind, figure);
    }
}

/// Whether a figure may carry more than an order of magnitude.
#[must_use]
pub(crate) fn is_firm(kind: Known) -> bool {
    kind >= Known::Given
}

#[cfg(test)]
mod tests;
