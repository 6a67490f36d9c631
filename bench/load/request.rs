//! The requests that are sent: their shapes, rendered once for a subject.

use bytes::Bytes;
use serde_json::json;
use tollgate::pure::ids::ApiKey;

use crate::{
    client::{Expect, Shot},
    fleet::Subject,
    upstream::Script,
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
    /// A request of this shape with the subject's own key; another `key` to be refused with one of `denied`.
    pub(crate) fn shot(self, subject: &Subject) -> Shot {
        let expect = match self {
            Self::Whole { .. } | Self::Embeddings => Expect::Json,
            Self::Stream(script) => Expect::Stream {
                events: subject.is_simulated.then(|| script.events_seen()),
            },
        };
        Shot {
            bytes: self.render(subject, &subject.key),
            expect,
        }
    }

    /// The same request with another key, that must be refused.
    pub(crate) fn denied(self, subject: &Subject, key: &str, statuses: &'static [u16]) -> Shot {
        Shot {
            bytes: self.render(subject, key),
            expect: Expect::Denied(statuses),
        }
    }

    fn render(self, subject: &Subject, key: &str) -> Bytes {
        let (path, body) = match self {
            Self::Whole { bytes } => {
                let body = json!({
                    "model": subject.model, "max_tokens": 512, "temperature": 0.7,
                    "messages": [{"role": "system", "content": "You are a bench."}, {"role": "user", "content": prose(bytes.saturating_sub(OTHER_BYTES))}],
                });
                ("chat/completions", body)
            }
            Self::Stream(script) => {
                let body = json!({
                    "model": subject.model, "max_tokens": 2048, "stream": true, "stream_options": {"include_usage": true},
                    "messages": [{"role": "system", "content": script.text()}, {"role": "user", "content": prose(KILOBYTE - OTHER_BYTES)}],
                });
                ("chat/completions", body)
            }
            Self::Embeddings => (
                "embeddings",
                json!({"model": subject.embedding_model, "input": prose(KILOBYTE - OTHER_BYTES)}),
            ),
        };
        let (body, host, base) = (body.to_string(), &subject.host, &subject.base);
        let head = format!(
            "POST {base}/{path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n\
             accept: */*\r\nuser-agent: tollgate-bench\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        Bytes::from(head + &body)
    }
}

/// The mix: of ten requests five whole, one of 20 KB, two embeddings, two streams.
pub(crate) fn mixed(subject: &Subject) -> Vec<Shot> {
    let stream = Shape::Stream(Script { events: 20, pace_ms: 0 });
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
    shapes.iter().map(|shape| shape.shot(subject)).collect()
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

/// Text of so many bytes that looks like prose, the same on every run.
fn prose(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 16);
    let mut state = 1_u64;
    while text.len() < bytes {
        // Knuth's MMIX generator: any spread of words will do, as long as it repeats.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let word = usize::try_from(state >> 40).unwrap_or_default() % WORDS.len();
        text.push_str(WORDS[word]);
        text.push(' ');
    }
    text.truncate(bytes);
    text
}

pub(crate) const KILOBYTE: usize = 1024;
/// What a body has besides its text.
const OTHER_BYTES: usize = 180;
const WORDS: [&str; 40] = [
    "the", "of", "and", "to", "in", "a", "is", "that", "for", "it", "as", "was", "with", "be", "by", "on", "not", "he",
    "his", "but", "at", "are", "this", "have", "from", "or", "had", "an", "they", "which", "one", "were", "ledger",
    "credit", "balance", "measure", "stream", "answer", "question", "gateway",
];
