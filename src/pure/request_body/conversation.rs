//! Which conversation a request belongs to, as a hash: so that its turns go to the target whose cache has its prompt.

use super::fields::{self, Read, Rule};
use super::scan::{Fault, Scanner, Span};
use super::{Endpoint, RequestBody, text};
use crate::pure::rendezvous::Hash;

impl RequestBody {
    /// A hash of the conversation of a chat, of `account` alone: by `session_id`, else by `header` (`x-session-id`), else by
    /// `prompt_cache_key`, else by the first system message and the first other one, of which each turn has the same. A name that is
    /// empty or longer than [`SESSION_CHARS_MAX`] characters is none. None for embeddings.
    pub fn conversation(&self, account: &str, header: Option<&str>) -> Option<u64> {
        if self.endpoint == Endpoint::Embeddings {
            return None;
        }
        let mut hash = Hash::default();
        hash.add(account.as_bytes());
        let is_name = |name: &str| (1..=SESSION_CHARS_MAX).contains(&name.chars().count());
        let unescaped = |name| text::unescape(name, &self.bytes);
        let (session, cache_key) = match self.names.as_deref() {
            Some(names) => (names.session.and_then(|session| session.text), names.cache_key),
            None => (None, None),
        };
        let session = session.map(unescaped);
        if let Some(name) = session.as_deref().filter(|name| is_name(name)) {
            hash.add(name.as_bytes());
        } else if let Some(name) = header.filter(|name| is_name(name)) {
            hash.add(name.as_bytes());
        } else if let Some(name) = cache_key.map(unescaped).filter(|name| is_name(name)) {
            hash.add(name.as_bytes());
        } else {
            // It was read before: nothing of it can be wrong.
            self.add_first_messages(&mut hash).ok()?;
        }
        Some(hash.end())
    }

    fn add_first_messages(&self, hash: &mut Hash) -> Result<(), Fault> {
        let bytes = &*self.bytes;
        let mut scan = Scanner::new(bytes);
        let mut object = scan.open_object()?;
        while let Some(key) = scan.next_key(&mut object)? {
            let rule = fields::find_key(key, bytes).map(|field| field.rule);
            if rule != Some(Rule::Read(Read::Messages)) {
                scan.value()?;
                continue;
            }
            let (mut system, mut other) = (None, None);
            let mut messages = scan.open_array()?;
            while (system.is_none() || other.is_none()) && scan.next_element(&mut messages)? {
                let (span, is_system) = message(&mut scan, bytes)?;
                let first = if is_system { &mut system } else { &mut other };
                first.get_or_insert(span);
            }
            for span in [system, other].into_iter().flatten() {
                hash.add(span.of(bytes));
            }
            return Ok(());
        }
        Ok(())
    }
}

/// Reads a message: where it stands, and whether it is the system's.
fn message(scan: &mut Scanner<'_>, bytes: &[u8]) -> Result<(Span, bool), Fault> {
    scan.peek();
    let (start, mut is_system) = (scan.offset(), false);
    let mut members = scan.open_object()?;
    while let Some(key) = scan.next_key(&mut members)? {
        let value = scan.value()?;
        if text::is(key, bytes, "role") {
            let is = |role| value.text().is_some_and(|text| text::is(text, bytes, role));
            is_system = is("system") || is("developer");
        }
    }
    Ok((Span::new(start, scan.offset()), is_system))
}

/// The longest name of a conversation, in characters.
pub const SESSION_CHARS_MAX: usize = 256;
