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
    /// once; of two rates of one kind each says where it is from, of two kernels of one name the later its place.
    pub fn add(&mut self, other: Self) {
        if self.device.is_empty() {
            self.device = other.device;
        }
        for format in other.formats {
            if !self.formats.contains(&format) {
                self.formats.push(format);
            }
        }
        for roof in other.roofs {
            match self.roofs.iter_mut().find(|r| r.is_line_of(&roof)) {
                Some(there) if there.name != roof.name => there.name = there.kind().to_owned(),
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

    /// The roofs' names, each its own: where several lines are of one kind, where each rate is from goes with it.
    #[must_use]
    pub fn roof_names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for roof in &self.roofs {
            let alike = |r: &&PlotRoof| r.kind() == roof.kind() && (r.name == roof.name || !r.is_mix());
            let alone = self.roofs.iter().filter(alike).all(|r| r.is_line_of(roof));
            let name = if alone { roof.name.clone() } else { format!("{}: {}", roof.name, roof.source()) };
            // One source may state two rates.
            let same =
                |n: &String| *n == name || n.strip_prefix(&name).is_some_and(|rest| rest.starts_with(" ("));
            let nth = names.iter().filter(|n| same(n)).count() + 1;
            names.push(if alone || nth == 1 { name } else { format!("{name} ({nth})") });
        }
        names
    }
}

impl PlotRoof {
    /// Whether its name says which mix of reads and writes it is of.
    fn is_mix(&self) -> bool {
        self.name.starts_with("HBM at ")
    }

    /// What it is, less the operator's part that it limits or its mix.
    fn kind(&self) -> &str {
        if self.is_mix() {
            return "HBM at these mixes of reads and writes";
        }
        self.name.rsplit(", ").next().unwrap_or(&self.name)
    }

    /// Whether two roofs of one kind are one line.
    fn is_line_of(&self, other: &Self) -> bool {
        /// Rates closer than this are one line.
        const ONE_LINE: f64 = 0.005;
        let near = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => (a - b).abs() <= ONE_LINE * a.abs(),
            (None, None) => true,
            _ => false,
        };
        self.kind() == other.kind()
            && near(self.bytes_per_s, other.bytes_per_s)
            && near(self.flop_per_s, other.flop_per_s)
    }

    /// Where the rate is from.
    fn source(&self) -> String {
        let p = &self.provenance;
        let rest = [p.device.as_deref(), p.date.as_deref()];
        [Some(p.by.as_str())].into_iter().chain(rest).flatten().collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, rate: f64, by: &str) -> RooflinePlot {
        let roof = PlotRoof {
            name: name.into(),
            bytes_per_s: Some(rate),
            flop_per_s: None,
            level: Level::Hbm,
            provenance: Provenance::given(by),
        };
        RooflinePlot { roofs: vec![roof], ..RooflinePlot::default() }
    }

    #[test]
    fn two_rates_of_one_roof_say_where_they_are_from() {
        let mut plot = with("HBM copy", 4.0e12, "own copy, first run");
        plot.add(with("HBM copy", 4.005e12, "own copy, again"));
        assert_eq!(plot.roof_names(), ["HBM copy"], "within half a percent is one line");
        plot.add(with("HBM copy", 3.6e12, "b.yaml:4"));
        plot.add(with("HBM copy", 3.0e12, "b.yaml:4"));
        plot.add(with("HBM read", 4.2e12, "b.yaml:5"));
        plot.add(with("HBM at 90 % reads", 4.1e12, "b.yaml:6"));
        plot.add(with("HBM at 67 % reads", 3.9e12, "b.yaml:6"));
        assert_eq!(
            plot.roof_names(),
            [
                "HBM copy: own copy, first run",
                "HBM copy: b.yaml:4",
                "HBM copy: b.yaml:4 (2)",
                "HBM read",
                "HBM at 90 % reads",
                "HBM at 67 % reads"
            ]
        );
        // Mixes of one rate are one line.
        let mut plot = with("HBM at 67 % reads", 4.206e12, "copy and read");
        plot.add(with("HBM at 33 % reads", 4.208e12, "copy and write"));
        assert_eq!(plot.roof_names(), ["HBM at these mixes of reads and writes"]);
    }
}
