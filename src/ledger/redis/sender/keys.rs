//! Tells Redis how calls under an idempotency key ended.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};

use crate::failpoints::point;
use crate::ledger::StoreError;
use crate::ledger::idempotency::call::KeyEnd;
use crate::ledger::redis::account::idempotency_of_key;
use crate::ledger::redis::key_ends::{EVENTS, Ended, JSON};
use crate::ledger::redis::link::{Call, Link};
use crate::ledger::redis::reply;
use crate::ledger::redis::script::{self, EvalMode};
use crate::ledger::redis::shared::Shared;

/// Tells Redis how calls under a key ended, the shards beside each other, until
/// [`KeyEnds::close`](crate::ledger::redis::key_ends::KeyEnds::close). An answer that Redis does not take within [`TRIED_MS`] is dropped: the
/// key then says that it is not there. Of a call that cost nothing that would be wrong for as long as the key is known, so it is told for as
/// long.
pub(super) async fn run(shared: Arc<Shared>) {
    let link = Link::default();
    let mut tellers: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
    loop {
        tokio::select! {
            shard = shared.key_ends.shard() => match shard {
                Some(shard) => tellers.push(Box::pin(tell_all(&shared, &link, shard))),
                None => return,
            },
            Some(()) = tellers.next() => {}
        }
    }
}

/// Tells what waits for one shard, until nothing does.
async fn tell_all(shared: &Shared, link: &Link, shard: usize) {
    while let Some(ended) = shared.key_ends.next(shard) {
        let name = match ended.end {
            KeyEnd::Billed(_) => "idempotency-ended",
            KeyEnd::Freed | KeyEnd::Unsent => "idempotency-freed",
        };
        point(name, "before");
        let told = tell(shared, link, &ended).await;
        point(name, "after");
        let Err(error) = told else { continue };
        let tried_ms = match ended.end {
            KeyEnd::Billed(_) => TRIED_MS,
            KeyEnd::Freed | KeyEnd::Unsent => FREED_MS,
        };
        if shared.now_ms().saturating_sub(ended.queued_ms) > tried_ms {
            log::warn!(
                "request {}: its idempotency key was not told how it ended: {error}",
                ended.call.request
            );
            continue;
        }
        // Its account may be another shard's by now.
        shared.key_ends.push(&shared.shards, ended);
        tokio::time::sleep(PAUSE).await;
    }
}

async fn tell(shared: &Shared, link: &Link, ended: &Ended) -> Result<(), StoreError> {
    let Ended { account, call, end, .. } = ended;
    let of_key = idempotency_of_key(account.id(), &call.key);
    let mut command = script::KEY_END.call(EvalMode::Hash, &of_key.each_ref().map(String::as_str));
    command.arg(call.name.as_bytes()).arg(call.request.as_bytes());
    match end {
        KeyEnd::Freed | KeyEnd::Unsent => command.arg("free").arg(""),
        KeyEnd::Billed(None) => command.arg("billed").arg(""),
        KeyEnd::Billed(Some(answer)) => {
            let mut text = Vec::with_capacity(answer.body.len().saturating_add(1));
            text.push(if answer.streamed { EVENTS } else { JSON });
            text.extend_from_slice(&answer.body);
            command.arg("billed").arg(text)
        }
    };
    command.arg(call.limits.bytes_per_key_max);
    let asked = Call {
        command,
        script: Some(&script::KEY_END),
    };
    reply::text(&shared.ask(link, &asked).await?).map(drop)
}

/// For how long it is told again how a call ended that was billed, in milliseconds.
const TRIED_MS: u64 = 60_000;
/// The same of one that cost nothing: the life of a key.
const FREED_MS: u64 = 86_400_000;
/// The pause after what Redis did not take.
const PAUSE: Duration = Duration::from_millis(50);
