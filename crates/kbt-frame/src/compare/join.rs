//! The join itself, in polars.

use super::OneSided;
use crate::FrameError;
use crate::table::Table;
use polars::prelude::{
    Column, DataFrame, DataFrameJoinOps, IdxSize, JoinArgs, JoinCoalesce, JoinType, PolarsResult,
};

/// What names a row, or a cell of it, in both runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Id {
    pub(super) table: &'static str,
    pub(super) key: String,
    /// Empty for a row.
    pub(super) column: &'static str,
}

/// The place in the first and in the second.
pub(super) type Pair = (Option<usize>, Option<usize>);

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
pub(super) fn join(before: &[Id], after: &[Id]) -> Result<Vec<Pair>, FrameError> {
    let mut pairs = places(before, after).map_err(FrameError::frame("compare"))?;
    pairs.sort_by_key(|(i, j)| (i.is_none(), *i, *j));
    Ok(pairs)
}

fn places(before: &[Id], after: &[Id]) -> PolarsResult<Vec<Pair>> {
    let how = JoinArgs::new(JoinType::Full).with_coalesce(JoinCoalesce::CoalesceColumns);
    let joined = frame(before, "before")?.join(&frame(after, "after")?, ON, ON, how, None)?;
    let (before, after) = (joined.column("before")?.idx()?, joined.column("after")?.idx()?);
    let place = |index: Option<IdxSize>| index.map(|i| i as usize);
    Ok(before.iter().zip(after.iter()).map(|(i, j)| (place(i), place(j))).collect())
}

fn frame(ids: &[Id], place: &str) -> PolarsResult<DataFrame> {
    let text =
        |name: &str, of: fn(&Id) -> &str| Column::new(name.into(), ids.iter().map(of).collect::<Vec<_>>());
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
