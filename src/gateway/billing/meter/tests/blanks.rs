//! Whole answers of which white space has left before the answer had begun: what follows it is passed on if it is an answer.

use super::*;

/// The call of whose answer white space has left, because its time was over.
fn late(books: &Books, number: u64) -> Ctx {
    let mut ctx = books.call(number, &WHOLE);
    assert_eq!(pass(&mut ctx, "\n", false), (Passed::On, "\n".to_owned()));
    meter(&mut ctx).stop_gathering();
    assert_eq!(pass(&mut ctx, " \n", false), (Passed::On, " \n".to_owned()));
    assert!(meter(&mut ctx).is_gathered(), "white space is nothing of an answer");
    ctx
}

#[test]
fn what_follows_white_space_is_passed_on_at_its_end_if_it_is_an_answer() {
    let books = Books::with("100");
    let answer = whole("one two three", &json!({ "prompt_tokens": 9, "completion_tokens": 3 }));
    for (number, at) in (1..).zip([1, 20, answer.len() - 1, answer.len()]) {
        let mut ctx = late(&books, number);
        let (first, second) = answer.split_at(at);
        assert_eq!(pass(&mut ctx, first, false), (Passed::On, String::new()));
        assert!(meter(&mut ctx).is_gathered(), "{at}");
        let (passed, came) = pass(&mut ctx, second, true);
        assert_eq!(passed, Passed::On);
        let told: Value = serde_json::from_str(&came).unwrap();
        assert!(told["usage"]["cost"].is_number(), "{came}");
        assert!(!meter(&mut ctx).is_gathered());
        let metered = taken(&mut ctx).finish();
        assert_eq!((metered.reported, metered.is_complete), (Some(usage(9, 3)), true));
    }
}

#[test]
fn what_follows_white_space_and_is_no_answer_is_not_passed_on_and_owes_nothing() {
    let books = Books::with("100");
    let error = r#"{"error":{"code":402,"message":"the account acct_1 has no credit"}}"#;
    for (number, (came, passed)) in (1..).zip([
        (error, Passed::NoAnswer { code: Some(402) }),
        ("<html>no</html>", Passed::NoAnswer { code: None }),
        (r#"{"object":"other"}"#, Passed::NoAnswer { code: None }),
        (r#"{"choices":[{"index":0,"message":{"content":"one two"#, Passed::Cut),
    ]) {
        for at in [0, 1, came.len()] {
            let mut ctx = late(&books, number * 10 + u64::try_from(at.min(2)).unwrap());
            let (first, second) = came.split_at(at);
            let (begun, left) = pass(&mut ctx, first, false);
            assert_eq!(left, "", "{came}");
            if begun == Passed::On {
                assert_eq!(pass(&mut ctx, second, true), (passed, String::new()), "{came}");
            } else {
                assert_eq!(begun, passed, "HTML is known by its first byte");
            }
            assert!(meter(&mut ctx).is_gathered(), "{came}");
            let metered = taken(&mut ctx).finish();
            let owed = (
                metered.delivered.0,
                metered.began,
                metered.is_complete,
                metered.is_part_passed,
            );
            assert_eq!(owed, (0, false, false, false), "{came}");
        }
    }
}

/// What is as long as that is an answer, and is not kept in memory to its end; an error stays one.
#[test]
fn only_so_much_waits_behind_white_space() {
    let books = Books::with("100");
    let long = whole(&"one ".repeat(40_000), &Value::Null);
    let mut ctx = late(&books, 1);
    let (first, second) = long.split_at(100_000);
    assert_eq!(pass(&mut ctx, first, false), (Passed::On, first.to_owned()));
    assert!(!meter(&mut ctx).is_gathered());
    // All that leaves is in the journal before.
    let come = meter(&mut ctx).come().unwrap().0.0;
    assert!((24_900..25_010).contains(&come), "{come}");
    assert_eq!(pass(&mut ctx, second, true).0, Passed::On);
    let delivered = taken(&mut ctx).finish().delivered.0;
    assert!((40_000..40_100).contains(&delivered), "{delivered}");

    let long = format!(r#"{{"error":{{"code":500,"message":"{}"}}}}"#, "no ".repeat(40_000));
    let mut ctx = late(&books, 2);
    let (first, second) = long.split_at(100_000);
    assert_eq!(pass(&mut ctx, first, false), (Passed::On, String::new()));
    assert_eq!(
        pass(&mut ctx, second, true),
        (Passed::NoAnswer { code: Some(500) }, String::new())
    );
    assert!(taken(&mut ctx).finish().is_error);

    let page = format!("<html>{}</html>", "no ".repeat(40_000));
    let mut ctx = late(&books, 3);
    let no_answer = (Passed::NoAnswer { code: None }, String::new());
    assert_eq!(pass(&mut ctx, &page, true), no_answer);
    assert!(!taken(&mut ctx).finish().began);
}

/// A page of HTML is not gathered to its end: nothing can follow that makes an answer of it.
#[test]
fn what_cannot_become_an_answer_fails_at_once() {
    let books = Books::with("100");
    let mut ctx = books.call(1, &WHOLE);
    assert_eq!(pass(&mut ctx, "<html>", false).0, Passed::NoAnswer { code: None });
    assert!(meter(&mut ctx).is_gathered());
}
