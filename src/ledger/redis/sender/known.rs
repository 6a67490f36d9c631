//! Settlements that Redis may have taken already: those of a process that died, and those that are sent again because Redis may have lost
//! its last moments. Nearly all of them are known there. Which are is looked up by account, for that costs Redis a small part of what it
//! costs to be told each once more, and calls are not refused meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::send::producer_field;
use super::{Settler, in_time};
use crate::ledger::redis::account::Account;
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
            *numbers = numbers_of(&answer);
        }
    }
    Some(())
}

/// `highest day open…`, as lua/numbers.lua writes it: numbers that follow one another stand as a run, or each by itself. None where that is
/// not there, or is something else.
pub(super) fn numbers_of(answer: &Value) -> Option<Numbers> {
    let text = reply::text(answer).ok()?;
    let (high, rest) = text.split_once(' ')?;
    let written = rest.split_once(' ').map_or("", |(_, open)| open);
    let mut open: Vec<(u64, u64)> = Vec::new();
    for run in written.split_ascii_whitespace() {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        match open.last_mut() {
            Some((_, before)) if before.checked_add(1) == Some(first) && last >= first => *before = last,
            _ => open.push((first, last)),
        }
    }
    Numbers::restored(high.parse().ok()?, open)
}

/// How many accounts are asked for together.
const AT_ONCE: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_account_knows_of_a_producer_is_read_as_the_scripts_write_it() {
        let read = |text: &str| numbers_of(&Value::BulkString(text.as_bytes().to_vec()));
        for (text, closed, open) in [
            ("7 20000", vec![1, 7], vec![8]),
            ("9 20000 3 5-7 ", vec![1, 2, 4, 8, 9], vec![3, 5, 6, 7, 10]),
            ("9 20000 3 4 6-7 8 ", vec![1, 2, 5, 9], vec![3, 4, 6, 7, 8, 10]),
        ] {
            let numbers = read(text).unwrap();
            assert!(closed.iter().all(|number| numbers.is_closed(*number)), "{text}");
            assert!(!open.iter().any(|number| numbers.is_closed(*number)), "{text}");
        }
        for other in [
            "",
            "7",
            "x 20000",
            "7 20000 x ",
            "7 20000 5-8 ",
            "7 20000 5 4 ",
            "7 20000 4 5-4 ",
        ] {
            assert_eq!(read(other), None, "{other:?}");
        }
        assert_eq!(numbers_of(&Value::Nil), None);
        assert_eq!(numbers_of(&Value::Int(7)), None);
    }
}
