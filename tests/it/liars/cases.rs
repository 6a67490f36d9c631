//! What providers and clients do in a case, and its call.

use proptest::prelude::*;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::harness::catalogue::SMALL;
use crate::harness::reply::whole_chat;
use crate::harness::told::told_cost;
use crate::harness::{Gateway, Reply, within};

/// What a provider does next.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// Sends so many words, each in an event of its own; in a whole answer they are its text.
    Text(usize),
    /// Reports this usage.
    Report(Value),
    Finish,
    Done,
    /// Ends the connection after so many bytes of what comes next, with a reset or without.
    Die(usize, bool),
}

/// How a client writes its maximum.
#[derive(Clone, Copy, Debug)]
pub(super) enum Spelling {
    MaxTokens,
    MaxCompletionTokens,
    /// In both fields, in the older one more.
    Both,
}

#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) streamed: bool,
    pub(super) max: Option<(u64, Spelling)>,
    pub(super) choices: u64,
    /// What the catalogue says of the model: one of [`MAXIMA`].
    pub(super) catalogue_max: usize,
    /// Members of the request that change nothing of its price.
    pub(super) more: Vec<(&'static str, Value)>,
    pub(super) acts: Vec<Act>,
    /// The client leaves after so many bytes of the answer.
    pub(super) leaves: Option<usize>,
    /// What is paid in before, in 10^-7 credit.
    pub(super) credit: u64,
}

/// The maxima of the models; the text of most cases is longer than the first two.
pub(super) const MAXIMA: [u64; 3] = [5, 40, 4_096];

pub(super) fn model(catalogue_max: usize) -> String {
    format!("{SMALL}-{}", MAXIMA[catalogue_max])
}

fn figure() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (0_u64..60).prop_map(Value::from),
        2 => (0_u64..5_000).prop_map(Value::from),
        1 => Just(json!(4_000_000_000_u64)),
        1 => Just(json!(-1)),
        1 => Just(json!(1.5)),
        1 => Just(json!("7")),
        1 => Just(Value::Null),
    ]
}

fn usage() -> impl Strategy<Value = Value> {
    (figure(), figure(), figure(), figure(), figure(), any::<bool>()).prop_map(
        |(prompt, completion, total, cached, reasoning, details)| {
            let mut usage = json!({ "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total });
            if details {
                usage["prompt_tokens_details"] = json!({ "cached_tokens": cached });
                usage["completion_tokens_details"] = json!({ "reasoning_tokens": reasoning });
            }
            usage
        },
    )
}

fn more() -> impl Strategy<Value = (&'static str, Value)> {
    prop_oneof![
        Just(("temperature", json!(0.5))),
        Just(("stop", json!(["\n"]))),
        Just(("logprobs", json!(true))),
        Just(("user", json!("someone"))),
        Just(("stream_options", json!({ "include_usage": true }))),
        Just(("max_tokens", Value::Null)),
    ]
}

pub(super) fn case() -> impl Strategy<Value = Case> {
    let act = prop_oneof![
        5 => (0_usize..60).prop_map(Act::Text),
        1 => (100_usize..400).prop_map(Act::Text),
        4 => usage().prop_map(Act::Report),
        2 => Just(Act::Finish),
        2 => Just(Act::Done),
        2 => (0_usize..700, any::<bool>()).prop_map(|(bytes, reset)| Act::Die(bytes, reset)),
    ];
    let spelling = prop_oneof![
        Just(Spelling::MaxTokens),
        Just(Spelling::MaxCompletionTokens),
        Just(Spelling::Both)
    ];
    (
        any::<bool>(),
        prop::option::of((1_u64..60, spelling)),
        1_u64..3,
        0..MAXIMA.len(),
        prop::collection::vec(more(), 0..2),
        prop::collection::vec(act, 0..7),
        prop::option::weighted(0.25, 0_usize..8_000),
        0_u64..3_000,
    )
        .prop_map(
            |(streamed, max, choices, catalogue_max, more, acts, leaves, credit)| Case {
                streamed,
                max,
                choices,
                catalogue_max,
                more,
                acts,
                leaves,
                credit,
            },
        )
}

impl Case {
    pub(super) fn body(&self) -> String {
        let message = json!([{ "role": "user", "content": "Hello" }]);
        let mut body = json!({ "model": model(self.catalogue_max), "messages": message, "n": self.choices });
        for (key, value) in &self.more {
            body[key] = value.clone();
        }
        match self.max {
            Some((max, Spelling::MaxTokens)) => body["max_tokens"] = max.into(),
            Some((max, Spelling::MaxCompletionTokens)) => body["max_completion_tokens"] = max.into(),
            Some((max, Spelling::Both)) => {
                body["max_completion_tokens"] = max.into();
                body["max_tokens"] = (max + 7).into();
            }
            None => {}
        }
        body.to_string()
    }

    pub(super) fn reply(&self) -> Reply {
        if self.streamed { self.stream() } else { self.whole() }
    }

    fn whole(&self) -> Reply {
        let words = self
            .acts
            .iter()
            .map(|act| if let Act::Text(words) = act { *words } else { 0 });
        let mut answer = whole_chat(&" word".repeat(words.sum()), None);
        for act in &self.acts {
            if let Act::Report(usage) = act {
                answer["usage"] = usage.clone();
            }
        }
        let answer = answer.to_string();
        let Some((bytes, reset)) = self.death() else {
            return Reply::new(200, &[("content-type", "application/json")], answer);
        };
        let head = Reply::json_head(answer.len());
        let begun = head.bytes(&answer.as_bytes()[..bytes.min(answer.len())]);
        if reset { begun.reset() } else { begun.close() }
    }

    fn stream(&self) -> Reply {
        let mut reply = Reply::stream();
        for (index, act) in self.acts.iter().enumerate() {
            reply = match act {
                Act::Text(words) => (0..*words).fold(reply, |reply, _| reply.text(" word")),
                Act::Report(usage) => reply.event(&json!({ "choices": [], "usage": usage }).to_string()),
                Act::Finish => reply.finish(),
                Act::Done => return reply.done(),
                Act::Die(bytes, reset) => {
                    let rest = Case {
                        acts: self.acts[index + 1..]
                            .iter()
                            .filter(|act| !matches!(act, Act::Die(..)))
                            .cloned()
                            .collect(),
                        ..self.clone()
                    };
                    let begun = reply.cut(rest.stream_events(), *bytes);
                    return if *reset { begun.reset() } else { begun.close() };
                }
            };
        }
        reply.end()
    }

    /// The events without a head.
    fn stream_events(&self) -> Reply {
        self.acts.iter().fold(Reply::default(), |reply, act| match act {
            Act::Text(words) => (0..*words).fold(reply, |reply, _| reply.text(" word")),
            Act::Report(usage) => reply.event(&json!({ "choices": [], "usage": usage }).to_string()),
            Act::Finish => reply.finish(),
            Act::Done => reply.event("[DONE]"),
            Act::Die(..) => reply,
        })
    }

    fn death(&self) -> Option<(usize, bool)> {
        self.acts.iter().find_map(|act| match act {
            Act::Die(bytes, reset) => Some((*bytes, *reset)),
            _ => None,
        })
    }

    /// Whether no report can say what the last text was.
    pub(super) fn is_unreported(&self) -> bool {
        // Nothing follows the end of a stream.
        let done = self
            .acts
            .iter()
            .position(|act| self.streamed && matches!(act, Act::Done));
        let acts = &self.acts[..done.unwrap_or(self.acts.len())];
        let last_text = acts.iter().rposition(|act| matches!(act, Act::Text(1..)));
        let last_report = acts.iter().rposition(|act| matches!(act, Act::Report(_)));
        match (last_text, last_report) {
            (Some(_), None) => true,
            (Some(text), Some(report)) => self.streamed && report < text,
            (None, _) => false,
        }
    }

    /// Makes the call; the words that its client read, of whole events only, and the cost that an answer told which it read to its end.
    pub(super) async fn run(&self, gateway: &Gateway) -> (u64, Option<Decimal>) {
        let path = if self.streamed { "/llm/chat/stream" } else { "/llm/chat" };
        let Ok(mut response) = gateway.http1.post_request(path, self.body()).send().await else {
            return (0, None);
        };
        let mut read = Vec::new();
        while read.len() < self.leaves.unwrap_or(usize::MAX) {
            match within("the next piece", response.chunk()).await {
                Ok(Some(bytes)) => read.extend_from_slice(&bytes),
                Ok(None) | Err(_) => break,
            }
        }
        let text = String::from_utf8_lossy(&read);
        let whole = if self.streamed {
            text.rsplit_once("\n\n").map_or("", |(whole, _)| whole)
        } else {
            text.as_ref()
        };
        if response.status() != 200 {
            return (0, None);
        }
        let has_ended = if self.streamed {
            text.ends_with("data: [DONE]\n\n")
        } else {
            serde_json::from_str::<Value>(&text).is_ok()
        };
        let told = told_cost(&text).filter(|_| has_ended);
        (whole.matches(" word").count() as u64, told)
    }
}
