//! A process' death is the dropping of everything in it: the journal's lock goes, its entries stay, and the store keeps what it has.

mod histories;

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
        let figures = block_on(process.ledger.figures(&process.caller)).unwrap();
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
        let intent = Intent {
            id,
            account: &self.caller.account.id,
            key: &self.caller.key.id,
            model: "a/m",
            pricing: pricing(),
            limits: PromptLimits {
                image_tokens_each: 1000,
                context_length: 8192,
            },
            endpoint: Endpoint::Chat,
        };
        self.journal.begin(&intent, prompt).unwrap()
    }

    fn call(&self, n: u64, prompt: &[u8]) -> Hold {
        let entry = self.begin(n, prompt);
        let wanted = request(n, "0.01");
        let reserved = self.ledger.reserve_journaled(&self.caller, &wanted, entry);
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
    let refused = block_on(
        process
            .ledger
            .reserve_journaled(&process.caller, &request(1, "11"), entry),
    );
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
                .usage(&process.caller.account.id, crate::pure::time::Period::All),
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

/// A journal that is put back after its gateway was silent for a month: the ledger has forgotten what it took of it.
#[test]
fn a_journal_of_a_gateway_that_was_forgotten_is_kept_and_bills_nothing() {
    let mut rig = Rig::new();
    let mut hold = rig.call(1);
    hold.pass(CompletionTokens(5), None);
    let copies = ["journal", "prompts"].map(|extension| {
        let file = rig.files(extension).remove(0);
        let bytes = std::fs::read(&file).unwrap();
        (file, bytes)
    });
    let debit = debit_of(&hold, 8, 6);
    hold.settle(debit);
    let spent = rig.spent();
    for days in [29, 31, 31] {
        rig.process = None;
        for (file, bytes) in &copies {
            std::fs::write(file, bytes).unwrap();
        }
        rig.start_at("0", NOW.plus_millis(days * 86_400_000));
        let report = rig.process().recovered.clone();
        let known = usize::from(days < 30);
        assert_eq!(
            (report.settled, report.already, report.refused.len()),
            (0, u64::try_from(known).unwrap(), 1 - known)
        );
        assert_eq!(rig.spent(), spent);
    }
    assert_eq!(rig.files("refused").len(), 1);
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

#[test]
fn it_grows_with_the_calls_and_uses_freed_places_again() {
    let rig = Rig::new();
    let process = rig.process();
    let mut entries: Vec<Entry> = (0..5000).map(|n| process.begin(n, PROMPT)).collect();
    assert_eq!(process.journal.depth(), 5000);
    entries.iter_mut().for_each(Entry::close);
    assert_eq!(process.journal.depth(), 0);
    let length = |rig: &Rig| std::fs::metadata(rig.files("journal").first().unwrap()).unwrap().len();
    let grown = length(&rig);
    let mut entries: Vec<Entry> = (0..5000).map(|n| process.begin(n, PROMPT)).collect();
    assert_eq!(length(&rig), grown);
    entries.iter_mut().for_each(Entry::close);
}

#[test]
fn the_oldest_call_is_known() {
    let rig = Rig::new();
    let process = rig.process();
    let begin = |secs: i64| {
        let mut id = [7; 16];
        let [_, _, time @ ..] = (secs * 1000 + 123).to_be_bytes();
        id.first_chunk_mut::<6>().unwrap().copy_from_slice(&time);
        process.begin_as(RequestId::from_bytes(id), PROMPT)
    };
    let oldest = || process.journal.oldest().map(|time| time.0 / 1000);
    assert_eq!(oldest(), None);
    let [mut second, mut first, mut third] = [1_800_000_005, 1_800_000_000, 1_800_000_009].map(begin);
    assert_eq!(oldest(), Some(1_800_000_000));
    first.close();
    assert_eq!(oldest(), Some(1_800_000_005));
    second.close();
    third.close();
    assert_eq!(oldest(), None);
}

#[test]
fn a_folder_that_cannot_be_written_refuses_calls_until_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let blocked = folder.path().join("data");
    std::fs::write(&blocked, b"a file where the folder should be").unwrap();
    let journal = Journal::open(&blocked);
    let account = "acme".parse().unwrap();
    let key = "key_x".to_owned().into();
    let intent = Intent {
        id: request(1, "1").id,
        account: &account,
        key: &key,
        model: "a/m",
        pricing: pricing(),
        limits: PromptLimits {
            image_tokens_each: 0,
            context_length: 0,
        },
        endpoint: Endpoint::Chat,
    };
    assert!(!journal.is_usable());
    assert!(matches!(
        journal.begin(&intent, PROMPT),
        Err(StoreError::Unavailable(_))
    ));
    std::fs::remove_file(&blocked).unwrap();
    journal.tend();
    journal.begin(&intent, PROMPT).unwrap().close();
    let long = "m".repeat(MODEL_BYTES_MAX + 1);
    let too_long = Intent { model: &long, ..intent };
    assert!(journal.begin(&too_long, PROMPT).is_err());
}

/// The bytes of a dead process' journal and prompts with one call of each kind, and what they come to.
fn three_calls() -> (Rig, Vec<u8>, Vec<u8>) {
    let mut rig = Rig::new();
    let held = rig.call(1);
    let mut answered = rig.call(2);
    answered.pass(CompletionTokens(7), Some(PromptTokens(9)));
    let mut owed = rig.process().begin(3, PROMPT);
    let Ledger::Embedded(store) = &rig.process().ledger else {
        panic!()
    };
    let debit = Debit {
        model: "a/m".into(),
        key: "key_x".to_owned().into(),
        usage: Usage {
            prompt: PromptTokens(9),
            completion: CompletionTokens(20),
        },
        cost: cost(9, 20),
        held: None,
        details: None,
    };
    owed.owe(&debit, CallNumber::new(store.producer(), 2));
    drop(owed);
    die(vec![held, answered]);
    rig.process = None;
    let journal = std::fs::read(rig.files("journal").first().unwrap()).unwrap();
    let prompts = std::fs::read(rig.files("prompts").first().unwrap()).unwrap();
    // 4096 bytes of header, then slots of 512.
    (rig, journal[..4096 + 4 * 512].to_vec(), prompts[..8192].to_vec())
}

/// Recovers from these bytes over a new ledger; what was spent, and the report.
fn recovered_from(journal: &[u8], prompts: &[u8]) -> (Credits, RecoverReport) {
    let mut rig = Rig {
        folder: tempfile::Builder::new().tempdir().unwrap(),
        process: None,
    };
    std::fs::write(rig.folder.path().join(DEAD).with_extension("journal"), journal).unwrap();
    std::fs::write(rig.folder.path().join(DEAD).with_extension("prompts"), prompts).unwrap();
    rig.start("10");
    let report = rig.process().recovered.clone();
    let spent = rig.spent();
    rig.process().ledger.close(); // Which brings the debits to the disk, and so frees their places.
    assert!(!rig.folder.path().join(DEAD).with_extension("journal").exists());
    (spent, report)
}

#[test]
fn damage_at_any_byte_never_stops_a_start_nor_invents_a_debit() {
    let (_rig, journal, prompts) = three_calls();
    let [answered, owed] = [cost(9, 7), cost(9, 20)];
    let both = answered.saturating_add(owed);
    let (spent, report) = recovered_from(&journal, &prompts);
    assert_eq!((spent, report.refused.len()), (both, 0));

    // One ledger for all of them would take each call once only, so each has its own; every byte would take minutes, so the flips go
    // through the slots themselves.
    for at in 4096..journal.len() {
        for flip in [0x01u8, 0x80, 0xff] {
            let mut damaged = journal.clone();
            damaged[at] ^= flip;
            let (costs, refused) = read_all(&damaged);
            let intact = costs.iter().all(|cost| [answered, owed].contains(cost));
            assert!(
                intact && costs.len() + refused >= 2,
                "byte {at} ^ {flip:#x}: {costs:?}, {refused} refused"
            );
            assert!(costs.len() <= 2);
        }
    }
    for length in 4096..journal.len() {
        let (costs, _) = read_all(&journal[..length]);
        assert!(costs.iter().all(|cost| [answered, owed].contains(cost)));
        assert_eq!(
            costs.len(),
            usize::from(length >= 4096 + 1024) + usize::from(length >= 4096 + 1536)
        );
    }
    // Whole starts at some of them: the header, each slot's state, counters, intent and debit, and truncations.
    let slots = [4096, 4608, 5120];
    let in_first = [0, 40].map(|at| slots[0] + at);
    let in_second = [0, 8, 20, 40].map(|at| slots[1] + at);
    let in_third = [0, 40, 430].map(|at| slots[2] + at);
    for at in [0, 7].into_iter().chain(in_first).chain(in_second).chain(in_third) {
        let mut damaged = journal.clone();
        damaged[at] ^= 0x10;
        let (spent, report) = recovered_from(&damaged, &prompts);
        assert!(
            [Credits::ZERO, answered, owed, both].contains(&spent),
            "byte {at}: {spent}"
        );
        assert_eq!(report.refused.len(), 1, "byte {at}: {report:?}");
    }
    // And at every one, when asked: some thousand starts take a minute.
    if std::env::var_os("TOLLGATE_JOURNAL_EVERY_BYTE").is_some() {
        for at in (0..8).chain(4096..journal.len()) {
            let mut damaged = journal.clone();
            damaged[at] ^= 0x10;
            let (spent, report) = recovered_from(&damaged, &prompts);
            let believed = [Credits::ZERO, answered, owed, both].contains(&spent);
            assert!(believed && report.refused.len() <= 1, "byte {at}: {spent}, {report:?}");
            let (spent, report) = recovered_from(&journal[..at], &prompts);
            let believed = [Credits::ZERO, answered, both].contains(&spent);
            assert!(believed && report.refused.len() <= 1, "{at} bytes: {spent}, {report:?}");
        }
    }
    for length in [0, 1, 4095, 4096, 4097, 4096 + 700, 4096 + 1536] {
        let (spent, report) = recovered_from(&journal[..length], &prompts);
        assert!([Credits::ZERO, answered, both].contains(&spent));
        assert_eq!(report.refused.len(), usize::from(length < 4096), "{length}: {report:?}");
    }
}

#[test]
fn a_damaged_prompt_is_not_counted() {
    let mut rig = Rig::new();
    let mut hold = rig.call(1);
    hold.pass(CompletionTokens(2), None);
    die(vec![hold]);
    rig.process = None;
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(rig.files("prompts").first().unwrap())
        .unwrap();
    file.write_all_at(b"X", 60).unwrap();
    rig.start("0");
    let estimate = crate::pure::prompt_count::estimated_prompt(u64::try_from(PROMPT.len()).unwrap());
    assert_eq!(rig.spent(), cost(estimate.0, 2));
}

/// The costs that a recovery would take from these bytes, and how many calls it would refuse.
fn read_all(journal: &[u8]) -> (Vec<Credits>, usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dead.journal");
    std::fs::write(&path, journal).unwrap();
    let file = adopted(&path);
    let (mut costs, mut refused) = (Vec::new(), 0);
    for number in 0..file.slots() {
        match file.slot(number).unwrap().read() {
            Ok(None) => {}
            Err(_) => refused += 1,
            Ok(Some(found)) => match found.stage {
                super::slot::FoundStage::Held => {}
                super::slot::FoundStage::Answered { delivered, prompt, .. } => {
                    costs.push(cost(prompt.unwrap().0, delivered.0));
                }
                super::slot::FoundStage::Owed(debit) => costs.push(debit.cost),
            },
        }
    }
    (costs, refused)
}

fn adopted(path: &Path) -> JournalFile {
    JournalFile::adopt(path).unwrap().unwrap()
}

#[test]
fn a_ledger_that_changes_hands_keeps_holds_and_takes_debits_once() {
    let mut rig = Rig::new();
    let folder = rig.folder.path().to_owned();
    let mut running = rig.call(1);
    running.pass(CompletionTokens(5), None);
    let released = rig.call(2);
    let old = rig.process.take().unwrap();
    let Ledger::Embedded(store) = &old.ledger else { panic!() };
    store.hand_over().unwrap();

    let new = Ledger::Embedded(Embedded::open(&folder.join("ledger.db"), Clock::manual(NOW)).unwrap());
    recover::hold_for_predecessors(&folder, &new);
    let figures = |account: &Caller| {
        let caller = caller_of(&new, "acme", "0", Default::default());
        assert_eq!(caller.account.id, account.account.id);
        block_on(new.figures(&caller)).unwrap()
    };
    let held = running.amount().saturating_add(released.amount());
    assert_eq!(figures(&old.caller).held, held);

    // What a third process left when it died is not the old one's to resolve any more.
    let dead = Journal::open(&folder);
    let mut left = Process {
        ledger: old.ledger.clone(),
        journal: dead,
        caller: old.caller.clone(),
        recovered: RecoverReport::default(),
    }
    .begin(3, PROMPT);
    left.pass(CompletionTokens(2), None);
    drop(left);
    recover(&folder, &old.ledger);
    recover(&folder, &old.ledger);

    released.release();
    let debit = debit_of(&running, 8, 5);
    running.settle(debit);
    let Ledger::Embedded(successor) = &new else { panic!() };
    recover::follow_predecessors(&folder, successor, None);
    let spent = |figures: Figures| credits("10").saturating_sub(figures.balance);
    let now = figures(&old.caller);
    assert_eq!((spent(now), now.held), (cost(8, 5), Credits::ZERO));

    drop(old);
    let report = recover(&folder, &new);
    assert_eq!((report.settled, report.already), (1, 1), "{report:?}");
    let caller = caller_of(&new, "acme", "0", Default::default());
    let now = block_on(new.figures(&caller)).unwrap();
    assert_eq!(spent(now), cost(8, 5).saturating_add(cost(8, 2)));
    audit_is_clean(&new);
}

/// The successor has taken calls, debits, credit and a reserve of the old process, and dies.
#[test]
fn a_ledger_that_comes_back_has_every_debit_and_hold_once() {
    let mut rig = Rig::new();
    let folder = rig.folder.path().to_owned();
    let (taken, queued, ended) = (rig.call(1), rig.call(2), rig.call(3));
    let old = rig.process.take().unwrap();
    let Ledger::Embedded(store) = &old.ledger else { panic!() };
    crate::ledger::control::listen(store).unwrap();
    store.hand_over().unwrap();
    let debit = debit_of(&taken, 8, 5);
    taken.settle(debit);

    let successor = Embedded::open(&folder.join("ledger.db"), Clock::manual(NOW)).unwrap();
    crate::ledger::control::listen(&successor).unwrap();
    let ledger = Ledger::Embedded(Arc::clone(&successor));
    recover::hold_for_predecessors(&folder, &ledger);
    let new = Process {
        caller: caller_of(&ledger, "acme", "0", Default::default()),
        journal: Journal::open(&folder),
        recovered: RecoverReport::default(),
        ledger,
    };
    recover::follow_predecessors(&folder, &successor, None);
    let whole = new.call(11, PROMPT);
    let debit = debit_of(&whole, 8, 6);
    whole.settle(debit);
    let mut cut = new.call(12, PROMPT);
    cut.pass(CompletionTokens(7), None);
    // Granted there, of this process.
    let granted = old.call(13, PROMPT);
    ended.release();
    let debit = debit_of(&queued, 8, 8);
    queued.settle(debit);
    let top_up = crate::ledger::admin::AdminOp::CreditsAdd {
        account: "acme".parse().unwrap(),
        amount: credits("1"),
        reference: "second".to_owned(),
    };
    successor.run_blocking(top_up).unwrap();

    die(vec![cut]);
    drop(new);
    drop(successor);
    let bill_the_dead = || drop(recover::recover_others(&old.journal, &old.ledger));
    store.take_back(bill_the_dead).unwrap();
    assert!(store.is_ours());

    let figures = || block_on(old.ledger.figures(&old.caller)).unwrap();
    assert_eq!(figures().held, granted.amount());
    let debit = debit_of(&granted, 8, 9);
    granted.settle(debit);
    old.call(14, PROMPT).release();
    let spent = [5, 6, 7, 8, 9].map(|tokens| cost(8, tokens));
    let spent = spent.into_iter().fold(Credits::ZERO, Credits::saturating_add);
    assert_eq!(
        figures(),
        Figures {
            balance: credits("11").saturating_sub(spent),
            held: Credits::ZERO,
            monthly_used: spent,
        }
    );
    audit_is_clean(&old.ledger);
    drop(old);
    let process = rig.restart();
    let figures = block_on(process.ledger.figures(&process.caller)).unwrap();
    assert_eq!(credits("11").saturating_sub(figures.balance), spent);
    audit_is_clean(&process.ledger);
}
