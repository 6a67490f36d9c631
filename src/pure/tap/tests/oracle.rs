//! What a stream tap must do, worked out the slow way: the whole stream at once, each event as a tree.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::pure::error::provider_words::ProviderWords;
use crate::pure::tap::accumulator::Identity;
use crate::pure::tap::{TapOptions, error_event, stream};
use crate::pure::tokens::{self, Encoding};
use crate::pure::usage::{Buckets, Figure, Report, Reports, TOKENS_MAX};

/// The outcome of a stream.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Outcome {
    pub(super) out: Vec<u8>,
    pub(super) reports: Reports,
    pub(super) delivered: u64,
    pub(super) done: bool,
    pub(super) finished: bool,
    pub(super) error: Option<Option<u16>>,
}

/// A run of raw bytes with the event in it, if it is one.
struct Block {
    raw: Vec<u8>,
    data: Option<Vec<u8>>,
    /// The first line of the data.
    first: Option<Vec<u8>>,
    error_name: bool,
    /// What would end it, when the stream ended before it did.
    closing: &'static [u8],
}

/// The code of an error: a number, or what a word stands for.
fn code(code: &Value) -> Option<u16> {
    let text = code.as_str().unwrap_or_default();
    if ["context_length_exceeded", "content_filter"].contains(&text) {
        return Some(400);
    }
    let number = code.as_u64().or_else(|| text.parse().ok());
    number.and_then(|code| u16::try_from(code).ok())
}

/// The outcome of `stream` when it ends cleanly after its last byte.
pub(super) fn outcome(stream: &[u8], options: TapOptions) -> Outcome {
    let mut outcome = Outcome::default();
    let mut identity = Identity::default();
    for block in blocks(stream, options) {
        let value = block.data.as_deref().and_then(answer).unwrap_or(Value::Null);
        let is_done = block.data.as_deref().is_some_and(is_done);
        outcome.done |= is_done;
        identify(&value, &mut identity);
        for usage in usages(&value) {
            outcome.reports.add(report(usage));
        }
        if (block.error_name || is_error(&value)) && !is_done {
            let code = code(&value["error"]["code"]).or_else(|| code(&value["code"]));
            let words = ProviderWords::read(block.data.as_deref().unwrap_or_default());
            let code = words.code(code);
            if !outcome.done {
                outcome.error = Some(code);
                let mut masked = bytes::BytesMut::new();
                stream::write_masked(&mut masked, &identity, code);
                outcome.out.extend(masked);
            }
            outcome.finished |= outcome.done;
            return outcome;
        }
        if is_usage_chunk(&value) && options.drop_usage_chunk {
            continue;
        }
        outcome.out.extend(&block.raw);
        outcome.out.extend(block.closing);
        if !outcome.done {
            outcome.delivered += text_tokens(&value, options.encoding);
        }
        outcome.finished |= choices(&value).any(|choice| !matches!(choice["finish_reason"].as_str(), None | Some("")));
    }
    if !outcome.done {
        outcome.out.extend(error_event::DONE_EVENT);
    }
    outcome.finished |= outcome.done;
    outcome
}

/// The answer in `data`. What a tool is called with is a string in it: where it is none, and not null, the JSON as it stands.
fn answer(data: &[u8]) -> Option<Value> {
    let mut value: Value = serde_json::from_slice(data).ok()?;
    let raw: &RawValue = serde_json::from_slice(data).ok()?;
    for (place, function) in functions(raw) {
        for key in ["arguments", "input"] {
            let found = value.pointer_mut(&format!("{place}/{key}"));
            if let (Some(json), Some(text)) = (member(function, key), found)
                && !(text.is_null() || text.is_string())
            {
                *text = Value::from(json.get());
            }
        }
    }
    Some(value)
}

/// The functions that an answer calls, and where each stands in it.
fn functions(answer: &RawValue) -> Vec<(String, &RawValue)> {
    let mut functions = Vec::new();
    for (n, choice) in elements(member(answer, "choices")) {
        for place in ["delta", "message"] {
            let Some(message) = member(choice, place) else { continue };
            let place = format!("/choices/{n}/{place}");
            if let Some(function) = member(message, "function_call") {
                functions.push((format!("{place}/function_call"), function));
            }
            for (n, call) in elements(member(message, "tool_calls")) {
                for kind in ["function", "custom"] {
                    if let Some(function) = member(call, kind) {
                        functions.push((format!("{place}/tool_calls/{n}/{kind}"), function));
                    }
                }
            }
        }
    }
    functions
}

fn elements(array: Option<&RawValue>) -> impl Iterator<Item = (usize, &RawValue)> {
    let elements: Option<Vec<&RawValue>> = array.and_then(|array| serde_json::from_str(array.get()).ok());
    elements.unwrap_or_default().into_iter().enumerate()
}

fn member<'a>(object: &'a RawValue, key: &str) -> Option<&'a RawValue> {
    let mut members: BTreeMap<String, &'a RawValue> = serde_json::from_str(object.get()).ok()?;
    members.remove(key)
}

/// Whether the data of every event is JSON: what an unreadable one delivers is not for the oracle to say.
pub(super) fn readable(stream: &[u8]) -> bool {
    let data = blocks(stream, TapOptions::default())
        .into_iter()
        .filter_map(|block| block.data);
    data.into_iter()
        .all(|data| serde_json::from_slice::<Value>(&data).is_ok())
}

fn is_done(data: &[u8]) -> bool {
    data.trim_ascii_start().starts_with(b"[DONE]")
}

fn is_usage_chunk(value: &Value) -> bool {
    value["usage"].is_object() && choices(value).next().is_none()
}

/// Whether a first line of data is all of an event that passes, so that no later line can change that.
fn is_settled(first: &[u8], options: TapOptions) -> bool {
    let passes = |value: Value| !(is_error(&value) || options.drop_usage_chunk && is_usage_chunk(&value));
    is_done(first) || serde_json::from_slice::<Value>(first).is_ok_and(passes)
}

fn blocks(stream: &[u8], options: TapOptions) -> Vec<Block> {
    let mut blocks = Vec::new();
    let new = || Block {
        raw: Vec::new(),
        data: None,
        first: None,
        error_name: false,
        closing: b"",
    };
    let settled = |block: &Block| block.first.as_deref().is_some_and(|first| is_settled(first, options));
    let mut block = new();
    let mut fields = false;
    for (index, line) in raw_lines(stream).into_iter().enumerate() {
        block.raw.extend(&line);
        let end = line.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let text = &line[..end.unwrap_or(line.len())];
        let text = if index == 0 {
            text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text)
        } else {
            text
        };
        let is_comment = text.first() == Some(&b':');
        if end.is_some() && (text.is_empty() || (is_comment && !fields)) {
            blocks.push(std::mem::replace(&mut block, new()));
            fields = false;
            continue;
        }
        fields |= !is_comment;
        let at_line_start = line.ends_with(b"\n") || text.is_empty();
        block.closing = if at_line_start { b"\n" } else { b"\n\n" };
        let colon = text.iter().position(|byte| *byte == b':');
        let (name, value) = colon.map_or((text, &b""[..]), |colon| (&text[..colon], &text[colon + 1..]));
        let value = value.strip_prefix(b" ").unwrap_or(value);
        if name == b"data" {
            match &mut block.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend(value);
                }
                None => {
                    block.data = Some(value.to_vec());
                    block.first = Some(value.to_vec());
                }
            }
        } else if name == b"event" && (block.error_name || !settled(&block)) {
            block.error_name = value == b"error";
        }
    }
    if !block.raw.is_empty() {
        blocks.push(block);
    }
    // What ended needs no closing.
    let last = blocks.len().saturating_sub(1);
    let open = !block_ended(blocks.last());
    for (index, block) in blocks.iter_mut().enumerate() {
        if index != last || !open {
            block.closing = b"";
        }
    }
    blocks
}

/// Whether the last block ended by itself: as a blank line or as a comment of no event.
fn block_ended(block: Option<&Block>) -> bool {
    let Some(block) = block else { return true };
    let lines = raw_lines(&block.raw);
    let Some(last) = lines.last() else { return true };
    let text = last.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(last);
    let ended = last.ends_with(b"\n") || last.ends_with(b"\r");
    ended && (matches!(text, b"\n" | b"\r" | b"\r\n") || (lines.len() == 1 && text.first() == Some(&b':')))
}

fn raw_lines(stream: &[u8]) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    let mut line = Vec::new();
    let mut bytes = stream.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        line.push(byte);
        if byte == b'\r' {
            line.extend(bytes.next_if_eq(&b'\n'));
        }
        if byte == b'\r' || byte == b'\n' {
            lines.push(std::mem::take(&mut line));
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

fn identify(value: &Value, identity: &mut Identity) {
    let text = |key: &str| value[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let created = value["created"].as_u64().filter(|created| *created != 0);
    identity.id = identity.id.take().or_else(|| text("id"));
    identity.model = identity.model.take().or_else(|| text("model"));
    identity.created = identity.created.take().or(created);
}

pub(super) fn is_error(value: &Value) -> bool {
    let falsy = [Value::Null, Value::Bool(false), Value::from(0), Value::from("")];
    let is_said = |error: &Value| !falsy.contains(error);
    let of_choice = choices(value).any(|choice| is_said(&choice["error"]));
    of_choice || is_said(&value["error"]) || is_said(&value["x_groq"]["error"]) || value["object"] == "error"
}

fn choices(value: &Value) -> impl Iterator<Item = &Value> {
    value["choices"].as_array().into_iter().flatten()
}

fn usages(value: &Value) -> Vec<&Value> {
    let mut usages = vec![&value["usage"], &value["x_groq"]["usage"]];
    usages.extend(choices(value).map(|choice| &choice["usage"]));
    usages.retain(|usage| usage.is_object());
    usages
}

/// A `usage` object as a [`Report`].
pub(super) fn report(usage: &Value) -> Report {
    let detail = |side: &str, keys: &[&str]| {
        let Some(details) = usage.get(side).filter(|details| details.is_object()) else {
            return Figure::Absent;
        };
        let figures = keys.iter().map(|key| figure_of(details, key));
        figures.fold(Figure::Absent, Figure::larger)
    };
    let figure = |key: &str| figure_of(usage, key);
    Report {
        prompt: figure("prompt_tokens"),
        completion: figure("completion_tokens"),
        total: figure("total_tokens"),
        audio: detail("prompt_tokens_details", &["audio_tokens"]),
        image: detail("prompt_tokens_details", &["image_tokens"]),
        cache_read: detail("prompt_tokens_details", &["cached_tokens"]).larger(figure("prompt_cache_hit_tokens")),
        cached: figure("cached_tokens"),
        cache_write: detail(
            "prompt_tokens_details",
            &[
                "cache_write_tokens",
                "cache_creation_input_tokens",
                "cache_creation_tokens",
            ],
        ),
        completion_detail: detail(
            "completion_tokens_details",
            &["accepted_prediction_tokens", "rejected_prediction_tokens"],
        ),
        reasoning: detail("completion_tokens_details", &["reasoning_tokens"]),
        reasoning_beside: figure("reasoning_tokens"),
        audio_output: detail("completion_tokens_details", &["audio_tokens"]),
        image_output: detail("completion_tokens_details", &["image_tokens"]),
        buckets: Buckets {
            input: figure("input_tokens"),
            output: figure("output_tokens"),
            read: figure("cache_read_input_tokens"),
            write: figure("cache_creation_input_tokens"),
            write_5m: detail("cache_creation", &["ephemeral_5m_input_tokens"]),
            write_1h: detail("cache_creation", &["ephemeral_1h_input_tokens"]),
        },
        cost: None,
        estimated_cost: None,
        is_byok: false,
        upstream_cost: None,
    }
}

fn figure_of(value: &Value, key: &str) -> Figure {
    match value.get(key) {
        None | Some(Value::Null) => Figure::Absent,
        Some(value) => match value.as_u64() {
            Some(tokens) if tokens <= TOKENS_MAX => Figure::Tokens(tokens),
            _ => Figure::Unbelievable,
        },
    }
}

/// Tokens of all text in an answer or in a chunk of one. What a choice says in two places counts once.
pub(super) fn text_tokens(value: &Value, encoding: Encoding) -> u64 {
    let count = |value: &Value| value.as_str().map_or(0, |text| tokens::count(text, encoding));
    let function = |value: &Value| {
        ["name", "arguments", "input"]
            .iter()
            .map(|key| count(&value[*key]))
            .sum::<u64>()
    };
    let message = |message: &Value| {
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        let content = parts(&message["content"], &count)
            + parts(&message["refusal"], &count)
            + count(&message["audio"]["transcript"])
            + function(&message["function_call"])
            + calls
                .map(|call| function(&call["function"]) + function(&call["custom"]))
                .sum::<u64>();
        let reasoning = ["reasoning", "reasoning_content", "reasoning_details"];
        let reasoning = reasoning.iter().map(|key| parts(&message[*key], &count));
        (content, reasoning.max().unwrap_or(0))
    };
    let choice = |choice: &Value| {
        let (content, reasoning) = message(&choice["delta"]);
        let delta = content.max(parts(&choice["text"], &count)) + reasoning;
        let (content, reasoning) = message(&choice["message"]);
        delta.max(content + reasoning)
    };
    choices(value).map(choice).sum()
}

/// Tokens of content that is a string, or an array of parts.
fn parts(content: &Value, count: &dyn Fn(&Value) -> u64) -> u64 {
    let inner = |part: &Value| {
        ["text", "thinking", "summary", "refusal"]
            .iter()
            .map(|key| parts(&part[*key], count))
            .sum::<u64>()
    };
    match content {
        Value::Array(elements) => elements.iter().map(|part| parts(part, count)).sum(),
        Value::Object(_) => inner(content),
        _ => count(content),
    }
}
