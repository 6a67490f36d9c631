//! A batch on its way: the scripts' calls, together to one server, or slot by slot to a cluster.

use std::collections::HashMap;

use futures::stream::{FuturesUnordered, StreamExt};
use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};

use crate::pure::ids::AccountId;
use crate::pure::numbers::{Birth, CallNumber};
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
        if !pipeline.is_empty() {
            answers.extend(connection.send_all(&pipeline).await?.into_iter().map(Some));
        }
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
        let mut connection = connection.clone();
        async move { (places, send_group(&mut connection, &pipeline).await) }
    });
    // What has been answered is written down at once: it stands even when a group that is sent to a server without life uses up the
    // time of all.
    let mut sent: FuturesUnordered<_> = sent.collect();
    while let Some((places, group)) = sent.next().await {
        for (at, answer) in places.into_iter().zip(group) {
            if let Some(place) = answers.get_mut(at) {
                *place = Some(answer);
            }
        }
    }
    Ok(())
}

/// The answers to the commands of one slot, in order, as far as they came. The cluster's client finds its way by itself, so a failure
/// here is not the connection's.
async fn send_group(connection: &mut Connection, pipeline: &redis::Pipeline) -> Vec<Value> {
    let error = match connection.send_all(pipeline).await {
        Ok(answers) => return answers,
        Err(error) => error,
    };
    log::debug!("Redis: {error}");
    let mut answers = Vec::new();
    if is_redirection(&error) {
        // A server that takes over a slot serves only the one command that follows `ASKING`, never all of a pipeline.
        for command in pipeline.cmd_iter() {
            match connection.answer(command).await {
                Ok(answer) => answers.push(answer),
                Err(_) => break,
            }
        }
    }
    answers
}

fn is_redirection(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Server(ServerErrorKind::Ask | ServerErrorKind::Moved)
    )
}

fn command<'a>(core: &Core, work: &'a Work, by: By) -> Option<(&'a AccountId, redis::Cmd)> {
    match work {
        Work::Settle(debit) => Some((debit.account.id(), settle_command(core, debit, by))),
        Work::Release {
            account, hold, number, ..
        } => {
            let mut command = script::RELEASE.call(by, &account.keys());
            command.arg(hold.as_bytes());
            if let Some(number) = number {
                command.arg(core.now_text()).arg(producer_field(*number));
                command.arg(number.number).arg(number.born.0);
            }
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
        .arg(producer_field(queued.number))
        .arg(queued.number.number)
        .arg(debit.model.as_ref())
        .arg(debit.usage.prompt.0.min(COUNT_MAX))
        .arg(debit.usage.completion.0.min(COUNT_MAX))
        .arg(queued.number.born.0);
    command
}

/// Where an account keeps what it knows of a number's producer.
fn producer_field(number: CallNumber) -> String {
    let kind = if number.born == Birth::default() { 'p' } else { 'n' };
    format!("{kind}{:016x}", number.producer.0)
}
