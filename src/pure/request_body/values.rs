//! Values of single fields.

use std::num::NonZeroU64;

use super::BodyError;
use super::prompt;
use super::scan::{Fault, Kind, Scanner, Span};

/// Reads a boolean; null is false.
pub(super) fn boolean(scan: &mut Scanner<'_>, field: &'static str) -> Result<(Span, bool), Fault> {
    let value = scan.value()?;
    match value.kind {
        Kind::True => Ok((value.span, true)),
        Kind::False | Kind::Null => Ok((value.span, false)),
        _ => Err(BodyError::WrongType {
            field,
            expected: "a boolean",
        }
        .into()),
    }
}

/// Reads a positive integer in plain digits, up to 2^32 - 1; null is none.
pub(super) fn positive(
    scan: &mut Scanner<'_>,
    bytes: &[u8],
    field: &'static str,
) -> Result<(Span, Option<NonZeroU64>), Fault> {
    let value = scan.value()?;
    if value.kind == Kind::Null {
        return Ok((value.span, None));
    }
    match prompt::plain_integer(value, bytes)
        .map(u64::from)
        .and_then(NonZeroU64::new)
    {
        Some(number) => Ok((value.span, Some(number))),
        None => Err(BodyError::WrongType {
            field,
            expected: "a positive integer, in digits, of at most 4294967295",
        }
        .into()),
    }
}
