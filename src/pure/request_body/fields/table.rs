//! The table of the known fields, and what finds them in it.

use super::super::text;
use super::{Read, Rule};

pub(in super::super) const CACHE_CONTROL: &str = "cache_control";
/// The field that names a conversation.
pub(in super::super) const SESSION: &str = "session_id";
/// The field that may name an end user.
pub(in super::super) const METADATA: &str = "metadata";
/// OpenRouter's way to ask for the usage.
pub(in super::super) const USAGE: &str = "usage";
/// The field that asks the upstream to keep the answer.
pub(in super::super) const STORE: &str = "store";

/// Not a field of the body: a member of `tools` that is no function of the client. A key of that name is refused alike.
pub(in super::super) const HOSTED_TOOLS: &str = "hosted_tools";

const OTHER_MODEL: &str = "it lets the upstream choose another model or provider";
const UNCHECKED: &str = "it carries fields past the checks of this gateway";
const OTHER_PRICE: &str = "it changes what the upstream charges for a token";
const FEES: &str = "the upstream charges for it beside the tokens";
const HIDDEN_PROMPT: &str = "it adds text to the prompt that is not in the request";
const KEPT: &str = "the upstream keeps the answer or gives it later";
const MORE_ANSWERS: &str = "the upstream generates more tokens than it delivers";

const OTHER_SPELLING: &str = "max_completion_tokens, max_tokens and n say it";
/// Why another spelling of the maximum is refused.
pub(in super::super) const OTHER_MAXIMUM: &str = "max_completion_tokens or max_tokens of the request itself say it";

/// All known fields, at most 128, in lower case; one that is written otherwise stands there so as well.
pub(super) const FIELDS: [(&str, Rule); FIELDS_COUNT] = [
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
    ("model_list", Rule::Refused(OTHER_MODEL)),
    ("extra_body", Rule::Refused(UNCHECKED)),
    (
        "additional_drop_params",
        Rule::Refused("it takes fields out of the request, such as its maximum"),
    ),
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
        CACHE_CONTROL,
        Rule::Refused("the catalogue has no price for what it has the upstream write to its cache, or not for so long"),
    ),
    (
        "cache_control_injection_points",
        Rule::Refused("it has the upstream write to its cache what the request does not say"),
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
    (
        "vl_high_resolution_images",
        Rule::Refused("it changes how many tokens an image is"),
    ),
    ("prompt_id", Rule::Refused(HIDDEN_PROMPT)),
    ("prompt_variables", Rule::Refused(HIDDEN_PROMPT)),
    ("vector_store_ids", Rule::Refused(HIDDEN_PROMPT)),
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
pub(super) static BY_LENGTH: [usize; FIELDS_COUNT] = by_length();
/// For each length of a name where its fields begin in [`BY_LENGTH`]; those of the next length begin where they end.
pub(super) static STARTS: [usize; LENGTH_MAX + 2] = starts();
const FIELDS_COUNT: usize = 95;
pub(super) const LENGTH_MAX: usize = 30;
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
