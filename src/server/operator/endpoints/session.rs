//! The console's session: a token is shown once, and a cookie that scripts cannot read stands for it.

use http::header;
use serde::{Deserialize, Serialize};

use crate::ledger::admin::operators::OperatorRecord;
use crate::pure::error::ApiError;
use crate::pure::error::operator::OperatorError;
use crate::pure::operator::Right;
use crate::server::operator::answer::Answer;
use crate::server::operator::auth::{self, cookie_name};
use crate::server::operator::call::Call;
use crate::server::operator::sessions::SESSION_SECONDS;
use crate::server::operator::shown::OperatorShown;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignIn {
    token: String,
}

#[derive(Serialize)]
struct SessionShown {
    /// For `X-CSRF-Token`; null where the request brought a token and not the cookie.
    csrf: Option<String>,
    operator: OperatorShown,
    rights: Vec<Right>,
    currency: String,
}

fn shown(call: &Call<'_>, operator: OperatorRecord, csrf: Option<String>) -> SessionShown {
    SessionShown {
        csrf,
        rights: Right::ALL
            .into_iter()
            .filter(|right| operator.role.may(*right))
            .collect(),
        operator: OperatorShown::of(operator, call.api.ledger().now()),
        currency: call.snapshot.config.currency.clone(),
    }
}

/// Another page must not sign somebody in either: they would work in another's name.
pub(in crate::server::operator) async fn open(call: &Call<'_>) -> Result<Answer, OperatorError> {
    auth::check_origin(call.headers)?;
    let SignIn { token } = call.json().map_err(|error| failed(call, error))?;
    let (digest, operator) = auth::of_token(call.api, Some(token.trim()), call.address).await?;
    let opened = call.api.sessions.open(digest, call.api.clock().passed_ms());
    let (id, csrf) = opened.map_err(|error| {
        log::error!("the operating system gives no random numbers: {error}");
        OperatorError::Api(ApiError::Internal)
    })?;
    call.under_way.opened(&id);
    let answer = Answer::json(&shown(call, operator, Some(csrf))).created("/v1/session");
    Ok(answer.with(header::SET_COOKIE, &cookie(call, &id, SESSION_SECONDS)))
}

/// A body that cannot be read is a failure like a wrong token.
fn failed(call: &Call<'_>, error: OperatorError) -> OperatorError {
    let most = call.snapshot.config.auth_failures_per_minute;
    match call.api.throttle.failed(Some(call.address), most) {
        limited @ ApiError::RateLimited { .. } => limited.into(),
        _ => error,
    }
}

pub(in crate::server::operator) async fn show(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let known = call.known()?;
    Ok(Answer::json(&shown(call, known.operator.clone(), known.csrf.clone())))
}

pub(in crate::server::operator) async fn close(call: &Call<'_>) -> Result<Answer, OperatorError> {
    if let Some(id) = auth::session_id(call.headers, call.is_tls) {
        call.api.sessions.close(id);
    }
    Ok(Answer::nothing().with(header::SET_COOKIE, &cookie(call, "", 0)))
}

fn cookie(call: &Call<'_>, id: &str, seconds: i64) -> String {
    let secure = if call.is_tls { "; Secure" } else { "" };
    let name = cookie_name(call.headers, call.is_tls);
    format!("{name}={id}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}
