//! Names that operators and clients have built on stay: commands and their options, keys of the configuration, of the catalogue and of the
//! rules of an import, metrics with their labels, fields of the access log, spans and their attributes, paths and fields of the interface.
//! The lists are those of an earlier version (tests/fixtures), and nothing that stands in them may go.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::catalogue_import::openrouter_list::openrouter_list;
use crate::chat::request;
use crate::harness::catalogue::{EMBED, SMALL, TWIN};
use crate::harness::operator::free_address;
use crate::harness::tls::Authority;
use crate::harness::upstream::Seen;
use crate::harness::{Collector, Gateway, Reply, Setup, Upstream};

fn fixture(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/d3f6824");
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    assert!(!text.trim().is_empty());
    text
}

fn list(name: &str) -> String {
    fixture(&format!("names/{name}"))
}

/// What is in the list and not among those that are there.
fn gone<'list>(list: &'list str, there: &BTreeSet<String>) -> Vec<&'list str> {
    list.lines().filter(|name| !there.contains(*name)).collect()
}

#[test]
fn commands_and_their_options_are_there() {
    for line in list("commands.txt").lines() {
        // `account create: <NAME> --tier`
        let (command, options) = line.split_once(':').unwrap();
        let mut help = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        help.args(command.split_whitespace()).arg("--help");
        let help = help.output().unwrap();
        assert!(help.status.success(), "tollgate {command} is gone");
        let text = String::from_utf8(help.stdout).unwrap();
        for option in options.split_whitespace() {
            let ends = |c: char| !(c.is_alphanumeric() || c == '-' || c == '_');
            let is_there = text
                .match_indices(option)
                .any(|(at, _)| text[at + option.len()..].chars().next().is_none_or(ends));
            assert!(is_there, "tollgate {command}: {option} is gone\n{text}");
        }
    }
}

/// A folder with files of then, in which commands run.
struct Place(TempDir);

impl Place {
    /// One in which these files stand; what each is called here and among the fixtures.
    fn with(files: &[(&str, &str)]) -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        std::fs::create_dir(place.path("conf")).unwrap();
        for (name, of) in files {
            let text = fixture(of).replace("FOLDER", place.0.path().to_str().unwrap());
            let text = ["127.0.0.1:8080", "127.0.0.1:9090"].iter().fold(text, |text, address| {
                text.replace(
                    &format!("listen: {address}\n"),
                    &format!("listen: {}\n", free_address()),
                )
            });
            std::fs::write(place.path(name), text).unwrap();
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// What a command says in JSON. It must succeed, with a credential for each provider.
    fn run(&self, words: &[&str]) -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(words).arg("--json").current_dir(self.0.path());
        for line in std::fs::read_to_string(self.path("conf/tollgate.yaml"))
            .unwrap()
            .lines()
        {
            if let Some((_, variable)) = line.split_once("api_key_env: ") {
                command.env(variable, "secret");
            }
        }
        let said = command.env("COLLECTOR_KEY", "secret").output().unwrap();
        let complaint = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "{words:?}: {complaint}");
        serde_json::from_slice(&said.stdout).unwrap()
    }

    /// The configuration with its catalogue is good, and sells all the catalogue's models; the rules import a list into it.
    fn is_read(&self) {
        let catalogue = std::fs::read_to_string(self.path("conf/catalogue.yaml")).unwrap();
        let models = catalogue.lines().filter(|line| line.starts_with("  - id: ")).count();
        let check = self.run(&["check"]);
        let passed = check["passed"].as_array().unwrap();
        let sold = format!("catalogue.yaml: {models} models, {models} on sale");
        assert!(
            passed.iter().any(|line| line.as_str().unwrap().ends_with(&sold)),
            "{check:#}"
        );
        std::fs::write(self.path("list.json"), openrouter_list(66, 0)).unwrap();
        let imported = self.run(&["catalogue", "import", "list.json", "--dry-run"]);
        let left_out = imported["skipped"].as_array().unwrap().len();
        assert_eq!(imported["models"], models + 66 - left_out, "{imported:#}");
        assert!(left_out < 66, "{imported:#}");
    }
}

#[test]
fn the_files_that_were_shipped_then_are_read() {
    let files = ["conf/tollgate.yaml", "conf/catalogue.yaml", "conf/import.yaml"];
    let place = Place::with(&files.map(|name| (name, name)));
    place.is_read();
}

#[test]
fn a_configuration_with_every_key_of_then_is_read() {
    let files = ["tollgate.yaml", "catalogue.yaml", "import.yaml"]
        .map(|name| (format!("conf/{name}"), format!("names/{name}")));
    let place = Place::with(&files.each_ref().map(|(name, of)| (name.as_str(), of.as_str())));
    let authority = Authority::new();
    let (cert, key) = authority.pem_of("localhost");
    for (name, text) in [("authority.pem", authority.pem), ("cert.pem", cert), ("key.pem", key)] {
        std::fs::write(place.path(name), text).unwrap();
    }
    place.is_read();
}

/// What is asked in a test of names, and answered in each of the ways that leave a name.
const ASKED: [(&str, &str); 15] = [
    ("POST", "/llm/chat"),
    ("POST", "/llm/chat/stream"),
    ("POST", "/chat/completions"),
    ("POST", "/llm/embeddings"),
    ("POST", "/embeddings"),
    ("GET", "/llm/balance"),
    ("GET", "/llm/usage"),
    ("GET", "/llm/models"),
    ("GET", "/llm/models/purposes"),
    ("GET", "/llm/public/models"),
    ("GET", "/llm/health"),
    ("GET", "/models"),
    ("GET", "/models/acme/small"),
    ("GET", "/openapi.json"),
    ("GET", "/nowhere"),
];

/// `/llm/chat/stream` has a maximum, `/chat/completions` two choices, and its first target fails.
fn body_of(path: &str) -> String {
    match path {
        "/llm/chat/stream" => {
            json!({ "model": SMALL, "messages": [{ "role": "user", "content": "Hello" }], "max_tokens": 50 })
        }
        "/chat/completions" => json!({ "model": TWIN, "messages": [{ "role": "user", "content": "Hello" }], "n": 2 }),
        "/llm/embeddings" | "/embeddings" => json!({ "model": EMBED, "input": "Hello" }),
        _ => return request(SMALL),
    }
    .to_string()
}

fn answer(seen: &Seen) -> Reply {
    let asked = seen.json();
    match (asked["model"].as_str(), &asked["stream"]) {
        (Some("up-twin"), _) => Reply::status(500),
        (Some("up-embed"), _) => Reply::embeddings(1, 1),
        (_, Value::Bool(true)) => Reply::stream_of(&["Hi", " there"], 9, 3),
        _ => Reply::chat("Hi there", 9, 3),
    }
}

#[tokio::test]
async fn metrics_fields_of_the_access_log_and_spans_keep_their_names() {
    let upstream = Upstream::by(|_, seen| answer(seen)).await;
    let collector = Collector::start().await;
    let setup = Setup::over(&upstream).spare(&upstream).traces(&collector);
    let mut gateway = setup.start().await;
    let mut requests = Vec::new();
    for (method, path) in ASKED {
        let told = match method {
            "GET" => gateway.http1.get(path).await,
            _ => gateway.http1.post(path, body_of(path)).await,
        };
        assert_eq!(
            told.status,
            if path == "/nowhere" { 404 } else { 200 },
            "{path}: {}",
            told.text()
        );
        requests.push(told.header("x-request-id").to_owned());
    }
    gateway.counted(requests.len() as u64).await;

    assert_eq!(gone(&expanded(&list("metrics.txt")), &metrics_of(&gateway)), [""; 0]);

    let (mut names, mut attributes) = (BTreeSet::new(), BTreeSet::new());
    for request in &requests {
        let trace = collector.trace(request).await;
        for span in trace.clients.iter().chain([&trace.server]) {
            names.insert(span.name.clone());
            attributes.extend(span.attributes.iter().map(|attribute| attribute.key.clone()));
        }
    }
    attributes.extend(
        collector
            .resource()
            .attributes
            .into_iter()
            .map(|attribute| attribute.key),
    );
    assert_eq!(gone(&list("spans.txt"), &attributes), [""; 0]);
    assert_eq!(gone(&list("span_names.txt"), &names), [""; 0]);

    for line in gateway.access_log() {
        let line: Value = serde_json::from_str(&line).unwrap();
        let fields = line.as_object().unwrap().keys().cloned().collect();
        assert_eq!(gone(&list("access_log.txt"), &fields), [""; 0], "{line}");
    }
}

/// `NAME KIND`, and `NAME{LABEL}` for each label, of lines with a name, a kind and labels.
fn expanded(list: &str) -> String {
    let mut names = String::new();
    for line in list.lines() {
        let [name, kind, labels @ ..] = &line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        names.push_str(&format!("{name} {kind}\n"));
        labels
            .iter()
            .for_each(|label| names.push_str(&format!("{name}{{{label}}}\n")));
    }
    names
}

/// The same of the page of metrics.
fn metrics_of(gateway: &Gateway) -> BTreeSet<String> {
    let page = gateway.metrics_page();
    let kinds = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let mut there: BTreeSet<String> = kinds.map(str::to_owned).collect();
    let histograms: Vec<String> = there
        .iter()
        .filter_map(|line| line.strip_suffix(" histogram"))
        .map(str::to_owned)
        .collect();
    for sample in page.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, labels)) = sample.split_once('{') else {
            continue;
        };
        let of_histogram = name.rsplit_once('_').map(|(name, _)| name.to_owned());
        let name = of_histogram
            .filter(|name| histograms.contains(name))
            .unwrap_or_else(|| name.to_owned());
        let labels = labels.split("\",").filter_map(|label| label.split_once("=\""));
        there.extend(labels.map(|(label, _)| format!("{name}{{{label}}}")));
    }
    // Two are there from the first audit on, which this gateway is too young for.
    let source = include_str!("../../src/telemetry/exposition.rs").to_owned()
        + include_str!("../../src/telemetry/exposition/money.rs");
    for name in ["tollgate_audit_findings", "tollgate_audit_age_seconds"] {
        assert!(source.contains(&format!("\"{name}\"")), "{name}");
        there.insert(format!("{name} gauge"));
    }
    there
}

/// Alerts and searches compare with them. Not each can be had in a test: what names them is read as text.
#[test]
fn values_of_labels_are_there() {
    let source = [
        include_str!("../../src/telemetry/labels.rs"),
        include_str!("../../src/telemetry/exposition.rs"),
        include_str!("../../src/telemetry/exposition/money.rs"),
        include_str!("../../src/gateway/recorder.rs"),
        include_str!("../../src/pure/error.rs"),
        include_str!("../../src/pure/error/limit.rs"),
        include_str!("../../src/pure/error/unavailable.rs"),
        include_str!("../../src/ledger/embedded.rs"),
        include_str!("../../src/ledger/redis/mod.rs"),
    ];
    let quoted = source.iter().flat_map(|text| text.split('"')).map(str::to_owned);
    assert_eq!(gone(&list("label_values.txt"), &quoted.collect()), [""; 0]);
}

#[tokio::test]
async fn paths_and_fields_of_the_interface_are_there() {
    let gateway = Gateway::over(&Upstream::unused().await).await;
    let described = gateway.http1.with_key("").get("/openapi.json").await.ok().json();
    let mut there = BTreeSet::new();
    names_of(&described, &mut there);
    assert_eq!(gone(&list("interface.txt"), &there), [""; 0]);
}

/// `GET /llm/usage`, `GET /llm/usage?period`, and `Balance.available` of each object.
fn names_of(described: &Value, names: &mut BTreeSet<String>) {
    for (path, item) in described["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name = format!("{} {path}", method.to_uppercase());
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            names.extend(parameters.filter_map(|one| Some(format!("{name}?{}", one["name"].as_str()?))));
            names.insert(name);
        }
    }
    for (object, schema) in described["components"]["schemas"].as_object().unwrap() {
        let fields = schema["properties"].as_object().into_iter().flatten();
        names.extend(fields.map(|(field, _)| format!("{object}.{field}")));
    }
}
