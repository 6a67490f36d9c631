//! Statements of much, and beside gateways of earlier versions that post at the same time.

use std::sync::atomic::{AtomicBool, Ordering};

use super::accounts::earlier_top_up;
use super::{node, patient};
use crate::ledger::Ledger;
use crate::ledger::admin::credits::{CreditOp, STATEMENT_ROWS_MAX, Statement};
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::ledger::tests::redis_server::RedisServer;
use crate::ledger::tests::rig::{block_on, caller_of, credits, redis_of, run};
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;
use crate::pure::time::Day;

fn statement(ledger: &Ledger, from: Day, to: Day) -> Result<Statement, AdminError> {
    let account = "acme".parse().unwrap();
    match run(ledger, AdminOp::Credit(CreditOp::Statement { account, from, to }))? {
        AdminReply::Statement(statement) => Ok(statement),
        other => panic!("{other:?}"),
    }
}

/// 30,000 entries and 3,000 rows came after the days that are asked for, and are more than one statement reads: those of the days are told.
#[test]
fn what_came_later_does_not_hide_an_old_statement() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    caller_of(&ledger, "acme", "1", LimitOverrides::default());
    let shared = &redis_of(&ledger).shared;
    let today = crate::clock::Clock::System.now().day();
    let fill = r"
local today = tonumber(ARGV[1])
local function post(reference, at)
  redis.call('HSET', KEYS[1], 't' .. reference, string.format('1000000000000 %d top_up 0', at))
  redis.call('ZADD', KEYS[2], string.format('%d', at), reference)
  redis.call('HINCRBY', KEYS[1], 'avail', '1000000000000')
end
local function debit(day, model)
  redis.call('HSET', KEYS[1], 'u' .. day .. ' ' .. model, '1 3 4', 'c' .. day .. ' ' .. model, '2000000000')
  redis.call('HSET', KEYS[1], 'd' .. day, (redis.call('HGET', KEYS[1], 'd' .. day) or '') .. model .. '\n')
  redis.call('HINCRBY', KEYS[1], 'avail', '-2000000000')
end
for n = 1, 3 do post('old ' .. n, (today - 500) * 86400000 + n) end
for n = 1, 30000 do post('new ' .. n, (today - 400) * 86400000 + n) end
debit(today - 500, 'a/m')
for day = today - 400, today - 101 do
  for n = 1, 10 do debit(day, 'm/' .. n) end
end
redis.call('HSET', KEYS[1], 'first', today - 500, 'last', today - 101)
return 'filled'
";
    let mut command = redis::cmd("EVAL");
    command
        .arg(fill)
        .arg(2)
        .arg("tg1:{acme}")
        .arg("tg1:{acme}:credits")
        .arg(today.0);
    block_on(async { shared.command(&shared.link(), command).await.unwrap() });
    let old = statement(&ledger, Day(today.0 - 501), Day(today.0 - 499)).unwrap();
    assert_eq!((old.entries.len(), old.debits.len()), (3, 1));
    assert_eq!((old.opening, old.closing), (Credits::ZERO, credits("2.998")));
    let later = statement(&ledger, Day(today.0 - 300), Day(today.0 - 102)).unwrap();
    assert_eq!((later.entries.len(), later.debits.len()), (0, 1_990));
    let debited = later.opening.checked_sub(later.closing).unwrap();
    assert_eq!(debited, credits("3.98"));
    let now = statement(&ledger, today, today.next()).unwrap();
    assert_eq!(now.closing, credits("29997.998"));
    let all = statement(&ledger, Day(today.0 - 450), Day(today.0 - 350));
    assert!(
        matches!(&all, Err(AdminError::Invalid(text)) if text.contains("fewer days")),
        "{all:?}"
    );
}

/// Entries of an earlier version, of before the days that are asked for, take the places of those that a statement was to read: it begins
/// anew once they are found, and is not refused for them.
#[test]
fn what_an_earlier_version_posted_long_ago_counts_as_no_row() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    caller_of(&ledger, "acme", "1", LimitOverrides::default());
    let shared = &redis_of(&ledger).shared;
    let today = crate::clock::Clock::System.now().day();
    let fill = r"
local function post(reference, day, is_ordered)
  local at = day * 86400000
  redis.call('HSET', KEYS[1], 't' .. reference, string.format('1000000000000 %d top_up 0', at))
  if is_ordered then redis.call('ZADD', KEYS[2], string.format('%d', at), reference) end
end
local today, most = tonumber(ARGV[1]), tonumber(ARGV[2])
for n = 1, most do post('within ' .. n, today - 200, true) end
for n = 1, 9 do
  post('later ' .. n, today - 100, true)
  post('old ' .. n, today - 500, false)
end
redis.call('HINCRBY', KEYS[1], 'avail', string.format('%d000000000000', most + 18))
return 'filled'
";
    let mut command = redis::cmd("EVAL");
    command
        .arg(fill)
        .arg(2)
        .arg("tg1:{acme}")
        .arg("tg1:{acme}:credits")
        .arg(today.0)
        .arg(STATEMENT_ROWS_MAX);
    block_on(async { shared.command(&shared.link(), command).await.unwrap() });
    let told = statement(&ledger, Day(today.0 - 300), Day(today.0 - 150)).unwrap();
    assert_eq!((told.entries.len(), told.debits.len()), (STATEMENT_ROWS_MAX, 0));
    assert_eq!((told.opening, told.closing), (credits("9"), credits("20009")));
}

/// Says so however its thread ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A gateway of an earlier version posts while statements are read and another gateway lists the entries: no statement misses one.
#[test]
fn no_statement_misses_what_an_earlier_version_posts() {
    let server = RedisServer::start();
    let (ledger, other) = (node(&server, patient()), node(&server, patient()));
    caller_of(&ledger, "acme", "1", LimitOverrides::default());
    let today = crate::clock::Clock::System.now().day();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _over = Over(&is_over);
            let shared = &redis_of(&other).shared;
            for n in 0..1_000 {
                assert!(earlier_top_up(shared, 1_000_000_000_000, &format!("old {n}")).starts_with("added"));
            }
        });
        scope.spawn(|| {
            let shared = &redis_of(&other).shared;
            let account = "acme".parse().unwrap();
            while !is_over.load(Ordering::Relaxed) {
                block_on(async { shared.complete_order(&shared.link(), &account).await.unwrap() });
            }
        });
        let mut told = 0;
        while !is_over.load(Ordering::Relaxed) {
            match statement(&ledger, Day(today.0 - 1), today.next()) {
                Ok(statement) => {
                    assert_eq!(statement.opening, Credits::ZERO, "an entry is missing");
                    told += 1;
                }
                Err(AdminError::Store(text)) => assert!(text.contains("faster"), "{text}"),
                other => panic!("{other:?}"),
            }
        }
        println!("{told} statements");
    });
    let statement = statement(&ledger, Day(today.0 - 1), today.next()).unwrap();
    assert_eq!((statement.opening, statement.closing), (Credits::ZERO, credits("1001")));
    assert_eq!(statement.entries.len(), 1_001);
}
