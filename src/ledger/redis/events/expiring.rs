//! Keys that expire within a week. What cannot be asked for or read keeps no other key from being told, and is named.
//!
//! Which expiry of a key was told is kept with the key, for an account may have more keys than ids of events are known of (`uek` in
//! `event.lua`). Those ids are kept too: gateways of earlier builds go by them alone, and they tell nobody twice where a process dies between the
//! event and the note at its key, or before a replica has the event.

mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use redis::Value;

use super::AT_ONCE;
use crate::clock::monotonic;
use crate::ledger::StoreError;
use crate::ledger::admin::AdminError;
use crate::ledger::events::{self, Room};
use crate::ledger::redis::account::keys_of_account;
use crate::ledger::redis::admission_breaker::millis;
use crate::ledger::redis::link::Link;
use crate::ledger::redis::nonce::nonce;
use crate::ledger::redis::reply::{self, corrupt};
use crate::ledger::redis::script::{self, PREFIX};
use crate::ledger::redis::shared::{Shared, key_name, read_record};
use crate::pure::ids::{AccountId, KeyDigest, KeyId};
use crate::pure::time::Timestamp;

/// What was passed over: nobody knows whether it expires soon.
#[derive(Debug, Default)]
struct PassedOver {
    count: usize,
    /// The first of it, each with why.
    named: Vec<String>,
}

/// A look at all keys.
struct Look<'a> {
    link: &'a Link,
    /// For what waits for a replica: that holds up what shares the connection.
    own: &'a Link,
    now: Timestamp,
    is_given_up: &'a AtomicBool,
    /// The text by which the turn was taken.
    turn: &'a str,
    /// When the turn was taken or kept last.
    kept: Instant,
    passed_over: PassedOver,
    /// Something was not asked for, or not answered: it is to be looked at again soon.
    is_in_part: bool,
    /// Masters whose replicas have not confirmed events, by number: no more is noted at keys of their accounts.
    unconfirmed: BTreeSet<usize>,
    /// Accounts with too many open events for a key that waits for room, or for any.
    full: BTreeMap<AccountId, Room>,
}

/// What came of a look at a key.
#[derive(Debug)]
enum Looked {
    /// There is nothing to tell, or that it is told was noted before.
    Done,
    /// Its event is raised, now or before: it is to be noted which expiry that tells.
    Raised(String),
    /// Too many of its account's events are open for a key like this.
    Full(Room),
}

impl PassedOver {
    fn note(&mut self, what: impl Display, why: impl Display) {
        self.count = self.count.saturating_add(1);
        if self.named.len() < NAMED_MAX {
            self.named.push(format!("{what}: {why}"));
        }
    }

    /// # Errors
    /// When something was passed over.
    fn told(self) -> Result<(), AdminError> {
        match self.count {
            0 => Ok(()),
            count => Err(AdminError::Store(format!(
                "passed over {count}, all others were looked at: {}",
                self.named.join("; ")
            ))),
        }
    }
}

impl Look<'_> {
    /// Notes what was not answered, or cannot be read as it is stored: only that is no better soon.
    fn pass_over(&mut self, what: impl Display, why: &StoreError) {
        self.is_in_part |= !matches!(why, StoreError::Corrupt(_));
        self.passed_over.note(what, why);
    }

    /// Notes what was not asked for.
    fn pass_over_silent(&mut self, what: impl Display) {
        self.is_in_part = true;
        self.passed_over.note(what, SILENT);
    }
}

impl Shared {
    /// One gateway of many looks at all keys, or more of them do where nobody can say whose turn it is: an event is raised once. A look that is
    /// given up leaves its turn to whoever asks next; after one to which a server did not answer one gateway looks again in some minutes. The
    /// turn of a process that dies ends by itself.
    ///
    /// True where all keys were looked at. False where another gateway has the turn, which may not come to its end, or the look was given up.
    ///
    /// # Errors
    /// When something was passed over: it is named, and all others were looked at, unless the look was given up.
    pub(in crate::ledger::redis) async fn raise_expiring(
        &self,
        link: &Link,
        is_given_up: &AtomicBool,
    ) -> Result<bool, AdminError> {
        let (began, turn, own) = (monotonic(), nonce()?, Link::default());
        let mut look = Look {
            link,
            own: &own,
            // A week is long: what is known of the time here is enough.
            now: self.redis_now(),
            is_given_up,
            turn: &turn,
            kept: began,
            passed_over: PassedOver::default(),
            is_in_part: false,
            unconfirmed: BTreeSet::new(),
            full: BTreeMap::new(),
        };
        let is_taken = self.take_look_turn(&look).await;
        match is_taken {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error) => look.pass_over("the turn", &error),
        }
        let is_through = self.look_at_all(&mut look).await;
        let left = match (is_through, look.is_in_part) {
            (false, _) => Duration::ZERO,
            (true, true) => KEYS_AGAIN,
            (true, false) => KEYS_EVERY.saturating_sub(began.elapsed()),
        };
        self.keep_look(&look, left).await;
        events::warn_of_waiting(look.full.len());
        look.passed_over.told()?;
        Ok(is_through)
    }

    /// False when that was given up.
    async fn look_at_all(&self, look: &mut Look<'_>) -> bool {
        let link = look.link;
        let names = self.unless_given_up(look, self.read_names(link)).await;
        let names = match names {
            None => return false,
            Some(Ok(names)) => names,
            Some(Err(error)) => {
                look.pass_over("accounts whose names are not known", &error);
                self.cache.account_names()
            }
        };
        for some in names.chunks(AT_ONCE) {
            let Some(keys) = self.keys_to_look_at(look, some).await else {
                return false;
            };
            for some in keys.chunks(KEYS_AT_ONCE) {
                if !self.goes_on(look).await {
                    return false;
                }
                self.look_at_keys(look, some).await;
            }
        }
        true
    }

    /// Whether the look is not given up. Keeps its turn.
    async fn goes_on(&self, look: &mut Look<'_>) -> bool {
        if look.is_given_up.load(Ordering::Relaxed) {
            return false;
        }
        if look.kept.elapsed() >= TURN / 3 {
            look.kept = monotonic();
            self.keep_look(look, TURN).await;
        }
        true
    }

    /// What is read, which may take long: none where the look is given up meanwhile. Keeps its turn.
    async fn unless_given_up<T>(&self, look: &mut Look<'_>, read: impl Future<Output = T>) -> Option<T> {
        let mut read = pin!(read);
        while self.goes_on(look).await {
            if let Ok(read) = tokio::time::timeout(GIVEN_UP_WITHIN, &mut read).await {
                return Some(read);
            }
        }
        None
    }

    /// Whether it is this look's turn.
    async fn take_look_turn(&self, look: &Look<'_>) -> Result<bool, StoreError> {
        let mut take = redis::cmd("SET");
        take.arg(turn_key())
            .arg(look.turn)
            .arg("NX")
            .arg("PX")
            .arg(millis(TURN));
        match self.command(look.link, take).await? {
            // By another look, or by this one: where an answer is lost, the command is sent again.
            Value::Nil => self.keep_look_turn(look, TURN).await,
            _ => Ok(true),
        }
    }

    /// Where that fails, the turn ends by itself, and another gateway may look as well.
    async fn keep_look(&self, look: &Look<'_>, left: Duration) {
        if let Err(error) = self.keep_look_turn(look, left).await {
            log::debug!("the turn to look at keys ends by itself: {error}");
        }
    }

    /// Whether the turn is this look's, and lasts for so much longer.
    async fn keep_look_turn(&self, look: &Look<'_>, left: Duration) -> Result<bool, StoreError> {
        let left = millis(left).to_string();
        let kept = self
            .run_script(look.link, &script::TURN, &[&turn_key()], &[look.turn, &left])
            .await?;
        Ok(reply::integer(&kept)? == 1)
    }

    /// None where the look is given up.
    async fn keys_to_look_at<'a>(
        &self,
        look: &mut Look<'_>,
        accounts: &'a [AccountId],
    ) -> Option<Vec<(&'a AccountId, KeyDigest)>> {
        let mut asked = Vec::new();
        for account in accounts {
            match self.is_passed_over(look, &keys_of_account(account)) {
                true => look.pass_over_silent(format_args!("the keys of {account}")),
                false => asked.push(account),
            }
        }
        let link = look.link;
        let lists = join_all(asked.iter().map(|account| self.digests_of(link, account)));
        let lists = self.unless_given_up(look, lists).await?;
        let mut keys = Vec::new();
        for (account, digests) in asked.into_iter().zip(lists) {
            match digests {
                Ok(digests) => {
                    for digest in digests {
                        match digest {
                            Some(digest) => keys.push((account, digest)),
                            None => look
                                .passed_over
                                .note(format_args!("a key of {account}"), "its digest is none"),
                        }
                    }
                }
                Err(error) => look.pass_over(format_args!("the keys of {account}"), &error),
            }
        }
        Some(keys)
    }

    /// The digests in an account's list of keys; none in the place of one that cannot be read.
    async fn digests_of(&self, link: &Link, account: &AccountId) -> Result<Vec<Option<KeyDigest>>, StoreError> {
        let mut members = redis::cmd("SMEMBERS");
        members.arg(keys_of_account(account));
        let members = self.command(link, members).await?;
        let read = |hex: &Value| reply::text(hex).ok().and_then(KeyDigest::from_hex);
        Ok(reply::list(&members)?.iter().map(read).collect())
    }

    async fn look_at_keys(&self, look: &mut Look<'_>, keys: &[(&AccountId, KeyDigest)]) {
        let mut asked = Vec::new();
        for (account, digest) in keys {
            let full = look.full.get(*account).copied();
            if full == Some(Room::Made) {
                continue;
            }
            match self.is_passed_over(look, &key_name(digest)) {
                true => look.pass_over_silent(KeyId::of(digest)),
                false => asked.push((*account, digest, full)),
            }
        }
        let (link, now) = (look.link, look.now);
        let looked = join_all(
            asked
                .iter()
                .map(|(_, digest, full)| self.raise_if_expiring(link, digest, (now, *full))),
        )
        .await;
        let mut to_note = Vec::new();
        for ((account, digest, _), looked) in asked.into_iter().zip(looked) {
            match looked {
                Ok(Looked::Done) => {}
                Ok(Looked::Raised(expires)) => to_note.push((account, digest, expires)),
                Ok(Looked::Full(room)) => {
                    let full = look.full.entry(account.clone()).or_insert(room);
                    if room == Room::Made {
                        *full = room;
                    }
                }
                Err(error) => look.pass_over(KeyId::of(digest), &error),
            }
        }
        self.note_told(look, to_note).await;
    }

    /// A key in its account's list has a record: that was written first. `full`: for which keys its account has no room.
    async fn raise_if_expiring(
        &self,
        link: &Link,
        digest: &KeyDigest,
        (now, full): (Timestamp, Option<Room>),
    ) -> Result<Looked, StoreError> {
        let mut command = redis::cmd("HMGET");
        command.arg(key_name(digest)).arg("record").arg("revoked").arg("told");
        let read = self.command(link, command).await?;
        let key = read_record(&read)?.ok_or_else(|| corrupt("the key is not there"))?;
        let (Some((event, room)), Some(expires)) = (events::expiring(&key, now), key.expires) else {
            return Ok(Looked::Done);
        };
        let expires = expires.0.to_string();
        if let [_, _, Value::BulkString(told)] = reply::list(&read)?
            && told.as_slice() == expires.as_bytes()
        {
            return Ok(Looked::Done);
        }
        if full == Some(room) {
            return Ok(Looked::Full(room));
        }
        let open_max = room.open_of_keys_max().to_string();
        let may_drop = match room {
            Room::Awaited => "0",
            Room::Made => "1",
        };
        let raised = self.raise_once(link, &event, &[&open_max, may_drop]).await?;
        match reply::text(&raised)? {
            "raised" | "known" => Ok(Looked::Raised(expires)),
            "full" => Ok(Looked::Full(room)),
            "none" => Err(corrupt("the key's account is not there")),
            other => Err(corrupt(&format!("an event that is raised was answered {other:?}"))),
        }
    }

    /// Once something was passed over, a server that gave no answer is not asked: each question to it may wait for its time-out.
    fn is_passed_over(&self, look: &Look<'_>, key: &str) -> bool {
        look.passed_over.count > 0 && self.shard_of_key(key).guard.is_failing()
    }
}

/// Is there while a gateway looks, and until it is looked again.
fn turn_key() -> String {
    format!("{PREFIX}events:keys")
}

/// How often one of all gateways looks at all keys: a little more often than each of them wants to.
const KEYS_EVERY: Duration = Duration::from_secs(3_500);
/// After how long it is looked again where a server did not answer: a little sooner than a gateway asks again that has not seen all of them.
const KEYS_AGAIN: Duration = Duration::from_secs(240);
/// How long a gateway that died while it looked keeps the others from looking.
const TURN: Duration = Duration::from_secs(60);
/// How often it is seen, while something is read, whether the look is given up.
const GIVEN_UP_WITHIN: Duration = Duration::from_millis(100);
/// Keys that are looked at at once.
const KEYS_AT_ONCE: usize = 64;
/// Why something is passed over that a server has which gave no answer before.
const SILENT: &str = "its server does not answer";
/// What is named of what was passed over.
const NAMED_MAX: usize = 10;
