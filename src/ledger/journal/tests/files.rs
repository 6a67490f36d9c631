//! The journal's files: what is one, what stands in it, and what is counted of it.

use super::*;
use crate::ledger::journal::prompt_place::PromptPlace;
use crate::ledger::journal::segments::Segments;
use crate::ledger::journal::slot::{Found, FoundStage};
use crate::ledger::tests::logged::logged;
use crate::ledger::tests::rig::{debit, request_at};
use crate::pure::numbers::{Birth, CallNumber, ProducerId};

/// What a prompts file's first segment has room for: 4,096 blocks of 1,020 bytes of text.
const SEGMENT_TEXT_BYTES: usize = 4096 * 1020;

#[test]
fn a_journal_is_known_by_a_name_of_32_hex_digits() {
    let (no_hex, short) = ("z".repeat(32), DEAD.get(1..).unwrap());
    for (stem, expected) in [
        (DEAD, true),
        (&DEAD.to_uppercase(), true),
        (short, false),
        (&format!("{DEAD}0"), false),
        (&no_hex, false),
        ("abc", false),
        ("", false),
    ] {
        let path = Path::new("folder").join(format!("{stem}.journal"));
        assert_eq!(JournalFile::names(&path), expected, "{stem}");
    }
}

#[test]
fn what_is_adopted_is_a_journal_or_nothing_or_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("folder")).unwrap();
    std::fs::write(path("short"), "TGJRNL01").unwrap();
    std::fs::write(path("other"), [b'x'; 5000]).unwrap();
    let adopted = |name: &str| JournalFile::adopt(&path(name)).map(|file| file.is_some());
    assert!(!adopted("missing").unwrap());
    for (name, kind) in [
        ("folder", io::ErrorKind::IsADirectory),
        ("short", io::ErrorKind::InvalidData),
        ("other", io::ErrorKind::InvalidData),
    ] {
        assert_eq!(adopted(name).unwrap_err().kind(), kind, "{name}");
    }
}

#[test]
fn a_segment_is_as_long_as_was_asked_for() {
    // Not a multiple of what is written at once.
    const EACH: usize = 17 * 4096;
    let file = tempfile::tempfile().unwrap();
    let segments = Segments::new(file.try_clone().unwrap(), 4096, EACH);
    for count in 1..=3 {
        segments.grow(count - 1).unwrap();
        let length = usize::try_from(file.metadata().unwrap().len()).unwrap();
        assert_eq!((length, segments.bytes()), (4096 + count * EACH, count * EACH));
    }
}

/// What is met in a mapping ends the process.
#[test]
fn what_the_disk_does_not_read_is_an_error_before_it_is_mapped() {
    let folder = tempfile::tempdir().unwrap();
    let whole = JournalFile::create(folder.path()).unwrap();
    Segments::new(std::fs::File::open(whole.path()).unwrap(), 4096, 4096)
        .read_through()
        .unwrap();
    // Nothing is mapped at the address 0.
    let memory = std::fs::File::open("/proc/self/mem").unwrap();
    let error = Segments::new(memory, 0, 4096).read_through().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
}

/// After a sync that failed, pages count as written that are not.
#[test]
fn what_stands_in_a_journal_stays_when_its_pages_are_to_be_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = JournalFile::create(folder.path()).unwrap();
    let prompt = vec![b'p'; 3000];
    let place = file.claim(&prompt).unwrap().place;
    let (of_file, id) = (std::fs::File::open(file.path()).unwrap(), request(1, "1").id);
    // The first slot is that of a page, the second is not written again.
    let slots = [0, 1].map(|number| file.slot(number).unwrap());
    let delivered = |number: u64| {
        let mut word = [0; 8];
        of_file.read_exact_at(&mut word, 4096 + number * 512 + 8).unwrap();
        word
    };
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for count in 1..=20_000 {
                slots.iter().for_each(|slot| slot.deliver(CompletionTokens(count), id));
                assert_eq!(delivered(0), delivered(1), "{count}");
            }
        });
        while !writer.is_finished() {
            file.dirty().unwrap();
        }
    });
    let before = std::fs::read(file.path()).unwrap();
    file.dirty().unwrap();
    assert!(std::fs::read(file.path()).unwrap() == before);
    assert!(file.prompt(place) == Some(prompt));
}

#[test]
fn each_prompt_of_a_file_that_grows_has_its_own_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = JournalFile::create(folder.path()).unwrap();
    let prompts = file.path().with_extension("prompts");
    let length = || std::fs::metadata(&prompts).unwrap().len();
    let first = vec![b'1'; SEGMENT_TEXT_BYTES];
    let place = file.claim(&first).unwrap().place;
    assert_eq!(length(), 4 << 20, "there was room for it");
    let places: Vec<PromptPlace> = (0..3u8).map(|n| file.claim(&[n; 3000]).unwrap().place).collect();
    assert_eq!(length(), 8 << 20);
    assert!(file.prompt(place) == Some(first), "the first was written over");
    for (n, place) in (0..3u8).zip(places) {
        assert!(file.prompt(place) == Some(vec![n; 3000]), "prompt {n}");
    }
}

#[test]
fn a_prompt_of_up_to_eight_mebibytes_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = JournalFile::create(folder.path()).unwrap();
    for (bytes, is_kept) in [(0, false), (1, true), (8 << 20, true), ((8 << 20) + 1, false)] {
        let prompt = vec![b'p'; bytes];
        let claim = file.claim(&prompt).unwrap();
        assert_eq!(claim.place.first_block != 0, is_kept, "{bytes}");
        assert!(file.prompt(claim.place) == Some(prompt).filter(|_| is_kept), "{bytes}");
        file.release(claim.slot, claim.blocks);
    }
}

#[test]
fn a_call_whose_end_the_store_knows_is_counted_as_unknown_no_more_until_that_is_in_doubt() {
    let rig = Rig::new();
    let journal = &rig.process().journal;
    let time = |secs: i64| NOW.plus_millis(secs * 1000);
    let begin = |secs: i64| {
        rig.process()
            .begin_as(request_at(u64::try_from(secs).unwrap(), time(secs)), PROMPT)
    };
    let [mut first, mut second] = [1, 2].map(begin);
    let standing = || (journal.depth(), journal.oldest());
    assert_eq!(standing(), (2, Some(time(1))));
    for _ in 0..2 {
        first.acknowledged();
        assert_eq!(standing(), (1, Some(time(2))));
    }
    for _ in 0..2 {
        first.doubted();
        assert_eq!(standing(), (2, Some(time(1))));
    }
    second.acknowledged();
    assert_eq!(standing(), (1, Some(time(1))));
    second.close();
    assert_eq!(standing(), (1, Some(time(1))));
    first.acknowledged();
    assert_eq!(standing(), (0, None));
    first.close();
    let mut third = begin(3);
    assert_eq!(standing(), (1, Some(time(3))));
    third.close();
    assert_eq!(standing(), (0, None));
}

/// A store that may lose its last moments: what it has acknowledged stays beyond the end of the process.
#[test]
fn a_journal_of_which_the_store_has_all_gets_another_name_and_is_deleted_when_it_is_free() {
    let mut rig = Rig::new();
    let folder = rig.folder.path().to_owned();
    let process = rig.process();
    let [mut first, mut second] = [1, 2].map(|n| process.begin_as(request_at(n, NOW), PROMPT));
    let close = || logged(|| process.journal.close()).len();
    let there = || ["journal", "prompts", "acknowledged"].map(|extension| rig.files(extension).len());
    first.keep(NOW);
    assert_eq!((first.kept_since(), second.kept_since()), (Some(NOW), None));
    assert_eq!(
        (process.journal.depth(), close(), there()),
        (1, 1, [1, 1, 0]),
        "one is unknown"
    );
    second.keep(NOW.plus_millis(5));
    assert_eq!((process.journal.depth(), close(), there()), (0, 0, [0, 0, 1]));
    assert_eq!(recover::kept(&folder), None, "its owner lives");
    first.doubted();
    assert_eq!((first.kept_since(), process.journal.depth(), close()), (None, 1, 1));
    first.keep(NOW.plus_millis(7));
    second.close();
    assert_eq!((close(), there()), (0, [0, 0, 1]));
    drop((first, second));
    rig.process = None;
    assert_eq!(recover::kept(&folder), Some((1, NOW.plus_millis(7))));

    let path = rig.files("acknowledged").remove(0);
    let file = super::damage::adopted(&path);
    assert!(file.is_kept());
    file.count_call(0);
    file.release(0, Default::default());
    assert!(!path.exists());
}

/// One that was restored may have the name that an adopted one had, whose calls are other ones.
#[test]
fn a_dead_journal_of_which_the_store_has_all_leaves_its_name() {
    let mut rig = Rig::new();
    die(vec![rig.call(1), rig.call(2)]);
    rig.process = None;
    let path = rig.files("journal").remove(0);
    let file = super::damage::adopted(&path);
    [0, 1].into_iter().for_each(|slot| file.count_call(slot));
    file.keep(0, NOW);
    assert!(path.exists() && !file.is_kept());
    file.keep(1, NOW);
    assert!(!path.exists() && file.is_kept());
    assert_eq!(rig.files("prompts").len(), 0);
    std::fs::write(&path, "another").unwrap();
    [0, 1]
        .into_iter()
        .for_each(|slot| file.release(slot, Default::default()));
    assert_eq!((rig.files("acknowledged").len(), path.exists()), (0, true));
}

/// The embedded ledger keeps none: it is another ledger's, which has taken it.
#[test]
fn a_journal_that_another_ledger_has_acknowledged_is_no_matter_of_the_embedded_one() {
    let mut rig = Rig::new();
    let process = rig.process();
    let mut entry = process.begin_as(request_at(1, NOW), PROMPT);
    entry.owe(&debit("1"), CallNumber::new(ProducerId::new(Birth::at(NOW), 7), 1));
    entry.keep(NOW);
    process.journal.close();
    drop(entry);
    assert_eq!(rig.restart().recovered.settled, 0);
    assert_eq!((rig.spent(), rig.files("acknowledged").len()), (Credits::ZERO, 1));
}

#[test]
fn a_dead_journal_with_a_call_that_nobody_can_resolve_is_put_aside() {
    let mut rig = Rig::new();
    die(vec![rig.call(1)]);
    rig.process = None;
    let path = rig.files("journal").remove(0);
    let file = Arc::new(super::damage::adopted(&path));
    file.count_found();
    Entry(Some(Written {
        file: Arc::clone(&file),
        slot: 0,
        blocks: Default::default(),
        id: request(1, "1").id,
        stage: Stage::Owed,
        number: None,
        delivered: CompletionTokens(0),
        prompt: None,
    }))
    .suspend();
    let there = ["journal", "refused"].map(|extension| path.with_extension(extension).exists());
    assert_eq!((file.in_use(), there), (0, [false, true]));
}

/// What stands in an entry's slot.
fn found(entry: &Entry) -> Found {
    let written = entry.0.as_ref().unwrap();
    // SAFETY: its one owner asks.
    let read = unsafe { written.file.slot(written.slot).unwrap().read() };
    read.unwrap().unwrap()
}

/// Whoever raises it is not the one who gives it back.
#[test]
fn what_is_held_is_raised_until_it_is_given_back_and_never_lowered() {
    let rig = Rig::new();
    let mut entry = rig.process().begin(1, PROMPT);
    let raised_to = |entry: &Entry, amount: &str| {
        entry.held().raised(credits(amount));
        let written = entry.0.as_ref().unwrap();
        written.file.slot(written.slot).unwrap().held()
    };
    assert_eq!(raised_to(&entry, "1"), Credits::ZERO, "nothing was granted yet");
    entry.granted(credits("2"));
    for (amount, expected) in [("1", "2"), ("2", "2"), ("4", "4"), ("3", "4")] {
        assert_eq!(raised_to(&entry, amount), credits(expected), "{amount}");
    }
    entry.pass(CompletionTokens(0), None);
    entry.given_back();
    assert_eq!(raised_to(&entry, "5"), Credits::ZERO);
    entry.close();
}

/// A debit may get another number than its call was named by, or be the first that names it.
#[test]
fn an_owed_debit_has_the_number_that_it_got_last() {
    let rig = Rig::new();
    let producer = ProducerId::new(Birth::at(NOW), 7);
    let [one, two] = [1, 2].map(|number| CallNumber::new(producer, number));
    for (n, named, owed) in [(1, None, one), (2, Some(one), one), (3, Some(one), two)] {
        let mut entry = rig.process().begin(n, PROMPT);
        if let Some(number) = named {
            entry.name(number);
        }
        entry.owe(&debit("0.5"), owed);
        let FoundStage::Owed(found) = found(&entry).stage else {
            panic!("call {n} owes nothing");
        };
        assert_eq!((found.number, found.cost), (owed, credits("0.5")), "call {n}");
        entry.close();
    }
}

#[test]
fn a_models_id_may_fill_its_place() {
    let rig = Rig::new();
    let process = rig.process();
    for (bytes, expected) in [(MODEL_BYTES_MAX, true), (MODEL_BYTES_MAX + 1, false)] {
        let model = "m".repeat(bytes);
        let intent = Intent {
            model: &model,
            ..process.intent(request(1, "1").id)
        };
        let begun = process.journal.begin(&intent, PROMPT);
        assert_eq!(begun.is_ok(), expected, "{bytes}");
        if let Ok(mut entry) = begun {
            assert_eq!(found(&entry).model, model);
            entry.close();
        }
    }
}
