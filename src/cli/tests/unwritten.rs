//! Answers that cannot be written: a key or a token that only they have is revoked again, and that is said, without its text.

use std::io::{ErrorKind, Write};

use super::operators::on_redis;
use super::*;
use crate::ledger::tests::redis_server::RedisServer;

/// An output that fails: at once, or when it is flushed.
struct Failing {
    kind: ErrorKind,
    takes_bytes: bool,
}

impl Write for Failing {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self.takes_bytes {
            true => Ok(bytes.len()),
            false => Err(self.kind.into()),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Err(self.kind.into())
    }
}

/// A full disk, one that is found to be full at the end, and a reader that has gone.
const OUTPUTS: [Failing; 3] = [
    Failing {
        kind: ErrorKind::StorageFull,
        takes_bytes: false,
    },
    Failing {
        kind: ErrorKind::StorageFull,
        takes_bytes: true,
    },
    Failing {
        kind: ErrorKind::BrokenPipe,
        takes_bytes: false,
    },
];

/// Writes what a command leaves, of which standard output takes nothing: the exit status, and what is said.
fn write(outcome: Outcome, mut stdout: Failing) -> (u8, String) {
    let mut stderr = Vec::new();
    let status = outcome.write(&mut stdout, &mut stderr);
    (status, String::from_utf8(stderr).unwrap())
}

/// What is said of a command that makes something and cannot show it, behind its id.
fn lost(outcome: Outcome, stdout: Failing) -> (String, String) {
    assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""));
    let answer = outcome.stdout.clone();
    let mut words = answer.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let secret = words.clone().find(|word| word.len() > 72).unwrap();
    let is_id = |word: &&str| word.len() > 16 && (word.starts_with("key_") || word.starts_with("op_"));
    let id = words.find(is_id).unwrap();
    let (status, said) = write(outcome, stdout);
    assert_eq!(status, 1, "{said}");
    assert!(!said.contains(secret) && said.lines().count() == 1, "{said}");
    assert!(said.contains("cannot write the answer") && said.contains(id), "{said}");
    (id.to_owned(), said)
}

/// The state of a key or an operator.
fn state(place: &Place, id: &str) -> String {
    let (list, field) = match id.starts_with("op_") {
        true => ("operator list", "operators"),
        false => ("key list acme", "keys"),
    };
    let (_, list) = place.json(list);
    let one = list[field].as_array().unwrap().iter().find(|one| one["id"] == id);
    one.unwrap()["state"].as_str().unwrap().to_owned()
}

fn nothing_is_left_that_nobody_has(place: &Place) {
    place.json("account create acme --tier pro");
    for stdout in OUTPUTS {
        let error = std::io::Error::from(stdout.kind);
        let (id, said) = lost(place.run("key create --account acme"), stdout);
        let expected = format!(
            "error: cannot write the answer: {error}; {id} was made, and is revoked again, for its secret stands in that answer alone; \
             run the command again where its answer can be written\n"
        );
        assert_eq!(said, expected);
        assert_eq!(state(place, &id), "revoked");
    }
    for stdout in OUTPUTS {
        let (id, said) = lost(place.run("operator create anna --role admin --json"), stdout);
        let said: Value = serde_json::from_str(&said).unwrap();
        let message = said["error"]["message"].as_str().unwrap();
        assert!(
            message.contains(&format!("{id} was made, and is revoked again")),
            "{said}"
        );
        assert_eq!(state(place, &id), "revoked");
    }

    for stdout in OUTPUTS {
        let (_, key) = place.json("key create --account acme");
        let old = key["id"].as_str().unwrap();
        let (new, said) = lost(place.run(&format!("key rotate {old} --overlap 24h")), stdout);
        let next = format!("{old} works until the overlap is over, or its own expiry: rotate it again before");
        assert!(said.contains(&next), "{said}");
        assert_eq!(
            (state(place, &new), state(place, old)),
            ("revoked".to_owned(), "active".to_owned())
        );
        place.json(&format!("key rotate {old} --overlap 24h"));
    }
    for stdout in OUTPUTS {
        let (_, key) = place.json("key create --account acme");
        let old = key["id"].as_str().unwrap();
        let (new, said) = lost(place.run(&format!("key rotate {old} --overlap 0")), stdout);
        let next = format!("{old} has ended as well, for the overlap was 0: make a new key with `tollgate key create");
        assert!(said.contains(&next), "{said}");
        assert_eq!(
            (state(place, &new), state(place, old)),
            ("revoked".to_owned(), "revoked".to_owned())
        );
    }

    let outcome = place.run("key create --account acme --json");
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    assert_eq!(outcome.write(&mut stdout, &mut stderr), 0);
    let key: Value = serde_json::from_slice(&stdout).unwrap();
    assert!(stderr.is_empty());
    assert_eq!(
        state(place, key["id"].as_str().unwrap()),
        "active",
        "what was written is kept"
    );
}

#[test]
fn what_nobody_could_be_told_is_revoked_again_on_the_file() {
    nothing_is_left_that_nobody_has(&Place::new());
}

#[test]
fn what_nobody_could_be_told_is_revoked_again_through_the_owner() {
    let place = Place::new();
    let store = Embedded::open(&place.ledger(), Clock::System).unwrap();
    control::listen(&store).unwrap();
    nothing_is_left_that_nobody_has(&place);
}

#[test]
fn what_nobody_could_be_told_is_revoked_again_in_redis() {
    let server = RedisServer::start();
    nothing_is_left_that_nobody_has(&on_redis(&server));
}

#[test]
fn what_cannot_be_revoked_either_is_said_with_the_command_that_does_it() {
    for (words, command) in [
        ("key create --account acme", "tollgate key revoke"),
        ("operator create anna --role read", "tollgate operator revoke"),
    ] {
        let place = Place::new();
        place.json("account create acme --tier pro");
        let outcome = place.run(words);
        // The ledger is gone before the answer is written.
        std::fs::remove_dir_all(place.folder.path().join("data")).unwrap();
        let [stdout, ..] = OUTPUTS;
        let (id, said) = lost(outcome, stdout);
        assert!(said.contains("and it cannot be revoked ("), "{said}");
        assert!(
            said.contains(&format!(
                "do it with `{command} {id}` and the same configuration (--conf);"
            )),
            "{said}"
        );
    }
}

/// A reader that has gone has read what it wanted, where no secret is lost; a full disk is an error all the same.
#[test]
fn an_answer_without_a_secret_may_lose_its_reader() {
    let place = Place::with_ledger();
    for (format, error) in [
        ("", "error: cannot write the answer: "),
        (" --json", "{\"error\":{\"message\":\"cannot write the answer: "),
    ] {
        for stdout in OUTPUTS {
            let is_gone = stdout.kind == ErrorKind::BrokenPipe;
            let (status, said) = write(place.run(&format!("account list{format}")), stdout);
            assert_eq!((status, said.is_empty()), (u8::from(!is_gone), is_gone), "{said}");
            assert!(is_gone || said.starts_with(error), "{said}");
        }
    }
}
