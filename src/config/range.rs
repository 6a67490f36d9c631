//! Figures that have a least and a most.

use std::fmt::Display;
use std::ops::RangeInclusive;

/// The value, where it is within its range.
///
/// # Errors
/// Names the key, the value and the range.
pub(super) fn within<T: PartialOrd + Display>(
    key: impl Display,
    value: T,
    range: RangeInclusive<T>,
) -> Result<T, String> {
    match range.contains(&value) {
        true => Ok(value),
        false => Err(format!(
            "{key}: {value} is not from {} to {}",
            range.start(),
            range.end()
        )),
    }
}
