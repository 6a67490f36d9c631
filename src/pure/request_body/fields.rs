//! The top-level fields that Tollgate knows: those it reads or writes, and those it refuses because an upstream would run something
//! else than what is billed. Every other field is the upstream's business and passes unread.

use super::letters::{folded, may_fold};
use super::scan::{Spelling, Text};
use super::{BodyError, text};

/// The fields that a provider's configuration lets through to that provider: others are refused, or taken out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldRules {
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

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// The field that names a conversation.
pub(super) const SESSION: &str = "session_id";
/// The field that may name an end user.
pub(super) const METADATA: &str = "metadata";
/// OpenRouter's way to ask for the usage.
pub(super) const USAGE: &str = "usage";
/// The field that asks the upstream to keep the answer.
pub(super) const STORE: &str = "store";

/// Not a field of the body: a member of `tools` that is no function of the client. A key of that name is refused alike.
pub(super) const HOSTED_TOOLS: &str = "hosted_tools";

const OTHER_MODEL: &str = "it lets the upstream choose another model or provider";
const UNCHECKED: &str = "it carries fields past the checks of this gateway";
const OTHER_PRICE: &str = "it changes what the upstream charges for a token";
const FEES: &str = "the upstream charges for it beside the tokens";
const HIDDEN_PROMPT: &str = "it adds text to the prompt that is not in the request";
const KEPT: &str = "the upstream keeps the answer or gives it later";
const MORE_ANSWERS: &str = "the upstream generates more tokens than it delivers";

const OTHER_SPELLING: &str = "max_completion_tokens, max_tokens and n say it";
/// Why another spelling of the maximum is refused.
pub(super) const OTHER_MAXIMUM: &str = "max_completion_tokens or max_tokens of the request itself say it";

/// All known fields, at most 128, in lower case; one that is written otherwise stands there so as well.
const FIELDS: [(&str, Rule); FIELDS_COUNT] = [
    ("model", Rule::Read(Read::Model)),
    ("messages", Rule::Read(Read::Messages)),
    ("input", Rule::Read(Read::Input)),
    ("stream", Rule::Read(Read::Stream)),
    ("stream_options", Rule::Read(Read::StreamOptions)),
    ("max_tokens", Rule::Read(Read::MaxTokens)),
    ("max_completion_tokens", Rule::Read(Read::MaxCompletionTokens)),
    ("n", Rule::Read(Read::Choices)),
    ("tools", Rule::Read(Read::Tools)),
    ("functions", Rule::Read(Read::Functions)),
    ("thinking", Rule::Read(Read::Thinking)),
    ("reasoning", Rule::Read(Read::Reasoning)),
    // Which conversation it is, for targets that share calls, who asks, and for what usage. The model sees none of them.
    (SESSION, Rule::Read(Read::Session)),
    ("prompt_cache_key", Rule::Read(Read::CacheKey)),
    (METADATA, Rule::Read(Read::Metadata)),
    (USAGE, Rule::Read(Read::Usage)),
    // OpenRouter, LiteLLM and their like: who answers.
    ("models", Rule::Refused(OTHER_MODEL)),
    ("route", Rule::Refused(OTHER_MODEL)),
    ("provider", Rule::Refused(OTHER_MODEL)),
    ("preset", Rule::Refused(OTHER_MODEL)),
    ("fallbacks", Rule::Refused(OTHER_MODEL)),
    ("context_window_fallbacks", Rule::Refused(OTHER_MODEL)),
    ("content_policy_fallbacks", Rule::Refused(OTHER_MODEL)),
    ("engine", Rule::Refused(OTHER_MODEL)),
    ("deployment", Rule::Refused(OTHER_MODEL)),
    ("deployment_id", Rule::Refused(OTHER_MODEL)),
    ("custom_llm_provider", Rule::Refused(OTHER_MODEL)),
    ("api_base", Rule::Refused(OTHER_MODEL)),
    ("base_url", Rule::Refused(OTHER_MODEL)),
    ("api_key", Rule::Refused(OTHER_MODEL)),
    ("extra_body", Rule::Refused(UNCHECKED)),
    ("providerOptions", Rule::Refused(UNCHECKED)),
    ("provideroptions", Rule::Refused(UNCHECKED)),
    // Other spellings of the maximum, which the hold would not know of and an upstream may prefer; in lower case, as all are here.
    ("max_new_tokens", Rule::OtherMaximum),
    ("max_output_tokens", Rule::OtherMaximum),
    ("max_generated_tokens", Rule::OtherMaximum),
    ("max_generation_tokens", Rule::OtherMaximum),
    ("max_tokens_to_sample", Rule::OtherMaximum),
    ("max_response_tokens", Rule::OtherMaximum),
    ("max_decode_tokens", Rule::OtherMaximum),
    ("max_total_tokens", Rule::OtherMaximum),
    ("max_gen_len", Rule::OtherMaximum),
    ("max_length", Rule::OtherMaximum),
    ("maxtokens", Rule::OtherMaximum),
    ("maxnewtokens", Rule::OtherMaximum),
    ("maxoutputtokens", Rule::OtherMaximum),
    ("maxcompletiontokens", Rule::OtherMaximum),
    ("maxtokencount", Rule::OtherMaximum),
    ("n_predict", Rule::OtherMaximum),
    ("num_predict", Rule::OtherMaximum),
    // Other spellings of `n`.
    ("num_return_sequences", Rule::Refused(OTHER_SPELLING)),
    ("candidate_count", Rule::Refused(OTHER_SPELLING)),
    ("n_cmpl", Rule::Refused(OTHER_SPELLING)),
    // Another price for the same tokens.
    ("service_tier", Rule::Refused(OTHER_PRICE)),
    ("speed", Rule::Refused(OTHER_PRICE)),
    ("inference_geo", Rule::Refused(OTHER_PRICE)),
    (
        super::priced::CACHE_CONTROL,
        Rule::Refused("the catalogue has no price for what it has the upstream write to its cache, or not for so long"),
    ),
    (
        "modalities",
        Rule::Refused("audio and images in the answer have other prices than text"),
    ),
    (
        "audio",
        Rule::Refused("audio in the answer has another price than text"),
    ),
    (
        "prediction",
        Rule::Refused("rejected tokens of a prediction are charged but not delivered"),
    ),
    // Fees beside the tokens.
    ("plugins", Rule::Refused(FEES)),
    ("web_search_options", Rule::Refused(FEES)),
    ("web_search", Rule::Refused(FEES)),
    ("search_parameters", Rule::Refused(FEES)),
    ("enable_search", Rule::Refused(FEES)),
    ("mcp_servers", Rule::Refused(FEES)),
    ("container", Rule::Refused(FEES)),
    (HOSTED_TOOLS, Rule::Refused(FEES)),
    // A prompt that the body does not show, so that no bound of it holds.
    ("transforms", Rule::Refused("the upstream rewrites the prompt")),
    ("chat_template", Rule::Refused("the upstream rewrites the prompt")),
    (
        "mm_processor_kwargs",
        Rule::Refused("it changes how many tokens an image is"),
    ),
    ("previous_response_id", Rule::Refused(HIDDEN_PROMPT)),
    ("conversation", Rule::Refused(HIDDEN_PROMPT)),
    ("cached_content", Rule::Refused(HIDDEN_PROMPT)),
    ("cachedcontent", Rule::Refused(HIDDEN_PROMPT)),
    ("data_sources", Rule::Refused(HIDDEN_PROMPT)),
    // Answers that are kept, come later, or are made and not delivered.
    (STORE, Rule::Refused(KEPT)),
    ("background", Rule::Refused(KEPT)),
    ("deferred", Rule::Refused(KEPT)),
    ("best_of", Rule::Refused(MORE_ANSWERS)),
    ("use_beam_search", Rule::Refused(MORE_ANSWERS)),
    // Text that the model does not see.
    ("user", Rule::Aside),
    ("stop", Rule::Aside),
    ("logit_bias", Rule::Aside),
    ("safety_identifier", Rule::Aside),
    ("encoding_format", Rule::Aside),
    ("reasoning_effort", Rule::Aside),
    ("verbosity", Rule::Aside),
];

/// The numbers of the fields by the length of their names.
static BY_LENGTH: [usize; FIELDS_COUNT] = by_length();
/// For each length of a name where its fields begin in [`BY_LENGTH`]; those of the next length begin where they end.
static STARTS: [usize; LENGTH_MAX + 2] = starts();
const FIELDS_COUNT: usize = 88;
const LENGTH_MAX: usize = 24;
const _: () = assert!(3 * LENGTH_MAX <= text::NAME_BYTES_MAX);

const fn by_length() -> [usize; FIELDS_COUNT] {
    let mut numbers = [0; FIELDS_COUNT];
    let (mut place, mut length) = (0, 0);
    while length <= LENGTH_MAX {
        let mut number = 0;
        while number < FIELDS_COUNT {
            if FIELDS[number].0.len() == length {
                numbers[place] = number;
                place += 1;
            }
            number += 1;
        }
        length += 1;
    }
    assert!(place == FIELDS_COUNT, "no name is longer than LENGTH_MAX");
    numbers
}

const fn starts() -> [usize; LENGTH_MAX + 2] {
    let mut starts = [0; LENGTH_MAX + 2];
    let mut number = 0;
    while number < FIELDS_COUNT {
        let mut length = FIELDS[number].0.len() + 1;
        while length < LENGTH_MAX + 2 {
            starts[length] += 1;
            length += 1;
        }
        number += 1;
    }
    starts
}

#[cfg(test)]
mod tests;
