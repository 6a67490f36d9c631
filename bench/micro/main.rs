//! Micro benchmarks of the parts of a call, one by name: `cargo bench --bench micro -- tap_delta`.
//!
//! Each prints nanoseconds per operation. With `--budgets` instructions are counted instead, by callgrind (valgrind must be
//! there), which do not depend on the machine's mood; it fails when one is above its budget in `budgets`, or could not be counted.
//! Without the feature `serve` it has the pure parts alone, and is built in a minute: the budgets are those of that build, and with the feature
//! they are refused (exit status 2).

#![expect(clippy::unwrap_used, reason = "a bench ends with a panic")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

#[cfg(feature = "serve")]
mod calls;
mod counted;

use std::hint::black_box;
use std::num::NonZeroU64;
use std::process::{Command, ExitCode, Stdio};

use bytes::Bytes;
use tollgate::pure::account::{AccountState, KeptState, ReserveRequest, Scope, Settlement};
use tollgate::pure::ids::RequestId;
use tollgate::pure::limits::Limits;
use tollgate::pure::money::{Credits, Markup, Pricing, ProviderPrice};
use tollgate::pure::numbers::{CallNumber, ProducerId};
use tollgate::pure::request_body::{Edit, Endpoint, FieldRules, MaximumField, RequestBody, StreamUsage};
use tollgate::pure::sse::Framer;
use tollgate::pure::tap::{Forward, StreamTap, TapOptions, WholeTap};
use tollgate::pure::time::Timestamp;
use tollgate::pure::tokens::{self, Encoding};
use tollgate::pure::usage::{CompletionTokens, PromptTokens, Usage};

/// A benchmark: its name, and what prepares one operation.
type Bench = (&'static str, fn() -> Box<dyn FnMut()>);

const BENCHES: &[Bench] = &[
    ("body_parse", body_parse),
    ("body_keys", body_keys),
    ("body_edit", body_edit),
    ("cost", cost),
    ("account_call", account_call),
    #[cfg(feature = "serve")]
    ("ledger_call", || calls::call(false)),
    #[cfg(feature = "serve")]
    ("journal_call", || calls::call(true)),
    #[cfg(feature = "serve")]
    ("journal_event", calls::event),
    ("tap_delta", || stream_tap(&[DELTA])),
    ("tap_delta_long_way", || stream_tap(&[DELTA, OTHER_DELTA])),
    ("tap_delta_padded", || stream_tap(&[PADDED])),
    ("tap_delta_cut", || {
        let (head, tail) = DELTA.split_at(100);
        stream_tap(&[head, tail])
    }),
    ("framer_delta", framer),
    ("tap_whole_answer", || whole_tap(answer())),
    ("tap_embeddings_1mb", || whole_tap(embeddings())),
    ("count_token", || count(" token")),
    ("count_words", || count(" and the quick brown fox")),
    ("count_1mb_letter", || count(megabyte("a"))),
    ("count_1mb_space", || count(megabyte(" "))),
    ("count_1mb_cjk", || count(megabyte("漢字"))),
];

/// A line a benchmark of the pure parts: its name, and its most instructions per operation, in a build without features.
const BUDGETS: &str = include_str!("budgets");

/// A usual delta event, of 200 bytes.
const DELTA: &str = concat!(
    r#"data: {"id":"chatcmpl-ABCDEFGHIJKLMNOP","object":"chat.completion.chunk","created":1700000000,"model":"gpt-4o","#,
    r#""choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]}"#,
    "\n\n"
);
/// Another, so that no stencil fits the next.
const OTHER_DELTA: &str = concat!(
    r#"data: {"id":"chatcmpl-BBCDEFGHIJKLMNOP","object":"chat.completion.chunk","created":1700000000,"model":"gpt-4o","#,
    r#""choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]}"#,
    "\n\n"
);
const PADDED: &str = concat!(
    r#"data: {"id":"chatcmpl-ABCDEFGHIJKLMNOP","object":"chat.completion.chunk","created":1700000000,"model":"gpt-4o","#,
    r#""choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}],"usage":null,"obfuscation":"aX93kdl"}"#,
    "\n\n"
);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse().ok()
    };
    let once: Option<u64> = value("--once");
    let budgets = arguments.iter().any(|argument| argument == "--budgets");
    if budgets && let Err(why) = counted::has_budgets(cfg!(feature = "serve")) {
        return wrong_usage(why);
    }
    let named: Vec<&String> = arguments
        .iter()
        .filter(|argument| BENCHES.iter().any(|(name, _)| name == argument))
        .collect();
    let mut within = true;
    for &(name, prepare) in BENCHES {
        if !named.is_empty() && !named.iter().any(|argument| *argument == name) {
            continue;
        }
        match once {
            _ if budgets => within &= check_budget(name),
            Some(count) => {
                let mut operation = prepare();
                // Stencils are cut and vocabularies loaded before anything is counted.
                (0..4).for_each(|_| operation());
                measured(&mut operation, count);
            }
            None => report(name, &mut prepare()),
        }
    }
    if within { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Tells what would be right.
fn wrong_usage(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::from(2)
}

/// Nanoseconds of the best of several rounds.
#[expect(clippy::print_stdout, reason = "a benchmark's result is its output")]
fn report(name: &str, operation: &mut dyn FnMut()) {
    let start = std::time::Instant::now();
    operation();
    let slow = start.elapsed().as_micros() > 1000;
    let (rounds, count) = if slow { (3, 1) } else { (20, 2000) };
    (0..count / 2).for_each(|_| operation());
    let mut best = u128::MAX;
    for _ in 0..rounds {
        let start = std::time::Instant::now();
        measured(operation, count);
        best = best.min(start.elapsed().as_nanos() / u128::from(count));
    }
    println!("{name:24} {best:>12} ns");
}

/// Runs one benchmark under callgrind; whether it stays within its budget.
#[expect(clippy::print_stdout, reason = "a benchmark's result is its output")]
fn check_budget(name: &str) -> bool {
    let line = BUDGETS
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let Some(budget) = line.and_then(|budget| budget.trim().parse::<u64>().ok()) else {
        println!("{name:24} has no budget");
        return false;
    };
    let count: u64 = if budget > 1_000_000 { 1 } else { 100 };
    let ran = std::env::current_exe().and_then(|this| {
        Command::new("valgrind")
            .args([
                "--tool=callgrind",
                "--toggle-collect=*measured*",
                "--callgrind-out-file=/dev/null",
            ])
            .arg(this)
            .args([name, "--once", &count.to_string()])
            .stdout(Stdio::null())
            .output()
    });
    let counted = match ran {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            counted::each(output.status.success(), &said, count)
        }
        Err(error) => Err(format!("valgrind: {error}")),
    };
    match counted {
        Ok(each) => {
            println!("{name:24} {each:>12} instructions of {budget}");
            each <= budget
        }
        Err(wrong) => {
            println!("{name:24} was not counted: {wrong}");
            false
        }
    }
}

/// What callgrind counts.
#[inline(never)]
fn measured(operation: &mut dyn FnMut(), count: u64) {
    for _ in 0..count {
        operation();
    }
}

/// Passes the pieces in turn, one an operation.
fn stream_tap(pieces: &[&'static str]) -> Box<dyn FnMut()> {
    let chunks: Vec<Bytes> = pieces
        .iter()
        .map(|piece| Bytes::from_static(piece.as_bytes()))
        .collect();
    let mut tap = StreamTap::new(TapOptions {
        drop_usage_chunk: true,
        ..TapOptions::default()
    });
    let mut next = 0;
    Box::new(move || {
        let chunk = &chunks[next];
        next = (next + 1) % chunks.len();
        if let Forward::Replace(bytes) = tap.chunk(black_box(chunk)) {
            black_box(bytes);
        }
    })
}

/// A request of 1 KB.
fn request() -> Bytes {
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(20);
    let body = format!(
        r#"{{"model":"openai/gpt-4o-mini","stream":true,"temperature":0.7,"max_tokens":256,"messages":[{{"role":"system","content":"Be brief."}},{{"role":"user","content":"{text}"}}]}}"#
    );
    Bytes::from(body)
}

fn body_parse() -> Box<dyn FnMut()> {
    let body = request();
    Box::new(move || {
        black_box(RequestBody::parse(black_box(&body).clone(), Endpoint::Chat).unwrap());
    })
}

/// A request with 10,000 small keys within a field that is not known: plain ones, ones that may fold to a known name, and ones with an escape.
fn body_keys() -> Box<dyn FnMut()> {
    let member = |number: usize| {
        let letters = [number / 26, number].map(|digit| char::from(b'a' + (digit % 26) as u8));
        let [first, second] = letters;
        match number % 3 {
            0 => format!(r#""{first}{second}":0"#),
            1 => format!(r#""{}{second}":0"#, first.to_ascii_uppercase()),
            _ => format!(r#""\u00{:02x}{second}":0"#, u32::from(first)),
        }
    };
    let members: Vec<String> = (0..10_000).map(member).collect();
    let body = Bytes::from(format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"hi"}}],"options":{{{}}}}}"#,
        members.join(",")
    ));
    Box::new(move || {
        black_box(RequestBody::parse(black_box(&body).clone(), Endpoint::Chat).unwrap());
    })
}

/// The model's name, what makes the upstream report usage, and a maximum that is lowered.
fn body_edit() -> Box<dyn FnMut()> {
    let body = RequestBody::parse(request(), Endpoint::Chat).unwrap();
    Box::new(move || {
        let edit = Edit {
            model: black_box("gpt-4o-mini"),
            maximum: MaximumField::MaxTokens,
            cap: NonZeroU64::new(100),
            rules: FieldRules::default(),
            stream_usage: StreamUsage::Ask,
        };
        black_box(body.edit(&edit));
    })
}

fn pricing() -> Pricing {
    let price = |text: &str| text.parse::<ProviderPrice>().unwrap().with_markup(Markup::default());
    Pricing {
        prompt: price("0.00000015"),
        completion: price("0.0000006"),
    }
}

const USAGE: Usage = Usage {
    prompt: PromptTokens(250),
    completion: CompletionTokens(350),
};

fn cost() -> Box<dyn FnMut()> {
    let pricing = pricing();
    Box::new(move || {
        black_box(pricing.cost(black_box(USAGE)).unwrap());
    })
}

/// A reserve and its settlement, on the account's own table.
fn account_call() -> Box<dyn FnMut()> {
    let now = Timestamp(1_800_000_000_000);
    let amount: Credits = "0.001".parse().unwrap();
    let mut account = AccountState::restored(KeptState {
        balance: Credits::MAX,
        ..KeptState::default()
    });
    let (cost, mut next) = (pricing().cost(USAGE).unwrap(), 0_u64);
    Box::new(move || {
        next += 1;
        let id = RequestId::from_bytes(u128::from(next).to_be_bytes());
        let request = ReserveRequest {
            id,
            scope: Scope::Account,
            limits: Limits {
                rpm: u64::MAX,
                tpm: u64::MAX,
                concurrency: u64::MAX,
            },
            quota: Credits::MAX,
            wanted: amount,
            at_least: amount,
            tokens: 100,
            expires: now.plus_millis(60_000),
            is_counted: false,
            is_last: true,
            spend: None,
        };
        black_box(account.reserve(black_box(&request), now).unwrap());
        let settlement = Settlement {
            hold: id,
            cost,
            tokens: 600,
            number: CallNumber::new(ProducerId(7), next),
        };
        black_box(account.settle(black_box(&settlement), now));
    })
}

fn framer() -> Box<dyn FnMut()> {
    let mut framer = Framer::new();
    Box::new(move || {
        let mut input = black_box(DELTA.as_bytes());
        while let Some(piece) = framer.take(&mut input) {
            black_box(piece);
        }
    })
}

fn whole_tap(answer: String) -> Box<dyn FnMut()> {
    Box::new(move || {
        let mut tap = WholeTap::new(Encoding::O200k);
        tap.chunk(black_box(answer.as_bytes()));
        tap.end();
        black_box(tap.reported());
    })
}

fn count(text: &'static str) -> Box<dyn FnMut()> {
    Box::new(move || {
        black_box(tokens::count(black_box(text), Encoding::O200k));
    })
}

/// A megabyte of one unit, again and again.
fn megabyte(unit: &str) -> &'static str {
    Box::leak(unit.repeat((1 << 20) / unit.len()).into_boxed_str())
}

/// A chat completion of 1.4 KB.
fn answer() -> String {
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(24);
    format!(
        r#"{{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"gpt-4o","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":9,"completion_tokens":240,"total_tokens":249}}}}"#
    )
}

fn embeddings() -> String {
    let vector = vec!["-0.012345678"; 1536].join(",");
    let rows = vec![format!(r#"{{"object":"embedding","index":0,"embedding":[{vector}]}}"#); 50].join(",");
    format!(r#"{{"object":"list","data":[{rows}],"model":"e","usage":{{"prompt_tokens":8,"total_tokens":8}}}}"#)
}
