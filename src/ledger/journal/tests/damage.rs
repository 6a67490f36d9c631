//! Journals that were damaged, and ledgers that change hands or come back.

use super::*;

/// The bytes of a dead process' journal and prompts with one call of each kind, and what they come to.
pub(super) fn three_calls() -> (Rig, Vec<u8>, Vec<u8>) {
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
        end_user: None,
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

/// Recovers from these bytes over a ledger as `origin` left it; what was spent, and the report.
fn recovered_from(origin: &Rig, journal: &[u8], prompts: &[u8]) -> (Credits, RecoverReport) {
    let mut rig = Rig {
        folder: tempfile::Builder::new().tempdir().unwrap(),
        process: None,
    };
    let ledger = |of: &Rig| of.folder.path().join("ledger.db");
    std::fs::copy(ledger(origin), ledger(&rig)).unwrap();
    std::fs::write(rig.folder.path().join(DEAD).with_extension("journal"), journal).unwrap();
    std::fs::write(rig.folder.path().join(DEAD).with_extension("prompts"), prompts).unwrap();
    rig.start("0");
    let report = rig.process().recovered.clone();
    let spent = rig.spent();
    rig.process().ledger.close(); // Which brings the debits to the disk, and so frees their places.
    assert!(!rig.folder.path().join(DEAD).with_extension("journal").exists());
    (spent, report)
}

#[test]
fn damage_at_any_byte_never_stops_a_start_nor_invents_a_debit() {
    let (rig, journal, prompts) = three_calls();
    let [answered, owed] = [cost(9, 7), cost(9, 20)];
    let both = answered.saturating_add(owed);
    let (spent, report) = recovered_from(&rig, &journal, &prompts);
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
        let (spent, report) = recovered_from(&rig, &damaged, &prompts);
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
            let (spent, report) = recovered_from(&rig, &damaged, &prompts);
            let believed = [Credits::ZERO, answered, owed, both].contains(&spent);
            assert!(believed && report.refused.len() <= 1, "byte {at}: {spent}, {report:?}");
            let (spent, report) = recovered_from(&rig, &journal[..at], &prompts);
            let believed = [Credits::ZERO, answered, both].contains(&spent);
            assert!(believed && report.refused.len() <= 1, "{at} bytes: {spent}, {report:?}");
        }
    }
    for length in [0, 1, 4095, 4096, 4097, 4096 + 700, 4096 + 1536] {
        let (spent, report) = recovered_from(&rig, &journal[..length], &prompts);
        assert!([Credits::ZERO, answered, both].contains(&spent));
        assert_eq!(report.refused.len(), usize::from(length < 4096), "{length}: {report:?}");
    }
}

/// It was billed a token for each six bytes of its images, beyond what the model reads.
#[test]
fn a_prompt_that_is_too_long_to_be_kept_is_estimated_by_its_text_and_within_the_context() {
    for (text_bytes, estimate) in [(600, 100), (9 << 20, 8192)] {
        let mut rig = Rig::new();
        let process = rig.process();
        let intent = Intent {
            text_bytes,
            ..process.intent(request(1, "1").id)
        };
        let prompt = vec![b'p'; (8 << 20) + 1];
        let mut hold = process.call_of(1, process.journal.begin(&intent, &prompt).unwrap());
        hold.pass(CompletionTokens(2), None);
        die(vec![hold]);
        rig.restart();
        assert_eq!(rig.spent(), cost(estimate, 2));
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
        // SAFETY: nobody writes to the file.
        match unsafe { file.slot(number).unwrap().read() } {
            Ok(None) => {}
            Err(_) => refused += 1,
            Ok(Some(found)) => match found.stage {
                super::slot::FoundStage::Held { .. } => {}
                super::slot::FoundStage::Answered { delivered, prompt, .. } => {
                    costs.push(cost(prompt.unwrap().0, delivered.0));
                }
                super::slot::FoundStage::Owed(debit) => costs.push(debit.cost),
            },
        }
    }
    (costs, refused)
}

pub(super) fn adopted(path: &Path) -> JournalFile {
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
    follow::hold_for_predecessors(&folder, &new);
    let figures = |account: &Caller| {
        let caller = caller_of(&new, "acme", "0", Default::default());
        assert_eq!(caller.account.id, account.account.id);
        block_on(caller.figures()).unwrap()
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
    follow::follow_predecessors(&folder, successor, None, &mut Default::default());
    let spent = |figures: Figures| credits("10").saturating_sub(figures.balance);
    let now = figures(&old.caller);
    assert_eq!((spent(now), now.held), (cost(8, 5), Credits::ZERO));

    drop(old);
    let report = recover(&folder, &new);
    assert_eq!((report.settled, report.already), (1, 1), "{report:?}");
    let caller = caller_of(&new, "acme", "0", Default::default());
    let now = block_on(caller.figures()).unwrap();
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
    follow::hold_for_predecessors(&folder, &ledger);
    let new = Process {
        caller: caller_of(&ledger, "acme", "0", Default::default()),
        journal: Journal::open(&folder),
        recovered: RecoverReport::default(),
        ledger,
    };
    follow::follow_predecessors(&folder, &successor, None, &mut Default::default());
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

    let figures = || block_on(old.caller.figures()).unwrap();
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
    let figures = block_on(process.caller.figures()).unwrap();
    assert_eq!(credits("11").saturating_sub(figures.balance), spent);
    audit_is_clean(&process.ledger);
}
