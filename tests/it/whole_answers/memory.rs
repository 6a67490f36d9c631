//! The memory of whole answers that are gathered at once, measured on the real binary.

use serde_json::{Value, json};

use crate::chat::request;
use crate::harness::catalogue::SMALL;
use crate::harness::process::Process;
use crate::harness::reply::whole_chat;
use crate::harness::{Cue, Raw, Reply, Upstream, eventually};

/// What an answer may take that passes, in KiB: a provider's connection reads into 64 KiB, which are passed on and written from copies.
const PASSING_KIB_MAX: u64 = 400;

/// Calls that wait for their answers, which come at a cue but for their last bytes; those come at another.
struct Waiting {
    clients: Vec<Raw>,
    /// Which of them have got something.
    have_heard: Vec<bool>,
    body: String,
    begin: Cue,
    end: Cue,
    process: Process,
    /// The memory that the process takes with the calls, in KiB.
    before_kib: u64,
    _upstream: Upstream,
}

impl Waiting {
    /// So many calls with answers of so many bytes.
    async fn start(calls: usize, bytes: usize, more: Value) -> Waiting {
        let body = whole_chat(&"lorem ipsum ".repeat(bytes / 12), Some((9, 9))).to_string();
        let (begin, end) = (Cue::new(), Cue::new());
        let (most, last) = body.split_at(body.len() - 10);
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
        let begun = Reply::default().wait(&begin).bytes(head).chunk(most);
        let upstream = Upstream::always(begun.wait(&end).chunk(last).end()).await;
        let limits = json!({ "rpm": 1_000_000, "tpm": 1_000_000_000, "concurrency": 10_000 });
        let mut conf = json!({ "tiers": { "enterprise": limits }, "connections_per_address_max": 10_000 });
        for (key, value) in more.as_object().unwrap() {
            conf[key] = value.clone();
        }
        // Longer than the test: here the bytes are the bound.
        let process = Process::start_with(&upstream, conf, "\"whole_gather_ms\": 600000").await;
        let (key, asked) = (&process.key, request(SMALL));
        let mut clients = Vec::new();
        for _ in 0..calls {
            let mut client = Raw::connect(process.address).await;
            let head = "POST /api/v1/llm/chat HTTP/1.1\r\nhost: x\r\nauthorization: Bearer";
            let length = asked.len();
            client
                .send(format!("{head} {key}\r\ncontent-length: {length}\r\n\r\n{asked}"))
                .await;
            clients.push(client);
        }
        upstream.asked(calls).await;
        Waiting {
            clients,
            have_heard: vec![false; calls],
            body,
            begin,
            end,
            before_kib: process.resident_kb(),
            process,
            _upstream: upstream,
        }
    }

    /// How much more memory the process takes now, in KiB.
    fn growth_kib(&self) -> u64 {
        self.process.resident_kb().saturating_sub(self.before_kib)
    }

    /// How many clients have got something.
    fn passing(&mut self) -> usize {
        for (client, has_heard) in self.clients.iter_mut().zip(&mut self.have_heard) {
            *has_heard = *has_heard || client.is_closed();
        }
        self.have_heard.iter().filter(|has_heard| **has_heard).count()
    }

    /// Lets the answers end, and reads them: how many came with their length, and the most growth meanwhile.
    async fn finish(&mut self) -> (usize, u64) {
        self.end.give_all();
        let (mut whole, mut most_kib) = (0, self.growth_kib());
        for client in &mut self.clients {
            let answer = client.answer().await.ok();
            assert!(crate::harness::told::without_cost(answer.text()) == self.body);
            whole += usize::from(answer.header("content-length") == answer.body.len().to_string());
            most_kib = most_kib.max(self.process.resident_kb().saturating_sub(self.before_kib));
        }
        (whole, most_kib)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_whole_answers_of_100_kb_are_gathered_in_bounded_memory() {
    const CALLS: usize = 1_000;
    const BYTES: usize = 100_000;
    let mut waiting = Waiting::start(CALLS, BYTES, json!({})).await;
    let all_kib = (CALLS * BYTES / 1024) as u64;
    waiting.begin.give_all();
    let gathered_kib = eventually("every answer is gathered", async || {
        Some(waiting.growth_kib()).filter(|growth| *growth > all_kib * 19 / 20)
    });
    let gathered_kib = gathered_kib.await;
    assert_eq!(waiting.passing(), 0);
    let (whole, most_kib) = waiting.finish().await;
    let before_kib = waiting.before_kib;
    println!("{before_kib} KiB with the calls, {gathered_kib} more with their answers, {most_kib} at most");
    assert_eq!(whole, CALLS);
    assert!(most_kib < all_kib * 3 / 2, "{most_kib} KiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bound_of_all_gathered_answers_holds_under_load() {
    const CALLS: usize = 100;
    const BYTES: usize = 1_000_000;
    const BOUND: usize = 8 << 20;
    let more = json!({ "gathered_bytes_max": BOUND });
    let mut waiting = Waiting::start(CALLS, BYTES, more).await;
    waiting.begin.give_all();
    let room = BOUND / BYTES;
    eventually("the others pass", async || {
        (waiting.passing() >= CALLS - room).then_some(())
    })
    .await;
    let (whole, most_kib) = waiting.finish().await;
    println!("{whole} of {CALLS} were gathered; {most_kib} KiB more at most");
    assert!((1..=room).contains(&whole), "{whole} were gathered");
    let bound_kib = (BOUND / 1024) as u64;
    assert!(most_kib < bound_kib + CALLS as u64 * PASSING_KIB_MAX, "{most_kib} KiB");
}
