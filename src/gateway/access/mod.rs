//! May this request be served: from its head to a hold of its worst case.

pub(crate) mod admit;
pub(crate) mod auth_throttle;
pub(crate) mod authenticate;
pub(crate) mod body_memory;
pub(crate) mod decision;
pub(crate) mod head_check;
pub(crate) mod idempotency;
pub(crate) mod parse;
pub(crate) mod precheck;
pub(crate) mod receive;
pub(crate) mod received;
mod refusal;
mod surcharges;
mod worst_case;
