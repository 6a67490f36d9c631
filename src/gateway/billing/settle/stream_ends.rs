//! What a stream costs of which more came, or was waited for, than its answer.

use std::time::Duration;

use pingora::{Error, ErrorType};
use serde_json::json;

use super::debits::{COUNTED, settle, settled, usage};
use super::*;
use crate::clock::monotonic;
use crate::gateway::billing::tests::rig::{Asked, Books, STREAM, call_of, event, pass, reported};
use crate::gateway::context::{Answer, Ctx};
use crate::gateway::upstream::{ending::ending, response};
use crate::pure::receipt::BilledBy;

/// The end of the only choice.
const STOP: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
/// Its time comes to 7 tokens: at ten a second.
const SEVEN: Ending = Ending::DrainEnded { elapsed_ms: 700 };

/// The prompt and completion that were billed of a stream of these pieces, and by what.
fn billed(asked: &Asked<'_>, pieces: &[String], ending: Ending) -> (u64, u64, BilledBy) {
    let books = Books::with("10");
    settled(&books, asked, pieces, ending);
    let billed = books.receipts().remove(0).billed;
    let by = billed.billed_by().unwrap();
    (billed.prompt_tokens, billed.completion_tokens, by)
}

/// Who asked for the usage was told the bill before it, and who did not pays the same.
#[test]
fn text_behind_done_is_billed_to_nobody() {
    let silent = Asked {
        more: r#""stream":true"#,
        ..STREAM
    };
    let pieces = [event(COUNTED), reported(9, 2, json!(null)), event(" d e f g h")];
    for asked in [STREAM, silent] {
        let bill = billed(&asked, &pieces, Ending::Complete);
        assert_eq!(bill, (9, 2, BilledBy::Report), "{}", asked.more);
    }
}

/// Before the finish a report may be one of progress, however it came: what a model thinks then is billed by its time.
#[test]
fn no_time_is_billed_behind_the_report_of_a_stream_that_has_finished() {
    let progress = format!("data: {}\n\n", json!({ "choices": [], "usage": usage(9, 0) }));
    let alone = format!("data: {}\n\n", json!({ "choices": [], "usage": usage(9, 4) }));
    let choice = json!({ "index": 0, "delta": { "content": COUNTED } });
    let of_event = format!("data: {}\n\n", json!({ "choices": [choice], "usage": usage(9, 4) }));
    let silent = Asked {
        more: r#""stream":true"#,
        ..STREAM
    };
    for (pieces, completion) in [
        (vec![event(COUNTED), STOP.to_owned(), alone.clone()], 4),
        (vec![of_event.clone(), STOP.to_owned()], 4),
        // More may be made behind these.
        (vec![of_event.clone()], 7),
        (vec![STOP.to_owned(), of_event], 7),
        (vec![progress.clone()], 7),
        (vec![progress, ": thinking\n\n".to_owned()], 7),
        (vec![event(COUNTED), alone.clone()], 7),
        (vec![alone, event(COUNTED)], 7),
    ] {
        let (prompt, billed, _) = billed(&silent, &pieces, SEVEN);
        assert_eq!((prompt, billed), (9, completion), "{pieces:?}");
    }
}

/// The client has left, and the connection to the provider stays open with comments until the drain's end.
#[test]
fn no_time_is_billed_behind_the_finish_of_all_choices() {
    let now = monotonic();
    let after = |ms| now.checked_add(Duration::from_millis(ms)).unwrap();
    let books = Books::with("10");
    let mut ctx = books.call(1, &STREAM);
    call_of(&mut ctx).unseen_since = Some(now);
    pass(&mut ctx, &event(COUNTED), false);
    note_finish(&mut ctx, after(100));
    pass(&mut ctx, STOP, false);
    note_finish(&mut ctx, after(700));
    pass(&mut ctx, ": nothing more\n\n", false);
    note_finish(&mut ctx, after(900));
    let has_left = Error::new(ErrorType::ReadError).into_down();
    assert_eq!(ending(&ctx, Some(&*has_left)), SEVEN);
    settle(&books, &mut ctx, &[], SEVEN);
    assert_eq!(books.receipts().remove(0).billed.completion_tokens, 7);
}

/// Some providers say a finish reason with their first event, or with each. What follows took its time, too.
#[test]
fn the_time_of_text_behind_a_finish_is_billed() {
    let now = monotonic();
    let after = |ms| now.checked_add(Duration::from_millis(ms)).unwrap();
    let (text, with_finish) = (event(" d"), STOP.replace("{}", r#"{"content":" d"}"#));
    let (text, with_finish) = (text.as_str(), with_finish.as_str());
    let (waits, done) = (": waits\n\n", "data: [DONE]\n\n");
    for (pieces, finished_ms) in [
        (vec![(STOP, 100), (waits, 900)], Some(100)),
        (vec![(STOP, 100), (text, 700)], None),
        (vec![(STOP, 100), (text, 300), (STOP, 700), (waits, 900)], Some(700)),
        (vec![(with_finish, 100), (with_finish, 700), (waits, 900)], Some(700)),
        (vec![(STOP, 100), (text, 300), (done, 700)], Some(700)),
        (vec![(STOP, 100), (done, 700)], Some(100)),
    ] {
        let books = Books::with("10");
        let mut ctx = books.call(1, &STREAM);
        call_of(&mut ctx).unseen_since = Some(now);
        for (piece, at_ms) in &pieces {
            pass(&mut ctx, piece, false);
            note_finish(&mut ctx, after(*at_ms));
        }
        let finished_at = ctx.meter().unwrap().finished_at();
        assert_eq!(finished_at, finished_ms.map(after), "{pieces:?}");
    }
}

fn note_finish(ctx: &mut Ctx, now: std::time::Instant) {
    let Answer::Metered(meter) = &mut call_of(ctx).answer else {
        panic!("nothing is metered");
    };
    meter.note_finish(|| now);
}

/// Only of a call whose time may be billed.
#[test]
fn each_piece_of_a_call_that_reasons_is_asked_whether_it_finished() {
    for reasons in [true, false] {
        let books = Books::with("10");
        let mut ctx = books.call(1, &STREAM);
        call_of(&mut ctx).unseen_since = reasons.then(monotonic);
        let mut has_finish = |piece: &str| {
            let mut body = Some(bytes::Bytes::copy_from_slice(piece.as_bytes()));
            response::piece(&mut body, false, &mut ctx, || true, &books.rig.clock).unwrap();
            ctx.meter().unwrap().finished_at().is_some()
        };
        assert!(!has_finish(&event(COUNTED)));
        assert_eq!(has_finish(STOP), reasons);
    }
}
