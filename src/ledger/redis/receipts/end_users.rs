//! Usage by end user in Redis: the entries of some days of an account's stream, newest first.
//!
//! An entry's place says when Redis wrote it, and is never before the time that its receipt says. It may be later: a clock that was set back,
//! or is another replica's after a fail-over, goes on from the place of the entry before.

use super::super::link::Link;
use super::super::shared::Shared;
use crate::clock::Clock;
use crate::ledger::admin::AdminError;
use crate::ledger::query::{EndUserQuery, EndUserSums, EndUserUsage, Unsummed};
use crate::pure::ids::AccountId;
use crate::pure::time::{Day, Timestamp};

impl Shared {
    /// Usage by end user; every settlement made here before the call is in it.
    pub(in crate::ledger::redis) async fn end_users(
        &self,
        link: &Link,
        query: &EndUserQuery,
    ) -> Result<EndUserUsage, AdminError> {
        let account = self.existing(link, &query.account).await?;
        self.barrier(&account).await?;
        let mut sums = EndUserSums::new(query, self.time(link).await?.day());
        let turn = self.turn(&account).await?;
        let ended = self.add_end_users(link, &query.account, &mut sums).await;
        drop(turn);
        let usage = sums.ended(ended)?;
        if usage == EndUserUsage::Sums(Vec::new()) {
            self.view(link, &query.account).await?; // There may be no such account.
        }
        Ok(usage)
    }

    async fn add_end_users(
        &self,
        link: &Link,
        account: &AccountId,
        sums: &mut EndUserSums<'_>,
    ) -> Result<(), Unsummed> {
        let (mut end, start) = match self.redis_clock() {
            Clock::System => places(sums.days()),
            // A test's clock says nothing of Redis' own.
            Clock::Manual(_) => ("+".to_owned(), "-".to_owned()),
        };
        loop {
            let entries = self.entries_within(link, account, (&end, &start)).await?;
            let Some((last, _)) = entries.last() else {
                return Ok(());
            };
            end = format!("({last}");
            for (_, receipt) in entries {
                sums.add(receipt)?;
            }
        }
    }
}

/// The last and the first place that an entry of these days may have.
fn places((from, to): (Day, Day)) -> (String, String) {
    let moment = |at: Timestamp| at.0.max(0);
    let end = match to.next().start().plus_millis(CLOCKS_APART_MS) {
        Timestamp(i64::MAX) => "+".to_owned(),
        end => format!("({}", moment(end)),
    };
    (end, moment(from.start()).to_string())
}

/// How far an entry's place may be after its receipt's time: how much a clock was set back, or two replicas' are apart.
const CLOCKS_APART_MS: i64 = 600_000;
