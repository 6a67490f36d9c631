//! Micro benchmarks of the pure parts, one by name: `cargo bench --bench micro -- tap_delta`.
//!
//! Each prints nanoseconds per operation. Under callgrind (`valgrind --tool=callgrind --toggle-collect='*measured*'`,
//! with `--once N` operations) instructions are counted instead, which do not depend on the machine's mood.

use std::hint::black_box;

use bytes::Bytes;
use tollgate::pure::sse::Framer;
use tollgate::pure::tap::{Forward, StreamTap, TapOptions, WholeTap};
use tollgate::pure::tokens::{self, Encoding};

/// A benchmark: its name, and what prepares one operation.
type Bench = (&'static str, fn() -> Box<dyn FnMut()>);

const BENCHES: [Bench; 9] = [
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
];

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

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let once = arguments
        .iter()
        .position(|argument| argument == "--once")
        .and_then(|at| arguments.get(at + 1));
    let once: Option<u64> = once.and_then(|count| count.parse().ok());
    for (name, prepare) in BENCHES {
        if !arguments.is_empty() && !arguments.iter().any(|argument| argument == name) {
            continue;
        }
        let mut operation = prepare();
        (0..1000).for_each(|_| operation());
        match once {
            Some(count) => measured(&mut operation, count),
            None => report(name, &mut operation),
        }
    }
}

#[expect(clippy::print_stdout, reason = "a benchmark's result is its output")]
fn report(name: &str, operation: &mut dyn FnMut()) {
    let mut best = u128::MAX;
    for _ in 0..20 {
        let start = std::time::Instant::now();
        measured(operation, 2000);
        best = best.min(start.elapsed().as_nanos() / 2000);
    }
    println!("{name:24} {best:>9} ns");
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
