//! A process' death is the dropping of everything in it: the journal's lock goes, its entries stay, and the store keeps what it has.

mod damage;
mod files;
mod folders;
mod followed;
mod growth;
mod histories;
mod lines;
mod moved;
mod recovered;
mod unfinished;
mod unwritten;
mod waiting;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file::JournalFile;
use super::recover::recover;
use super::*;
use crate::clock::Clock;
use crate::ledger::admin::RecoverReport;
use crate::ledger::embedded::Embedded;
use crate::ledger::tests::rig::{NOW, audit_is_clean, block_on, caller_of, credits, request};
use crate::ledger::{Caller, Figures, Hold, Ledger};
use crate::pure::money::{Credits, ListPrice, Markup, Pricing, ProviderPrice};
use crate::pure::numbers::ProducerId;
use crate::pure::request_body::{Endpoint, PromptLimits};
use crate::pure::usage::Usage;

/// 8 tokens: 3 for the chat, 3 for the message and 2 for its text.
const PROMPT: &[u8] = br#"{"model":"a/m","messages":[{"role":"user","content":"hello world"}]}"#;

/// The name of a dead process' journal.
const DEAD: &str = "0190a0b0c0d07e0f8a0b0c0d0e0f0a0b";

/// A folder with a ledger's file and journals, and the process that has them open.
struct Rig {
    folder: tempfile::TempDir,
    process: Option<Process>,
}

struct Process {
    ledger: Ledger,
    journal: Arc<Journal>,
    caller: Caller,
    recovered: RecoverReport,
}

fn price(text: &str) -> ListPrice {
    text.parse::<ProviderPrice>().unwrap().with_markup(Markup::default())
}

fn pricing() -> Pricing {
    Pricing {
        prompt: price("0.000001"),
        completion: price("0.00001"),
    }
}

fn cost(prompt: u64, completion: u64) -> Credits {
    let usage = Usage {
        prompt: PromptTokens(prompt),
        completion: CompletionTokens(completion),
    };
    pricing().cost(usage).unwrap()
}

impl Rig {
    fn new() -> Rig {
        let mut rig = Rig {
            folder: tempfile::tempdir().unwrap(),
            process: None,
        };
        rig.start("10");
        rig
    }

    fn start(&mut self, balance: &str) {
        self.start_at(balance, NOW);
    }

    fn start_at(&mut self, balance: &str, now: Timestamp) {
        let store = Embedded::open(&self.folder.path().join("ledger.db"), Clock::manual(now)).unwrap();
        let ledger = Ledger::Embedded(store);
        let caller = caller_of(&ledger, "acme", balance, Default::default());
        let recovered = recover(self.folder.path(), &ledger);
        ledger.recovered(recovered.clone());
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

    /// Kills the process and starts another. The embedded store's thread writes what it has, which a kill would lose: that case is the
    /// fault rig's.
    fn restart(&mut self) -> &Process {
        self.process = None;
        self.start("0");
        self.process()
    }

    fn spent(&self) -> Credits {
        let process = self.process();
        let figures = block_on(process.caller.figures()).unwrap();
        assert_eq!(figures.held, Credits::ZERO);
        audit_is_clean(&process.ledger);
        credits("10").saturating_sub(figures.balance)
    }

    /// A call that is admitted.
    fn call(&self, n: u64) -> Hold {
        self.process().call(n, PROMPT)
    }

    fn files(&self, extension: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let of = |path: &PathBuf| path.extension().is_some_and(|found| found == extension);
        entries.map(|entry| entry.unwrap().path()).filter(of).collect()
    }
}

impl Process {
    fn begin(&self, n: u64, prompt: &[u8]) -> Entry {
        self.begin_as(request(n, "1").id, prompt)
    }

    fn begin_as(&self, id: RequestId, prompt: &[u8]) -> Entry {
        self.journal.begin(&self.intent(id), prompt).unwrap()
    }

    fn intent(&self, id: RequestId) -> Intent<'_> {
        Intent {
            id,
            account: &self.caller.account.id,
            key: &self.caller.key.id,
            model: "a/m",
            pricing: pricing(),
            limits: PromptLimits {
                image_tokens_each: 1000,
                context_length: 8192,
            },
            text_bytes: 0,
            endpoint: Endpoint::Chat,
            end_user: None,
        }
    }

    fn call(&self, n: u64, prompt: &[u8]) -> Hold {
        self.call_of(n, self.begin(n, prompt))
    }

    fn call_of(&self, n: u64, entry: Entry) -> Hold {
        let wanted = request(n, "0.01");
        let reserved = self.caller.reserve_journaled(&wanted, entry);
        block_on(reserved).unwrap().unwrap()
    }
}

/// What a kill leaves of a hold: nobody settles or releases it.
fn die(holds: Vec<Hold>) {
    holds.into_iter().for_each(Hold::forget);
}

fn debit_of(hold: &Hold, prompt: u64, completion: u64) -> Debit {
    let usage = Usage {
        prompt: PromptTokens(prompt),
        completion: CompletionTokens(completion),
    };
    assert!(hold.amount() > Credits::ZERO);
    Debit {
        model: "a/m".into(),
        key: "key_x".to_owned().into(),
        usage,
        cost: cost(prompt, completion),
        held: None,
        details: None,
        end_user: None,
    }
}

#[test]
fn a_call_that_ended_leaves_nothing() {
    let mut rig = Rig::new();
    let hold = rig.call(1);
    assert_eq!(rig.process().journal.depth(), 1);
    let debit = debit_of(&hold, 9, 5);
    hold.settle(debit);
    rig.call(2).release();
    rig.process().ledger.close();
    assert_eq!(rig.process().journal.depth(), 0);
    rig.process().journal.close();
    assert_eq!(rig.files("journal"), Vec::<PathBuf>::new());
    assert_eq!(rig.files("prompts"), Vec::<PathBuf>::new());
    let recovered = rig.restart().recovered.clone();
    assert_eq!(recovered, RecoverReport::default());
    assert_eq!(rig.spent(), cost(9, 5));
}

#[test]
fn a_refused_call_leaves_nothing() {
    let rig = Rig::new();
    let process = rig.process();
    let entry = process.begin(1, PROMPT);
    let refused = block_on(process.caller.reserve_journaled(&request(1, "11"), entry));
    assert!(refused.unwrap().is_err());
    assert_eq!(process.journal.depth(), 0);
}

#[test]
fn what_was_delivered_is_billed_once_and_the_rest_is_given_back() {
    let mut rig = Rig::new();
    let held = rig.call(1);
    let mut answered = rig.call(2);
    answered.pass(CompletionTokens(1), None);
    answered.pass(CompletionTokens(7), None);
    let mut reported = rig.call(3);
    reported.pass(CompletionTokens(3), Some(PromptTokens(100)));
    let nothing_yet = {
        let mut hold = rig.call(4);
        hold.pass(CompletionTokens(0), None);
        hold
    };
    die(vec![held, answered, reported, nothing_yet]);
    let report = rig.restart().recovered.clone();
    assert_eq!((report.journals, report.settled, report.released), (1, 3, 1));
    assert_eq!(report.refused, Vec::<String>::new());
    let expected = [cost(8, 7), cost(100, 3), cost(8, 0)];
    let expected = expected.into_iter().fold(Credits::ZERO, Credits::saturating_add);
    assert_eq!(rig.spent(), expected);
    let report = rig.restart().recovered.clone();
    assert_eq!((report.settled, report.already, report.released), (0, 0, 0));
    assert_eq!(rig.spent(), expected);
    assert_eq!(rig.files("journal").len(), 1, "only the living process' own");
}

#[test]
fn a_debit_that_stood_is_taken_once_whether_the_store_has_it_or_not() {
    let mut rig = Rig::new();
    let first = rig.call(1);
    let debit = debit_of(&first, 9, 5);
    first.settle(debit);
    // The file now has the first debit, but its entry is put back as if its acknowledgement had not been seen.
    let mut entries: Vec<Entry> = Vec::new();
    {
        let process = rig.process();
        let usage = block_on(
            process
                .ledger
                .usage(&process.caller.account.id, None, crate::pure::time::Period::All),
        );
        assert_eq!(usage.unwrap().len(), 1);
        let Ledger::Embedded(store) = &process.ledger else {
            panic!()
        };
        for (n, sequence) in [(1, 1), (2, 2), (3, 3)] {
            let mut entry = process.begin(n, PROMPT);
            let debit = Debit {
                model: "a/m".into(),
                key: "key_x".to_owned().into(),
                usage: Usage {
                    prompt: PromptTokens(9),
                    completion: CompletionTokens(sequence * 5),
                },
                cost: cost(9, sequence * 5),
                held: None,
                details: None,
                end_user: None,
            };
            entry.owe(&debit, CallNumber::new(store.producer(), sequence));
            entries.push(entry);
        }
    }
    drop(entries);
    let report = rig.restart().recovered.clone();
    assert_eq!((report.settled, report.already, report.released), (2, 1, 0));
    let expected = [5, 10, 15].map(|tokens| cost(9, tokens));
    let expected = expected.into_iter().fold(Credits::ZERO, Credits::saturating_add);
    assert_eq!(rig.spent(), expected);
    assert_eq!(rig.restart().recovered.settled, 0);
    assert_eq!(rig.spent(), expected);
}

#[test]
fn the_journal_of_a_living_process_is_left_alone() {
    let rig = Rig::new();
    let mut hold = rig.call(1);
    hold.pass(CompletionTokens(5), None);
    let report = recover(rig.folder.path(), &rig.process().ledger);
    assert_eq!(report, RecoverReport::default());
    hold.release();
    assert_eq!(rig.spent(), Credits::ZERO);
}

#[test]
fn prompts_of_many_blocks_are_kept_and_wiped() {
    let mut rig = Rig::new();
    let content = "word ".repeat(20_000);
    let prompt = format!(r#"{{"model":"a/m","messages":[{{"role":"user","content":"{content}"}}]}}"#);
    let kept = |rig: &Rig| {
        let text = std::fs::read(rig.files("prompts").first().unwrap()).unwrap();
        text.windows(5).any(|window| window == b"word ")
    };
    let hold = rig.process().call(1, prompt.as_bytes());
    assert!(kept(&rig));
    hold.release();
    assert!(!kept(&rig));
    let mut hold = rig.process().call(2, prompt.as_bytes());
    hold.pass(CompletionTokens(1), None);
    die(vec![hold]);
    rig.restart();
    let body = crate::pure::request_body::RequestBody::parse(prompt.into_bytes().into(), Endpoint::Chat).unwrap();
    let limits = PromptLimits {
        image_tokens_each: 1000,
        context_length: 8192,
    };
    let tokens = crate::pure::prompt_count::counted_prompt(&body, "a/m", &limits);
    assert_eq!(rig.spent(), cost(tokens.0, 1));
}

#[test]
fn a_debit_that_the_store_has_not_yet_acknowledged_keeps_no_prompt() {
    let rig = Rig::new();
    let prompt = vec![b'p'; 1 << 20];
    // Together they would need more than one segment of the file.
    let mut owed: Vec<Entry> = Vec::new();
    for n in 1..=8 {
        let mut entry = rig.process().begin(n, &prompt);
        let usage = Usage {
            prompt: PromptTokens(1),
            completion: CompletionTokens(1),
        };
        let debit = Debit {
            model: "a/m".into(),
            key: "key_x".to_owned().into(),
            usage,
            cost: cost(1, 1),
            held: None,
            details: None,
            end_user: None,
        };
        entry.owe(&debit, CallNumber::new(ProducerId(7), n));
        owed.push(entry);
    }
    let prompts = std::fs::read(rig.files("prompts").first().unwrap()).unwrap();
    assert_eq!(prompts.len(), 4 << 20, "the file has grown");
    assert!(
        !prompts.windows(8).any(|window| window == b"pppppppp"),
        "a prompt was not wiped"
    );
    owed.iter_mut().for_each(Entry::close);
}

#[test]
fn a_call_whose_prompt_is_gone_is_billed_by_a_low_estimate() {
    let mut rig = Rig::new();
    let mut hold = rig.call(1);
    hold.pass(CompletionTokens(2), None);
    die(vec![hold]);
    rig.process = None;
    let prompts = rig.files("prompts");
    std::fs::remove_file(prompts.first().unwrap()).unwrap();
    rig.start("0");
    let estimate = crate::pure::prompt_count::estimated_prompt(u64::try_from(PROMPT.len()).unwrap());
    assert_eq!(rig.spent(), cost(estimate.0, 2));
}
