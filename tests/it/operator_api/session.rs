//! The console's session: what opens it, what it may, and what other pages try with it.

use reqwest::RequestBuilder;
use serde_json::{Value, json};
use tollgate::ledger::admin::AdminOp;
use tollgate::ledger::admin::operators::OperatorOp;
use tollgate::pure::operator::Role;

use super::{Desk, GROUNDS, Ground, Told, of, token_of, told};

/// A browser that is signed in.
struct Browser<'d> {
    desk: &'d Desk,
    cookie: String,
    csrf: String,
}

impl Desk {
    async fn sign_in(&self, token: &str) -> Told {
        let body = json!({ "token": token }).to_string();
        let request = self
            .request("POST", "/v1/session")
            .header("content-type", "application/json");
        told(request.body(body)).await
    }

    async fn browser(&self, role: Role) -> Browser<'_> {
        let opened = self.sign_in(&of(role)).await;
        let cookie = opened.header("set-cookie").to_owned();
        let csrf = opened.done(201)["csrf"].as_str().unwrap().to_owned();
        Browser {
            desk: self,
            cookie: cookie.split(';').next().unwrap().to_owned(),
            csrf,
        }
    }
}

impl Browser<'_> {
    fn request(&self, method: &str, path: &str) -> RequestBuilder {
        self.desk.request(method, path).header("cookie", &self.cookie)
    }

    /// What its page reads.
    fn reads(&self, path: &str) -> RequestBuilder {
        self.request("GET", path).header("x-csrf-token", &self.csrf)
    }

    fn writes(&self, method: &str, path: &str, body: Value) -> RequestBuilder {
        let request = self.request(method, path).header("content-type", "application/json");
        request.body(body.to_string())
    }
}

#[tokio::test]
async fn a_session_stands_for_a_token() {
    for ground in GROUNDS {
        let desk = Desk::over(ground).await;
        let opened = desk.sign_in(&of(Role::Support)).await;
        let cookie = opened.header("set-cookie").to_owned();
        let name = format!("tollgate-{}=", desk.address.port());
        assert!(cookie.starts_with(&name), "{cookie}");
        assert!(
            cookie.ends_with("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict"),
            "{cookie}"
        );
        assert!(!opened.text.contains("tgop_"), "{opened:?}");
        let browser = desk.browser(Role::Support).await;
        let session = told(browser.reads("/v1/session")).await.done(200);
        assert_eq!(session["csrf"], browser.csrf.as_str());
        assert_eq!(session["operator"]["role"], "support");
        assert_eq!(session["rights"], json!(["read", "suspend", "keys"]));
        // Who has the cookie alone, such as the server of another port of this host, has nothing.
        for path in ["/v1/session", "/v1/accounts"] {
            told(browser.request("GET", path)).await.error(403, "permission_error");
        }
        let made = browser.writes("POST", "/v1/accounts/acme/keys", json!({}));
        told(made.header("x-csrf-token", &browser.csrf)).await.done(201);
        let account = browser.writes("POST", "/v1/accounts", json!({ "name": "x", "tier": "free" }));
        told(account.header("x-csrf-token", &browser.csrf))
            .await
            .error(403, "permission_error");
        let closed = told(
            browser
                .request("DELETE", "/v1/session")
                .header("x-csrf-token", &browser.csrf),
        )
        .await;
        assert_eq!(closed.status, 204);
        assert!(closed.header("set-cookie").contains("Max-Age=0"), "{closed:?}");
        told(browser.request("GET", "/v1/session"))
            .await
            .error(401, "authentication_error");
    }
}

#[tokio::test]
async fn a_session_behind_a_proxy_with_tls_is_as_one_over_tls() {
    for is_trusted in [true, false] {
        let desk = Desk::with(Ground::Embedded, |conf| {
            if is_trusted {
                conf["trusted_proxies"] = json!(["127.0.0.0/8"]);
            }
        })
        .await;
        let proxied = |request: RequestBuilder| request.header("x-forwarded-proto", "https");
        let body = json!({ "token": of(Role::Read) }).to_string();
        let request = desk
            .request("POST", "/v1/session")
            .header("content-type", "application/json");
        let opened = told(proxied(request.body(body))).await;
        let cookie = opened.header("set-cookie");
        assert_eq!(cookie.starts_with("__Host-tollgate-"), is_trusted, "{cookie}");
        assert_eq!(cookie.ends_with("; Secure"), is_trusted, "{cookie}");
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let csrf = opened.done(201)["csrf"].as_str().unwrap().to_owned();
        let asked = desk.request("GET", "/v1/accounts").header("cookie", cookie);
        let asked = asked.header("x-csrf-token", csrf);
        assert_eq!(told(proxied(asked)).await.status, 200);
    }
}

#[tokio::test]
async fn a_session_ends_with_its_operator_and_with_its_time() {
    for ground in GROUNDS {
        let desk = Desk::over(ground).await;
        let token = token_of(60);
        let id = desk.make_operator(&token, Role::Admin, None).await;
        let opened = desk.sign_in(&token).await;
        let cookie = opened.header("set-cookie").split(';').next().unwrap().to_owned();
        let csrf = opened.done(201)["csrf"].as_str().unwrap().to_owned();
        let ask = async || {
            let asked = desk.request("GET", "/v1/accounts").header("cookie", &cookie);
            told(asked.header("x-csrf-token", &csrf)).await.status
        };
        assert_eq!(ask().await, 200);
        desk.gateway.run(AdminOp::Operator(OperatorOp::Revoke { id })).await;
        assert_eq!(ask().await, 401, "each request looks the operator up");
        let browser = desk.browser(Role::Read).await;
        desk.gateway.clock.advance(12 * 3_600_000 - 1);
        told(browser.reads("/v1/accounts")).await.done(200);
        desk.gateway.clock.advance(1);
        told(browser.reads("/v1/accounts"))
            .await
            .error(401, "authentication_error");
    }
}

#[tokio::test]
async fn other_pages_change_nothing_with_it() {
    let desk = Desk::over(Ground::Embedded).await;
    let browser = desk.browser(Role::Admin).await;
    let own = desk.address.to_string();
    let post = || browser.writes("POST", "/v1/accounts", json!({ "name": "forged", "tier": "free" }));
    let with = |pairs: &[(&'static str, String)]| {
        let pairs = pairs.iter();
        pairs.fold(post(), |request, (name, value)| request.header(*name, value))
    };
    let csrf = ("x-csrf-token", browser.csrf.clone());
    for forged in [
        vec![],
        vec![("x-csrf-token", String::new())],
        vec![("x-csrf-token", "0".repeat(64))],
        vec![("x-csrf-token", browser.csrf[1..].to_owned())],
        vec![csrf.clone(), ("origin", "http://evil.example".to_owned())],
        vec![csrf.clone(), ("origin", "null".to_owned())],
        vec![csrf.clone(), ("sec-fetch-site", "cross-site".to_owned())],
        vec![csrf.clone(), ("sec-fetch-site", "same-site".to_owned())],
    ] {
        let answer = told(with(&forged)).await;
        answer.error(403, "permission_error");
        assert_eq!(answer.header("access-control-allow-origin"), "", "no CORS");
    }
    // A form cannot send JSON; what it can send is not read.
    let form = browser
        .request("POST", "/v1/accounts")
        .header("x-csrf-token", &browser.csrf);
    let form = form
        .header("content-type", "text/plain")
        .body(r#"{"name":"forged","tier":"free"}"#);
    told(form).await.error(415, "invalid_request_error");
    // Nobody is signed in by another page either.
    let sign_in = desk
        .request("POST", "/v1/session")
        .header("content-type", "application/json");
    let sign_in = sign_in.header("origin", "http://evil.example");
    let sign_in = sign_in.body(json!({ "token": of(Role::Admin) }).to_string());
    told(sign_in).await.error(403, "permission_error");
    let nobody = desk.admin("GET", "/v1/accounts/forged", Value::Null).await;
    nobody.error(404, "not_found_error");
    let own_page = [
        csrf,
        ("origin", format!("http://{own}")),
        ("sec-fetch-site", "same-origin".to_owned()),
    ];
    told(with(&own_page)).await.done(201);
}

#[tokio::test]
async fn a_session_of_nobody_is_none() {
    let desk = Desk::over(Ground::Embedded).await;
    for token in [desk.gateway.key.clone(), token_of(99), "x".to_owned(), String::new()] {
        desk.sign_in(&token).await.error(401, "authentication_error");
    }
    let forged = desk
        .request("GET", "/v1/session")
        .header("cookie", format!("tollgate-{}={}", desk.address.port(), "0".repeat(64)));
    told(forged).await.error(401, "authentication_error");
    let preflight = told(
        desk.request("OPTIONS", "/v1/session")
            .header("origin", "http://evil.example"),
    )
    .await;
    assert_eq!(
        (preflight.status, preflight.header("allow")),
        (204, "POST, GET, HEAD, DELETE, OPTIONS")
    );
    assert!(
        preflight
            .headers
            .keys()
            .all(|name| !name.as_str().starts_with("access-control"))
    );
}
