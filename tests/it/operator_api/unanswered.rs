//! `tollgate --operator URL`: a request is sent, and its answer is lost, or is that something failed in the middle of it. What may have been
//! done is said.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use serde_json::{Value, json};
use tollgate::pure::error::ApiError;
use tollgate::pure::ids::{KeyDigest, KeyId};
use tollgate::pure::operator::{Role, operator_id};

use super::{Desk, Ground, of};

/// A request's method and its body, which may be empty.
fn read(stream: &TcpStream) -> (String, Vec<u8>) {
    let mut reader = BufReader::new(stream);
    let (mut method, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if method.is_empty() {
            method = line.split(' ').next().unwrap().to_owned();
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (method, body)
}

/// A server's answer.
fn told(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Runs a command on a server that tells a gateway's settings, reads the command whole, and answers it with `answer`: the command as it was
/// sent, and what is said.
fn asked(settings: &Value, words: &[&str], answer: &str) -> (Value, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let url = format!("http://{address}");
    std::thread::scope(|scope| {
        let server = scope.spawn(|| -> Value {
            loop {
                let (mut stream, _) = listener.accept().unwrap();
                let (method, body) = read(&stream);
                if method != "get" {
                    stream.write_all(answer.as_bytes()).unwrap();
                    return serde_json::from_slice(&body).unwrap();
                }
                let settings = settings.to_string();
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", settings.len());
                stream.write_all((head + &settings).as_bytes()).unwrap();
            }
        });
        let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(words)
            .args(["--operator", &url])
            .env("TOLLGATE_OPERATOR_TOKEN", of(Role::Admin))
            .output()
            .unwrap();
        // A server that was never given the command waits no longer for it.
        drop(TcpStream::connect(address));
        assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
        (server.join().unwrap(), String::from_utf8(output.stderr).unwrap())
    })
}

/// The digest in a command, wherever it stands.
fn digest(sent: &Value) -> Option<KeyDigest> {
    let fields = sent.as_object()?;
    let own = fields.get("digest").and_then(Value::as_str);
    own.and_then(KeyDigest::from_hex)
        .or_else(|| fields.values().find_map(digest))
}

/// A command, the id of what it makes, and what is said of it.
type Lost<'a> = (&'a [&'a str], &'a dyn Fn(&Value) -> String, &'a [&'a str]);

/// The gateway had made the key, and the error was that it cannot be asked, or that its store failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_whose_answer_is_lost_says_that_it_may_have_been_done() {
    let desk = Desk::over(Ground::Embedded).await;
    let settings = desk.get("/v1/settings").await;
    let key = |sent: &Value| KeyId::of(&digest(sent).unwrap()).to_string();
    let operator = |sent: &Value| operator_id(&digest(sent).unwrap());
    let none = |_: &Value| String::new();
    let cases: [Lost<'_>; 7] = [
        (
            &["key", "create", "--account", "acme"],
            &key,
            &["`tollgate key list acme`", "`tollgate key revoke ID`", "make another"],
        ),
        (
            &["key", "rotate", "key_0123456789abcdef", "--overlap", "0"],
            &key,
            &["`tollgate key revoke ID`", "`tollgate key create`"],
        ),
        (
            &["key", "rotate", "key_0123456789abcdef", "--overlap", "24h"],
            &key,
            &["`tollgate key revoke ID`", "rotate the old one again"],
        ),
        (
            &["operator", "create", "ann", "--role", "read"],
            &operator,
            &["`tollgate operator list`", "`tollgate operator revoke ID`"],
        ),
        (
            &["account", "suspend", "acme"],
            &none,
            &["look before you run it again"],
        ),
        (
            &["credits", "add", "acme", "5", "--reference", "A-1"],
            &none,
            &["run it again with the same reference, amount and kind, it counts once"],
        ),
        (
            &[
                "credits",
                "correct",
                "acme",
                "-1",
                "--reference",
                "A-2",
                "--note",
                "typed twice",
            ],
            &none,
            &["run it again with the same reference, amount and kind, it counts once"],
        ),
    ];
    let late = "It takes too long. What was begun comes to its end: see /v1/log.";
    let late = json!({ "error": { "code": 503, "message": late, "type": "service_unavailable" } }).to_string();
    for answer in [
        String::new(),
        told("502 Bad Gateway", ""),
        told("503 Service Unavailable", ""),
        told("503 Service Unavailable", &late),
        told("504 Gateway Timeout", "<html>"),
        told("200 OK", "{}"),
        told("200 OK", r#"{"Err":{"error":"store","text":"the connection broke"}}"#),
    ] {
        for (words, id, says) in &cases {
            let (sent, said) = asked(&settings, words, &answer);
            assert!(said.contains("may have been done"), "{words:?}: {said}");
            for says in *says {
                let says = says.replace("ID", &id(&sent));
                assert!(said.contains(&says), "{words:?}: {says}: {said}");
            }
        }
    }
    // What only reads, and what the gateway had not begun, or refused.
    let unbegun = |error: ApiError| {
        let body = String::from_utf8(error.to_wire().body()).unwrap();
        told("503 Service Unavailable", &body)
    };
    let store = told("200 OK", r#"{"Err":{"error":"store","text":"the connection broke"}}"#);
    let create = &["key", "create", "--account", "acme"][..];
    for (words, answer) in [
        (&["account", "list"][..], String::new()),
        (&["account", "list"], store),
        (create, unbegun(ApiError::STOPPING)),
        (create, unbegun(ApiError::LEDGER_UNREACHABLE)),
        (
            create,
            told("200 OK", r#"{"Err":{"error":"no_account","text":"acme"}}"#),
        ),
    ] {
        let (_, said) = asked(&settings, words, &answer);
        assert!(!said.contains("may have been done"), "{words:?}: {said}");
    }
}
