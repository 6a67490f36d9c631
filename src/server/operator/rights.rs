//! Which right a command of the ledger needs: the one list, for REST and for commands.

use crate::ledger::admin::AdminOp;
use crate::ledger::admin::accounts::AccountOp;
use crate::ledger::admin::credits::CreditOp;
use crate::ledger::admin::events::{EventKind, EventOp};
use crate::ledger::admin::operators::OperatorOp;
use crate::ledger::terms::{AccountStatus, TermsChange};
use crate::pure::operator::Right;

/// How an operator may give a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// With this right.
    With(Right),
    /// Never: it is the gateway's own.
    Closed,
}

/// What a command needs.
pub(super) fn needed(op: &AdminOp) -> Way {
    Way::With(match op {
        AdminOp::AccountCreate { .. } | AdminOp::AccountSet { .. } => Right::Manage,
        AdminOp::Account(AccountOp::Terms { change, .. }) => of_terms(change),
        AdminOp::CreditsAdd { .. } | AdminOp::Credit(CreditOp::Post(_)) => Right::Credit,
        AdminOp::KeyCreate { .. } | AdminOp::KeySet { .. } | AdminOp::KeyRevoke { .. } | AdminOp::KeyRotate { .. } => {
            Right::Keys
        }
        AdminOp::Maintenance { .. } | AdminOp::Repair | AdminOp::Recover => Right::Manage,
        AdminOp::Operator(OperatorOp::Create { .. } | OperatorOp::Revoke { .. } | OperatorOp::List) => Right::Manage,
        // An event of another kind would tell receivers of what never was.
        AdminOp::Event(EventOp::Raise(event)) if event.kind == EventKind::Test => Right::Manage,
        AdminOp::AccountShow { .. }
        | AdminOp::AccountList
        | AdminOp::Account(AccountOp::Page(_) | AccountOp::Stopped { .. })
        | AdminOp::Credit(CreditOp::List { .. } | CreditOp::Statement { .. } | CreditOp::Find { .. })
        | AdminOp::KeySpent { .. }
        | AdminOp::KeyShow { .. }
        | AdminOp::KeyList { .. }
        | AdminOp::Usage { .. }
        | AdminOp::UsageOf(_)
        | AdminOp::EndUsers(_)
        | AdminOp::Receipts(_)
        | AdminOp::Audit
        | AdminOp::Event(EventOp::Count)
        | AdminOp::Operator(OperatorOp::Log(_)) => Right::Read,
        // Who acts is said by the token alone; the others are between parts of the gateway.
        AdminOp::By(_)
        | AdminOp::NoteRecovered(_)
        | AdminOp::Operator(OperatorOp::Find { .. })
        | AdminOp::Event(EventOp::Raise(_) | EventOp::Claim { .. } | EventOp::Settle { .. } | EventOp::RaiseExpiring)
        | AdminOp::Reserve(_)
        | AdminOp::Extend(_)
        | AdminOp::KeysFreed { .. } => return Way::Closed,
    })
}

/// To suspend, and to let it call again, is less than to close for good or to change what was agreed.
fn of_terms(change: &TermsChange) -> Right {
    let is_status_alone = *change
        == TermsChange {
            status: change.status,
            ..TermsChange::default()
        };
    match change.status {
        Some(AccountStatus::Active | AccountStatus::Suspended) if is_status_alone => Right::Suspend,
        _ => Right::Manage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_need_what_they_change() {
        let status = |status| TermsChange {
            status: Some(status),
            ..TermsChange::default()
        };
        assert_eq!(of_terms(&status(AccountStatus::Suspended)), Right::Suspend);
        assert_eq!(of_terms(&status(AccountStatus::Active)), Right::Suspend);
        assert_eq!(of_terms(&status(AccountStatus::Closed)), Right::Manage);
        let low = TermsChange {
            low_balance_pico: Some(None),
            ..status(AccountStatus::Suspended)
        };
        assert_eq!(of_terms(&low), Right::Manage);
        assert_eq!(of_terms(&TermsChange::default()), Right::Manage);
    }

    #[test]
    fn nobody_speaks_for_another() {
        let op = |text: &str| needed(&serde_json::from_str(text).unwrap());
        let acted = r#"{"op":"by","actor":{"id":"op_1","name":"x","role":"admin","address":null},"op":{"op":"audit"}}"#;
        assert!(serde_json::from_str::<AdminOp>(acted).is_err() || op(acted) == Way::Closed);
        let find = format!(
            r#"{{"op":"operator","operator_op":"find","digest":"{}"}}"#,
            "0".repeat(64)
        );
        assert_eq!(op(&find), Way::Closed);
        let raise = |kind: &str| {
            let event = format!(r#"{{"id":"evt_1","kind":"{kind}","at":0,"account":null,"data":{{}}}}"#);
            op(&format!(r#"{{"op":"event","event_op":"raise",{}"#, &event[1..]))
        };
        assert_eq!(raise("webhook.test"), Way::With(Right::Manage));
        assert_eq!(raise("credits.added"), Way::Closed, "of what never was");
        assert_eq!(op(r#"{"op":"audit"}"#), Way::With(Right::Read));
        assert_eq!(op(r#"{"op":"repair"}"#), Way::With(Right::Manage));
    }
}
