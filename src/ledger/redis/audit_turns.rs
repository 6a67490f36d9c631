//! Whose turn it is to audit the books: of many gateways one does it, and the others take what it found. For each account an audit holds Redis up
//! for as long as it takes to give all that it has of it.

use std::pin::pin;
use std::time::Duration;

use redis::Value;
use serde::{Deserialize, Serialize};

use super::admission_breaker::millis;
use super::link::Link;
use super::nonce::nonce;
use super::reply;
use super::script::{self, PREFIX};
use super::shared::Shared;
use crate::clock::monotonic;
use crate::ledger::StoreError;
use crate::ledger::admin::{AdminError, AuditReport};
use crate::pure::time::Timestamp;

/// What an audit found, as it is kept for the others.
#[derive(Debug, Serialize, Deserialize)]
struct Found {
    /// When it ended, by Redis' clock.
    ended: Timestamp,
    report: AuditReport,
}

impl Shared {
    /// What the last audit found, whoever made it, and how long ago it ended, if it found nothing wrong in the last `within`. Else the books are
    /// audited, for whoever asks in the next `every`; a gateway that does that already is waited for.
    pub(super) async fn audit_in_turn(
        &self,
        link: &Link,
        within: Duration,
        every: Duration,
    ) -> Result<(AuditReport, Duration), AdminError> {
        let began = monotonic();
        let turn = nonce()?;
        loop {
            if let Some(found) = self.found_lately(link, within).await? {
                return Ok(found);
            }
            if self.take_turn(link, &turn).await? {
                break;
            }
            if began.elapsed() >= WAIT_MAX {
                return Err(AdminError::Store(
                    "another gateway audits them, and does not end".to_owned(),
                ));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        // The one before may have ended between the two looks.
        let audited = match self.found_lately(link, within).await {
            Ok(Some(found)) => Ok(found),
            Ok(None) => self.audit_for_all(link, every, &turn).await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = self.keep_turn(link, &turn, Duration::ZERO).await {
            log::debug!("the turn to audit ends by itself: {error}");
        }
        audited
    }

    /// Audits, and keeps what was found for the others.
    async fn audit_for_all(
        &self,
        link: &Link,
        every: Duration,
        turn: &str,
    ) -> Result<(AuditReport, Duration), AdminError> {
        let mut audit = pin!(self.audit(link));
        let report = loop {
            match tokio::time::timeout(TURN / 3, &mut audit).await {
                Ok(audited) => break audited?,
                // Where that fails, another gateway may audit as well.
                Err(_) => match self.keep_turn(link, turn, TURN).await {
                    Ok(_) => {}
                    Err(error) => log::debug!("the turn to audit may end: {error}"),
                },
            }
        };
        // Nobody takes anything else.
        if report.is_clean()
            && let Err(error) = self.keep_found(link, &report, every).await
        {
            log::debug!("what an audit found is not kept for other gateways: {error}");
        }
        Ok((report, Duration::ZERO))
    }

    /// What an audit found that ended less than `within` ago.
    async fn found_lately(&self, link: &Link, within: Duration) -> Result<Option<(AuditReport, Duration)>, StoreError> {
        let mut get = redis::cmd("GET");
        get.arg(found_key());
        let kept = self.command(link, get).await?;
        // What another version has written is no audit, and what was wrong may have been mended.
        let read = |text: &str| {
            serde_json::from_str::<Found>(text)
                .ok()
                .filter(|found| found.report.is_clean())
        };
        let Some(found) = reply::optional_text(&kept)?.and_then(read) else {
            return Ok(None);
        };
        let age_ms = self.time(link).await?.since(found.ended);
        let age = u64::try_from(age_ms).map(Duration::from_millis);
        Ok(age.ok().filter(|age| *age < within).map(|age| (found.report, age)))
    }

    async fn keep_found(&self, link: &Link, report: &AuditReport, every: Duration) -> Result<(), StoreError> {
        let found = Found {
            ended: self.time(link).await?,
            report: report.clone(),
        };
        let text = serde_json::to_string(&found).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let mut set = redis::cmd("SET");
        set.arg(found_key()).arg(text).arg("PX").arg(millis(every).max(1));
        self.command(link, set).await.map(drop)
    }

    /// What was found is so no more: the books were repaired.
    pub(super) async fn forget_found(&self, link: &Link) {
        // Over at once. By this name, for DEL is among what a user of the ledger need not be given.
        let mut forget = redis::cmd("PEXPIRE");
        forget.arg(found_key()).arg(0);
        if let Err(error) = self.command(link, forget).await {
            log::debug!("what an audit found before the repair is kept: {error}");
        }
    }

    /// Whether no other gateway audits.
    pub(super) async fn take_turn(&self, link: &Link, turn: &str) -> Result<bool, StoreError> {
        let mut take = redis::cmd("SET");
        take.arg(turn_key()).arg(turn).arg("NX").arg("PX").arg(millis(TURN));
        match self.command(link, take).await? {
            // By another one, or by this one: where an answer is lost, the command is sent again.
            Value::Nil => self.keep_turn(link, turn, TURN).await,
            _ => Ok(true),
        }
    }

    /// Has the turn last for so much longer, or end. Whether it is still the one that was taken with this text.
    pub(super) async fn keep_turn(&self, link: &Link, turn: &str, left: Duration) -> Result<bool, StoreError> {
        let left = millis(left).to_string();
        let kept = self
            .run_script(link, &script::TURN, &[&turn_key()], &[turn, &left])
            .await?;
        Ok(reply::integer(&kept)? == 1)
    }
}

/// Is there while a gateway audits.
fn turn_key() -> String {
    format!("{PREFIX}audit")
}

/// What the last audit found.
fn found_key() -> String {
    format!("{PREFIX}audit:found")
}

/// How long a gateway that died keeps the others from auditing.
const TURN: Duration = Duration::from_secs(30);
/// How often it is looked whether another gateway has ended.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long it is waited for.
const WAIT_MAX: Duration = Duration::from_secs(900);
