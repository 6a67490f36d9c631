//! What operators are refused: as everybody is, and for what only they can meet.

use serde_json::json;

use super::{ApiError, KeyFault, WireError};
use crate::pure::operator::{Right, Role};

/// Why an operator's request is not answered with what it asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum OperatorError {
    /// As everybody is told.
    Api(ApiError),
    /// The token, or the session, is missing, wrong, expired or revoked. Never says more, so that a guesser learns nothing.
    Unauthenticated(KeyFault),
    /// The operator's role has none of the rights that this needs.
    RoleLacks {
        /// The role it has.
        role: Role,
        /// One of these is needed.
        needs: Vec<Right>,
    },
    /// A page of another origin asks, or whoever has a session's cookie without its CSRF token. The console tells it from other 403s by the
    /// header's name in its message.
    Foreign,
    /// What is asked for does not go with what is there; the text says why.
    Conflict(String),
    /// The body is no JSON.
    MediaType,
    /// The path exists, the method does not.
    MethodNotAllowed {
        /// What goes into `Allow`.
        allow: String,
    },
    /// The request names another host than this listener.
    Misdirected,
    /// The ledger failed, did not confirm, or cannot do it yet; the text says what is known.
    Ledger(String),
}

impl From<ApiError> for OperatorError {
    fn from(error: ApiError) -> OperatorError {
        match error {
            ApiError::Unauthenticated(fault) => OperatorError::Unauthenticated(fault),
            error => OperatorError::Api(error),
        }
    }
}

impl OperatorError {
    /// A request that is wrong in itself; the text says where.
    pub fn bad(message: impl Into<String>) -> OperatorError {
        OperatorError::Api(ApiError::BadRequest(message.into()))
    }

    /// There is nothing of that name.
    pub fn not_found(message: impl Into<String>) -> OperatorError {
        OperatorError::Api(ApiError::NotFound(message.into()))
    }

    /// The table from causes to HTTP.
    pub fn to_wire(&self) -> WireError {
        match self {
            OperatorError::Api(error) => error.to_wire(),
            OperatorError::Unauthenticated(fault) => {
                let message = match fault {
                    KeyFault::Missing => "No operator's token. Send it as: Authorization: Bearer <TOKEN>.",
                    KeyFault::Invalid => "The operator's token is wrong, expired or revoked.",
                };
                WireError::new(401, "authentication_error", message).final_answer()
            }
            OperatorError::RoleLacks { role, needs } => {
                let able = Role::ALL.into_iter().filter(|role| needs.iter().any(|right| role.may(*right)));
                let able: Vec<&str> = able.map(Role::name).collect();
                let message = format!("The role {role} may not do this: it takes {}.", able.join(" or "));
                let metadata = json!({ "role": role.name(), "needs": able });
                WireError::new(403, "permission_error", message)
                    .with(&metadata)
                    .final_answer()
            }
            OperatorError::Foreign => WireError::new(
                403,
                "permission_error",
                "A session is for the console's own pages alone, with the X-CSRF-Token that it was given.",
            )
            .final_answer(),
            OperatorError::Conflict(message) => {
                WireError::new(WireError::CONFLICT, "conflict_error", message).final_answer()
            }
            OperatorError::MediaType => WireError::new(
                415,
                "invalid_request_error",
                "The body must be JSON: Content-Type: application/json.",
            )
            .final_answer(),
            OperatorError::MethodNotAllowed { allow } => {
                WireError::new(405, "invalid_request_error", format!("Use {allow} for this path.")).final_answer()
            }
            OperatorError::Misdirected => WireError::new(
                421,
                "invalid_request_error",
                "This listener is asked by an address, by localhost, by a name without a dot, or by a name in operator_hosts.",
            )
            .final_answer(),
            OperatorError::Ledger(message) => WireError::new(503, "service_unavailable", message).retry_after(2),
        }
    }
}
