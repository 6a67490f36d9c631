//! What a check could not try is in the last lines of whoever ran it: a run that skips something never looks like one that tried all.
#![expect(
    clippy::disallowed_methods,
    reason = "the scripts are run, and find programs where this test does"
)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// What a script of the repository prints where only these programs are found.
fn printed(program: &Path, arguments: &[&str], path: &str, place: &Path) -> (bool, String) {
    let output = Command::new("bash")
        .arg(program)
        .args(arguments)
        .env("PATH", path)
        .env("HOME", place)
        .env("CARGO_TARGET_DIR", place.join("target"))
        .env("TOLLGATE_INSTALL", "no")
        .env("TOLLGATE_BIN", "/bin/true")
        .env_remove("TOLLGATE_SKIPPED")
        .env_remove("CI")
        .output()
        .unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

/// A line of the summary, without what it begins with.
fn told(output: &str, begin: &str) -> Option<String> {
    let mut lines = output.lines();
    lines.find_map(|line| line.strip_prefix(begin)).map(str::to_owned)
}

#[test]
fn scripts_that_were_only_parsed_are_named_as_skipped() {
    let place = TempDir::new().unwrap();
    let programs = place.path().join("programs");
    fs::create_dir(&programs).unwrap();
    for name in ["bash", "dirname", "mkdir", "sed"] {
        let found = Command::new("sh")
            .args(["-c", &format!("command -v {name}")])
            .output()
            .unwrap();
        symlink(String::from_utf8(found.stdout).unwrap().trim(), programs.join(name)).unwrap();
    }
    let (_, output) = printed(
        &root().join(".ci/run"),
        &["scripts"],
        programs.to_str().unwrap(),
        place.path(),
    );
    assert_eq!(
        told(&output, "=== .ci/run: SKIPPED: ").as_deref(),
        Some("shellcheck"),
        "{output}"
    );
}

/// A machine on which no btrfs can be made.
#[test]
fn a_suite_that_could_not_be_tried_is_named_by_tests_run_as_skipped() {
    let place = TempDir::new().unwrap();
    let programs = place.path().join("programs");
    script(&programs.join("mkfs.btrfs"), "exit 1");
    script(&programs.join("curl"), "exit 0");
    script(&programs.join("python3"), "exit 0");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let (well, output) = printed(&root().join("tests/run"), &["disk"], &path, place.path());
    assert!(well, "{output}");
    let skipped = told(&output, "== tests/run: SKIPPED: ");
    assert_eq!(
        skipped.as_deref(),
        Some("a full btrfs (none can be made or mounted)"),
        "{output}"
    );
}

/// A machine on which no temporary folder can be made.
#[test]
fn why_a_suite_failed_is_told_again_at_the_end() {
    let place = TempDir::new().unwrap();
    let programs = place.path().join("programs");
    for name in ["mkfs.btrfs", "curl", "python3"] {
        script(&programs.join(name), "exit 0");
    }
    script(&programs.join("mktemp"), "echo 'no folder can be made' >&2; exit 1");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let (well, output) = printed(&root().join("tests/run"), &["disk"], &path, place.path());
    assert!(!well, "{output}");
    let (_, end) = output.split_once("== tests/run: why disk failed").unwrap();
    assert!(end.contains("no folder can be made\n"), "{output}");
    let kept = fs::read_to_string(place.path().join("target/failures")).unwrap();
    assert!(kept.contains("no folder can be made\n"), "{kept}");
}

#[test]
fn what_the_tests_skip_is_named_in_the_summary_of_all_checks() {
    let place = TempDir::new().unwrap();
    let copy = place.path().join(".ci/run");
    fs::create_dir(place.path().join(".ci")).unwrap();
    fs::copy(root().join(".ci/run"), &copy).unwrap();
    let path = std::env::var("PATH").unwrap();
    for status in [0, 1] {
        let tests = format!(
            "echo 'one thing' >>\"$TOLLGATE_SKIPPED\"\necho another >>\"$TOLLGATE_SKIPPED\"\n\
             echo 'the reason' >\"$CARGO_TARGET_DIR/failures\"\nexit {status}"
        );
        script(&place.path().join("tests/run"), &tests);
        let (well, output) = printed(&copy, &["tests"], &path, place.path());
        assert_eq!(well, status == 0, "{output}");
        let skipped = told(&output, "=== .ci/run: SKIPPED: ");
        assert_eq!(skipped.as_deref(), Some("one thing; another"), "{output}");
        // Why they failed comes last of all steps, and not at all when they did not.
        assert_eq!(output.contains("the reason\n\n=== .ci/run: times:"), !well, "{output}");
    }
}
