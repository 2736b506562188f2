//! Tables that listings carry beside the code: live registers, resource usage.

use crate::{Live, Resources};
use std::collections::HashMap;

/// Which register file a column of the live-register table counts.
#[derive(Debug, Clone, Copy)]
enum LiveColumn {
    Gpr,
    Pred,
    Ugpr,
    Upred,
    Other,
}

/// The live-register table of `-plr` and `-lrm`: its banner names the columns.
#[derive(Debug, Default)]
pub(super) struct LiveTable {
    columns: Vec<LiveColumn>,
}

impl LiveTable {
    /// Reads the banner's column names, in order; other rows of the banner change nothing.
    pub(super) fn banner(&mut self, text: &str) {
        let names: Vec<_> = text.split('|').map(str::trim).filter(|c| !c.is_empty()).collect();
        let columns: Vec<_> = names
            .iter()
            .map(|name| match *name {
                "GPR" => LiveColumn::Gpr,
                "PRED" => LiveColumn::Pred,
                "UGPR" => LiveColumn::Ugpr,
                "UPRED" => LiveColumn::Upred,
                _ => LiveColumn::Other,
            })
            .collect();
        if columns.iter().any(|c| !matches!(c, LiveColumn::Other)) {
            self.columns = columns;
        }
    }

    /// One row: each cell starts with its count, or is empty for none.
    pub(super) fn row(&self, row: &str) -> Option<Live> {
        let cells = row.trim().strip_prefix('|')?.split('|');
        let mut live = Live::default();
        for (cell, column) in cells.zip(&self.columns) {
            let count = cell.split_ascii_whitespace().next().map_or(Some(0), |n| n.parse().ok());
            match column {
                LiveColumn::Gpr => live.gpr = count,
                LiveColumn::Pred => live.pred = count,
                LiveColumn::Ugpr => live.ugpr = count,
                LiveColumn::Upred => live.upred = count,
                LiveColumn::Other => {}
            }
        }
        (live != Live::default()).then_some(live)
    }
}

/// The block of `cuobjdump -res-usage`: resources by function name, until the function comes.
#[derive(Debug, Default)]
pub(super) struct ResourceTable {
    by_name: HashMap<String, Resources>,
    /// The function that the next row is of.
    of: Option<String>,
}

impl ResourceTable {
    /// Reads `Function NAME:` or `REG:17 STACK:32 SHARED:0 LOCAL:0 CONSTANT[0]:544`. True where the line belongs
    /// to the block.
    pub(super) fn line(&mut self, text: &str) -> bool {
        if let Some(name) = text.strip_prefix("Function ").and_then(|n| n.strip_suffix(':')) {
            self.of = Some(name.to_owned());
            return true;
        }
        let mut resources = Resources::default();
        let mut known = false;
        for (key, value) in text.split_ascii_whitespace().filter_map(|w| w.rsplit_once(':')) {
            let number = value.parse::<u64>().ok();
            known |= number.is_some();
            match key {
                "REG" => resources.registers = number.and_then(|n| u32::try_from(n).ok()),
                "STACK" => resources.stack_bytes = number,
                "LOCAL" => resources.local_bytes = number,
                "SHARED" => resources.shared_bytes = number,
                _ => {}
            }
        }
        if let Some(name) = self.of.take_if(|_| known) {
            self.by_name.insert(name, resources);
        }
        known || matches!(text, "Resource usage:" | "Common:")
    }

    /// The resources of a function, once.
    pub(super) fn take(&mut self, name: &str) -> Option<Resources> {
        self.by_name.remove(name)
    }
}
