//! What is said of the journals of processes that died, and of the gateway that takes care of them.

use std::time::Duration;

use super::operators::on_redis;
use super::*;
use crate::ledger::Hold;
use crate::ledger::journal::{Intent, Journal};
use crate::ledger::redis::{Options, RedisLedger};
use crate::ledger::tests::redis_server::RedisServer;
use crate::pure::ids::KeyId;
use crate::pure::money::{Markup, Pricing, ProviderPrice};
use crate::pure::request_body::{Endpoint, PromptLimits};

/// The name of a dead process' journal.
const DEAD: &str = "0190a0b0c0d07e0f8a0b0c0d0e0f0a0b.journal";

#[test]
fn an_audit_tells_of_journals_that_wait() {
    let place = Place::new();
    place.json("account create acme --tier pro");
    assert_eq!(place.json("ledger audit").1["journals_waiting"], 0);
    let data = place.folder.path().join("data");
    // That of a process that lives is none of them, and what is named otherwise is no journal.
    let living = std::fs::File::create(data.join(DEAD.replacen("01", "02", 1))).unwrap();
    living.lock().unwrap();
    std::fs::write(data.join("notes.journal"), "").unwrap();
    assert_eq!(place.json("ledger audit").1["journals_waiting"], 0);
    std::fs::write(data.join(DEAD), "").unwrap();
    let (_, audit) = place.json("ledger audit");
    assert_eq!(
        (&audit["balanced"], &audit["journals_waiting"]),
        (&Value::from(true), &Value::from(1))
    );
    let text = place.run("ledger audit").stdout;
    let waits = "\n1 journal of a process that died waits: tollgate ledger recover resolves what it can, and says what keeps the rest\n";
    assert!(
        text.starts_with("the books balance: ") && text.ends_with(waits),
        "{text}"
    );
    drop(living);
    let text = place.run("ledger audit").stdout;
    assert!(
        text.contains("\n2 journals of processes that died wait: tollgate ledger recover "),
        "{text}"
    );
}

/// Leaves the journal of a process that has ended, of which Redis has acknowledged all: one debit, long ago.
fn acknowledged(data: &Path) {
    let journal = Journal::open(data);
    let of_journal = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "journal");
    let mut paths = std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    let mut bytes = std::fs::read(paths.find(of_journal).unwrap()).unwrap();
    // 4096 bytes of header, and one slot of 512: a debit stands there, which was acknowledged a second after 1970.
    bytes.truncate(4096 + 512);
    bytes[4096..4100].copy_from_slice(&0x4444_c3c3_u32.to_le_bytes());
    bytes[4120..4128].copy_from_slice(&(-1000_i64).to_le_bytes());
    journal.close();
    std::fs::write(data.join(DEAD.replace("journal", "acknowledged")), bytes).unwrap();
}

/// What becomes of journals of which a Redis has acknowledged all: nobody looks at them on the embedded ledger.
const STAYS: &str = "\n1 journal of which Redis has acknowledged all waits: a gateway on that Redis, or tollgate ledger recover on it, asks it \
                     once more, and deletes it after a minute\n";

#[test]
fn an_audit_tells_of_journals_of_which_redis_has_acknowledged_all() {
    let place = Place::with_ledger();
    let data = place.folder.path().join("data");
    assert_eq!(place.json("ledger audit").1["journals_acknowledged"], 0);
    acknowledged(&data);
    // One that a gateway has in hand is none of them.
    let name = DEAD.replace("journal", "acknowledged").replacen("01", "02", 1);
    let in_hand = std::fs::File::create(data.join(name)).unwrap();
    in_hand.lock().unwrap();
    let (_, audit) = place.json("ledger audit");
    assert_eq!(
        (&audit["journals_waiting"], &audit["journals_acknowledged"]),
        (&Value::from(0), &Value::from(1))
    );
    let text = place.run("ledger audit").stdout;
    assert!(text.ends_with(STAYS), "{text}");
    drop(in_hand);
    let text = place.run("ledger audit").stdout;
    assert!(
        text.contains("\n2 journals of which Redis has acknowledged all wait: ") && text.contains(" deletes them "),
        "{text}"
    );
}

/// It said until when Redis may lose the debits, and that nothing is left after another recovery.
#[test]
fn a_recovery_says_that_journals_which_a_redis_has_acknowledged_stay_beside_the_embedded_ledger() {
    let place = Place::with_ledger();
    let (_, nothing) = place.json("ledger recover");
    assert_eq!(nothing["journals_acknowledged"], 0);
    let data = place.folder.path().join("data");
    acknowledged(&data);
    for _ in 0..2 {
        let (_, recovered) = place.json("ledger recover");
        assert_eq!(
            (&recovered["journals_acknowledged"], &recovered["kept"]),
            (&Value::from(1), &Value::Null)
        );
        let text = place.run("ledger recover").stdout;
        assert!(text.ends_with(&format!("\n{STAYS}")), "{text}");
        assert!(data.join(DEAD.replace("journal", "acknowledged")).exists());
    }
}

#[test]
fn beside_a_gateway_a_recovery_says_that_this_is_what_the_gateway_found() {
    let place = Place::with_ledger();
    let begins = "a gateway runs on this ledger and does this by itself; at its start it found:\n\njournals read";
    let alone = place.run("ledger recover").stdout;
    assert!(alone.starts_with("journals read"), "{alone}");
    assert_eq!(place.json("ledger recover").1["by_gateway"], false);
    let store = Embedded::open(&place.ledger(), Clock::System).unwrap();
    control::listen(&store).unwrap();
    let beside = place.run("ledger recover").stdout;
    assert!(beside.starts_with(begins), "{beside}");
    assert_eq!(place.json("ledger recover").1["by_gateway"], true);
}

#[test]
fn an_audit_names_the_files_that_were_put_aside() {
    let place = Place::new();
    place.json("account create acme --tier pro");
    let data = place.folder.path().join("data");
    std::fs::write(data.join("notes.refused"), "").unwrap();
    assert_eq!(place.json("ledger audit").1["journals_refused"], serde_json::json!([]));
    let refused = data.join(DEAD.replace("journal", "refused"));
    std::fs::write(&refused, "").unwrap();
    let (_, audit) = place.json("ledger audit");
    assert_eq!(audit["journals_refused"], serde_json::json!([refused]));
    assert_eq!(audit["journals_waiting"], 0);
    let told = format!("\nkept aside, for it could not be billed: {}\n", refused.display());
    let text = place.run("ledger audit").stdout;
    assert!(text.ends_with(&told), "{text}");
}

/// A gateway's ledger and journal, and a call of acme that holds 2 there.
fn call(place: &Place) -> (Arc<Embedded>, Arc<Journal>, Hold, KeyId) {
    let mut opened = None;
    let (journal, hold, key) = call_on(place, || {
        let store = Embedded::open(&place.ledger(), Clock::System).unwrap();
        Ledger::Embedded(Arc::clone(opened.insert(store)))
    });
    (opened.unwrap(), journal, hold, key)
}

/// The same of the ledger that is opened so.
fn call_on(place: &Place, opened: impl FnOnce() -> Ledger) -> (Arc<Journal>, Hold, KeyId) {
    let (_, key) = place.json("key create --account acme");
    let digest = ApiKey::parse("tg_", key["key"].as_str().unwrap()).unwrap().digest();
    let ledger = opened();
    let journal = Journal::open(&place.folder.path().join("data"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let found = runtime.block_on(ledger.authenticate(&digest)).unwrap().unwrap();
    let caller = found.checked(Clock::System.now()).unwrap();
    let now = Clock::System.now().0.to_be_bytes();
    let mut id = [7; 16];
    id[..6].copy_from_slice(&now[2..]);
    let id = RequestId::from_bytes(id);
    let price = |text: &str| text.parse::<ProviderPrice>().unwrap().with_markup(Markup::default());
    let intent = Intent {
        id,
        account: &caller.account.id,
        key: &caller.key.id,
        model: "a/b",
        pricing: Pricing {
            prompt: price("0"),
            completion: price("0.1"),
        },
        limits: PromptLimits {
            image_tokens_each: 1000,
            context_length: 8192,
        },
        text_bytes: 0,
        endpoint: Endpoint::Chat,
        end_user: None,
    };
    let entry = journal.begin(&intent, b"{}").unwrap();
    let wanted = reserve_request(id, "2".parse().unwrap());
    let reserved = caller.reserve_journaled(&wanted, entry);
    let hold = runtime.block_on(reserved).unwrap().unwrap();
    (journal, hold, caller.key.id.clone())
}

/// Leaves what a gateway that was killed leaves of a call of acme that costs 1.15.
fn dead_call(place: &Place) {
    let (_store, _journal, mut hold, _) = call(place);
    hold.pass(CompletionTokens(10), Some(PromptTokens(3)));
    hold.forget();
}

/// What the calls of a gateway that died have used is not taken by a command either.
#[test]
fn a_command_takes_no_credit_that_calls_of_a_dead_gateway_have_used() {
    let place = Place::new();
    place.json("account create acme --tier pro");
    place.json("credits add acme 10 --reference A");
    assert_eq!(place.json("account show acme").1["journals_waiting"], 0);
    dead_call(&place);
    let (_, shown) = place.json("account show acme");
    assert_eq!(
        (shown["balance"].to_string().as_str(), &shown["journals_waiting"]),
        ("10", &Value::from(1))
    );
    let text = place.run("account show acme").stdout;
    assert!(
        text.contains("\n1 journal of a process that died waits: tollgate ledger recover resolves "),
        "{text}"
    );
    // What adds credit can be done before that.
    place.json("credits add acme 1 --reference B");
    assert_eq!(place.json("ledger audit").1["journals_waiting"], 1);
    let refused = place.error("credits correct acme -10 --reference C");
    assert!(refused.contains("-10 is more than is available: 9.85"), "{refused}");
    let (_, shown) = place.json("account show acme");
    assert_eq!(
        (shown["balance"].to_string().as_str(), &shown["journals_waiting"]),
        ("9.85", &Value::from(0))
    );
    let (_, taken) = place.json("credits correct acme -9 --reference D");
    assert_eq!(taken["balance"].to_string(), "0.85");
    assert_eq!(place.json("ledger audit").1["balanced"], true);
}

/// A gateway that handed its ledger over drains its calls, and the one that took it over is dead: nobody has the ledger, and a command had it
/// as if nothing were held.
#[test]
fn a_command_takes_no_credit_that_calls_of_a_draining_gateway_hold_or_have_used() {
    let place = Place::new();
    place.json("account create acme --tier pro");
    place.json("credits add acme 10 --reference A");
    let (store, journal, mut hold, key) = call(&place);
    hold.pass(CompletionTokens(1), Some(PromptTokens(3)));
    store.hand_over().unwrap();
    let refused = place.error("credits correct acme -9 --reference B");
    assert!(refused.contains("-9 is more than is available: 8"), "{refused}");
    let debit = Debit {
        model: "a/b".into(),
        key,
        usage: Usage {
            prompt: PromptTokens(3),
            completion: CompletionTokens(10),
        },
        cost: "1.15".parse().unwrap(),
        held: None,
        end_user: None,
        details: None,
    };
    hold.settle(debit);
    let refused = place.error("credits correct acme -9 --reference B");
    assert!(refused.contains("-9 is more than is available: 8.85"), "{refused}");
    let (_, taken) = place.json("credits correct acme -8 --reference C");
    assert_eq!(taken["balance"].to_string(), "0.85");
    drop((store, journal));
    place.json("ledger recover");
    let (_, shown) = place.json("account show acme");
    assert_eq!(shown["balance"].to_string(), "0.85", "it is taken once");
    assert_eq!(place.json("ledger audit").1["balanced"], true);
}

/// The debits of its journals were taken by then, and nobody was told.
#[test]
fn a_recovery_that_cannot_give_holds_back_says_what_it_has_billed() {
    let server = RedisServer::start();
    let place = on_redis(&server);
    place.json("account create acme --tier pro");
    place.json("credits add acme 10 --reference A");
    let options = Options {
        timeout: Duration::from_secs(10),
        ..Options::default()
    };
    let connect = || Ledger::Redis(RedisLedger::connect(&server.url(), options).unwrap());
    let (journal, mut hold, _) = call_on(&place, connect);
    hold.pass(CompletionTokens(10), Some(PromptTokens(3)));
    hold.forget();
    drop(journal);
    // The list of the accounts, in which it looks for their holds.
    server.ask("RENAME tg1:accounts elsewhere");
    server.ask("SET tg1:accounts text");
    let recovered = place.run("ledger recover");
    assert_eq!(recovered.status, 1);
    assert!(
        recovered.stdout.contains("\ndebits taken         1\n"),
        "{}",
        recovered.stdout
    );
    let told = "error: expired holds were not given back: ";
    assert!(recovered.stderr.contains(told), "{}", recovered.stderr);
    server.ask("RENAME elsewhere tg1:accounts");
    let (_, shown) = place.json("account show acme");
    assert_eq!(shown["balance"].to_string(), "8.85");
}
