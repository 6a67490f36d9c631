//! What the embedded ledger and the journal cost a call and an event.

use std::sync::Arc;

use tollgate::clock::Clock;
use tollgate::ledger::admin::AdminOp;
use tollgate::ledger::embedded::Embedded;
use tollgate::ledger::journal::{Entry, Intent, Journal};
use tollgate::ledger::{Caller, Debit, Hold, Ledger};
use tollgate::pure::account::{ReserveRequest, Scope};
use tollgate::pure::ids::{AccountId, ApiKey, RequestId, Tier};
use tollgate::pure::limits::{LimitOverrides, Limits};
use tollgate::pure::money::{Credits, Pricing};
use tollgate::pure::request_body::{Endpoint, PromptLimits};
use tollgate::pure::time::Timestamp;
use tollgate::pure::usage::{CompletionTokens, PromptTokens, Usage};

struct Site {
    _folder: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    journal: Arc<Journal>,
    caller: Caller,
    pricing: Pricing,
    prompt: String,
    next: u128,
}

impl Site {
    fn new() -> Site {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Embedded::open_keeping(&folder.path().join("ledger.db"), 0, Clock::System).unwrap();
        let ledger = Ledger::Embedded(ledger);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let account: AccountId = "acme".parse().unwrap();
        let key = ApiKey::from_random("tg_", [7; 32]);
        let make = [
            AdminOp::AccountCreate {
                account: account.clone(),
                tier: Tier::Pro,
                quota_pico: None,
                terms: Default::default(),
            },
            AdminOp::CreditsAdd {
                account: account.clone(),
                amount: "1000000".parse().unwrap(),
                reference: "first".to_owned(),
            },
            AdminOp::KeyCreate {
                digest: key.digest().to_hex(),
                account,
                tier: None,
                domains: Vec::new(),
                expires_in_ms: None,
                limits: LimitOverrides::default(),
                settings: Default::default(),
            },
        ];
        for op in make {
            runtime.block_on(ledger.run(op)).unwrap();
        }
        let found = runtime.block_on(ledger.authenticate(&key.digest())).unwrap().unwrap();
        let caller = found.checked(Timestamp(0)).unwrap();
        Site {
            journal: Journal::open(folder.path()),
            _folder: folder,
            runtime,
            caller,
            pricing: super::pricing(),
            prompt: "x".repeat(1000),
            next: 0,
        }
    }

    fn reserve(&mut self, journaled: bool) -> Hold {
        self.next += 1;
        let id = RequestId::from_bytes(self.next.to_le_bytes());
        let entry = if journaled {
            let intent = Intent {
                id,
                account: &self.caller.account.id,
                key: &self.caller.key.id,
                model: "openai/gpt-4o-mini",
                pricing: self.pricing,
                limits: PromptLimits {
                    image_tokens_each: 1000,
                    context_length: 128_000,
                },
                text_bytes: 1000,
                endpoint: Endpoint::ChatStream,
                end_user: None,
            };
            self.journal.begin(&intent, self.prompt.as_bytes()).unwrap()
        } else {
            Entry::none()
        };
        let unlimited = u64::MAX;
        let amount = "0.001".parse().unwrap();
        let request = ReserveRequest {
            id,
            scope: Scope::Account,
            limits: Limits {
                rpm: unlimited,
                tpm: unlimited,
                concurrency: unlimited,
            },
            quota: Credits::MAX,
            wanted: amount,
            at_least: amount,
            tokens: 100,
            expires: Timestamp(i64::MAX),
            is_counted: false,
            is_last: true,
            spend: None,
        };
        let reserved = self.caller.reserve_journaled(&request, entry);
        self.runtime.block_on(reserved).unwrap().unwrap()
    }

    fn call(&mut self, journaled: bool) {
        let mut hold = self.reserve(journaled);
        let usage = Usage {
            prompt: PromptTokens(250),
            completion: CompletionTokens(1),
        };
        hold.pass(usage.completion, None);
        hold.settle(Debit {
            model: "openai/gpt-4o-mini".into(),
            key: self.caller.key.id.clone(),
            usage,
            cost: self.pricing.cost(usage).unwrap(),
            held: None,
            details: None,
            end_user: None,
        });
    }
}

/// A call that is admitted, delivers an event and is settled.
pub(super) fn call(journaled: bool) -> Box<dyn FnMut()> {
    let mut site = Site::new();
    Box::new(move || site.call(journaled))
}

/// One event's tokens, written down before it is passed on.
pub(super) fn event() -> Box<dyn FnMut()> {
    let mut site = Site::new();
    let mut hold = Some(site.reserve(true));
    let mut tokens = 0;
    Box::new(move || {
        tokens += 1;
        if let Some(hold) = &mut hold {
            hold.pass(CompletionTokens(tokens), None);
        }
        std::hint::black_box(&site);
    })
}
