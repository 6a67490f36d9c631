//! What is noted at keys that are told.

use std::collections::BTreeMap;

use futures::future::join_all;

use super::Look;
use crate::ledger::StoreError;
use crate::ledger::redis::account::keys_of_account;
use crate::ledger::redis::link::Link;
use crate::ledger::redis::script;
use crate::ledger::redis::shared::{Shared, key_name};
use crate::pure::ids::{AccountId, KeyDigest, KeyId};

/// A key that is told, with its account and the expiry that is to be noted.
pub(super) type ToNote<'a> = (&'a AccountId, &'a KeyDigest, String);

impl Shared {
    /// Notes which expiry of each key is told, once a replica has its event. A process that dies before tells it once more, and none never.
    ///
    /// A master that has no replica has nothing to wait for: where one of a cluster dies, and starts again without its last second, the event may
    /// be lost of a key that another master has, with the note. To wait for a later look, which finds the id known, would tell keys of an account
    /// with more of them than ids are known of each hour.
    pub(super) async fn note_told(&self, look: &mut Look<'_>, raised: Vec<ToNote<'_>>) {
        // Each with the place of one of its accounts.
        let mut of_masters: BTreeMap<usize, (String, Vec<ToNote<'_>>)> = BTreeMap::new();
        for told in raised {
            let place = keys_of_account(told.0);
            let number = self.shard_of_key(&place).number;
            let (_, of_master) = of_masters.entry(number).or_insert_with(|| (place, Vec::new()));
            of_master.push(told);
        }
        for (number, (place, of_master)) in of_masters {
            if self.is_confirmed(look, number, &place).await {
                self.note_at_keys(look, &of_master).await;
            }
        }
    }

    /// Whether a replica has the events at this master, which has `place`. A fail-over of an account's master could lose one, and the note at its
    /// key, which another master has, would keep it from being told again. One that confirmed nothing is not asked again: each further try may
    /// wait as long.
    async fn is_confirmed(&self, look: &mut Look<'_>, number: usize, place: &str) -> bool {
        if look.unconfirmed.contains(&number) {
            return false;
        }
        let own = look.own;
        let places = [place];
        let confirmed = self.unless_given_up(look, Box::pin(self.confirm(own, &places))).await;
        match confirmed {
            Some(Ok(())) => true,
            Some(Err(error)) => {
                look.unconfirmed.insert(number);
                log::warn!("not all keys that are told of can be noted, they may be told of again: {error}");
                false
            }
            None => false,
        }
    }

    async fn note_at_keys(&self, look: &mut Look<'_>, raised: &[ToNote<'_>]) {
        let link = look.link;
        let noted = join_all(
            raised
                .iter()
                .map(|(_, digest, expires)| self.note_at_key(link, digest, expires)),
        )
        .await;
        for ((_, digest, _), noted) in raised.iter().zip(noted) {
            if let Err(error) = noted {
                look.pass_over(KeyId::of(digest), &error);
            }
        }
    }

    async fn note_at_key(&self, link: &Link, digest: &KeyDigest, expires: &str) -> Result<(), StoreError> {
        let name = key_name(digest);
        self.run_script(link, &script::KEY_TOLD, &[&name], &[expires]).await?;
        Ok(())
    }
}
