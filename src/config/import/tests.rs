//! Imports from file to file, as a command and a refresh make them.

use std::fs::{File, create_dir, read_dir, read_to_string, write};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::*;
use crate::config::Refresh;

/// A folder with rules for the provider `p`, and its configuration.
struct Place {
    folder: TempDir,
    config: Config,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tollgate.yaml");
        let catalogue = folder.path().join("catalogue.yaml");
        let text = format!(
            "catalogue: {}\nproviders: {{ p: {{ base_url: 'http://127.0.0.1:1/v1' }} }}\n",
            catalogue.display()
        );
        let rules = "provider: p\ntiers: [ { tier: free } ]\npurposes: [ { purposes: [chat], output: text } ]\n";
        write(folder.path().join("import.yaml"), rules).unwrap();
        let config = Config::parse(&path, &text, &|_| None).unwrap();
        Place { folder, config }
    }

    /// Imports models of these ids and prompt prices.
    fn import(&self, models: &[(&str, &str)], how: Write) -> Result<Import, ConfigError> {
        self.import_changed(models, |_| (), how)
    }

    /// The same with this change to each model of the list.
    fn import_changed(
        &self,
        models: &[(&str, &str)],
        change: impl Fn(&mut serde_json::Value),
        how: Write,
    ) -> Result<Import, ConfigError> {
        let model = |(id, prompt): &(&str, &str)| {
            let mut model = serde_json::json!({ "id": id, "name": "P: M", "context_length": 99,
                "architecture": { "modality": "text->text" }, "pricing": { "prompt": prompt, "completion": "0.000002" } });
            change(&mut model);
            model
        };
        let models: Vec<serde_json::Value> = models.iter().map(model).collect();
        let list = serde_json::json!({ "data": models }).to_string();
        let rules = self.folder.path().join("import.yaml");
        import(&self.config, &rules, Path::new("list.json"), &list, how)
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.config.catalogue).unwrap()
    }

    /// Adds an entry of the operator's own.
    fn add_own(&self) {
        let own = "models:\n  - { id: a/own, name: O, provider: O, context_length: 9, max_completion_tokens: 9, modality: text->text, \
                   pricing: { prompt: \"0.1\", completion: \"0.1\" }, tier: free, purposes: [], targets: [ { provider: p, model: o } ] }\n";
        write(&self.config.catalogue, self.text().replacen("models:\n", own, 1)).unwrap();
    }

    /// Makes the catalogue's file so old.
    fn set_time(&self, time: SystemTime) {
        let file = File::options().append(true).open(&self.config.catalogue).unwrap();
        file.set_modified(time).unwrap();
    }

    fn time(&self) -> SystemTime {
        std::fs::metadata(&self.config.catalogue).unwrap().modified().unwrap()
    }
}

const USUAL: &str = "0.000001";

#[test]
fn a_default_that_leaves_the_list_does_not_freeze_the_prices_of_others() {
    let place = Place::new();
    let first = place.import(&[("p/m0", USUAL), ("p/m1", USUAL), ("p/m2", USUAL)], Write::Yes);
    assert_eq!(first.unwrap().notes, [""; 0]);
    let second = place.import(&[("p/m1", "0.000002"), ("p/m2", USUAL)], Write::UnlessDoubtful);
    let second = second.unwrap();
    assert!(second.written && second.changes.changed.iter().any(|changed| changed.model == "p/m1"));
    assert_eq!(
        second.notes,
        ["purposes.chat: its default p/m0 is no longer sold for it, and p/m1 takes its place"]
    );
    assert!(place.text().contains("  chat: \"p/m1\"\n"));
}

#[test]
fn an_import_that_moves_a_purpose_alone_says_so() {
    let place = Place::new();
    let list = [("p/m0", USUAL), ("p/m1", USUAL)];
    place.import(&list, Write::Yes).unwrap();
    let rules = place.folder.path().join("import.yaml");
    let text = std::fs::read_to_string(&rules).unwrap() + "defaults: { chat: p/m1 }\n";
    write(rules, text).unwrap();
    let import = place.import(&list, Write::Yes).unwrap();
    assert!(import.written && !import.changes.is_empty());
    assert_eq!(import.changes.to_string(), "~ purposes.chat  p/m0 -> p/m1\n");
    let again = place.import(&list, Write::Yes).unwrap();
    assert!(!again.written && again.changes.is_empty());
}

#[test]
fn a_doubtful_list_is_refused_where_nobody_looks_and_taken_where_somebody_does() {
    let place = Place::new();
    place.import(&[("p/m0", USUAL), ("p/m1", USUAL)], Write::Yes).unwrap();
    let before = place.text();
    for (dear, says) in [
        ("0.0000101", "p/m0: its prompt price goes from"),
        ("0.02", "p/m0: its prompt price of 0.023 for one token cannot be"),
        ("0", "p/m0: its prompt price goes from 0.00000115 to 0"),
    ] {
        let list = [("p/m0", dear), ("p/m1", USUAL)];
        let error = place.import(&list, Write::UnlessDoubtful).unwrap_err();
        assert!(error.problem.starts_with(says), "{error}");
        assert_eq!(place.text(), before);
    }
    let list = [("p/m0", "0.0000101"), ("p/m1", USUAL)];
    assert!(place.import(&list, Write::Yes).unwrap().written);
}

/// 128 for 128000 made all of a longer prompt the operator's loss.
#[test]
fn a_list_whose_contexts_collapse_is_refused_where_nobody_looks() {
    let place = Place::new();
    let list = [("p/m0", USUAL), ("p/m1", USUAL)];
    let with = |context: u64, how| place.import_changed(&list, |model| model["context_length"] = context.into(), how);
    with(128_000, Write::Yes).unwrap();
    let before = place.text();
    let error = with(128, Write::UnlessDoubtful).unwrap_err();
    let says = "p/m0: its context_length goes from 128000 to 128: if that is right, import it by hand";
    assert!(error.problem.starts_with(says), "{error}");
    assert_eq!(place.text(), before);
    assert!(with(128, Write::Yes).unwrap().written);
}

/// YAML forbids characters that JSON has as they are, and takes others for the end of a line: the catalogue could not be read.
#[test]
fn odd_characters_of_one_model_hold_up_no_prices() {
    let place = Place::new();
    let odd = "Its\u{92} \u{7f}\u{2028}--- \u{85}... \u{fffe}";
    let list = [("p/m0", USUAL), ("p/m 1", USUAL), ("p/é", USUAL), ("p/m\n", USUAL)];
    let change = |model: &mut serde_json::Value| {
        model["description"] = odd.into();
        model["name"] = format!("P: {odd}").into();
    };
    let import = place.import_changed(&list, change, Write::UnlessDoubtful).unwrap();
    assert!(import.written);
    let catalogue = place.config.catalogue_of(&place.text()).unwrap();
    let [model] = catalogue.models() else {
        panic!("{}", place.text())
    };
    assert_eq!((model.name.as_str(), model.description.as_str()), (odd, odd));
    let skipped: Vec<&str> = import.skipped.iter().map(|skipped| skipped.model.as_str()).collect();
    assert_eq!(skipped, ["p/m 1", "p/é", "p/m\\n"]);
    assert!(import.skipped[0].reason.starts_with("its id has not the form"));
}

/// An editor that writes CR LF hid the marks: each model counted as the operator's own, and no price was renewed.
#[test]
fn a_catalogue_with_other_line_ends_is_kept_up_to_date() {
    let place = Place::new();
    place.import(&[("p/m0", USUAL)], Write::Yes).unwrap();
    write(&place.config.catalogue, place.text().replace('\n', "\r\n")).unwrap();
    let import = place.import(&[("p/m0", "0.000002")], Write::UnlessDoubtful).unwrap();
    assert_eq!((import.own, import.written, import.changes.changed.len()), (0, true, 1));
}

#[test]
fn a_new_model_that_costs_nothing_waits_for_somebody_to_look() {
    let place = Place::new();
    place.import(&[("p/m0", USUAL)], Write::Yes).unwrap();
    let list = [("p/m0", USUAL), ("p/new", "0")];
    let refreshed = place.import(&list, Write::UnlessDoubtful).unwrap();
    assert_eq!((refreshed.models, refreshed.skipped.len()), (1, 1));
    assert!(refreshed.skipped[0].reason.contains("import it by hand"));
    assert_eq!(place.import(&list, Write::Yes).unwrap().models, 2);
    assert_eq!(place.import(&list, Write::UnlessDoubtful).unwrap().models, 2);
}

/// The age of prices that no list keeps up to date is that of the file, which a refresh must not renew.
#[test]
fn a_refresh_leaves_the_catalogue_as_old_as_it_was_where_entries_are_the_operators_own() {
    let place = Place::new();
    place.import(&[("p/m0", USUAL)], Write::Yes).unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    place.set_time(old);
    let all = place.import(&[("p/m0", "0.000002")], Write::UnlessDoubtful).unwrap();
    assert_eq!((all.own, all.written), (0, true));
    assert_ne!(place.time(), old, "all of it is the list's");
    place.add_own();
    place.set_time(old);
    let part = place.import(&[("p/m0", "0.000003")], Write::UnlessDoubtful).unwrap();
    assert_eq!((part.own, part.models, part.written), (1, 2, true));
    assert_eq!(place.time(), old);
    assert!(place.import(&[("p/m0", USUAL)], Write::Yes).unwrap().written);
    assert_ne!(place.time(), old, "somebody has looked");
}

#[test]
fn rules_are_beside_the_catalogue_or_beside_the_configuration_or_in_conf() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    create_dir(&one).unwrap();
    create_dir(&other).unwrap();
    let found = || Refresh::usual_rules(&one.join("catalogue.yaml"), &other.join("tollgate.yaml"));
    assert_eq!(found(), Path::new("conf/import.yaml"));
    write(other.join("import.yaml"), "").unwrap();
    assert_eq!(found(), other.join("import.yaml"));
    write(one.join("import.yaml"), "").unwrap();
    assert_eq!(found(), one.join("import.yaml"));

    let text = format!(
        "catalogue: {}\nproviders: {{ p: {{ base_url: 'http://127.0.0.1:1/v1' }} }}\ncatalogue_refresh: {{ provider: p, every_minutes: 1 }}\n",
        one.join("catalogue.yaml").display()
    );
    let config = Config::parse(&other.join("tollgate.yaml"), &text, &|_| None).unwrap();
    assert_eq!(config.catalogue_refresh.unwrap().rules, one.join("import.yaml"));
}

/// The import made its text of the one before: what was written since, such as an operator's own price, would be gone.
#[test]
fn a_catalogue_that_was_changed_meanwhile_is_left_as_it_is() {
    let place = Place::new();
    let path = place.folder.path().join("catalogue.yaml");
    write(&path, "now").unwrap();
    for before in [Some("before"), Some(""), None] {
        let error = replace(&path, before, "new", None).unwrap_err();
        assert_eq!(error.to_string(), "it was changed meanwhile: run it again");
        assert_eq!(read_to_string(&path).unwrap(), "now", "{before:?}");
    }
    let files = || read_dir(place.folder.path()).unwrap().count();
    assert_eq!(files(), 2, "the rules and the catalogue");
    replace(&path, Some("now"), "new", None).unwrap();
    assert_eq!(read_to_string(&path).unwrap(), "new");
    std::fs::remove_file(&path).unwrap();
    assert!(
        replace(&path, Some("new"), "newer", None).is_err(),
        "somebody took it away"
    );
    replace(&path, None, "newer", None).unwrap();
    assert_eq!((read_to_string(&path).unwrap().as_str(), files()), ("newer", 2));
}

/// A crash before the file took the catalogue's place left it there for good.
#[test]
fn what_a_crash_left_beside_the_catalogue_goes_with_the_next_import() {
    const LEFT: &str = "0190a0b0c0d07e0f8a0b0c0d0e0f0a0b";
    let place = Place::new();
    let path = |name: &str| place.folder.path().join(name);
    let young = format!("catalogue.{}.new", crate::clock::unique().simple());
    let kept = [
        young,
        format!("other.{LEFT}.new"),
        format!("catalogue.{LEFT}.old"),
        format!("catalogue.{}.new", &LEFT[1..]),
        format!("catalogue.{}.new", LEFT.to_uppercase()),
        "catalogue.new".to_owned(),
        "catalogue.mine.new".to_owned(),
    ];
    kept.iter().for_each(|name| write(path(name), "kept").unwrap());
    // By their names these may be left too: a link, a folder, a file of another owner, and one of a process that lives.
    let named = |digits: &str| format!("catalogue.{digits}{}.new", &LEFT[4..]);
    let [link, folder, foreign, locked] = ["0180", "0181", "0182", "0183"].map(named);
    symlink(path(&kept[1]), path(&link)).unwrap();
    create_dir(path(&folder)).unwrap();
    write(path(&locked), "kept").unwrap();
    let living = File::open(path(&locked)).unwrap();
    living.try_lock().unwrap();
    write(path(&foreign), "kept").unwrap();
    // Only root can give it away; for anybody else it is their own, and goes.
    let is_foreign = chown(path(&foreign), Some(12_345), None).is_ok();
    let left = format!("catalogue.{LEFT}.new");
    write(path(&left), "models: [").unwrap();

    assert!(place.import(&[("p/m0", USUAL)], Write::Yes).unwrap().written);
    let is_there = |name: &String| path(name).symlink_metadata().is_ok();
    assert!(!is_there(&left), "it is left for good");
    for name in kept.iter().chain([&link, &folder, &locked]) {
        assert!(is_there(name), "{name}");
    }
    assert_eq!(is_there(&foreign), is_foreign);
    drop(living);
    assert!(place.import(&[("p/m0", "0.000002")], Write::Yes).unwrap().written);
    assert!(!is_there(&locked), "its process has ended");
}

/// A catalogue in a folder under version control, which the gateway's folder has a link to: the link became a file, and the next change in
/// that folder was not seen.
#[test]
fn a_catalogue_behind_a_link_is_replaced_where_the_link_leads() {
    let place = Place::new();
    let (link, folder) = (&place.config.catalogue, place.folder.path().join("repository"));
    create_dir(&folder).unwrap();
    let behind = folder.join("models.yaml");
    write(&behind, "").unwrap();
    symlink(&behind, link).unwrap();
    assert!(place.import(&[("p/m0", USUAL)], Write::Yes).unwrap().written);
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert!(read_to_string(&behind).unwrap().contains("p/m0"));
    assert_eq!(read_dir(&folder).unwrap().count(), 1);
    std::fs::remove_file(&behind).unwrap();
    let error = place.import(&[("p/m0", USUAL)], Write::Yes).unwrap_err();
    assert!(error.problem.contains("No such file"), "a link to nothing: {error}");
}

/// An import by root took the file from whoever keeps the catalogue.
#[test]
fn a_catalogue_keeps_its_owner_its_group_and_its_mode() {
    let place = Place::new();
    place.import(&[("p/m0", USUAL)], Write::Yes).unwrap();
    let path = &place.config.catalogue;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o640)).unwrap();
    // Only root can; for anybody else it stays as it is.
    let given = chown(path, Some(12_345), Some(23_456)).is_ok();
    let import = place.import(&[("p/m0", "0.000002")], Write::Yes).unwrap();
    let about = std::fs::metadata(path).unwrap();
    assert_eq!((import.written, about.mode() & 0o777), (true, 0o640));
    let is_given = (about.uid(), about.gid()) == (12_345, 23_456);
    assert_eq!(is_given, given);
}

/// As a user who may not give it away writes it anew: nobody loses, or gets, what they could do with it.
#[test]
fn a_catalogue_of_others_is_replaced_where_nobody_loses_or_gets_anything() {
    for (mode, keeps_owner, keeps_group, expected) in [
        (0o640, true, true, Some(0o640)),
        (0o664, false, true, Some(0o664)),
        (0o644, false, true, None),
        (0o620, false, true, None),
        (0o644, true, false, Some(0o644)),
        (0o664, true, false, None),
        (0o640, true, false, None),
        (0o654, true, false, Some(0o644)),
        (0o644, false, false, None),
    ] {
        let given = mode_of_own(mode, (keeps_owner, keeps_group));
        assert_eq!(given, expected, "{mode:o} {keeps_owner} {keeps_group}");
    }
}
