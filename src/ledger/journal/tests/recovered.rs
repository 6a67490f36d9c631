//! What is known of the calls of a dead process once another has billed them, however many there were and wherever they lay.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::ledger::sqlite::Database;
use crate::ledger::tests::rig::{receipts_of, request_at};
use crate::pure::receipt::{BilledBy, EndpointName, Receipt};

#[test]
fn a_receipt_says_where_the_call_came_in_and_at_which_price() {
    let mut rig = Rig::new();
    let all = [Endpoint::Chat, Endpoint::ChatStream, Endpoint::Embeddings];
    let process = rig.process();
    let holds = (1..).zip(all).map(|(n, endpoint)| {
        let intent = Intent {
            text_bytes: 0,
            endpoint,
            ..process.intent(request(n, "1").id)
        };
        let mut hold = process.call_of(n, process.journal.begin(&intent, PROMPT).unwrap());
        hold.pass(CompletionTokens(n), Some(PromptTokens(9)));
        hold
    });
    die(holds.collect());
    rig.restart();
    let process = rig.process();
    let mut receipts = receipts_of(&process.ledger, &process.caller.account.id);
    receipts.sort_by_key(|receipt| receipt.billed.completion_tokens);
    assert_eq!(receipts.len(), all.len());
    for (receipt, endpoint) in receipts.iter().zip(all) {
        let call = &receipt.billed.call;
        assert_eq!(call.endpoint, Some(EndpointName::from(endpoint)));
        let prices = (call.prompt_price, call.completion_price);
        assert_eq!(prices, (Some(pricing().prompt), Some(pricing().completion)));
        assert_eq!((call.ended, call.ending), (None, None), "nobody knows that");
    }
}

/// A journal has neither the kinds of tokens, nor the tier, nor what the provider said that the call cost, nor who counted.
#[test]
fn a_debit_that_stood_has_prices_only_where_they_give_its_cost_and_nobody_knows_by_what_it_was() {
    let mut rig = Rig::new();
    let process = rig.process();
    let Ledger::Embedded(store) = &process.ledger else {
        panic!()
    };
    // Nobody reported anything of this one; of the other its provider may have reported both sides.
    let [mut counted, mut reported] = [1, 2].map(|n| rig.call(n));
    counted.pass(CompletionTokens(7), None);
    reported.pass(CompletionTokens(7), Some(PromptTokens(100)));
    let usual = cost(9, 5);
    let other = usual.saturating_add(Credits::from_pico(1));
    for (n, cost) in (3..).zip([usual, other]) {
        let mut entry = process.begin(n, PROMPT);
        let debit = Debit {
            cost,
            ..debit_of(&counted, 9, 5)
        };
        entry.owe(&debit, CallNumber::new(store.producer(), n));
    }
    die(vec![counted, reported]);
    rig.restart();
    let process = rig.process();
    let receipts = receipts_of(&process.ledger, &process.caller.account.id);
    let told = |cost: Credits| {
        let of = |receipt: &&Receipt| receipt.billed.cost == cost;
        let billed = &receipts.iter().find(of).unwrap().billed;
        let prices = (billed.call.prompt_price, billed.call.completion_price);
        (prices, billed.billed_by())
    };
    let prices = (Some(pricing().prompt), Some(pricing().completion));
    assert_eq!(receipts.len(), 4);
    assert_eq!(told(usual), (prices, None));
    assert_eq!(told(other), ((None, None), None));
    assert_eq!(told(cost(8, 7)), (prices, Some(BilledBy::Count)));
    assert_eq!(told(cost(100, 7)), (prices, None));
}

/// More than one segment of the journal has.
#[test]
fn thousands_of_calls_are_each_billed() {
    let mut rig = Rig {
        folder: tempfile::tempdir().unwrap(),
        process: None,
    };
    rig.start("100");
    let delivered = |n: u64| n % 500 + 1;
    let holds: Vec<Hold> = (0..5000)
        .map(|n| {
            let mut hold = rig.call(n);
            hold.pass(CompletionTokens(delivered(n)), Some(PromptTokens(9)));
            hold
        })
        .collect();
    assert_eq!(rig.process().journal.depth(), 5000);
    die(holds);
    let report = rig.restart().recovered.clone();
    assert_eq!((report.settled, report.released), (5000, 0));
    assert_eq!(report.refused, Vec::<String>::new());
    let process = rig.process();
    let spent = (0..5000).fold(Credits::ZERO, |sum, n| sum.saturating_add(cost(9, delivered(n))));
    let figures = block_on(process.caller.figures()).unwrap();
    assert_eq!(
        (figures.balance, figures.held),
        (credits("100").saturating_sub(spent), Credits::ZERO)
    );
    let receipts = receipts_of(&process.ledger, &process.caller.account.id);
    let mut tokens: Vec<u64> = receipts
        .iter()
        .map(|receipt| receipt.billed.completion_tokens)
        .collect();
    let mut expected: Vec<u64> = (0..5000).map(delivered).collect();
    tokens.sort_unstable();
    expected.sort_unstable();
    assert_eq!(tokens, expected);
}

#[test]
fn a_prompt_that_lies_in_a_later_segment_of_its_file_is_counted() {
    let mut rig = Rig::new();
    let large = vec![b'p'; 1 << 20];
    let process = rig.process();
    let mut holds: Vec<Hold> = (1..=8).map(|n| process.call(n, &large)).collect();
    let mut last = process.call(9, PROMPT);
    last.pass(CompletionTokens(2), None);
    holds.push(last);
    let length = std::fs::metadata(rig.files("prompts").first().unwrap()).unwrap().len();
    assert!(length > 8 << 20, "the file has grown");
    die(holds);
    let report = rig.restart().recovered.clone();
    assert_eq!((report.settled, report.released), (1, 8));
    assert_eq!(rig.spent(), cost(8, 2));
}

/// The thread beside the requests finds the journals of processes that die while it runs.
#[test]
fn who_runs_bills_the_calls_of_a_process_that_dies_beside_it() {
    let mut rig = Rig::new();
    let folder = rig.folder.path().to_owned();
    let process = rig.process.take().unwrap();
    let beside = Process {
        ledger: process.ledger.clone(),
        journal: Journal::open(&folder),
        caller: process.caller.clone(),
        recovered: RecoverReport::default(),
    };
    let mut hold = beside.call(1, PROMPT);
    hold.pass(CompletionTokens(5), None);
    die(vec![hold]);
    drop(beside);
    let stopped = AtomicBool::new(false);
    let figures = || block_on(process.caller.figures()).unwrap();
    std::thread::scope(|threads| {
        let keeps = threads.spawn(|| recover::keep(&process.journal, &process.ledger, &stopped));
        let until = Instant::now() + Duration::from_secs(30);
        while figures().balance == credits("10") && !keeps.is_finished() && Instant::now() < until {
            // Between two looks: it has its rounds, and makes none sooner for being woken.
            std::thread::park_timeout(Duration::from_millis(1));
        }
        stopped.store(true, Ordering::Release);
        keeps.thread().unpark();
    });
    let figures = figures();
    assert_eq!(
        (credits("10").saturating_sub(figures.balance), figures.held),
        (cost(8, 5), Credits::ZERO)
    );
}

#[test]
fn what_a_process_before_holds_is_kept_while_it_lives_and_given_back_after() {
    let mut rig = Rig::new();
    let folder = rig.folder.path().to_owned();
    let (running, ended) = (rig.call(1), rig.call(2));
    let old = rig.process.take().unwrap();
    let Ledger::Embedded(store) = &old.ledger else { panic!() };
    store.hand_over().unwrap();
    let new = Ledger::Embedded(Embedded::open(&folder.join("ledger.db"), Clock::manual(NOW)).unwrap());
    follow::hold_for_predecessors(&folder, &new);
    let caller = caller_of(&new, "acme", "0", Default::default());
    let held = || block_on(caller.figures()).unwrap().held;
    let both = running.amount().saturating_add(ended.amount());
    assert_eq!(held(), both);
    assert_eq!(recover(&folder, &new).journals, 0);
    assert_eq!(held(), both, "it lives");
    // Its end is never followed: what it held besides its open calls goes with it.
    ended.release();
    die(vec![running]);
    drop(old);
    let report = recover(&folder, &new);
    assert_eq!((report.journals, report.released), (1, 1));
    assert_eq!(held(), Credits::ZERO);
    audit_is_clean(&new);
}

/// The process before ended by itself, and left no journal: what is still held for its calls is given back, though this process has a journal.
#[test]
fn what_a_process_before_held_is_given_back_when_only_the_own_journal_is_left() {
    let mut rig = Rig::new();
    let folder = rig.folder.path().to_owned();
    let hold = rig.call(1);
    let old = rig.process.take().unwrap();
    let Ledger::Embedded(store) = &old.ledger else { panic!() };
    store.hand_over().unwrap();
    let new = Ledger::Embedded(Embedded::open(&folder.join("ledger.db"), Clock::manual(NOW)).unwrap());
    follow::hold_for_predecessors(&folder, &new);
    let own = Journal::open(&folder);
    let caller = caller_of(&new, "acme", "0", Default::default());
    let held = || block_on(caller.figures()).unwrap().held;
    let amount = hold.amount();
    assert_eq!(recover::recover_others(&own, &new).journals, 0);
    assert_eq!(held(), amount, "it lives");
    hold.release();
    old.journal.close();
    drop(old);
    assert_eq!(rig.files("journal").len(), 1, "the own one");
    assert_eq!(recover::recover_others(&own, &new), RecoverReport::default());
    assert_eq!(held(), Credits::ZERO);
}

#[test]
fn a_dead_process_journal_stays_until_its_last_call_is_resolved() {
    let mut rig = Rig::new();
    die(vec![rig.call(1), rig.call(2)]);
    rig.process = None;
    let path = rig.files("journal").remove(0);
    let there = || (path.exists(), path.with_extension("prompts").exists());
    let file = super::damage::adopted(&path);
    file.count_found();
    file.count_found();
    assert_eq!((file.in_use(), file.unknown()), (2, 2));
    file.release(0, Default::default());
    assert_eq!((file.in_use(), there()), (1, (true, true)));
    file.release(1, Default::default());
    assert_eq!((file.in_use(), there()), (0, (false, false)));
}

/// A debit of which nobody knows whether it was taken: the journal of this process keeps it for the next start.
#[test]
fn a_call_that_is_neither_billed_nor_given_back_stays_in_the_journal() {
    let mut rig = Rig::new();
    let process = rig.process();
    let [kept, released] = [1, 2].map(|n| process.begin_as(request_at(n, NOW), PROMPT));
    let released = process.call_of(2, released);
    kept.suspend();
    released.release();
    assert_eq!(process.journal.depth(), 1);
    process.journal.close();
    assert_eq!(rig.files("journal").len(), 1, "it stands there for the next start");
    // It was never granted anything, so the next start gives it back, and the file goes.
    let recovered = rig.restart().recovered.clone();
    assert_eq!((recovered.journals, recovered.released), (1, 1));
}

/// A call of the process before that was granted nothing yet, and one that costs nothing: who brings the second one's idempotency key is told
/// that it runs.
#[test]
fn nothing_is_held_for_calls_that_hold_nothing_and_they_are_known_to_run() {
    let mut rig = Rig::new();
    let folder = rig.folder.path().to_owned();
    let asks = rig.process().begin(1, PROMPT);
    let free = {
        let (process, wanted) = (rig.process(), request(2, "0"));
        let reserved = process.caller.reserve_journaled(&wanted, process.begin(2, PROMPT));
        block_on(reserved).unwrap().unwrap()
    };
    assert_eq!(free.amount(), Credits::ZERO);
    let old = rig.process.take().unwrap();
    let Ledger::Embedded(store) = &old.ledger else { panic!() };
    store.hand_over().unwrap();
    let new = Embedded::open(&folder.join("ledger.db"), Clock::manual(NOW)).unwrap();
    let ledger = Ledger::Embedded(Arc::clone(&new));
    follow::hold_for_predecessors(&folder, &ledger);
    let runs = || new.holds_of_predecessors();
    assert_eq!(runs(), [1, 2].map(|n| request(n, "1").id).into());
    let figures = block_on(caller_of(&ledger, "acme", "0", Default::default()).figures());
    assert_eq!(figures.unwrap().held, Credits::ZERO);
    free.release();
    follow::follow_predecessors(&folder, &new, None, &mut Default::default());
    assert_eq!(runs(), [request(1, "1").id].into());
    drop(asks);
}

/// Its answer had begun and came to nothing, so it is free. That is so for whoever recovers it as well, while nobody has written the
/// release; and when an older copy of the journal comes back.
#[test]
fn a_call_that_was_given_back_after_its_answer_had_begun_is_free_for_whoever_recovers_it() {
    let mut rig = Rig::new();
    let folder = rig.folder.path().to_owned();
    let mut hold = rig.call(1);
    hold.pass(CompletionTokens(0), None);
    let older: Vec<(&str, Vec<u8>)> = ["journal", "prompts"]
        .into_iter()
        .flat_map(|extension| rig.files(extension).into_iter().map(move |path| (extension, path)))
        .map(|(extension, path)| (extension, std::fs::read(path).unwrap()))
        .collect();
    let old = rig.process.take().unwrap();
    let Ledger::Embedded(store) = &old.ledger else { panic!() };
    // Nobody empties its queue from here on.
    store.hand_over().unwrap();
    let new = Ledger::Embedded(Embedded::open(&folder.join("ledger.db"), Clock::manual(NOW)).unwrap());
    hold.release();
    drop(old);
    let caller = caller_of(&new, "acme", "0", Default::default());
    let figures = || {
        let figures = block_on(caller.figures()).unwrap();
        (figures.balance, figures.held)
    };
    let report = recover(&folder, &new);
    assert_eq!((report.settled, report.already, report.released), (0, 0, 1));
    assert_eq!(figures(), (credits("10"), Credits::ZERO));
    assert_eq!(receipts_of(&new, &caller.account.id).len(), 0);
    for (extension, bytes) in older {
        std::fs::write(folder.join(format!("{DEAD}.{extension}")), bytes).unwrap();
    }
    let report = recover(&folder, &new);
    assert_eq!((report.settled, report.already, report.released), (0, 1, 0));
    assert_eq!(figures(), (credits("10"), Credits::ZERO));
    audit_is_clean(&new);
}

/// A journal that is put back after its gateway was silent for a month: the ledger has forgotten what it took of it.
#[test]
fn a_journal_of_a_gateway_that_was_forgotten_is_kept_and_bills_nothing() {
    let mut rig = Rig::new();
    let mut hold = rig.call(1);
    hold.pass(CompletionTokens(5), None);
    let copies = ["journal", "prompts"].map(|extension| {
        let file = rig.files(extension).remove(0);
        let bytes = std::fs::read(&file).unwrap();
        (file, bytes)
    });
    let debit = debit_of(&hold, 8, 6);
    hold.settle(debit);
    let mut spent = rig.spent();
    // What is forgotten is as old by the last debit, and by when the ledger's owner last knew what time it is. It is once journals were
    // recovered: one whose journal is there at each start is known.
    for (number, days, is_known, already) in [
        (2, 29, true, Some(1)),
        (3, 31, true, Some(1)),
        (4, 31, true, Some(1)),
        (5, 31, false, Some(1)),
        (6, 62, false, None),
        (7, 62, false, None),
        (8, 62, false, Some(0)),
    ] {
        rig.process = None;
        if !is_known {
            let file = Database::open(&rig.folder.path().join("ledger.db")).unwrap();
            file.keep_known_time(NOW.plus_millis(days * 86_400_000)).unwrap();
        }
        for (file, bytes) in copies.iter().filter(|_| already.is_some()) {
            std::fs::write(file, bytes).unwrap();
        }
        rig.start_at("0", NOW.plus_millis(days * 86_400_000));
        let report = rig.process().recovered.clone();
        assert_eq!(
            (report.settled, report.already, report.refused.len()),
            (0, already.unwrap_or(0), usize::from(already == Some(0))),
            "{number}: {days} {is_known}"
        );
        assert_eq!(rig.spent(), spent);
        let hold = rig.call(number);
        let debit = debit_of(&hold, 8, 6);
        hold.settle(debit);
        spent = rig.spent();
    }
    assert_eq!(rig.files("refused").len(), 1);
}
