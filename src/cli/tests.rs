//! The commands, run as an operator runs them on a ledger in a folder of its own.

use std::sync::Arc;

use serde_json::Value;

use super::*;
use crate::clock::Clock;
use crate::ledger::embedded::Embedded;
use crate::ledger::{Caller, Debit, Ledger, control};
use crate::pure::account::{ReserveRequest, Scope};
use crate::pure::catalogue::Purpose;
use crate::pure::ids::{ApiKey, RequestId};
use crate::pure::limits::Limits;
use crate::pure::money::Credits;
use crate::pure::receipt::CallDetails;
use crate::pure::usage::{CompletionTokens, PromptTokens, Usage};

/// A directory with a configuration and nothing else.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let conf = format!(
            "data_dir: {:?}\ncatalogue: {:?}\nproviders:\n  on: {{ base_url: \"http://127.0.0.1:1/v1\" }}\n  \
             off: {{ base_url: \"https://x.example/v1\", api_key_env: TOLLGATE_TEST_NEVER_SET }}\n",
            path("data"),
            path("catalogue.yaml"),
        );
        std::fs::write(folder.path().join("tollgate.yaml"), conf).unwrap();
        std::fs::write(folder.path().join("catalogue.yaml"), catalogue("on", "\"0.1\"")).unwrap();
        Place { folder }
    }

    /// The same with listeners that `check` finds free, whatever else runs on this machine.
    fn with_free_ports() -> Place {
        let place = Place::new();
        let conf = std::fs::read_to_string(place.conf()).unwrap();
        std::fs::write(place.conf(), conf + "listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\n").unwrap();
        place
    }

    /// The same with a ledger in which nothing stands.
    fn with_ledger() -> Place {
        let place = Place::new();
        drop(Embedded::open(&place.ledger(), Clock::System).unwrap());
        place
    }

    fn conf(&self) -> PathBuf {
        self.folder.path().join("tollgate.yaml")
    }

    fn ledger(&self) -> PathBuf {
        self.folder.path().join("data/ledger.db")
    }

    /// Runs `tollgate` with words that have no blanks in them.
    fn run(&self, words: &str) -> Outcome {
        tollgate(&format!("{words} --conf {}", self.conf().display()))
    }

    /// The same, expecting success and no word beside it but of a new ledger, with the JSON that it prints.
    fn json(&self, words: &str) -> (String, Value) {
        let is_new = !self.ledger().exists();
        let outcome = self.run(&format!("{words} --json"));
        let is_other =
            |line: &&str| !is_new || !line.starts_with("{\"warning\":{\"message\":\"there was no ledger at ");
        assert_eq!(
            (outcome.status, outcome.stderr.lines().find(is_other)),
            (0, None),
            "{words}"
        );
        assert_eq!(outcome.stdout.lines().count(), 1, "{words}: one line");
        let value = serde_json::from_str(&outcome.stdout).unwrap();
        (outcome.stdout, value)
    }

    /// Runs a command that fails; what it says.
    fn error(&self, words: &str) -> String {
        let outcome = self.run(words);
        assert_eq!((outcome.status, outcome.stdout.as_str()), (1, ""), "{words}");
        outcome.stderr
    }
}

fn tollgate(words: &str) -> Outcome {
    execute(
        std::iter::once("tollgate")
            .chain(words.split_whitespace())
            .map(OsString::from),
    )
}

fn catalogue(provider: &str, price: &str) -> String {
    let model = |id: &str, provider: &str, price: &str, more: &str| {
        format!(
            "  - {{ id: {id}, name: N, provider: P, context_length: 9, pricing: {{ prompt: {price}, completion: \"0\" }}, \
             tier: lite, targets: [ {{ provider: {provider}, model: m }} ], {more} }}\n"
        )
    };
    let others = Purpose::ALL
        .into_iter()
        .filter(|purpose| *purpose != Purpose::Embedding);
    let others: Vec<&str> = others.map(Purpose::name).collect();
    let purposes = format!(
        "max_completion_tokens: 5, modality: text->text, purposes: [{}]",
        others.join(", ")
    );
    let mut text = "models:\n".to_owned();
    text.push_str(&model("a/b", provider, price, &purposes));
    text.push_str(&model(
        "a/spare",
        "on",
        price,
        "max_completion_tokens: 5, modality: text->text, purposes: [chat]",
    ));
    text.push_str(&model(
        "a/e",
        "off",
        price,
        "max_completion_tokens: 0, modality: text->embedding, purposes: [embedding]",
    ));
    text.push_str("purposes:\n  embedding: a/e\n");
    others
        .iter()
        .for_each(|name| text.push_str(&format!("  {name}: a/b\n")));
    text
}

/// A call that holds `amount`.
fn reserve_request(id: RequestId, amount: Credits) -> ReserveRequest {
    ReserveRequest {
        id,
        scope: Scope::Account,
        limits: Limits {
            rpm: 1000,
            tpm: 1000,
            concurrency: 10,
        },
        quota: Credits::MAX,
        wanted: amount,
        at_least: amount,
        tokens: 1,
        expires: Clock::System.now().plus_millis(60_000),
        is_counted: false,
        is_last: true,
        spend: None,
    }
}

/// Spends `cost` on a model, the way a call does.
fn spend(caller: &Caller, number: u8, model: &str, cost: &str) {
    spend_as(caller, RequestId::from_bytes([number; 16]), model, cost, None);
}

/// The same, with what a gateway knew of the call.
fn spend_as(caller: &Caller, id: RequestId, model: &str, cost: &str, details: Option<Box<CallDetails>>) {
    let cost: Credits = cost.parse().unwrap();
    let request = reserve_request(id, cost);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let hold = runtime.block_on(caller.reserve(&request)).unwrap().unwrap();
    hold.settle(Debit {
        model: model.into(),
        key: caller.key.id.clone(),
        usage: Usage {
            prompt: PromptTokens(3),
            completion: CompletionTokens(4),
        },
        cost,
        held: None,
        details,
        end_user: None,
    });
}

/// Every command of an operator's first day, and what it says.
fn first_day(place: &Place) {
    let (_, made) = place.json("account create acme --tier pro");
    assert_eq!(
        (&made["name"], &made["tier"]),
        (&Value::from("acme"), &Value::from("pro"))
    );
    let (text, _) = place.json("credits add acme 4007199.254740993001 --reference A");
    assert!(text.contains("\"balance\":4007199.254740993001,"), "{text}");
    let (text, again) = place.json("credits add acme 4007199.254740993001 --reference A");
    assert!(
        again["added"] == false && text.contains("4007199.254740993001"),
        "{text}"
    );
    assert!(
        place
            .error("credits add acme 1 --reference A")
            .contains("another amount")
    );
    assert!(place.error("account create acme --tier free").contains("account set"));

    let (_, set) = place.json("account set acme --monthly-quota 0.5");
    assert_eq!(
        (set["monthly_quota"].to_string().as_str(), &set["own_quota"]),
        ("0.5", &Value::from(true))
    );
    let (_, set) = place.json("account set acme --monthly-quota default --tier lite");
    assert_eq!(
        (set["monthly_quota"].to_string().as_str(), &set["tier"]),
        ("100", &Value::from("lite"))
    );

    let (_, key) =
        place.json("key create --account acme --tier free --expires 12h --rpm 5 --domain *.X.org --domain y.org");
    assert_eq!(key.as_object().unwrap().len(), 2);
    let (secret, id) = (key["key"].as_str().unwrap(), key["id"].as_str().unwrap());
    assert!(secret.starts_with("tg_") && id.starts_with("key_"));
    let (_, keys) = place.json("key list acme");
    let listed = &keys["keys"][0];
    assert_eq!(
        (listed["id"].as_str(), listed["state"].as_str()),
        (Some(id), Some("active"))
    );
    assert_eq!(
        (listed["rpm"].as_u64(), listed["domains"][0].as_str()),
        (Some(5), Some("*.x.org"))
    );
    let text = place.run("key list acme").stdout;
    assert!(text.contains("tier free, rpm 5, only *.x.org, only y.org"), "{text}");
    assert!(
        place
            .error("key create --account acme --tier pro")
            .contains("higher tier")
    );
    assert_eq!(place.json(&format!("key revoke {secret}")).1["state"], "revoked");
    assert_eq!(
        place.json(&format!("key revoke {id}")).1["id"],
        id,
        "revoking twice is fine"
    );

    let (_, shown) = place.json("account show acme");
    for field in [
        "balance",
        "held",
        "available",
        "monthly_used",
        "monthly_quota",
        "tier",
        "open_calls",
        "keys",
    ] {
        assert!(!shown[field].is_null(), "{field}");
    }
    assert_eq!(place.json("account list").1["accounts"][0]["name"], "acme");
    assert_eq!(place.json("usage acme --period all").1["total_requests"], 0);
    assert_eq!(place.json("ledger audit").1["balanced"], true);
    assert_eq!(place.json("ledger recover").1["settled"], 0);
    assert_eq!(place.json("maintenance on").1["maintenance"], true);
    assert_eq!(place.json("maintenance off").1["maintenance"], false);
    assert!(
        place
            .error("account show nobody")
            .contains("nobody; `tollgate account list`")
    );
    assert!(place.error("usage nobody").contains("no account is named nobody"));
}

#[test]
fn commands_work_on_the_file() {
    first_day(&Place::new());
}

#[test]
fn commands_work_through_the_gateway_that_owns_the_file() {
    let place = Place::new();
    let store = Embedded::open(&place.ledger(), Clock::System).unwrap();
    control::listen(&store).unwrap();
    first_day(&place);
}

#[test]
fn commands_wait_for_each_other() {
    let place = Place::new();
    place.json("account create acme --tier pro");
    std::thread::scope(|scope| {
        for number in 0..8 {
            let place = &place;
            scope.spawn(move || place.json(&format!("credits add acme 0.1 --reference R{number}")));
        }
    });
    assert!(place.json("account show acme").0.contains("\"balance\":0.8,"));
}

mod accounts;
mod broken_conf;
mod certificates;
mod generations;
mod help;
mod journals;
mod key_limits;
mod operators;
mod receipts;
mod store;
mod unwritten;
mod usage;
mod usage_errors;
mod wrong;
