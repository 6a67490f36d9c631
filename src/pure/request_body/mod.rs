//! The request body: validation before money, what the hold must know, and the surgical edit for the upstream.
//!
//! [`RequestBody::parse`] reads the body once, top level and messages, with a scanner of its own: the edit needs spans, and a parsed
//! tree would cost three times as much and lose number spellings and key order. It validates the whole body as JSON, keeps spans
//! and copies nothing. What is billed is what runs: a field that Tollgate reads or writes may stand once, and a field by which
//! an upstream would run something else is refused ([`refused_fields`]).
//!
//! Called by the gateway between authentication and admission, and again by each attempt at an upstream ([`RequestBody::edit`]).
//! It never decides what a request costs, and it knows no model.

mod controls;
mod conversation;
mod edit;
mod end_user;
mod fields;
mod fold;
mod fuzz;
mod letters;
mod members;
mod parse;
mod parts;
mod pieces;
mod priced;
mod prompt;
mod reasoning;
mod scalar;
mod scan;
mod text;
mod unasked;
mod values;

use std::borrow::Cow;
use std::num::NonZeroU64;

use bytes::Bytes;

pub use conversation::SESSION_CHARS_MAX;
pub use edit::{Edit, MaximumField, StreamUsage};
pub use end_user::EndUserError;
pub use fields::{FieldRules, UnknownField, other_maxima, refused_fields};
pub use fuzz::fuzz_body;

use fields::FieldSet;
use members::{Maximum, Member, Names, Session, StreamOptions, UsageOption};
use pieces::Piece;
use prompt::{Prompt, count};
use reasoning::Reasoning;
use scan::Span;

/// Where a request came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `POST /llm/chat`: streams when the body says so.
    Chat,
    /// `POST /llm/chat/stream`: always streams.
    ChatStream,
    /// `POST /llm/embeddings`: never streams.
    Embeddings,
}

/// How the answer is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseMode {
    /// As Server-Sent Events.
    Stream,
    /// As one JSON object.
    Whole,
}

/// What the journal keeps of a model for the count of a prompt after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptLimits {
    /// The most tokens that an image is.
    pub image_tokens_each: u64,
    /// The model's context window, in tokens.
    pub context_length: u64,
}

/// What of a model and its providers bounds the prompt, all in tokens. A part of a kind without a figure may fill the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptBounds {
    /// The most that an image is.
    pub image_tokens_each: Option<u64>,
    /// The most that a sound is.
    pub audio_tokens_each: Option<u64>,
    /// The most that a file is.
    pub file_tokens_each: Option<u64>,
    /// The most that a provider adds to a prompt beyond what the chat format and tools do.
    pub overhead_tokens: u64,
    /// The model's context window, which no prompt exceeds.
    pub context_length: u64,
}

impl From<&PromptLimits> for PromptBounds {
    fn from(limits: &PromptLimits) -> PromptBounds {
        PromptBounds {
            image_tokens_each: Some(limits.image_tokens_each),
            audio_tokens_each: None,
            file_tokens_each: None,
            overhead_tokens: 0,
            context_length: limits.context_length,
        }
    }
}

/// A request body that was validated. It holds the client's bytes and spans into them.
#[derive(Clone, Debug)]
pub struct RequestBody {
    bytes: Bytes,
    endpoint: Endpoint,
    mode: ResponseMode,
    /// Where the first member begins: new members are inserted here.
    first_member: u32,
    /// Between the quotes.
    model: Span,
    stream: Option<Span>,
    stream_options: StreamOptions,
    max_tokens: Option<Maximum>,
    max_completion_tokens: Option<Maximum>,
    choices: u64,
    reasoning: Reasoning,
    refused: FieldSet,
    prompt: Prompt,
    names: Option<Box<Names>>,
}

impl RequestBody {
    /// The body as the client sent it.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The model's name as the client means it, unescaped; never empty.
    pub fn model(&self) -> &str {
        match self.names.as_deref().and_then(|names| names.model.as_deref()) {
            Some(name) => name,
            // The whole body was checked as UTF-8; an empty name is no model's.
            None => std::str::from_utf8(self.model.of(&self.bytes)).unwrap_or_default(),
        }
    }

    /// Where the request came in.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// How the client wants the answer, by the endpoint and by `stream`.
    pub fn mode(&self) -> ResponseMode {
        self.mode
    }

    /// Whether the client itself asked for the usage chunk of a stream (`stream_options.include_usage`, or OpenRouter's `usage.include`).
    pub fn asks_usage(&self) -> bool {
        matches!(self.stream_options.usage, UsageOption::IncludeUsage { asked: true, .. })
            || self.names.as_deref().is_some_and(|names| names.asks_usage)
    }

    /// The most completion tokens of one choice that the client asked for, as `max_tokens`, `max_completion_tokens` or both, of which
    /// the smaller counts: it keeps both. None when it set no limit.
    pub fn max_tokens(&self) -> Option<NonZeroU64> {
        let tokens = |maximum: Option<Maximum>| maximum.and_then(|maximum| maximum.tokens);
        match (tokens(self.max_tokens), tokens(self.max_completion_tokens)) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// How many completions are generated (`n`), at least 1.
    pub fn choices(&self) -> u64 {
        self.choices
    }

    /// Messages of a chat; 0 for embeddings.
    pub fn message_count(&self) -> u64 {
        self.prompt.messages
    }

    /// Image parts of a chat.
    pub fn images(&self) -> u64 {
        self.prompt.images
    }

    /// Parts of a chat that are sound.
    pub fn audios(&self) -> u64 {
        self.prompt.audios
    }

    /// Parts of a chat that are files.
    pub fn files(&self) -> u64 {
        self.prompt.files
    }

    /// Texts or token lists to embed; 0 for a chat. The answer has one vector for each.
    pub fn inputs(&self) -> u64 {
        self.prompt.inputs
    }

    /// Tokens that an embeddings request gives as numbers and not as text.
    pub fn token_ids(&self) -> u64 {
        self.prompt.token_ids
    }

    /// An upper bound of the bytes of the prompt's text, in O(1): the body without the images, sounds and files in it.
    ///
    /// Tools are counted twice, since some models are shown them indented.
    pub fn prompt_bytes(&self) -> u64 {
        match self.endpoint {
            Endpoint::Chat | Endpoint::ChatStream => count(self.bytes.len())
                .saturating_sub(self.prompt.part_bytes)
                .saturating_add(self.prompt.tool_bytes),
            Endpoint::Embeddings => self.prompt.input_bytes,
        }
    }

    /// How many bytes [`RequestBody::visit_text`] reads one by one, in O(1), whether they are text or not.
    pub fn visited_bytes(&self) -> u64 {
        match self.endpoint {
            Endpoint::Chat | Endpoint::ChatStream => self.prompt_bytes(),
            // Token ids and all other fields are passed over, which is work as well.
            Endpoint::Embeddings => count(self.bytes.len()),
        }
    }

    /// An upper bound of the prompt's tokens, in O(1), for tokenizers of which each token is at least one byte of the text; at most
    /// the context window (for embeddings, of each input).
    ///
    /// A part of a kind without a figure, or of an unknown kind, has no bound but the context window.
    pub fn prompt_tokens_bound(&self, bounds: &PromptBounds) -> u64 {
        self.prompt_tokens_of_text(self.prompt_bytes(), bounds)
    }

    /// The bound of the prompt's tokens when the text of [`RequestBody::visit_text`] is at most `text_tokens`: with images, sounds,
    /// files, given token ids, and what a model's template adds.
    pub fn prompt_tokens_of_text(&self, text_tokens: u64, bounds: &PromptBounds) -> u64 {
        self.prompt_tokens_beside_text(bounds)
            .saturating_add(text_tokens)
            .min(self.context_tokens(bounds))
    }

    /// What of that bound is not text; above the context window when a part has no other bound.
    pub fn prompt_tokens_beside_text(&self, bounds: &PromptBounds) -> u64 {
        let prompt = &self.prompt;
        let bound = match self.endpoint {
            Endpoint::Embeddings => {
                // A field that the upstream puts before each text (an instruction) counts as often as there are texts.
                let each = INPUT_EXTRA_TOKENS.saturating_add(prompt.other_bytes);
                prompt.token_ids.saturating_add(prompt.inputs.saturating_mul(each))
            }
            Endpoint::Chat | Endpoint::ChatStream => {
                let tools = if prompt.tool_bytes > 0 { TOOLS_EXTRA_TOKENS } else { 0 };
                CHAT_EXTRA_TOKENS
                    .saturating_add(tools)
                    .saturating_add(prompt.messages.saturating_mul(MESSAGE_EXTRA_TOKENS))
                    .saturating_add(self.part_tokens_bound(bounds))
            }
        };
        bound.saturating_add(bounds.overhead_tokens)
    }

    /// The most that a prompt can be, whatever is in it.
    fn context_tokens(&self, bounds: &PromptBounds) -> u64 {
        match self.endpoint {
            Endpoint::Chat | Endpoint::ChatStream => bounds.context_length,
            // Each input is a prompt of its own.
            Endpoint::Embeddings => bounds.context_length.saturating_mul(self.prompt.inputs.max(1)),
        }
    }

    /// Calls `found` with each piece of text that the model sees: contents, text parts, names and the like unescaped, tools and
    /// unknown fields as they are written. Images, sounds, files and token ids are left out.
    pub fn visit_text(&self, found: &mut dyn FnMut(&str)) {
        if self.visit(found).is_err() {
            // Not reached: the body was scanned before. Too much text is safe, too little is not.
            found(&String::from_utf8_lossy(&self.bytes));
        }
    }

    fn found_piece(&self, piece: Piece, found: &mut dyn FnMut(&str)) {
        let text = match piece {
            Piece::Text(text) => text::unescape(text, &self.bytes),
            Piece::Json(span) => String::from_utf8_lossy(span.of(&self.bytes)),
            Piece::Message | Piece::Part(_) | Piece::PartBytes(_) | Piece::CacheControl(_) => Cow::Borrowed(""),
        };
        if !text.is_empty() {
            found(&text);
        }
    }
}

/// Why a body is refused: all are the client's fault (status 400), and the message may be shown to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// More than 4 GiB: spans would not reach. The gateway's own limit is far below.
    #[error("the body is too long")]
    TooLong,
    /// The bytes are no UTF-8; the first bad byte is at `at`.
    #[error("the body is not UTF-8 text: invalid at byte {at}")]
    NotUtf8 {
        /// Offset in bytes.
        at: usize,
    },
    /// The bytes are no JSON.
    #[error("the body is not valid JSON: expected {expected} at byte {at}")]
    NotJson {
        /// Offset in bytes.
        at: usize,
        /// What should stand there.
        expected: &'static str,
    },
    /// JSON, but of another kind.
    #[error("the body must be a JSON object")]
    NotAnObject,
    /// More brackets are open at once than any request needs.
    #[error("the body is nested deeper than {max} levels")]
    TooDeep {
        /// The levels that are allowed.
        max: u32,
    },
    /// A required field is absent.
    #[error("`{field}` is required")]
    Missing {
        /// The field's name.
        field: &'static str,
    },
    /// A field has a value of the wrong kind.
    #[error("`{field}` must be {expected}")]
    WrongType {
        /// The field's name.
        field: &'static str,
        /// The kinds that it may have.
        expected: &'static str,
    },
    /// A string or array that must hold something is empty.
    #[error("`{field}` must not be empty")]
    Empty {
        /// The field's name.
        field: &'static str,
    },
    /// A field that Tollgate reads stands twice, so that two readers could see two requests.
    #[error("`{field}` stands more than once")]
    Duplicate {
        /// The field's name.
        field: &'static str,
    },
    /// A key that some reader may take for one that Tollgate knows, in another spelling.
    #[error("a key is spelled otherwise than `{field}`, which an upstream may take it for")]
    Misspelled {
        /// The known key.
        field: &'static str,
    },
    /// A field by which an upstream would run something else than what is billed.
    #[error("`{field}` is not accepted here: {effect}; leave it out")]
    Refused {
        /// The field's name.
        field: &'static str,
        /// What it does.
        effect: &'static str,
    },
    /// Tools that are no functions of the client: they run at the provider, or are shaped for another interface.
    #[error(
        "`tools` must be functions of the client: {{\"type\":\"function\",\"function\":{{…}}}}; tools that run at the provider are not \
         accepted; leave them out"
    )]
    HostedTools,
}

/// What a model's chat template and a provider's own preamble may add to a prompt.
const CHAT_EXTRA_TOKENS: u64 = 256;
/// What a provider may add to explain tools to a model.
const TOOLS_EXTRA_TOKENS: u64 = 1_024;
/// Tokens that open and close a message, beside its role and text.
const MESSAGE_EXTRA_TOKENS: u64 = 16;
/// Tokens that open and close a text to embed.
const INPUT_EXTRA_TOKENS: u64 = 8;

#[cfg(test)]
mod tests;
