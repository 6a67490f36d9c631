//! What a call that is over takes from its account, and what its receipt and the counters say of it.

use serde_json::{Value, json};

use super::*;
use crate::gateway::billing::tests::rig::{
    Asked, Books, STREAM, WHOLE, call_of, closed, event, pass, reported, thousandths, whole,
};
use crate::gateway::context::{Answer, Ctx};
use crate::pure::receipt::CallEnding;

/// A call of which these pieces came, the last as the answer's end where it was complete, once it is settled.
pub(super) fn settled(books: &Books, asked: &Asked<'_>, pieces: &[String], ending: Ending) {
    let mut ctx = books.call(1, asked);
    settle(books, &mut ctx, pieces, ending);
}

pub(super) fn settle(books: &Books, ctx: &mut Ctx, pieces: &[String], ending: Ending) {
    for (at, piece) in pieces.iter().enumerate() {
        let is_whole = matches!(ending, Ending::Complete | Ending::Drained);
        pass(ctx, piece, is_whole && at + 1 == pieces.len());
    }
    books.settler.close(closed(ctx, ending));
}

fn balance(asked: &Asked<'_>, pieces: &[String], ending: Ending) -> String {
    let books = Books::with("10");
    settled(&books, asked, pieces, ending);
    let (balance, held) = books.figures();
    assert_eq!(held, "0");
    balance
}

/// Of a call that used 3 prompt tokens and whose answer `text` reports.
pub(super) fn usage(prompt: u64, completion: u64) -> Value {
    json!({ "prompt_tokens": prompt, "completion_tokens": completion })
}

/// A thousandth of a credit.
pub(super) const MILLI: i128 = 1_000_000_000;
pub(super) const COUNTED: &str = " a b c";

#[test]
fn a_reported_answer_costs_its_report() {
    let pieces = [event(COUNTED), reported(9, 2, Value::Null)];
    let books = Books::with("10");
    settled(&books, &STREAM, &pieces, Ending::Complete);
    let counted = books.counted();
    assert_eq!((counted.debits, counted.cost_pico), (1, 13 * MILLI));
    assert_eq!(balance(&STREAM, &pieces, Ending::Complete), "9.987");
    assert_eq!(
        balance(&WHOLE, &[whole("a b c", &usage(9, 2))], Ending::Complete),
        "9.987"
    );
}

/// A filter may stop an answer before its first word: its report is billed all the same, whatever the provider says behind its end.
#[test]
fn an_error_behind_a_streams_end_makes_it_free_for_nobody() {
    let end = r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"content_filter"}]}"#;
    let error = "data: {\"error\":{\"code\":500,\"message\":\"no\"}}\n\n";
    let pieces = [format!("{end}\n\n"), reported(9, 4, Value::Null), error.to_owned()];
    assert_eq!(balance(&STREAM, &pieces, Ending::Complete), "9.983");
    assert_eq!(balance(&STREAM, &pieces[..2], Ending::Complete), "9.983");
}

#[test]
fn a_call_that_no_upstream_answered_costs_nothing() {
    let books = Books::with("10");
    let mut ctx = books.call(1, &STREAM);
    let mut closed = closed(&mut ctx, Ending::UpstreamFailed);
    closed.meter = None;
    books.settler.close(closed);
    assert_eq!(books.figures(), ("10".to_owned(), "0".to_owned()));
    assert!(books.receipts().is_empty());
    assert_eq!(balance(&STREAM, &[], Ending::UpstreamFailed), "10");
}

#[test]
fn an_answer_that_broke_off_costs_its_prompt_and_what_was_delivered() {
    let books = Books::with("10");
    settled(&books, &STREAM, &[event(COUNTED)], Ending::ClientGone);
    let receipts = books.receipts();
    let receipt = &receipts.first().unwrap().billed;
    assert!(receipt.prompt_tokens > 3);
    assert_eq!(receipt.completion_tokens, 3);
    assert_eq!(books.figures().0, thousandths(10_000 - receipt.prompt_tokens - 6));
}

#[test]
fn hidden_work_that_was_waited_for_is_charged_by_its_time() {
    let books = Books::with("10");
    let elapsed_ms = 700;
    settled(&books, &STREAM, &[event(COUNTED)], Ending::DrainEnded { elapsed_ms });
    let receipts = books.receipts();
    let receipt = &receipts.first().unwrap().billed;
    assert_eq!(receipt.completion_tokens, 7, "ten tokens a second");
    assert_eq!(receipt.call.ending, Some(CallEnding::DrainEnded));
}

#[test]
fn cached_tokens_and_long_prompts_have_their_own_prices() {
    let cached = json!({ "prompt_tokens_details": { "cached_tokens": 4 } });
    for (prompt, more, left) in [
        (9, cached.clone(), "9.9906"),
        (9, Value::Null, "9.987"),
        (60, Value::Null, "9.872"),
        (50, Value::Null, "9.946"),
    ] {
        let whole = reported(prompt, 2, more.clone());
        // Where it breaks off behind its report, no client was told what it costs.
        let broken = whole.strip_suffix("data: [DONE]\n\n").unwrap().to_owned();
        for (last, ending) in [(whole, Ending::Complete), (broken, Ending::UpstreamFailed)] {
            for more_asked in [STREAM.more, r#""stream":true"#] {
                let books = Books::with("10");
                let asked = Asked {
                    model: "openai/kinds",
                    more: more_asked,
                    ..STREAM
                };
                settled(&books, &asked, &[event(" a b"), last.clone()], ending);
                assert_eq!(books.figures().0, left, "{prompt} {more} {more_asked} {ending:?}");
            }
        }
    }
}

#[test]
fn what_a_provider_says_that_a_call_cost_is_billed_where_the_operator_says_so() {
    for (model, left, told) in [("openai/sum", "9.5", Some("0.5")), ("openai/m", "9.987", None)] {
        let books = Books::with("10");
        let last = reported(9, 2, json!({ "cost": 0.5 }));
        settled(
            &books,
            &Asked { model, ..STREAM },
            &[event(COUNTED), last],
            Ending::Complete,
        );
        assert_eq!(books.figures().0, left);
        let receipt = books.receipts().remove(0).billed;
        assert_eq!(receipt.call.provider_cost.map(|cost| cost.to_string()).as_deref(), told);
    }
}

/// The same where the client was told nothing: the answer broke off after its report.
#[test]
fn an_answer_that_broke_off_is_priced_like_one_that_did_not() {
    let flex = [
        event(COUNTED),
        reported(9, 3, json!({ "service_tier": "flex" })).replace("data: [DONE]\n\n", ""),
    ];
    let silent = r#""stream":true"#;
    let tiers = Asked {
        model: "openai/tiers",
        more: silent,
        ..STREAM
    };
    assert_eq!(balance(&tiers, &flex, Ending::ClientGone), "9.9925");
    let cost = [
        event(COUNTED),
        reported(9, 3, json!({ "cost": 0.5 })).replace("data: [DONE]\n\n", ""),
    ];
    let sum = Asked {
        model: "openai/sum",
        more: silent,
        ..STREAM
    };
    assert_eq!(balance(&sum, &cost, Ending::ClientGone), "9.5");
}

/// Nobody can count a sound. Who leaves while its provider would still report it owes what was held for it.
#[test]
fn who_leaves_before_the_report_owes_what_is_not_text_as_it_was_held() {
    let text = json!({ "type": "text", "text": "one two three" });
    let sound = json!({ "type": "input_audio", "input_audio": { "data": "AAAA", "format": "wav" } });
    let parts = json!([text, sound]).to_string();
    let mut ceiling = STREAM.ceiling;
    ceiling.prompt.0 = 5_000;
    let asked = Asked {
        message: &parts,
        ceiling,
        held: "6",
        ..STREAM
    };
    let prompt = |asked: &Asked<'_>, pieces: &[String], passes: bool, ending| {
        let books = Books::with("10");
        let mut ctx = books.call(1, asked);
        let mut rest = pieces;
        if let (true, [first, others @ ..]) = (passes, pieces) {
            pass(&mut ctx, first, false);
            if let Answer::Metered(meter) = &mut call_of(&mut ctx).answer {
                meter.stop_gathering();
            }
            rest = others;
        }
        settle(&books, &mut ctx, rest, ending);
        books.receipts().remove(0).billed.prompt_tokens
    };
    let left = [Ending::ClientGone, Ending::DrainEnded { elapsed_ms: 9 }];
    let begun = [event(COUNTED)];
    for ending in left {
        assert_eq!(prompt(&asked, &begun, false, ending), 5_000);
    }
    assert!(prompt(&asked, &begun, false, Ending::UpstreamFailed) < 50);
    // Behind its end no report can come, so that nobody is told what it has is not the client's doing.
    let silent = Asked {
        more: r#""stream":true"#,
        ..asked
    };
    let whole_asked = Asked {
        more: WHOLE.more,
        ..asked
    };
    let answer = whole("a b", &Value::Null);
    let (first, second) = answer.split_at(20);
    let (over, whole) = (
        [event(COUNTED), "data: [DONE]\n\n".to_owned()],
        [first.to_owned(), second.to_owned()],
    );
    for ending in left {
        assert!(prompt(&silent, &over, false, ending) < 50);
        for passes in [false, true] {
            assert!(prompt(&whole_asked, &whole, passes, ending) < 50, "{passes}");
        }
    }
}

#[test]
fn what_cannot_be_known_costs_what_was_held() {
    let books = Books::with("10");
    let mut ctx = books.call(1, &STREAM);
    debit_hold(call_of(&mut ctx).admission.take().unwrap());
    assert_eq!(books.figures(), ("9".to_owned(), "0".to_owned()));
    let receipt = books.receipts().remove(0).billed;
    assert_eq!((receipt.prompt_tokens, receipt.completion_tokens), (0, 0));
    assert_eq!(receipt.cost.to_string(), "1");
    assert_eq!(books.counted().debits, 1);
}

/// A prompt that takes long to count holds nobody up, and is counted before the ledger closes.
#[test]
fn a_long_prompt_is_counted_on_a_thread_of_its_own_and_a_short_one_at_once() {
    let is_counting = |books: &Books| books.settler.counting.lock().unwrap().is_some();
    let books = Books::with("100");
    settled(&books, &STREAM, &[event(COUNTED)], Ending::ClientGone);
    assert!(!is_counting(&books));

    let books = Books::with("100");
    let message = "one two three ".repeat(5_000);
    let mut ceiling = STREAM.ceiling;
    ceiling.prompt.0 = 50_000;
    let asked = Asked {
        message: &message,
        ceiling,
        held: "60",
        ..STREAM
    };
    settled(&books, &asked, &[event(COUNTED)], Ending::ClientGone);
    assert!(is_counting(&books));
    books.settler.finish();
    assert!(!is_counting(&books));
    let receipt = books.receipts().remove(0).billed;
    assert!(receipt.prompt_tokens > 14_000, "{}", receipt.prompt_tokens);
    assert_eq!(books.figures().1, "0");
}

#[test]
fn a_report_that_cannot_be_is_counted_and_held_against_its_target() {
    let rejected = |completion: Value| {
        let books = Books::with("10");
        let mut answer: Value = serde_json::from_str(&whole("a b c", &Value::Null)).unwrap();
        answer["usage"] = json!({ "prompt_tokens": 9, "completion_tokens": completion });
        settled(&books, &WHOLE, &[answer.to_string()], Ending::Complete);
        let faults = books.telemetry.figures().faults;
        let implausible = faults
            .iter()
            .filter(|(fault, _)| fault.kind == IMPLAUSIBLE_USAGE)
            .count();
        (books.counted().reports_rejected, implausible)
    };
    assert_eq!(rejected(json!(2)), (0, 0));
    assert_eq!(rejected(json!(-2)), (1, 0));
    assert_eq!(rejected(json!(4_000_000_000_u64)), (1, 1));
}

#[test]
fn a_receipt_says_what_was_reported_and_what_was_counted() {
    let books = Books::with("10");
    let more = r#""stream":true,"user":"u-1""#;
    settled(
        &books,
        &Asked { more, ..STREAM },
        &[event(COUNTED), reported(9, 2, Value::Null)],
        Ending::Complete,
    );
    let call = books.receipts().remove(0).billed.call;
    assert_eq!(
        (call.reported_prompt_tokens, call.reported_completion_tokens),
        (Some(9), Some(2))
    );
    assert_eq!((call.counted_completion_tokens, call.streamed), (Some(3), Some(true)));
    assert_eq!(
        (call.upstream_id.as_deref(), call.end_user.as_deref()),
        (Some("theirs-1"), Some("u-1"))
    );
    assert_eq!(
        (call.provider.as_deref(), call.upstream_model.as_deref()),
        (Some("main"), Some("theirs"))
    );
    assert_eq!(call.ending, Some(CallEnding::Complete));
    assert_eq!(call.ended, Some(books.rig.clock.now()));

    // The text of a whole answer is counted where nothing was reported.
    for (usage, reported, counted) in [(usage(9, 2), Some(9), None), (Value::Null, None, Some(3))] {
        let books = Books::with("10");
        settled(&books, &WHOLE, &[whole("one two three", &usage)], Ending::Complete);
        let call = books.receipts().remove(0).billed.call;
        assert_eq!((call.counted_completion_tokens, call.streamed), (counted, Some(false)));
        // So is its prompt, which nobody reported then.
        assert_eq!(call.reported_prompt_tokens, reported);
        assert_eq!(call.end_user, None);
    }
}

#[test]
fn each_ending_is_in_the_receipt() {
    for (ending, told) in [
        (Ending::ClientGone, CallEnding::ClientGone),
        (Ending::UpstreamFailed, CallEnding::UpstreamFailed),
        (Ending::Stopped, CallEnding::Dropped),
        (Ending::Dropped, CallEnding::Dropped),
    ] {
        let books = Books::with("10");
        settled(&books, &STREAM, &[event(COUNTED)], ending);
        let call = books.receipts().remove(0).billed.call;
        assert_eq!((call.ending, call.client_left), (Some(told), false));
    }
    let pieces = [event(COUNTED), reported(9, 2, Value::Null)];
    for (ending, client_left) in [(Ending::Complete, false), (Ending::Drained, true)] {
        let books = Books::with("10");
        settled(&books, &STREAM, &pieces, ending);
        let call = books.receipts().remove(0).billed.call;
        assert_eq!(call.ending, Some(CallEnding::Complete));
        assert_eq!((call.client_left, books.figures().0.as_str()), (client_left, "9.987"));
    }
}

#[test]
fn a_gateway_that_keeps_no_receipts_bills_the_same() {
    let mut books = Books::with("10");
    books.settler = Settler::new(books.rig.clock.clone(), false, Arc::clone(&books.lifecycle));
    settled(
        &books,
        &STREAM,
        &[event(COUNTED), reported(9, 2, Value::Null)],
        Ending::Complete,
    );
    assert_eq!(books.figures().0, "9.987");
    assert_eq!(books.receipts().remove(0).billed.call.provider, None);
}
