//! Random histories of calls, crashes and journals that somebody puts back: each call is billed what it owed when it was first resolved, and
//! never again.
//!
//! `TOLLGATE_LEDGER_HISTORIES` is the number of histories a store (40).

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use super::*;
use crate::ledger::journal::recover::recover_others;
use crate::ledger::redis::RedisLedger;
use crate::ledger::tests::redis_server::RedisServer;
use crate::ledger::tests::rig::{patient, receipts_are_usage};
use crate::pure::time::Period;

/// What happens next. Calls and copies are taken by their place among those that there are.
#[derive(Clone, Debug)]
enum Step {
    Begin,
    /// So many tokens more are passed on.
    Pass(usize, u64),
    Settle(usize, u64),
    Release(usize),
    /// A copy of the journal is made.
    Copy,
    /// The process is killed, and another is started.
    Crash,
    /// The machine dies, and what comes up has an older journal.
    MachineDies(usize),
    /// A copy is put beside the journal of the process that runs.
    Restore(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let at = || 0usize..8;
    prop_oneof![
        5 => Just(Step::Begin),
        5 => (at(), 0u64..50).prop_map(|(call, tokens)| Step::Pass(call, tokens)),
        4 => (at(), 0u64..50).prop_map(|(call, tokens)| Step::Settle(call, tokens)),
        1 => at().prop_map(Step::Release),
        3 => Just(Step::Copy),
        1 => Just(Step::Crash),
        2 => at().prop_map(Step::MachineDies),
        3 => at().prop_map(Step::Restore),
    ]
}

/// What became of a call.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Tokens that were passed on; none before the first byte.
    delivered: Option<u64>,
    /// What was billed when it was resolved.
    billed: Option<Credits>,
}

/// Files of a journal, and which calls stand in them with how many tokens.
struct JournalCopy {
    /// The slots and the prompts of each.
    files: Vec<[Vec<u8>; 2]>,
    calls: BTreeMap<u64, u64>,
}

/// An account on either store, and the process that serves it.
struct Site<'a> {
    folder: tempfile::TempDir,
    server: Option<&'a RedisServer>,
    account: String,
    process: Option<Process>,
    holds: BTreeMap<u64, Hold>,
    calls: BTreeMap<u64, Known>,
    copies: Vec<JournalCopy>,
}

impl<'a> Site<'a> {
    fn new(server: Option<&'a RedisServer>, account: String) -> Site<'a> {
        let mut site = Site {
            folder: tempfile::tempdir().unwrap(),
            server,
            account,
            process: None,
            holds: BTreeMap::new(),
            calls: BTreeMap::new(),
            copies: Vec::new(),
        };
        site.start("10");
        site
    }

    fn start(&mut self, balance: &str) {
        let clock = Clock::manual(NOW);
        let ledger = match self.server {
            Some(server) => Ledger::Redis(RedisLedger::connect(&server.url(), patient(clock)).unwrap()),
            None => Ledger::Embedded(Embedded::open(&self.folder.path().join("ledger.db"), clock).unwrap()),
        };
        let caller = caller_of(&ledger, &self.account, balance, Default::default());
        let recovered = recover(self.folder.path(), &ledger);
        assert_eq!(recovered.refused, Vec::<String>::new());
        let journal = Journal::open(self.folder.path());
        self.process = Some(Process {
            ledger,
            journal,
            caller,
            recovered,
        });
    }

    fn process(&self) -> &Process {
        self.process.as_ref().unwrap()
    }

    fn running(&self, at: usize) -> Option<u64> {
        let count = self.holds.len();
        (count > 0).then(|| *self.holds.keys().nth(at % count).unwrap())
    }

    /// A call owes this, unless it was resolved before.
    fn resolve(&mut self, call: u64, cost: Credits) {
        let known = self.calls.entry(call).or_default();
        known.billed = known.billed.or(Some(cost));
    }

    /// What the calls of a journal owe whose process is dead.
    fn resolve_all(&mut self, calls: &BTreeMap<u64, u64>) {
        for (call, delivered) in calls {
            self.resolve(*call, cost(8, *delivered));
        }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Begin => {
                let call = u64::try_from(self.calls.len()).unwrap() + 1;
                let hold = self.process().call(call, PROMPT);
                self.holds.insert(call, hold);
                self.calls.insert(call, Known::default());
            }
            Step::Pass(at, tokens) => {
                let Some(call) = self.running(at) else { return };
                let known = self.calls.get_mut(&call).unwrap();
                let delivered = known.delivered.unwrap_or(0) + tokens;
                known.delivered = Some(delivered);
                let hold = self.holds.get_mut(&call).unwrap();
                hold.pass(CompletionTokens(delivered), None);
            }
            Step::Settle(at, tokens) => {
                let Some(call) = self.running(at) else { return };
                let hold = self.holds.remove(&call).unwrap();
                let delivered = self.calls[&call].delivered.unwrap_or(0) + tokens;
                let debit = debit_of(&hold, 8, delivered);
                hold.settle(debit);
                self.resolve(call, cost(8, delivered));
            }
            Step::Release(at) => {
                let Some(call) = self.running(at) else { return };
                self.holds.remove(&call).unwrap().release();
                if self.calls[&call].delivered.is_some() {
                    self.resolve(call, Credits::ZERO);
                }
            }
            // What is put back stands there until its debits are on the disk: copies of copies would double with each.
            Step::Copy if files_in(self.folder.path(), "journal").len() > COPIED_MAX => {}
            Step::Copy => {
                let calls = self.holds.keys().filter_map(|call| {
                    let delivered = self.calls[call].delivered?;
                    Some((*call, delivered))
                });
                let calls = calls.collect();
                let files = self.journal_files();
                self.copies.push(JournalCopy { files, calls });
            }
            Step::Crash => {
                let left = self.holds.keys().filter_map(|call| {
                    let delivered = self.calls[call].delivered?;
                    Some((*call, delivered))
                });
                let left = left.collect();
                self.kill();
                self.resolve_all(&left);
                self.start("0");
            }
            Step::MachineDies(at) => {
                self.kill();
                for extension in EXTENSIONS {
                    for file in files_in(self.folder.path(), extension) {
                        std::fs::remove_file(file).unwrap();
                    }
                }
                self.put_back(at);
                self.start("0");
            }
            Step::Restore(at) => {
                self.put_back(at);
                let process = self.process();
                let report = recover_others(&process.journal, &process.ledger);
                assert_eq!(report.refused, Vec::<String>::new());
            }
        }
    }

    fn kill(&mut self) {
        die(std::mem::take(&mut self.holds).into_values().collect());
        self.process = None;
    }

    fn journal_files(&self) -> Vec<[Vec<u8>; 2]> {
        let both = |path: PathBuf| EXTENSIONS.map(|extension| std::fs::read(path.with_extension(extension)));
        let files = files_in(self.folder.path(), "journal").into_iter().map(both);
        // One that is deleted at this moment is not there any more.
        files
            .filter_map(|[slots, prompts]| Some([slots.ok()?, prompts.ok()?]))
            .collect()
    }

    /// Puts a copy into the folder, as the journal of a process that has died.
    fn put_back(&mut self, at: usize) {
        let count = self.copies.len();
        if count == 0 {
            return;
        }
        let copy = &self.copies[at % count];
        for files in &copy.files {
            let path = self.folder.path().join(uuid::Uuid::now_v7().simple().to_string());
            for (extension, bytes) in EXTENSIONS.iter().zip(files) {
                std::fs::write(path.with_extension(extension), bytes).unwrap();
            }
        }
        let calls = copy.calls.clone();
        self.resolve_all(&calls);
    }

    fn balances(&self) -> Result<(), TestCaseError> {
        let process = self.process();
        let figures = block_on(process.caller.figures()).unwrap();
        let billed = self.calls.values().filter_map(|call| call.billed);
        let spent = billed.fold(Credits::ZERO, Credits::saturating_add);
        prop_assert_eq!(figures.balance, credits("10").saturating_sub(spent));
        let rows = block_on(process.ledger.usage(&process.caller.account.id, None, Period::All)).unwrap();
        let debits = rows.iter().fold(Credits::ZERO, |sum, row| sum.saturating_add(row.cost));
        prop_assert_eq!(debits, spent);
        receipts_are_usage(&process.ledger, &process.caller.account.id);
        // In Redis a hold that nobody knows of any more lives until its time is over.
        if self.holds.is_empty() && self.server.is_none() {
            prop_assert_eq!(figures.held, Credits::ZERO);
        }
        Ok(())
    }
}

const EXTENSIONS: [&str; 2] = ["journal", "prompts"];
/// Journals that one copy has at most.
const COPIED_MAX: usize = 4;

fn files_in(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect()
}

fn histories(server: Option<&RedisServer>) {
    let count = std::env::var("TOLLGATE_LEDGER_HISTORIES").map_or(40, |text| text.parse().unwrap());
    let mut runner = TestRunner::new(Config {
        cases: count,
        failure_persistence: None,
        ..Config::default()
    });
    let number = std::cell::Cell::new(0);
    let outcome = runner.run(&proptest::collection::vec(step(), 5..40), |steps| {
        number.set(number.get() + 1);
        let mut site = Site::new(server, format!("account-{}", number.get()));
        for step in &steps {
            site.take(step);
            site.balances()?;
        }
        site.take(&Step::Crash);
        for copy in 0..site.copies.len() {
            site.take(&Step::Restore(copy));
        }
        site.balances()?;
        audit_is_clean(&site.process().ledger);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn no_history_bills_a_call_twice_on_the_embedded_store() {
    histories(None);
}

#[test]
fn no_history_bills_a_call_twice_in_redis() {
    histories(Some(&RedisServer::start()));
}
