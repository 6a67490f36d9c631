//! An operator who is one no more, while the body of their request is on its way.

use serde_json::{Value, json};
use tollgate::ledger::admin::AdminOp;
use tollgate::ledger::admin::operators::OperatorOp;
use tollgate::pure::operator::Role;

use super::{Desk, GROUNDS, of, token_of, told};
use crate::harness::{Answer, Raw};

/// A request to make another administrator, whose body is there but for its last byte.
struct Begun(Raw);

const BODY: &str = r#"{"name":"another","role":"admin"}"#;

impl Begun {
    /// It is known who asks once this returns: the body is asked for then.
    async fn by(desk: &Desk, credentials: &str) -> Begun {
        let mut raw = Raw::connect(desk.address).await;
        let (length, host) = (BODY.len(), desk.address);
        raw.send(format!(
            "POST /v1/operators HTTP/1.1\r\nhost: {host}\r\n{credentials}\r\ncontent-type: application/json\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
        ))
        .await;
        assert_eq!(raw.head().await.status, 100);
        raw.send(&BODY[..length - 1]).await;
        Begun(raw)
    }

    async fn ends(mut self) -> Answer {
        self.0.send(&BODY[BODY.len() - 1..]).await;
        self.0.answer().await
    }
}

impl Desk {
    /// Nobody is made by a request that ends now.
    async fn refuses(&self, begun: Begun) {
        let count = async || self.get("/v1/operators").await["data"].as_array().unwrap().len();
        let before = count().await;
        let answer = begun.ends().await;
        let body = answer.json();
        assert_eq!(
            (answer.status, &body["error"]["type"]),
            (401, &json!("authentication_error"))
        );
        assert_eq!(count().await, before);
    }
}

#[tokio::test]
async fn whoever_is_revoked_or_signs_out_while_their_request_comes_acts_no_more() {
    for ground in GROUNDS {
        let desk = Desk::over(ground).await;
        let bearer = |token: &str| format!("authorization: Bearer {token}");
        let good = Begun::by(&desk, &bearer(&of(Role::Admin))).await;
        assert_eq!(good.ends().await.status, 201);

        let id = desk.make_operator(&token_of(50), Role::Admin, None).await;
        let begun = Begun::by(&desk, &bearer(&token_of(50))).await;
        desk.gateway.run(AdminOp::Operator(OperatorOp::Revoke { id })).await;
        desk.refuses(begun).await;

        desk.make_operator(&token_of(51), Role::Admin, Some(1_000)).await;
        let begun = Begun::by(&desk, &bearer(&token_of(51))).await;
        desk.gateway.clock.advance(1_000);
        desk.refuses(begun).await;

        let body = json!({ "token": of(Role::Admin) }).to_string();
        let sign_in = desk
            .request("POST", "/v1/session")
            .header("content-type", "application/json");
        let opened = told(sign_in.body(body)).await;
        let cookie = opened.header("set-cookie").split(';').next().unwrap().to_owned();
        let opened: Value = opened.done(201);
        let csrf = opened["csrf"].as_str().unwrap();
        let begun = Begun::by(&desk, &format!("cookie: {cookie}\r\nx-csrf-token: {csrf}")).await;
        let sign_out = desk.request("DELETE", "/v1/session").header("cookie", &cookie);
        assert_eq!(told(sign_out.header("x-csrf-token", csrf)).await.status, 204);
        desk.refuses(begun).await;
    }
}
