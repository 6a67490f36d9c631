//! `tollgate demo --with-traffic`: a day of plausible traffic before the first start. Nothing is written by hand: the embedded ledger is
//! opened with a clock of yesterday, which is moved on from call to call, and each call is held and settled by it as the gateway does, at
//! the catalogue's prices. So the books balance, and what stands there is what such calls would have left.

use std::path::Path;
use std::sync::Arc;

use super::Made;
use super::customers::{CUSTOMERS, Customer, Dice};
use crate::cli::failure::Failure;
use crate::cli::key::random;
use crate::clock::Clock;
use crate::config::Config;
use crate::ledger::admin::Acted;
use crate::ledger::admin::accounts::AccountOp;
use crate::ledger::admin::credits::{CreditKind, CreditOp, CreditPost};
use crate::ledger::admin::operators::Actor;
use crate::ledger::admin::{AdminOp, AdminReply};
use crate::ledger::embedded::Embedded;
use crate::ledger::key_settings::KeySettings;
use crate::ledger::sqlite::ReceiptBounds;
use crate::ledger::terms::{AccountStatus, TermsChange};
use crate::ledger::{Caller, Debit, Ledger};
use crate::pure::account::{ReserveRequest, Scope};
use crate::pure::catalogue::{Catalogue, Model, ModelKind};
use crate::pure::ids::{AccountId, ApiKey};
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;
use crate::pure::operator::Role;
use crate::pure::receipt::{CallDetails, CallEnding};
use crate::pure::request_body::Endpoint;
use crate::pure::time::Timestamp;
use crate::pure::usage::{CompletionTokens, PromptTokens, Usage};

/// Makes the traffic, unless the ledger has it already; `demo` is the demo's own account.
///
/// # Errors
/// When the ledger cannot be opened or written.
pub(super) fn make(
    config: &Config,
    path: &Path,
    catalogue: &Catalogue,
    now: Timestamp,
    demo: &AccountId,
) -> Result<Made, Failure> {
    let clock = Clock::manual(now.plus_millis(-DAY_MS));
    let bounds = ReceiptBounds {
        days: config.receipts.keep_days,
        bytes_max: config.receipts.bytes_max,
    };
    let store = Embedded::open_within(path, bounds, clock.clone())?;
    let mut day = Day {
        config,
        catalogue,
        ledger: Ledger::Embedded(Arc::clone(&store)),
        store: &store,
        clock: &clock,
        dice: Dice(0x9e37_79b9_7f4a_7c15),
    };
    let made = day.run(demo);
    day.ledger.close();
    made
}

struct Day<'d> {
    config: &'d Config,
    catalogue: &'d Catalogue,
    ledger: Ledger,
    store: &'d Embedded,
    clock: &'d Clock,
    dice: Dice,
}

/// Who calls at which moment.
struct Planned {
    at: i64,
    customer: usize,
}

impl Day<'_> {
    fn run(&mut self, demo: &AccountId) -> Result<Made, Failure> {
        let AdminReply::Accounts { accounts } = self.store.run_blocking(AdminOp::AccountList)? else {
            return Err(Failure::wrong_reply());
        };
        let is_known = |name: &str| accounts.iter().any(|known| known.record.id.as_str() == name);
        if CUSTOMERS
            .iter()
            .any(|customer| is_known(customer.name) && customer.name != demo.as_str())
        {
            return Ok(Made::Nothing);
        }
        // The demo's own account of an earlier start has a past of its own.
        let customers: Vec<&Customer> = CUSTOMERS.iter().filter(|customer| !is_known(customer.name)).collect();
        let (mut callers, mut kept) = (Vec::new(), None);
        for customer in &customers {
            let account = account(customer.name)?;
            self.create(&account, customer)?;
            let mut of_account = Vec::new();
            for label in customer.keys {
                let (key, caller) = self.key(&account, label)?;
                kept = kept.or((account == *demo).then_some(key));
                of_account.push(caller);
            }
            callers.push(of_account);
        }
        let start = self.clock.now();
        let mut payments = payments(&customers, start);
        for planned in self.plan(&customers) {
            while let Some((at, customer, amount)) = payments
                .last()
                .copied()
                .filter(|(at, ..)| *at <= start.0.saturating_add(planned.at))
            {
                payments.pop();
                self.until(Timestamp(at));
                self.pay(customer, amount, LAST_INVOICE.saturating_sub(payments.len()))?;
            }
            self.until(start.plus_millis(planned.at));
            let (Some(customer), Some(callers)) = (customers.get(planned.customer), callers.get(planned.customer))
            else {
                continue;
            };
            if let Some(caller) = self.dice.one_of(callers) {
                self.call(customer, caller)?;
            }
        }
        self.finish()?;
        Ok(kept.map_or(Made::OfOthers, Made::Whole))
    }

    fn create(&self, account: &AccountId, customer: &Customer) -> Result<(), Failure> {
        let create = AdminOp::AccountCreate {
            account: account.clone(),
            tier: customer.tier,
            quota_pico: None,
            terms: TermsChange::default(),
        };
        self.act(create)
    }

    fn key(&self, account: &AccountId, label: &str) -> Result<(ApiKey, Caller), Failure> {
        let key = ApiKey::from_random(&self.config.key_prefix, random()?);
        let digest = key.digest();
        let create = AdminOp::KeyCreate {
            digest: digest.to_hex(),
            account: account.clone(),
            tier: None,
            domains: Vec::new(),
            expires_in_ms: None,
            limits: LimitOverrides::default(),
            settings: Box::new(KeySettings {
                label: Some(label.to_owned()),
                ..KeySettings::default()
            }),
        };
        self.act(create)?;
        let found = now_or_never(self.ledger.authenticate(&digest))?;
        let caller = found?.and_then(|found| found.checked(self.clock.now()));
        Ok((key, caller.ok_or_else(Failure::wrong_reply)?))
    }

    /// A command of an operator: the log has it, at the day's time.
    fn act(&self, op: AdminOp) -> Result<(), Failure> {
        let actor = Actor {
            id: "cli".to_owned(),
            name: "demo".to_owned(),
            role: Role::Admin,
            address: None,
        };
        let acted = AdminOp::By(Box::new(Acted { actor, op }));
        self.store.run_blocking(acted).map(drop).map_err(Failure::from)
    }

    fn pay(&self, customer: &Customer, whole: i64, invoice: usize) -> Result<(), Failure> {
        let reference = format!("invoice-{invoice}");
        let note = if whole < 25 { "Paid by card." } else { "Bank transfer." };
        self.post(customer.name, CreditKind::TopUp, (whole, &reference), Some(note))
    }

    fn post(
        &self,
        name: &str,
        kind: CreditKind,
        (whole, reference): (i64, &str),
        note: Option<&str>,
    ) -> Result<(), Failure> {
        self.act(AdminOp::Credit(CreditOp::Post(CreditPost {
            account: account(name)?,
            amount: Credits::from_pico(whole.saturating_mul(1_000_000_000_000)),
            reference: reference.to_owned(),
            kind,
            note: note.map(str::to_owned),
            allow_negative: false,
            as_available: false,
            is_payment: false,
        })))
    }

    /// What operators did beside top-ups: a bonus, a correction, terms, an account that is suspended.
    fn finish(&self) -> Result<(), Failure> {
        self.post("bluebird", CreditKind::Bonus, (2, "welcome-bluebird"), Some("Welcome."))?;
        let twice = Some("The invoice was booked twice.");
        self.post(
            "cedar-labs",
            CreditKind::Correction,
            (-5, "correction-cedar-labs"),
            twice,
        )?;
        let low = TermsChange {
            low_balance_pico: Some(Some(5_000_000_000_000)),
            metadata: [("contract".to_owned(), Some("2026-114".to_owned()))].into(),
            ..TermsChange::default()
        };
        self.terms("acme", low)?;
        let suspended = TermsChange {
            status: Some(AccountStatus::Suspended),
            ..TermsChange::default()
        };
        self.terms("elm_street", suspended)
    }

    fn terms(&self, name: &str, change: TermsChange) -> Result<(), Failure> {
        let account = account(name)?;
        self.act(AdminOp::Account(AccountOp::Terms { account, change }))
    }

    /// One call: held, and settled when it has ended. One that lacks credit is refused, as it would be.
    fn call(&mut self, customer: &Customer, caller: &Caller) -> Result<(), Failure> {
        let open: Vec<&Arc<Model>> = self
            .catalogue
            .models()
            .iter()
            .filter(|model| model.tier <= caller.tier())
            .collect();
        let Some(model) = self
            .dice
            .one_of(customer.taste)
            .and_then(|place| open.get(*place % open.len().max(1)))
        else {
            return Ok(());
        };
        let is_chat = model.kind() == ModelKind::Chat;
        let prompt = 20 + self.dice.below(60) * self.dice.below(60);
        let completion = if is_chat {
            15 + self.dice.below(30) * self.dice.below(30)
        } else {
            0
        };
        let ending = match self.dice.below(100) {
            0..=3 if is_chat => CallEnding::ClientGone,
            4 | 5 if is_chat => CallEnding::UpstreamFailed,
            _ => CallEnding::Complete,
        };
        let is_cut = ending != CallEnding::Complete;
        let most = usage(prompt, completion.max(1_000));
        let rules = self.config.tier(caller.tier());
        let wanted = model
            .pricing
            .cost(most)
            .map_err(|error| Failure::new(error.to_string()))?;
        let id = self.clock.request_id();
        let request = ReserveRequest {
            id,
            scope: Scope::of(&caller.key.id, &LimitOverrides::default()),
            limits: rules.limits,
            quota: rules.monthly_quota,
            wanted,
            at_least: wanted,
            tokens: prompt.saturating_add(completion),
            expires: caller.hold_expiry(self.clock.now()),
            is_counted: false,
            is_last: true,
            spend: None,
        };
        let Ok(hold) = now_or_never(caller.reserve(&request))?? else {
            return Ok(());
        };
        let first = 180 + self.dice.below(900);
        self.clock.advance(millis(first));
        let first_byte = self.clock.now();
        self.clock.advance(millis(completion * 12));
        let billed = usage(prompt, if is_cut { completion / 2 } else { completion });
        let cost = model
            .pricing
            .cost(billed)
            .map_err(|error| Failure::new(error.to_string()))?;
        let target = model.targets.first();
        hold.settle(Debit {
            model: Arc::clone(&model.id),
            key: caller.key.id.clone(),
            usage: billed,
            cost,
            held: None,
            end_user: None,
            details: Some(Box::new(CallDetails {
                provider: target.map(|target| target.provider.as_str().into()),
                upstream_model: target.map(|target| target.model.as_str().into()),
                upstream_id: Some(format!("chatcmpl-sim{id}")),
                endpoint: Some(if is_chat {
                    Endpoint::ChatStream
                } else {
                    Endpoint::Embeddings
                }),
                first_byte: Some(first_byte),
                ended: Some(self.clock.now()),
                streamed: Some(is_chat),
                ending: Some(ending),
                reported_prompt: (!is_cut).then_some(billed.prompt),
                reported_completion: (!is_cut).then_some(billed.completion),
                counted_completion: Some(billed.completion),
                pricing: Some(model.pricing),
                ..CallDetails::default()
            })),
        });
        Ok(())
    }

    /// Moves the clock on, never back.
    fn until(&self, at: Timestamp) {
        self.clock.advance(at.since(self.clock.now()).max(0));
    }

    /// The day's calls in their order: few by night, most in the afternoon.
    fn plan(&mut self, customers: &[&Customer]) -> Vec<Planned> {
        let mut planned = Vec::new();
        for (customer, of) in customers.iter().enumerate() {
            for _ in 0..of.calls {
                // Of two hours the busier one is the likelier.
                let hours = [self.dice.below(24), self.dice.below(24)];
                let weight = |hour: u64| HOURS.get(usize::try_from(hour).unwrap_or(0)).copied().unwrap_or(0);
                let start_hour = self.clock.now().0.div_euclid(HOUR_MS);
                let of_day =
                    |hour: u64| u64::try_from(start_hour.saturating_add(millis(hour)).rem_euclid(24)).unwrap_or(0);
                let hour = hours.into_iter().max_by_key(|hour| weight(of_day(*hour))).unwrap_or(0);
                let at = millis(hour)
                    .saturating_mul(HOUR_MS)
                    .saturating_add(millis(self.dice.below(3_600_000)));
                planned.push(Planned {
                    at: at.min(DAY_MS - LAST_MS),
                    customer,
                });
            }
        }
        planned.sort_by_key(|planned| planned.at);
        planned
    }
}

/// All top-ups, the last first.
fn payments<'c>(customers: &[&'c Customer], start: Timestamp) -> Vec<(i64, &'c Customer, i64)> {
    let of = |customer: &&'c Customer| {
        let customer: &'c Customer = customer;
        let at = move |hour: i64| start.0.saturating_add(hour.saturating_mul(HOUR_MS));
        customer
            .paid
            .iter()
            .map(move |(hour, whole)| (at(*hour), customer, *whole))
    };
    let mut all: Vec<_> = customers.iter().flat_map(of).collect();
    all.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
    all
}

fn account(name: &str) -> Result<AccountId, Failure> {
    name.parse().map_err(|error| Failure::new(format!("{error}")))
}

fn usage(prompt: u64, completion: u64) -> Usage {
    Usage {
        prompt: PromptTokens(prompt),
        completion: CompletionTokens(completion),
    }
}

fn millis(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// What the embedded ledger does at once: it waits for nothing that only a runtime could bring.
fn now_or_never<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|error| Failure::new(error.to_string()))?;
    Ok(runtime.block_on(work))
}

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// The number of the newest invoice.
const LAST_INVOICE: usize = 1_117;
/// Before now nothing more begins: the last call has ended by then.
const LAST_MS: i64 = 60_000;
/// How busy an hour of UTC is.
const HOURS: [u32; 24] = [
    2, 1, 1, 1, 2, 3, 5, 8, 12, 15, 16, 15, 13, 15, 17, 18, 16, 14, 12, 10, 8, 6, 4, 3,
];
