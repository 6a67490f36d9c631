//! Journals that grow, get old, or cannot be written.

use super::*;

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
        text_bytes: 0,
        endpoint: Endpoint::Chat,
        end_user: None,
    };
    assert!(!journal.is_usable());
    assert!(matches!(
        journal.begin(&intent, PROMPT),
        Err(StoreError::Unavailable(_))
    ));
    std::fs::remove_file(&blocked).unwrap();
    journal.tend();
    assert!(journal.is_usable());
    journal.begin(&intent, PROMPT).unwrap().close();
    let long = "m".repeat(MODEL_BYTES_MAX + 1);
    let too_long = Intent { model: &long, ..intent };
    assert!(journal.begin(&too_long, PROMPT).is_err());
}
