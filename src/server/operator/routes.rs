//! The one table of the operator's API: path, method, who may, what the body is, what answers. `openapi` describes each of them.
//!
//! A new path is a line here, a function in `endpoints` (or in another room of the server: a page, a hook), and its description.

use std::future::ready;

use http::Method;

use super::answer::Answer;
use super::endpoints::{
    accounts, books, commands, credits, gateway, keys, operators, pages, session, statement, stripe, usage,
};
use super::fields::KeyName;
use super::openapi;
use super::route::{Needs, Route, Takes, delete, get, page, patch, post, route};
use crate::gateway::media_type::JSON;
use crate::pure::error::operator::OperatorError;
use crate::pure::ids::AccountId;
use crate::pure::operator::{Right, is_operator_id};

/// All there is.
pub(super) const ROUTES: &[Route] = &[
    post("/v1/accounts", MANAGE, |call| Box::pin(accounts::create(call))),
    get("/v1/accounts", |call| Box::pin(accounts::list(call))),
    get("/v1/accounts/{name}", |call| Box::pin(accounts::show(call))),
    patch(
        "/v1/accounts/{name}",
        Needs::OneOf(&[Right::Suspend, Right::Manage]),
        |call| Box::pin(accounts::change(call)),
    ),
    post("/v1/accounts/{name}/credits", CREDIT, |call| {
        Box::pin(credits::post(call))
    }),
    get("/v1/accounts/{name}/credits", |call| Box::pin(credits::list(call))),
    get("/v1/accounts/{name}/statement", |call| Box::pin(statement::show(call))),
    post("/v1/accounts/{name}/keys", KEYS, |call| Box::pin(keys::create(call))),
    get("/v1/accounts/{name}/keys", |call| Box::pin(keys::list(call))),
    get("/v1/keys/{id}", |call| Box::pin(keys::show(call))),
    patch("/v1/keys/{id}", KEYS, |call| Box::pin(keys::change(call))),
    delete("/v1/keys/{id}", KEYS, |call| Box::pin(keys::revoke(call))),
    post("/v1/keys/{id}/rotate", KEYS, |call| Box::pin(keys::rotate(call))),
    get("/v1/usage", |call| Box::pin(usage::usage(call))),
    get("/v1/generations", |call| Box::pin(usage::generations(call))),
    get("/v1/models", |call| Box::pin(gateway::models(call))),
    get("/v1/providers", |call| Box::pin(gateway::providers(call))),
    get("/v1/settings", |call| Box::pin(gateway::settings(call))),
    get("/v1/status", |call| Box::pin(gateway::status(call))),
    get("/v1/maintenance", |call| Box::pin(gateway::maintenance(call))),
    route(Method::PUT, "/v1/maintenance", MANAGE, Takes::Json, |call| {
        Box::pin(gateway::set_maintenance(call))
    }),
    get("/v1/webhooks", |call| Box::pin(gateway::webhooks(call))),
    post("/v1/webhooks/test", MANAGE, |call| {
        Box::pin(gateway::test_webhook(call))
    }),
    get("/v1/audit", |call| Box::pin(books::audit(call))),
    route(Method::POST, "/v1/repair", MANAGE, Takes::Nothing, |call| {
        Box::pin(books::repair(call))
    }),
    post("/v1/operators", MANAGE, |call| Box::pin(operators::create(call))),
    route(Method::GET, "/v1/operators", MANAGE, Takes::Nothing, |call| {
        Box::pin(operators::list(call))
    }),
    route(Method::GET, "/v1/operators/{id}", MANAGE, Takes::Nothing, |call| {
        Box::pin(operators::show(call))
    }),
    delete("/v1/operators/{id}", MANAGE, |call| Box::pin(operators::revoke(call))),
    get("/v1/log", |call| Box::pin(operators::log(call))),
    post("/v1/commands", Needs::Operator, |call| Box::pin(commands::run(call))),
    route(Method::POST, "/v1/session", Needs::Nobody, Takes::ShortJson, |call| {
        Box::pin(session::open(call))
    }),
    get("/v1/session", |call| Box::pin(session::show(call))),
    delete("/v1/session", Needs::Operator, |call| Box::pin(session::close(call))),
    post("/v1/hooks/stripe", Needs::Nobody, |call| Box::pin(stripe::hear(call))),
    get("/v1/openapi.json", |_| Box::pin(ready(description()))),
    page("/", |_| Box::pin(pages::console())),
    page("/console/{file}", |call| Box::pin(pages::file(call))),
];

const MANAGE: Needs = Needs::OneOf(&[Right::Manage]);
const CREDIT: Needs = Needs::OneOf(&[Right::Credit]);
const KEYS: Needs = Needs::OneOf(&[Right::Keys]);

fn description() -> Result<Answer, OperatorError> {
    Ok(Answer::body(JSON, openapi::document(ROUTES)))
}

/// What lies at a path.
pub(super) struct Found {
    routes: Vec<&'static Route>,
    /// What stands in the places of the path's names.
    names: Vec<String>,
}

/// What lies at `path`, if anything does.
pub(super) fn at(path: &str) -> Option<Found> {
    let mut found: Option<Found> = None;
    for route in ROUTES {
        if let Some(names) = names(route.path, path) {
            found
                .get_or_insert_with(|| Found {
                    routes: Vec::new(),
                    names,
                })
                .routes
                .push(route);
        }
    }
    found
}

impl Found {
    /// The methods of the path, for `Allow`.
    pub(super) fn allow(&self) -> String {
        let mut methods: Vec<&str> = Vec::new();
        for route in &self.routes {
            methods.push(route.method.as_str());
            if route.method == Method::GET {
                methods.push("HEAD");
            }
        }
        methods.push("OPTIONS");
        methods.join(", ")
    }

    /// The route of a method, with what stands in the places of the path's names.
    ///
    /// # Errors
    /// 405 with what is allowed.
    pub(super) fn with_method(self, method: &Method) -> Result<(&'static Route, Vec<String>), OperatorError> {
        let wanted = if *method == Method::HEAD { &Method::GET } else { method };
        match self.routes.iter().find(|route| route.method == *wanted) {
            Some(route) => Ok((*route, self.names)),
            None => Err(OperatorError::MethodNotAllowed { allow: self.allow() }),
        }
    }
}

/// A path as logs have it: the pattern, with the ids that it names. What is none may be a key's text in the wrong place.
pub(super) fn told(path: &str) -> String {
    let Some((route, names)) = ROUTES.iter().find_map(|route| Some((route, names(route.path, path)?))) else {
        return "(no such path)".to_owned();
    };
    let mut names = names.into_iter();
    let part = |wanted: &'static str| {
        let name = if wanted.starts_with('{') { names.next() } else { None };
        let is_good = |name: &String| match wanted {
            "{name}" => name.parse::<AccountId>().is_ok(),
            "{id}" => name.parse::<KeyName>().is_ok() || is_operator_id(name),
            _ => false,
        };
        name.filter(is_good).unwrap_or_else(|| wanted.to_owned())
    };
    route.path.split('/').map(part).collect::<Vec<_>>().join("/")
}

/// What stands in the places of a pattern's names; none when the path is another.
fn names(pattern: &str, path: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let (mut parts, mut wanted) = (path.split('/'), pattern.split('/'));
    loop {
        match (parts.next(), wanted.next()) {
            (None, None) => return Some(names),
            (Some(part), Some(wanted)) if wanted.starts_with('{') => {
                let name = percent_encoding::percent_decode_str(part).decode_utf8().ok()?;
                names.push(Some(name.into_owned()).filter(|name| !name.is_empty())?);
            }
            (Some(part), Some(wanted)) if part == wanted => {}
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_methods() {
        let allow = |path: &str| at(path).map(|found| found.allow());
        assert_eq!(allow("/v1/accounts").as_deref(), Some("POST, GET, HEAD, OPTIONS"));
        assert_eq!(
            allow("/v1/keys/x").as_deref(),
            Some("GET, HEAD, PATCH, DELETE, OPTIONS")
        );
        for nowhere in [
            "/v1",
            "/v1/",
            "/v1/accounts/",
            "/v1/accounts//keys",
            "/v1/keys/x/",
            "/v2/accounts",
            "/v1/keys",
        ] {
            assert_eq!(allow(nowhere), None, "{nowhere}");
        }
        let (route, names) = at("/v1/accounts/a%40b/keys")
            .unwrap()
            .with_method(&Method::HEAD)
            .unwrap();
        assert_eq!(
            (route.path, names),
            ("/v1/accounts/{name}/keys", vec!["a@b".to_owned()])
        );
        assert!(at("/v1/keys/x").unwrap().with_method(&Method::PUT).is_err());
        assert!(at("/v1/keys/x/rotate").unwrap().with_method(&Method::GET).is_err());
        assert!(at("/v1/accounts/%ff").is_none());
    }

    #[test]
    fn a_key_in_a_path_is_not_logged() {
        let key = crate::pure::ids::ApiKey::from_random("tg_", [7; 32]);
        let key = key.reveal();
        for (path, logged) in [
            (format!("/v1/keys/{key}"), "/v1/keys/{id}"),
            (format!("/v1/keys/{key}/rotate"), "/v1/keys/{id}/rotate"),
            (format!("/v1/accounts/{key}/keys"), "/v1/accounts/{name}/keys"),
            (format!("/v1/{key}"), "(no such path)"),
            ("/v1/keys/%1b%5b2J".to_owned(), "/v1/keys/{id}"),
            (
                "/v1/keys/key_0123456789abcdef/rotate".to_owned(),
                "/v1/keys/key_0123456789abcdef/rotate",
            ),
            (
                "/v1/operators/op_0123456789abcdef".to_owned(),
                "/v1/operators/op_0123456789abcdef",
            ),
            ("/v1/accounts/a%40b".to_owned(), "/v1/accounts/a@b"),
            ("/v1/status".to_owned(), "/v1/status"),
        ] {
            assert_eq!(told(&path), logged, "{path}");
        }
    }

    #[test]
    fn only_the_session_and_what_is_signed_is_open_without_an_operator() {
        let open: Vec<&str> = ROUTES
            .iter()
            .filter(|route| route.needs == Needs::Nobody && route.path.starts_with("/v1"))
            .map(|route| route.path)
            .collect();
        assert_eq!(open, ["/v1/session", "/v1/hooks/stripe"]);
    }
}
