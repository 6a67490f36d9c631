//! The description of the operator's API in OpenAPI 3.1, as it is served: `operations` says what each path takes and answers, who may is
//! read from the table of routes. Tests hold this to what the listener does.

mod operations;
mod parameters;

use serde_json::{Map, Value, json};

use self::operations::{Described, OPERATIONS, Success};
use super::route::{Needs, Route, Takes};
use crate::gateway::api::openapi::parts;
use crate::gateway::api::openapi::parts::{content, header_references, schemas, takes};
use crate::pure::operator::Role;

/// The document of these routes, as text.
pub(super) fn document(routes: &[Route]) -> String {
    let mut paths: Map<String, Value> = Map::new();
    for (described, route) in OPERATIONS
        .iter()
        .filter_map(|described| Some((described, described.route(routes)?)))
    {
        let methods = paths.entry(described.path).or_insert_with(|| json!({}));
        if let Some(methods) = methods.as_object_mut() {
            let method = described.method.to_ascii_lowercase();
            methods.insert(method, described.json(route));
        }
    }
    let token = json!({ "type": "http", "scheme": "bearer", "description": "An operator's token." });
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tollgate for operators",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": schemas(SCHEMAS, "the operator's API"),
            "headers": headers(),
            "securitySchemes": { "token": token },
        },
    });
    document.to_string()
}

impl Described {
    /// The route that it describes.
    fn route<'r>(&self, routes: &'r [Route]) -> Option<&'r Route> {
        routes
            .iter()
            .find(|route| route.path == self.path && route.method.as_str() == self.method)
    }

    fn json(&self, route: &Route) -> Value {
        let name = self.path.trim_start_matches("/v1/").replace(['/', '.'], "_");
        let name = name.replace(['{', '}'], "");
        let security = match route.needs {
            Needs::Nobody => json!([]),
            Needs::Operator | Needs::OneOf(_) => json!([{ "token": [] }]),
        };
        let mut operation = json!({
            "summary": self.summary,
            "description": who(route),
            "operationId": format!("{}_{name}", self.method.to_ascii_lowercase()),
            "parameters": self.parameters.iter().map(|parameter| parameter.json()).collect::<Vec<_>>(),
            "responses": self.responses(route),
            "security": security,
        });
        if let Some(schema) = self.body {
            takes(&mut operation, schema);
        }
        operation
    }

    fn responses(&self, route: &Route) -> Map<String, Value> {
        let mut responses = Map::new();
        for status in self.ok.statuses() {
            responses.insert(status.to_string(), self.success(*status));
        }
        let has_name = self.path.contains('{');
        // 403 also for what every operator may read: a session's request may be another page's.
        let mut refused: Vec<u16> = vec![400, 401, 403, 421, 429, 431, 500, 503];
        refused.extend(has_name.then_some(404));
        refused.extend(
            (route.takes != Takes::Nothing)
                .then_some([408, 413, 415])
                .into_iter()
                .flatten(),
        );
        refused.extend(self.also);
        for status in refused {
            responses.insert(status.to_string(), refusal(status));
        }
        responses
    }

    fn success(&self, status: u16) -> Value {
        let created: &[&str] = if status == 201 { &["location"] } else { &[] };
        let mut success = json!({ "description": "Done.", "headers": header_names(created) });
        let content = match self.ok {
            Success::Nothing => return success,
            Success::Json(name) | Success::Created(name) | Success::CreatedOnce(name) => content(name),
            Success::Statement => {
                let mut both = content("Statement");
                if let Some(both) = both.as_object_mut() {
                    both.insert("text/csv".to_owned(), json!({ "schema": { "type": "string" } }));
                }
                both
            }
        };
        if let Some(success) = success.as_object_mut() {
            success.insert("content".to_owned(), content);
        }
        success
    }
}

/// Who may, in a sentence.
fn who(route: &Route) -> String {
    let able = |role: &Role| match route.needs {
        Needs::Nobody | Needs::Operator => true,
        Needs::OneOf(rights) => rights.iter().any(|right| role.may(*right)),
    };
    let names: Vec<&str> = Role::ALL.into_iter().filter(able).map(Role::name).collect();
    match route.needs {
        Needs::Nobody => "Open: it brings its own proof.".to_owned(),
        Needs::Operator => "For every operator.".to_owned(),
        Needs::OneOf(_) => format!("For the roles {}.", names.join(", ")),
    }
}

fn refusal(status: u16) -> Value {
    let headers: &[&str] = match status {
        401 => &["www-authenticate"],
        429 | 503 => &["retry-after"],
        _ => &[],
    };
    parts::refusal(meaning(status), header_names(headers))
}

fn meaning(status: u16) -> &'static str {
    match status {
        400 => "The request is malformed, or asks for what cannot be.",
        401 => "The token, or the session, is missing, wrong, expired or revoked.",
        403 => "The operator's role may not, or a session's request is another page's, or lacks X-CSRF-Token.",
        404 => "There is nothing of that name.",
        408 => "The body did not arrive in time.",
        409 => {
            "It does not go with what is there: a name or a reference that was used before, credit that is not available, an account that is closed or has too much metadata, a key that is revoked or has expired."
        }
        413 => "The body is larger than 1 MiB, or than 4 KiB where a session is opened.",
        415 => "The body is not JSON.",
        421 => "The Host header has a name that is not one of operator_hosts.",
        429 => {
            "Too many wrong tokens from this address, or reports of the account are asked for faster than they are made."
        }
        431 => "The header fields are too large.",
        500 => "The gateway failed.",
        _ => "The ledger cannot be reached, or did not confirm.",
    }
}

/// These headers, and those of every answer.
fn header_names(names: &[&str]) -> Value {
    header_references(names.iter().chain(&["x-request-id", "cache-control"]))
}

fn headers() -> Value {
    json!({
        "x-request-id": { "description": "The request's id.", "required": true, "schema": { "type": "string", "format": "uuid" } },
        "cache-control": { "description": "Nothing is kept.", "schema": { "const": "no-store" } },
        "location": { "description": "Where it is.", "required": true, "schema": { "type": "string", "pattern": "^/v1/" } },
        "retry-after": { "description": "Seconds until a retry makes sense.", "schema": { "type": "integer", "minimum": 1 } },
        "www-authenticate": { "description": "How a token is sent.", "schema": { "const": "Bearer" } },
    })
}

const SCHEMAS: &str = include_str!("schemas.yaml");
const ABOUT: &str = "Accounts, credit, keys and operators of a Tollgate. Amounts are decimal texts, exact to 12 decimals; a JSON number is \
                     refused. A PATCH leaves what it does not name. Lists page by `limit`, and `after` or `before` with what `next` of the page \
                     before said. Every path answers OPTIONS, every GET also HEAD; other methods get 405 with Allow. Each answer has an \
                     x-request-id; errors have one shape. Each act is in the log. The console's session is the cookie that POST /v1/session \
                     sets; every other request by it brings X-CSRF-Token.";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::server::operator::routes::ROUTES;

    #[test]
    fn every_route_is_described_and_nothing_else() {
        let routes: BTreeSet<(&str, &str)> = ROUTES
            .iter()
            .filter(|route| route.path.starts_with("/v1/"))
            .map(|route| (route.path, route.method.as_str()))
            .collect();
        let described: BTreeSet<(&str, &str)> = OPERATIONS
            .iter()
            .map(|described| (described.path, described.method))
            .collect();
        assert_eq!(routes, described);
        for described in &OPERATIONS {
            let takes = described.route(ROUTES).unwrap().takes;
            assert_eq!(described.body.is_some(), takes != Takes::Nothing, "{}", described.path);
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document: Value = serde_json::from_str(&document(ROUTES)).unwrap();
        let text = document.to_string();
        let references: BTreeSet<&str> = text
            .split("\"$ref\":\"#")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .collect();
        assert!(references.len() > 20);
        for reference in references {
            assert!(document.pointer(reference).is_some(), "{reference}");
        }
    }
}
