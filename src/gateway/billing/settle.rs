//! What a call owes, and the closing of its hold: beside the ledger's recovery, and the demo's invented day, the only place that debits one.
//! `access` releases the hold of a call that is not sent after all.

mod notes;
mod owed;

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use tokio::runtime::Handle;

use self::notes::{note_beyond_sides, note_unknown_tier};
use self::owed::{Charge, bound_count, charge, estimate_unseen, is_unread};
use super::closed_call::{ClosedCall, Ending};
use super::extend::raise_and_debit;
use super::metered::Metered;
use super::receipt;
use crate::clock::Clock;
use crate::gateway::admission::{Admission, Priced, used};
use crate::gateway::shutdown::{InFlight, Lifecycle};
use crate::ledger::Debit;
use crate::pure::bill::{Bill, COUNTED_INLINE_BYTES_MAX, Used, bill, prompt_bounds, prompt_limits};
use crate::pure::charge::{Ceiling, Delivered, Passing};
use crate::pure::money::Credits;
use crate::pure::prompt_count::{counted_prompt, unread_prompt};
use crate::pure::receipt::PricedBy;
use crate::pure::usage::{CompletionTokens, Usage};
use crate::telemetry::record::IMPLAUSIBLE_USAGE;

/// Closes calls; those whose prompt is long and was not reported by the provider are counted on a thread of its own.
pub(in crate::gateway) struct Settler {
    clock: Clock,
    lifecycle: Arc<Lifecycle>,
    /// Somebody keeps receipts.
    keeps_receipts: bool,
    counting: Mutex<Option<Counting>>,
}

struct Counting {
    #[expect(
        clippy::disallowed_types,
        reason = "each that waits has its body, which `body_memory_bytes_max` bounds, and its hold; to refuse one would lose its debit"
    )]
    closed_calls: mpsc::Sender<Uncounted>,
    thread: JoinHandle<()>,
}

/// A call that is over, the prompt of which takes long to count.
struct Uncounted {
    closed: ClosedCall,
    metered: Metered,
    /// Where its hold is raised, should it have used more than was admitted. None when its request did not run on one.
    runtime: Option<Handle>,
    /// A stop waits for its debit, and for its runtime until then. The last field: it is dropped after the debit was made.
    _in_flight: InFlight,
}

impl Settler {
    pub(in crate::gateway) fn new(clock: Clock, keeps_receipts: bool, lifecycle: Arc<Lifecycle>) -> Arc<Settler> {
        Arc::new(Settler {
            clock,
            lifecycle,
            keeps_receipts,
            counting: Mutex::new(None),
        })
    }

    /// Closes a call's hold. Never waits.
    pub(in crate::gateway) fn close(self: &Arc<Settler>, mut closed: ClosedCall) {
        let Some(mut meter) = closed.meter.take() else {
            closed.admission.hold.release();
            return;
        };
        let said = meter.take_said();
        let upstream_id = self.keeps_receipts.then(|| said.id.clone()).flatten();
        if let Some(trace) = closed.admission.recorder.trace() {
            trace.said(said);
        }
        let hold = closed.admission.hold.id();
        // Asked for only where a count is bounded.
        let is_bounded = closed.admission.cap.is_some() && meter.is_stream();
        let passing = is_bounded.then(|| meter.passing(&closed.admission.permit.model().id));
        let Ok(mut metered) = std::panic::catch_unwind(AssertUnwindSafe(|| meter.finish())) else {
            log::error!("MONEY: the meter of request {hold} panicked; what it held is taken");
            self.describe(&mut closed, upstream_id, None);
            debit_hold(closed.admission);
            return;
        };
        self.doubt(&mut closed, &metered);
        if let Ending::DrainEnded { elapsed_ms } = closed.ending
            && !metered.is_over
        {
            estimate_unseen(&closed.admission, elapsed_ms, &mut metered);
        }
        let markup = closed.target.as_ref().and_then(|target| target.upstream.cost_markup);
        if markup.is_some() || !closed.admission.permit.model().prices.is_simple() {
            let hold = closed.admission.hold_prices();
            closed.admission.priced = Some(Box::new(Priced {
                hold,
                kinds: metered.kinds,
                tier: metered.tier.take(),
                cost: metered.cost.zip(markup),
            }));
        }
        if let Some(bill) = metered.told {
            self.describe(&mut closed, upstream_id, Some(&metered));
            return debit_told(closed.admission, bill);
        }
        let mut charge = charge(&metered, closed.ending);
        if charge != Charge::Nothing {
            self.describe(&mut closed, upstream_id, Some(&metered));
        }
        bound_count(&closed.admission, passing, &mut metered, &mut charge);
        match charge {
            Charge::Nothing => closed.admission.hold.release(),
            Charge::Reported(usage) => raise_and_debit(closed.admission, usage, debit, &self.lifecycle, current),
            Charge::PromptToCount
                if metered.known_prompt().is_some() || closed.body.visited_bytes() <= COUNTED_INLINE_BYTES_MAX =>
            {
                count_and_debit(closed, &metered, &self.lifecycle, current)
            }
            Charge::PromptToCount => self.count_elsewhere(closed, metered),
        }
    }

    /// Notes what its receipt will say of a call that owes something.
    fn describe(&self, closed: &mut ClosedCall, upstream_id: Option<String>, metered: Option<&Metered>) {
        if self.keeps_receipts {
            closed.admission.details = Some(receipt::details(closed, upstream_id, metered, &self.clock));
        }
    }

    /// Waits for the calls that are still being counted. Blocks; called once, before the ledger closes.
    pub(in crate::gateway) fn finish(&self) {
        let counting = self.counting.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Counting { closed_calls, thread }) = counting {
            drop(closed_calls);
            if thread.join().is_err() {
                log::error!("MONEY: the thread that counts prompts panicked");
            }
        }
    }

    /// Notes reports that were not believed, or that have more in their total than is charged, and holds completions that cannot be against
    /// the target.
    fn doubt(&self, closed: &mut ClosedCall, metered: &Metered) {
        note_beyond_sides(closed, metered);
        if metered.rejected_reports == 0 && !metered.is_implausible {
            return;
        }
        let (id, model) = (closed.admission.hold.id(), &closed.admission.permit.model().id);
        log::warn!("request {id}: {model} reported usage that cannot be; it was not believed");
        if metered.is_implausible
            && let Some(target) = &closed.target
            && target
                .breaker
                .implausible(&closed.admission.caller.account.id, &self.clock)
        {
            log::error!(
                "MONEY: {model} reports completions that cannot be to several accounts; its target is passed over: {IMPLAUSIBLE_USAGE}"
            );
        }
        let recorder = &mut closed.admission.recorder;
        recorder.reports_rejected(metered.rejected_reports.max(1));
        if metered.is_implausible {
            recorder.fault(IMPLAUSIBLE_USAGE);
        }
    }

    fn count_elsewhere(&self, closed: ClosedCall, metered: Metered) {
        let mut counting = self.counting.lock().unwrap_or_else(PoisonError::into_inner);
        if counting.is_none() {
            let (closed_calls, inbox) = mpsc::channel();
            let lifecycle = Arc::clone(&self.lifecycle);
            let work = move || inbox.iter().for_each(|uncounted| count_now(uncounted, &lifecycle));
            match std::thread::Builder::new().name("prompts".to_owned()).spawn(work) {
                Ok(thread) => *counting = Some(Counting { closed_calls, thread }),
                Err(error) => log::error!("cannot start the thread that counts prompts: {error}"),
            }
        }
        let uncounted = Uncounted {
            closed,
            metered,
            runtime: current(),
            _in_flight: self.lifecycle.enter(),
        };
        let unsent = match counting.as_ref() {
            Some(counting) => counting
                .closed_calls
                .send(uncounted)
                .map_err(|mpsc::SendError(unsent)| unsent),
            None => Err(uncounted),
        };
        drop(counting);
        if let Err(unsent) = unsent {
            count_now(unsent, &self.lifecycle);
        }
    }
}

/// The runtime on which this runs.
fn current() -> Option<Handle> {
    Handle::try_current().ok()
}

fn count_now(uncounted: Uncounted, lifecycle: &Arc<Lifecycle>) {
    let Uncounted {
        closed,
        metered,
        runtime,
        _in_flight,
    } = uncounted;
    count_and_debit(closed, &metered, lifecycle, || runtime);
}

fn count_and_debit(
    closed: ClosedCall,
    metered: &Metered,
    lifecycle: &Arc<Lifecycle>,
    runtime: impl FnOnce() -> Option<Handle>,
) {
    let ClosedCall {
        mut admission,
        body,
        ending,
        ..
    } = closed;
    let counted = || {
        let model = admission.permit.model();
        match metered.known_prompt() {
            Some(prompt) => (prompt, None),
            None if is_unread(metered, ending) => {
                let (prompt, kinds) = unread_prompt(&body, &model.id, &prompt_bounds(model));
                (prompt, Some(kinds))
            }
            None => (counted_prompt(&body, &model.id, &prompt_limits(model)), None),
        }
    };
    let Ok((prompt, kinds)) = std::panic::catch_unwind(AssertUnwindSafe(counted)) else {
        log::error!(
            "MONEY: the prompt of request {} could not be counted; what it held is taken",
            admission.hold.id()
        );
        debit_hold(admission);
        return;
    };
    if let (Some(kinds), Some(priced)) = (kinds, &mut admission.priced) {
        priced.kinds = kinds;
    }
    let usage = Usage {
        prompt,
        completion: metered.delivered,
    };
    raise_and_debit(admission, usage, debit, lifecycle, runtime);
}

/// Debits the bill that the client was told.
fn debit_told(mut admission: Box<Admission>, bill: Bill) {
    let priced = admission.priced.take();
    debit_bill(admission, bill, &used(bill.usage, priced.as_deref()));
}

/// Debits what was used as far as it was admitted. The rest is the operator's loss.
fn debit(mut admission: Box<Admission>, usage: Usage) {
    let priced = admission.priced.take();
    let used = used(usage, priced.as_deref());
    let prices = &admission.permit.model().prices;
    match bill(prices, &admission.ceiling, admission.hold.amount(), &used) {
        Ok(bill) => debit_bill(admission, bill, &used),
        Err(error) => {
            log::error!("MONEY: request {}: {error}; what it held is taken", admission.hold.id());
            debit_hold(admission);
        }
    }
}

fn debit_bill(mut admission: Box<Admission>, bill: Bill, used: &Used<'_>) {
    let Bill {
        usage,
        kinds,
        cost,
        lost,
        cut,
    } = bill;
    note_loss(&mut admission, lost);
    note_unknown_tier(&mut admission, used);
    let prices = &admission.permit.model().prices;
    if let Some(details) = &mut admission.details {
        let row = prices.billed_row(usage, kinds, used.tier);
        details.pricing = Some(row.pricing);
        details.priced = (!prices.is_simple() || used.cost.is_some()).then(|| {
            Box::new(PricedBy {
                kinds,
                kind_prices: row.kinds,
                service_tier: used.tier.filter(|_| prices.tiers().next().is_some()).map(Box::from),
                provider_cost: used.cost.map(|(cost, _)| cost),
            })
        });
    }
    if let Some(cut) = cut {
        log::error!(
            "MONEY: request {}: its charge was {cut} above its hold; the hold is taken",
            admission.hold.id()
        );
        admission.recorder.cut();
        admission.recorder.lost(Usage::default(), cut);
    }
    settle_hold(admission, usage, cost);
}

/// Debits `cost` for `usage`, and closes the hold.
fn settle_hold(mut admission: Box<Admission>, usage: Usage, cost: Credits) {
    admission.billed(usage, cost);
    let Admission {
        permit,
        caller,
        hold,
        details,
        ..
    } = *admission;
    hold.settle(Debit {
        model: Arc::clone(&permit.model().id),
        key: caller.key.id.clone(),
        usage,
        cost,
        held: None,
        end_user: None,
        details,
    });
}

/// What a provider delivered or reported beyond what was admitted.
fn note_loss(admission: &mut Admission, mut lost: Usage) {
    let (model, ceiling) = (admission.permit.model(), admission.ceiling);
    // A counted completion may exceed the provider's own count without anything being wrong.
    let all = Delivered {
        tokens: CompletionTokens(ceiling.completion.0.saturating_add(lost.completion.0)),
        bytes: u64::MAX,
    };
    if ceiling.passing(all, Ceiling::is_known(&model.id)) == Passing::Within {
        lost.completion = CompletionTokens(0);
    }
    if lost == Usage::default() || model.prices.is_free() {
        return;
    }
    let cost = model.pricing.cost(lost).unwrap_or(Credits::MAX);
    log::warn!(
        "MONEY: request {}: {} used {} prompt and {} completion tokens beyond what was admitted; they are not charged ({cost})",
        admission.hold.id(),
        model.id,
        lost.prompt.0,
        lost.completion.0
    );
    admission.recorder.lost(lost, cost);
}

/// The last resort, when a call's use cannot be known: what was held is the most that it could cost.
fn debit_hold(admission: Box<Admission>) {
    let cost = admission.hold.amount().max(Credits::ZERO);
    settle_hold(admission, Usage::default(), cost);
}

#[cfg(test)]
mod debits;
#[cfg(test)]
mod losses;
#[cfg(test)]
mod receipts;
#[cfg(test)]
mod stream_ends;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tiers;
