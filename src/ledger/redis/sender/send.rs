//! A batch on its way: the scripts' calls together to one server.

use redis::{RedisResult, Value};

use crate::ledger::redis::account::{producer_field, receipts_of_account, scope_text, usage_of_key};
use crate::ledger::redis::holds::OpenHold;
use crate::ledger::redis::link::{Call, Link, Sent};
use crate::ledger::redis::queue::{QueuedDebit, Work};
use crate::ledger::redis::receipts;
use crate::ledger::redis::script;
use crate::ledger::redis::script::EvalMode;
use crate::ledger::redis::shards::Shard;
use crate::ledger::redis::shared::{COUNT_MAX, Shared};
use crate::ledger::redis::slots::Elsewhere;
use crate::ledger::redis::spending::{end_users, ttl};
use crate::ledger::redis::url::Connection;
use crate::pure::ids::KeyId;

/// Sends a batch. Afterwards there is an answer for each settlement and release, in order, or none at all.
///
/// # Errors
/// When the connection failed.
pub(super) async fn exchange(
    shared: &Shared,
    connection: &mut Connection,
    batch: &[Work],
    by: EvalMode,
) -> RedisResult<Vec<Option<Value>>> {
    let mut pipeline = redis::pipe();
    for command in batch.iter().filter_map(|work| command(shared, work, by)) {
        pipeline.add_command(command);
    }
    if pipeline.is_empty() {
        return Ok(Vec::new());
    }
    Ok(connection.send_all(&pipeline).await?.into_iter().map(Some).collect())
}

/// What a server of a cluster has sent elsewhere: what belongs to another for good is kept without an answer, and handed over; what is on
/// its way to another is asked there, with the answer in its place. Where that one cannot run it either, for some of the keys are still here or
/// were never made (TRYAGAIN), or where it does not answer, the redirection stays: it waits for the slot.
pub(super) async fn redirect(
    shared: &Shared,
    shard: &Shard,
    link: &Link,
    batch: &[Work],
    answers: &mut [Option<Value>],
) {
    let works = batch.iter().filter(|work| !matches!(work, Work::Barrier { .. }));
    for (work, place) in works.zip(answers) {
        let Some(Value::ServerError(error)) = &*place else {
            continue;
        };
        let answer = match shard.elsewhere(&error.clone().into()) {
            None | Some(Elsewhere::Later) => continue,
            Some(Elsewhere::Moved(slot, node)) => {
                drop(shared.shards.moved(slot, &node));
                None
            }
            Some(Elsewhere::Ask(node)) => match ask(shared, link, work, &node).await {
                None => continue,
                answer => answer,
            },
        };
        *place = answer;
    }
}

/// Asks a server that takes over the slot of an account. Once: that an own debit was sent once is what tells whether another has settled it, and
/// whether it may get another number.
async fn ask(shared: &Shared, link: &Link, work: &Work, node: &str) -> Option<Value> {
    let shard = shared.shards.named(node);
    let call = Call {
        command: command(shared, work, EvalMode::Text)?,
        script: None,
    };
    let line = link.line(&shard);
    line.ask(&shard, &call, Sent::AskingOnce, shared.options.timeout)
        .await
        .ok()
}

fn command(shared: &Shared, work: &Work, by: EvalMode) -> Option<redis::Cmd> {
    match work {
        Work::Settle(debit) => Some(settle_command(shared, debit, by)),
        Work::Release {
            account, hold, number, ..
        } => {
            let mut command = script::RELEASE.call(by, &account.keys());
            command.arg(hold.as_bytes());
            if let Some(number) = number {
                command.arg(shared.now_text()).arg(producer_field(*number));
                command.arg(number.number).arg(number.born.0);
            }
            Some(command)
        }
        Work::Barrier { .. } => None,
    }
}

/// A settlement as its script takes it.
pub(in crate::ledger::redis) fn settle_command(shared: &Shared, queued: &QueuedDebit, by: EvalMode) -> redis::Cmd {
    let debit = &queued.debit;
    let cost = debit.cost.pico().max(0);
    let tokens = debit.usage.prompt.0.saturating_add(debit.usage.completion.0);
    let known = queued.known.as_ref().and_then(|hold: &OpenHold| {
        let rest = hold.amount.pico().checked_sub(cost)?;
        Some((scope_text(&hold.scope), hold.amount.pico().to_string(), rest))
    });
    let (scope, held, rest) = known.unwrap_or_default();
    let receipt = receipts::entry_of(shared, queued);
    let ([name, order], account) = (queued.account.keys(), queued.account.id());
    let (of_key, stream) = (usage_of_key(account, &debit.key), receipts_of_account(account));
    let (root, end_user) = (counts_as(queued), debit.end_user.as_ref());
    let of_root = root.as_ref().map(|root| usage_of_key(account, root));
    let counted = root.as_ref().unwrap_or(&debit.key);
    let end_users = end_user.map(|end_user| end_users(account, counted, end_user, queued.hold));
    let mut command = match (&receipt, &of_root, &end_users) {
        (Some(_), None, None) => script::SETTLE.call(by, &[name, order, &of_key, &stream]),
        (None, None, None) => script::SETTLE.call(by, &[name, order, &of_key]),
        _ => {
            let stream = receipt.is_some().then_some(stream.as_str());
            let more = [stream, of_root.as_deref(), end_users.as_deref()];
            let keys: Vec<&str> = [name, order, of_key.as_str()]
                .into_iter()
                .chain(more.into_iter().flatten())
                .collect();
            script::SETTLE.call(by, &keys)
        }
    };
    command
        .arg(shared.now_text())
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
    match receipt {
        Some((text, most)) => command.arg(text).arg(most),
        None if end_user.is_some() || root.is_some() => command.arg("").arg(""),
        None => &mut command,
    };
    match end_user {
        Some(end_user) => {
            let ttl = ttl(end_user, queued.hold, shared.redis_now());
            command.arg(end_user.id.to_string()).arg(ttl)
        }
        None if root.is_some() => command.arg("").arg(""),
        None => &mut command,
    };
    if let Some(root) = root {
        command.arg(root.as_str());
    }
    command
}

/// The key that a settlement's key counts as, where that is another one: as Redis has said, or as its call was admitted. Where both is wrong, or
/// not known, Redis says it in place of taking the settlement.
fn counts_as(queued: &QueuedDebit) -> Option<KeyId> {
    let key = &queued.debit.key;
    let admitted = || Some(queued.known.as_ref()?.spend.as_ref()?.key.clone());
    queued
        .account
        .counts_as(key)
        .or_else(admitted)
        .filter(|root| root != key)
}
