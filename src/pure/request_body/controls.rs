//! `cache_control` at places that only some upstreams read: in the function of a tool, in a call of one, in a part of a part.

use super::fold;
use super::pieces::{Piece, found_control};
use super::priced::CACHE_CONTROL;
use super::scan::{Fault, Kind, Scanner, Text, Value};
use super::text::{self, Name};

/// Finds each `cache_control` within a value that was read, at whatever level, but not in what is the client's own.
///
/// # Errors
/// When a key folds to that name and is not it.
#[inline]
pub(super) fn find_within(value: Value, bytes: &[u8], found: &mut impl FnMut(Piece)) -> Result<(), Fault> {
    let is_open = matches!(value.kind, Kind::Object | Kind::Array);
    if !is_open || !may_hold_one(value.span.of(bytes)) {
        return Ok(());
    }
    walk(&mut Scanner::at(bytes, value.span.start), bytes, found)
}

/// Recurses at most as deep as a body may be, for it was read before.
fn walk(scan: &mut Scanner<'_>, bytes: &[u8], found: &mut dyn FnMut(Piece)) -> Result<(), Fault> {
    match scan.peek() {
        Some(b'{') => {
            let mut members = scan.open_object()?;
            while let Some(key) = scan.next_key(&mut members)? {
                if walks_into(key, scan, bytes, found)? {
                    walk(scan, bytes, found)?;
                }
            }
        }
        Some(b'[') => {
            let mut elements = scan.open_array()?;
            while scan.next_element(&mut elements)? {
                walk(scan, bytes, found)?;
            }
        }
        _ => {
            scan.value()?;
        }
    }
    Ok(())
}

/// Whether one may stand within the value of this key; where none may, that is read. In a function of its own, so that no level of the
/// recursion keeps the key's name on the stack.
#[inline(never)]
fn walks_into(key: Text, scan: &mut Scanner<'_>, bytes: &[u8], found: &mut dyn FnMut(Piece)) -> Result<bool, Fault> {
    let name = text::name(key, bytes);
    if *name == *CACHE_CONTROL.as_bytes() {
        found_control(scan.value()?, &mut |piece| found(piece));
        return Ok(false);
    }
    if is_clients_own(&name) {
        scan.value()?;
        return Ok(false);
    }
    fold::check(&name, &[CACHE_CONTROL])?;
    Ok(true)
}

/// Whether what stands under a key of this name is the client's own.
pub(super) fn is_clients_own(name: &Name<'_>) -> bool {
    name.is_one_of(&CLIENTS_OWN)
}

/// Whether the name can stand there in some spelling: mostly it does not, and nothing is read twice.
fn may_hold_one(json: &[u8]) -> bool {
    let name = CACHE_CONTROL.as_bytes();
    let is_there = |at: usize| {
        let start = at.checked_sub(BEFORE_LINE);
        let word = start.and_then(|start| json.get(start..start.saturating_add(name.len())));
        word.is_some_and(|word| word.eq_ignore_ascii_case(name))
    };
    memchr::memchr_iter(b'_', json).any(is_there) || memchr::memmem::find(json, b"\\u").is_some()
}

/// Bytes of the name before its underscore.
const BEFORE_LINE: usize = 5;
/// Schemas, arguments and metadata: the keys in them are the client's.
const CLIENTS_OWN: [&str; 7] = [
    "parameters",
    "input_schema",
    "schema",
    "arguments",
    "input",
    "output",
    "metadata",
];
