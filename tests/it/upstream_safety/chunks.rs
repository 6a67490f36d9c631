//! A line feed without a carriage return is no line's end within a chunk's extension: a parser that takes it for one sees another body.

use rust_decimal::Decimal;

use crate::chat::{request, streaming};
use crate::harness::catalogue::{SMALL, TWIN, cost};
use crate::harness::reply::whole_chat;
use crate::harness::{Cue, Gateway, Raw, Reply, Setup, Upstream};

/// Extensions of a chunk with a bare line feed in them.
const BARE: [&str; 4] = [";a=\nb", ";\n", ";a=\"b\nc\"", ";a=b\n0"];
/// Extensions that are right.
const RIGHT: [&str; 4] = ["", ";a", ";a=b;c=\"d;e\"", " ;a = b"];

fn chunk(extension: &str, text: &str) -> String {
    format!("{:x}{extension}\r\n{text}\r\n", text.len())
}

/// A whole answer whose chunk, or whose last chunk, has this extension.
fn whole(first: &str, last: &str) -> Reply {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let body = whole_chat("Hi", Some((9, 1))).to_string();
    Reply::default().bytes(format!("{head}{}0{last}\r\n\r\n", chunk(first, &body)))
}

fn event(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
}

#[tokio::test]
async fn an_answer_with_a_bare_line_feed_in_an_extension_is_refused() {
    for extension in BARE {
        println!("{extension:?}");
        let streamed = Reply::stream()
            .bytes(chunk(extension, &event("Hi")))
            .event("[DONE]")
            .end();
        for (body, reply) in [(request(SMALL), whole(extension, "")), (streaming(SMALL), streamed)] {
            let main = Upstream::always(reply).await;
            let spare = Upstream::always(Reply::chat("Hi", 9, 1)).await;
            let gateway = Setup::over(&main).spare(&spare).start().await;
            let answer = gateway.http1.post("/llm/chat", body).await;
            answer.error(502, "upstream_error");
            assert_eq!(gateway.spent().await, Decimal::ZERO);
            gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
            assert_eq!(gateway.spent().await, cost(TWIN, 9, 1), "the next target answers");
            gateway.check_books().await;
        }
    }
}

/// Where the body begins does not depend on how its head ends, nor on what stands before it.
#[tokio::test]
async fn a_bare_line_feed_is_refused_after_a_head_in_line_feeds_and_after_empty_lines() {
    let body = whole_chat("Hi", Some((9, 1))).to_string();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    for head in [head.replace("\r\n", "\n"), format!("\r\n\r\n{head}")] {
        for (extension, is_taken) in [(";a=b", true), (";a=\nb", false)] {
            println!("{head:?} {extension:?}");
            let main =
                Upstream::always(Reply::default().bytes(format!("{head}{}0\r\n\r\n", chunk(extension, &body)))).await;
            let gateway = Gateway::over(&main).await;
            let answer = gateway.http1.post("/llm/chat", request(SMALL)).await;
            let billed = if is_taken {
                answer.ok();
                cost(SMALL, 9, 1)
            } else {
                answer.error(502, "upstream_error");
                Decimal::ZERO
            };
            assert_eq!(gateway.spent().await, billed);
            gateway.check_books().await;
        }
    }
}

/// The stream has begun, so it ends with its error event.
#[tokio::test]
async fn a_stream_with_a_bare_line_feed_in_an_extension_ends_with_its_error_event() {
    for extension in BARE {
        println!("{extension:?}");
        let cue = Cue::new();
        let begun = Reply::stream().role().text("Hello").wait(&cue);
        let main = Upstream::always(begun.bytes(chunk(extension, &event(" world"))).event("[DONE]").end()).await;
        let gateway = Gateway::over(&main).await;
        let mut events = gateway.http1.stream("/llm/chat/stream", request(SMALL)).await.ok();
        for _ in 0..2 {
            events.next().await.unwrap();
        }
        cue.give();
        let events = events.rest().await;
        let [.., error, done] = events.as_slice() else {
            panic!("{events:?}")
        };
        assert!(error.contains("\"finish_reason\":\"error\""), "{events:?}");
        assert_eq!(done, "[DONE]");
        assert!(!events.iter().any(|event| event.contains("world")), "{events:?}");
        gateway.check_books().await;
    }
}

/// The last chunk's extension comes after the whole body. What has reached the client stays; the connection is not used again.
#[tokio::test]
async fn a_last_chunk_with_a_bare_line_feed_ends_the_connection() {
    let main = Upstream::always(whole("", ";a=\nb")).await;
    let gateway = Gateway::over(&main).await;
    for _ in 0..2 {
        gateway.http1.post("/llm/chat", request(SMALL)).await;
    }
    assert_eq!(main.connections(), 2);
    gateway.check_books().await;
}

#[tokio::test]
async fn an_answer_with_a_right_extension_passes() {
    for extension in RIGHT {
        println!("{extension:?}");
        let main = Upstream::always(whole(extension, ";last")).await;
        let gateway = Gateway::over(&main).await;
        gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
        assert_eq!(gateway.spent().await, cost(SMALL, 9, 1));
    }
}

#[tokio::test]
async fn a_request_with_a_bare_line_feed_in_an_extension_is_refused() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    let (key, body) = (&gateway.key, request(SMALL));
    let head = format!(
        "POST /api/v1/llm/chat HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    let (before, after) = body.split_at(10);
    for extension in BARE {
        println!("{extension:?}");
        for text in [
            format!("{}0\r\n\r\n", chunk(extension, &body)),
            format!("{}{}0\r\n\r\n", chunk("", before), chunk(extension, after)),
            format!("{}0{extension}\r\n\r\n", chunk("", &body)),
        ] {
            let mut raw = Raw::connect(gateway.address).await;
            raw.send(format!("{head}{text}")).await;
            raw.answer().await.error(400, "invalid_request_error");
        }
    }
    gateway.check_untouched(&upstream).await;
    for extension in RIGHT {
        let mut raw = Raw::connect(gateway.address).await;
        raw.send(format!("{head}{}0;last\r\n\r\n", chunk(extension, &body)))
            .await;
        raw.answer().await.ok();
    }
}
