//! Keys and operators are made for whoever reads the answer: where nobody is given it, they are revoked again.

use super::operators::{Actor, OperatorOp, OperatorRecord};
use super::{Acted, AdminOp, AdminReply, KeyRef};

/// Who gives a command that makes a key or an operator. None where the command does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Maker(Option<Actor>);

impl Maker {
    /// None where the command makes no such thing.
    pub(crate) fn of(op: &AdminOp) -> Option<Maker> {
        match op {
            AdminOp::By(acted) => Maker::of(&acted.op).map(|_| Maker(Some(acted.actor.clone()))),
            AdminOp::KeyCreate { .. } | AdminOp::KeyRotate { .. } | AdminOp::Operator(OperatorOp::Create { .. }) => {
                Some(Maker(None))
            }
            _ => None,
        }
    }

    /// What revokes that which the command made, in the name of who made it. The old key of a rotation is left as the rotation left it: what was
    /// revoked works never again, and what has an overlap can be rotated again.
    pub(crate) fn revoke(self, reply: &AdminReply) -> Option<AdminOp> {
        let op = match reply {
            AdminReply::Key(key) if key.revoked.is_none() => AdminOp::KeyRevoke {
                key: KeyRef::Id(key.id.clone()),
            },
            AdminReply::Operator(OperatorRecord { id, revoked: None, .. }) => {
                AdminOp::Operator(OperatorOp::Revoke { id: id.clone() })
            }
            _ => return None,
        };
        Some(match self.0 {
            Some(actor) => AdminOp::By(Box::new(Acted { actor, op })),
            None => op,
        })
    }
}
