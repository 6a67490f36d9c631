//! How a stream begins: with its first event, with an error, or with what is no stream at all.

use super::*;

/// A stream of which nothing leaves before its first event, after this, in which it ends or not.
fn awaiting(books: &Books, n: u64, came: &str, ends: bool) -> (Passed, Ctx) {
    let mut ctx = books.call(n, &STREAM);
    meter(&mut ctx).await_event();
    assert!(meter(&mut ctx).is_gathered());
    let (passed, _) = pass(&mut ctx, came, ends);
    (passed, ctx)
}

#[test]
fn a_stream_that_awaits_its_first_event_begins_with_it_or_is_no_answer() {
    let books = Books::with("100");
    let refused = Passed::NoAnswer { code: Some(502) };
    let none = ": a comment\n\nretry: 1\n\nevent: ping\ndata:\n\n<html>\n\n";
    let text = event(" one");
    for (n, (came, ends, passed, begins)) in [
        (text.clone(), false, Passed::On, true),
        (text.clone(), true, Passed::On, true),
        ("data: [DONE]\n\n".to_owned(), false, Passed::On, true),
        ([none, &text].concat(), false, Passed::On, true),
        (none.to_owned(), false, Passed::On, false),
        (none.to_owned(), true, Passed::Cut, false),
        (text[..20].to_owned(), false, Passed::On, false),
        (text[..20].to_owned(), true, Passed::Cut, false),
        (ERROR.to_owned(), false, refused, false),
        (ERROR.trim_end().to_owned(), true, refused, false),
        ([none, ERROR].concat(), false, refused, false),
        // Nothing of the event has left either.
        ([&text, ERROR].concat(), false, refused, false),
    ]
    .into_iter()
    .enumerate()
    {
        let (is, mut ctx) = awaiting(&books, n as u64, &came, ends);
        assert_eq!((is, !meter(&mut ctx).is_gathered()), (passed, begins), "{came}");
        let metered = taken(&mut ctx).finish();
        assert_eq!(
            (metered.began, metered.delivered.0 > 0),
            (begins, begins && came.contains("one")),
            "{came}"
        );
        assert_eq!(
            metered.is_error,
            came.contains("error") || (passed == Passed::Cut),
            "{came}"
        );
    }
}

/// Nobody could read it as a stream.
#[test]
fn of_what_comes_in_the_place_of_events_nothing_passes() {
    let books = Books::with("100");
    let failed = |code| Passed::Failed { code };
    let [at_once, at_end] = [false, true];
    for (n, (came, passed, is_known_by_end)) in [
        (r#"{"error":{"code":401,"message":"no"}}"#, failed(Some(401)), at_once),
        (r#" {"error":"no"}"#, failed(None), at_once),
        (r#"{"error":{"code":429,"message":"no"}"#, failed(Some(429)), at_end),
        (
            r#"{"error":{"code":"context_length_exceeded","message":"no"}}"#,
            failed(Some(400)),
            at_once,
        ),
        (
            r#"{"error":{"code":400,"message":"Your credit balance is too low to access it"}}"#,
            failed(Some(403)),
            at_once,
        ),
        (
            r#"{"message":"Incorrect API key provided: sk-1","type":"authentication_error"}"#,
            failed(Some(403)),
            at_once,
        ),
        (&whole("no", &Value::Null), Passed::Died, at_once),
        ("[1, \"no\"]", Passed::Died, at_once),
        ("[1, \"no\"", Passed::Died, at_end),
        ("\u{feff}<html>no</html>", Passed::Died, at_once),
        ("\n<html>no</html>\n\ndata: {\"choices\":[]}\n\n", Passed::Died, at_once),
    ]
    .into_iter()
    .enumerate()
    {
        let mut ctx = books.call(n as u64, &STREAM);
        let (mut told, mut left) = (Vec::new(), String::new());
        for character in came.chars().map(String::from).chain([String::new()]) {
            let (is, piece) = pass(&mut ctx, &character, character.is_empty());
            told.extend((is != Passed::On).then_some((is, character.is_empty())));
            left.push_str(&piece);
        }
        assert_eq!(told, [(passed, is_known_by_end)], "{came}: told once");
        let events: Vec<&str> = left.trim().split("\n\n").collect();
        let [error, "data: [DONE]"] = events[..] else {
            panic!("{left}")
        };
        let code = match passed {
            Passed::Failed {
                code: Some(code @ (400 | 429)),
            } => code,
            _ => 502,
        };
        assert!(error.contains(&format!("\"error\":{{\"code\":{code},")), "{left}");
        assert!(!left.contains("no\"") && !left.contains("exceeded"), "{left}");
        assert!(!left.contains("html"), "{left}");
        let metered = taken(&mut ctx).finish();
        let is_free = metered.is_error && metered.reported.is_none() && metered.delivered.0 == 0;
        assert!(is_free, "{came}");
        // Also when its client leaves, or its time is over, before it is known: nothing of it is an answer.
        let mut ctx = books.call(50 + n as u64, &STREAM);
        pass(&mut ctx, &came[..came.len() / 2], false);
        let metered = taken(&mut ctx).finish();
        assert!(
            metered.is_error && metered.is_over && metered.reported.is_none(),
            "{came}"
        );
        // What its provider probably charges for.
        let mut ctx = books.call(70 + n as u64, &STREAM);
        pass(&mut ctx, came, true);
        let likely = taken(&mut ctx).likely_use();
        assert_eq!(likely.is_none(), came.contains("error"), "{came}");
    }
    // The start of a stream like any other.
    let mut ctx = books.call(100, &STREAM);
    for piece in ["\n\n", "nonsense\n\n", "{\"a\":1}\n\n"] {
        assert_eq!(pass(&mut ctx, piece, false), (Passed::On, piece.to_owned()));
    }
}

/// A usage chunk that is left out is no event, and what ends behind it no answer, whatever was reported.
#[test]
fn a_usage_that_nobody_asked_for_begins_no_stream() {
    let books = Books::with("10");
    let asked = Asked {
        more: r#""stream":true"#,
        ..STREAM
    };
    let left_out = r#"data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":1}}"#;
    for (n, ends) in [(1, false), (2, true)] {
        let mut ctx = books.call(n, &asked);
        meter(&mut ctx).await_event();
        let came = format!("{left_out}\n\n");
        let passed = if ends { Passed::Cut } else { Passed::On };
        assert_eq!(pass(&mut ctx, &came, ends).0, passed);
        assert!(meter(&mut ctx).is_gathered());
        let metered = taken(&mut ctx).finish();
        assert!(metered.reported.is_none() && !metered.began, "{ends}");
    }
}

#[test]
fn a_stream_that_awaits_its_first_event_takes_no_comment_and_no_early_end() {
    let books = Books::with("10");
    let (_, mut ctx) = awaiting(&books, 1, ": a comment\n\n", false);
    assert!(!meter(&mut ctx).is_between_events(), "its head has not left");
    meter(&mut ctx).stop_gathering();
    assert!(meter(&mut ctx).is_between_events() && !meter(&mut ctx).is_gathered());
    assert_eq!(pass(&mut ctx, ERROR, false).0, Passed::Failed { code: Some(502) });
}

/// In a stream, in its place, and in that of a whole answer.
#[test]
fn whether_an_error_speaks_of_the_operators_account_is_known_wherever_it_stands() {
    for (message, words) in [
        ("The model is overloaded", None),
        ("Incorrect API key provided: sk-1", Some("Incorrect API key provided")),
    ] {
        let error = json!({ "error": { "code": 400, "message": message } }).to_string();
        let event = format!("data: {error}\n\n");
        for (asked, piece) in [(&STREAM, &event), (&STREAM, &error), (&WHOLE, &error)] {
            let books = Books::with("100");
            let mut ctx = after(&books, asked, &[piece], true);
            assert_eq!(meter(&mut ctx).about_operator(), words, "{piece}");
        }
    }
}
