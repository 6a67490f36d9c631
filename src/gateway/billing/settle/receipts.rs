//! What a receipt says of figures that are not the ones that were billed.

use bytes::Bytes;
use serde_json::json;

use super::debits::{COUNTED, settle, settled, usage};
use super::*;
use crate::gateway::billing::meter::Meter;
use crate::gateway::billing::tests::rig::{Asked, Books, STREAM, WHOLE, call_of, event, pass, reported, whole};
use crate::gateway::context::{Answer, Ctx};
use crate::pure::receipt::BilledBy;
use crate::pure::request_body::{Endpoint, RequestBody};
use crate::pure::tap::Framing;
use crate::pure::tokens::Encoding;

fn meter(ctx: &mut Ctx) -> &mut Meter {
    match &mut call_of(ctx).answer {
        Answer::Metered(meter) => meter,
        Answer::None | Answer::Refusal(_) => panic!("no answer has begun"),
    }
}

#[test]
fn a_report_that_is_behind_stands_in_the_receipt_as_it_came() {
    let books = Books::with("10");
    let behind = format!("data: {}\n\n", json!({ "choices": [], "usage": usage(9, 1) }));
    settled(&books, &STREAM, &[event(COUNTED), behind], Ending::UpstreamFailed);
    let billed = books.receipts().remove(0).billed;
    assert_eq!((billed.prompt_tokens, billed.completion_tokens), (9, 3));
    let call = &billed.call;
    assert_eq!(
        (call.reported_prompt_tokens, call.reported_completion_tokens),
        (Some(9), Some(1))
    );
    assert_eq!(call.counted_completion_tokens, Some(3));
    assert_eq!(billed.billed_by(), Some(BilledBy::Count));
}

/// The larger of both is billed: the receipt has both.
#[test]
fn a_whole_answer_that_broke_off_has_its_count_beside_its_report() {
    let books = Books::with("10");
    let mut ctx = books.call(1, &WHOLE);
    let text = format!(
        r#"{{"choices":[{{"index":0,"message":{{"content":"{COUNTED}"}}}}],"usage":{}"#,
        usage(9, 1)
    );
    let (first, rest) = text.split_at(1);
    pass(&mut ctx, first, false);
    meter(&mut ctx).stop_gathering();
    settle(&books, &mut ctx, &[rest.to_owned()], Ending::UpstreamFailed);
    let billed = books.receipts().remove(0).billed;
    let call = &billed.call;
    assert_eq!((billed.prompt_tokens, billed.completion_tokens), (9, 3));
    assert_eq!(
        (call.reported_completion_tokens, call.counted_completion_tokens),
        (Some(1), Some(3))
    );
    assert_eq!(billed.billed_by(), Some(BilledBy::Count));
}

/// The report has come: the time that its last byte took is no work. So it is of an answer whose client left while it was gathered.
#[test]
fn no_time_is_billed_behind_a_report_that_follows_all_of_the_text() {
    let text = format!(
        r#"{{"choices":[{{"index":0,"message":{{"content":"{COUNTED}"}}}}],"usage":{}"#,
        usage(9, 4)
    );
    for passes in [true, false] {
        let books = Books::with("10");
        let mut ctx = books.call(1, &WHOLE);
        pass(&mut ctx, "{", false);
        match passes {
            true => meter(&mut ctx).stop_gathering(),
            false => meter(&mut ctx).read_on(),
        }
        let elapsed_ms = 700;
        settle(
            &books,
            &mut ctx,
            &[text.split_at(1).1.to_owned()],
            Ending::DrainEnded { elapsed_ms },
        );
        let billed = books.receipts().remove(0).billed;
        assert_eq!((billed.prompt_tokens, billed.completion_tokens), (9, 4), "{passes}");
        assert_eq!(billed.billed_by(), Some(BilledBy::Report));
    }
}

/// All of it has come, though its upstream does not end it, or its report behind all of its text. A report before some of the text may be of
/// more.
#[test]
fn what_is_known_of_a_whole_answer_that_is_read_on_is_billed_though_it_has_no_end() {
    let answer = whole("a b c", &usage(9, 4));
    let content = format!(r#""choices":[{{"index":0,"message":{{"content":"{COUNTED}"#);
    let behind = format!(r#"{{{content}"}}}}],"usage":{}"#, usage(9, 4));
    let before = format!(r#"{{"usage":{},{content}"#, usage(9, 4));
    let ended = Ending::DrainEnded { elapsed_ms: 700 };
    for (came, is_read_on, ending, completion) in [
        (&answer, true, ended, 4),
        (&answer, true, Ending::ClientGone, 4),
        (&behind, true, Ending::ClientGone, 4),
        // Ten tokens a second.
        (&before, true, ended, 7),
        (&before, true, Ending::ClientGone, 0),
        (&behind, false, ended, 7),
        (&behind, false, Ending::ClientGone, 0),
        (&answer, false, Ending::ClientGone, 0),
    ] {
        let books = Books::with("10");
        let mut ctx = books.call(1, &WHOLE);
        if is_read_on {
            meter(&mut ctx).read_on();
        }
        settle(&books, &mut ctx, std::slice::from_ref(came), ending);
        let billed = books.receipts().remove(0).billed;
        let tokens = (billed.prompt_tokens, billed.completion_tokens);
        assert_eq!(tokens, (9, completion), "{came}, read on: {is_read_on}, {ending:?}");
    }
    // What came in its place is no answer.
    let error = json!({ "error": { "code": 500, "message": "no" }, "usage": usage(9, 4) }).to_string();
    let books = Books::with("10");
    let mut ctx = books.call(1, &WHOLE);
    meter(&mut ctx).read_on();
    settle(&books, &mut ctx, &[error], ended);
    assert!(books.receipts().is_empty());
}

/// Vectors have no text, so nothing of them is counted.
#[test]
fn vectors_have_no_count_beside_their_report() {
    let books = Books::with("10");
    let mut ctx = books.call(1, &WHOLE);
    let body = json!({ "model": "openai/m", "input": "Hello" }).to_string();
    let body = Arc::new(RequestBody::parse(Bytes::from(body), Endpoint::Embeddings).unwrap());
    let encoding = (Encoding::O200k, Default::default());
    let vectors = Meter::new(&body, encoding, Framing::Framed, WHOLE.ceiling);
    call_of(&mut ctx).answer = Answer::Metered(Box::new(vectors));
    call_of(&mut ctx).body = body;
    pass(
        &mut ctx,
        r#"{"object":"list","data":[{"embedding":[0.5],"index":0}]"#,
        false,
    );
    meter(&mut ctx).stop_gathering();
    let broken = r#","usage":{"prompt_tokens":5,"total_tokens":5}"#.to_owned();
    settle(&books, &mut ctx, &[broken], Ending::UpstreamFailed);
    let billed = books.receipts().remove(0).billed;
    assert_eq!((billed.prompt_tokens, billed.completion_tokens), (5, 0));
    let call = &billed.call;
    assert_eq!(
        (call.reported_completion_tokens, call.counted_completion_tokens),
        (Some(0), None)
    );
    assert_eq!(billed.billed_by(), Some(BilledBy::Report));
}

#[test]
fn an_estimate_by_time_is_no_count() {
    let books = Books::with("10");
    let elapsed_ms = 700;
    settled(&books, &STREAM, &[event(COUNTED)], Ending::DrainEnded { elapsed_ms });
    let billed = books.receipts().remove(0).billed;
    assert_eq!(billed.completion_tokens, 7);
    assert_eq!(billed.call.counted_completion_tokens, Some(3));
}

/// Also of a model with two prices whose provider's own cost is billed, and of one that is cheaper by a tier alone.
#[test]
fn a_receipt_has_the_tokens_of_each_kind_though_no_kind_has_a_price() {
    let cached = json!({ "prompt_tokens_details": { "cached_tokens": 4 } });
    let with_cost = json!({ "prompt_tokens_details": { "cached_tokens": 4 }, "cost": 0.5 });
    for (model, more, read) in [
        ("openai/sum", &with_cost, Some(4)),
        ("openai/sum", &cached, None),
        ("openai/tiers", &cached, Some(4)),
        ("openai/m", &cached, None),
    ] {
        // The first is told what it costs.
        for asked in [STREAM.more, r#""stream":true"#] {
            let books = Books::with("10");
            let asked = Asked {
                model,
                more: asked,
                ..STREAM
            };
            settled(
                &books,
                &asked,
                &[event(COUNTED), reported(9, 2, more.clone())],
                Ending::Complete,
            );
            let kinds = books.receipts().remove(0).billed.call.kinds;
            assert_eq!(
                kinds.map(|kinds| kinds.cache_read_tokens),
                read,
                "{model} {}",
                asked.more
            );
            assert_eq!(kinds.and_then(|kinds| kinds.cache_read_price), None);
        }
    }
}
