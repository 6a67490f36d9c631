//! What strangers can do to the listener: open connections, wrong tokens; and TLS.

use serde_json::{Value, json};
use tollgate::pure::operator::Role;
use tollgate::server::reload::Reloaded;

use super::{Desk, GROUNDS, Ground, of, token_of, told};
use crate::harness::Raw;
use crate::harness::tls::Authority;

/// More than the listener has at once.
const HALF_OPEN: usize = 80;

#[tokio::test]
async fn connections_that_ask_nothing_keep_no_operator_from_an_answer() {
    let desk = Desk::over(Ground::Embedded).await;
    let mut half_open = Vec::new();
    for number in 0..HALF_OPEN {
        let mut raw = Raw::connect(desk.address).await;
        match number % 3 {
            0 => raw.send("GET /v1/accounts HTTP/1.1\r\nhost: x\r\nx-slow: ").await,
            1 => {
                raw.send("POST /v1/session HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{")
                    .await;
            }
            _ => {}
        }
        half_open.push(raw);
        if number % 20 == 19 {
            desk.get("/v1/accounts").await;
        }
    }
    desk.get("/v1/accounts").await;
    assert!(half_open[0].is_closed(), "the one that was quiet for longest made room");
}

#[tokio::test]
async fn who_fails_too_often_waits_and_others_do_not() {
    for ground in GROUNDS {
        let desk = Desk::with(ground, |conf| {
            conf["auth_failures_per_minute"] = 5.into();
            conf["trusted_proxies"] = json!(["127.0.0.0/8"]);
        })
        .await;
        let from = async |address: &str, token: &str| {
            let request = desk.request("GET", "/v1/accounts").bearer_auth(token);
            told(request.header("x-forwarded-for", address)).await
        };
        assert_eq!(from("203.0.113.1", &of(Role::Read)).await.status, 200);
        for number in 93..98 {
            from("203.0.113.1", &token_of(number))
                .await
                .error(401, "authentication_error");
        }
        let limited = from("203.0.113.1", &token_of(98)).await;
        limited.error(429, "rate_limit_error");
        let wait = limited.header("retry-after").parse::<u64>();
        assert!(wait.is_ok_and(|secs| (1..=60).contains(&secs)));
        // A token that was good goes on being looked up; a guesser's right guess is not, and who guesses at the sign-in neither.
        assert_eq!(from("203.0.113.1", &of(Role::Read)).await.status, 200);
        assert_eq!(from("203.0.113.1", &of(Role::Admin)).await.status, 429);
        let sign_in = desk
            .request("POST", "/v1/session")
            .header("content-type", "application/json");
        let sign_in = sign_in.header("x-forwarded-for", "203.0.113.1");
        let body = json!({ "token": of(Role::Admin) }).to_string();
        assert_eq!(told(sign_in.body(body)).await.status, 429);
        assert_eq!(from("203.0.113.2", &of(Role::Admin)).await.status, 200);
        // Clients' keys are counted apart.
        assert_eq!(desk.gateway.http1.get("/llm/balance").await.status, 200);
    }
}

/// What goes on with a token that was revoked guesses nothing: it kept every operator of its address out whose token was not used since the
/// gateway's start.
#[tokio::test]
async fn who_goes_on_with_a_dead_token_keeps_no_good_one_of_its_address_out() {
    for ground in GROUNDS {
        let desk = Desk::with(ground, |conf| conf["auth_failures_per_minute"] = 3.into()).await;
        let status = async |token: &str| {
            let request = desk.request("GET", "/v1/accounts").bearer_auth(token);
            told(request).await.status
        };
        for _ in 0..10 {
            for dead in [token_of(99).as_str(), "tgop_cut"] {
                assert!([401, 429].contains(&status(dead).await));
            }
        }
        assert_eq!(status(&token_of(99)).await, 429);
        assert_eq!(status(&of(Role::Admin)).await, 200);
    }
}

#[tokio::test]
async fn who_signs_in_with_what_cannot_be_read_fails_too() {
    let desk = Desk::with(Ground::Embedded, |conf| conf["auth_failures_per_minute"] = 2.into()).await;
    let path = format!("/v1/accounts?{}=1", "limi".repeat(900));
    let message = desk.admin("GET", &path, Value::Null).await;
    let message = message.error(400, "invalid_request_error");
    assert!(message.len() < 200, "{message}");
    let sign_in = async |body: String| {
        let request = desk
            .request("POST", "/v1/session")
            .header("content-type", "application/json");
        told(request.body(body)).await
    };
    let long = format!(r#"{{"token":"{}"}}"#, "x".repeat(4096));
    sign_in(long).await.error(413, "invalid_request_error");
    let unknown = format!(r#"{{"{}":1}}"#, "toke".repeat(900));
    let message = sign_in(unknown).await.error(400, "invalid_request_error");
    assert!(message.len() < 200, "{message}");
    sign_in("{}".to_owned()).await.error(400, "invalid_request_error");
    sign_in("{}".to_owned()).await.error(429, "rate_limit_error");
}

#[tokio::test]
async fn the_listener_speaks_tls() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let (certificate, key) = authority.pem_of("localhost");
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("cert.pem"), certificate).unwrap();
    std::fs::write(path("key.pem"), key).unwrap();
    let mut desk = Desk::with(Ground::Embedded, |conf| {
        conf["operator_listen"] = "127.0.0.1:0".into();
        conf["operator_tls"] = json!({ "cert": path("cert.pem"), "key": path("key.pem") });
    })
    .await;
    let get = "GET /v1/session HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    let mut tls = crate::listener_tls::connect(desk.address, &authority, &["h2", "http/1.1"])
        .await
        .unwrap();
    assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let asked = format!("{get}authorization: Bearer {}\r\n\r\n", of(Role::Read));
    let answer = crate::listener_tls::exchange(&mut tls, &asked).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let body = json!({ "token": of(Role::Read) }).to_string();
    let mut tls = crate::listener_tls::connect(desk.address, &authority, &["http/1.1"])
        .await
        .unwrap();
    let length = body.len();
    let sign_in = format!(
        "POST /v1/session HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    let answer = crate::listener_tls::exchange(&mut tls, &sign_in).await;
    assert!(answer.contains("Set-Cookie: __Host-tollgate="), "{answer}");
    assert!(answer.contains("; HttpOnly; SameSite=Strict; Secure\r\n"), "{answer}");
    // In clear text there is nothing.
    let plain = desk.request("GET", "/v1/session").send().await;
    assert!(plain.is_err(), "{plain:?}");
    assert_eq!(
        desk.gateway.http1.get("/llm/health").await.json(),
        json!({ "status": "ok" }) as Value
    );
    // Only a start switches it off, or the listener itself: tokens must not come in clear text until then.
    let mut conf: Value = serde_json::from_str(&desk.gateway.conf_text()).unwrap();
    for key in ["operator_tls", "operator_listen"] {
        conf.as_object_mut().unwrap().remove(key).unwrap();
        desk.gateway.write_conf(&conf.to_string());
        assert!(matches!(desk.gateway.check_files(), Reloaded::Changed));
        let mut tls = crate::listener_tls::connect(desk.address, &authority, &["http/1.1"])
            .await
            .unwrap();
        let answer = crate::listener_tls::exchange(&mut tls, &asked).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{key}: {answer}");
    }
}
