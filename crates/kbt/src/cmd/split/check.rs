//! kbt-validate as a sweep's check.

pub(super) use kbt_ladder::target::AgainstReference as Validate;
