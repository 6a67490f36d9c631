//! The requests that are sent: their shapes, rendered once for a subject.

use bytes::Bytes;
use serde_json::json;
use tollgate::pure::ids::ApiKey;

use crate::{
    answers::WORDS,
    client::{Expect, Shot},
    fleet::{Path, Subject},
    random::Random,
    script::{Form, Script},
    tag::Tag,
};

/// What a request looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// So many bytes of body in, a whole answer out.
    Whole { bytes: usize },
    /// 1 KB in, 1536 numbers out.
    Embeddings,
    /// 1 KB in, a stream out.
    Stream(Script),
}

impl Shape {
    /// A request of this shape from each account of the subject, each for one of its models; fewer where they are long.
    pub(crate) fn shots(self, subject: &Subject) -> Vec<Shot> {
        let mut random = Random::new(SEED);
        let fitting = BYTES_MAX / self.bytes().max(1);
        (0..subject.callers.len().min(fitting))
            .map(|place| self.shot(subject, place, &mut random))
            .collect()
    }

    fn shot(self, subject: &Subject, place: usize, random: &mut Random) -> Shot {
        let expect = match self {
            Self::Whole { .. } | Self::Embeddings => Expect::Json,
            Self::Stream(script) => Expect::Stream {
                events: subject.is_simulated.then(|| script.events_seen()),
            },
        };
        let key = &subject.callers[place % subject.callers.len()];
        let mut call = self.call(subject, random);
        call.script.tag = tag(place);
        Shot {
            bytes: call.render(&subject.path, key),
            expect,
            tag: subject.is_simulated.then(|| Tag::of(call.script.tag)),
        }
    }

    /// The same request with another key, that must be refused.
    pub(crate) fn denied(self, subject: &Subject, key: &str, statuses: &'static [u16]) -> Shot {
        Shot {
            bytes: self.call(subject, &mut Random::new(SEED)).render(&subject.path, key),
            expect: Expect::Denied(statuses),
            tag: None,
        }
    }

    /// For any of the subject's models.
    fn call<'s>(self, subject: &'s Subject, random: &mut Random) -> Call<'s> {
        let mut one_of = |models: &[String]| usize::try_from(random.below(models.len() as u64)).unwrap_or_default();
        let (kind, script) = match self {
            Self::Whole { .. } => (Kind::Whole, Script::whole()),
            Self::Embeddings => (Kind::Embeddings, Script::whole()),
            Self::Stream(script) => (Kind::Stream, script),
        };
        let models = if kind == Kind::Embeddings {
            &subject.embedding_models
        } else {
            &subject.models
        };
        Call {
            kind,
            model: &models[one_of(models)],
            script,
            text: prose(self.bytes()),
        }
    }

    /// Of the prompt's text.
    fn bytes(self) -> usize {
        let body = if let Self::Whole { bytes } = self {
            bytes
        } else {
            KILOBYTE
        };
        body.saturating_sub(OTHER_BYTES)
    }
}

/// A request.
pub(crate) struct Call<'a> {
    pub(crate) kind: Kind,
    pub(crate) model: &'a str,
    pub(crate) script: Script,
    /// What the user says, or what is embedded, behind the script.
    pub(crate) text: String,
}

/// What answers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Whole,
    Stream,
    Embeddings,
}

impl Call<'_> {
    /// Its bytes as they are sent.
    pub(crate) fn render(&self, path: &Path, key: &str) -> Bytes {
        let Self {
            model, script, text, ..
        } = self;
        let messages = json!([{"role": "system", "content": script.text()}, {"role": "user", "content": text}]);
        let (endpoint, mut body) = match self.kind {
            Kind::Whole => (
                "chat/completions",
                json!({"model": model, "max_tokens": 512, "temperature": 0.7, "messages": messages}),
            ),
            Kind::Stream => (
                "chat/completions",
                json!({
                    "model": model, "max_tokens": 2048, "stream": true, "stream_options": {"include_usage": true},
                    "messages": messages,
                }),
            ),
            Kind::Embeddings => ("embeddings", json!({"model": model, "input": script.text() + text})),
        };
        match script.form {
            Form::Plain | Form::Words => {}
            Form::Choices => body["n"] = json!(script.form.choices()),
            Form::Logprobs => {
                body["logprobs"] = json!(true);
                body["top_logprobs"] = json!(5);
            }
            Form::Tools => {
                body["tool_choice"] = json!("required");
                body["tools"] = json!([{"type": "function", "function": {
                    "name": "report", "description": "Takes a report.",
                    "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
                }}]);
            }
        }
        let (body, Path { host, base }) = (body.to_string(), path);
        let head = format!(
            "POST {base}/{endpoint} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n\
             accept: */*\r\nuser-agent: tollgate-bench\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        Bytes::from(head + &body)
    }
}

/// The mix: of ten requests five whole, one of 20 KB, two embeddings, two streams. Each account sends one, if there are ten or more.
pub(crate) fn mixed(subject: &Subject) -> Vec<Shot> {
    let stream = Shape::Stream(Script::stream(20));
    let (whole, big) = (Shape::Whole { bytes: KILOBYTE }, Shape::Whole { bytes: 20 * KILOBYTE });
    let shapes = [
        whole,
        stream,
        whole,
        Shape::Embeddings,
        whole,
        big,
        whole,
        stream,
        whole,
        Shape::Embeddings,
    ];
    let mut random = Random::new(SEED);
    let wanted = subject.callers.len().max(shapes.len());
    (0..wanted)
        .map(|place| shapes[place % shapes.len()].shot(subject, place, &mut random))
        .collect()
}

/// Requests with keys that are none: half of them well-formed, half with a wrong checksum.
pub(crate) fn wrong_keys(subject: &Subject) -> Vec<Shot> {
    let key = |number: u8| {
        let mut key = ApiKey::from_random("tg_", [number; 32]).reveal().to_owned();
        if number.is_multiple_of(2) {
            let last = if key.pop() == Some('0') { '1' } else { '0' };
            key.push(last);
        }
        key
    };
    let shape = Shape::Whole { bytes: KILOBYTE };
    (0..=u8::MAX)
        .map(|number| shape.denied(subject, &key(number), &[401, 429]))
        .collect()
}

/// A number that no other request of a list has, and that stands in no answer by chance.
fn tag(place: usize) -> u32 {
    u32::try_from(place + 1).unwrap_or_default().wrapping_mul(SPREAD)
}

/// Text of so many bytes that looks like prose, the same on every run.
pub(crate) fn prose(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 16);
    let mut random = Random::new(SEED);
    while text.len() < bytes {
        let word = usize::try_from(random.below(WORDS.len() as u64)).unwrap_or_default();
        text.push_str(WORDS[word]);
    }
    text.truncate(bytes);
    text
}

pub(crate) const KILOBYTE: usize = 1024;
/// What a body has besides its text.
const OTHER_BYTES: usize = 285;
/// Of all requests of a part.
const BYTES_MAX: usize = 64 << 20;
const SEED: u64 = 1;
/// The golden ratio of 2^32, and odd: it sends each number to another one, far from its neighbours.
const SPREAD: u32 = 2_654_435_769;
