//! The data of a roofline plot; how it is drawn is another crate's.

use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};

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
    /// Achieved useful rate.
    pub flop_per_s: f64,
    /// How it is known.
    pub provenance: Provenance,
}

/// The data of a roofline plot.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RooflinePlot {
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
        for mut point in other.points {
            if self.points.iter().any(|p| p.name == point.name) {
                point.name = format!("{} ({})", point.name, self.points.len() + 1);
            }
            self.points.push(point);
        }
    }
}
