//! Admitted calls on a ledger of their own, for the tests of what becomes of them.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::config::{Config, SuspendedStreams};
use crate::gateway::access::body_memory::BodyMemory;
use crate::gateway::admission::Admission;
use crate::gateway::billing::closed_call::{ClosedCall, Ending};
use crate::gateway::billing::meter::Meter;
use crate::gateway::billing::passed::Passed;
use crate::gateway::billing::settle::Settler;
use crate::gateway::context::{Answer, Attempt, Call, Ctx, Stage};
use crate::gateway::shutdown::Lifecycle;
use crate::gateway::snapshot::Snapshot;
use crate::gateway::upstream::circuit_breaker::Admitted;
use crate::gateway::upstream::providers::Upstreams;
use crate::gateway::upstream::targets::Candidate;
use crate::ledger::journal::Entry;
use crate::ledger::tests::rig::{Rig, block_on, receipts_of, request, request_id};
use crate::ledger::{Caller, Figures};
use crate::net::dns::Unreached;
use crate::pure::bill::Tariff;
use crate::pure::charge::Ceiling;
use crate::pure::estimate::Bound;
use crate::pure::ids::Tier;
use crate::pure::money::Credits;
use crate::pure::policy::{Provenance, permit};
use crate::pure::receipt::Receipt;
use crate::pure::request_body::{Endpoint, RequestBody};
use crate::pure::tap::Framing;
use crate::pure::tokens::Encoding;
use crate::pure::usage::{CompletionTokens, PromptTokens};
use crate::telemetry::Telemetry;
use crate::telemetry::counters::TargetFigures;
use crate::telemetry::recorder::Recorder;

/// What a prompt token costs is a thousandth of a credit, a completion token two; `openai/tiers` is cheaper by the tier `flex`,
/// `openai/dear-tiers` twice as dear by `priority`, what `usage` says that `openai/sum` and `openai/sum-tiers` cost is billed (their provider
/// adds 50 tokens to a prompt), and `openai/kinds` is cheaper for cached tokens and twice as dear for prompts above 50 tokens.
fn catalogue() -> Value {
    let model = |id: &str, provider: &str, prices: Value| {
        json!({
            "id": id, "name": id, "provider": "A", "context_length": 100_000, "max_completion_tokens": 1_000,
            "modality": "text->text", "pricing": prices, "tier": "free", "tokens_per_second": 10, "purposes": ["chat"],
            "targets": [{ "provider": provider, "model": "theirs" }],
        })
    };
    let prices = json!({ "prompt": "0.001", "completion": "0.002" });
    let flex = json!({ "flex": { "prompt": "0.0005", "completion": "0.001" } });
    let by_tier = json!({ "prompt": "0.001", "completion": "0.002", "tiers": flex });
    let priority = json!({ "priority": { "prompt": "0.002", "completion": "0.004" } });
    let by_dear_tier = json!({ "prompt": "0.001", "completion": "0.002", "tiers": priority });
    let long = json!([{ "min_prompt_tokens": 50, "prompt": "0.002", "completion": "0.004" }]);
    let by_kind = json!({ "prompt": "0.001", "completion": "0.002", "input_cache_read": "0.0001", "overrides": long });
    json!({
        "models": [
            model("openai/m", "main", prices.clone()),
            model("openai/tiers", "main", by_tier.clone()),
            model("openai/dear-tiers", "main", by_dear_tier),
            model("openai/kinds", "main", by_kind),
            model("openai/sum", "reporting", prices),
            model("openai/sum-tiers", "reporting", by_tier),
            model("openai/free", "main", json!({ "prompt": "0", "completion": "0" })),
        ],
        "purposes": { "chat": "openai/m" },
    })
}

/// A gateway's books with one account, and what its calls share.
pub(in crate::gateway::billing) struct Books {
    pub(in crate::gateway::billing) rig: Rig,
    pub(in crate::gateway::billing) caller: Caller,
    pub(in crate::gateway::billing) telemetry: Arc<Telemetry>,
    pub(in crate::gateway::billing) lifecycle: Arc<Lifecycle>,
    pub(in crate::gateway::billing) settler: Arc<Settler>,
    snapshot: Arc<Snapshot>,
    _folder: tempfile::TempDir,
}

/// What a call asks for, and what is admitted for it.
#[derive(Clone, Copy)]
pub(in crate::gateway::billing) struct Asked<'a> {
    pub(in crate::gateway::billing) model: &'a str,
    /// Of the request beside its model and its message.
    pub(in crate::gateway::billing) more: &'a str,
    /// A text, or a JSON array of parts.
    pub(in crate::gateway::billing) message: &'a str,
    pub(in crate::gateway::billing) ceiling: Ceiling,
    pub(in crate::gateway::billing) held: &'a str,
    pub(in crate::gateway::billing) on_stop: SuspendedStreams,
}

/// A stream of at most ten tokens, which its client said; of the prompt it may be a hundred.
pub(in crate::gateway::billing) const STREAM: Asked<'_> = Asked {
    model: "openai/m",
    more: r#""stream":true,"stream_options":{"include_usage":true}"#,
    message: "one two three",
    ceiling: Ceiling {
        prompt: PromptTokens(100),
        completion: CompletionTokens(10),
        bound: Bound::Client,
    },
    held: "1",
    on_stop: SuspendedStreams::End,
};

/// The same where the catalogue says it.
pub(in crate::gateway::billing) const UNBOUNDED: Asked<'_> = Asked {
    ceiling: Ceiling {
        bound: Bound::Model,
        ..STREAM.ceiling
    },
    ..STREAM
};

/// A whole answer.
pub(in crate::gateway::billing) const WHOLE: Asked<'_> = Asked {
    more: r#""stream":false"#,
    ..STREAM
};

impl Books {
    /// Books of an account with this balance.
    pub(in crate::gateway::billing) fn with(balance: &str) -> Books {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("catalogue.yaml");
        std::fs::write(&file, catalogue().to_string()).unwrap();
        let conf = json!({
            "markup": "1", "catalogue": file.to_str(), "data_dir": folder.path().to_str(),
            "providers": {
                "main": { "base_url": "http://127.0.0.1:1/v1", "api_key_env": "SET" },
                "reporting": { "base_url": "http://127.0.0.1:2/v1", "api_key_env": "SET", "cost_from": "usage",
                    "prompt_overhead_tokens": 50 },
            },
        });
        let environment = |name: &str| (name == "SET").then(|| "secret".to_owned());
        let config = Config::parse(Path::new("t.yaml"), &conf.to_string(), &environment).unwrap();
        let rig = Rig::embedded();
        let lifecycle = Lifecycle::new();
        Books {
            caller: rig.caller(balance),
            telemetry: Arc::default(),
            settler: Settler::new(rig.clock.clone(), true, Arc::clone(&lifecycle)),
            lifecycle,
            snapshot: Arc::new(Snapshot::load(config, &Upstreams::default()).unwrap()),
            rig,
            _folder: folder,
        }
    }

    /// The only target of a model.
    pub(in crate::gateway::billing) fn target(&self, model: &str) -> (Candidate, Admitted) {
        let candidate = self.snapshot.next_target(model, &[], || None, &self.rig.clock);
        candidate.unwrap()
    }

    /// A call whose answer has begun.
    pub(in crate::gateway::billing) fn call(&self, n: u64, asked: &Asked<'_>) -> Ctx {
        let parts = serde_json::from_str(asked.message).ok().filter(Value::is_array);
        let message = json!([{ "role": "user", "content": parts.unwrap_or_else(|| json!(asked.message)) }]);
        let body = format!(r#"{{"model":"{}","messages":{message},{}}}"#, asked.model, asked.more);
        let body = Arc::new(RequestBody::parse(Bytes::from(body), Endpoint::Chat).unwrap());
        let id = request_id(n);
        let mut ctx = Ctx::new(id, Arc::clone(&self.snapshot), &self.telemetry, self.lifecycle.enter());
        let model = self.snapshot.catalogue.model(asked.model).unwrap();
        let wanted = request(n, asked.held);
        let held = self.caller.reserve_until(&wanted, Entry::none(), asked.on_stop);
        let (target, admitted) = self.target(asked.model);
        let mut recorder = Recorder::new(&self.telemetry, id, crate::clock::monotonic());
        recorder.model(Arc::clone(&model.id));
        recorder.attempt(&target.upstream.name, &target.model, 1);
        let admission = Admission {
            permit: permit(model, Tier::Pro, &[], Provenance::default()).unwrap(),
            caller: self.caller.clone(),
            hold: block_on(held).unwrap().unwrap(),
            quota: Credits::MAX,
            cap: None,
            ceiling: asked.ceiling,
            counted_prompt: None,
            recorder,
            priced: None,
            details: None,
        };
        let meter = Meter::new(
            &body,
            (Encoding::O200k, Default::default()),
            Framing::Framed,
            asked.ceiling,
        );
        ctx.stage = Stage::Admitted(Box::new(Call {
            admission: Some(Box::new(admission)),
            body,
            body_owner: Arc::<BodyMemory>::default().owner(&self.caller.key.id, None),
            settler: Arc::clone(&self.settler),
            client_has_left: false,
            read_on: None,
            is_drained: false,
            unseen_since: None,
            early_end: None,
            failed_within: false,
            extension: None,
            capture: None,
            tried: Vec::new(),
            attempt: Some(Attempt {
                candidate: target,
                admitted,
                body: Bytes::new(),
                is_ipv6: false,
                unreached: Unreached::default(),
                asked_at: None,
                is_repeated: false,
            }),
            failure: None,
            verdict: None,
            answer: Answer::Metered(Box::new(meter)),
        }));
        ctx
    }

    /// What is left of the account's credit, and what is held of it.
    pub(in crate::gateway::billing) fn figures(&self) -> (String, String) {
        let Figures { balance, held, .. } = self.rig.figures(&self.caller);
        (balance.to_string(), held.to_string())
    }

    /// The receipts of its calls, newest first.
    pub(in crate::gateway::billing) fn receipts(&self) -> Vec<Receipt> {
        receipts_of(&self.rig.ledger, &self.caller.account.id)
    }

    /// What was counted of all calls that are over.
    pub(in crate::gateway::billing) fn counted(&self) -> TargetFigures {
        let mut targets = self.telemetry.figures().targets.into_iter();
        targets.find(|(name, _)| !name.provider.is_empty()).unwrap().1
    }
}

/// The admitted call.
pub(in crate::gateway::billing) fn call_of(ctx: &mut Ctx) -> &mut Call {
    ctx.call().unwrap()
}

/// A piece of the upstream's answer passes: what its client gets of it.
pub(in crate::gateway::billing) fn pass(ctx: &mut Ctx, piece: &str, ends: bool) -> (Passed, String) {
    let Call {
        answer: Answer::Metered(meter),
        admission: Some(admission),
        body: request,
        attempt,
        ..
    } = call_of(ctx)
    else {
        panic!("no answer has begun");
    };
    let mut body = Some(Bytes::copy_from_slice(piece.as_bytes()));
    let target = attempt.as_ref().map(|attempt| &attempt.candidate);
    let passed = meter.pass(&mut body, ends, || admission.tariff(request, target));
    (passed, text(body.as_ref()))
}

pub(in crate::gateway::billing) fn text(body: Option<&Bytes>) -> String {
    String::from_utf8(body.map(|body| body.to_vec()).unwrap_or_default()).unwrap()
}

/// So many thousandths of a credit, as an amount is written.
pub(in crate::gateway::billing) fn thousandths(count: u64) -> String {
    let amount: Credits = format!("{}.{:03}", count / 1_000, count % 1_000).parse().unwrap();
    amount.to_string()
}

/// An event of a stream with this text.
pub(in crate::gateway::billing) fn event(text: &str) -> String {
    let choice = json!({ "index": 0, "delta": { "content": text } });
    format!("data: {}\n\n", json!({ "id": "theirs-1", "choices": [choice] }))
}

/// The last events of a stream that reports so much.
pub(in crate::gateway::billing) fn reported(prompt: u64, completion: u64, more: Value) -> String {
    let mut last = json!({
        "id": "theirs-1", "choices": [],
        "usage": { "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion },
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        match key.as_str() {
            "cost" | "prompt_tokens_details" => last["usage"][key] = value.clone(),
            _ => last[key] = value.clone(),
        }
    }
    let stop = json!({ "id": "theirs-1", "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
    format!("data: {stop}\n\ndata: {last}\n\ndata: [DONE]\n\n")
}

/// A whole answer with this text; `usage` is null where nothing is reported.
pub(in crate::gateway::billing) fn whole(text: &str, usage: &Value) -> String {
    let choice = json!({ "index": 0, "message": { "role": "assistant", "content": text }, "finish_reason": "stop" });
    let mut answer = json!({ "id": "theirs-1", "choices": [choice] });
    if !usage.is_null() {
        answer["usage"] = usage.clone();
    }
    answer.to_string()
}

/// The call as its settlement gets it.
pub(in crate::gateway::billing) fn closed(ctx: &mut Ctx, ending: Ending) -> ClosedCall {
    let call = call_of(ctx);
    let answer = std::mem::replace(&mut call.answer, Answer::None);
    ClosedCall {
        admission: call.admission.take().unwrap(),
        body: Arc::clone(&call.body),
        meter: match answer {
            Answer::Metered(meter) => Some(meter),
            Answer::None | Answer::Refusal(_) => None,
        },
        ending,
        target: call.attempt.take().map(|attempt| attempt.candidate),
    }
}

/// A tariff of the call.
pub(in crate::gateway::billing) fn tariff(call: &Call) -> Tariff<'_> {
    let target = call.attempt.as_ref().map(|attempt| &attempt.candidate);
    call.admission.as_ref().unwrap().tariff(&call.body, target)
}
