//! What each path takes and answers.

use super::parameters::{
    ACCOUNT, AFTER, BEFORE, BEFORE_CALL, BEFORE_ENTRY, CALL_ID, FROM, GROUP_BY, KEY, KEY_ID, LIMIT_200, LIMIT_1000,
    LIMIT_CALLS, MODEL, NAME, OF_ACCOUNT, OPERATOR_ID, PERIOD, SEARCH, STATEMENT_FORMAT, TO,
};
use crate::gateway::api::openapi::parts::Parameter;

/// One operation.
pub(super) struct Described {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) summary: &'static str,
    pub(super) parameters: &'static [&'static Parameter],
    /// Schema of the request's body.
    pub(super) body: Option<&'static str>,
    pub(super) ok: Success,
    /// Statuses beside those of every operation of its kind.
    pub(super) also: &'static [u16],
}

/// How it is answered when it was done.
pub(super) enum Success {
    /// 200 with this schema.
    Json(&'static str),
    /// 201 with this schema.
    Created(&'static str),
    /// 201 with this schema; 200 for what had been done before.
    CreatedOnce(&'static str),
    /// 204.
    Nothing,
    /// 200 with a statement in either form.
    Statement,
}

impl Success {
    /// The statuses.
    pub(super) fn statuses(&self) -> &'static [u16] {
        match self {
            Success::Json(_) | Success::Statement => &[200],
            Success::Created(_) => &[201],
            Success::CreatedOnce(_) => &[200, 201],
            Success::Nothing => &[204],
        }
    }
}

const fn get(
    path: &'static str,
    summary: &'static str,
    parameters: &'static [&'static Parameter],
    schema: &'static str,
) -> Described {
    described("GET", path, summary, parameters, None, Success::Json(schema))
}

const fn described(
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    parameters: &'static [&'static Parameter],
    body: Option<&'static str>,
    ok: Success,
) -> Described {
    Described {
        method,
        path,
        summary,
        parameters,
        body,
        ok,
        also: &[],
    }
}

const fn or(described: Described, also: &'static [u16]) -> Described {
    Described { also, ..described }
}

/// All of them.
pub(super) const OPERATIONS: [Described; 36] = [
    or(
        described(
            "POST",
            "/v1/accounts",
            "Make an account",
            &[],
            Some("NewAccount"),
            Success::Created("Account"),
        ),
        &[409],
    ),
    get(
        "/v1/accounts",
        "Accounts by name",
        &[&SEARCH, &AFTER, &LIMIT_200],
        "Accounts",
    ),
    get("/v1/accounts/{name}", "One account", &[&NAME], "Account"),
    or(
        described(
            "PATCH",
            "/v1/accounts/{name}",
            "Change an account. Support may suspend it and let it call again, and nothing else",
            &[&NAME],
            Some("AccountChange"),
            Success::Json("Account"),
        ),
        &[409],
    ),
    or(
        described(
            "POST",
            "/v1/accounts/{name}/credits",
            "Post credit, once a reference",
            &[&NAME],
            Some("NewCredit"),
            Success::CreatedOnce("Posted"),
        ),
        &[409],
    ),
    get(
        "/v1/accounts/{name}/credits",
        "Entries of credit, newest first",
        &[&NAME, &BEFORE_ENTRY, &LIMIT_1000],
        "Credits",
    ),
    described(
        "GET",
        "/v1/accounts/{name}/statement",
        "What happened to the balance on these days of UTC: it adds up to the last digit",
        &[&NAME, &FROM, &TO, &STATEMENT_FORMAT],
        None,
        Success::Statement,
    ),
    or(
        described(
            "POST",
            "/v1/accounts/{name}/keys",
            "Make a key: this answer alone has its text",
            &[&NAME],
            Some("NewKey"),
            Success::Created("CreatedKey"),
        ),
        &[409],
    ),
    get(
        "/v1/accounts/{name}/keys",
        "The account's keys, oldest first",
        &[&NAME],
        "Keys",
    ),
    get(
        "/v1/keys/{id}",
        "One key, whatever became of it, and what is spent of its limit",
        &[&KEY_ID],
        "KeyWithSpending",
    ),
    described(
        "PATCH",
        "/v1/keys/{id}",
        "Change what sets a key apart",
        &[&KEY_ID],
        Some("KeyChange"),
        Success::Json("Key"),
    ),
    described(
        "DELETE",
        "/v1/keys/{id}",
        "Revoke a key for good",
        &[&KEY_ID],
        None,
        Success::Json("Key"),
    ),
    or(
        described(
            "POST",
            "/v1/keys/{id}/rotate",
            "Make a key in the place of another: this answer alone has its text",
            &[&KEY_ID],
            Some("Rotation"),
            Success::Created("CreatedKey"),
        ),
        &[409],
    ),
    or(
        get(
            "/v1/usage",
            "What an account, or one of its keys, has used",
            &[&OF_ACCOUNT, &KEY, &PERIOD, &FROM, &TO, &GROUP_BY],
            "UsageSummary",
        ),
        &[404],
    ),
    or(
        get(
            "/v1/generations",
            "What calls of an account cost, newest first",
            &[&OF_ACCOUNT, &KEY, &MODEL, &CALL_ID, &BEFORE_CALL, &LIMIT_CALLS],
            "Calls",
        ),
        &[404],
    ),
    get("/v1/models", "Models on sale, with both prices", &[], "Models"),
    get(
        "/v1/providers",
        "Providers and the state of their targets",
        &[],
        "Providers",
    ),
    get(
        "/v1/settings",
        "Settings of the gateway that clients of this API need",
        &[],
        "Settings",
    ),
    get(
        "/v1/status",
        "The gateway's state, as its status page reads it",
        &[],
        "Status",
    ),
    get("/v1/maintenance", "Whether calls are refused", &[], "Maintenance"),
    described(
        "PUT",
        "/v1/maintenance",
        "Refuse calls with 503, or take them again",
        &[],
        Some("Maintenance"),
        Success::Json("Maintenance"),
    ),
    get(
        "/v1/webhooks",
        "Who is told of events, and how many wait to be told",
        &[],
        "Webhooks",
    ),
    or(
        described(
            "POST",
            "/v1/webhooks/test",
            "Send a webhook.test to one webhook, or to all",
            &[],
            Some("WebhookTest"),
            Success::Json("Raised"),
        ),
        &[404],
    ),
    get("/v1/audit", "Whether the books balance", &[], "Audit"),
    described(
        "POST",
        "/v1/repair",
        "Make counters what their entries say; balances are never changed",
        &[],
        None,
        Success::Json("Repaired"),
    ),
    described(
        "POST",
        "/v1/operators",
        "Make an operator: this answer alone has the token",
        &[],
        Some("NewOperator"),
        Success::Created("CreatedOperator"),
    ),
    get("/v1/operators", "Operators, oldest first", &[], "Operators"),
    get(
        "/v1/operators/{id}",
        "One operator, whatever became of it",
        &[&OPERATOR_ID],
        "Operator",
    ),
    described(
        "DELETE",
        "/v1/operators/{id}",
        "Revoke an operator's token for good",
        &[&OPERATOR_ID],
        None,
        Success::Json("Operator"),
    ),
    get(
        "/v1/log",
        "What was done by whom, newest first",
        &[&ACCOUNT, &BEFORE, &LIMIT_1000],
        "Acts",
    ),
    or(
        described(
            "POST",
            "/v1/commands",
            "A command of the ledger, as tollgate --operator gives it. It may change with the version: build on the other paths",
            &[],
            Some("Command"),
            Success::Json("CommandAnswer"),
        ),
        &[404],
    ),
    described(
        "POST",
        "/v1/session",
        "Sign in to the console: sets its cookie for 12 hours",
        &[],
        Some("SignIn"),
        Success::Created("Session"),
    ),
    get("/v1/session", "Who is signed in", &[], "Session"),
    or(
        described(
            "DELETE",
            "/v1/session",
            "Sign out of the console",
            &[],
            None,
            Success::Nothing,
        ),
        &[403],
    ),
    or(
        described(
            "POST",
            "/v1/hooks/stripe",
            "What Stripe tells of payments, with its signature in Stripe-Signature; where stripe is configured",
            &[],
            Some("StripeEvent"),
            Success::Json("StripeHeard"),
        ),
        &[404, 409],
    ),
    get("/v1/openapi.json", "This description", &[], "Description"),
];
