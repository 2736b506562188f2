//! The data of a roofline plot; how it is drawn is another crate's.

use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};

/// Whose bytes an intensity counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Device memory.
    #[default]
    Hbm,
    /// The L2 cache.
    L2,
    /// Shared memory.
    Shared,
}

impl Level {
    /// The level in words.
    #[must_use]
    pub const fn phrase(self) -> &'static str {
        match self {
            Self::Hbm => "HBM",
            Self::L2 => "L2",
            Self::Shared => "shared memory",
        }
    }

    fn is_hbm(&self) -> bool {
        *self == Self::Hbm
    }
}

/// A roof of the plot. One of the two rates is set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlotRoof {
    /// Its name, with what it limits.
    pub name: String,
    /// A slope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<f64>,
    /// A flat roof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flop_per_s: Option<f64>,
    /// Of a slope, whose bytes it limits: only points of the same level lie under it.
    #[serde(default, skip_serializing_if = "Level::is_hbm")]
    pub level: Level,
    /// How it is known.
    pub provenance: Provenance,
}

/// A kernel on the plot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlotPoint {
    /// Its name.
    pub name: String,
    /// Useful arithmetic intensity.
    pub flop_per_byte: f64,
    /// Whose bytes that counts. A kernel's first point is that of device memory, those of other levels follow it.
    #[serde(default, skip_serializing_if = "Level::is_hbm")]
    pub level: Level,
    /// Achieved useful rate.
    pub flop_per_s: f64,
    /// How it is known.
    pub provenance: Provenance,
}

/// The data of a roofline plot.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RooflinePlot {
    /// Whose roofs these are.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub device: String,
    /// The number formats of the kernels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub formats: Vec<String>,
    /// The roofs.
    pub roofs: Vec<PlotRoof>,
    /// The kernels; none where there is no timing.
    pub points: Vec<PlotPoint>,
}

impl RooflinePlot {
    /// Puts another plot's roofs and kernels beside these. A roof of the same kind and about the same rate is there
    /// once; of two kernels of one name the later is told apart by its place.
    pub fn add(&mut self, other: Self) {
        /// Rates closer than this are one line.
        const ONE_LINE: f64 = 0.005;
        // A roof is named by the operator's part that it limits, then by what it is.
        let kind = |name: &str| name.rsplit(", ").next().unwrap_or(name).to_owned();
        let near = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => (a - b).abs() <= ONE_LINE * a.abs(),
            (None, None) => true,
            _ => false,
        };
        if self.device.is_empty() {
            self.device = other.device;
        }
        for format in other.formats {
            if !self.formats.contains(&format) {
                self.formats.push(format);
            }
        }
        for roof in other.roofs {
            let same = |r: &&mut PlotRoof| {
                kind(&r.name) == kind(&roof.name)
                    && near(r.bytes_per_s, roof.bytes_per_s)
                    && near(r.flop_per_s, roof.flop_per_s)
            };
            match self.roofs.iter_mut().find(same) {
                Some(there) if there.name != roof.name => there.name = kind(&roof.name),
                Some(_) => {}
                None => self.roofs.push(roof),
            }
        }
        let kernels = self.points.iter().filter(|p| p.level.is_hbm()).count();
        let known: Vec<String> = self.points.iter().map(|p| p.name.clone()).collect();
        for mut point in other.points {
            if known.contains(&point.name) {
                point.name = format!("{} ({})", point.name, kernels + 1);
            }
            self.points.push(point);
        }
    }
}
