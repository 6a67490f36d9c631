//! What the simulated upstream answers, rendered once. Of each event and answer only the time, the tokens that it reports and the tag of its
//! request are written anew.

use std::ops::Range;

use memchr::memmem;

use crate::{
    events::{STAMP_DIGITS, stamp_place},
    process,
    script::{Form, Script},
    tag::{TAG_MARK, Tag},
    wire,
};

/// All answers.
pub(crate) struct Answers {
    pub(crate) whole: Reported,
    pub(crate) embeddings: Reported,
    pub(crate) not_found: Vec<u8>,
    pub(crate) refused: Vec<u8>,
    pub(crate) stream_head: Vec<u8>,
    /// The parts of a stream, by its form.
    streams: Vec<(Form, Stream)>,
    pub(crate) usage: Reported,
    pub(crate) done: Vec<u8>,
}

/// The parts of a stream of one form.
pub(crate) struct Stream {
    /// Taken in turn, each with where its tag stands.
    events: Vec<(Vec<u8>, Range<usize>)>,
    pub(crate) finish: Reported,
}

impl Answers {
    pub(crate) fn new() -> Self {
        let sentence = "All of this was said by the simulated upstream, which says the same to everyone. ";
        let mut text = format!("To request {TAG_MARK}: ") + &sentence.repeat(14);
        text.truncate(14 * sentence.len());
        let whole = format!(
            r#"{{"id":"chatcmpl-sim-0","object":"chat.completion","created":1760000000,"model":"sim","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}],"usage":{USAGE}}}"#
        );
        let number = |i: i32| match i {
            0 => format!("0.{TAG_MARK}"),
            _ => format!("{:.8}", f64::from(i * 7919 % 2000 - 1000) / 10_007.0),
        };
        let numbers = (0..1536).map(number).collect::<Vec<_>>().join(",");
        let embeddings = format!(
            r#"{{"object":"list","data":[{{"object":"embedding","index":0,"embedding":[{numbers}]}}],"model":"sim","usage":{{"prompt_tokens":@@@@prompt,"total_tokens":@@@@prompt}}}}"#
        );
        let error = |status, message: &str| {
            let body = format!(r#"{{"error":{{"message":"{message}","type":"server_error","code":null}}}}"#);
            json(status, &body)
        };
        let mut done = Vec::new();
        wire::push_chunk(&mut done, b"data: [DONE]\n\n");
        done.extend_from_slice(b"0\r\n\r\n");
        Self {
            whole: Reported::new(json("200 OK", &whole)),
            embeddings: Reported::new(json("200 OK", &embeddings)),
            not_found: error("404 Not Found", "the simulated upstream has no such path, or got no script"),
            refused: error("500 Internal Server Error", "the simulated upstream was told to fail"),
            stream_head: b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n".to_vec(),
            streams: Form::ALL.into_iter().map(|form| (form, Stream::new(form))).collect(),
            usage: Reported::new(chunk("", USAGE)),
            done,
        }
    }

    pub(crate) fn stream(&self, form: Form) -> Option<&Stream> {
        self.streams
            .iter()
            .find(|(of, _)| *of == form)
            .map(|(_, stream)| stream)
    }
}

impl Stream {
    fn new(form: Form) -> Self {
        let words = if form == Form::Words { &WORDS[..] } else { &PIECES[..] };
        let events = words.iter().enumerate().map(|(index, word)| {
            let text = format!(r#""content":"{word}""#);
            let choice = match form {
                Form::Plain | Form::Words => choice(0, &text, "null", "null"),
                Form::Tools => choice(0, &tool_call(index, word), "null", "null"),
                Form::Logprobs => choice(0, &text, &logprobs(word), "null"),
                Form::Choices => choice(index % 2, &text, "null", "null"),
            };
            let event = chunk(&choice, "null");
            let tag = places(&event, TAG_MARK).next().unwrap_or(0..0);
            (event, tag)
        });
        let reason = if form == Form::Tools {
            r#""tool_calls""#
        } else {
            r#""stop""#
        };
        let finish =
            (0..usize::from(form == Form::Choices) + 1).map(|index| chunk(&choice(index, "", "null", reason), "null"));
        Self {
            events: events.collect(),
            finish: Reported::new(finish.flatten().collect()),
        }
    }

    /// Writes an event to the end of `out`, with the time and the tag of its request.
    pub(crate) fn push(&self, out: &mut Vec<u8>, number: u32, tag: Tag) {
        let start = out.len();
        let place = usize::try_from(number).unwrap_or_default() % self.events.len();
        let (event, tag_at) = &self.events[place];
        out.extend_from_slice(event);
        let event = &mut out[start..];
        event[tag_at.clone()].copy_from_slice(tag.bytes());
        stamp(event);
    }
}

/// An answer, or a part of one, that reports tokens or has the tag of its request.
pub(crate) struct Reported {
    bytes: Vec<u8>,
    prompt: Vec<Range<usize>>,
    completion: Vec<Range<usize>>,
    total: Vec<Range<usize>>,
    tag: Vec<Range<usize>>,
}

impl Reported {
    fn new(bytes: Vec<u8>) -> Self {
        let all = |mark| places(&bytes, mark).collect();
        let (prompt, completion, total) = (all("@@@@prompt"), all("@@@@completion"), all("@@@@@total"));
        let tag = all(TAG_MARK);
        Self {
            bytes,
            prompt,
            completion,
            total,
            tag,
        }
    }

    /// Writes it to the end of `out`, with the tokens and the tag that the script says.
    pub(crate) fn push(&self, out: &mut Vec<u8>, script: Script) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let (prompt, completion) = (u64::from(script.prompt), u64::from(script.completion));
        for (places, number) in [
            (&self.prompt, prompt),
            (&self.completion, completion),
            (&self.total, prompt + completion),
        ] {
            for place in places {
                digits(&mut out[start + place.start..start + place.end], number, b' ');
            }
        }
        let tag = Tag::of(script.tag);
        for place in &self.tag {
            out[start + place.start..start + place.end].copy_from_slice(tag.bytes());
        }
    }
}

/// Where a mark stands.
fn places<'a>(bytes: &'a [u8], mark: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
    memmem::find_iter(bytes, mark).map(move |start| start..start + mark.len())
}

fn json(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The choice of an event.
fn choice(index: usize, delta: &str, logprobs: &str, finish_reason: &str) -> String {
    format!(r#"{{"index":{index},"delta":{{{delta}}},"logprobs":{logprobs},"finish_reason":{finish_reason}}}"#)
}

/// The first names the function, the others have a piece of its arguments.
fn tool_call(index: usize, word: &str) -> String {
    if index == 0 {
        return r#""role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_0123456789abcdef","type":"function","function":{"name":"report","arguments":""}}]"#.to_owned();
    }
    // The arguments are JSON within a string of JSON.
    let word = word.replace('\\', "\\\\").replace('"', "\\\"");
    format!(r#""tool_calls":[{{"index":0,"function":{{"arguments":"{word}"}}}}]"#)
}

fn logprobs(word: &str) -> String {
    let of = |token: &str, more: &str| {
        let bytes: Vec<String> = token.bytes().map(|byte| byte.to_string()).collect();
        format!(
            r#"{{"token":"{token}","logprob":-0.31725305,"bytes":[{}]{more}}}"#,
            bytes.join(",")
        )
    };
    let others: Vec<String> = [word, " one", " two", " three", " four"]
        .iter()
        .map(|token| of(token, ""))
        .collect();
    let top = format!(r#","top_logprobs":[{}]"#, others.join(","));
    format!(r#"{{"content":[{}],"refusal":null}}"#, of(word, &top))
}

/// An event of a stream as one chunk, in the shape that OpenAI gives it, with room for a time and for the tag of the request.
fn chunk(choice: &str, usage: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let stamp = "0".repeat(STAMP_DIGITS);
    let event = format!(
        r#"{{"id":"chatcmpl-sim-0123456789","object":"chat.completion.chunk","created":1760000000,"model":"sim-2026-01-01","service_tier":"default","system_fingerprint":"fp_{TAG_MARK}","choices":[{choice}],"usage":{usage},"obfuscation":"{stamp}"}}"#
    );
    wire::push_chunk(&mut out, format!("data: {event}\n\n").as_bytes());
    out
}

/// Writes the time into an event.
fn stamp(event: &mut [u8]) {
    let Some(place) = stamp_place(event) else { return };
    digits(&mut event[place], process::monotonic_ns(), b'0');
}

/// Writes a number to the end of `room`, with `before` in front of it.
fn digits(room: &mut [u8], mut number: u64, before: u8) {
    for (behind, digit) in room.iter_mut().rev().enumerate() {
        let is_digit = number > 0 || behind == 0;
        *digit = if is_digit { b'0' + (number % 10) as u8 } else { before };
        number /= 10;
    }
}

/// Room for the tokens that are reported: as wide as the marks.
const USAGE: &str = r#"{"prompt_tokens":@@@@prompt,"completion_tokens":@@@@completion,"total_tokens":@@@@@total}"#;
/// English words, each one token with the space before it.
pub(crate) const WORDS: [&str; 40] = [
    " the",
    " of",
    " and",
    " to",
    " in",
    " a",
    " is",
    " that",
    " for",
    " it",
    " as",
    " was",
    " with",
    " be",
    " by",
    " on",
    " not",
    " he",
    " his",
    " but",
    " at",
    " are",
    " this",
    " have",
    " from",
    " or",
    " had",
    " an",
    " they",
    " which",
    " one",
    " were",
    " market",
    " credit",
    " balance",
    " measure",
    " stream",
    " answer",
    " question",
    " number",
];
/// Pieces of text, code and other languages, as they stand in JSON.
const PIECES: [&str; 48] = [
    "The",
    " answer",
    " is",
    " that",
    " a",
    " gateway",
    " counts",
    " what",
    " it",
    " delivers",
    ",",
    " and",
    " nothing",
    " else",
    ".",
    "\\n\\n",
    "```",
    "rust",
    "\\n",
    "fn",
    " main",
    "()",
    " {\\n",
    "   ",
    " let",
    " total",
    ":",
    " u64",
    " =",
    " items",
    ".iter",
    "().",
    "sum",
    "();\\n",
    " println",
    "!(\\\"",
    "{}",
    "\\\",",
    " total",
    ");\\n",
    "}",
    " über",
    " größer",
    "价格",
    "は",
    " 12",
    "3.45",
    " €",
];
