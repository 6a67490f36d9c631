//! What an earlier version wrote opens, is recovered, balances and goes on: `tests/fixtures` has a ledger of each store that commit d3f6824
//! wrote, with the journal of a gateway that was killed while calls ran.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};

use super::redis_server::RedisServer;
use super::rig::{audit_is_clean, block_on, caller_of, credits, debit, patient, request_id};
use crate::clock::Clock;
use crate::ledger::journal::recover::recover;
use crate::ledger::redis::RedisLedger;
use crate::ledger::{Caller, Ledger, embedded};
use crate::pure::account::ReserveRequest;
use crate::pure::money::Credits;
use crate::pure::time::{Period, Timestamp};

/// 2026-11-22T21:30:30Z: the calls of the fixtures ran some seconds before.
const THEN: Timestamp = Timestamp(1_795_383_030_000);

fn fixture(store: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/d3f6824")
        .join(store)
}

fn copy(store: &str, to: &Path) {
    for file in std::fs::read_dir(fixture(store)).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// What an answer costs that had passed on so many tokens: 17 prompt tokens, at the prices of the journal.
fn answered(tokens: i64) -> i64 {
    17 * 3_450_000 + tokens * 17_250_000
}

fn balance(caller: &Caller) -> Credits {
    let figures = block_on(caller.figures()).unwrap();
    assert_eq!(figures.held, Credits::ZERO);
    figures.balance
}

fn goes_on(ledger: &Ledger, caller: &Caller) {
    let before = balance(caller);
    let request = ReserveRequest {
        id: request_id(77),
        expires: THEN.plus_millis(60_000),
        ..super::rig::request(77, "1")
    };
    block_on(caller.reserve(&request))
        .unwrap()
        .unwrap()
        .settle(debit("0.5"));
    assert_eq!(balance(caller), before.saturating_sub(credits("0.5")));
    audit_is_clean(ledger);
}

#[test]
fn an_embedded_ledger_of_an_earlier_version_opens_recovers_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    copy("embedded", folder.path());
    let path = folder.path().join("ledger.db");
    let mut expected = 9_993_841_750_000 - answered(19) - answered(13) - answered(7) - 879_750_000;
    for start in 0..2 {
        let store = embedded::Embedded::open(&path, Clock::manual(THEN)).unwrap();
        let ledger = Ledger::Embedded(store);
        let report = recover(folder.path(), &ledger);
        assert_eq!(report.refused, [] as [String; 0]);
        if start == 0 {
            assert_eq!((report.journals, report.settled, report.released), (1, 4, 2));
        }
        let caller = caller_of(&ledger, "demo", "0", Default::default());
        assert_eq!(balance(&caller).pico(), expected);
        let calls = block_on(ledger.usage(&caller.account.id, None, Period::All)).unwrap();
        assert_eq!(calls.iter().map(|row| row.requests).sum::<u64>(), 11 + start);
        goes_on(&ledger, &caller);
        expected -= 500_000_000_000;
        ledger.close();
    }
}

#[test]
fn a_ledger_in_redis_of_an_earlier_version_recovers_and_goes_on() {
    let server = RedisServer::start();
    restore(&server);
    let folder = tempfile::tempdir().unwrap();
    copy("redis", folder.path());
    let ledger = Ledger::Redis(RedisLedger::connect(&server.url(), patient(Clock::manual(THEN))).unwrap());
    audit_is_clean(&ledger);
    let report = recover(folder.path(), &ledger);
    assert_eq!(report.refused, [] as [String; 0]);
    assert_eq!((report.journals, report.released), (1, 2));
    let caller = caller_of(&ledger, "acme", "0", Default::default());
    let expected = 9_994_990_600_000 - answered(28) - answered(18);
    assert_eq!(balance(&caller).pico(), expected);
    let calls = block_on(ledger.usage(&caller.account.id, None, Period::All)).unwrap();
    assert_eq!(calls.iter().map(|row| row.requests).sum::<u64>(), 8);
    let idle = caller_of(&ledger, "idle", "0", Default::default());
    assert_eq!(balance(&idle), credits("3"));
    goes_on(&ledger, &caller);
}

/// Writes the commands of the fixture to the server.
fn restore(server: &RedisServer) {
    let commands = std::fs::read(fixture("redis").join("ledger.resp")).unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream.write_all(&commands).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    assert!(!answers.contains('-') && answers.lines().count() > 5, "{answers}");
}
