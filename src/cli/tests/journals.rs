//! What is said of the journals of processes that died, and of the gateway that takes care of them.

use super::*;

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
    std::fs::write(data.join(DEAD.replace("journal", "acknowledged")), "").unwrap();
    assert_eq!(place.json("ledger audit").1["journals_waiting"], 0);
    std::fs::write(data.join(DEAD), "").unwrap();
    let (_, audit) = place.json("ledger audit");
    assert_eq!(
        (&audit["balanced"], &audit["journals_waiting"]),
        (&Value::from(true), &Value::from(1))
    );
    let text = place.run("ledger audit").stdout;
    let waits = "\n1 journal of a process that died waits: run tollgate ledger recover, or start the gateway\n";
    assert!(
        text.starts_with("the books balance: ") && text.ends_with(waits),
        "{text}"
    );
    drop(living);
    let text = place.run("ledger audit").stdout;
    assert!(
        text.contains("\n2 journals of processes that died wait: run "),
        "{text}"
    );
}

#[test]
fn beside_a_gateway_a_recovery_says_that_this_is_what_the_gateway_found() {
    let place = Place::new();
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
