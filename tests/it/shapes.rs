//! The streams of many providers, written from their documentation, through the whole gateway: what reaches the client and what is billed.

use rust_decimal::Decimal;
use tollgate::pure::tokens::{self, Encoding};

use crate::chat::{PROMPT, request};
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::reply::{Reply, UPSTREAM_SECRET};
use crate::harness::told::reported;
use crate::harness::{Gateway, Upstream};
use crate::stream_shapes::{Ending, Shape, shapes};

/// What a client that did not ask for usage must get of a stream, up to what the gateway says at its end.
fn expected(shape: &Shape) -> String {
    let masked = matches!(shape.ending, Ending::Error(_)).then(|| shape.events.len() - 1);
    let events = shape.events.iter().enumerate();
    events
        .filter(|(index, _)| shape.usage_chunk != Some(*index) && masked != Some(*index))
        .map(|(_, event)| format!("{event}{}", shape.end))
        .collect()
}

#[tokio::test]
async fn every_shape_of_stream_reaches_the_client_and_is_billed_as_it_reports() {
    for shape in shapes() {
        println!("{} with {} texts", shape.name, shape.texts.len());
        let bytes = shape.bytes();
        // Whole, and in pieces that end anywhere.
        for piece in [bytes.len(), 7] {
            let reply = bytes
                .chunks(piece)
                .fold(Reply::stream(), |reply, piece| reply.chunk(piece));
            let upstream = Upstream::always(reply.end()).await;
            let gateway = Gateway::over(&upstream).await;
            let answer = gateway.http1.post("/llm/chat/stream", request(SMALL)).await.ok();
            let (got, expected) = (reported(answer.text()), reported(&expected(shape)));
            let end = got
                .strip_prefix(&expected)
                .unwrap_or_else(|| panic!("{}", answer.text()));
            match shape.ending {
                Ending::Done => assert_eq!(end, ""),
                Ending::Finished | Ending::Open => assert_eq!(end, "data: [DONE]\n\n"),
                Ending::Error(_) => {
                    assert!(
                        end.contains("\"finish_reason\":\"error\"") && end.ends_with("data: [DONE]\n\n"),
                        "{end}"
                    );
                    assert!(!end.contains("SECRET") && !end.contains(UPSTREAM_SECRET), "{end}");
                }
            }
            let spent = gateway.spent().await;
            let delivered = shape
                .texts
                .iter()
                .map(|text| tokens::count(text, Encoding::O200k))
                .sum();
            match (shape.usage, shape.ending) {
                // What was reported before an error event is looked at elsewhere.
                (Some(_), Ending::Error(_)) => {}
                (Some((prompt, completion)), _) => assert_eq!(spent, cost(SMALL, prompt, completion)),
                (None, Ending::Error(_)) if delivered == 0 => assert_eq!(spent, Decimal::ZERO),
                (None, _) => assert_eq!(spent, cost(SMALL, PROMPT, delivered)),
            }
            gateway.check_books().await;
        }
    }
}
