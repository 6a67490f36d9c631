//! An upstream's answer that is not passed on: kept until another target, or the client, is chosen to be next.

use crate::pure::error::ApiError;

/// What an upstream's answer that cannot be passed on comes to.
pub(in crate::gateway) struct Verdict {
    /// What the client is told when no target is left.
    pub(in crate::gateway) error: ApiError,
    /// The upstream's status, or the one that its words stand for.
    pub(in crate::gateway) status: u16,
    /// How long the upstream wants to be left alone, in seconds.
    pub(in crate::gateway) retry_after_secs: Option<u64>,
    /// It speaks of this request, though another target may take it: the target has not failed.
    pub(in crate::gateway) is_of_request: bool,
}

impl Verdict {
    /// What an error that came in an answer with status 200 comes to, by its code.
    pub(in crate::gateway) fn of_code(code: Option<u16>) -> Verdict {
        let status = code.filter(|code| (400..600).contains(code)).unwrap_or(502);
        Verdict {
            error: ApiError::from_upstream_status(status, None),
            status,
            retry_after_secs: None,
            is_of_request: false,
        }
    }

    /// Whether the request is to blame: no other target would answer it otherwise.
    pub(in crate::gateway) fn is_requests_fault(&self) -> bool {
        matches!(self.error, ApiError::UpstreamRefused { .. })
    }

    /// Whether the gateway's own credential is to blame, or the account behind it.
    pub(in crate::gateway) fn refuses_credential(&self) -> bool {
        matches!(self.status, 401..=403)
    }
}
