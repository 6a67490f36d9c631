//! The top-level fields that Tollgate knows: those it reads or writes, and those it refuses because an upstream would run something
//! else than what is billed. Every other field is the upstream's business and passes unread.

use self::table::{BY_LENGTH, FIELDS, LENGTH_MAX, STARTS};
pub(super) use self::table::{CACHE_CONTROL, HOSTED_TOOLS, METADATA, OTHER_MAXIMUM, SESSION, STORE, USAGE};
use super::letters::{folded, may_fold};
use super::scan::{Spelling, Text};
use super::{BodyError, text};

mod table;

/// The fields that a provider's configuration lets through to that provider: others are refused, or taken out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldRules {
    /// And [`KEEPS_BY_DEFAULT`], for it is asked with each call.
    allowed: FieldSet,
}

impl FieldRules {
    /// Rules that let the named fields through.
    ///
    /// Errors with the first name that is neither one of [`refused_fields`] nor of a field that is taken out.
    pub fn allowing<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<FieldRules, UnknownField> {
        let mut rules = FieldRules::default();
        for name in names {
            match find(name.as_bytes()) {
                Some(
                    field @ Field {
                        rule: Rule::Refused(_) | Rule::Read(Read::Session | Read::Metadata | Read::Usage),
                        ..
                    },
                ) => rules.allowed.insert(field),
                _ => return Err(UnknownField(name.to_owned())),
            }
        }
        Ok(rules)
    }

    /// The same for a provider that may keep answers unless it is told not to, as OpenAI does: it gets a chat's `store: false`.
    #[must_use]
    pub fn of_who_keeps_by_default(mut self, keeps_by_default: bool) -> FieldRules {
        if keeps_by_default {
            self.allowed.0 |= KEEPS_BY_DEFAULT;
        }
        self
    }

    /// Whether a chat's `store: false` means something to the provider.
    pub(super) fn keeps_by_default(self) -> bool {
        self.allowed.0 & KEEPS_BY_DEFAULT != 0
    }

    /// Whether the provider gets the field of this name.
    pub(super) fn allows(self, name: &str) -> bool {
        find(name.as_bytes()).is_some_and(|field| self.allowed.contains(field))
    }

    /// The first of `present` that these rules do not let through.
    pub(super) fn check(self, present: FieldSet) -> Result<(), BodyError> {
        let refused = present.0 & !self.allowed.0;
        if refused == 0 {
            return Ok(());
        }
        match FIELDS.get(index(refused.trailing_zeros())) {
            Some(&(name, Rule::Refused(effect))) => Err(BodyError::Refused { field: name, effect }),
            _ => Ok(()),
        }
    }
}

/// A provider's configuration allows a field that no rule refuses or takes out: a misspelling.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a field that is refused or taken out by default")]
pub struct UnknownField(pub String);

/// The names of all fields that are refused by default, each with what an upstream would do with it.
pub fn refused_fields() -> impl Iterator<Item = (&'static str, &'static str)> {
    FIELDS.iter().filter_map(|&(name, rule)| match rule {
        Rule::Refused(effect) => Some((name, effect)),
        Rule::Read(_) | Rule::OtherMaximum | Rule::Aside => None,
    })
}

/// The other spellings of the maximum of completion tokens, which are always refused, in lower case: `maxoutputtokens` stands for
/// `maxOutputTokens` too.
pub fn other_maxima() -> impl Iterator<Item = &'static str> {
    FIELDS
        .iter()
        .filter_map(|&(name, rule)| (rule == Rule::OtherMaximum).then_some(name))
}

/// A known field, found by its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) rule: Rule,
    bit: u128,
}

/// What Tollgate does with a known field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// It is read, and may be written.
    Read(Read),
    /// It is refused; the text says what it would do upstream.
    Refused(&'static str),
    /// Another spelling of the maximum of completion tokens. It is refused whatever a provider's configuration says.
    OtherMaximum,
    /// It passes, and the model does not see it: its text is no part of the prompt.
    Aside,
}

/// The fields that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    Model,
    Messages,
    Input,
    Stream,
    StreamOptions,
    MaxTokens,
    MaxCompletionTokens,
    Choices,
    Tools,
    Functions,
    Thinking,
    Reasoning,
    Session,
    CacheKey,
    Metadata,
    Usage,
}

/// A set of known fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSet(u128);

impl FieldSet {
    pub(super) fn insert(&mut self, field: Field) {
        self.0 |= field.bit;
    }

    pub(super) fn without(self, others: FieldSet) -> FieldSet {
        FieldSet(self.0 & !others.0)
    }

    pub(super) fn contains(self, field: Field) -> bool {
        self.0 & field.bit != 0
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The known field with this (unescaped) name.
#[inline]
pub(super) fn find(name: &[u8]) -> Option<Field> {
    // Names of one length are few, so that a key is compared with two or three of them and not with all.
    let (start, end) = (*STARTS.get(name.len())?, *STARTS.get(name.len().wrapping_add(1))?);
    let numbers = BY_LENGTH.get(start..end)?;
    numbers.iter().find_map(|&number| {
        let &(known, rule) = FIELDS.get(number)?;
        let same = known.as_bytes().first() == name.first() && known.as_bytes() == name;
        same.then(|| Field {
            name: known,
            rule,
            bit: 1 << number,
        })
    })
}

/// The known field of a key, compared unescaped.
#[inline]
pub(super) fn find_key(key: Text, bytes: &[u8]) -> Option<Field> {
    match key.spelling {
        Spelling::Plain => find(key.span.of(bytes)),
        Spelling::Escaped => find(&text::name(key, bytes)),
    }
}

/// The known field that this (unescaped) name is, or that a reader which compares without case may take it for. Its length finds it, as in
/// [`find`]: a body may have millions of such keys.
#[cold]
pub(super) fn find_folded(name: &[u8]) -> Option<Field> {
    if name.len() > text::NAME_BYTES_MAX {
        return None;
    }
    let (mut bytes, mut length) = ([0; LENGTH_MAX], 0_usize);
    for character in std::str::from_utf8(name).ok()?.chars() {
        // All known names are ASCII, and none is longer.
        let byte = u8::try_from(folded(character)).ok().filter(u8::is_ascii)?;
        *bytes.get_mut(length)? = byte;
        length = length.saturating_add(1);
    }
    find(bytes.get(..length)?)
}

/// The spelling of a maximum of completion tokens that this (unescaped) name is, or that some reader may take it for.
#[inline]
pub(super) fn find_maximum(name: &[u8]) -> Option<&'static str> {
    let field = match may_fold(name) {
        true => find_folded(name)?,
        // It can only be one itself.
        false => find(name)?,
    };
    let is_maximum = matches!(
        field.rule,
        Rule::OtherMaximum | Rule::Read(Read::MaxTokens | Read::MaxCompletionTokens)
    );
    is_maximum.then_some(field.name)
}

/// The field that stands for tools which the upstream runs itself.
pub(super) fn hosted_tools() -> Option<Field> {
    find(HOSTED_TOOLS.as_bytes())
}

/// The bit of no field.
const KEEPS_BY_DEFAULT: u128 = 1 << 127;
const _: () = assert!(FIELDS.len() < 128);

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
