//! What a process leaves that died while it made its journal.

use super::*;

/// What is left of files with these extensions once somebody has looked whether they are unfinished.
fn left_of(extensions: &[&str], locked: Option<&str>) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = |extension: &str| folder.path().join(DEAD).with_extension(extension);
    for extension in extensions {
        std::fs::write(path(extension), "").unwrap();
    }
    let maker = locked.map(|extension| std::fs::File::open(path(extension)).unwrap());
    if let Some(maker) = &maker {
        maker.lock().unwrap();
    }
    JournalFile::delete_if_unfinished(&path("prompts"));
    let mut left: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path().extension().unwrap().to_str().unwrap().to_owned())
        .collect();
    left.sort_unstable();
    left
}

#[test]
fn what_nobody_makes_any_more_is_deleted() {
    assert_eq!(left_of(&["prompts"], None), [""; 0]);
    assert_eq!(left_of(&["new"], None), [""; 0]);
    assert_eq!(left_of(&["new", "prompts"], None), [""; 0]);
}

#[test]
fn what_is_being_made_stays() {
    assert_eq!(left_of(&["new"], Some("new")), ["new"]);
    assert_eq!(left_of(&["new", "prompts"], Some("new")), ["new", "prompts"]);
    // The journal beside them was moved away while its owner runs.
    assert_eq!(left_of(&["prompts"], Some("prompts")), ["prompts"]);
}

/// The prompts of a journal that nobody can read are what its calls are billed by once somebody can.
#[test]
fn the_prompts_of_a_journal_stay_with_it_and_also_when_it_was_set_aside() {
    for extension in ["journal", "refused"] {
        let mut expected = [extension, "prompts"];
        expected.sort_unstable();
        assert_eq!(left_of(&expected, None), expected);
    }
}
