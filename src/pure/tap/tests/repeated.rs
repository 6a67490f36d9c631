//! Answers that say the same words in two places of a choice: they count once, in whichever order they come and however they are cut.

use super::*;

/// Checks what is counted of a stream of these choices, an event each, and of what it would be with the members of each choice in
/// the opposite order.
#[track_caller]
fn check(choices: &[&[&str]], delivered: u64) {
    for is_reversed in [false, true] {
        let event = |members: &&[&str]| {
            let mut members = members.to_vec();
            if is_reversed {
                members.reverse();
            }
            format!("data: {{\"choices\":[{{{}}}]}}\n\n", members.join(","))
        };
        let stream: String = choices.iter().map(event).collect();
        for cut in 0..=stream.len() {
            let (head, tail) = stream.as_bytes().split_at(cut);
            let (out, tap) = pass(&[head, tail], TapOptions::default());
            assert_eq!(out, stream.as_bytes());
            assert_eq!(tap.delivered().0, delivered, "{stream}, cut at {cut}");
        }
    }
}

/// What a client pays that leaves such a stream.
#[test]
fn what_stands_in_a_message_beside_each_delta_counts_once() {
    check(
        &[
            &[
                r#""index":0"#,
                r#""delta":{"content":"One"}"#,
                r#""message":{"content":"One"}"#,
            ],
            &[
                r#""index":0"#,
                r#""delta":{"content":" two"}"#,
                r#""message":{"content":"One two"}"#,
            ],
            &[
                r#""index":0"#,
                r#""delta":{"content":" three"}"#,
                r#""message":{"content":"One two three"}"#,
            ],
        ],
        3,
    );
    // A delta that says nothing is one too.
    check(
        &[
            &[r#""delta":{"content":"One two"}"#],
            &[r#""message":{"content":"One two"}"#, r#""delta":{}"#],
            &[r#""message":{"content":"One two"}"#],
        ],
        2,
    );
    check(
        &[
            &[
                r#""delta":{"reasoning":"One two"}"#,
                r#""message":{"reasoning_content":"One two"}"#,
            ],
            &[
                r#""delta":{"content":" three"}"#,
                r#""message":{"reasoning_content":"One two","content":" three"}"#,
            ],
        ],
        3,
    );
}

#[test]
fn a_message_counts_where_its_choice_had_no_delta() {
    check(
        &[
            &[r#""message":{"content":"One two"}"#],
            &[r#""message":{"content":" three"}"#],
        ],
        3,
    );
    check(&[&[r#""delta":null"#, r#""message":{"content":"One two"}"#]], 2);
    // One choice's deltas are none of another.
    let two = concat!(
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"One\"}}]}\n\n",
        "data: {\"choices\":[{\"index\":1,\"message\":{\"content\":\" two three\"}},{\"index\":0,\"message\":{\"content\":\"One\"}}]}\n\n",
    );
    let (_, tap) = pass(&[two.as_bytes()], TapOptions::default());
    assert_eq!(tap.delivered().0, 3);
}

#[test]
fn the_text_of_a_choice_beside_its_delta_counts_once() {
    check(
        &[
            &[r#""index":0"#, r#""text":"One""#, r#""delta":{"content":"One"}"#],
            &[
                r#""index":0"#,
                r#""text":" two""#,
                r#""delta":{"content":" two","reasoning":" why"}"#,
            ],
            &[r#""index":0"#, r#""text":"""#, r#""delta":{"content":" three"}"#],
            &[r#""index":0"#, r#""text":" four""#, r#""delta":{"content":""}"#],
            &[r#""index":0"#, r#""text":" five""#],
        ],
        6,
    );
    // The longer of the two.
    check(&[&[r#""text":"One two three""#, r#""delta":{"content":"One"}"#]], 3);
    check(&[&[r#""text":"One""#, r#""delta":{"content":"One two three"}"#]], 3);
}

/// Perplexity's whole answers have a delta too, with nothing in it.
#[test]
fn a_whole_answer_is_counted_by_its_message_whatever_its_delta() {
    for (choice, delivered) in [
        (r#""delta":{"content":""},"message":{"content":"One two"}"#, 2),
        (r#""message":{"content":"One two"},"delta":{"content":""}"#, 2),
        (
            r#""message":{"content":"One two"},"delta":{"content":"One two"},"text":"One two""#,
            2,
        ),
    ] {
        let answer = format!(r#"{{"choices":[{{"index":0,{choice}}},{{{choice},"index":1}}]}}"#);
        for cut in 0..=answer.len() {
            let mut tap = WholeTap::new(Encoding::O200k);
            tap.chunk(&answer.as_bytes()[..cut]);
            tap.chunk(&answer.as_bytes()[cut..]);
            tap.end();
            assert_eq!(tap.delivered().0, 2 * delivered, "{answer}, cut at {cut}");
        }
    }
}

/// The short way is for events of which one text is counted, whatever stands elsewhere.
#[test]
fn an_event_with_a_message_is_no_usual_one() {
    let first = "data: {\"choices\":[{\"delta\":{\"content\":\"\"},\"message\":{\"content\":\"One\"}}]}\n\n";
    let second = first.replace("One", "One two");
    let (_, tap) = pass(&[first.as_bytes(), second.as_bytes()], TapOptions::default());
    assert_eq!(tap.delivered().0, 1, "the second repeats what the choice has said");
}

#[test]
fn an_answer_is_at_its_finish_until_text_follows() {
    let at_finish = |events: &[&str]| {
        let (_, tap) = pass(&[events.concat().as_bytes()], TapOptions::default());
        let is_complete = events.last().is_some_and(|event| *event != DELTA);
        assert_eq!(tap.complete_at().is_some(), is_complete, "{events:?}");
        tap.is_at_finish()
    };
    assert!(!at_finish(&[DELTA]));
    assert!(at_finish(&[DELTA, STOP]));
    assert!(at_finish(&[DELTA, STOP, USAGE]));
    assert!(!at_finish(&[DELTA, STOP, DELTA]));
    assert!(
        !at_finish(&[DELTA, STOP, DELTA, STOP]),
        "it has gone on behind its finish"
    );
    let options = TapOptions {
        choices: 2,
        ..TapOptions::default()
    };
    let (_, tap) = pass(&[DELTA.as_bytes(), STOP.as_bytes()], options);
    assert!(!tap.is_at_finish(), "another choice goes on");
}
