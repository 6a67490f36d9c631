//! Who asks: an operator by their token, or by a session of the console that was opened with one. Each request looks the operator up, and
//! once more when its body is there.

use std::net::IpAddr;

use http::header::{self, HeaderMap, HeaderName};
use http::uri::Authority;

use super::sessions::Session;
use super::state::OperatorApi;
use crate::gateway::access::auth_throttle::KeyCheck;
use crate::ledger::admin::operators::{OperatorOp, OperatorRecord};
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::pure::error::operator::OperatorError;
use crate::pure::error::{ApiError, KeyFault};
use crate::pure::ids::KeyDigest;
use crate::pure::operator::digest_of_token;

/// What a request shows of who asks.
enum Credentials<'h> {
    /// A token's text; none when that is no text.
    Token(Option<&'h str>),
    /// A session's id.
    Session(&'h str),
}

/// An operator who was found.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) operator: OperatorRecord,
    /// The CSRF token of the session, when it is by one.
    pub(super) csrf: Option<String>,
}

/// What a check needs to know of a request beside its headers.
#[derive(Clone, Copy)]
pub(super) struct Asking {
    pub(super) address: IpAddr,
    /// Whether it came over TLS.
    pub(super) is_tls: bool,
}

/// The operator who asks.
///
/// # Errors
/// 401; 403 for a session's request that may be another page's; 429 when the address has failed too often; 503 when the ledger cannot say.
pub(super) async fn operator(api: &OperatorApi, headers: &HeaderMap, asking: Asking) -> Result<Known, OperatorError> {
    match credentials(headers, asking.is_tls).ok_or(OperatorError::Unauthenticated(KeyFault::Missing))? {
        Credentials::Token(text) => {
            let (_, operator) = of_token(api, text, asking.address).await?;
            Ok(Known { operator, csrf: None })
        }
        Credentials::Session(id) => of_session(api, id, headers).await,
    }
}

/// The operator of a token, with the token's digest. A malformed one is refused before the ledger is asked, and so is one from an address
/// that has guessed too often, unless it was good before.
///
/// # Errors
/// As [`operator`].
pub(super) async fn of_token(
    api: &OperatorApi,
    text: Option<&str>,
    address: IpAddr,
) -> Result<(KeyDigest, OperatorRecord), OperatorError> {
    let (throttle, most) = (&api.throttle, api.snapshot().config.auth_failures_per_minute);
    let failed = || OperatorError::from(throttle.failed(Some(address), most));
    let Some(digest) = text.and_then(digest_of_token) else {
        return Err(failed());
    };
    let now = api.clock().now();
    match throttle.check(&digest, Some(address), most, now) {
        KeyCheck::Ask => {}
        KeyCheck::Unknown => return Err(failed()),
        KeyCheck::Limited => return Err(throttle.limited(most).into()),
    }
    match find(api, &digest).await? {
        Found::Good(operator) => {
            throttle.note_opened(&digest);
            Ok((digest, operator))
        }
        Found::Ended => {
            throttle.note_ended(&digest, now);
            Err(failed())
        }
        Found::Nobody => {
            throttle.note_unknown(&digest, Some(address), now);
            Err(failed())
        }
    }
}

async fn of_session(api: &OperatorApi, id: &str, headers: &HeaderMap) -> Result<Known, OperatorError> {
    let over = OperatorError::Unauthenticated(KeyFault::Invalid);
    let Some(session) = api.sessions.find(id, api.clock().passed_ms()) else {
        return Err(over);
    };
    check_origin(headers)?;
    // To read, too: the cookie goes to whoever serves another port of this host.
    if !brings_csrf(headers, &session) {
        return Err(OperatorError::Foreign);
    }
    match find(api, &session.token).await? {
        Found::Good(operator) => Ok(Known {
            operator,
            csrf: Some(session.csrf),
        }),
        Found::Ended | Found::Nobody => {
            api.sessions.close(id);
            Err(over)
        }
    }
}

enum Found {
    Good(OperatorRecord),
    /// Revoked or expired.
    Ended,
    Nobody,
}

async fn find(api: &OperatorApi, digest: &KeyDigest) -> Result<Found, OperatorError> {
    let digest = digest.to_hex();
    let asked = api.run(AdminOp::Operator(OperatorOp::Find { digest })).await;
    let operators = match asked {
        Ok(AdminReply::Operators { operators }) => operators,
        Ok(_) => return Err(super::answer::wrong_reply()),
        Err(error) => return Err(unavailable(&error)),
    };
    let Some(operator) = operators.into_iter().next() else {
        return Ok(Found::Nobody);
    };
    let is_good = operator.is_good(api.ledger().now());
    Ok(if is_good { Found::Good(operator) } else { Found::Ended })
}

/// The ledger cannot say who it is: never "allowed".
fn unavailable(error: &AdminError) -> OperatorError {
    log::warn!("refused an operator: {error}");
    OperatorError::Api(ApiError::LEDGER_UNREACHABLE)
}

/// An `Authorization` header counts before a cookie.
fn credentials(headers: &HeaderMap, is_tls: bool) -> Option<Credentials<'_>> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    match (values.next(), values.next()) {
        (None, _) => session_id(headers, is_tls).map(Credentials::Session),
        (Some(value), None) => match value.to_str() {
            Ok(text) => {
                let (scheme, token) = text.split_once(' ')?;
                let is_bearer = scheme.eq_ignore_ascii_case("bearer");
                is_bearer.then_some(Credentials::Token(Some(token.trim())))
            }
            Err(_) => Some(Credentials::Token(None)),
        },
        (Some(_), Some(_)) => None,
    }
}

/// The id of the console's session in the request's cookies; of two none, for one of them is somebody else's.
pub(super) fn session_id(headers: &HeaderMap, is_tls: bool) -> Option<&str> {
    let name = cookie_name(headers, is_tls);
    let lines = headers.get_all(header::COOKIE).iter();
    let pairs = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'));
    let mut ids = pairs.filter_map(|pair| pair.trim().strip_prefix(name.as_str())?.strip_prefix('='));
    match (ids.next(), ids.next()) {
        (Some(id), None) => Some(id),
        _ => None,
    }
}

/// The cookie's name, with the port that was asked: browsers send it to all ports of a host, where another gateway may have its own. They take the one
/// over TLS only with `Secure`, from this host alone.
pub(super) fn cookie_name(headers: &HeaderMap, is_tls: bool) -> String {
    let name = if is_tls { "__Host-tollgate" } else { "tollgate" };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let port = host.and_then(|host| host.parse::<Authority>().ok()?.port_u16());
    port.map_or_else(|| name.to_owned(), |port| format!("{name}-{port}"))
}

/// Whether a request that a browser sends is from a page of this listener: what it says of it must be so, where it says anything.
///
/// # Errors
/// 403 when it is not.
pub(super) fn check_origin(headers: &HeaderMap) -> Result<(), OperatorError> {
    let text = |name: &HeaderName| {
        let mut values = headers.get_all(name).iter();
        let value = values.next()?;
        // Of several, another server may read another one.
        let is_one = values.next().is_none();
        Some(value.to_str().ok().filter(|_| is_one).unwrap_or("unreadable"))
    };
    let is_near = text(&FETCH_SITE).is_none_or(|site| ["same-origin", "none"].contains(&site));
    let is_own = text(&header::ORIGIN).is_none_or(|origin| {
        let host = origin.split_once("://").map(|(_, host)| host);
        host.is_some() && host == text(&header::HOST)
    });
    if is_near && is_own {
        Ok(())
    } else {
        Err(OperatorError::Foreign)
    }
}

fn brings_csrf(headers: &HeaderMap, session: &Session) -> bool {
    let brought = headers.get(CSRF).map(|value| value.as_bytes()).unwrap_or_default();
    let expected = session.csrf.as_bytes();
    // Every byte is looked at, so that the time tells nothing of where they differ.
    let pairs = brought.iter().zip(expected);
    brought.len() == expected.len() && pairs.fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

const CSRF: HeaderName = HeaderName::from_static("x-csrf-token");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| (HeaderName::from_static(name), value.parse().unwrap());
        let mut headers = HeaderMap::new();
        for (name, value) in pairs.iter().map(pair) {
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn a_page_of_another_origin_is_told_apart() {
        for (pairs, is_own) in [
            (&[][..], true),
            (&[("sec-fetch-site", "same-origin")], true),
            (&[("sec-fetch-site", "none")], true),
            (&[("sec-fetch-site", "same-site")], false),
            (&[("sec-fetch-site", "cross-site")], false),
            (&[("origin", "http://127.0.0.1:9091"), ("host", "127.0.0.1:9091")], true),
            (&[("origin", "https://gw.example"), ("host", "gw.example")], true),
            (
                &[("origin", "http://127.0.0.1:8080"), ("host", "127.0.0.1:9091")],
                false,
            ),
            (&[("origin", "http://evil.example"), ("host", "127.0.0.1:9091")], false),
            (&[("origin", "null"), ("host", "127.0.0.1:9091")], false),
            (&[("origin", "http://127.0.0.1:9091")], false),
            (&[("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")], false),
            (
                &[
                    ("origin", "http://127.0.0.1:9091"),
                    ("origin", "http://evil.example"),
                    ("host", "127.0.0.1:9091"),
                ],
                false,
            ),
        ] {
            assert_eq!(check_origin(&headers(pairs)).is_ok(), is_own, "{pairs:?}");
        }
    }

    #[test]
    fn a_session_is_read_from_its_own_cookie_alone() {
        for (pairs, is_tls, expected) in [
            (&[("cookie", "tollgate=abc")][..], false, Some("abc")),
            (&[("cookie", "a=b; tollgate=abc;c=d")], false, Some("abc")),
            (&[("cookie", "a=b"), ("cookie", "tollgate=abc")], false, Some("abc")),
            (&[("cookie", "tollgate=abc; tollgate=def")], false, None),
            (&[("cookie", "tollgate=abc")], true, None),
            (&[("cookie", "__Host-tollgate=abc; tollgate=def")], true, Some("abc")),
            (&[("cookie", "xtollgate=abc; tollgate-x=1")], false, None),
            (
                &[
                    ("host", "a:9091"),
                    ("cookie", "tollgate=a; tollgate-9091=b; tollgate-9092=c"),
                ],
                false,
                Some("b"),
            ),
            (
                &[("host", "[::1]:9091"), ("cookie", "__Host-tollgate-9091=b")],
                true,
                Some("b"),
            ),
            (&[("host", "a"), ("cookie", "tollgate-80=a")], false, None),
            (&[], false, None),
        ] {
            assert_eq!(session_id(&headers(pairs), is_tls), expected, "{pairs:?}");
        }
    }
}
