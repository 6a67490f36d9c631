//! What of a request becomes the prompt: messages, their parts and images, tools, and the input of embeddings.
//!
//! One walk yields the pieces; [`Prompt`] adds them up when the body is parsed, and the tokenizer's visit reads their text.

use super::fields::{self, Read, Rule};
use super::parts::walk_message_member;
use super::pieces::{PartKind, Piece, found_control, found_value};
use super::priced::{CACHE_CONTROL, SERVICE_TIER};
use super::scan::{Fault, Kind, Scanner, Span, Text, Value, Walk};
use super::{BodyError, Endpoint, PromptBounds, RequestBody, controls, fold, text};

/// How much prompt a request holds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prompt {
    pub(super) messages: u64,
    pub(super) images: u64,
    pub(super) audios: u64,
    pub(super) files: u64,
    /// A part of an unknown kind is there.
    pub(super) open_ended: bool,
    /// Bytes of images, sounds and files.
    pub(super) part_bytes: u64,
    /// Bytes of `tools` and `functions`.
    pub(super) tool_bytes: u64,
    /// Texts (or token lists) to embed.
    pub(super) inputs: u64,
    /// Bytes of the texts to embed, with their quotes and commas.
    pub(super) input_bytes: u64,
    /// Tokens that an embeddings request gives as numbers.
    pub(super) token_ids: u64,
    /// Bytes of the values of all fields that Tollgate does not read.
    pub(super) other_bytes: u64,
}

impl Prompt {
    pub(super) fn add(&mut self, piece: Piece) {
        match piece {
            Piece::Message => self.messages = self.messages.saturating_add(1),
            Piece::Part(PartKind::Image) => self.images = self.images.saturating_add(1),
            Piece::Part(PartKind::Audio) => self.audios = self.audios.saturating_add(1),
            Piece::Part(PartKind::File) => self.files = self.files.saturating_add(1),
            Piece::Part(PartKind::Unknown) => self.open_ended = true,
            Piece::PartBytes(span) => self.part_bytes = self.part_bytes.saturating_add(count(span.len())),
            Piece::Text(_) | Piece::Json(_) | Piece::CacheControl(_) => {}
        }
    }
}

impl RequestBody {
    /// What the images, sounds and files of a chat, and its parts of an unknown kind, are at most: each the figure for its kind, or the context
    /// window without one.
    pub fn part_tokens_bound(&self, bounds: &PromptBounds) -> u64 {
        let prompt = &self.prompt;
        let parts = [
            (prompt.images, bounds.image_tokens_each),
            (prompt.audios, bounds.audio_tokens_each),
            (prompt.files, bounds.file_tokens_each),
            (u64::from(prompt.open_ended), None),
        ];
        parts.iter().fold(0_u64, |sum, &(count, each)| {
            sum.saturating_add(count.saturating_mul(each.unwrap_or(bounds.context_length)))
        })
    }

    /// Walks the body again for its text.
    pub(super) fn visit(&self, found: &mut dyn FnMut(&str)) -> Result<(), Fault> {
        let bytes = &*self.bytes;
        let mut scan = Scanner::new(bytes);
        let mut object = scan.open_object()?;
        while let Some(key) = scan.next_key(&mut object)? {
            let field = fields::find_key(key, bytes);
            let is_tier = field.is_some_and(|field| field.name == SERVICE_TIER);
            match (field.map(|field| field.rule), self.endpoint) {
                (Some(Rule::Read(Read::Messages)), Endpoint::Chat | Endpoint::ChatStream) => {
                    walk_messages(&mut scan, bytes, &mut |piece| self.found_piece(piece, found))?;
                }
                (Some(Rule::Read(Read::Input)), Endpoint::Embeddings) => {
                    let unused = &mut Prompt::default();
                    walk_input(&mut scan, bytes, unused, &mut |text| {
                        self.found_piece(Piece::Text(text), found)
                    })?;
                }
                // No upstream gets it, unless it asks for such fields; or it says by which prices, and the model does not see it.
                (Some(Rule::Refused(_)), _) if is_tier || self.is_unasked(key) => {
                    scan.value()?;
                }
                (None | Some(Rule::Refused(_)), Endpoint::Chat | Endpoint::ChatStream)
                | (
                    Some(Rule::Read(Read::Tools | Read::Functions | Read::Input)),
                    Endpoint::Chat | Endpoint::ChatStream,
                ) => {
                    found_value(scan.value()?, &mut |piece| self.found_piece(piece, found));
                }
                // The rest of an embeddings request is bounded by its bytes.
                (None | Some(_), _) => {
                    scan.value()?;
                }
            }
        }
        Ok(())
    }

    /// Whether the member with this key is of a refused field and asks for nothing.
    fn is_unasked(&self, key: Text) -> bool {
        let mut unasked = self.names.iter().flat_map(|names| &names.unasked);
        unasked.any(|unasked| unasked.member.key == key.span)
    }
}

/// A length or number of things as the integer that tokens are counted in.
pub(super) fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Reads the value of `messages`.
///
/// Errors unless it is a non-empty array of objects.
pub(super) fn walk_messages(scan: &mut Scanner<'_>, bytes: &[u8], found: &mut impl FnMut(Piece)) -> Result<(), Fault> {
    const WRONG: BodyError = BodyError::WrongType {
        field: "messages",
        expected: "a non-empty array of objects",
    };
    if scan.peek() != Some(b'[') {
        scan.value()?;
        return Err(WRONG.into());
    }
    let mut messages = scan.open_array()?;
    let mut any = false;
    while scan.next_element(&mut messages)? {
        if scan.peek() != Some(b'{') {
            scan.value()?;
            return Err(WRONG.into());
        }
        any = true;
        found(Piece::Message);
        let mut message = scan.open_object()?;
        while let Some(key) = scan.next_key(&mut message)? {
            walk_message_member(scan, bytes, key, found)?;
        }
    }
    if any {
        Ok(())
    } else {
        Err(BodyError::Empty { field: "messages" }.into())
    }
}

/// Reads the value of `tools` and says whether each of them is a function of the client. Anything else would run at the upstream.
pub(super) fn walk_tools(
    scan: &mut Scanner<'_>,
    bytes: &[u8],
    found: &mut impl FnMut(Piece),
) -> Result<(Span, ToolOwner), Fault> {
    if scan.peek() != Some(b'[') {
        let value = scan.value()?;
        let owner = if value.kind == Kind::Null {
            ToolOwner::Client
        } else {
            ToolOwner::Upstream
        };
        return Ok((value.span, owner));
    }
    let start = scan.offset();
    let mut owner = ToolOwner::Client;
    let mut tools = scan.open_array()?;
    while scan.next_element(&mut tools)? {
        if scan.peek() != Some(b'{') {
            scan.value()?;
            owner = ToolOwner::Upstream;
            continue;
        }
        let mut typed = false;
        let mut functions = false;
        let mut tool = scan.open_object()?;
        while let Some(key) = scan.next_key(&mut tool)? {
            let (name, value) = (text::name(key, bytes), scan.value()?);
            if *name == *b"type" {
                typed = true;
                let ours = value
                    .text()
                    .is_some_and(|kind| text::name(kind, bytes).is_one_of(&CLIENT_TOOLS));
                if !ours {
                    owner = ToolOwner::Upstream;
                }
            } else if *name == *b"function" {
                functions = true;
                controls::find_within(value, bytes, found)?;
            } else if *name == *CACHE_CONTROL.as_bytes() {
                found_control(value, found);
            } else {
                fold::check(&name, &["type", "function", CACHE_CONTROL])?;
                // Some upstreams look for their own tools beside a function (`googleSearch: {}`).
                let may_switch = matches!(value.kind, Kind::Object | Kind::Array | Kind::True);
                if may_switch && !name.is_one_of(&TOOL_MEMBERS) {
                    owner = ToolOwner::Upstream;
                }
                if !controls::is_clients_own(&name) {
                    controls::find_within(value, bytes, found)?;
                }
            }
        }
        if !typed && !functions {
            owner = ToolOwner::Upstream;
        }
    }
    Ok((Span::new(start, scan.offset()), owner))
}

/// Members of a tool beside its type and function, of which no upstream makes a tool of its own.
const TOOL_MEMBERS: [&str; 8] = [
    "custom",
    "parameters",
    "input_schema",
    "input_examples",
    "allowed_callers",
    "strict",
    "defer_loading",
    "eager_input_streaming",
];

/// Who runs the tools of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToolOwner {
    Client,
    Upstream,
}

/// Reads the value of `input`, calling `found` for each text, and adds it to `prompt`.
///
/// Errors unless it is one of the four forms of [`INPUT`], with at least one text or token.
pub(super) fn walk_input(
    scan: &mut Scanner<'_>,
    bytes: &[u8],
    prompt: &mut Prompt,
    found: &mut impl FnMut(Text),
) -> Result<(), Fault> {
    if scan.peek() != Some(b'[') {
        let value = scan.value()?;
        let Some(text) = value.text() else {
            return Err(WRONG_INPUT.into());
        };
        if text.span.len() == 0 {
            return Err(EMPTY_INPUT.into());
        }
        prompt.inputs = 1;
        prompt.input_bytes = count(value.span.len());
        found(text);
        return Ok(());
    }
    let mut array = scan.open_array()?;
    if !scan.next_element(&mut array)? {
        return Err(EMPTY_INPUT.into());
    }
    match scan.peek() {
        Some(b'"') => loop {
            let value = scan.value()?;
            let Some(text) = value.text() else {
                return Err(WRONG_INPUT.into());
            };
            prompt.inputs = prompt.inputs.saturating_add(1);
            prompt.input_bytes = prompt.input_bytes.saturating_add(count(value.span.len()));
            found(text);
            if !scan.next_element(&mut array)? {
                return Ok(());
            }
        },
        Some(b'[') => loop {
            prompt.inputs = prompt.inputs.saturating_add(1);
            let mut ids = scan_ids(scan)?;
            if !scan.next_element(&mut ids)? {
                return Err(EMPTY_INPUT.into());
            }
            read_ids(scan, bytes, &mut ids, prompt)?;
            if !scan.next_element(&mut array)? {
                return Ok(());
            }
        },
        _ => {
            prompt.inputs = 1;
            read_ids(scan, bytes, &mut array, prompt)
        }
    }
}

/// A positive or zero integer in plain digits, up to 2^32 - 1.
pub(super) fn plain_integer(value: Value, bytes: &[u8]) -> Option<u32> {
    if value.kind != Kind::Number {
        return None;
    }
    let digits = value.span.of(bytes);
    digits.iter().try_fold(0, |number: u32, &byte| {
        let digit = char::from(byte).to_digit(10)?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

fn scan_ids(scan: &mut Scanner<'_>) -> Result<Walk, Fault> {
    if scan.peek() != Some(b'[') {
        scan.value()?;
        return Err(WRONG_INPUT.into());
    }
    scan.open_array()
}

/// Reads token ids up to the end of their array; the walk stands before the first.
fn read_ids(scan: &mut Scanner<'_>, bytes: &[u8], ids: &mut Walk, prompt: &mut Prompt) -> Result<(), Fault> {
    loop {
        let value = scan.value()?;
        if plain_integer(value, bytes).is_none() {
            return Err(WRONG_INPUT.into());
        }
        prompt.token_ids = prompt.token_ids.saturating_add(1);
        if !scan.next_element(ids)? {
            return Ok(());
        }
    }
}

/// The forms that `input` may have.
const INPUT: &str = "a string, an array of strings, an array of token ids, or an array of such arrays";
const WRONG_INPUT: BodyError = BodyError::WrongType {
    field: "input",
    expected: INPUT,
};
const EMPTY_INPUT: BodyError = BodyError::Empty { field: "input" };

const CLIENT_TOOLS: [&str; 2] = ["function", "custom"];
