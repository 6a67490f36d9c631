//! Whole answers that pass before their end, and break off: what has left of them is owed.

use super::*;
use crate::gateway::upstream::response::begins_unfinished;

const TEXT: &str = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"one two three"#;
const USAGE: &str = r#"{"prompt_tokens":9,"completion_tokens":4}"#;

/// What an answer owes that passes, of which this came in two pieces.
fn owed(books: &Books, number: u64, came: &str) -> (u64, Option<u64>, bool) {
    let mut ctx = books.call(number, &WHOLE);
    let (first, second) = came.split_at(1);
    pass(&mut ctx, first, false);
    meter(&mut ctx).stop_gathering();
    pass(&mut ctx, second, false);
    let metered = taken(&mut ctx).finish();
    let prompt = metered.prompt.map(|prompt| prompt.0);
    (metered.delivered.0, prompt, metered.reported.is_none())
}

#[test]
fn what_has_not_left_of_an_answer_that_breaks_off_is_not_owed_although_it_was_reported() {
    let books = Books::with("100");
    // All of the text has left, and the usage that follows it waits: it says what was made, also where nobody sees it.
    let after = format!(r#"{TEXT}"}}}}],"usage":{USAGE}"#);
    assert_eq!(owed(&books, 1, &after), (3, Some(9), false));
    // The usage stands first, and all that follows it waits.
    let before = TEXT.replacen('{', &format!(r#"{{"usage":{USAGE},"#), 1);
    assert_eq!(owed(&books, 2, &before), (0, Some(9), true));
    // Half of the text stands before it.
    let within = format!(r#"{TEXT}"}},"usage":{USAGE}}},{{"index":1,"message":{{"content":"one two three"#);
    assert_eq!(owed(&books, 3, &within), (3, Some(9), true));
    let next = |index: u32| format!(r#"}},"usage":{USAGE}}},{{"index":{index},"message":{{"content":"one two three"#);
    let twice = format!(r#"{TEXT}"{}"{}"#, next(1), next(2));
    assert_eq!(owed(&books, 4, &twice), (3, Some(9), true));
    assert_eq!(owed(&books, 5, TEXT), (3, None, true));
    // All has left, and something follows it that is none of it.
    let whole = format!(r#"{TEXT}"}}}}],"usage":{USAGE}}}x"#);
    assert_eq!(owed(&books, 6, &whole), (3, Some(9), false));
    // The same where it is broken before its end. Broken within its text, what was reported is of more.
    assert_eq!(owed(&books, 8, &format!("{after}<html>")), (3, Some(9), false));
    let broken = format!("{before}\"<html>");
    assert_eq!(owed(&books, 7, &broken), (3, Some(9), true));
    // Where there is no text it stands behind the choices: nobody sees what was used. Before them it is of more.
    let choices = r#""choices":[{"index":0,"message":{"content":""},"finish_reason":"length"}]"#;
    let behind = format!(r#"{{{choices},"usage":{USAGE},"service_tier":"#);
    assert_eq!(owed(&books, 9, &behind), (0, Some(9), false));
    let before = format!(r#"{{"usage":{USAGE},{choices}"#);
    assert_eq!(owed(&books, 10, &before), (0, Some(9), true));
}

/// A process that is killed leaves what the journal says.
#[test]
fn an_answer_that_passes_is_in_the_journal_as_it_leaves() {
    let books = Books::with("100");
    let words = "word ".repeat(1000);
    let mut ctx = books.call(1, &WHOLE);
    pass(&mut ctx, &format!("{TEXT} {words}"), false);
    assert_eq!(meter(&mut ctx).come().unwrap().0.0, 0, "nothing has left");
    meter(&mut ctx).stop_gathering();
    let come = |ctx: &mut Ctx| meter(ctx).come().unwrap().0.0;
    let first = come(&mut ctx);
    assert!((1000..=1005).contains(&first), "{first}");
    pass(&mut ctx, &words, false);
    assert!((2000..=2010).contains(&come(&mut ctx)), "{}", come(&mut ctx));
    let (passed, _) = pass(&mut ctx, &format!(r#""}}}}],"usage":{USAGE}}}"#), true);
    assert_eq!(passed, Passed::On);
    assert_eq!(
        meter(&mut ctx).come(),
        Some((CompletionTokens(4), Some(PromptTokens(9))))
    );
    let metered = taken(&mut ctx).finish();
    assert_eq!((metered.reported, metered.delivered.0), (Some(usage(9, 4)), 0));

    // Nothing is reported, and with the last piece no less has left than before it, whether the upstream ends it with that or not.
    for (number, (end, ends)) in (2..).zip([
        (r#""}}],"usage":null}"#, true),
        (r#""}}],"usage":null}"#, false),
        (r#""}}]} no"#, true),
        (r#""}}]} no"#, false),
    ]) {
        let mut ctx = books.call(number, &WHOLE);
        pass(&mut ctx, &format!("{TEXT} {words}"), false);
        meter(&mut ctx).stop_gathering();
        pass(&mut ctx, end, ends);
        let (all, _) = meter(&mut ctx).come().unwrap();
        assert!((1000..=1010).contains(&all.0), "{all:?} at {end}, ends: {ends}");
        let delivered = taken(&mut ctx).finish().delivered.0;
        assert!((1000..=1010).contains(&delivered), "{delivered} at {end}");
    }
}

/// Its upstream may fall silent behind it: the client owes what one that stays does.
#[test]
fn all_of_an_answer_whose_client_has_left_is_owed_once_it_would_have_passed() {
    let books = Books::with("100");
    let answer = whole("one two three", &json!({ "prompt_tokens": 9, "completion_tokens": 4 }));
    for (number, (first, is_owed)) in (1..).zip([("", false), ("\n", false), (&answer[..10], true), (&*answer, true)]) {
        let mut ctx = books.call(number, &WHOLE);
        pass(&mut ctx, first, false);
        call_of(&mut ctx).client_has_left = true;
        meter(&mut ctx).read_on();
        assert!(meter(&mut ctx).is_gathered(), "it would not pass yet");
        begins_unfinished(&mut ctx);
        pass(&mut ctx, answer.strip_prefix(first).unwrap_or(&answer), false);
        // Behind white space it would wait for its end.
        begins_unfinished(&mut ctx);
        assert_eq!(!meter(&mut ctx).is_gathered(), is_owed, "{first:?}");
        let metered = taken(&mut ctx).finish();
        assert_eq!((metered.reported, metered.is_complete), (Some(usage(9, 4)), true));
    }
}
