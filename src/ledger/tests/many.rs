//! 100,000 accounts, and an account with 100,000 entries: what lists and searches take then. Times are printed; the bounds are for a build
//! without optimisation on a busy machine.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::redis_server::RedisServer;
use super::rig::{NOW, audit, caller_of, patient, run};
use crate::clock::Clock;
use crate::ledger::admin::accounts::{AccountOp, AccountPage, AccountQuery};
use crate::ledger::admin::credits::{CREDITS_MAX, CreditOp, CreditPage, STATEMENT_ROWS_MAX};
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::ledger::redis::RedisLedger;
use crate::ledger::{Ledger, embedded};
use crate::pure::time::Day;

const MANY: usize = 100_000;
/// Generous: an optimised build on an idle machine takes a thirtieth of it or less. What looks at each account for each page takes minutes.
const LIST_MAX: Duration = Duration::from_millis(6_000);

fn name(n: usize) -> String {
    format!("customer-{:05}", (n * 7_919) % MANY)
}

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = work();
    let took = start.elapsed();
    println!("{what}: {took:?}");
    assert!(took < LIST_MAX, "{what} took {took:?}");
    done
}

fn page(ledger: &Ledger, after: Option<&str>, search: Option<&str>) -> AccountPage {
    let query = AccountQuery {
        after: after.map(|name| name.parse().unwrap()),
        limit: 200,
        search: search.map(str::to_owned),
    };
    match run(ledger, AdminOp::Account(AccountOp::Page(query))).unwrap() {
        AdminReply::AccountPage(page) => page,
        other => panic!("{other:?}"),
    }
}

fn is_listed_and_found(store: &str, ledger: &Ledger) {
    let first = timed(&format!("{store}: the first page"), || page(ledger, None, None));
    assert_eq!((first.accounts.len(), first.next.is_some()), (200, true));
    for n in 0..3 {
        let next = timed(&format!("{store}: another page"), || {
            page(ledger, Some(&format!("customer-{:05}", 30_000 * n)), None)
        });
        let [first, ..] = next.accounts.as_slice() else {
            panic!("an empty page")
        };
        assert_eq!(first.record.id.as_str(), format!("customer-{:05}", 30_000 * n + 1));
    }
    let rare = timed(&format!("{store}: a rare name"), || page(ledger, None, Some("R-99999")));
    assert_eq!((rare.accounts.len(), rare.next), (1, None));
    let common = timed(&format!("{store}: a common name"), || page(ledger, None, Some("MER-0")));
    assert_eq!(common.accounts.len(), 200);
    let none = timed(&format!("{store}: no such name"), || page(ledger, None, Some("nobody")));
    assert_eq!(none, AccountPage::default());
    let (mut seen, mut after) = (0, None);
    while seen < 1_000 {
        let page = page(ledger, after.as_deref(), None);
        seen += page.accounts.len();
        after = page.next.map(|next| next.to_string());
    }
    caller_of(ledger, "a-new-one", "0", Default::default());
    let first = timed(&format!("{store}: after another was made"), || page(ledger, None, None));
    assert_eq!(first.accounts[0].record.id.as_str(), "a-new-one");
}

fn has_many_entries(store: &str, ledger: &Ledger) {
    let list = |before: Option<String>| {
        let (account, limit) = ("rich".parse().unwrap(), CREDITS_MAX);
        let op = CreditOp::List { account, limit, before };
        match run(ledger, AdminOp::Credit(op)).unwrap() {
            AdminReply::CreditPage(page) => page,
            other => panic!("{other:?}"),
        }
    };
    let start = Instant::now();
    let CreditPage { entries, next } = list(None);
    println!("{store}: the newest entries, looked at first: {:?}", start.elapsed());
    assert_eq!(entries[0].reference, format!("ref {:06}", MANY - 1));
    let next = timed(&format!("{store}: the next entries"), || list(next));
    assert_eq!(next.entries[0].reference, format!("ref {:06}", MANY - 1_001));
    timed(&format!("{store}: the newest entries"), || list(None));
    let (from, to, account) = (Day(NOW.day().0 - 300), NOW.day(), "rich".parse().unwrap());
    let told = timed(&format!("{store}: a statement of all of them"), || {
        run(ledger, AdminOp::Credit(CreditOp::Statement { account, from, to }))
    });
    let Err(AdminError::Invalid(text)) = told else {
        panic!("{told:?}");
    };
    assert!(text.contains(&STATEMENT_ROWS_MAX.to_string()), "{text}");
    let (from, account) = (NOW.day(), "rich".parse().unwrap());
    let start = Instant::now();
    let told = run(ledger, AdminOp::Credit(CreditOp::Statement { account, from, to }));
    println!("{store}: a statement of the last of them: {:?}", start.elapsed());
    let Ok(AdminReply::Statement(told)) = told else {
        panic!("{told:?}");
    };
    assert_eq!(told.entries.len(), 10_000);
    assert_eq!(told.closing.pico(), i64::try_from(MANY).unwrap());
    assert_eq!(told.opening.pico(), i64::try_from(MANY - 10_000).unwrap());
}

/// When the entry of this number was posted: 10,000 on each of the last ten days.
fn posted_at(n: usize) -> i64 {
    let before = i64::try_from((MANY - 1 - n) / 10_000).unwrap();
    NOW.plus_millis(-before * 86_400_000).0 + i64::try_from(n % 10_000).unwrap()
}

#[test]
fn an_embedded_ledger_with_100_000_accounts_is_listed_and_searched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let open = || Ledger::Embedded(embedded::Embedded::open(&path, Clock::manual(NOW)).unwrap());
    open().close();
    let mut file = rusqlite::Connection::open(&path).unwrap();
    let t = file.transaction().unwrap();
    {
        // As an earlier version writes them.
        let mut account = t
            .prepare(
                "INSERT INTO accounts (id, tier, balance, month, month_used, created) VALUES (?1, 'pro', ?2, 0, 0, 1)",
            )
            .unwrap();
        for n in 0..MANY {
            account.execute(rusqlite::params![name(n), 0]).unwrap();
        }
        account
            .execute(rusqlite::params!["rich", i64::try_from(MANY).unwrap()])
            .unwrap();
        let mut entry = t
            .prepare("INSERT INTO topups (account, reference, amount, at) VALUES ('rich', ?1, 1, ?2)")
            .unwrap();
        for n in 0..MANY {
            entry
                .execute(rusqlite::params![format!("ref {n:06}"), posted_at(n)])
                .unwrap();
        }
    }
    t.commit().unwrap();
    drop(file);
    let ledger = open();
    is_listed_and_found("embedded", &ledger);
    has_many_entries("embedded", &ledger);
    assert_eq!(audit(&ledger).findings, []);
    ledger.close();
}

#[test]
fn a_ledger_in_redis_with_100_000_accounts_is_listed_and_searched() {
    let server = RedisServer::start();
    let mut commands = String::new();
    let facts = "committed 0 used 0 month 0 tier pro created 1";
    for n in 0..MANY {
        let name = name(n);
        writeln!(commands, "SADD tg1:accounts {name}\r").unwrap();
        writeln!(commands, "HSET tg1:{{{name}}} avail 0 {facts}\r").unwrap();
    }
    writeln!(
        commands,
        "SADD tg1:accounts rich\r\nHSET tg1:{{rich}} avail {MANY} {facts}\r"
    )
    .unwrap();
    for n in 0..MANY {
        writeln!(commands, "HSET tg1:{{rich}} \"tref {n:06}\" \"1 {}\"\r", posted_at(n)).unwrap();
    }
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream.write_all(commands.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    assert!(!answers.contains('-'), "an error");
    let ledger = Ledger::Redis(RedisLedger::connect(&server.url(), patient(Clock::manual(NOW))).unwrap());
    is_listed_and_found("redis", &ledger);
    // Another gateway makes accounts: only those are read. A reading of all names is twenty scans.
    let other = Ledger::Redis(RedisLedger::connect(&server.url(), patient(Clock::manual(NOW))).unwrap());
    let scans = || {
        let stats = server.ask("INFO commandstats");
        let scans = stats.iter().find(|line| line.starts_with("cmdstat_sscan:"));
        scans.and_then(|line| line.split(['=', ',']).nth(1)).map(str::to_owned)
    };
    let before = scans();
    assert!(before.is_some());
    for n in 0..100 {
        caller_of(&other, &format!("a-made-{n:02}"), "0", Default::default());
        if n < 3 {
            let first = timed("redis: after another gateway made one", || {
                page(&ledger, None, Some("a-made-"))
            });
            assert_eq!(first.accounts.len(), n + 1);
        }
    }
    let first = timed("redis: after another gateway made many", || {
        page(&ledger, None, Some("a-made-"))
    });
    assert_eq!(first.accounts.len(), 100);
    assert_eq!(scans(), before);
    // One of an earlier version is in the set alone: then all are read again.
    server.ask("SADD tg1:accounts a-made-before");
    server.ask(&format!("HSET tg1:{{a-made-before}} avail 0 {facts}"));
    let first = timed("redis: after an earlier version made one", || {
        page(&ledger, None, Some("a-made-"))
    });
    assert_eq!(first.accounts.len(), 101);
    assert_ne!(scans(), before);
    has_many_entries("redis", &ledger);
    let slow = server.ask("SLOWLOG GET 5");
    println!("redis' slowest: {slow:?}");
}
