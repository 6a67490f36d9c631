//! Providers that lie, die and ignore what they are told, and clients that leave: any mix of them takes no balance below zero, charges no
//! call more than could be held for it, and none less than the text that nobody reported.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::harness::catalogue::{SMALL, cost};
use crate::harness::reply::whole_chat;
use crate::harness::{Gateway, Reply, Setup, Upstream};

/// What a provider does next.
#[derive(Clone, Debug)]
enum Act {
    /// Sends so many words, each in an event of its own; in a whole answer they are its text.
    Text(usize),
    /// Reports this usage.
    Report(Value),
    Finish,
    Done,
    /// Closes the connection within an event.
    Die,
}

#[derive(Clone, Debug)]
struct Case {
    streamed: bool,
    max: Option<u64>,
    choices: u64,
    acts: Vec<Act>,
    /// The client leaves after so many events.
    leaves: Option<usize>,
    /// What is paid in before, in 10^-7 credit.
    credit: u64,
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

fn case() -> impl Strategy<Value = Case> {
    let act = prop_oneof![
        5 => (0_usize..60).prop_map(Act::Text),
        4 => usage().prop_map(Act::Report),
        2 => Just(Act::Finish),
        2 => Just(Act::Done),
        1 => Just(Act::Die),
    ];
    (
        any::<bool>(),
        prop::option::of(1_u64..60),
        1_u64..3,
        prop::collection::vec(act, 0..7),
        prop::option::weighted(0.2, 0_usize..40),
        0_u64..3_000,
    )
        .prop_map(|(streamed, max, choices, acts, leaves, credit)| Case {
            streamed,
            max,
            choices,
            acts,
            leaves,
            credit,
        })
}

impl Case {
    fn body(&self) -> String {
        let mut body =
            json!({ "model": SMALL, "messages": [{ "role": "user", "content": "Hello" }], "n": self.choices });
        if let Some(max) = self.max {
            body["max_completion_tokens"] = max.into();
        }
        body.to_string()
    }

    fn reply(&self) -> Reply {
        if !self.streamed {
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
            return Reply::json(&answer);
        }
        let mut reply = Reply::stream();
        for act in &self.acts {
            reply = match act {
                Act::Text(words) => (0..*words).fold(reply, |reply, _| reply.text(" word")),
                Act::Report(usage) => reply.event(&json!({ "choices": [], "usage": usage }).to_string()),
                Act::Finish => reply.finish(),
                Act::Done => return reply.done(),
                Act::Die => return reply.chunk("data: {\"choices\":[{\"delta\":{\"content\":\" wo").close(),
            };
        }
        reply.end()
    }

    /// Whether no report says what the last text was.
    fn is_unreported(&self) -> bool {
        let last_text = self.acts.iter().rposition(|act| matches!(act, Act::Text(1..)));
        let last_report = self.acts.iter().rposition(|act| matches!(act, Act::Report(_)));
        match (last_text, last_report) {
            (Some(_), None) => true,
            (Some(text), Some(report)) => self.streamed && report < text,
            (None, _) => false,
        }
    }

    /// Makes the call; the words that its client read.
    async fn run(&self, gateway: &Gateway) -> u64 {
        let words = |text: &str| text.matches(" word").count() as u64;
        if !self.streamed {
            let answer = gateway.http1.post("/llm/chat", self.body()).await;
            return if answer.status == 200 { words(answer.text()) } else { 0 };
        }
        let mut events = gateway.http1.stream("/llm/chat/stream", self.body()).await;
        if events.status != 200 {
            return 0;
        }
        let mut read = 0;
        for _ in 0..self.leaves.unwrap_or(usize::MAX) {
            match events.next().await {
                Some(event) => read += words(&event),
                None => break,
            }
        }
        read
    }
}

/// Checks that nothing of what must hold is broken by the case; the gateway goes on to the next.
async fn check(gateway: &mut Gateway, says: &Mutex<Reply>, number: usize, case: &Case) {
    *says.lock().unwrap() = case.reply();
    if case.credit > 0 {
        let credit = Decimal::new(case.credit as i64, 7);
        gateway.pay_in(&credit.to_string(), &format!("case {number}")).await;
    }
    let before = gateway.settled_balance().await;
    let read = case.run(gateway).await;
    let after = gateway.settled_balance().await;
    let charge = before - after;
    assert!(after >= Decimal::ZERO, "{after}: {case:?}");
    assert!(charge >= Decimal::ZERO, "{charge}: {case:?}");
    let each = case.max.unwrap_or(4_096);
    let bound = cost(SMALL, case.body().len() as u64 + 256 + 16, each * case.choices);
    assert!(charge <= bound.round_dp(12), "{charge} above {bound}: {case:?}");
    if case.is_unreported() {
        let admitted = case.max.map_or(read, |max| read.min(max * case.choices));
        // Without a maximum of the client's, the credit was the limit.
        let least = cost(SMALL, 0, admitted).min(before - cost(SMALL, 400, 2));
        assert!(
            charge >= least.round_dp(12),
            "{charge} below {least} for {read} words: {case:?}"
        );
    }
}

#[tokio::test]
async fn no_lie_of_a_provider_overdraws_a_balance_or_charges_beyond_what_was_held() {
    let says = Arc::new(Mutex::new(Reply::status(500)));
    let upstream = Upstream::by({
        let says = Arc::clone(&says);
        move |_, _| says.lock().unwrap().clone()
    })
    .await;
    let setup = Setup::over(&upstream).credit("0.0005").conf(|conf| {
        conf["tiers"]["pro"] = json!({ "rpm": 1_000_000, "tpm": 1_000_000_000, "concurrency": 1_000 });
    });
    let mut gateway = setup.start().await;
    let cases = std::env::var("LIARS_CASES").map_or(500, |cases| cases.parse().unwrap());
    // The same cases each time: which they are is in the code.
    let mut runner = TestRunner::deterministic();
    for number in 0..cases {
        let case = case().new_tree(&mut runner).unwrap().current();
        check(&mut gateway, &says, number, &case).await;
        gateway.clock.advance(20_000);
    }
    gateway.check_books().await;
}
