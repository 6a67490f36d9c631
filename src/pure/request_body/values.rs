//! Values of single fields.

use std::num::NonZeroU64;

use super::members::{Member, StreamOptions, UsageOption};
use super::scan::{Fault, Kind, Scanner, Span, Value};
use super::{BodyError, fields, fold, prompt, text};

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

/// Reads `stream_options`: an object or null.
pub(super) fn stream_options(scan: &mut Scanner<'_>, bytes: &[u8], key: Span) -> Result<StreamOptions, Fault> {
    scan.peek();
    let start = scan.offset();
    let usage = usage_option(scan, bytes)?;
    let value = Span::new(start, scan.offset());
    Ok(StreamOptions {
        member: Some(Member { key, value }),
        usage,
    })
}

fn usage_option(scan: &mut Scanner<'_>, bytes: &[u8]) -> Result<UsageOption, Fault> {
    if scan.peek() != Some(b'{') {
        let value = scan.value()?;
        if value.kind != Kind::Null {
            return Err(BodyError::WrongType {
                field: "stream_options",
                expected: "an object",
            }
            .into());
        }
        return Ok(UsageOption::Null(value.span));
    }
    let mut object = scan.open_object()?;
    let first_member = scan.offset();
    let mut options = UsageOption::Empty { first_member };
    while let Some(key) = scan.next_key(&mut object)? {
        let name = text::name(key, bytes);
        if *name == *b"include_usage" {
            if let UsageOption::IncludeUsage { .. } = options {
                return Err(BodyError::Duplicate { field: INCLUDE_USAGE }.into());
            }
            let (value, asked) = boolean(scan, INCLUDE_USAGE)?;
            options = UsageOption::IncludeUsage { value, asked };
            continue;
        }
        fold::check(&name, &["include_usage"])?;
        scan.value()?;
        if let UsageOption::Empty { first_member } = options {
            options = UsageOption::Others { first_member };
        }
    }
    Ok(options)
}

/// Whether a value of `usage`, which was read, asks for the usage: its `include` is true. It is an object or null.
pub(super) fn asks_usage(value: Value, bytes: &[u8]) -> Result<bool, Fault> {
    match value.kind {
        Kind::Object => {}
        Kind::Null => return Ok(false),
        _ => {
            return Err(BodyError::WrongType {
                field: fields::USAGE,
                expected: "an object",
            }
            .into());
        }
    }
    let mut scan = Scanner::at(bytes, value.span.start);
    let mut object = scan.open_object()?;
    let mut asked = None;
    while let Some(key) = scan.next_key(&mut object)? {
        let name = text::name(key, bytes);
        if *name != *b"include" {
            fold::check(&name, &["include"])?;
            scan.value()?;
            continue;
        }
        if asked.is_some() {
            return Err(BodyError::Duplicate { field: INCLUDE }.into());
        }
        let (_, include) = boolean(&mut scan, INCLUDE)?;
        asked = Some(include);
    }
    Ok(asked.unwrap_or(false))
}

const INCLUDE_USAGE: &str = "stream_options.include_usage";
const INCLUDE: &str = "usage.include";
