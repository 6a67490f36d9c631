//! Receipts, and exports of providers that are held against them.

mod unreadable;

use super::*;
use crate::pure::receipt::CallEnding;
use crate::pure::time::Day;

/// A place whose account acme has four calls of 3 + 4 tokens: `gen-1` to `gen-3` of openai, which reported 2 completion tokens for the
/// third, and one of mistral.
struct Calls {
    place: Place,
    /// The gateway that owns the file, where there is one.
    _store: Option<Arc<Embedded>>,
    ids: Vec<RequestId>,
}

/// Now or later: an id says when its request came.
fn id(number: u8) -> RequestId {
    let now = Clock::System.now().0.to_be_bytes();
    let mut bytes = [number; 16];
    bytes[..6].copy_from_slice(&now[2..]);
    RequestId::from_bytes(bytes)
}

impl Calls {
    fn new() -> Calls {
        Calls::told(true)
    }

    /// The commands are told to a gateway, or read the file.
    fn told(to_gateway: bool) -> Calls {
        let place = Place::new();
        let provider = |name: &str| format!("  {name}: {{ base_url: \"http://127.0.0.1:1/v1\" }}\n");
        let conf = std::fs::read_to_string(place.conf()).unwrap() + &provider("openai") + &provider("mistral");
        std::fs::write(place.conf(), conf).unwrap();
        place.json("account create acme --tier pro");
        place.json("account create other --tier pro");
        place.json("credits add acme 10 --reference A");
        let (_, key) = place.json("key create --account acme");
        let digest = ApiKey::parse("tg_", key["key"].as_str().unwrap()).unwrap().digest();
        let store = Embedded::open(&place.ledger(), Clock::System).unwrap();
        if to_gateway {
            control::listen(&store).unwrap();
        }
        let ledger = Ledger::Embedded(Arc::clone(&store));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let found = runtime.block_on(ledger.authenticate(&digest)).unwrap().unwrap();
        let caller = found.checked(Clock::System.now()).unwrap();
        let ids: Vec<RequestId> = (1..=4).map(id).collect();
        for (id, number) in ids.iter().zip(1..) {
            let details = CallDetails {
                provider: Some(if number == 4 { "mistral" } else { "openai" }.into()),
                upstream_id: Some(format!("gen-{number}")),
                ending: Some(CallEnding::ClientGone),
                reported_completion: (number == 3).then_some(CompletionTokens(2)),
                ..CallDetails::default()
            };
            let model = if number == 2 { "a/dear" } else { "a/b" };
            spend_as(&caller, *id, model, "0.25", Some(Box::new(details)));
        }
        drop((ledger, caller));
        Calls {
            place,
            _store: to_gateway.then_some(store),
            ids,
        }
    }

    /// Runs the command on an export; its exit status, what it lists, and its sums.
    fn reconcile(&self, export: impl AsRef<[u8]>, more: &str) -> (u8, Vec<String>, Value) {
        let path = self.place.folder.path().join("export");
        std::fs::write(&path, export).unwrap();
        let words = format!("ledger reconcile {} {more}", path.display());
        let outcome = self.place.run(&words);
        let listed = outcome.stdout.lines().take_while(|line| !line.is_empty());
        let listed: Vec<String> = match outcome.status {
            0 => Vec::new(),
            _ => listed.map(str::to_owned).collect(),
        };
        let json = self.place.run(&format!("{words} --json"));
        let told = json.stderr.lines().map(|line| {
            let error: Value = serde_json::from_str(line).unwrap();
            format!("error: {}\n", error["error"]["message"].as_str().unwrap())
        });
        assert_eq!((json.status, told.collect()), (outcome.status, outcome.stderr.clone()));
        if outcome.status == 0 {
            assert_eq!(outcome.stderr, "");
        }
        let sums: Value = serde_json::from_str(&json.stdout).unwrap_or_else(|_| Value::from(outcome.stderr.clone()));
        (outcome.status, listed, sums)
    }

    /// What is said about an export that cannot be read.
    fn refused(&self, export: impl AsRef<[u8]>, more: &str) -> String {
        let (status, listed, said) = self.reconcile(export, more);
        assert_eq!((status, listed.len()), (1, 0));
        said.as_str().unwrap().to_owned()
    }
}

const AGREES: &str = "id,prompt,completion\ngen-1,3,4\ngen-2,3,4\ngen-3,3,2\n";

#[test]
fn receipts_are_listed_newest_first_and_shown_whole() {
    for to_gateway in [true, false] {
        let calls = Calls::told(to_gateway);
        let place = &calls.place;
        let (text, listed) = place.json("ledger receipts acme --limit 3");
        let answers: Vec<&str> = listed["receipts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|receipt| receipt["upstream_id"].as_str().unwrap())
            .collect();
        assert_eq!(answers, ["gen-4", "gen-3", "gen-2"]);
        assert!(
            text.contains("\"cost\":\"0.25\"") && text.contains("\"ending\":\"client_gone\""),
            "{text}"
        );
        let (_, dear) = place.json("ledger receipts acme --model a/dear --limit 5000");
        assert_eq!(dear["receipts"].as_array().unwrap().len(), 1);

        let table = place.run("ledger receipts acme").stdout;
        assert!(
            table.starts_with("RESOLVED, REQUEST") && table.lines().count() == 9,
            "{table}"
        );
        assert!(table.lines().all(|line| line.len() <= 80), "{table}");
        let words: Vec<&str> = table.lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!(words, ["a/b", "3", "4", "0.25", "client", "gone", "mistral"]);
        assert!(
            table.lines().nth(1).unwrap().ends_with(&calls.ids[3].to_string()),
            "{table}"
        );

        let one = format!("ledger receipts acme --id {}", calls.ids[2]);
        assert_eq!(place.json(&one).1["receipts"][0], listed["receipts"][1]);
        let facts = place.run(&one).stdout;
        let fact = |name: &str| {
            let line = facts.lines().find(|line| line.starts_with(name));
            line.map(|line| line[name.len()..].trim().to_owned())
        };
        assert_eq!(fact("upstream id").as_deref(), Some("gen-3"));
        assert_eq!(fact("  reported").as_deref(), Some("2"));
        assert_eq!(fact("cost").as_deref(), Some("0.25"));
        assert_eq!(fact("held").as_deref(), Some("0.25"));
        assert!(fact("created").is_some_and(|at| at.ends_with('Z')));
        for absent in ["first byte", "prompt price", "endpoint", "streamed", "  counted"] {
            assert_eq!(fact(absent), None, "{facts}");
        }
    }
}

#[test]
fn receipts_that_are_not_there_are_errors() {
    let calls = Calls::new();
    let place = &calls.place;
    assert!(
        place
            .error("ledger receipts nobody")
            .contains("no account is named nobody")
    );
    let unknown = RequestId::from_bytes([9; 16]);
    assert!(
        place
            .error(&format!("ledger receipts acme --id {unknown}"))
            .contains(&format!("acme has no receipt of request {unknown}"))
    );
    let foreign = format!("ledger receipts other --id {}", calls.ids[0]);
    assert!(place.error(&foreign).contains("other has no receipt"));
    for (words, expected) in [
        ("acme --id gen-1", "is not the id of a request"),
        ("acme --limit 0", "0 is not in 1.."),
        (&format!("acme --id {unknown} --model a/b"), "cannot be used with"),
    ] {
        let outcome = place.run(&format!("ledger receipts {words}"));
        assert!(outcome.status == 2 && outcome.stderr.contains(expected), "{outcome:?}");
    }
    assert_eq!(
        place.run("ledger receipts other").stdout,
        "other has no such receipts\n"
    );
    assert_eq!(place.json("ledger receipts other").1["receipts"], serde_json::json!([]));
}

#[test]
fn an_export_that_agrees_exits_0() {
    let calls = Calls::new();
    let (status, _, sums) = calls.reconcile(AGREES, "");
    assert_eq!(status, 0, "{sums}");
    for (name, expected) in [("rows", 3), ("receipts", 4), ("matched", 3), ("missing", 0)] {
        assert_eq!(sums[name], expected, "{name}: {sums}");
    }
    assert_eq!((&sums["agrees"], &sums["unlisted"]), (&Value::from(true), &Value::Null));
    let by_request = format!(
        "{{\"generation_id\":\"{}\",\"input_tokens\":3,\"output_tokens\":4}}\n\n{{\"id\":\"gen-3\",\"prompt\":3,\"completion\":2}}\n",
        calls.ids[3]
    );
    let quoted =
        "\u{feff}\"Model, or what\",ID,\"Prompt Tokens\",Completion Tokens\r\n\"a \"\"b\"\"\n\",\"gen-1\",\"3\",4\r\n";
    for export in [by_request.as_str(), quoted, "id,prompt,completion\n"] {
        let (status, _, sums) = calls.reconcile(export, "");
        assert_eq!((status, &sums["missing"]), (0, &Value::from(0)), "{sums}");
    }
    let shown = calls.place.run(&format!(
        "ledger reconcile {}",
        calls.place.folder.path().join("export").display()
    ));
    assert!(
        shown.stdout.starts_with("0 rows held against 4 receipts from 20")
            && shown
                .stdout
                .ends_with("0 matched, 0 missing, 0 doubled, 0 different, unlisted ones not looked for\n"),
        "{}",
        shown.stdout
    );
}

#[test]
fn an_export_that_does_not_names_what_differs_and_exits_1() {
    let rows = [
        ("gen-1", 3, 4),
        ("gen-9", 7, 8),
        ("gen-2", 3, 4),
        ("gen-3", 3, 4),
        ("gen-2", 3, 4),
    ];
    let csv: String = rows.iter().map(|(id, p, c)| format!("{id},{p},{c}\n")).collect();
    let json = rows.map(|(id, p, c)| serde_json::json!({ "id": id, "prompt": p, "completion": c }).to_string());
    let exports = [format!("id,prompt,completion\n{csv}"), format!("\n{}", json.join("\n"))];
    for calls in [true, false].map(Calls::told) {
        let expected = [
            "missing    line 3: gen-9 (7 + 8 tokens) has no receipt".to_owned(),
            format!(
                "doubled    lines 4, 6: gen-2 has 1 receipt: acme, request {}",
                calls.ids[1]
            ),
            format!(
                "different  line 5: gen-3 is 3 + 4 tokens in the export, 3 + 2 tokens in the receipt: acme, request {}",
                calls.ids[2]
            ),
        ];
        for export in &exports {
            let (status, listed, sums) = calls.reconcile(export, "");
            assert_eq!((status, &listed[..]), (1, &expected[..]));
            for (name, expected) in [
                ("rows", 5),
                ("matched", 1),
                ("missing", 1),
                ("doubled", 1),
                ("different", 1),
            ] {
                assert_eq!(sums[name], expected, "{name}: {sums}");
            }
            let kinds = [0, 1, 2].map(|at| sums["findings"][at]["finding"].as_str().unwrap());
            assert_eq!(kinds, ["missing", "doubled", "different"]);
            assert_eq!(sums["agrees"], false);
        }
        let path = calls.place.folder.path().join("export");
        let said = calls.place.run(&format!("ledger reconcile {}", path.display())).stderr;
        assert_eq!(said, "error: the export and the receipts do not agree: 3 findings\n");
    }
}

#[test]
fn what_an_export_lacks_is_listed_where_its_time_is_given() {
    let calls = Calls::new();
    let today = Clock::System.now().day();
    // A test that begins before midnight may end behind it.
    let days = format!("--from {} --to {}", Day(today.0 - 1), Day(today.0 + 1));
    let one = "id,prompt,completion\ngen-1,3,4\n";
    let (status, listed, sums) = calls.reconcile(one, &format!("--provider openai {days}"));
    assert_eq!(
        (status, &sums["unlisted"], &sums["receipts"]),
        (1, &Value::from(2), &Value::from(3))
    );
    assert_eq!(
        listed,
        [
            format!("unlisted   gen-3 (3 + 2 tokens): acme, request {}", calls.ids[2]),
            format!("unlisted   gen-2 (3 + 4 tokens): acme, request {}", calls.ids[1]),
        ]
    );
    for more in [
        "--provider openai".to_owned(),
        days.clone(),
        format!("--provider openai --account acme {}", &days[..17]),
    ] {
        assert_eq!(calls.reconcile(one, &more).0, 0, "{more}");
    }
    let other = format!("--provider openai --account other {days}");
    assert_eq!(calls.reconcile("id,prompt,completion\n", &other).0, 0);
    assert_eq!(calls.reconcile(one, &other).2["missing"], 1);
    // Before the export's first day no receipts are read.
    let later = format!("--from {}", Day(today.0 + 5));
    assert_eq!(calls.reconcile("id,prompt,completion\n", &later).0, 0);
}

#[test]
fn an_export_that_cannot_be_read_is_an_error() {
    let calls = Calls::new();
    for (export, expected) in [
        (
            "id,prompt,completion\ngen-1,3,4\ngen-2,3\n",
            "export:3: the row has another number of cells",
        ),
        (
            "id,prompt,completion\ngen-1,3,x\n",
            "export:2: the completion tokens are not a whole number",
        ),
        (
            "id,prompt,prompt,completion\ngen-1,3,3,4\n",
            "export:1: prompt and prompt both say the prompt",
        ),
        (
            "{\"id\":\"gen-1\",\"prompt\":3,\"completion\":4}\n{\"id\":\n",
            "export:2: not a JSON object",
        ),
        ("", "export:1: the export is empty"),
    ] {
        let said = calls.refused(export, "");
        assert!(said.starts_with("error: ") && said.contains(expected), "{said}");
    }
    let good = "id,prompt,completion\n";
    assert!(
        calls
            .refused(good, "--account nobody")
            .contains("no account is named nobody")
    );
    let turned = calls.reconcile(good, "--from 2026-11-20 --to 2026-11-19");
    assert!(
        turned.0 == 2 && turned.2.as_str().unwrap().contains("is before --from"),
        "{turned:?}"
    );
    let path = calls.place.folder.path().join("export");
    std::fs::write(&path, good).unwrap();
    let unknown = calls
        .place
        .run(&format!("ledger reconcile {} --provider nope", path.display()));
    assert!(
        unknown
            .stderr
            .contains("tollgate.yaml names no provider nope: it names mistral, off, on, openai"),
        "{unknown:?}"
    );
    assert!(
        calls
            .place
            .error("ledger reconcile /nowhere/export.csv")
            .contains("cannot read /nowhere/export.csv")
    );
    let outcome = calls.place.run("ledger reconcile x --from yesterday");
    assert!(
        outcome.status == 2 && outcome.stderr.contains("is not a day such as"),
        "{outcome:?}"
    );
}
