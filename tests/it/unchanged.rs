//! Names that operators and clients have built on stay: commands and their options, keys of the configuration, metrics, fields of the
//! access log, attributes of spans, paths and fields of the interface. The lists are those of an earlier version (tests/fixtures), and
//! nothing that stands in them may go.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::chat::request;
use crate::harness::catalogue::SMALL;
use crate::harness::{Collector, Gateway, Reply, Setup, Upstream};

fn list(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/d3f6824/names");
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    assert!(!text.trim().is_empty());
    text
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

#[test]
fn a_configuration_of_then_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    std::fs::write(
        place("catalogue.yaml"),
        crate::harness::catalogue::catalogue().to_string(),
    )
    .unwrap();
    std::fs::write(place("import.yaml"), include_str!("../../conf/import.yaml")).unwrap();
    let at = |text: &str| text.replace("FOLDER", folder.path().to_str().unwrap());
    std::fs::write(place("tollgate.yaml"), at(&list("tollgate.yaml"))).unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    check.arg("check").arg("--conf").arg(place("tollgate.yaml"));
    check.env("MAIN_KEY", "secret").env("COLLECTOR_KEY", "secret");
    let said = check.output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}

#[tokio::test]
async fn metrics_fields_of_the_access_log_and_spans_keep_their_names() {
    let upstream = Upstream::always(Reply::chat("Hi there", 9, 3)).await;
    let collector = Collector::start().await;
    let mut gateway = Setup::over(&upstream).traces(&collector).start().await;
    let answer = gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    gateway.counted(1).await;

    let page = gateway.metrics_page();
    let named = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let mut named: BTreeSet<String> = named.map(str::to_owned).collect();
    // Two are there from the first audit on, which this gateway is too young for.
    let source = include_str!("../../src/telemetry/exposition.rs").to_owned()
        + include_str!("../../src/telemetry/exposition/money.rs");
    for name in ["tollgate_audit_findings", "tollgate_audit_age_seconds"] {
        assert!(source.contains(&format!("\"{name}\"")), "{name}");
        named.insert(format!("{name} gauge"));
    }
    assert_eq!(gone(&list("metrics.txt"), &named), [""; 0]);

    let line: Value = serde_json::from_str(&gateway.access_log()[0]).unwrap();
    let fields = line.as_object().unwrap().keys().cloned().collect();
    assert_eq!(gone(&list("access_log.txt"), &fields), [""; 0]);

    let trace = collector.trace(answer.header("x-request-id")).await;
    let attributes = trace.server.attributes.iter().chain(&trace.client().attributes);
    let attributes = attributes.map(|attribute| attribute.key.clone()).collect();
    assert_eq!(gone(&list("spans.txt"), &attributes), [""; 0]);
}

#[tokio::test]
async fn paths_and_fields_of_the_interface_are_there() {
    let gateway = Gateway::over(&Upstream::unused().await).await;
    let described = gateway.http1.with_key("").get("/openapi.json").await.ok().json();
    let mut there = BTreeSet::new();
    names_of(&described, &mut there);
    assert_eq!(gone(&list("interface.txt"), &there), [""; 0]);
}

/// `GET /llm/balance`, and `Balance.available` of each object.
fn names_of(described: &Value, names: &mut BTreeSet<String>) {
    for (path, item) in described["paths"].as_object().unwrap() {
        names.extend(
            item.as_object()
                .unwrap()
                .keys()
                .map(|method| format!("{} {path}", method.to_uppercase())),
        );
    }
    for (object, schema) in described["components"]["schemas"].as_object().unwrap() {
        let fields = schema["properties"].as_object().into_iter().flatten();
        names.extend(fields.map(|(field, _)| format!("{object}.{field}")));
    }
}
