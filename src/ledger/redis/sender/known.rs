//! Settlements that Redis may have taken already: those of a process that died, and those that are sent again because Redis may have lost
//! its last moments. Nearly all of them are known there. Which are is looked up by account, for that costs Redis a small part of what it
//! costs to be told each once more, and calls are not refused meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Settler, in_time};
use crate::ledger::redis::account::{Account, producer_field};
use crate::ledger::redis::queue::{QueuedDebit, Work};
use crate::ledger::redis::reply::{self, SettleReply, SettledWith};
use crate::ledger::redis::url::Connection;
use crate::pure::account::Settled;
use crate::pure::ids::AccountId;
use crate::pure::numbers::Numbers;

impl Settler {
    /// Lets go of the settlements in doubt that Redis has taken. What it does not say of one leaves it to be sent, and so does an error.
    pub(super) async fn look_up_doubted(&mut self) {
        if !std::mem::take(&mut self.has_doubted) {
            return;
        }
        let Some((mut connection, number)) = self.connection().await else {
            self.has_doubted = true;
            return;
        };
        let mut resolved = Resolved::default();
        for debit in self.backlog.iter().filter_map(doubted) {
            resolved
                .entry(name_of(debit))
                .or_insert_with(|| (Arc::clone(&debit.account), None));
        }
        if resolved.is_empty() {
            return;
        }
        if ask(&mut connection, &mut resolved, self.shared.options.timeout)
            .await
            .is_none()
        {
            self.line.give_up(number);
            self.has_doubted = true;
            return;
        }
        let (mut known, mut unknown) = (Vec::new(), 0_usize);
        for work in std::mem::take(&mut self.backlog) {
            match work {
                Work::Settle(mut debit) if debit.is_doubted => {
                    debit.is_doubted = false;
                    let numbers = resolved.get(&name_of(&debit)).and_then(|(_, numbers)| numbers.as_ref());
                    if numbers.is_some_and(|numbers| numbers.is_closed(debit.number.number)) {
                        known.push(debit);
                    } else {
                        unknown += 1;
                        self.backlog.push_back(Work::Settle(debit));
                    }
                }
                work => self.backlog.push_back(work),
            }
        }
        log::info!(
            "of {} settlements that may have been sent before Redis has {}; {unknown} are sent",
            known.len() + unknown,
            known.len()
        );
        let mut kept = Vec::new();
        for debit in known {
            let already = SettleReply::Settled(SettledWith {
                settled: Settled::Already,
                opened: None,
                at: None,
            });
            self.read_settled(debit, Some(Ok(already)), &mut kept, &mut Vec::new());
        }
        self.put_in_front(kept);
    }
}

/// What accounts know of the producers of these settlements; none where they know nothing.
type Resolved = BTreeMap<(AccountId, String), (Arc<Account>, Option<Numbers>)>;

fn doubted(work: &Work) -> Option<&QueuedDebit> {
    match work {
        Work::Settle(debit) if debit.is_doubted => Some(debit),
        Work::Settle(_) | Work::Release { .. } | Work::Barrier { .. } => None,
    }
}

fn name_of(debit: &QueuedDebit) -> (AccountId, String) {
    (debit.account.id().clone(), producer_field(debit.number))
}

/// Asks for some accounts together, and waits so long for each answer of these. None when the connection failed.
async fn ask(connection: &mut Connection, resolved: &mut Resolved, within: Duration) -> Option<()> {
    let mut wanted: Vec<_> = resolved.iter_mut().collect();
    for some in wanted.chunks_mut(AT_ONCE) {
        let mut together = redis::pipe();
        for ((_, field), (account, _)) in &*some {
            let [name, _] = account.keys();
            together.hget(name, field);
        }
        let answers = in_time(within, connection.send_all(&together)).await?;
        for ((_, (_, numbers)), answer) in some.iter_mut().zip(answers) {
            *numbers = reply::numbers(&answer);
        }
    }
    Some(())
}

/// How many accounts are asked for together.
const AT_ONCE: usize = 512;
