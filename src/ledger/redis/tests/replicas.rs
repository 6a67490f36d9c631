//! A master with a replica that does not follow.

use std::time::Duration;

use super::{node, patient};
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::ledger::redis::Options;
use crate::ledger::tests::redis_server::{RedisServer, until};
use crate::ledger::tests::rig::{caller_of, credits, run};
use crate::pure::limits::LimitOverrides;

/// A fail-over may follow at once: what no replica has is not acknowledged.
#[test]
fn an_administrative_write_is_acknowledged_once_a_replica_has_it() {
    let (server, replica) = (RedisServer::start(), RedisServer::start());
    let options = Options {
        timeout: Duration::from_millis(800),
        ..patient()
    };
    let ledger = node(&server, options);
    let caller = caller_of(&ledger, "acme", "1", LimitOverrides::default());
    replica.ask(&format!("REPLICAOF 127.0.0.1 {}", server.port()));
    until("the replica follows", || {
        server
            .ask("INFO replication")
            .iter()
            .any(|line| line.contains("state=online"))
    });
    let add = |reference: &str| {
        run(
            &ledger,
            AdminOp::CreditsAdd {
                account: caller.account.id.clone(),
                amount: credits("5"),
                reference: reference.to_owned(),
            },
        )
    };
    let revoke = || {
        let key = crate::ledger::admin::KeyRef::Id(caller.key.id.clone());
        run(&ledger, AdminOp::KeyRevoke { key })
    };
    assert!(matches!(
        add("first payment"),
        Ok(AdminReply::Credited { added: true, .. })
    ));
    replica.freeze();
    assert!(matches!(add("second payment"), Err(AdminError::NotConfirmed(_))));
    assert!(
        matches!(add("second payment"), Err(AdminError::NotConfirmed(_))),
        "nor the second time"
    );
    assert!(matches!(revoke(), Err(AdminError::NotConfirmed(_))));
    // Without an entry that outlives a fail-over, nothing is done in somebody's name.
    let actor = crate::ledger::admin::operators::Actor {
        id: "cli".to_owned(),
        name: "anna".to_owned(),
        role: crate::pure::operator::Role::Admin,
        address: None,
    };
    let op = AdminOp::CreditsAdd {
        account: caller.account.id.clone(),
        amount: credits("7"),
        reference: "third payment".to_owned(),
    };
    let acted = crate::ledger::admin::Acted { actor, op };
    let acted = run(&ledger, AdminOp::By(Box::new(acted)));
    assert!(
        matches!(&acted, Err(AdminError::Store(text)) if text.contains("nothing was done")),
        "{acted:?}"
    );
    replica.thaw();
    let again = add("second payment");
    assert!(
        matches!(&again, Ok(AdminReply::Credited { added: false, balance }) if *balance == credits("11")),
        "{again:?}"
    );
    revoke().unwrap();
}
