//! Payments elsewhere: each is credited to one account, also when it is told for several at the same moment.
//!
//! Whose a payment is stands in a key of its own, and in a cluster at another master than the account: no step covers both. So an account
//! first claims the payment there, and posts it under the turn of its claim. A claim whose account never posted (the process died, the
//! account was not there, or closed) is taken over in this order: it is ended at its account, where [`script::POST`] refuses it from then
//! on; only then the key gets the next account and turn. Both are compared with what was seen before, and an end is never taken back, so
//! that it does not matter where one dies, which answers are lost, and which steps come late.
//!
//! A top-up by hand under a payment's id claims it in the same way, so that its refund is found, and no message credits it once more. Where
//! another account was credited the payment, it is added all the same: the payment stays whose it is where a message said so, and is nobody's
//! to find where that was by hand, too.
//!
//! Gateways of earlier versions write the account alone, without a turn: that is turn 0. They end no claims, so what they post at the same
//! moment as another can still be credited twice. By hand they claim nothing: the same top-up once more does.

use std::fmt;

use super::account::{account_keys, ended_claims_of_account};
use super::link::Link;
use super::reply::{self, corrupt};
use super::script::{self, PREFIX};
use super::shared::Shared;
use crate::ledger::StoreError;
use crate::ledger::admin::AdminError;
use crate::ledger::admin::credits::{CreditEntry, CreditKind, CreditPost, Posted};
use crate::pure::ids::AccountId;

/// Who may post a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    account: AccountId,
    /// How often it was taken over.
    turn: u64,
}

impl Shared {
    /// Whose payment has this reference, and what they were credited for it: they may have claimed it and not posted it.
    ///
    /// # Errors
    /// When several accounts were given it by hand: whose it is, nobody here can say.
    pub(super) async fn payer(
        &self,
        link: &Link,
        reference: &str,
    ) -> Result<(Option<AccountId>, Option<CreditEntry>), AdminError> {
        let mut get = redis::cmd("GET");
        get.arg(payment_key(reference));
        let value = self.command(link, get).await?;
        let Some(text) = reply::optional_text(&value)? else {
            return Ok((None, None));
        };
        let Claim { account, .. } = Claim::read(text)?;
        if self.giver(link, reference).await?.as_deref() == Some(SEVERAL) {
            return Err(AdminError::Invalid(format!(
                "several accounts have a top-up {reference:?}"
            )));
        }
        let entry = self.credit_entry(link, &account, reference).await?;
        // What is no top-up has only the same reference.
        Ok((Some(account), entry.filter(|entry| entry.kind == CreditKind::TopUp)))
    }

    /// Posts what keeps whose payment it is ([`CreditPost::keeps_payer`]): a payment, which no other account is credited, or a top-up by hand.
    ///
    /// # Errors
    /// When a payment was credited to another account, or another one takes it at this moment.
    pub(super) async fn post_payment(&self, link: &Link, post: &CreditPost) -> Result<Posted, AdminError> {
        let (reference, key) = (&post.reference, payment_key(&post.reference));
        let mut held = self
            .claim_payment(link, &key, None, &Claim::first(&post.account))
            .await?;
        // Once: of many who take a payment from each other at the same moment the last one to do so is left alone, and posts it.
        let mut may_take = true;
        for _ in 0..CLAIMS_MAX {
            if held.account == post.account {
                // A fail-over must not lose whose it is after it was posted.
                self.confirm(link, &[&key]).await.map_err(not_credited)?;
                if let Some(posted) = self.post_claimed(link, post, Some(held.turn)).await? {
                    // What a message says is so. By hand it may be a mistake.
                    let (by, only) = match post.is_payment {
                        true => (MESSAGE, None),
                        false => (post.account.as_str(), Some("NX")),
                    };
                    self.note_giver(link, reference, by, only).await?;
                    return Ok(posted);
                }
            } else if !self.end_claim(link, &held, reference).await? {
                if post.is_payment {
                    return Err(AdminError::ReferenceConflict(reference.clone()));
                }
                let posted = self.post_unclaimed(link, post).await?;
                // What a message named stays whose it is. Of two that were given it by hand one may be a mistake.
                let giver = self.giver(link, reference).await?;
                if giver.is_some_and(|giver| giver != MESSAGE) {
                    self.note_giver(link, reference, SEVERAL, None).await?;
                }
                return Ok(posted);
            }
            if !may_take {
                break;
            }
            let next = held.next(&post.account);
            held = self.claim_payment(link, &key, Some(&held), &next).await?;
            may_take = held != next;
        }
        Err(AdminError::Store(format!(
            "the payment {reference:?} is told for another account at this moment, and was not credited here: tell it again"
        )))
    }

    /// Who said whose a payment is: [`MESSAGE`], or by hand, which is the account's name, or [`SEVERAL`]. None of what an earlier version
    /// posted.
    async fn giver(&self, link: &Link, reference: &str) -> Result<Option<String>, StoreError> {
        let mut get = redis::cmd("GET");
        get.arg(giver_key(reference));
        let value = self.command(link, get).await?;
        Ok(reply::optional_text(&value)?.map(str::to_owned))
    }

    /// Notes that; `only` as `SET` has it.
    async fn note_giver(
        &self,
        link: &Link,
        reference: &str,
        giver: &str,
        only: Option<&str>,
    ) -> Result<(), StoreError> {
        let mut set = redis::cmd("SET");
        set.arg(giver_key(reference)).arg(giver).arg(only);
        self.command(link, set).await.map(|_| ())
    }

    /// Claims a payment that stands as it was seen. Gives the claim that stands there then.
    async fn claim_payment(
        &self,
        link: &Link,
        key: &str,
        seen: Option<&Claim>,
        next: &Claim,
    ) -> Result<Claim, StoreError> {
        let (seen, next) = (seen.map(Claim::to_string).unwrap_or_default(), next.to_string());
        let held = self.run_script(link, &script::CLAIM, &[key], &[&seen, &next]).await?;
        Claim::read(reply::text(&held)?)
    }

    /// Ends a claim that was not posted. False where it was.
    async fn end_claim(&self, link: &Link, claim: &Claim, reference: &str) -> Result<bool, AdminError> {
        let ([name, _], ended) = (account_keys(&claim.account), ended_claims_of_account(&claim.account));
        let turn = claim.turn.to_string();
        let answer = self
            .run_script(link, &script::CLAIM_END, &[&name, &ended], &[reference, &turn])
            .await?;
        match reply::text(&answer)? {
            "posted" => return Ok(false),
            "ended" => {}
            other => return Err(corrupt(&format!("the end of a claim was answered {other:?}")).into()),
        }
        // A fail-over must not lose it after another account has posted.
        self.confirm(link, &[&ended]).await.map_err(not_credited)?;
        Ok(true)
    }
}

impl Claim {
    fn first(account: &AccountId) -> Claim {
        Claim {
            account: account.clone(),
            turn: 0,
        }
    }

    /// That of whoever takes this one over.
    fn next(&self, account: &AccountId) -> Claim {
        Claim {
            account: account.clone(),
            turn: self.turn.saturating_add(1),
        }
    }

    fn read(text: &str) -> Result<Claim, StoreError> {
        let (account, turn) = text.split_once(' ').unwrap_or((text, "0"));
        match (account.parse(), turn.parse()) {
            (Ok(account), Ok(turn)) => Ok(Claim { account, turn }),
            _ => Err(corrupt("a payment is of what is no account's name")),
        }
    }
}

/// As it is kept: the first one as earlier versions write and read it.
impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.turn {
            0 => write!(f, "{}", self.account),
            turn => write!(f, "{} {turn}", self.account),
        }
    }
}

/// What is said where a step before the credit is not confirmed.
fn not_credited(error: AdminError) -> AdminError {
    match error {
        AdminError::NotConfirmed(why) => AdminError::Store(format!(
            "whose payment it is cannot be kept: {why}; nothing was credited"
        )),
        other => other,
    }
}

/// Where it stands whose payment a reference is of.
pub(super) fn payment_key(reference: &str) -> String {
    format!("{PREFIX}payment:{reference}")
}

/// Where it is kept who said whose a payment is.
pub(super) fn giver_key(reference: &str) -> String {
    format!("{PREFIX}payment-by:{reference}")
}

/// Stripe said so. No account has this name.
const MESSAGE: &str = "*message";
/// More than one account were given it by hand. No account has this name.
const SEVERAL: &str = "*";
/// How often one who wants to take a payment over finds that somebody else just did.
const CLAIMS_MAX: u32 = 64;
