//! Rules over the text of files: length, heads, documents, words, left-overs, sleeps.

use crate::tree::{File, Finding, Tree};

/// Files of Rust, and others of `src`, that are longer than a reader keeps in mind, and do not say why in their head.
pub(crate) fn lengths(tree: &Tree) -> Vec<Finding> {
    let counts = |file: &File| file.is_rust() || file.path.starts_with("src/");
    let is_long = |file: &&File| counts(file) && file.lines().count() > LINES_MAX && !says_why(file);
    let tell = |file: &File| {
        let lines = file.lines().count();
        file.finding(
            LINES_MAX + 1,
            format!("{lines} lines: split it, or say in its head `{WHY_LONG}` and why"),
        )
    };
    tree.files.iter().filter(is_long).map(tell).collect()
}

fn says_why(file: &File) -> bool {
    let reason = |line: &str| {
        line.split_once(WHY_LONG)
            .is_some_and(|(_, reason)| reason.trim().len() > 20)
    };
    let mark = if file.is_rust() { "//!" } else { "#" };
    file.text.lines().take_while(|line| line.starts_with(mark)).any(reason)
}

/// Files of Rust that do not begin with what they are for.
pub(crate) fn heads(tree: &Tree) -> Vec<Finding> {
    let has_none = |file: &&File| file.is_rust() && !file.text.starts_with("//! ");
    let tell = |file: &File| file.finding(1, "it does not say what it is for: begin with `//! `");
    tree.files.iter().filter(has_none).map(tell).collect()
}

/// Files of `src` that touch the file system where a request passes, or where nothing but values is computed.
pub(crate) fn file_system(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.sources() {
        let is_kept_off = WITHOUT_FILES.iter().any(|folder| file.path.starts_with(folder));
        if !is_kept_off || file.path.contains("/tests") {
            continue;
        }
        for (line, text) in file.lines() {
            if text.contains("std::fs") || text.contains("tokio::fs") {
                let what = "it reads or writes files: `config`, `ledger`, `server` and `cli` do that";
                findings.push(file.finding(line, what));
            }
        }
    }
    findings
}

/// Documents that are named and are not here, and names of tests that are numbers of clauses.
pub(crate) fn documents(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        if file.path.starts_with("tests/tidy/") {
            continue;
        }
        for (line, text) in file.lines() {
            for name in names_of_documents(text) {
                if !is_here(tree, file, name) {
                    findings.push(file.finding(
                        line,
                        format!("{name} is not in the repository: say it here, or cite what is"),
                    ));
                }
            }
            for name in RETIRED_DOCUMENTS {
                if text.contains(&format!("{name} section")) || text.contains(&format!("{name} clause")) {
                    findings.push(file.finding(line, format!("{name} is not in the repository")));
                }
            }
            let clause = text.split_once("clause ").map_or("", |(_, after)| after);
            if file.is_rust() && (text.contains('§') || clause.starts_with(|c: char| c.is_ascii_digit())) {
                findings.push(file.finding(line, "a clause is cited by what it says"));
            }
            if file.is_rust() && is_named_by_number(text) {
                findings.push(file.finding(line, "a test is named by what it shows, not by the number of a clause"));
            }
        }
    }
    findings
}

fn names_of_documents(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_alphanumeric() || "._-/:".contains(c)))
        .map(|word| word.trim_end_matches(|c: char| ".:".contains(c)))
        .filter(|word| word.ends_with(".md") && word.len() > 3 && !word.contains("://"))
}

fn is_here(tree: &Tree, file: &File, name: &str) -> bool {
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in name.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let beside = parts.join("/");
    let is = |path: &str| tree.files.iter().any(|file| file.path == path) || KNOWN.contains(&path);
    // A program writes some of its own, of which only the name is said.
    is(name) || is(&beside) || WRITTEN.contains(&name.rsplit('/').next().unwrap_or(name))
}

fn is_named_by_number(line: &str) -> bool {
    let Some((_, name)) = line.split_once("fn ") else {
        return false;
    };
    let mut letters = name.chars();
    let begins = matches!(letters.next(), Some('s' | 'd'));
    let digits: String = letters.by_ref().take_while(char::is_ascii_digit).collect();
    begins && !digits.is_empty() && name.get(1 + digits.len()..).is_some_and(|rest| rest.starts_with('_'))
}

/// Words that were given up for the field's own, as a part of names too, in `src`.
pub(crate) fn words(tree: &Tree, excepted: &[(&str, &str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.sources() {
        for (line, text) in file.lines() {
            for word in parts_of_words(text) {
                let Some((_, better)) = retired(&word) else {
                    continue;
                };
                if !excepted
                    .iter()
                    .any(|(path, allowed, _)| *path == file.path && *allowed == word)
                {
                    findings.push(file.finding(line, format!("`{word}`: say {better}")));
                }
            }
        }
    }
    findings
}

/// A retired word, also in its plural.
fn retired(word: &str) -> Option<&'static (&'static str, &'static str)> {
    let one = word.strip_suffix('s').unwrap_or(word);
    RETIRED_WORDS
        .iter()
        .find(|(retired, _)| *retired == word || *retired == one)
}

/// The words of a line in lower case: `CircuitBreaker` and `circuit_breaker` are two each.
fn parts_of_words(line: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_lower = false;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        // `IOBell` is `IO` and `Bell`.
        let begins = letter.is_uppercase() && (was_lower || letters.peek().is_some_and(|next| next.is_lowercase()));
        if !letter.is_alphabetic() || begins {
            parts.push(String::new());
        }
        if letter.is_alphabetic() {
            parts.last_mut().unwrap().extend(letter.to_lowercase());
        }
        was_lower = letter.is_lowercase();
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Paths of one machine, and work that was left.
pub(crate) fn left_overs(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| !file.path.starts_with("tests/tidy/")) {
        for (line, text) in file.lines() {
            for place in ["/home/", "/root/", "/Users/"] {
                if text.contains(place) && !text.contains("://") {
                    findings.push(file.finding(line, format!("`{place}` is a path of one machine")));
                }
            }
            for word in ["TODO", "FIXME", "XXX"] {
                let is_word =
                    |at: usize| !text[at + word.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
                if text
                    .match_indices(word)
                    .any(|(at, _)| is_word(at) && !text[..at].ends_with(char::is_alphanumeric))
                {
                    findings.push(file.finding(line, format!("{word}: do it, or make it an issue")));
                }
            }
        }
    }
    findings
}

/// Waits of a fixed time in the integration tests: what is expected is waited for, unless a comment right above says why a time is.
pub(crate) fn sleeps(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_test = |file: &&File| {
        ["tests/it/", "tests/support/"]
            .iter()
            .any(|folder| file.path.starts_with(folder))
    };
    for file in tree.files.iter().filter(is_test) {
        let mut is_said = false;
        for (line, text) in file.lines() {
            let text = text.trim_start();
            if text.starts_with("//") {
                is_said = is_said || text.contains(WHY_SLEEP);
                continue;
            }
            if text.contains("sleep(") && !is_said {
                let what = format!("wait for what is expected, or say above it `{WHY_SLEEP}` and why");
                findings.push(file.finding(line, what));
            }
            is_said = false;
        }
    }
    findings
}

/// Tests that the guide to the tests names and that there are not.
pub(crate) fn named_tests(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.path == "tests/README.md") {
        for (line, text) in file.lines().filter(|(_, text)| text.starts_with('|')) {
            let codes = text.split('`').skip(1).step_by(2);
            for name in codes.filter(|code| code.contains("::") || code.starts_with("test_")) {
                if !is_test(tree, name) {
                    findings.push(file.finding(line, format!("there is no test {name}")));
                }
            }
        }
    }
    findings
}

/// Whether there is a function of this path's last name in the file of its module, or such a module.
fn is_test(tree: &Tree, name: &str) -> bool {
    let (modules, last) = name.rsplit_once("::").unwrap_or(("", name));
    let module = modules.replace("::", "/");
    let [module, inline] = [module.as_str(), module.strip_suffix("/tests").unwrap_or(&module)];
    let is_of = |file: &File, module: &str| {
        let path = file.path.trim_end_matches(".rs").trim_end_matches("/mod");
        path.ends_with(&format!("/{module}")) || module.is_empty()
    };
    let functions = [format!("fn {last}("), format!("def {last}(")];
    tree.files.iter().any(|file| {
        let has_function = functions.iter().any(|function| file.text.contains(function));
        (has_function && (is_of(file, module) || is_of(file, inline))) || is_of(file, &format!("{module}/{last}"))
    })
}

const LINES_MAX: usize = 400;
const WHY_LONG: &str = "Longer than 400 lines:";
const WHY_SLEEP: &str = "// Sleeps: ";

/// Documents that the tree of text files leaves out.
const KNOWN: &[&str] = &[
    "bench/figures/load.md",
    "bench/figures/profile.md",
    "bench/figures/instructions/load.md",
    "bench/figures/soak/load.md",
    "tests/fixtures/README.md",
];
/// What the bench writes.
const WRITTEN: &[&str] = &["load.md", "micro.md"];

const RETIRED_DOCUMENTS: &[&str] = &[
    "INTERFACE",
    "DESIGN",
    "HOTPATH",
    "FINDINGS",
    "PINGORA",
    "STYLE",
    "NEXT",
    "FIELD",
    "FIELD2",
];

/// What was said once, and what the field says.
const RETIRED_WORDS: &[(&str, &str)] = &[
    ("door", "listener or access"),
    ("bell", "wake flag or waker"),
    ("stranger", "wrong key, unknown caller"),
    ("strangers", "wrong keys, authentication throttle"),
    ("judge", "decide"),
    ("judges", "decides"),
    ("judged", "decided"),
    ("judgement", "decision"),
    ("uplink", "connection pool"),
    ("uplinks", "connection pool"),
    ("silence", "idle time"),
    ("silences", "idle times"),
    ("keeper", "task"),
    ("bomb", "failpoint"),
    ("shelf", "idle map"),
    ("shelves", "idle map"),
    ("tally", "recorder or counter"),
    ("wishes", "request parameters"),
    ("vitals", "store metrics"),
    ("stencil", "fast path"),
    ("biller", "settler"),
];
/// Folders that touch no files: a disk that stalls would hold a request up.
const WITHOUT_FILES: &[&str] = &["src/gateway/", "src/net/", "src/pure/"];
