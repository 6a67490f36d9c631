//! The receipt of one call in Redis, by its request's id or its answer's own.
//!
//! A stream has no index over what its entries say. It is in the order of time, and so are the ids of requests: the newest entries are
//! looked at first, for who has just called, then those from the moment on at which the call began. An answer's own id says no time: the
//! newest so many entries are looked through. Redis does that itself, some at a time, and sends only what may be it.

use redis::Value;

use super::super::account::{Account, receipts_of_account};
use super::super::link::Link;
use super::super::reply::{self, corrupt};
use super::super::script;
use super::super::shared::Shared;
use super::entry;
use crate::clock::monotonic;
use crate::ledger::StoreError;
use crate::ledger::admin::{LOOKED_THROUGH_MAX, ReceiptPage};
use crate::ledger::query::{CallName, RunningCall, SETTLEMENT_WITHIN, Standing};
use crate::pure::ids::{KeyId, RequestId};
use crate::pure::receipt::Receipt;

impl Shared {
    /// The receipt of a call. While its hold stands, its call runs or its settlement is on its way from another gateway: for a moment
    /// that is waited for, and then it runs.
    pub(super) async fn call(
        &self,
        link: &Link,
        account: &Account,
        call: &CallName,
    ) -> Result<ReceiptPage, StoreError> {
        let asked = monotonic();
        let within = SETTLEMENT_WITHIN.min(self.options.timeout);
        let mut is_looked_for_everywhere = true;
        let mut page = ReceiptPage::default();
        loop {
            // Given back before the next wait: others look for theirs meanwhile.
            let turn = self.turn(account).await?;
            // Before the receipts are read: a settlement that comes between writes its receipt and drops the hold in one step.
            let standing = self.standing(link, account, call).await?;
            let receipt = match is_looked_for_everywhere {
                true => self.find(link, account, call).await?,
                false => self.find_newest(link, account, call).await?.found,
            };
            drop(turn);
            if let Some(receipt) = receipt {
                page.receipts.push(receipt);
                return Ok(page);
            }
            match standing {
                Standing::Gone if is_looked_for_everywhere => return Ok(page),
                Standing::Gone => {
                    is_looked_for_everywhere = true;
                    continue;
                }
                Standing::Held(running) if asked.elapsed() >= within => {
                    page.running = Some(running);
                    return Ok(page);
                }
                Standing::Perhaps if asked.elapsed() >= within => return Ok(page),
                Standing::Held(_) | Standing::Perhaps => is_looked_for_everywhere = false,
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    async fn standing(&self, link: &Link, account: &Account, call: &CallName) -> Result<Standing, StoreError> {
        let [name, order] = account.keys();
        if let Some(id) = call.id {
            let mut hold = redis::cmd("HGET");
            hold.arg(name).arg([b"h".as_slice(), id.as_bytes()].concat());
            if let Some(record) = reply::optional_text(&self.command(link, hold).await?)? {
                return Ok(Standing::Held(running(id, record)?));
            }
        }
        let mut open = redis::cmd("ZCOUNT");
        open.arg(order).arg("-inf").arg("(+inf");
        let any = reply::integer(&self.command(link, open).await?)? > 0;
        Ok(Standing::without_hold(call, any))
    }

    async fn find(&self, link: &Link, account: &Account, call: &CallName) -> Result<Option<Receipt>, StoreError> {
        let newest = self.find_newest(link, account, call).await?;
        let Some(rest) = newest.next.filter(|_| newest.found.is_none()) else {
            return Ok(newest.found);
        };
        let Some(id) = call.id else {
            let span = Span::down("-", &rest);
            return self.look_through(link, account, call, span).await;
        };
        // By Redis' clock, as far as it is known, and a little before: a gateway's clock may be ahead of it.
        let ahead = self.redis_now().since(self.options.clock.now());
        let began = id.time().plus_millis(ahead.saturating_sub(CLOCKS_APART_MS)).0.max(0);
        let began = format!("{began}-0");
        let found = self.look_through(link, account, call, Span::up(&began, &rest)).await?;
        match found {
            Some(found) => Ok(Some(found)),
            // Clocks that are further apart, or the answer's own id that has the form of a request's.
            None => self.look_through(link, account, call, Span::down("-", &rest)).await,
        }
    }

    async fn find_newest(&self, link: &Link, account: &Account, call: &CallName) -> Result<Looked, StoreError> {
        self.look(link, account, call, &Span::down("-", "+"), NEWEST).await
    }

    async fn look_through(
        &self,
        link: &Link,
        account: &Account,
        call: &CallName,
        mut span: Span,
    ) -> Result<Option<Receipt>, StoreError> {
        let mut left = LOOKED_THROUGH_MAX;
        while left > 0 {
            let looked = self.look(link, account, call, &span, AT_ONCE).await?;
            let Some(next) = looked.next.filter(|_| looked.found.is_none()) else {
                return Ok(looked.found);
            };
            span.go_on(&next);
            left = left.saturating_sub(AT_ONCE);
        }
        Ok(None)
    }

    /// Looks at some entries of a span.
    async fn look(
        &self,
        link: &Link,
        account: &Account,
        call: &CallName,
        span: &Span,
        count: u32,
    ) -> Result<Looked, StoreError> {
        let (key, count) = (receipts_of_account(account.id()), count.to_string());
        let marks = call.marks();
        let direction = if span.is_up { "up" } else { "down" };
        let mut arguments = vec![direction, span.from.as_str(), span.to.as_str(), count.as_str()];
        arguments.extend(marks.iter().map(String::as_str));
        let looked = self.run_script(link, &script::FIND, &[&key], &arguments).await?;
        let [last, marked] = reply::list(&looked)? else {
            return Err(corrupt("a look at receipts has two parts"));
        };
        let found = reply::list(marked)?
            .iter()
            .map(|value| entry(account.id(), value).map(|(_, receipt)| receipt))
            .find_map(|receipt: Result<_, StoreError>| match receipt {
                Ok(Ok(receipt)) if call.is_of(&receipt) => Some(Ok(receipt)),
                Ok(Ok(_)) => None,
                Ok(Err(error)) => {
                    log::error!("a receipt of {} is left out: {error}", account.id());
                    None
                }
                Err(error) => Some(Err(error)),
            });
        Ok(Looked {
            found: found.transpose()?,
            next: match last {
                Value::Nil => None,
                last => Some(reply::text(last)?.to_owned()),
            },
        })
    }
}

/// What a look at some entries has found, and the last of them; none when there were fewer than it could look at.
struct Looked {
    found: Option<Receipt>,
    next: Option<String>,
}

/// Entries of a stream, and from which end they are looked at.
struct Span {
    is_up: bool,
    from: String,
    to: String,
}

impl Span {
    /// From `from` on, to before `to`, the oldest first.
    fn up(from: &str, to: &str) -> Span {
        Span {
            is_up: true,
            from: from.to_owned(),
            to: format!("({to}"),
        }
    }

    /// From before `to` back to `from`, the newest first; from the very newest for `+`.
    fn down(from: &str, to: &str) -> Span {
        Span {
            is_up: false,
            from: if to == "+" { to.to_owned() } else { format!("({to}") },
            to: from.to_owned(),
        }
    }

    fn go_on(&mut self, last: &str) {
        self.from = format!("({last}");
    }
}

/// What a hold's record says: its amount first, its scope last.
fn running(id: RequestId, record: &str) -> Result<RunningCall, StoreError> {
    let mut parts = record.splitn(4, ' ');
    let held = reply::credits(parts.next())?;
    let scope = parts
        .nth(2)
        .ok_or_else(|| corrupt("a hold has other parts than it should"))?;
    Ok(RunningCall {
        id,
        held,
        key: (!scope.is_empty()).then(|| KeyId::from(scope.to_owned())),
    })
}

/// How many of the newest entries are looked at first.
const NEWEST: u32 = 100;
/// How many entries one look has: Redis does nothing else meanwhile, for about a millisecond.
const AT_ONCE: u32 = 1_000;
/// How far a gateway's clock may be ahead of what it knows of Redis' without a longer search.
const CLOCKS_APART_MS: i64 = 2_000;
/// How often a receipt is looked for whose call is under way at another gateway.
const ASK_AGAIN: std::time::Duration = std::time::Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use futures::future::{join, join_all};

    use super::*;
    use crate::ledger::tests::rig::{Rig, block_on, debit, redis_of, request, request_id};

    #[test]
    fn any_call_of_an_account_that_holds_credit_may_run() {
        let rig = Rig::redis();
        let caller = rig.caller("10");
        let shared = &redis_of(&rig.ledger).shared;
        let account = shared.cache.account(&caller.account.id);
        let (link, call) = (Link::default(), CallName::new("gen-1"));
        let standing = || block_on(shared.standing(&link, &account, &call)).unwrap();
        assert_eq!(standing(), Standing::Gone);
        let hold = rig.reserve(&caller, &request(1, "2")).unwrap();
        assert_eq!(standing(), Standing::Perhaps);
        hold.release();
        // Once Redis has heard of it.
        rig.figures(&caller);
        assert_eq!(standing(), Standing::Gone);
    }

    /// Its settlement may be on its way from another gateway.
    #[test]
    fn the_receipt_of_a_call_that_may_run_is_waited_for() {
        let rig = Rig::redis();
        let caller = rig.caller("10");
        let shared = &redis_of(&rig.ledger).shared;
        let account = shared.cache.account(&caller.account.id);
        let hold = rig.reserve(&caller, &request(1, "2")).unwrap();
        let (link, began) = (Link::default(), monotonic());
        let calls = [CallName::from(request_id(1)), CallName::new("gen-1")];
        let asked = calls.iter().map(async |call| {
            let page = shared.call(&link, &account, call).await.unwrap();
            (page, began.elapsed())
        });
        let told = block_on(join_all(asked));
        for ((page, took), is_running) in told.into_iter().zip([true, false]) {
            assert_eq!((page.receipts.len(), page.running.is_some()), (0, is_running));
            assert!(took >= SETTLEMENT_WITHIN, "{took:?}");
        }
        hold.release();
    }

    #[test]
    fn a_call_that_ends_while_it_is_waited_for_is_found_behind_many_later_ones() {
        let rig = Rig::redis();
        let caller = rig.caller("10");
        let shared = &redis_of(&rig.ledger).shared;
        let account = shared.cache.account(&caller.account.id);
        let hold = rig.reserve(&caller, &request(1, "2")).unwrap();
        let (link, call, began) = (Link::default(), CallName::from(request_id(1)), monotonic());
        let ends = async {
            while account.reporting.try_lock().is_ok() {
                tokio::task::yield_now().await;
            }
            // It has looked once, and cannot look again for now.
            let turn = account.reporting.lock().await;
            let is_late = began.elapsed() >= SETTLEMENT_WITHIN;
            hold.settle(debit("1"));
            shared.barrier(&account).await.unwrap();
            let text = format!("for n = 1, {NEWEST} do redis.call('XADD', KEYS[1], '*', 't', '1', 'r', '{{}}') end");
            let mut later = redis::cmd("EVAL");
            later.arg(text).arg(1).arg(receipts_of_account(account.id()));
            shared.command(&link, later).await.unwrap();
            drop(turn);
            is_late
        };
        let (page, is_late) = block_on(join(shared.call(&link, &account, &call), ends));
        // Where the first look took too long, none followed.
        assert!(is_late || page.unwrap().receipts.len() == 1);
    }
}
