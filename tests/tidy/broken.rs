//! Small trees: each breaks one rule in one place, which has to be found there, and is whole once that is mended.

use crate::rules::circles::{self, Circle};
use crate::rules::{direction, functions, text};
use crate::tree::{Finding, Tree};

/// A rule that the repository is not held to finds nothing, and one that no tree here breaks may find nothing either.
#[test]
fn every_rule_is_held_against_the_repository_and_broken_here() {
    let sources = [
        ("circles", include_str!("rules/circles.rs")),
        ("direction", include_str!("rules/direction.rs")),
        ("functions", include_str!("rules/functions.rs")),
        ("text", include_str!("rules/text.rs")),
    ];
    let (held, broken) = (include_str!("main.rs"), include_str!("broken.rs"));
    let listed = include_str!("rules/mod.rs").lines();
    let modules = listed.filter_map(|line| line.strip_prefix("pub(crate) mod ")?.strip_suffix(';'));
    assert!(modules.eq(sources.iter().map(|(module, _)| *module)));
    let mut rules = 0;
    for (module, source) in sources {
        for rule in source.split("pub(crate) fn ").skip(1) {
            let rule = format!("{module}::{}", &rule[..rule.find('(').unwrap()]);
            assert!(
                held.contains(&format!("rules::{rule}(")),
                "{rule} is held against nothing"
            );
            assert!(broken.contains(&rule), "no tree breaks {rule}");
            rules += 1;
        }
    }
    assert_eq!(rules, held.matches("#[test]").count());
}

type Files = Vec<(&'static str, String)>;

/// What is found in these files, as `path:line`.
fn places(files: &[(&str, &str)], rule: impl Fn(&Tree) -> Vec<Finding>) -> Vec<String> {
    let found = rule(&Tree::of(files));
    found
        .iter()
        .map(|finding| format!("{}:{}", finding.path, finding.line))
        .collect()
}

#[test]
fn an_import_that_points_up_is_found_wherever_it_stands() {
    let up = |tree: &Tree| direction::check(tree, &[]);
    let gateway = ("src/gateway/mod.rs", "//! G\npub struct Ctx;\n");
    let cases = [
        "//! A\nuse crate::gateway::Ctx;\n",
        "//! A\nuse crate::{clock, gateway::{Ctx as Other}};\n",
        "//! A\npub fn f() -> crate::gateway::Ctx { todo!() }\n",
        "//! A\nfn f() { assert!(matches!(1, crate::gateway::Ctx)); }\n",
        "//! A\nfn f(ctx: crate::gateway::Ctx) {}\n",
        "//! A\nstruct S { ctx: crate::gateway::Ctx }\n",
        "//! A\nfn f() { use crate::{gateway::Ctx}; }\n",
        "//! A\n#[cfg(not(test))]\nmod inner { use crate::gateway::Ctx; }\n",
        "//! A\nmod inner { use super::super::super::gateway::Ctx; }\n",
    ];
    for source in cases {
        let line = source.lines().position(|line| line.contains("gateway")).unwrap() + 1;
        let expected = [format!("src/ledger/hold.rs:{line}")];
        let files = [
            gateway,
            ("src/ledger/hold.rs", source),
            ("src/ledger/mod.rs", "//! L\nmod hold;\n"),
        ];
        assert_eq!(places(&files, up), expected, "{source}");
        let excepted = |tree: &Tree| direction::check(tree, &[("src/ledger/hold.rs", "a reason")]);
        assert!(places(&files, excepted).is_empty());
    }
    let down = (
        "src/gateway/mod.rs",
        "//! G\nuse crate::ledger::hold::Hold;\n#[cfg(test)]\nmod tests { use crate::cli::X; }\n",
    );
    assert!(places(&[down, ("src/ledger/hold.rs", "//! H\npub struct Hold;\n")], up).is_empty());
    assert_eq!(
        places(
            &[
                ("src/attic/mod.rs", "//! A\nuse crate::pure::X;\n"),
                ("src/pure/mod.rs", "//! P\n")
            ],
            up
        )
        .len(),
        1
    );
}

#[test]
fn pure_imports_nothing_but_pure() {
    let up = |tree: &Tree| direction::check(tree, &[]);
    let files = [
        ("src/pure/money.rs", "//! M\nuse crate::clock::now;\n"),
        ("src/clock.rs", "//! C\npub fn now() {}\n"),
    ];
    assert_eq!(places(&files, up), ["src/pure/money.rs:2"]);
}

#[test]
fn a_circle_of_three_files_is_found_and_one_of_two_is_not() {
    let three = [
        ("src/net/a.rs", "//! A\nuse super::b::B;\n"),
        ("src/net/b.rs", "//! B\nuse super::c::C;\n"),
        ("src/net/c.rs", "//! C\nuse crate::net::a::A;\n"),
        ("src/net/mod.rs", "//! N\nmod a;\nmod b;\nmod c;\n"),
    ];
    let none = |tree: &Tree| circles::check(tree, &[]);
    assert_eq!(places(&three, none), ["src/net/a.rs:1"]);
    let named = Circle {
        files: &["src/net/a.rs", "src/net/b.rs", "src/net/c.rs"],
        why: "a test",
    };
    assert!(places(&three, |tree| circles::check(tree, std::slice::from_ref(&named))).is_empty());
    let two = [three[0], ("src/net/b.rs", "//! B\nuse super::a::A;\n"), three[3]];
    assert!(places(&two, none).is_empty());
    // A list that names what is gone is mended too.
    assert_eq!(
        places(&two, |tree| circles::check(tree, std::slice::from_ref(&named))),
        ["src/net/a.rs:1"]
    );
}

#[test]
fn an_item_that_is_passed_on_is_imported_from_where_it_is() {
    let files = [
        ("src/net/mod.rs", "//! N\nmod a;\nmod b;\npub use self::a::A;\n"),
        ("src/net/a.rs", "//! A\npub struct A;\n"),
        ("src/net/b.rs", "//! B\nuse super::A;\n"),
    ];
    let imports = crate::imports::imports(&Tree::of(&files));
    assert!(
        imports
            .iter()
            .any(|import| import.from == "src/net/b.rs" && import.to == "src/net/a.rs")
    );
}

#[test]
fn a_request_that_touches_files_is_found() {
    let files = [
        ("src/gateway/mod.rs", "//! G\nfn f() { std::fs::read(\"a\"); }\n"),
        ("src/net/b.rs", "//! B\nuse tokio::fs::File;\n"),
        ("src/pure/a.rs", "//! A\nuse std::fs::File;\n"),
        ("src/server/mod.rs", "//! S\nuse std::fs::File;\n"),
        ("src/gateway/tests.rs", "//! T\nuse std::fs::File;\n"),
    ];
    assert_eq!(
        places(&files, text::file_system),
        ["src/gateway/mod.rs:2", "src/net/b.rs:2", "src/pure/a.rs:2"]
    );
}

#[test]
fn a_visibility_is_no_import() {
    let files = [
        ("src/net/mod.rs", "//! N\nmod a;\nuse self::a::A;\n"),
        (
            "src/net/a.rs",
            "//! A\npub(in crate::net) struct A { pub(in crate::net) b: u8 }\n",
        ),
    ];
    let imports = crate::imports::imports(&Tree::of(&files));
    assert!(
        imports.iter().all(|import| import.from == "src/net/mod.rs"),
        "{imports:?}"
    );
}

#[test]
fn long_files_are_found_unless_they_say_why() {
    let long = |head: &str| format!("{head}\n{}", "fn f() {}\n".repeat(400));
    let plain = long("//! A file.");
    let reason = long("//! A file.\n//!\n//! Longer than 400 lines: one case after another.");
    let empty = long("//! A file.\n//!\n//! Longer than 400 lines: so.");
    let schemas = "# Objects.\n".to_owned() + &"A: 1\n".repeat(400);
    let said = "# Objects. Longer than 400 lines: one object after another.\n".to_owned() + &"A: 1\n".repeat(400);
    let files: Files = vec![
        ("src/a.rs", plain),
        ("src/b.rs", reason),
        ("src/d.yaml", schemas.clone()),
        ("src/e.yaml", said),
        ("conf/f.yaml", schemas),
        ("tests/c.rs", empty),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let long = ["src/a.rs:401", "src/d.yaml:401", "tests/c.rs:401"];
    assert_eq!(places(&files, text::lengths), long);
}

#[test]
fn a_file_without_a_head_is_found() {
    let files = [
        ("src/a.rs", "fn a() {}\n"),
        ("bench/b.rs", "//! B.\n"),
        ("conf/c.yaml", "a: 1\n"),
    ];
    assert_eq!(places(&files, text::heads), ["src/a.rs:1"]);
}

#[test]
fn documents_that_are_not_here_and_names_by_number_are_found() {
    let cases = [
        ("//! A\n// See ARCHITECTURE.md.\n", 2),
        ("//! A (INTERFACE section 4).\n", 1),
        ("//! A\n#[test]\nfn s4_a_model() {}\n", 3),
        ("//! A\nfn d12_x() {}\n", 2),
        ("//! A\n// As clause 4.2 says.\n", 2),
        ("//! A, FIELD2 section 3.\n", 1),
        ("//! A\n// §4.\n", 2),
    ];
    for (source, line) in cases {
        assert_eq!(
            places(&[("tests/a.rs", source)], text::documents),
            [format!("tests/a.rs:{line}")],
            "{source}"
        );
    }
    let here = [
        (
            "README.md",
            "See [conf](conf/README.md) and https://example.com/OTHER.md.\n",
        ),
        ("conf/README.md", "Back to ../README.md.\n"),
        ("src/a.rs", "//! As README.md says.\nfn sum_of() {}\nfn d() {}\n"),
    ];
    assert!(places(&here, text::documents).is_empty());
}

#[test]
fn retired_words_are_found_within_names_too() {
    let words = |tree: &Tree| text::words(tree, &[]);
    let cases = [
        "let door = 1;",
        "struct IdleShelves;",
        "fn ring_the_bell() {}",
        "// The judge of it.",
        "enum Doors {}",
        "struct IOBell;",
        "enum Keeper {}",
    ];
    for source in cases {
        assert_eq!(places(&[("src/a.rs", source)], words), ["src/a.rs:1"], "{source}");
    }
    let whole = ["let indoors = 1;", "label(\"outdoor\")", "judgemental"];
    for source in whole {
        assert!(places(&[("src/a.rs", source)], words).is_empty(), "{source}");
    }
    let excepted = |tree: &Tree| text::words(tree, &[("src/a.rs", "door", "a reason")]);
    assert!(places(&[("src/a.rs", "let door = 1;")], excepted).is_empty());
    assert!(places(&[("tests/a.rs", "let door = 1;")], words).is_empty());
}

#[test]
fn paths_of_a_machine_and_left_overs_are_found() {
    let cases = [
        "// in /root/tollgate",
        "open(\"/home/me\")",
        "open(\"/Users/me\")",
        "// TODO: later",
        "// FIXME",
        "// XXX",
    ];
    for source in cases {
        assert_eq!(
            places(&[("src/a.rs", source)], text::left_overs),
            ["src/a.rs:1"],
            "{source}"
        );
    }
    assert!(
        places(
            &[("src/a.rs", "// https://example.com/home/me\nlet TODOS = 1;")],
            text::left_overs
        )
        .is_empty()
    );
}

#[test]
fn a_sleep_without_a_reason_right_above_it_is_found() {
    let slept = |path: &str, source: &str| places(&[(path, source)], text::sleeps);
    let said = "    // Sleeps: between two looks,\n    // of which there are many.\n    std::thread::sleep(PAUSE);\n";
    for (source, line) in [
        ("    tokio::time::sleep(PAUSE).await;\n".to_owned(), 1),
        (format!("    // A while.\n{}", said.lines().last().unwrap()), 2),
        (format!("{said}    std::thread::sleep(PAUSE);\n"), 4),
        (said.replace("    std", "    look();\n    std"), 4),
    ] {
        assert_eq!(
            slept("tests/it/a.rs", &source),
            [format!("tests/it/a.rs:{line}")],
            "{source}"
        );
        assert!(slept("bench/a.rs", &source).is_empty());
    }
    assert!(slept("tests/support/a.rs", said).is_empty());
}

#[test]
fn a_test_that_is_named_and_not_there_is_found() {
    let tests = [
        ("tests/it/faults/kills.rs", "fn a_kill() {}\n"),
        ("tests/documents/test_a.py", "def test_a(place):\n"),
        ("src/config/variable.rs", "mod tests { fn names() {} }\n"),
        ("src/cli/tests/wrong.rs", "fn usage() {}\n"),
    ];
    let named = |name: &str| {
        let guide = format!("`a::b` is no test\n| a fault | `{name}` |\n");
        let files: Vec<_> = tests.into_iter().chain([("tests/README.md", guide.as_str())]).collect();
        places(&files, text::named_tests)
    };
    for name in [
        "faults::kills",
        "faults::kills::a_kill",
        "test_a",
        "config::variable::tests::names",
        "cli::tests::wrong::usage",
    ] {
        assert!(named(name).is_empty(), "{name}");
    }
    for name in [
        "faults::kill",
        "faults::kills::a",
        "faults::a_kill",
        "test_b",
        "config::variable::names_pass",
    ] {
        assert_eq!(named(name), ["tests/README.md:2"], "{name}");
    }
}

#[test]
fn functions_that_are_long_on_the_whole_are_found() {
    let long = format!("//! A\nfn a() {{\n{}}}\n", "    f();\n".repeat(8));
    assert_eq!(places(&[("src/a.rs", &long)], functions::median), ["src:1"]);
    assert!(places(&[("src/a.rs", "//! A\nfn a() {}\n")], functions::median).is_empty());
}
