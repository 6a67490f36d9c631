//! What happens to an account while its statement is read.

use super::*;
use crate::ledger::redis::link::Link;
use crate::ledger::tests::rig::{NOW, Rig, block_on, credits, redis_of, request};
use crate::pure::money::Credits;

#[test]
fn an_entry_that_comes_while_a_statement_is_read_is_in_it() {
    let rig = Rig::redis();
    let caller = rig.caller("1");
    let _hold = rig.reserve(&caller, &request(1, "0.5")).unwrap();
    let (shared, account) = (&redis_of(&rig.ledger).shared, &caller.account.id);
    let (link, days) = (Link::default(), (NOW.day(), NOW.day().next()));
    let begin = || block_on(shared.begin_statement(&link, account, days)).unwrap();
    let read = |begin: &Begin| block_on(shared.read_statement(&link, account, days, begin));
    let first = begin();
    rig.clock.advance(1);
    rig.credit(&caller, "3", "second").unwrap();
    let statement = read(&first).unwrap().expect("a statement");
    let references: Vec<&str> = statement.entries.iter().map(|entry| entry.reference.as_str()).collect();
    assert_eq!(references, ["first", "second"]);
    assert_eq!((statement.opening, statement.closing), (Credits::ZERO, credits("4")));
    // One of the moment at which it began may have been posted before.
    let second = begin();
    rig.credit(&caller, "5", "third").unwrap();
    assert_eq!(read(&second), Ok(None));
}

#[test]
fn a_statement_has_no_more_rows_than_its_bound() {
    let rig = Rig::redis();
    let caller = rig.caller("1");
    let (shared, account) = (&redis_of(&rig.ledger).shared, &caller.account.id);
    let (link, days) = (Link::default(), (NOW.day(), NOW.day()));
    let most = u64::try_from(STATEMENT_ROWS_MAX).unwrap();
    for (within, is_read) in [(most, true), (most + 1, false)] {
        let mut begin = block_on(shared.begin_statement(&link, account, days)).unwrap();
        begin.until = begin.before + within;
        let read = block_on(shared.read_statement(&link, account, days, &begin));
        assert_eq!(matches!(read, Ok(Some(_))), is_read, "{read:?}");
        assert_eq!(matches!(read, Err(AdminError::Invalid(_))), !is_read, "{read:?}");
    }
    let row = |day| DebitRow {
        day,
        model: "a/m".to_owned(),
        requests: 1,
        prompt_tokens: 1,
        completion_tokens: 1,
        cost: credits("1"),
    };
    let (day, later) = (NOW.day(), NOW.day().next());
    let mut parts = Parts {
        debits: vec![row(day); STATEMENT_ROWS_MAX - 1],
        ..Parts::default()
    };
    parts.debit(row(day), day).unwrap();
    parts.debit(row(later), day).unwrap();
    assert_eq!(parts.debited, i128::from(credits("1").pico()), "of a later day");
    assert!(matches!(parts.debit(row(day), day), Err(AdminError::Invalid(_))));
}
