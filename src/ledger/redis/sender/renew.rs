//! Renewals: the holds of calls that run live on; one that is gone is made anew, and where that cannot be, its call is ended.

use std::sync::Arc;

use futures::StreamExt;
use redis::Value;

use super::Settler;
use super::moving::Due;
use crate::ledger::StoreError;
use crate::ledger::cover::Uncovered;
use crate::ledger::redis::account::{Account, scope_text};
use crate::ledger::redis::extend::extend_command;
use crate::ledger::redis::link::Call;
use crate::ledger::redis::reply;
use crate::ledger::redis::script;
use crate::ledger::redis::script::EvalMode;
use crate::ledger::redis::spending::{end_users_of, remake_arguments};
use crate::ledger::redis::url::Connection;
use crate::pure::account::Extended;
use crate::pure::estimate::HoldRange;
use crate::pure::ids::RequestId;

impl Settler {
    /// Renews the holds that have lived a third of their life, and ends the calls of those that could not be renewed for two. Those of debits
    /// that wait for a slot that moves are renewed too: their calls are over, and their credit is not free.
    pub(super) async fn renew(&mut self, now: u64) {
        let shards = &self.shared.shards;
        let is_mine = |account: &Account| shards.of(account).number == self.shard.number;
        let mut due = self.shared.holds.due(now, is_mine);
        due.extend(self.moving.to_renew(now));
        if !due.is_empty()
            && let Some((connection, number)) = self.connection().await
        {
            match self.renew_all(&connection, &due, now).await {
                Some(renewed) => self.moving.renewed(&renewed, now),
                None => self.line.give_up(number),
            }
        }
        let ended = self.shared.holds.end_uncovered(self.shared.now_ms());
        if ended > 0 {
            log::error!("{ended} calls are ended: Redis did not renew what they hold in time");
        }
    }

    /// Asks for every account beside the others. Those that were renewed; none when Redis did not answer at all.
    async fn renew_all(&self, connection: &Connection, due: &[Due], now: u64) -> Option<Vec<RequestId>> {
        let within = self.shared.options.timeout;
        let groups = due.iter().flat_map(|(account, ttl_ms, ids)| {
            let life = (*ttl_ms, now);
            ids.chunks(RENEW_MAX).map(move |ids| (account, life, ids))
        });
        let asked = groups.map(|(account, life, ids)| {
            let mut connection = connection.clone();
            async move {
                let renewed = self.renew_some(&mut connection, account, life, ids);
                let renewed = tokio::time::timeout(within, renewed).await.ok()?;
                let raised = self.raise_again(&connection, account, (life.0, now), &renewed);
                if tokio::time::timeout(within, raised).await.is_err() {
                    log::warn!(
                        "whether Redis has all holds of {} as they were raised is not known",
                        account.id()
                    );
                }
                Some(renewed)
            }
        });
        let mut asked = futures::stream::iter(asked).buffer_unordered(RENEWALS_AT_ONCE);
        let mut all: Option<Vec<RequestId>> = None;
        while let Some(renewed) = asked.next().await {
            if let Some(renewed) = renewed {
                all.get_or_insert_default().extend(renewed);
            }
        }
        all
    }

    /// Those of an account's holds that were renewed; each that is gone is made anew where its call runs.
    async fn renew_some(
        &self,
        connection: &mut Connection,
        account: &Arc<Account>,
        (ttl_ms, now): (u64, u64),
        ids: &[RequestId],
    ) -> Vec<RequestId> {
        let clock = self.shared.now_text();
        let mut command = script::RENEW.call(EvalMode::Text, &account.keys());
        command.arg(&clock).arg(ttl_ms);
        for id in ids {
            command.arg(id.as_bytes());
        }
        let gone = match self.send(connection, command).await {
            Ok(gone) => gone,
            Err(error) => {
                log::warn!("holds are not renewed: {error}");
                return Vec::new();
            }
        };
        let gone = match gone_of(&gone, ids) {
            Ok(gone) => gone,
            Err(error) => {
                log::error!("holds may not be renewed: {error}");
                return Vec::new();
            }
        };
        let lives = |id: &&RequestId| !gone.contains(id);
        let renewed: Vec<RequestId> = ids.iter().filter(lives).copied().collect();
        self.shared.holds.renewed(&renewed, now);
        for id in gone {
            self.remake(connection, account, (ttl_ms, now), id).await;
        }
        renewed
    }

    /// Sends a command of an account, wherever its slot is going.
    pub(super) async fn send(&self, connection: &mut Connection, command: redis::Cmd) -> Result<Value, StoreError> {
        match connection.send(&command).await {
            Err(error) if self.shard.elsewhere(&error).is_some() => {
                let call = Call { command, script: None };
                Ok(self.shared.ask(&self.link, &call).await?)
            }
            answer => answer.map_err(|error| StoreError::Unavailable(error.to_string())),
        }
    }

    /// Raises those of an account's holds again that a server which was restarted or replaced may have at an earlier amount: it may have lost its
    /// last moments. The call of one that cannot be raised is ended. What is not answered is asked again by the next renewal.
    async fn raise_again(
        &self,
        connection: &Connection,
        account: &Arc<Account>,
        (ttl_ms, now): (u64, u64),
        ids: &[RequestId],
    ) {
        let Some(replaced_ms) = self.replaced_ms.filter(|at_ms| now.saturating_sub(*at_ms) <= ttl_ms) else {
            return;
        };
        let replay_ms = u64::try_from(self.shared.options.replay.as_millis()).unwrap_or(u64::MAX);
        // Calls may still have been answered by the old one after that was seen here.
        let raised = self
            .shared
            .holds
            .raised_since(ids, replaced_ms.saturating_sub(replay_ms));
        let asked = raised.into_iter().map(|(id, hold)| {
            let mut connection = connection.clone();
            async move {
                let range = HoldRange {
                    wanted: hold.amount,
                    at_least: hold.amount,
                };
                let clock = (&*self.shared.now_text(), EvalMode::Text);
                let command = extend_command(account, (id, &range, hold.quota), clock, hold.spend.as_ref());
                let answer = self.send(&mut connection, command).await;
                match answer.and_then(|answer| reply::extended(&answer)) {
                    // One that is gone was settled meanwhile, or is made anew by the next renewal.
                    Ok(Extended::To(_) | Extended::Gone) => {}
                    Ok(Extended::Refused) => {
                        log::error!(
                            "MONEY: the hold of request {id} is lower in Redis than it was raised to, and the credit is gone: the call is ended"
                        );
                        hold.cover.end(Uncovered::NoCredit);
                    }
                    Err(error) => log::warn!("whether Redis has the hold of request {id} as it was raised is not known: {error}"),
                }
            }
        });
        futures::stream::iter(asked)
            .buffer_unordered(RAISES_AT_ONCE)
            .collect::<()>()
            .await;
    }

    /// Makes a hold anew that is gone: Redis has lost it, or this process has slept for longer than it lived.
    async fn remake(
        &self,
        connection: &mut Connection,
        account: &Arc<Account>,
        (ttl_ms, now): (u64, u64),
        id: RequestId,
    ) {
        let Some(hold) = self.shared.holds.known(id) else {
            return; // Its call has ended meanwhile.
        };
        let amount = hold.amount.pico().max(0);
        let end_users = end_users_of(account.id(), hold.spend.as_ref(), id);
        let keys: Vec<&str> = account.keys().into_iter().chain(end_users.as_deref()).collect();
        let mut command = script::REMAKE.call(EvalMode::Text, &keys);
        command
            .arg(self.shared.now_text())
            .arg(id.as_bytes())
            .arg(amount)
            .arg(hold.quota.pico().saturating_sub(amount))
            .arg(scope_text(&hold.scope))
            .arg(ttl_ms);
        if let Some(limits) = &hold.spend {
            remake_arguments(&mut command, limits, (id, amount), self.shared.redis_now());
        }
        let made = match self.send(connection, command).await {
            Ok(made) => made,
            Err(error) => return log::warn!("the hold of request {id} is not made anew: {error}"),
        };
        match reply::text(&made) {
            Ok("made") => {
                log::warn!("the hold of request {id} was gone from Redis; it is made anew");
                self.shared.holds.renewed(&[id], now);
            }
            Ok("refused") => {
                log::error!(
                    "MONEY: the hold of request {id} was gone from Redis, and its credit is: the call is ended"
                );
                self.shared.holds.remove(id);
                hold.cover.end(Uncovered::NoCredit);
            }
            other => log::error!("the hold of request {id} is not made anew: {other:?}"),
        }
    }
}

/// Those of `ids` that Redis says are gone.
fn gone_of(answer: &Value, ids: &[RequestId]) -> Result<Vec<RequestId>, StoreError> {
    let gone = reply::list(answer)?;
    let is_named = |id: &&RequestId| {
        gone.iter()
            .any(|named| matches!(named, Value::BulkString(bytes) if bytes == id.as_bytes()))
    };
    let named: Vec<RequestId> = ids.iter().filter(is_named).copied().collect();
    if named.len() == gone.len() {
        return Ok(named);
    }
    Err(reply::corrupt("a renewal was answered with other holds than it named"))
}

/// Renewals that are under way together.
const RENEWALS_AT_ONCE: usize = 1024;
/// Raised holds of an account that are asked for together.
const RAISES_AT_ONCE: usize = 64;
/// Holds in one renewal.
const RENEW_MAX: usize = 500;
