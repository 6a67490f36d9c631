//! Calls that go on while something happens to Redis, and what stands in the books afterwards: every call that was paid for, once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::{on_node, request};
use crate::clock::Clock;
use crate::ledger::tests::redis_server::until;
use crate::ledger::tests::rig::{audit_is_clean, block_on, caller_of, credits, debit};
use crate::ledger::{Caller, Ledger};
use crate::pure::account::ReserveRequest;
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;

/// The calls so far.
pub(super) struct Load {
    names: &'static [&'static str],
    /// Calls that were paid for, by account.
    paid: Vec<AtomicU64>,
    refused: AtomicU64,
    over: AtomicBool,
}

impl Load {
    /// Waits until some more calls of this account were paid for.
    pub(super) fn goes_on_for(&self, name: &str) {
        let at = self.names.iter().position(|known| *known == name).unwrap();
        let paid = || self.paid[at].load(Ordering::SeqCst);
        let goal = paid() + 10;
        until("calls are paid for", || paid() >= goal);
    }

    /// Waits until some more calls were refused.
    pub(super) fn is_refused(&self) {
        let refused = || self.refused.load(Ordering::SeqCst);
        let goal = refused() + 5;
        until("calls are refused", || refused() >= goal);
    }

    /// One node's callers, one after the other: each holds twice of what it pays.
    async fn call(&self, ledger: &Ledger, callers: &[Caller], ids: impl Iterator<Item = u64>) {
        for (id, (caller, paid)) in ids.zip(callers.iter().zip(&self.paid).cycle()) {
            if self.over.load(Ordering::SeqCst) {
                return;
            }
            let asked = ReserveRequest {
                expires: ledger.hold_expiry(Clock::System.now()),
                ..request(id, "0.002")
            };
            match caller.reserve(&asked).await {
                Ok(Ok(hold)) => {
                    hold.settle(debit("0.001"));
                    paid.fetch_add(1, Ordering::SeqCst);
                }
                Ok(Err(denial)) => panic!("refused for want of credit: {denial:?}"),
                Err(_) => {
                    self.refused.fetch_add(1, Ordering::SeqCst);
                    // A caller that is told to come back later does not come back at once.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
    }
}

/// Does something to Redis while each of the nodes has callers of all these accounts. In the end every call that was paid for must have
/// been debited once, and nothing else.
pub(super) fn under_load(nodes: &[Ledger], names: &'static [&'static str], mut happens: impl FnMut(&Load)) {
    let first = nodes.first().unwrap();
    let callers: Vec<Caller> = names
        .iter()
        .map(|name| caller_of(first, name, BALANCE, LimitOverrides::default()))
        .collect();
    let load = Load {
        names,
        paid: names.iter().map(|_| AtomicU64::new(0)).collect(),
        refused: AtomicU64::new(0),
        over: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        for (n, ledger) in (0..).zip(nodes) {
            let (load, callers) = (&load, &callers);
            scope.spawn(move || {
                let callers: Vec<Caller> = callers.iter().map(|caller| on_node(ledger, caller)).collect();
                block_on(load.call(ledger, &callers, (0..).map(|call| call * 16 + n)));
            });
        }
        let _over = Over(&load);
        for name in names {
            load.goes_on_for(name);
        }
        happens(&load);
        for name in names {
            load.goes_on_for(name);
        }
    });
    for (caller, paid) in callers.iter().zip(&load.paid) {
        let paid = i64::try_from(paid.load(Ordering::SeqCst)).unwrap();
        let left = Credits::from_pico(credits(BALANCE).pico() - paid * credits("0.001").pico());
        until("every call was debited, and nothing is held", || {
            nodes.iter().all(|ledger| {
                let figures = block_on(on_node(ledger, caller).figures());
                figures.is_ok_and(|figures| figures.balance == left && figures.held == Credits::ZERO)
            })
        });
    }
    audit_is_clean(first);
}

/// Ends the load when the test ends, by a panic too.
struct Over<'a>(&'a Load);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::SeqCst);
    }
}

const BALANCE: &str = "1000000";
