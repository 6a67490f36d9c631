//! What was admitted for a call, from the admission to its settlement.

use std::num::NonZeroU64;

use rust_decimal::Decimal;

use super::upstream::targets::Candidate;
use crate::ledger::{Caller, Hold};
use crate::pure::bill::{Tariff, Used, bill_beyond};
use crate::pure::charge::Ceiling;
use crate::pure::estimate::Bound;
use crate::pure::money::{Credits, Markup};
use crate::pure::policy::Permit;
use crate::pure::prices::{Asks, HoldPrices};
use crate::pure::receipt::CallDetails;
use crate::pure::request_body::RequestBody;
use crate::pure::usage::{CompletionTokens, PromptTokens, TokenKinds, Usage};
use crate::telemetry::recorder::Recorder;

/// Permit and hold: what `admit` gives, and what nothing is forwarded without.
pub(super) struct Admission {
    pub(super) permit: Permit,
    pub(super) caller: Caller,
    pub(super) hold: Hold,
    /// The account's quota of a month, as it was at the admission.
    pub(super) quota: Credits,
    /// The most completion tokens of a choice, where the gateway writes it into the request.
    pub(super) cap: Option<NonZeroU64>,
    /// The most that was admitted: no charge exceeds it.
    pub(super) ceiling: Ceiling,
    /// What its prompt was counted to be, where its answer went beyond a maximum of the catalogue before its provider reported it.
    pub(super) counted_prompt: Option<PromptTokens>,
    /// What is noted of the call: counted when it is dropped, with the hold.
    pub(super) recorder: Recorder,
    /// What else its price depends on. None where that is how many tokens its sides have.
    pub(super) priced: Option<Box<Priced>>,
    /// What its receipt says of it, once it is over.
    pub(super) details: Option<Box<CallDetails>>,
}

/// What decides a call's price beside how many tokens its sides have.
#[derive(Debug)]
pub(super) struct Priced {
    /// The dearest that its tokens can cost.
    pub(super) hold: HoldPrices,
    /// The kinds of tokens of its answer, once that is over.
    pub(super) kinds: TokenKinds,
    /// The tier by which its provider served it, as that says.
    pub(super) tier: Option<Box<str>>,
    /// What it cost at the provider, where that is what is billed: with the markup.
    pub(super) cost: Option<(Decimal, Markup)>,
}

impl Priced {
    /// Of a call that is admitted.
    pub(super) fn held_by(hold: HoldPrices) -> Priced {
        Priced {
            hold,
            kinds: TokenKinds::default(),
            tier: None,
            cost: None,
        }
    }
}

/// What was used, with what else its price depends on.
pub(super) fn used(usage: Usage, priced: Option<&Priced>) -> Used<'_> {
    Used {
        usage,
        kinds: priced.map_or_else(TokenKinds::default, |priced| priced.kinds),
        tier: priced.and_then(|priced| priced.tier.as_deref()),
        cost: priced.and_then(|priced| priced.cost),
    }
}

impl Admission {
    /// The dearest that its tokens can cost.
    pub(super) fn hold_prices(&self) -> HoldPrices {
        match &self.priced {
            Some(priced) => priced.hold,
            None => self.permit.model().prices.hold(self.ceiling.prompt, &Asks::default()),
        }
    }

    /// Admits all that was used, beyond what the catalogue said there can be, where what is held pays for it: whether it does.
    pub(super) fn admit_all(&mut self, usage: Usage) -> bool {
        let used = used(usage, self.priced.as_deref());
        let prices = &self.permit.model().prices;
        let is_paid = bill_beyond(prices, &self.ceiling, self.hold.amount(), &used).is_some();
        if is_paid {
            self.ceiling.completion = self.ceiling.completion.max(usage.completion);
        }
        is_paid
    }

    /// The same, or as much of it as what is held pays for.
    pub(super) fn admit_paid(&mut self, usage: Usage) {
        if self.admit_all(usage) || self.ceiling.bound != Bound::Model {
            return;
        }
        let prompt = usage.prompt.min(self.ceiling.prompt);
        let prices = self.hold_prices();
        let paid = prices.affordable_completion(self.hold.amount(), prompt).unwrap_or(0);
        let paid = usage.completion.min(CompletionTokens(paid));
        self.ceiling.completion = self.ceiling.completion.max(paid);
    }

    /// By what the call will be billed.
    pub(super) fn tariff<'a>(&'a self, body: &'a RequestBody, target: Option<&'a Candidate>) -> Tariff<'a> {
        Tariff {
            model: self.permit.model(),
            body,
            ceiling: &self.ceiling,
            held: self.hold.amount(),
            cost_markup: target.and_then(|target| target.upstream.cost_markup.as_ref()),
        }
    }

    /// Notes that a debit is taken.
    pub(super) fn billed(&mut self, usage: Usage, cost: Credits) {
        self.recorder.billed(usage, cost, self.hold.amount());
    }
}
