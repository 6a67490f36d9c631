//! The top-level fields that Tollgate knows: those it reads or writes, and those it refuses because an upstream would run something
//! else than what is billed. Every other field is the upstream's business and passes unread.

use super::BodyError;

/// The refused fields that a provider's configuration lets through to that provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldRules {
    allowed: FieldSet,
}

impl FieldRules {
    /// Rules that let the named fields through.
    ///
    /// Errors with the first name that is not one of [`refused_fields`].
    pub fn allowing<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<FieldRules, UnknownField> {
        let mut rules = FieldRules::default();
        for name in names {
            match find(name.as_bytes()) {
                Some(
                    field @ Field {
                        rule: Rule::Refused(_), ..
                    },
                ) => rules.allowed.insert(field),
                _ => return Err(UnknownField(name.to_owned())),
            }
        }
        Ok(rules)
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

/// A provider's configuration allows a field that no rule refuses: a misspelling.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a field that is refused by default")]
pub struct UnknownField(pub String);

/// The names of all fields that are refused by default, each with what an upstream would do with it.
pub fn refused_fields() -> impl Iterator<Item = (&'static str, &'static str)> {
    FIELDS.iter().filter_map(|&(name, rule)| match rule {
        Rule::Refused(effect) => Some((name, effect)),
        Rule::Read(_) | Rule::Aside => None,
    })
}

/// A known field, found by its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) rule: Rule,
    bit: u64,
}

/// What Tollgate does with a known field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// It is read, and may be written.
    Read(Read),
    /// It is refused; the text says what it would do upstream.
    Refused(&'static str),
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
}

/// A set of known fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSet(u64);

impl FieldSet {
    pub(super) fn insert(&mut self, field: Field) {
        self.0 |= field.bit;
    }

    pub(super) fn contains(self, field: Field) -> bool {
        self.0 & field.bit != 0
    }
}

/// The known field with this (unescaped) name.
#[inline]
pub(super) fn find(name: &[u8]) -> Option<Field> {
    // Names of one length are few, so that a key is compared with two or three of them and not with all.
    let mut candidates = *BY_LENGTH.get(name.len())?;
    while candidates != 0 {
        let number = candidates.trailing_zeros();
        if let Some(&(known, rule)) = FIELDS.get(index(number))
            && known.as_bytes().first() == name.first()
            && known.as_bytes() == name
        {
            return Some(Field {
                name: known,
                rule,
                bit: 1 << number,
            });
        }
        candidates &= candidates.wrapping_sub(1);
    }
    None
}

/// The field that stands for tools which the upstream runs itself.
pub(super) fn hosted_tools() -> Option<Field> {
    find(HOSTED_TOOLS.as_bytes())
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Not a field of the body: a member of `tools` that is no function of the client. A key of that name is refused alike.
const HOSTED_TOOLS: &str = "hosted_tools";

const OTHER_MODEL: &str = "it lets the upstream choose another model or provider";
const OTHER_PRICE: &str = "it changes what the upstream charges for a token";
const FEES: &str = "the upstream charges for it beside the tokens";
const HIDDEN_PROMPT: &str = "it adds text to the prompt that is not in the request";
const KEPT: &str = "the upstream keeps the answer or gives it later";
const MORE_ANSWERS: &str = "the upstream generates more tokens than it delivers";

const OTHER_SPELLING: &str = "max_completion_tokens, max_tokens and n say it";

/// All known fields, at most 64.
const FIELDS: [(&str, Rule); 61] = [
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
    // OpenRouter, LiteLLM and their like: who answers.
    ("models", Rule::Refused(OTHER_MODEL)),
    ("route", Rule::Refused(OTHER_MODEL)),
    ("provider", Rule::Refused(OTHER_MODEL)),
    ("preset", Rule::Refused(OTHER_MODEL)),
    ("fallbacks", Rule::Refused(OTHER_MODEL)),
    ("engine", Rule::Refused(OTHER_MODEL)),
    ("deployment", Rule::Refused(OTHER_MODEL)),
    ("deployment_id", Rule::Refused(OTHER_MODEL)),
    ("custom_llm_provider", Rule::Refused(OTHER_MODEL)),
    ("api_base", Rule::Refused(OTHER_MODEL)),
    ("base_url", Rule::Refused(OTHER_MODEL)),
    ("api_key", Rule::Refused(OTHER_MODEL)),
    (
        "extra_body",
        Rule::Refused("it carries fields past the checks of this gateway"),
    ),
    // Other spellings of the maximum and of `n`, which the hold would not know of.
    ("max_new_tokens", Rule::Refused(OTHER_SPELLING)),
    ("max_output_tokens", Rule::Refused(OTHER_SPELLING)),
    ("num_predict", Rule::Refused(OTHER_SPELLING)),
    ("num_return_sequences", Rule::Refused(OTHER_SPELLING)),
    ("candidate_count", Rule::Refused(OTHER_SPELLING)),
    // Another price for the same tokens.
    ("service_tier", Rule::Refused(OTHER_PRICE)),
    ("speed", Rule::Refused(OTHER_PRICE)),
    ("inference_geo", Rule::Refused(OTHER_PRICE)),
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
    // Answers that are kept, come later, or are made and not delivered.
    ("store", Rule::Refused(KEPT)),
    ("background", Rule::Refused(KEPT)),
    ("best_of", Rule::Refused(MORE_ANSWERS)),
    ("use_beam_search", Rule::Refused(MORE_ANSWERS)),
    // Text that the model does not see.
    ("user", Rule::Aside),
    ("metadata", Rule::Aside),
    ("stop", Rule::Aside),
    ("logit_bias", Rule::Aside),
    ("safety_identifier", Rule::Aside),
    ("prompt_cache_key", Rule::Aside),
    ("encoding_format", Rule::Aside),
    ("reasoning_effort", Rule::Aside),
    ("verbosity", Rule::Aside),
];

/// For each length of a name, the fields that have it, as bits.
static BY_LENGTH: [u64; LENGTH_MAX + 1] = by_length();
const LENGTH_MAX: usize = 24;

const fn by_length() -> [u64; LENGTH_MAX + 1] {
    let mut sets = [0; LENGTH_MAX + 1];
    let mut number = 0;
    while number < FIELDS.len() {
        sets[FIELDS[number].0.len()] |= 1 << number;
        number += 1;
    }
    sets
}
