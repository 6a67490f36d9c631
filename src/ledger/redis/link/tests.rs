//! What an error of a call means, and which connections are used.

use super::*;
use crate::ledger::redis::shards::Shards;
use crate::ledger::tests::redis_server::RedisServer;
use crate::ledger::tests::rig::block_on;

#[test]
fn another_connection_is_made_where_only_that_can_help() {
    let server = |kind| RedisError::from((ErrorKind::Server(kind), "told"));
    let io = |kind: std::io::ErrorKind| RedisError::from(std::io::Error::from(kind));
    for error in [
        server(ServerErrorKind::ReadOnly),
        server(ServerErrorKind::MasterDown),
        io(std::io::ErrorKind::BrokenPipe),
        io(std::io::ErrorKind::ConnectionReset),
    ] {
        assert!(needs_another(&error), "{error}");
    }
    for error in [
        server(ServerErrorKind::ResponseError),
        server(ServerErrorKind::NoScript),
        server(ServerErrorKind::BusyLoading),
        server(ServerErrorKind::TryAgain),
    ] {
        assert!(!needs_another(&error), "{error}");
    }
}

#[test]
fn redis_serves_where_only_the_call_failed() {
    let server = |kind| RedisError::from((ErrorKind::Server(kind), "told"));
    for kind in [
        ServerErrorKind::ResponseError,
        ServerErrorKind::NoScript,
        ServerErrorKind::TryAgain,
        ServerErrorKind::Moved,
    ] {
        assert!(is_answer(&server(kind)), "{kind:?}");
    }
    for kind in [
        ServerErrorKind::BusyLoading,
        ServerErrorKind::ReadOnly,
        ServerErrorKind::MasterDown,
        ServerErrorKind::ClusterDown,
    ] {
        assert!(!is_answer(&server(kind)), "{kind:?}");
    }
    assert!(!is_answer(&RedisError::from(std::io::Error::from(
        std::io::ErrorKind::BrokenPipe
    ))));
}

/// Five accounts whose key had another type were taken for a server that does not answer.
#[test]
fn of_the_other_codes_only_that_of_a_wrong_type_is_about_the_call_alone() {
    let told = |code: &str| {
        let answer = redis::parse_redis_value(format!("-{code} told\r\n").as_bytes()).unwrap();
        is_answer(&answer.extract_error().unwrap_err())
    };
    for code in ["WRONGTYPE", "ERR", "NOPERM"] {
        assert!(told(code), "{code}");
    }
    for code in [
        "OOM",
        "MISCONF",
        "NOREPLICAS",
        "BUSY",
        "NOAUTH",
        "LOADING",
        "READONLY",
        "CLUSTERDOWN",
    ] {
        assert!(!told(code), "{code}");
    }
}

#[test]
fn only_an_unknown_script_is_sent_by_its_text() {
    let server = |kind| RedisError::from((ErrorKind::Server(kind), "told"));
    assert!(is_unknown_script(&server(ServerErrorKind::NoScript)));
    assert!(!is_unknown_script(&server(ServerErrorKind::ResponseError)));
}

/// It may go on by itself, and answer.
#[test]
fn a_connection_to_a_master_that_was_replaced_is_not_used_again() {
    let server = RedisServer::start();
    let within = Duration::from_secs(10);
    let address = Address::parse(&server.url(), None, within).unwrap();
    let shards = Shards::one(address, 10, crate::clock::monotonic());
    let (line, shard) = (Line::default(), shards.of_slot(0));
    let used = || {
        let (command, script) = (redis::cmd("PING"), None);
        block_on(line.ask(&shard, &Call { command, script }, Sent::Plain, within)).unwrap();
        line.found().map(|(_, number)| number)
    };
    assert_eq!((used(), used()), (Some(1), Some(1)));
    shard.address.master_was_replaced();
    assert_eq!((used(), used()), (Some(2), Some(2)));
}

#[test]
fn a_ledgers_links_are_forgotten_with_it_and_those_of_others_stay() {
    let link = |ledger| block_on(async { Link::of_runtime(ledger) });
    let (gone, other) = (link(u64::MAX), link(u64::MAX - 1));
    assert!(Arc::ptr_eq(&gone, &link(u64::MAX)));
    Link::forget_ledger(u64::MAX);
    assert!(!Arc::ptr_eq(&gone, &link(u64::MAX)));
    assert!(Arc::ptr_eq(&other, &link(u64::MAX - 1)));
}
