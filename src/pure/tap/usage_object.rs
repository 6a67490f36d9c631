//! The `usage` object of an answer as its client reads it: the provider's own, with what the call is billed in it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde_json::value::RawValue;

use super::accumulator::Identity;
use crate::pure::bill::{Bill, Tariff, Used};
use crate::pure::money::Credits;
use crate::pure::request_body::Endpoint;
use crate::pure::usage::{Figure, Report, TokenKinds};

/// The sides of a usage object and their total, as they stand in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sides {
    prompt: Figure,
    completion: Figure,
    total: Figure,
}

impl Sides {
    /// Those of this report.
    pub(super) fn of(report: &Report) -> Sides {
        Sides {
            prompt: report.prompt,
            completion: report.completion,
            total: report.total,
        }
    }
}

/// The usage that a client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ToldUsage {
    pub(super) bill: Bill,
    /// What the prompt makes of the cost, where that is known.
    prompt_cost: Option<Credits>,
    /// It is that of vectors, which have no completion.
    is_of_vectors: bool,
}

impl ToldUsage {
    /// What is told of a call that was used so. None where that is not known yet.
    pub(super) fn of(used: &Used<'_>, tariff: &Tariff<'_>) -> Option<ToldUsage> {
        let bill = tariff.bill(used)?;
        let prompt_cost = tariff.prompt_cost(&bill, used);
        Some(ToldUsage {
            bill,
            prompt_cost,
            is_of_vectors: tariff.body.endpoint() == Endpoint::Embeddings,
        })
    }

    /// Whether an object that reports these sides says what is billed.
    fn is_as(&self, sides: Sides) -> bool {
        let billed = self.bill.usage;
        let completion_is = match sides.completion {
            Figure::Absent => billed.completion.0 == 0,
            figure => figure == Figure::Tokens(billed.completion.0),
        };
        // That of a chat may have more in it, which is noted elsewhere; that of vectors is their prompt.
        let total_is = !self.is_of_vectors || [Figure::Absent, Figure::Tokens(billed.prompt.0)].contains(&sides.total);
        sides.prompt == Figure::Tokens(billed.prompt.0) && completion_is && total_is
    }

    /// `cost` and `cost_details`, as members of an object.
    fn write_cost(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\"cost\":");
        self.bill.cost.write_to(out);
        let Some(prompt) = self.prompt_cost else { return };
        let completion = self.bill.cost.saturating_sub(prompt);
        out.extend_from_slice(
            b",\"cost_details\":{\"upstream_inference_cost\":null,\"upstream_inference_prompt_cost\":",
        );
        prompt.write_to(out);
        out.extend_from_slice(b",\"upstream_inference_completions_cost\":");
        completion.write_to(out);
        out.push(b'}');
    }

    /// What is told in the place of `sides`. Vectors have no completion, and none is told of them where their provider told none.
    fn tokens(&self, sides: Sides) -> impl Iterator<Item = (&'static str, u64)> {
        let (prompt, completion) = (self.bill.usage.prompt.0, self.bill.usage.completion.0);
        let has_completion = !self.is_of_vectors || completion > 0 || sides.completion != Figure::Absent;
        [
            ("prompt_tokens", Some(prompt)),
            ("completion_tokens", has_completion.then_some(completion)),
            ("total_tokens", Some(prompt.saturating_add(completion))),
        ]
        .into_iter()
        .filter_map(|(name, tokens)| Some((name, tokens?)))
    }

    /// The whole object, where the provider made none.
    pub(super) fn object(&self) -> Vec<u8> {
        let mut out = vec![b'{'];
        for (name, tokens) in self.tokens(Sides::default()) {
            out.extend_from_slice(format!("\"{name}\":{tokens},").as_bytes());
        }
        let TokenKinds {
            cache_read,
            cache_write,
            cache_write_1h,
            reasoning,
            ..
        } = self.bill.kinds;
        let cache_write = cache_write.saturating_add(cache_write_1h);
        if cache_read > 0 || cache_write > 0 {
            let details = format!(
                "\"prompt_tokens_details\":{{\"cached_tokens\":{cache_read},\"cache_write_tokens\":{cache_write}}},"
            );
            out.extend_from_slice(details.as_bytes());
        }
        if reasoning > 0 {
            let details = format!("\"completion_tokens_details\":{{\"reasoning_tokens\":{reasoning}}},");
            out.extend_from_slice(details.as_bytes());
        }
        self.write_cost(&mut out);
        out.push(b'}');
        out
    }

    /// An event of its own for it, at the end of a stream.
    pub(super) fn event(&self, identity: &Identity) -> Vec<u8> {
        let text = |text: &Option<String>| {
            serde_json::to_string(text.as_deref().unwrap_or_default()).unwrap_or_else(|_| "\"\"".to_owned())
        };
        let head = format!(
            "data: {{\"id\":{},\"object\":\"chat.completion.chunk\",\"created\":{},\"model\":{},\"choices\":[],\"usage\":",
            text(&identity.id),
            identity.created.unwrap_or_default(),
            text(&identity.model)
        );
        let mut out = head.into_bytes();
        out.extend_from_slice(&self.object());
        out.extend_from_slice(b"}\n\n");
        out
    }
}

/// Bytes of an answer, of which `span` is the provider's object `usage` that reports these sides, as the client is told them: without a cost
/// of the provider's own, and with ours where that is known. None where they stay as they are.
pub(super) fn retold(bytes: &[u8], span: Range<usize>, sides: Sides, told: Option<&ToldUsage>) -> Option<Vec<u8>> {
    let (before, usage, after) = (
        bytes.get(..span.start)?,
        bytes.get(span.clone())?,
        bytes.get(span.end..)?,
    );
    let has_own = may_have_own_cost(usage);
    if told.is_none() && !has_own {
        return None;
    }
    let mut out = Vec::with_capacity(bytes.len().saturating_add(COST_BYTES));
    out.extend_from_slice(before);
    if !has_own && told.is_some_and(|told| told.is_as(sides)) {
        out.extend_from_slice(usage.strip_suffix(b"}")?);
        out.push(b',');
    } else {
        let mut members: Members = serde_json::from_slice(usage).ok()?;
        members.retain(|name, _| !is_own_cost(name));
        if let Some(told) = told.filter(|told| !told.is_as(sides)) {
            for (name, tokens) in told.tokens(sides) {
                members.insert(name.to_owned(), RawValue::from_string(tokens.to_string()).ok()?);
            }
        }
        serde_json::to_writer(&mut out, &members).ok()?;
        out.pop();
        if told.is_some() && !members.is_empty() {
            out.push(b',');
        }
    }
    if let Some(told) = told {
        told.write_cost(&mut out);
    }
    out.push(b'}');
    out.extend_from_slice(after);
    Some(out)
}

/// Bytes of an answer that begin at `place`, without a cost of the provider's own in the objects `usage` at `spans`: spaces stand behind
/// each, so that all else stays in its place. None where there is none.
pub(super) fn without_costs(bytes: &[u8], place: usize, spans: &[Range<usize>]) -> Option<Vec<u8>> {
    let mut out: Option<Vec<u8>> = None;
    for span in spans {
        let within = span.start.checked_sub(place).zip(span.end.checked_sub(place));
        let usage = within.and_then(|(from, to)| Some((from..to, without_cost(bytes.get(from..to)?)?)));
        if let Some((range, without)) = usage
            && let Some(usage) = out.get_or_insert_with(|| bytes.to_vec()).get_mut(range)
        {
            usage.copy_from_slice(&without);
        }
    }
    out
}

/// The object without a cost of the provider's own, as long as it was. None where it has none.
fn without_cost(usage: &[u8]) -> Option<Vec<u8>> {
    if !may_have_own_cost(usage) {
        return None;
    }
    let mut members: Members = serde_json::from_slice(usage).ok()?;
    let all = members.len();
    members.retain(|name, _| !is_own_cost(name));
    if members.len() == all {
        return None;
    }
    let mut without = serde_json::to_vec(&members).ok()?;
    // Nothing is written longer than it can have come: values stay as they are, and names have no escapes that they can do without.
    if without.len() > usage.len() {
        return None;
    }
    without.resize(usage.len(), b' ');
    Some(without)
}

/// Whether the object can have a cost of the provider's own: a name with an escape in it may be any name.
fn may_have_own_cost(usage: &[u8]) -> bool {
    OWN_COST.find(usage).is_some() || memchr::memchr(b'\\', usage).is_some()
}

fn is_own_cost(name: &str) -> bool {
    OWN_COSTS.contains(&name)
}

/// The members of an object, with their values as they came.
type Members = BTreeMap<String, Box<RawValue>>;

/// The names of a provider's own cost; the last three are those of xAI, DeepInfra and Vercel.
const OWN_COSTS: [&str; 5] = [
    "cost",
    "cost_details",
    "cost_in_usd_ticks",
    "estimated_cost",
    "market_cost",
];
/// What stands in each of them.
static OWN_COST: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"cost"));
/// What a cost with its details commonly takes.
const COST_BYTES: usize = 192;
