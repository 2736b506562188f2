//! The join itself, in polars.

use super::OneSided;
use crate::FrameError;
use crate::table::Table;
use polars::prelude::{Column, DataFrame, DataFrameJoinOps, IdxCa, IdxSize, JoinArgs, JoinCoalesce, JoinType};

/// What names a row, or a cell of it, in both runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Id {
    pub(super) table: &'static str,
    pub(super) key: String,
    /// Empty for a row.
    pub(super) column: &'static str,
}

/// The columns that a join is on.
const ON: [&str; 3] = ["table", "key", "column"];

impl Id {
    pub(super) fn row(table: &'static str, key: &str) -> Self {
        Self { table, key: key.to_owned(), column: "" }
    }

    pub(super) fn cell(table: &Table, row: usize, column: &'static str) -> Self {
        Self { table: table.name, key: table.keys.get(row).cloned().unwrap_or_default(), column }
    }

    pub(super) fn only(&self, which: &str) -> OneSided {
        OneSided { only: which.to_owned(), table: self.table.to_owned(), key: self.key.clone(), column: None }
    }
}

/// The places of what both sides name, and of what one side names alone: by place in the first, then in the second.
pub(super) fn join(before: &[Id], after: &[Id]) -> Result<Vec<(Option<usize>, Option<usize>)>, FrameError> {
    let joined = || {
        let how = JoinArgs::new(JoinType::Full).with_coalesce(JoinCoalesce::CoalesceColumns);
        let joined = frame(before, "before")?.join(&frame(after, "after")?, ON, ON, how, None)?;
        let places = |name: &str| -> polars::prelude::PolarsResult<IdxCa> { Ok(joined.column(name)?.idx()?.clone()) };
        let pairs = places("before")?.iter().zip(places("after")?.iter()).map(|(i, j)| (i.map(place), j.map(place)));
        Ok(pairs.collect::<Vec<_>>())
    };
    let mut pairs = joined().map_err(FrameError::frame("compare"))?;
    pairs.sort_by_key(|(i, j)| (i.is_none(), *i, *j));
    Ok(pairs)
}

const fn place(index: IdxSize) -> usize {
    index as usize
}

fn frame(ids: &[Id], place: &str) -> polars::prelude::PolarsResult<DataFrame> {
    let text = |name: &str, of: fn(&Id) -> &str| {
        Column::new(name.into(), ids.iter().map(of).collect::<Vec<_>>())
    };
    DataFrame::new(
        ids.len(),
        vec![
            text(ON[0], |id| id.table),
            text(ON[1], |id| &id.key),
            text(ON[2], |id| id.column),
            Column::new_row_index(place.into(), 0, ids.len())?,
        ],
    )
}
