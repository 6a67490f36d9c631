//! A ledger over either store with a clock that stands still, and what the cases say to it.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::redis_server::RedisServer;
use super::sequences::Book;
use crate::clock::Clock;
use crate::ledger::admin::{AccountView, AdminError, AdminOp, AdminReply, AuditReport, ReceiptQuery};
use crate::ledger::redis::tests::book::RedisBook;
use crate::ledger::redis::{Options, RedisLedger};
use crate::ledger::{Caller, Debit, Figures, Hold, Ledger, UsageRow, embedded};
use crate::pure::account::{Denial, ReserveRequest, Scope};
use crate::pure::ids::{AccountId, ApiKey, KeyDigest, RequestId, Tier};
use crate::pure::limits::{LimitOverrides, Limits};
use crate::pure::money::Credits;
use crate::pure::receipt::Receipt;
use crate::pure::time::{Period, Timestamp};
use crate::pure::usage::{CompletionTokens, PromptTokens, Usage};

/// 2026-11-20T00:00:00Z.
pub(crate) const NOW: Timestamp = Timestamp(1_795_132_800_000);

/// Receipts outlive what the cases do to the clock, and are more than a case has calls.
const RECEIPT_DAYS: u32 = 100_000;

/// A ledger and what it stands on.
pub(crate) struct Rig {
    pub(crate) ledger: Ledger,
    pub(crate) clock: Clock,
    _ground: Ground,
}

enum Ground {
    Folder { _folder: tempfile::TempDir },
    Server { _server: RedisServer },
}

impl Rig {
    pub(crate) fn embedded() -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::manual(NOW);
        let store =
            embedded::Embedded::open_keeping(&folder.path().join("ledger.db"), RECEIPT_DAYS, clock.clone()).unwrap();
        Rig {
            ledger: Ledger::Embedded(store),
            clock,
            _ground: Ground::Folder { _folder: folder },
        }
    }

    pub(crate) fn redis() -> Rig {
        let server = RedisServer::start();
        let clock = Clock::manual(NOW);
        let store = RedisLedger::connect(&server.url(), patient(clock.clone())).unwrap();
        Rig {
            ledger: Ledger::Redis(store),
            clock,
            _ground: Ground::Server { _server: server },
        }
    }

    pub(crate) fn run(&self, op: AdminOp) -> Result<AdminReply, AdminError> {
        run(&self.ledger, op)
    }

    /// A caller of a new account with this balance.
    pub(crate) fn caller(&self, balance: &str) -> Caller {
        self.caller_of("acme", balance, LimitOverrides::default())
    }

    /// A caller of an account, which is made when it is not there; its key has these limits of its own.
    pub(crate) fn caller_of(&self, name: &str, balance: &str, limits: LimitOverrides) -> Caller {
        caller_of(&self.ledger, name, balance, limits)
    }

    /// The steps of one account.
    pub(crate) fn book(&self, caller: &Caller) -> Box<dyn Book> {
        let name = caller.account.id.as_str();
        match &self.ledger {
            Ledger::Embedded(_) => Box::new(embedded::book::EmbeddedBook::new(&self.ledger, name)),
            Ledger::Redis(_) => Box::new(RedisBook::new(&self.ledger, name)),
        }
    }

    pub(crate) fn reserve(&self, caller: &Caller, request: &ReserveRequest) -> Result<Hold, Denial> {
        block_on(caller.reserve(request)).unwrap()
    }

    pub(crate) fn figures(&self, caller: &Caller) -> Figures {
        block_on(caller.figures()).unwrap()
    }

    pub(crate) fn show(&self, caller: &Caller) -> AccountView {
        let op = AdminOp::AccountShow {
            account: caller.account.id.clone(),
        };
        match self.run(op).unwrap() {
            AdminReply::Account(view) => view,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn usage(&self, caller: &Caller, period: Period) -> Vec<UsageRow> {
        block_on(self.ledger.usage(&caller.account.id, None, period)).unwrap()
    }

    /// What the caller's own key has used.
    pub(crate) fn usage_of_key(&self, caller: &Caller, period: Period) -> Vec<UsageRow> {
        block_on(self.ledger.usage(&caller.account.id, Some(&caller.key.id), period)).unwrap()
    }

    pub(crate) fn credit(&self, caller: &Caller, amount: &str, reference: &str) -> Result<AdminReply, AdminError> {
        self.run(AdminOp::CreditsAdd {
            account: caller.account.id.clone(),
            amount: credits(amount),
            reference: reference.to_owned(),
        })
    }
}

/// Options of a test that is not about time-outs, on a machine that may be busy.
pub(crate) fn patient(clock: Clock) -> Options {
    Options {
        timeout: Duration::from_secs(10),
        clock,
        receipts_per_account_max: NonZeroU32::new(RECEIPT_DAYS),
        ..Options::default()
    }
}

pub(crate) fn run(ledger: &Ledger, op: AdminOp) -> Result<AdminReply, AdminError> {
    match ledger {
        Ledger::Embedded(store) => store.run_blocking(op),
        Ledger::Redis(store) => store.run_blocking(op),
    }
}

pub(crate) fn caller_of(ledger: &Ledger, name: &str, balance: &str, limits: LimitOverrides) -> Caller {
    let account: AccountId = name.parse().unwrap();
    let create = AdminOp::AccountCreate {
        account: account.clone(),
        tier: Tier::Pro,
        quota_pico: None,
        terms: Default::default(),
    };
    match run(ledger, create) {
        Ok(_) | Err(AdminError::AccountExists(_)) => {}
        Err(error) => panic!("{error}"),
    }
    if credits(balance) > Credits::ZERO {
        let add = AdminOp::CreditsAdd {
            account: account.clone(),
            amount: credits(balance),
            reference: "first".to_owned(),
        };
        run(ledger, add).unwrap();
    }
    let digest = ApiKey::from_random("tg_", unique()).digest();
    let create = AdminOp::KeyCreate {
        digest: digest.to_hex(),
        account,
        tier: None,
        domains: Vec::new(),
        expires_in_ms: None,
        limits,
        settings: Default::default(),
    };
    run(ledger, create).unwrap();
    let found = block_on(ledger.authenticate(&digest)).unwrap().unwrap();
    found.checked(NOW).unwrap()
}

/// The command that makes a key of an account that has no rules of its own.
pub(crate) fn key_create(account: &str, digest: &KeyDigest) -> AdminOp {
    AdminOp::KeyCreate {
        digest: digest.to_hex(),
        account: account.parse().unwrap(),
        tier: None,
        domains: Vec::new(),
        expires_in_ms: None,
        limits: LimitOverrides::default(),
        settings: Default::default(),
    }
}

fn unique() -> [u8; 32] {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut bytes = [0; 32];
    for (byte, value) in bytes.iter_mut().zip(NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes()) {
        *byte = value;
    }
    bytes
}

pub(crate) fn audit(ledger: &Ledger) -> AuditReport {
    match run(ledger, AdminOp::Audit).unwrap() {
        AdminReply::Audit(report) => report,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn audit_is_clean(ledger: &Ledger) {
    let report = audit(ledger);
    assert!(report.accounts > 0 && report.at > Timestamp::default());
    assert_eq!(report.findings, []);
}

/// All receipts of an account, newest first.
pub(crate) fn receipts_of(ledger: &Ledger, account: &AccountId) -> Vec<Receipt> {
    let mut query = ReceiptQuery::newest(account, 50);
    let mut receipts = Vec::new();
    loop {
        let page = block_on(ledger.receipts(query.clone())).unwrap();
        receipts.extend(page.receipts);
        match page.next {
            Some(next) => query.before = Some(next),
            None => return receipts,
        }
    }
}

/// Each number has one receipt, and together they are what the usage says.
pub(crate) fn receipts_are_usage(ledger: &Ledger, account: &AccountId) {
    let receipts = receipts_of(ledger, account);
    let numbers: BTreeSet<_> = receipts.iter().map(|r| (r.billed.producer, r.billed.number)).collect();
    assert_eq!(numbers.len(), receipts.len(), "a number has two receipts");
    let mut sums: BTreeMap<_, UsageRow> = BTreeMap::new();
    for Receipt { resolved, billed } in receipts {
        let (day, model) = (resolved.day(), billed.model.to_string());
        let row = sums.entry((day, model.clone())).or_insert(UsageRow {
            day,
            model,
            requests: 0,
            prompt_tokens: 0,
            completion_tokens: 0,
            cost: Credits::ZERO,
        });
        row.requests += 1;
        row.prompt_tokens += billed.prompt_tokens;
        row.completion_tokens += billed.completion_tokens;
        row.cost = row.cost.checked_add(billed.cost).unwrap();
    }
    let rows = block_on(ledger.usage(account, None, Period::All)).unwrap();
    assert_eq!(sums.into_values().collect::<Vec<_>>(), rows);
}

pub(crate) fn credits(text: &str) -> Credits {
    text.parse().unwrap()
}

pub(crate) fn request_id(n: u64) -> RequestId {
    let mut bytes = [0u8; 16];
    for (byte, value) in bytes.iter_mut().rev().zip(n.to_le_bytes()) {
        *byte = value;
    }
    RequestId::from_bytes(bytes)
}

/// The same, of a request that came then.
pub(crate) fn request_at(n: u64, at: Timestamp) -> RequestId {
    let mut bytes = *request_id(n).as_bytes();
    let time = at.0.to_be_bytes().into_iter().skip(2);
    bytes.iter_mut().zip(time).for_each(|(byte, of_time)| *byte = of_time);
    RequestId::from_bytes(bytes)
}

/// A reserve of exactly this amount, with limits that are far away.
pub(crate) fn request(n: u64, wanted: &str) -> ReserveRequest {
    ReserveRequest {
        id: request_id(n),
        scope: Scope::Account,
        limits: Limits {
            rpm: 1_000_000,
            tpm: 1_000_000_000,
            concurrency: 1_000_000,
        },
        quota: Credits::MAX,
        wanted: credits(wanted),
        at_least: credits(wanted),
        tokens: 1,
        expires: NOW.plus_millis(60_000),
        is_counted: false,
        is_last: true,
        spend: None,
    }
}

/// A debit of three prompt tokens and four completion tokens.
pub(crate) fn debit(cost: &str) -> Debit {
    Debit {
        model: "a/m".into(),
        key: "key_x".to_owned().into(),
        usage: Usage {
            prompt: PromptTokens(3),
            completion: CompletionTokens(4),
        },
        cost: credits(cost),
        held: None,
        details: None,
        end_user: None,
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    }
    RUNTIME.with(|runtime| runtime.block_on(future))
}

/// Many callers at once, as many threads of their own runtimes as Pingora has workers.
pub(crate) fn on_workers<T: Send>(workers: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers)
            .map(|worker| {
                let work = &work;
                scope.spawn(move || work(worker))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The ledger's Redis store.
pub(crate) fn redis_of(ledger: &Ledger) -> &Arc<RedisLedger> {
    match ledger {
        Ledger::Redis(store) => store,
        Ledger::Embedded(_) => panic!("the embedded store"),
    }
}
