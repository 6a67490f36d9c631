//! Whether the ledger's user may do at each server what the ledger does there: tried once, when it is opened.
//!
//! Commands of each kind are sent, and only that one of them is not permitted or not known counts. A server looks at that before all else, so
//! one of a cluster that does not have the key's slot tells of them too. What is published is of a key and a place that nobody has, so
//! gateways of every version hear it and do nothing.

use futures::future::join_all;
use redis::{Arg, Cmd, RedisError};

use super::events;
use super::options::unavailable;
use super::script::PREFIX;
use super::server_health::{Change, channel, connect_within};
use super::shared::Shared;
use super::url::{Address, Connection};
use crate::ledger::StoreError;
use crate::pure::ids::KeyDigest;

/// Tries the rights at all servers that were reached. One that does not answer is not asked again.
///
/// # Errors
/// When the user lacks a right that the ledger needs, or a server does not know a command; the message names it.
pub(super) async fn check(shared: &Shared) -> Result<(), StoreError> {
    let (link, shards) = (shared.link(), shared.shards.all());
    let tried = shards.iter().map(async |shard| {
        let Some((connection, _)) = link.line(shard).found() else {
            return Ok(());
        };
        let tried = check_server(&shard.address, &connection);
        match tokio::time::timeout(connect_within(&shared.options), tried).await {
            Ok(checked) => checked,
            // It has answered before: the calls find out.
            Err(_) => Ok(()),
        }
    });
    join_all(tried).await.into_iter().collect()
}

async fn check_server(address: &Address, connection: &Connection) -> Result<(), StoreError> {
    let tried = join_all(probes().into_iter().map(async |probe| {
        let mut connection = connection.clone();
        let refused = connection.send(&probe.command).await.err();
        refused.and_then(|error| probe.missing(&error))
    }));
    if let Some(missing) = tried.await.into_iter().flatten().next() {
        return Err(unavailable(&format!(
            "{address:?} does not let the ledger's user work: {missing}"
        )));
    }
    let events = events_probe();
    let mut connection = connection.clone();
    let refused = connection.send(&events.command).await.err();
    if let Some(missing) = refused.and_then(|error| events.missing(&error)) {
        log::warn!("{address:?} does not tell the ledger's user of events, webhooks hear of them late: {missing}");
    }
    Ok(())
}

/// A command, and the rights that it needs.
struct Probe {
    command: Cmd,
    /// To the command itself.
    command_right: &'static str,
    /// To its key or channel.
    object_right: String,
}

impl Probe {
    fn of_key(command: Cmd, command_right: &'static str) -> Probe {
        Probe {
            command,
            command_right,
            object_right: format!("~{PREFIX}*"),
        }
    }

    fn of_channel(channel: &str, message: &str) -> Probe {
        let mut command = redis::cmd("PUBLISH");
        command.arg(channel).arg(message);
        Probe {
            command,
            command_right: "+@pubsub",
            object_right: format!("&{channel}"),
        }
    }

    /// What is to be done where the command was refused for want of a right, or is not known; none where it failed by another reason.
    fn missing(&self, error: &RedisError) -> Option<String> {
        let text = error.to_string();
        match error.code() {
            Some("NOPERM") => {
                // "User gateway has no permissions to run the 'eval' command"; else a key or a channel is meant.
                let right = match text.contains("' command") {
                    true => self.command_right,
                    false => self.object_right.as_str(),
                };
                Some(format!("give that user the right {right}"))
            }
            Some("ERR") if text.contains("unknown command") => Some(format!(
                "it does not know the command {}, which may have another name there (rename-command): the ledger needs it by its own",
                self.name()
            )),
            _ => None,
        }
    }

    fn name(&self) -> String {
        match self.command.args_iter().next() {
            Some(Arg::Simple(name)) => String::from_utf8_lossy(name).into_owned(),
            _ => String::new(),
        }
    }
}

/// What the ledger cannot do without. Sent together, in this order.
fn probes() -> [Probe; 9] {
    let key = format!("{PREFIX}probe");
    let on_key = |name: &str| {
        let mut command = redis::cmd(name);
        command.arg(&key);
        command
    };
    let mut set = on_key("SET");
    // It is not there, and so it is not made.
    set.arg("1").arg("XX");
    let mut eval = redis::cmd("EVAL");
    eval.arg("return 1").arg(1).arg(&key);
    // No script has this hash.
    let mut evalsha = redis::cmd("EVALSHA");
    evalsha.arg("0".repeat(40)).arg(1).arg(&key);
    // What was written is confirmed by these. Nobody is waited for.
    let mut wait = redis::cmd("WAIT");
    wait.arg(0).arg(0);
    // A key that nobody can make.
    let nothing = Change::Key(KeyDigest::from_bytes([0; 32])).text();
    [
        Probe::of_key(set, "+@write"),
        Probe::of_key(on_key("GET"), "+@read"),
        Probe::of_key(eval, "+@scripting"),
        Probe::of_key(evalsha, "+@scripting"),
        Probe::of_key(redis::cmd("TIME"), "+time"),
        Probe::of_key(redis::cmd("ROLE"), "+role"),
        Probe::of_key(wait, "+wait"),
        // By this a subscription is kept.
        Probe::of_key(redis::cmd("PING"), "+@connection"),
        Probe::of_channel(&channel(), &nothing),
    ]
}

/// Apart: without this right events are found all the same, later.
fn events_probe() -> Probe {
    Probe::of_channel(&events::channel(), PROBE)
}

/// No place at which an event could be.
const PROBE: &str = "probe";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ledger::redis::open_places::OpenPlaces;
    use crate::ledger::redis::{Options, RedisLedger};
    use crate::ledger::tests::logged::logged;
    use crate::ledger::tests::redis_server::RedisServer;

    /// What conf/README.md names.
    const RIGHTS: &str =
        "~tg1:* &tg1:changed &tg1:events +@read +@write +@scripting +@pubsub +@connection +info +time +role +wait";

    /// The address of a server whose user has these rights.
    fn with_rights(server: &RedisServer, rights: &str) -> String {
        let user = format!("ACL SETUSER gateway reset on >s3cret {rights}");
        assert_eq!(server.ask(&user), ["+OK"], "{rights}");
        server.url().replace("redis://", "redis://gateway:s3cret@")
    }

    fn patient() -> Options {
        Options {
            timeout: Duration::from_secs(10),
            ..Options::default()
        }
    }

    #[test]
    fn a_user_without_a_right_is_refused_and_the_right_is_named() {
        let server = RedisServer::start();
        for (right, instead) in [
            ("~tg1:*", "~tg:*"),
            ("&tg1:changed", ""),
            ("+@read", ""),
            ("+@write", ""),
            ("+@scripting", ""),
            ("+@pubsub", ""),
            ("+time", ""),
            ("+role", ""),
            ("+@connection", "+auth +hello +client +select"),
            // Others of +@connection have it with them.
            ("+wait", "-wait"),
        ] {
            let url = with_rights(&server, &RIGHTS.replacen(right, instead, 1));
            for refused in [
                RedisLedger::connect(&url, patient()).map(drop),
                RedisLedger::preflight(&url, patient()),
            ] {
                let text = refused.unwrap_err().to_string();
                assert!(text.ends_with(&format!("the right {right}")), "{right}: {text}");
                assert!(!text.contains("s3cret"), "{text}");
            }
        }
    }

    /// Such a server was started with, and failed each call.
    #[test]
    fn a_server_that_has_another_name_for_a_command_is_refused_and_the_command_is_named() {
        for command in ["SET", "GET", "EVAL", "EVALSHA", "TIME", "ROLE", "WAIT", "PUBLISH"] {
            let renamed = [
                "--save",
                "",
                "--appendonly",
                "no",
                "--rename-command",
                command,
                "ANOTHER",
            ];
            let server = RedisServer::start_with(&renamed);
            for refused in [
                RedisLedger::connect(&server.url(), patient()).map(drop),
                RedisLedger::preflight(&server.url(), patient()),
            ] {
                let text = refused.unwrap_err().to_string();
                let named = format!("it does not know the command {command}, ");
                assert!(text.contains(&named), "{command}: {text}");
            }
        }
    }

    #[test]
    fn a_user_with_the_rights_is_not_and_nothing_is_left_of_the_trial() {
        let server = RedisServer::start();
        let url = with_rights(&server, RIGHTS);
        assert_eq!(RedisLedger::preflight(&url, patient()), Ok(()));
        assert_eq!(server.ask("DBSIZE"), [":0"]);
        // What the ledger does not use is not asked for.
        let url = with_rights(&server, &format!("{RIGHTS} -del -unlink -flushall"));
        assert_eq!(RedisLedger::preflight(&url, patient()), Ok(()));
        assert_eq!(server.ask("ACL LOG"), ["*0"], "nothing was refused");
    }

    #[test]
    fn a_user_who_may_not_hear_of_events_is_warned_of() {
        let server = RedisServer::start();
        for (rights, warnings) in [(RIGHTS.to_owned(), 0), (RIGHTS.replacen("&tg1:events", "", 1), 1)] {
            let url = with_rights(&server, &rights);
            let lines = logged(|| assert_eq!(RedisLedger::preflight(&url, patient()), Ok(())));
            let told = |line: &&String| line.starts_with("WARN ") && line.ends_with("the right &tg1:events");
            assert_eq!(lines.iter().filter(told).count(), warnings, "{lines:?}");
        }
    }

    #[test]
    fn what_is_published_for_the_trial_is_of_no_key_and_of_no_place() {
        let nothing = Change::Key(KeyDigest::from_bytes([0; 32]));
        assert_eq!(Change::parse(&nothing.text()), Some(nothing));
        let places = OpenPlaces::default();
        let before = places.lock().len();
        places.heard(PROBE);
        assert_eq!(places.lock().len(), before);
    }
}
