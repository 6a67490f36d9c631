//! Keys that a reader which compares without case takes for others: Go's decoder does, and the last of them wins there.

use super::BodyError;
use super::fields;
use super::letters::{is_folded, may_fold};
use super::scan::{Fault, Scanner, Value};
use super::text;

/// Errors when a key's (unescaped) name folds to one of `known` and is not it; the caller has seen that it is none of them.
#[inline]
pub(super) fn check(name: &[u8], known: &[&'static str]) -> Result<(), Fault> {
    if !may_fold(name) {
        return Ok(());
    }
    check_folded(name, known)
}

/// The same for a key of the request itself, which is the name of no known field.
#[inline]
pub(super) fn check_field(name: &[u8]) -> Result<(), Fault> {
    if !may_fold(name) {
        return Ok(());
    }
    match fields::find_folded(name) {
        Some(field) => Err(BodyError::Misspelled { field: field.name }.into()),
        None => Ok(()),
    }
}

/// Reads the value of a field that Tollgate does not know, and errors when one of the keys in it is a maximum of completion tokens:
/// some upstreams take it from there (`options.num_predict`, `generationConfig.maxOutputTokens`).
pub(super) fn value_without_maximum(scan: &mut Scanner<'_>, bytes: &[u8]) -> Result<Value, Fault> {
    scan.value_with_keys(&mut |key| match fields::find_maximum(&text::name(key, bytes)) {
        Some(field) => Err(BodyError::Refused {
            field,
            effect: fields::OTHER_MAXIMUM,
        }
        .into()),
        None => Ok(()),
    })
}

#[cold]
fn check_folded(name: &[u8], known: &[&'static str]) -> Result<(), Fault> {
    let name = String::from_utf8_lossy(name);
    match known.iter().find(|known| name != **known && is_folded(&name, known)) {
        Some(field) => Err(BodyError::Misspelled { field }.into()),
        None => Ok(()),
    }
}
