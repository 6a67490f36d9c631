//! The server behind the connection: who it is, what time it is there, and whether it takes writes. Each settler asks its own once a second,
//! and more often while calls fail or no writes are taken.

use std::time::Duration;

use redis::RedisResult;

use super::{Settler, in_time};
use crate::ledger::redis::admission_breaker::millis;
use crate::ledger::redis::link::needs_another;
use crate::ledger::redis::script::PREFIX;
use crate::ledger::redis::server_facts::{Writes, identity, time_of};
use crate::ledger::redis::server_health::facts;
use crate::ledger::redis::slots::tag_of;
use crate::ledger::redis::url::Connection;

impl Settler {
    /// Whether the server is asked again on the same connection.
    pub(super) fn is_time_to_ask(&self) -> bool {
        let guard = &self.shard.guard;
        let since = self.shared.now_ms().saturating_sub(self.asked.1);
        guard.is_open() || guard.is_refusing_writes() || since >= millis(ASK_EVERY)
    }

    /// The connection; when it is a new one, and every now and then, the server behind it is asked who it is, and whether it takes writes.
    pub(super) async fn connection(&mut self) -> Option<(Connection, u64)> {
        let within = self.shared.options.timeout;
        self.line.give_up_replaced(&self.shard.address);
        let current = match self.line.found() {
            None => in_time(within, self.line.connection(&self.shard.address)).await,
            found => found,
        };
        let Some((mut connection, number)) = current else {
            self.is_away();
            return None;
        };
        if number == self.asked.0 && !self.is_time_to_ask() {
            return Some((connection, number));
        }
        let began_ms = self.shared.now_ms();
        let Some(facts) = in_time(within, facts(&self.shared, &mut connection)).await else {
            self.line.give_up(number);
            self.is_away();
            return None;
        };
        let told_ms = self.shared.now_ms();
        let Some((tried, is_demoted)) = in_time(within, try_write(&mut connection, self.probe())).await else {
            self.line.give_up(number);
            self.is_away();
            return None;
        };
        self.shard.eviction.heard(&self.shard.address, &facts);
        // Of an answer that took long it is not known when it was true.
        let time = time_of(&facts).filter(|_| told_ms.saturating_sub(began_ms) <= TOLD_WITHIN_MS);
        let of_others = || self.clock_of_others();
        self.shard.clock.heard(&self.shard.address, time, told_ms, of_others);
        self.asked_server(identity(&facts));
        self.heard_of_writes(Writes::by(&facts).unwrap_or(tried));
        if is_demoted {
            // What is sent goes to another server.
            self.line.give_up(number);
            self.asked.1 = self.shared.now_ms();
            return None;
        }
        self.asked = (number, self.shared.now_ms());
        Some((connection, number))
    }

    /// The server does not answer. Calls of a cluster hear of it here before they wait for it themselves; and it may be a master no more.
    pub(super) fn is_away(&self) {
        if self.shared.shards.is_cluster() {
            self.shard
                .guard
                .failed(&format!("no answer from {:?}", self.shard.address));
            self.shared.shards.doubt();
        }
    }

    pub(super) fn asked_server(&mut self, server: String) {
        let is_first = self.servers.is_empty();
        let is_known = !self.servers.insert(server);
        if is_first || is_known {
            return;
        }
        if !self.shared.shards.is_cluster() {
            self.shared.cache.doubt_subscription();
        }
        self.shared.names.doubt();
        self.replaced_ms = Some(self.shared.now_ms());
        let released = self.ring.take_released(|_| true);
        self.release_again(released);
        let again = self.ring.take_all();
        log::warn!(
            "{:?} was restarted or replaced; the last {} settlements are sent again",
            self.shard.address,
            again.len()
        );
        self.send_again(again);
    }

    /// One that answers and takes no writes may be cut off from its successor, or from its disk: it may lose what it acknowledged last for as
    /// long as that lasts.
    fn heard_of_writes(&mut self, writes: Writes) {
        let now = self.shared.now_ms();
        if writes == Writes::Refused {
            self.shard.guard.refuses_writes();
            return self.ring.stand_still(now);
        }
        self.shard.guard.takes_writes();
        let stood_still = self.ring.stands_still();
        self.ring.tend(now);
        if stood_still {
            self.date_ring();
        }
    }

    /// Has the journal say how old what was acknowledged is by the ring: whoever finds it there waits for the rest of its time.
    pub(super) fn date_ring(&mut self) {
        let now = self.shared.options.clock.now();
        self.ring.date(self.shared.now_ms(), now);
    }

    /// A key that nobody makes, in a slot of this server; none where it has no slot.
    fn probe(&self) -> Option<String> {
        let shards = &self.shared.shards;
        if !shards.is_cluster() {
            return Some(format!("{PREFIX}probe"));
        }
        let slot = shards.first_slot(self.shard.number)?;
        Some(format!("{PREFIX}probe:{{{}}}", tag_of(slot)))
    }

    /// How the clock of another server of the ledger goes.
    fn clock_of_others(&self) -> Option<i64> {
        let all = self.shared.shards.all();
        let mut others = all.iter().filter(|shard| shard.number != self.shard.number);
        others.find_map(|shard| shard.clock.known())
    }
}

/// Tries to write what changes nothing: the key is not there, and so it is not made. A server that takes no writes says so before it looks.
/// With what that says, whether another server is to be asked from now on.
async fn try_write(connection: &mut Connection, key: Option<String>) -> RedisResult<(Writes, bool)> {
    let Some(key) = key else {
        return Ok((Writes::Unknown, false));
    };
    let mut command = redis::cmd("SET");
    command.arg(key).arg("").arg("XX");
    match connection.send(&command).await {
        Ok(_) => Ok((Writes::Taken, false)),
        Err(error) => match Writes::told(&error) {
            Some(writes) => Ok((writes, needs_another(&error))),
            None => Err(error),
        },
    }
}

/// How often the servers are asked who they are.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Within what time a server has to say what time it is, in milliseconds.
const TOLD_WITHIN_MS: u64 = 1_000;
