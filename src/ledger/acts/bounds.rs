//! The bounds of an entry and of a page of them: what nobody looked at yet is not written into the log at any length, nor read from it.

use crate::ledger::admin::credits::{CreditOp, check_reference};
use crate::ledger::admin::operators::{Act, ActPage, OperatorOp};
use crate::ledger::admin::{AdminError, AdminOp, KeyRef};
use crate::pure::operator::{is_operator_id, is_public_id};

/// Checks what an entry says of a command before anybody else has looked at it.
///
/// # Errors
/// What the command would be refused with as well.
pub(super) fn check(op: &AdminOp) -> Result<(), AdminError> {
    match op {
        AdminOp::CreditsAdd { reference, .. } => check_reference(reference).map_err(AdminError::Invalid),
        AdminOp::Credit(CreditOp::Post(post)) => check_reference(&post.reference).map_err(AdminError::Invalid),
        AdminOp::KeySet { key, .. } | AdminOp::KeyRevoke { key } | AdminOp::KeyRotate { key, .. } => match key {
            KeyRef::Id(id) if !is_public_id("key_", id.as_str()) => Err(AdminError::NoKey),
            _ => Ok(()),
        },
        AdminOp::Operator(OperatorOp::Revoke { id }) if !is_operator_id(id) => {
            Err(AdminError::NoOperator(capped(id.escape_debug().collect())))
        }
        _ => Ok(()),
    }
}

/// The text, cut off where it is longer than an entry takes.
pub(super) fn capped(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        let room = TEXT_BYTES_MAX.saturating_sub(CUT.len());
        text.truncate(text.floor_char_boundary(room));
        text.push_str(CUT);
    }
    text
}

/// A page that is read, entry by entry, newest first.
pub(in crate::ledger) struct PageReader {
    page: ActPage,
    limit: usize,
    bytes: usize,
}

impl PageReader {
    /// An empty page of at most `limit` acts.
    pub(in crate::ledger) fn new(limit: u32) -> PageReader {
        PageReader {
            page: ActPage::default(),
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            bytes: 0,
        }
    }

    /// Adds an entry. False: it belongs to the next page, which begins after the last that was added.
    ///
    /// # Errors
    /// When it is no entry.
    pub(in crate::ledger) fn add(&mut self, id: String, text: &str) -> Result<bool, serde_json::Error> {
        self.bytes = self.bytes.saturating_add(text.len());
        let acts = &mut self.page.acts;
        if acts.len() >= self.limit || (self.bytes > PAGE_BYTES_MAX && !acts.is_empty()) {
            self.page.next = acts.last().map(|act| act.id.clone());
            return Ok(false);
        }
        let act: Act = serde_json::from_str(text)?;
        acts.push(Act { id, ..act });
        Ok(true)
    }

    /// What was read.
    pub(in crate::ledger) fn done(self) -> ActPage {
        self.page
    }
}

/// The longest subject, and the longest error, in bytes.
const TEXT_BYTES_MAX: usize = 300;
const CUT: &str = "…";
/// The most bytes of entries that one page has, unless its first has more.
pub(in crate::ledger) const PAGE_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_where_it_is_longer_than_an_entry_takes() {
        let longest = "a".repeat(TEXT_BYTES_MAX);
        assert_eq!(capped(longest.clone()), longest);
        let cut = capped(format!("{longest}a"));
        assert_eq!((cut.len(), cut.ends_with(CUT)), (TEXT_BYTES_MAX, true));
        let within = capped("é".repeat(TEXT_BYTES_MAX));
        assert!(within.len() <= TEXT_BYTES_MAX && within.ends_with(CUT), "{within}");
    }

    #[test]
    fn a_page_has_as_many_bytes_as_it_may_and_no_more() {
        let of_length = |bytes: usize| {
            let act = |action: &str| {
                let actor = r#"{"id":"cli","name":"a","role":"admin","address":null}"#;
                let rest = r#""account":null,"subject":null,"before":null,"after":null,"error":null"#;
                format!(r#"{{"id":"","at":0,"actor":{actor},"action":"{action}",{rest}}}"#)
            };
            act(&"a".repeat(bytes - act("").len()))
        };
        let half = of_length(PAGE_BYTES_MAX / 2);
        for (more, is_added) in [(0, true), (1, false)] {
            let mut reader = PageReader::new(10);
            assert!(reader.add("2".to_owned(), &half).unwrap());
            let second = of_length(PAGE_BYTES_MAX / 2 + more);
            assert_eq!(reader.add("1".to_owned(), &second).unwrap(), is_added);
            let next = reader.done().next;
            assert_eq!(next, (!is_added).then(|| "2".to_owned()));
        }
    }
}
