//! The scripts, one call a step, for the random sequences.

use std::sync::Arc;

use redis::Value;

use super::super::account::Account;
use super::super::extend::extend_command;
use super::super::holds::OpenHold;
use super::super::link::{Call, Link};
use super::super::queue::{Origin, QueuedDebit};
use super::super::script::{self, EvalMode, Script};
use crate::clock::Clock;
use crate::ledger::redis::shared::Shared;
use crate::ledger::redis::{reply, sender};
use crate::ledger::tests::rig::{block_on, redis_of};
use crate::ledger::tests::sequences::Book;
use crate::ledger::{Debit, Figures, Ledger};
use crate::pure::account::{Denial, Extended, Granted, ReserveRequest, Scope, Settled, Settlement, Spent};
use crate::pure::estimate::HoldRange;
use crate::pure::ids::{KeyId, RequestId};
use crate::pure::limits::{Limits, RateView};
use crate::pure::money::Credits;
use crate::pure::spend::{Reset, SpendLimits};
use crate::pure::time::Timestamp;

/// An account of a ledger in Redis.
pub(in crate::ledger) struct RedisBook {
    shared: Arc<Shared>,
    account: Arc<Account>,
}

impl RedisBook {
    pub(in crate::ledger) fn new(ledger: &Ledger, name: &str) -> RedisBook {
        let shared = Arc::clone(&redis_of(ledger).shared);
        let account = shared.cache.account(&name.parse().unwrap());
        RedisBook { shared, account }
    }

    fn script(&self, script: &'static Script, arguments: &[&[u8]]) -> Value {
        let mut command = script.call(EvalMode::Hash, &self.account.keys());
        command.arg(arguments);
        self.call(command, script)
    }

    fn call(&self, command: redis::Cmd, script: &'static Script) -> Value {
        let call = Call {
            command,
            script: Some(script),
        };
        block_on(async {
            let link: Arc<Link> = self.shared.link();
            self.shared.ask(&link, &call).await.unwrap()
        })
    }
}

impl Book for RedisBook {
    fn clock(&self) -> &Clock {
        &self.shared.options.clock
    }

    fn reserve(&self, request: &ReserveRequest) -> Result<Granted, Denial> {
        let command = self.shared.reserve_command(&self.account, request, true);
        let value = self.call(command, &script::RESERVE);
        reply::reserved(&value, request).unwrap().outcome
    }

    fn settle(&self, settlement: &Settlement, debit: &Debit, known: Option<&(Scope, Credits)>) -> Settled {
        let queued = QueuedDebit {
            account: Arc::clone(&self.account),
            hold: settlement.hold,
            known: known.map(|(scope, amount)| OpenHold {
                account: Arc::clone(&self.account),
                scope: scope.clone(),
                amount: *amount,
                quota: Credits::MAX,
                ttl_ms: 0,
                renewed_ms: 0,
                raised_ms: None,
                cover: Arc::default(),
                spend: None,
                ends_when_stopped: false,
            }),
            debit: debit.clone(),
            number: settlement.number,
            origin: Origin::Own,
            is_doubted: false,
            is_written_out: false,
            sent: 0,
            queued_ms: 0,
            entry: crate::ledger::journal::Entry::none(),
        };
        let command = sender::settle_command(&self.shared, &queued, EvalMode::Hash);
        match reply::settled(&self.call(command, &script::SETTLE)).unwrap() {
            reply::SettleReply::Settled(with) => with.settled,
            _ => panic!("{queued:?} was not taken"),
        }
    }

    fn release(&self, hold: RequestId) -> Option<Credits> {
        let value = self.script(&script::RELEASE, &[hold.as_bytes()]);
        let text = reply::text(&value).unwrap();
        (!text.is_empty()).then(|| Credits::from_pico(text.parse().unwrap()))
    }

    fn extend(&self, hold: RequestId, range: &HoldRange, quota: Credits, spend: Option<&Arc<SpendLimits>>) -> Extended {
        let now = self.shared.now_text();
        let command = extend_command(&self.account, (hold, range, quota), (&now, EvalMode::Hash), spend);
        reply::extended(&self.call(command, &script::EXTEND)).unwrap()
    }

    fn track(&self, key: &KeyId) {
        block_on(async {
            let tracked = self
                .shared
                .track(&self.shared.link(), (self.account.id(), key), false)
                .await;
            tracked.unwrap();
        });
    }

    fn spent(&self, key: &KeyId, reset: Reset) -> Spent {
        block_on(async {
            let keys = self.account.keys();
            let spent = self.shared.key_spent(&self.shared.link(), keys, key, reset).await;
            spent.unwrap()
        })
    }

    fn renew(&self, hold: RequestId, expires: Timestamp) -> bool {
        let ttl = expires.since(self.clock().now()).to_string();
        let now = self.shared.now_text();
        let gone = self.script(&script::RENEW, &[now.as_bytes(), ttl.as_bytes(), hold.as_bytes()]);
        reply::list(&gone).unwrap().is_empty()
    }

    fn expire(&self) -> usize {
        let now = self.shared.now_text();
        let freed = self.script(&script::EXPIRE, &[now.as_bytes()]);
        usize::try_from(reply::integer(&freed).unwrap()).unwrap()
    }

    /// What a node knows of the windows is what its own answers said.
    fn rate(&self, _: &Scope, _: Limits) -> Option<RateView> {
        None
    }

    fn view(&self) -> (Figures, usize) {
        let shown = block_on(async { self.shared.show(&self.shared.link(), self.account.keys()).await });
        let shown = shown.unwrap().unwrap();
        (shown.figures, usize::try_from(shown.open_holds).unwrap())
    }
}
