//! A batch on its way: the scripts' calls, together to one server, or slot by slot to a cluster.

use std::collections::HashMap;

use redis::{RedisResult, Value};

use crate::pure::ids::AccountId;
use crate::store::redis::account::scope_text;
use crate::store::redis::address::Connection;
use crate::store::redis::core::{COUNT_MAX, Core};
use crate::store::redis::holds::OpenHold;
use crate::store::redis::queue::{QueuedDebit, Work};
use crate::store::redis::script::{self, By};

/// Sends a batch. Afterwards there is an answer for each settlement and release, in order, or none where there was none.
///
/// # Errors
/// When a connection failed: the answers that came before stand all the same.
pub(super) async fn exchange(
    core: &Core,
    connection: &mut Connection,
    batch: &[Work],
    by: By,
    answers: &mut Vec<Option<Value>>,
) -> RedisResult<()> {
    let commands = batch.iter().filter_map(|work| command(core, work, by));
    if !core.address.is_cluster() {
        let mut pipeline = redis::pipe();
        for (_, command) in commands {
            pipeline.add_command(command);
        }
        answers.extend(send_group(connection.clone(), pipeline).await?.into_iter().map(Some));
        return Ok(());
    }
    // A cluster takes together what is of one slot; the account's order is kept within its group.
    let mut groups: HashMap<AccountId, (redis::Pipeline, Vec<usize>)> = HashMap::new();
    for (at, (account, command)) in commands.enumerate() {
        let (pipeline, places) = groups
            .entry(account.clone())
            .or_insert_with(|| (redis::pipe(), Vec::new()));
        pipeline.add_command(command);
        places.push(at);
        answers.push(None);
    }
    let sent = groups.into_values().map(|(pipeline, places)| {
        let connection = connection.clone();
        async move { (places, send_group(connection, pipeline).await) }
    });
    for (places, group) in futures::future::join_all(sent).await {
        match group {
            Ok(group) => {
                for (at, answer) in places.into_iter().zip(group) {
                    if let Some(place) = answers.get_mut(at) {
                        *place = Some(answer);
                    }
                }
            }
            // The cluster's client finds its way by itself, so one group's failure is not the connection's.
            Err(error) => log::debug!("Redis: {error}"),
        }
    }
    Ok(())
}

async fn send_group(mut connection: Connection, pipeline: redis::Pipeline) -> RedisResult<Vec<Value>> {
    if pipeline.is_empty() {
        return Ok(Vec::new());
    }
    connection.send_all(&pipeline).await
}

fn command<'a>(core: &Core, work: &'a Work, by: By) -> Option<(&'a AccountId, redis::Cmd)> {
    match work {
        Work::Settle(debit) => Some((debit.account.id(), settle_command(core, debit, by))),
        Work::Release { account, hold, .. } => {
            let mut command = script::RELEASE.call(by, &account.keys());
            command.arg(hold.as_bytes());
            Some((account.id(), command))
        }
        Work::Barrier { .. } => None,
    }
}

/// A settlement as its script takes it.
pub(in crate::store::redis) fn settle_command(core: &Core, queued: &QueuedDebit, by: By) -> redis::Cmd {
    let debit = &queued.debit;
    let cost = debit.cost.pico().max(0);
    let tokens = debit.usage.prompt.0.saturating_add(debit.usage.completion.0);
    let known = queued.known.as_ref().and_then(|hold: &OpenHold| {
        let rest = hold.amount.pico().checked_sub(cost)?;
        Some((scope_text(&hold.scope), hold.amount.pico().to_string(), rest))
    });
    let (scope, held, rest) = known.unwrap_or_default();
    let mut command = script::SETTLE.call(by, &queued.account.keys());
    command
        .arg(core.now_text())
        .arg(queued.hold.as_bytes())
        .arg(scope)
        .arg(held)
        .arg(rest)
        .arg(cost)
        .arg(tokens.min(COUNT_MAX))
        .arg(format!("{:016x}", queued.producer.0))
        .arg(queued.sequence)
        .arg(debit.model.as_ref())
        .arg(debit.usage.prompt.0.min(COUNT_MAX))
        .arg(debit.usage.completion.0.min(COUNT_MAX));
    command
}
