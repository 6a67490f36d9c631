//! Reading a body: one pass that validates, finds the fields that Tollgate knows, and sums up the prompt.

use std::num::NonZeroU64;

use bytes::Bytes;

use super::fields::{self, Field, FieldSet, Read, Rule};
use super::pieces::Piece;
use super::priced::PricedFields;
use super::prompt::{self, Prompt, ToolOwner, count};
use super::reasoning::{REASONING_EFFORT, Reasoning};
use super::scan::{Fault, Kind, Scanner, Span, Spelling, Text, Value};
use super::unasked::Unasked;
use super::values::{asks_usage, boolean, positive, stream_options};
use super::{
    BodyError, Endpoint, Maximum, Member, Names, RequestBody, ResponseMode, Session, StreamOptions, controls, end_user,
    fold, text,
};

mod unknown;

impl RequestBody {
    /// Validates a request body: one JSON object (RFC 8259) in UTF-8 in which each field that Tollgate knows stands at most once,
    /// `model` is a string, `messages` a non-empty array of objects (chat) or `input` a text, texts, token ids or lists of token ids
    /// (embeddings), `stream` a boolean, and `max_tokens`, `max_completion_tokens` and `n` are positive integers in plain digits.
    /// Null stands for an absent field where the field is optional. Keys are compared unescaped, and one that only folds to a key which
    /// Tollgate knows is refused, for an upstream may take it for that. So is every other spelling of the maximum, also within fields
    /// that Tollgate does not know. All else is the upstream's business.
    ///
    /// Errors with the first thing that is wrong. Refused fields are asked for afterwards ([`RequestBody::check_fields`]), when the
    /// provider is known.
    pub fn parse(bytes: Bytes, endpoint: Endpoint) -> Result<RequestBody, BodyError> {
        if u32::try_from(bytes.len()).is_err() {
            return Err(BodyError::TooLong);
        }
        // Most bodies are ASCII, which is checked faster than it is decoded.
        if !bytes.is_ascii()
            && let Err(error) = std::str::from_utf8(&bytes)
        {
            return Err(BodyError::NotUtf8 {
                at: error.valid_up_to(),
            });
        }
        RequestBody::read(bytes, endpoint).map_err(|fault| *fault)
    }

    fn read(bytes: Bytes, endpoint: Endpoint) -> Result<RequestBody, Fault> {
        let mut scan = Scanner::new(&bytes);
        match scan.peek() {
            Some(b'{') => {}
            Some(b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => return Err(BodyError::NotAnObject.into()),
            _ => return Err(scan.fault("a JSON object")),
        }
        let mut reader = Reader::new(&bytes, endpoint);
        let mut object = scan.open_object()?;
        let first_member = scan.offset();
        while let Some(key) = scan.next_key(&mut object)? {
            reader.member(&mut scan, key)?;
        }
        scan.finish()?;
        let model = reader.required()?;
        let (mut names, mut refused) = (reader.names, reader.refused);
        if let Some(names) = &mut names {
            for asked in names
                .unasked
                .extract_if(.., |unasked| !unasked.is_so_for(model, &bytes))
            {
                refused.insert(asked.field);
            }
        }
        if model.spelling == Spelling::Escaped {
            names.get_or_insert_default().model = Some(Box::from(&*text::unescape(model, &bytes)));
        }
        if !reader.priced.is_empty() {
            names.get_or_insert_default().priced = reader.priced;
        }
        let mode = match (endpoint, reader.stream) {
            (Endpoint::ChatStream, _) | (Endpoint::Chat, Some((_, true))) => ResponseMode::Stream,
            (Endpoint::Chat | Endpoint::Embeddings, _) => ResponseMode::Whole,
        };
        Ok(RequestBody {
            endpoint,
            mode,
            first_member,
            model: model.span,
            stream: reader.stream.map(|(span, _)| span),
            stream_options: reader.stream_options,
            max_tokens: reader.max_tokens,
            max_completion_tokens: reader.max_completion_tokens,
            choices: reader.choices,
            reasoning: reader.reasoning,
            refused,
            prompt: reader.prompt,
            names,
            bytes,
        })
    }
}

/// What has been read of a body so far.
struct Reader<'a> {
    bytes: &'a [u8],
    endpoint: Endpoint,
    seen: FieldSet,
    refused: FieldSet,
    priced: PricedFields,
    model: Option<Text>,
    stream: Option<(Span, bool)>,
    stream_options: StreamOptions,
    max_tokens: Option<Maximum>,
    max_completion_tokens: Option<Maximum>,
    choices: u64,
    reasoning: Reasoning,
    prompt: Prompt,
    names: Option<Box<Names>>,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], endpoint: Endpoint) -> Reader<'a> {
        Reader {
            bytes,
            endpoint,
            seen: FieldSet::default(),
            refused: FieldSet::default(),
            priced: PricedFields::default(),
            model: None,
            stream: None,
            stream_options: StreamOptions::default(),
            max_tokens: None,
            max_completion_tokens: None,
            choices: 1,
            reasoning: Reasoning::default(),
            prompt: Prompt::default(),
            names: None,
        }
    }

    /// Reads the value of a top-level key.
    fn member(&mut self, scan: &mut Scanner<'_>, key: Text) -> Result<(), Fault> {
        let Some(field) = fields::find_key(key, self.bytes) else {
            return self.unknown(scan, key);
        };
        match field.rule {
            Rule::Aside => {
                let value = self.other_value(scan)?;
                match field.name {
                    end_user::USER => self.names.get_or_insert_default().end_user.note_user(value),
                    REASONING_EFFORT => self.reasoning.note(value, self.bytes),
                    _ => {}
                }
                Ok(())
            }
            Rule::OtherMaximum => {
                let value = scan.value()?;
                if value.kind == Kind::Null {
                    self.once(field)?;
                    self.take_out(field, key.span, value);
                    return Ok(());
                }
                Err(BodyError::Refused {
                    field: field.name,
                    effect: fields::OTHER_MAXIMUM,
                }
                .into())
            }
            Rule::Refused(_) => {
                self.once(field)?;
                let value = self.other_value(scan)?;
                // Null and false ask for nothing.
                if !matches!(value.kind, Kind::Null | Kind::False) {
                    match Unasked::of(field, key.span, value, self.bytes) {
                        Some(unasked) => self.names.get_or_insert_default().unasked.push(unasked),
                        None => {
                            self.refused.insert(field);
                            self.priced.note(field.name, value.span, self.bytes);
                        }
                    }
                } else if field.name == fields::STORE {
                    let (key, value) = (key.span, value.span);
                    self.names.get_or_insert_default().store = Some(Member { key, value });
                } else {
                    self.take_out(field, key.span, value);
                }
                Ok(())
            }
            // It passes as it is, however often it stands.
            Rule::Read(Read::CacheKey) => {
                if let Some(key) = self.other_value(scan)?.text() {
                    self.names.get_or_insert_default().cache_key = Some(key);
                }
                Ok(())
            }
            Rule::Read(read) => {
                self.once(field)?;
                match (read, self.endpoint) {
                    (Read::Model, _) => self.read_model(scan),
                    (Read::Metadata, _) => self.read_metadata(scan, key.span),
                    (Read::Input, Endpoint::Embeddings) => {
                        prompt::walk_input(scan, self.bytes, &mut self.prompt, &mut |_| {})
                    }
                    (_, Endpoint::Embeddings) | (Read::Input, _) => self.other(scan),
                    (Read::Messages, _) => self.read_messages(scan),
                    (Read::Stream, _) => self.read_stream(scan),
                    (Read::StreamOptions, _) => {
                        self.stream_options = stream_options(scan, self.bytes, key.span)?;
                        Ok(())
                    }
                    (Read::Usage, _) => self.read_usage(scan, key.span),
                    (Read::MaxTokens, _) => {
                        self.max_tokens = Some(self.read_maximum(scan, key, "max_tokens")?);
                        Ok(())
                    }
                    (Read::MaxCompletionTokens, _) => {
                        self.max_completion_tokens = Some(self.read_maximum(scan, key, "max_completion_tokens")?);
                        Ok(())
                    }
                    (Read::Choices, _) => {
                        self.choices = positive(scan, self.bytes, "n")?.1.map_or(1, NonZeroU64::get);
                        Ok(())
                    }
                    (Read::Tools, _) => self.read_tools(scan),
                    (Read::Thinking, _) => self.read_reasoning(scan, "budget_tokens"),
                    (Read::Reasoning, _) => self.read_reasoning(scan, "max_tokens"),
                    (Read::Session, _) => self.read_session(scan, key.span),
                    (Read::CacheKey, _) => self.other(scan),
                    (Read::Functions, _) => {
                        let value = scan.value()?;
                        self.add_tool_bytes(value.span);
                        self.note_controls(value)
                    }
                }
            }
        }
    }

    /// A member that asks for nothing, whatever the rest of the body says.
    fn take_out(&mut self, field: Field, key: Span, value: Value) {
        let unasked = Unasked::nothing(field, key, value.span);
        self.names.get_or_insert_default().unasked.push(unasked);
    }

    /// The model; errors unless all required fields were read.
    fn required(&self) -> Result<Text, Fault> {
        let Some(model) = self.model else {
            return Err(BodyError::Missing { field: "model" }.into());
        };
        match self.endpoint {
            Endpoint::Chat | Endpoint::ChatStream if self.prompt.messages == 0 => {
                Err(BodyError::Missing { field: "messages" }.into())
            }
            Endpoint::Embeddings if self.prompt.inputs == 0 => Err(BodyError::Missing { field: "input" }.into()),
            Endpoint::Chat | Endpoint::ChatStream | Endpoint::Embeddings => Ok(model),
        }
    }

    fn once(&mut self, field: Field) -> Result<(), Fault> {
        if self.seen.contains(field) {
            return Err(BodyError::Duplicate { field: field.name }.into());
        }
        self.seen.insert(field);
        Ok(())
    }

    fn other(&mut self, scan: &mut Scanner<'_>) -> Result<(), Fault> {
        self.other_value(scan).map(|_| ())
    }

    fn other_value(&mut self, scan: &mut Scanner<'_>) -> Result<Value, Fault> {
        let value = scan.value()?;
        self.add_other_bytes(value);
        Ok(value)
    }

    fn add_other_bytes(&mut self, value: Value) {
        self.prompt.other_bytes = self.prompt.other_bytes.saturating_add(count(value.span.len()));
    }

    fn read_model(&mut self, scan: &mut Scanner<'_>) -> Result<(), Fault> {
        let Some(model) = scan.value()?.text() else {
            return Err(BodyError::WrongType {
                field: "model",
                expected: "a string",
            }
            .into());
        };
        if model.span.len() == 0 {
            return Err(BodyError::Empty { field: "model" }.into());
        }
        self.model = Some(model);
        Ok(())
    }

    fn read_session(&mut self, scan: &mut Scanner<'_>, key: Span) -> Result<(), Fault> {
        let value = self.other_value(scan)?;
        let (text, value) = (value.text(), value.span);
        let member = Member { key, value };
        self.names.get_or_insert_default().session = Some(Session { member, text });
        Ok(())
    }

    fn read_metadata(&mut self, scan: &mut Scanner<'_>, key: Span) -> Result<(), Fault> {
        let names = self.names.get_or_insert_default();
        let read = names.end_user.read_metadata(scan, self.bytes)?;
        let value = read.span;
        names.metadata = Some(Member { key, value });
        self.add_other_bytes(read);
        Ok(())
    }

    /// Reads `usage`, which a provider may get: what is looked for in a field that Tollgate does not know is looked for in it too.
    fn read_usage(&mut self, scan: &mut Scanner<'_>, key: Span) -> Result<(), Fault> {
        let value = fold::value_without_maximum(scan, self.bytes)?;
        self.note_controls(value)?;
        let asks_usage = asks_usage(value, self.bytes)?;
        let names = self.names.get_or_insert_default();
        let value = value.span;
        names.usage = Some(Member { key, value });
        names.asks_usage = asks_usage;
        Ok(())
    }

    /// Notes each `cache_control` within a value that some upstream may read there.
    fn note_controls(&mut self, value: Value) -> Result<(), Fault> {
        let (bytes, refused, priced) = (self.bytes, &mut self.refused, &mut self.priced);
        controls::find_within(value, bytes, &mut |piece| {
            if let Piece::CacheControl(value) = piece {
                priced.note_write_within(refused, value, bytes);
            }
        })
    }

    fn read_messages(&mut self, scan: &mut Scanner<'_>) -> Result<(), Fault> {
        let (bytes, prompt) = (self.bytes, &mut self.prompt);
        let (refused, priced) = (&mut self.refused, &mut self.priced);
        prompt::walk_messages(scan, bytes, &mut |piece| match piece {
            Piece::CacheControl(value) => priced.note_write_within(refused, value, bytes),
            piece => prompt.add(piece),
        })
    }

    fn read_tools(&mut self, scan: &mut Scanner<'_>) -> Result<(), Fault> {
        let (bytes, refused, priced) = (self.bytes, &mut self.refused, &mut self.priced);
        let (span, owner) = prompt::walk_tools(scan, bytes, &mut |piece| {
            if let Piece::CacheControl(value) = piece {
                priced.note_write_within(refused, value, bytes);
            }
        })?;
        if let (ToolOwner::Upstream, Some(hosted)) = (owner, fields::hosted_tools()) {
            self.refused.insert(hosted);
            self.names.get_or_insert_default().hosted_tools = true;
        }
        self.add_tool_bytes(span);
        Ok(())
    }

    fn add_tool_bytes(&mut self, span: Span) {
        self.prompt.tool_bytes = self.prompt.tool_bytes.saturating_add(count(span.len()));
    }

    fn read_stream(&mut self, scan: &mut Scanner<'_>) -> Result<(), Fault> {
        let (span, value) = boolean(scan, "stream")?;
        self.stream = Some((span, value));
        Ok(())
    }

    /// Reads the settings of reasoning, in which `budget` is the member of that name.
    fn read_reasoning(&mut self, scan: &mut Scanner<'_>, budget: &'static str) -> Result<(), Fault> {
        if scan.peek() != Some(b'{') {
            return self.other(scan);
        }
        self.reasoning.read(scan, self.bytes, budget)
    }

    fn read_maximum(&self, scan: &mut Scanner<'_>, key: Text, field: &'static str) -> Result<Maximum, Fault> {
        let (value, tokens) = positive(scan, self.bytes, field)?;
        Ok(Maximum {
            key: key.span,
            value,
            tokens,
        })
    }
}
