//! Credit entries. Each is a field of its account, and the order of them all a key of its own, which gateways of earlier versions do not
//! know: what they have posted is looked for where it matters, by scans that hold up nobody.

use futures::FutureExt;
use redis::Value;

use super::account::{account_keys, credits_of_account, ended_claims_of_account};
use super::link::Link;
use super::nonce::nonce;
use super::reply::{self, corrupt};
use super::script;
use super::shared::Shared;
use crate::ledger::StoreError;
use crate::ledger::admin::credits::{
    CREDITS_MAX, CreditEntry, CreditKind, CreditOp, CreditPage, CreditPost, Posted, Statement, check_new_reference,
    closed_to_credit,
};
use crate::ledger::admin::{AdminError, AdminReply};
use crate::pure::ids::AccountId;
use crate::pure::money::Credits;
use crate::pure::time::Timestamp;

impl Shared {
    pub(super) async fn credit_op(&self, link: &Link, op: CreditOp) -> Result<AdminReply, AdminError> {
        match op {
            CreditOp::Post(post) => self.post(link, &post).await.map(AdminReply::Posted),
            CreditOp::List { account, limit, before } => {
                let page = self.credits(link, &account, limit, before.as_deref()).await?;
                Ok(AdminReply::CreditPage(page))
            }
            CreditOp::Statement { account, from, to } => {
                Statement::check_days(from, to).map_err(AdminError::Invalid)?;
                let statement = self.statement(link, &account, (from, to)).await?;
                Ok(AdminReply::Statement(statement))
            }
            CreditOp::Find { account, reference } => {
                let (account, entry) = match account {
                    Some(account) => {
                        let entry = self.credit_entry(link, &account, &reference).await?;
                        (Some(account), entry)
                    }
                    None => self.payer(link, &reference).await?,
                };
                Ok(AdminReply::CreditFound { account, entry })
            }
        }
    }

    pub(super) async fn credit_entry(
        &self,
        link: &Link,
        account: &AccountId,
        reference: &str,
    ) -> Result<Option<CreditEntry>, StoreError> {
        let [name, _] = account_keys(account);
        let mut get = redis::cmd("HGET");
        get.arg(name).arg(field_of(reference));
        let value = self.command(link, get).await?;
        reply::optional_text(&value)?
            .map(|text| entry(reference, text))
            .transpose()
    }

    /// A top-up as it was before entries had a kind.
    pub(super) async fn add_credits(
        &self,
        link: &Link,
        account: AccountId,
        amount: Credits,
        reference: String,
    ) -> Result<AdminReply, AdminError> {
        let post = CreditPost::top_up(account, amount, reference);
        let Posted { added, balance, .. } = self.post(link, &post).await?;
        Ok(AdminReply::Credited { added, balance })
    }

    async fn post(&self, link: &Link, post: &CreditPost) -> Result<Posted, AdminError> {
        post.check().map_err(AdminError::Invalid)?;
        // No entry is ever taken away, so this need not be the same step.
        if let Err(why) = check_new_reference(&post.reference)
            && self.credit_entry(link, &post.account, &post.reference).await?.is_none()
        {
            return Err(AdminError::Invalid(why));
        }
        if post.keeps_payer() {
            // In a box of its own type: it is deep.
            return self.post_payment(link, post).boxed().await;
        }
        self.post_unclaimed(link, post).await
    }

    /// Posts an entry that claims no payment.
    pub(super) async fn post_unclaimed(&self, link: &Link, post: &CreditPost) -> Result<Posted, AdminError> {
        let posted = self.post_claimed(link, post, None).await?;
        posted.ok_or_else(|| corrupt("a post was refused for a claim that it has not").into())
    }

    /// Posts an entry: that of a payment by the claim that it is of this turn. None where that claim was ended.
    pub(super) async fn post_claimed(
        &self,
        link: &Link,
        post: &CreditPost,
        turn: Option<u64>,
    ) -> Result<Option<Posted>, AdminError> {
        let [name, order] = account_keys(&post.account);
        let (credits, ended) = (
            credits_of_account(&post.account),
            ended_claims_of_account(&post.account),
        );
        let flag = |is: bool| if is { "1" } else { "0" };
        let (now, pico) = (self.now_text(), post.amount.pico().to_string());
        let (nonce, turn) = (nonce()?, turn.map(|turn| turn.to_string()));
        let mut arguments = vec![
            now.as_str(),
            &post.reference,
            &pico,
            post.kind.name(),
            post.note.as_deref().unwrap_or_default(),
            flag(post.allow_negative),
            flag(post.kind.may_be_negative()),
            flag(post.as_available),
            &nonce,
        ];
        let mut keys = vec![name.as_str(), &order, &credits];
        if let Some(turn) = &turn {
            keys.push(&ended);
            arguments.push(turn);
        }
        let value = self.run_script(link, &script::POST, &keys, &arguments).await?;
        let parts = reply::list(&value)?.iter().map(reply::text);
        let parts = parts.collect::<Result<Vec<&str>, StoreError>>()?;
        match parts.as_slice() {
            [outcome @ ("added" | "already"), balance, text] => Ok(Some(Posted {
                added: *outcome == "added",
                balance: reply::credits(Some(balance))?,
                entry: entry(&post.reference, text)?,
            })),
            ["ended"] => Ok(None),
            ["conflict", ..] => Err(AdminError::ReferenceConflict(post.reference.clone())),
            ["none"] => Err(AdminError::NoAccount(post.account.clone())),
            ["closed"] => Err(AdminError::Conflict(closed_to_credit())),
            ["short", available, held] => {
                let (available, held) = (reply::credits(Some(available))?, reply::credits(Some(held))?);
                Err(AdminError::Conflict(post.short(available, held)))
            }
            ["range"] => Err(AdminError::Invalid(post.out_of_range())),
            other => Err(corrupt(&format!("a post was answered {other:?}")).into()),
        }
    }

    async fn credits(
        &self,
        link: &Link,
        account: &AccountId,
        limit: u32,
        before: Option<&str>,
    ) -> Result<CreditPage, AdminError> {
        let known = self.existing(link, account).await?;
        let now_ms = self.now_ms();
        if before.is_none() && known.credits_are_old(now_ms) {
            self.complete_order(link, account).await?;
            known.looked_at_credits(now_ms);
        }
        let limit = usize::try_from(limit.clamp(1, CREDITS_MAX)).unwrap_or(usize::MAX);
        let ([name, _], credits) = (account_keys(account), credits_of_account(account));
        let wanted = limit.saturating_add(1).to_string();
        let arguments = [wanted.as_str(), before.unwrap_or_default()];
        let value = self
            .run_script(link, &script::CREDITS, &[&name, &credits], &arguments)
            .await?;
        let Ok(list) = reply::list(&value) else {
            let before = before.unwrap_or_default();
            return Err(AdminError::Invalid(format!("no entry is known by {before:?}")));
        };
        Ok(CreditPage::of(entries(list)?, limit))
    }

    /// Puts the entries into the order that are not in it, and says how many there were: those of earlier versions.
    pub(super) async fn complete_order(&self, link: &Link, account: &AccountId) -> Result<u64, StoreError> {
        let ([name, _], credits) = (account_keys(account), credits_of_account(account));
        let (mut cursor, mut found) = ("0".to_owned(), 0u64);
        loop {
            let mut scan = redis::cmd("HSCAN");
            scan.arg(&name)
                .arg(&cursor)
                .arg("MATCH")
                .arg("t*")
                .arg("COUNT")
                .arg(SCANNED_AT_ONCE);
            let value = self.command(link, scan).await?;
            let [next, fields] = reply::list(&value)? else {
                return Err(corrupt("a scan has other parts than it should"));
            };
            let mut order = redis::cmd("ZADD");
            order.arg(&credits).arg("NX");
            let mut is_empty = true;
            for pair in reply::list(fields)?.chunks_exact(2) {
                let [field, text] = pair else { continue };
                if let Some(reference) = reference_of(reply::text(field)?) {
                    order.arg(entry(reference, reply::text(text)?)?.at.0).arg(reference);
                    is_empty = false;
                }
            }
            if !is_empty {
                let added = reply::integer(&self.command(link, order).await?)?;
                found = found.saturating_add(u64::try_from(added).map_err(|_| corrupt("a negative count"))?);
            }
            cursor = reply::text(next)?.to_owned();
            if cursor == "0" {
                return Ok(found);
            }
        }
    }
}

/// The field of an account that has the entry of a reference, as scripts name it.
fn field_of(reference: &str) -> String {
    match reference {
        "ier" => "t".to_owned(),
        _ => format!("t{reference}"),
    }
}

/// The reference of a field of an account; none where it is another fact.
fn reference_of(field: &str) -> Option<&str> {
    match field {
        "tier" => None,
        // Its field would else be the account's tier.
        "t" => Some("ier"),
        _ => field.strip_prefix('t'),
    }
}

/// Reads references and their entries, one after the other.
pub(super) fn entries(list: &[Value]) -> Result<Vec<CreditEntry>, StoreError> {
    let pairs = list.chunks_exact(2).map(|pair| match pair {
        [reference, text] => entry(reply::text(reference)?, reply::text(text)?),
        _ => Err(corrupt("an entry has no text")),
    });
    pairs.collect()
}

/// Reads an entry: those of earlier versions have only amount and time.
fn entry(reference: &str, text: &str) -> Result<CreditEntry, StoreError> {
    let mut parts = text.splitn(5, ' ');
    let (amount, at) = (reply::credits(parts.next())?, reply::number(parts.next())?);
    let kind = parts.next().map(str::parse::<CreditKind>).transpose();
    let balance = parts.next().map(|balance| reply::credits(Some(balance))).transpose()?;
    Ok(CreditEntry {
        at: Timestamp(at),
        kind: kind.map_err(|error| corrupt(&error))?.unwrap_or_default(),
        amount,
        reference: reference.to_owned(),
        note: parts.next().map(str::to_owned),
        balance,
    })
}

/// Fields of an account that are looked through at once: less than a millisecond.
const SCANNED_AT_ONCE: u32 = 1_000;
