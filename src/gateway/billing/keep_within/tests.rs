//! A stream is ended where what was admitted for it ends, and goes on where it can be paid.

use std::task::Waker;

use serde_json::{Value, json};

use super::*;
use crate::config::SuspendedStreams;
use crate::gateway::billing::closed_call::Ending;
use crate::gateway::billing::tests::rig::{
    Asked, Books, STREAM, UNBOUNDED, call_of, event, pass, reported, text, thousandths,
};
use crate::gateway::upstream::ending::ending;
use crate::ledger::admin::AdminOp;
use crate::ledger::admin::accounts::AccountOp;
use crate::ledger::terms::{AccountStatus, TermsChange};
use crate::ledger::tests::rig::block_on;
use crate::pure::charge::Ceiling;
use crate::pure::error::AccountStop;
use crate::pure::usage::PromptTokens;

/// A token each, of more bytes than a token has in any language.
fn words(count: usize) -> String {
    event(&" international".repeat(count))
}

/// A piece passes and is looked at: what its client gets. What was asked of the store meanwhile is answered.
fn kept(ctx: &mut Ctx, piece: &str) -> String {
    let (_, out) = pass(ctx, piece, false);
    let mut body = Some(Bytes::from(out));
    block_on(async {
        keep_within(ctx, &mut body);
        tokio::task::yield_now().await;
    });
    text(body.as_ref())
}

fn held(ctx: &mut Ctx) -> String {
    call_of(ctx).admission.as_ref().unwrap().hold.amount().to_string()
}

fn suspend(books: &Books) {
    let change = TermsChange {
        status: Some(AccountStatus::Suspended),
        ..TermsChange::default()
    };
    let account = books.caller.account.id.clone();
    books
        .rig
        .run(AdminOp::Account(AccountOp::Terms { account, change }))
        .unwrap();
}

#[test]
fn a_stream_within_what_was_admitted_is_left_alone() {
    let books = Books::with("10");
    let mut ctx = books.call(1, &STREAM);
    assert_eq!(kept(&mut ctx, &words(10)), words(10));
    assert!(!ctx.has_early_end());
    assert_eq!(held(&mut ctx), "1");
}

#[test]
fn a_stream_is_ended_at_its_clients_own_maximum() {
    let books = Books::with("10");
    let mut ctx = books.call(1, &STREAM);
    let out = kept(&mut ctx, &words(20));
    assert!(out.starts_with(&words(20)) && out.contains("\"length\""), "{out}");
    assert!(out.ends_with("data: [DONE]\n\n"), "{out}");
    assert!(ctx.has_early_end());
    assert_eq!(ending(&ctx, None), Ending::Complete);
    assert_eq!(held(&mut ctx), "1", "a client's maximum is no reason for more");
}

/// Its report may still come, and a client that read one finish reason is told no other.
#[test]
fn a_stream_that_has_come_to_its_end_is_not_ended_once_more() {
    let stop = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    let books = Books::with("10");
    let mut ctx = books.call(1, &STREAM);
    let last = format!("{}{stop}", words(20));
    assert_eq!(kept(&mut ctx, &last), last);
    assert!(!ctx.has_early_end());
    // Text behind its end is none of what a finished answer may still send.
    let out = kept(&mut ctx, &words(1));
    assert!(out.ends_with("data: [DONE]\n\n") && ctx.has_early_end(), "{out}");

    // Where the credit ends, too.
    let books = Books::with("1");
    let ceiling = Ceiling {
        prompt: PromptTokens(990),
        ..UNBOUNDED.ceiling
    };
    let message = "one two three ".repeat(330);
    let asked = Asked {
        ceiling,
        message: &message,
        ..UNBOUNDED
    };
    let mut ctx = books.call(1, &asked);
    assert_eq!(kept(&mut ctx, &last), last);
    let report = reported(9, 2, Value::Null).replace("data: [DONE]\n\n", "");
    let (_, report) = report.split_once("\n\n").unwrap();
    let out = kept(&mut ctx, report);
    assert!(!ctx.has_early_end() && !out.contains("402"), "{out}");
}

#[test]
fn a_hold_is_raised_beside_a_stream_that_goes_on() {
    let books = Books::with("100");
    let mut ctx = books.call(1, &UNBOUNDED);
    assert_eq!(kept(&mut ctx, &words(20)), words(20));
    assert_eq!(
        held(&mut ctx),
        "1",
        "the store's answer is taken in with the next piece"
    );
    assert_eq!(kept(&mut ctx, &words(1)), words(1));
    // A hundred prompt tokens, and a thousand and more beside the twenty that came: as many as one step has.
    assert_eq!(held(&mut ctx), "2.188");
    assert_eq!(call_of(&mut ctx).ceiling().completion.0, 20 + 1_024);
    assert_eq!(kept(&mut ctx, &words(100)), words(100));
    assert!(!ctx.has_early_end());
    assert_eq!(books.figures(), ("100".to_owned(), "2.188".to_owned()));
    // All that was admitted of the prompt stays held where there is credit for it, and the completion by its least.
    let ceiling = Ceiling {
        prompt: PromptTokens(990),
        ..UNBOUNDED.ceiling
    };
    let mut ctx = books.call(2, &Asked { ceiling, ..UNBOUNDED });
    kept(&mut ctx, &words(20));
    kept(&mut ctx, &words(1));
    assert_eq!(held(&mut ctx), "3.078");
}

#[test]
fn a_hold_is_raised_as_far_as_the_credit_reaches() {
    let books = Books::with("1.5");
    let mut ctx = books.call(1, &UNBOUNDED);
    kept(&mut ctx, &words(20));
    kept(&mut ctx, &words(1));
    assert_eq!(held(&mut ctx), "1.5");
    assert_eq!(call_of(&mut ctx).ceiling().completion.0, 700);
}

#[test]
fn a_stream_is_ended_where_the_credit_is() {
    let books = Books::with("1");
    // All of it is the prompt's.
    let ceiling = Ceiling {
        prompt: PromptTokens(990),
        ..UNBOUNDED.ceiling
    };
    let message = "one two three ".repeat(330);
    let asked = Asked {
        ceiling,
        message: &message,
        ..UNBOUNDED
    };
    let mut ctx = books.call(1, &asked);
    kept(&mut ctx, &words(20));
    let out = kept(&mut ctx, &words(1));
    assert!(out.contains("402") && out.ends_with("data: [DONE]\n\n"), "{out}");
    assert!(ctx.has_early_end());
}

/// What is admitted of a prompt is its bytes: several times its tokens, and as much less of the answer would be paid for.
#[test]
fn a_stream_is_not_ended_for_prompt_tokens_that_nobody_can_count() {
    let books = Books::with("1");
    let ceiling = Ceiling {
        prompt: PromptTokens(990),
        ..UNBOUNDED.ceiling
    };
    let mut ctx = books.call(1, &Asked { ceiling, ..UNBOUNDED });
    kept(&mut ctx, &words(20));
    assert_eq!(kept(&mut ctx, &words(1)), words(1));
    assert_eq!(
        call_of(&mut ctx).ceiling().completion.0,
        362,
        "three tokens, and what the formats of chats may add"
    );
    // With what the provider itself puts around a prompt.
    let books = Books::with("1");
    let model = "openai/sum";
    let mut ctx = books.call(
        1,
        &Asked {
            model,
            ceiling,
            ..UNBOUNDED
        },
    );
    kept(&mut ctx, &words(20));
    kept(&mut ctx, &words(1));
    assert_eq!(call_of(&mut ctx).ceiling().completion.0, 337);
    // Of a prompt that takes long to count it is as much as was admitted.
    let books = Books::with("1");
    let message = "one two three ".repeat(5_000);
    let asked = Asked {
        ceiling,
        message: &message,
        ..UNBOUNDED
    };
    let mut ctx = books.call(1, &asked);
    kept(&mut ctx, &words(20));
    assert!(kept(&mut ctx, &words(1)).contains("402"));
}

/// A hundred prompt tokens and twenty of the completion cost 0.14, and each token more 0.002.
#[test]
fn a_stream_that_could_have_only_a_few_tokens_more_is_ended() {
    for (more, goes_on) in [(63, false), (64, true)] {
        let books = Books::with(&thousandths(140 + 2 * more));
        let mut ctx = books.call(
            1,
            &Asked {
                held: "0.12",
                ..UNBOUNDED
            },
        );
        kept(&mut ctx, &words(20));
        let out = kept(&mut ctx, &words(1));
        assert_eq!(
            (out == words(1), ctx.has_early_end()),
            (goes_on, !goes_on),
            "{more}: {out}"
        );
    }
}

/// No account could hold that, so nobody is asked.
#[test]
fn a_stream_that_nobody_could_pay_is_ended_at_once() {
    let books = Books::with("10");
    let message = "one two three ".repeat(5_000);
    let asked = Asked {
        message: &message,
        ..UNBOUNDED
    };
    let mut ctx = books.call(1, &asked);
    call_of(&mut ctx).admission.as_mut().unwrap().ceiling.prompt = PromptTokens(u64::MAX);
    let out = kept(&mut ctx, &words(20));
    assert!(out.contains("402"), "{out}");
}

#[test]
fn a_stream_that_costs_nothing_goes_on_without_a_question() {
    let books = Books::with("10");
    let mut ctx = books.call(
        1,
        &Asked {
            model: "openai/free",
            ..UNBOUNDED
        },
    );
    assert_eq!(kept(&mut ctx, &words(20)), words(20));
    assert_eq!(call_of(&mut ctx).ceiling().completion.0, 20 + 1_024);
    assert!(call_of(&mut ctx).extension.is_none());
    assert_eq!(held(&mut ctx), "1");
}

/// What a client was told it costs is what it costs, whatever comes after that.
#[test]
fn a_stream_whose_cost_was_told_is_not_held_for_more() {
    let books = Books::with("10");
    let mut ctx = books.call(1, &UNBOUNDED);
    pass(&mut ctx, &words(20), false);
    kept(&mut ctx, &reported(9, 2, Value::Null));
    assert!(call_of(&mut ctx).extension.is_none());
    assert!(!ctx.has_early_end());
}

#[test]
fn the_store_counts_what_it_was_asked() {
    let books = Books::with("100");
    let mut ctx = books.call(1, &UNBOUNDED);
    kept(&mut ctx, &words(20));
    kept(&mut ctx, &words(1));
    drop(ctx);
    let granted = crate::telemetry::record::Raised::Granted as usize;
    assert_eq!(books.counted().raised.get(granted), Some(&1));
}

#[test]
fn a_stopped_account_ends_its_streams_once_and_says_why() {
    let books = Books::with("10");
    let mut ctx = books.call(1, &STREAM);
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(poll_uncovered(&ctx, &mut context), Poll::Pending);
    assert!(uncovered(call_of(&mut ctx)).is_none());
    suspend(&books);
    assert_eq!(poll_uncovered(&ctx, &mut context), Poll::Ready(()));
    let told = uncovered(call_of(&mut ctx));
    assert!(
        matches!(told, Some(ApiError::AccountStopped(AccountStop::Suspended))),
        "{told:?}"
    );
    let out = kept(&mut ctx, &event(" one"));
    assert!(out.contains(AccountStop::Suspended.message()), "{out}");
    assert!(ctx.has_early_end());
    assert_eq!(poll_uncovered(&ctx, &mut context), Poll::Pending, "it has its end");
    assert_eq!(ending(&ctx, None), Ending::Stopped);
}

/// Its report was lost, and with it what nobody sees of an answer.
#[test]
fn a_stream_that_has_come_to_its_end_is_not_ended_as_its_account_is_stopped() {
    let books = Books::with("10");
    let mut ctx = books.call(1, &STREAM);
    let stop = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    kept(&mut ctx, &event(" one"));
    kept(&mut ctx, stop);
    suspend(&books);
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(poll_uncovered(&ctx, &mut context), Poll::Pending);
    let report = reported(9, 2, Value::Null);
    let (_, report) = report.split_once("\n\n").unwrap();
    let out = kept(&mut ctx, report);
    assert!(!ctx.has_early_end() && !out.contains("error"), "{out}");
    assert_eq!(ending(&ctx, None), Ending::Complete);
}

#[test]
fn a_stopped_account_lets_streams_finish_where_the_operator_says_so() {
    let books = Books::with("10");
    let mut ctx = books.call(
        1,
        &Asked {
            on_stop: SuspendedStreams::Finish,
            ..STREAM
        },
    );
    suspend(&books);
    assert_eq!(
        poll_uncovered(&ctx, &mut Context::from_waker(Waker::noop())),
        Poll::Pending
    );
    assert_eq!(kept(&mut ctx, &event(" one")), event(" one"));
    assert_eq!(books.figures().0, "10");
}

/// Money: what had come beyond a maximum of the catalogue that is too low was lost with the process, though the hold pays for it.
#[test]
fn what_is_owed_now_is_what_the_hold_pays_for() {
    let books = Books::with("10");
    let holds = |held| Asked { held, ..UNBOUNDED };
    let free = Asked {
        model: "openai/free",
        held: "0",
        ..UNBOUNDED
    };
    let words = |count: usize| event(&" international".repeat(count));
    let with_report = |count: usize| {
        let usage = json!({ "prompt_tokens": 9, "completion_tokens": 1 });
        let choice = json!({ "index": 0, "delta": { "content": " international".repeat(count) } });
        format!("data: {}\n\n", json!({ "choices": [choice], "usage": usage }))
    };
    for (n, (asked, piece, owed)) in [
        (STREAM, words(17), 10),
        (UNBOUNDED, words(9), 9),
        (UNBOUNDED, words(10), 10),
        (UNBOUNDED, words(17), 17),
        (free, words(17), 17),
        // A prompt of 9 costs 0.009, and 15 of the answer 0.03.
        (holds("0.0399"), with_report(17), 15),
        (holds("0.04"), with_report(17), 15),
        (holds("0.041"), with_report(17), 16),
        (holds("0.01"), with_report(17), 10),
        (holds("0.001"), words(17), 10),
    ]
    .into_iter()
    .enumerate()
    {
        let mut ctx = books.call(n as u64, &asked);
        pass(&mut ctx, &piece, false);
        let owed_now = owed_now(call_of(&mut ctx)).map(|(completion, _)| completion.0);
        assert_eq!(owed_now, Some(owed), "{n}: {piece}");
    }
    // Where the prompt was not reported, it is counted, once.
    let mut ctx = books.call(100, &holds("0.04"));
    for (count, owed) in [(11, 11), (40, 15)] {
        pass(&mut ctx, &words(count), false);
        let (completion, prompt) = owed_now(call_of(&mut ctx)).unwrap();
        assert_eq!(prompt, None);
        // One of 9 is 0.009.
        assert_eq!(completion.0, owed);
    }
    // And what it was raised to pays for more.
    let mut ctx = books.call(101, &holds("0.04"));
    for _ in 0..2 {
        kept(&mut ctx, &words(40));
    }
    assert_eq!(
        owed_now(call_of(&mut ctx)).map(|(completion, _)| completion.0),
        Some(80)
    );
}
