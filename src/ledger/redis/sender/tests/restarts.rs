//! A Redis that comes back: what is told of calls of this process.

use super::known::{balance, send_all};
use super::lost::errors;
use super::*;
use crate::ledger::tests::redis_server::until;

/// Calls of this process end under these numbers, in this order, and owe 1 each.
fn settle(
    settler: &mut Settler,
    server: &RedisServer,
    account: &Arc<Account>,
    numbers: impl IntoIterator<Item = u64>,
) -> Vec<String> {
    errors(|| {
        for number in numbers {
            settler.shard.queue.settle(settlement(account, number));
        }
        send_all(settler, server);
    })
}

/// Kills the server and starts it again, and has the settler go on. What it tells as errors.
fn restarted(settler: &mut Settler, server: &mut RedisServer) -> Vec<String> {
    server.restart();
    errors(|| {
        settler.asked.1 = 0;
        until("it is back", || block_on(settler.connection()).is_some());
        send_all(settler, server);
    })
}

/// After each restart, every debit of the minute before it was told as settled by another gateway.
#[test]
fn what_redis_had_acknowledged_here_is_not_told_as_anothers() {
    let mut server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always", "--save", ""]);
    let shared = opened(&server);
    let acme = make(&shared, "100");
    let mut settler = settler(&shared);
    assert_eq!(settle(&mut settler, &server, &acme, 1..=2), [""; 0]);
    for _ in 0..2 {
        assert_eq!(restarted(&mut settler, &mut server), [""; 0]);
        assert_eq!(balance(&shared, &acme), credits("98"));
    }
}
