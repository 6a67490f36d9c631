//! The description of the interface in OpenAPI 3.1, as it is served: operations, their parameters, answers and headers.
//!
//! The objects are in `schemas.yaml`. Tests hold this to what the gateway does.

mod answers;
mod parameters;
pub(crate) mod parts;

use serde_json::{Map, Value, json};

use self::answers::{EVERYWHERE, PAGE, RATES, headers, meaning};
use self::parameters::{
    BEFORE, CALL, FROM, GROUP_BY, ID, IDEMPOTENCY_KEY, LIMIT, OF_MODEL, PAGE as PAGE_NUMBER, PER_PAGE, PERIOD, PURPOSE,
    SEARCH, TO,
};
use self::parts::{Parameter, content, header_references, reference, refusal, schemas, takes};
use super::pages::HTML;
use super::router::Route;

/// One operation.
struct Operation {
    path: &'static str,
    method: &'static str,
    summary: &'static str,
    parameters: &'static [Parameter],
    /// Schema of the request's body.
    body: Option<&'static str>,
    ok: Answer,
    /// Statuses beside 200, and beside those of every operation of its kind.
    also: &'static [u16],
}

/// What a 200 carries.
enum Answer {
    /// JSON of this schema.
    Json(&'static str),
    /// JSON of this schema, with an entity tag.
    Document(&'static str),
    /// Events.
    Events,
    /// JSON or events, as the body asks.
    Either,
    /// A page for a browser, with an entity tag.
    Page,
}

const fn get(
    path: &'static str,
    summary: &'static str,
    parameters: &'static [Parameter],
    ok: Answer,
    also: &'static [u16],
) -> Operation {
    Operation {
        path,
        method: "get",
        summary,
        parameters,
        body: None,
        ok,
        also,
    }
}

const fn post(path: &'static str, summary: &'static str, body: &'static str, ok: Answer) -> Operation {
    Operation {
        path,
        method: "post",
        summary,
        parameters: &[IDEMPOTENCY_KEY],
        body: Some(body),
        ok,
        also: &[400, 402, 404, 408, 409, 413, 415, 422, 500, 502],
    }
}

/// The paths of the interface, and those that OpenAI's clients use.
const OPERATIONS: [Operation; 20] = [
    post(
        "/llm/chat",
        "Chat completion; streams when `stream` is true",
        "ChatRequest",
        Answer::Either,
    ),
    post(
        "/llm/chat/stream",
        "Streamed chat completion",
        "ChatRequest",
        Answer::Events,
    ),
    post(
        "/llm/embeddings",
        "Create embeddings",
        "EmbeddingsRequest",
        Answer::Json("EmbeddingList"),
    ),
    get("/llm/balance", "Credit balance", &[], Answer::Json("Balance"), &[]),
    get("/key", "The key itself", &[], Answer::Json("Key"), &[]),
    get(
        "/llm/usage",
        "Usage summary",
        &[PERIOD, FROM, TO, GROUP_BY],
        Answer::Json("UsageSummary"),
        &[400],
    ),
    get(
        "/llm/generation",
        "What one call cost, and why",
        &[CALL],
        Answer::Json("Generation"),
        &[404],
    ),
    get(
        "/llm/generations",
        "What calls cost, newest first",
        &[LIMIT, BEFORE, OF_MODEL],
        Answer::Json("Generations"),
        &[],
    ),
    get(
        "/generation",
        "/llm/generation, for OpenRouter's clients",
        &[CALL],
        Answer::Json("Generation"),
        &[404],
    ),
    get(
        "/llm/models",
        "Models available to the key",
        &[PURPOSE, SEARCH],
        Answer::Document("Models"),
        &[400],
    ),
    get(
        "/llm/models/purposes",
        "Default model of each purpose",
        &[],
        Answer::Document("Purposes"),
        &[],
    ),
    get(
        "/llm/public/models",
        "All models, by pages",
        &[PAGE_NUMBER, PER_PAGE, SEARCH],
        Answer::Json("PublicModels"),
        &[400],
    ),
    get("/llm/health", "Liveness", &[], Answer::Json("Health"), &[]),
    post(
        "/chat/completions",
        "/llm/chat, for OpenAI's clients",
        "ChatRequest",
        Answer::Either,
    ),
    post(
        "/embeddings",
        "/llm/embeddings, for OpenAI's clients",
        "EmbeddingsRequest",
        Answer::Json("EmbeddingList"),
    ),
    get(
        "/models",
        "Models available to the key, for OpenAI's clients",
        &[],
        Answer::Document("OpenAiModels"),
        &[],
    ),
    get(
        "/models/{id}",
        "One of them",
        &[ID],
        Answer::Json("OpenAiModel"),
        &[404],
    ),
    get(
        "/openapi.json",
        "This description",
        &[],
        Answer::Document("Description"),
        &[],
    ),
    get(
        "/wallet",
        "A page on which who has a key sees its money",
        &[],
        Answer::Page,
        &[],
    ),
    get(
        "/prices",
        "The public list of models and prices, as a page",
        &[],
        Answer::Page,
        &[],
    ),
];

/// The document, as text.
pub(in crate::gateway) fn document(base_path: &str) -> String {
    let mut paths = Map::new();
    for operation in &OPERATIONS {
        paths.insert(operation.path.to_owned(), json!({ operation.method: operation.json() }));
    }
    let server = if base_path.is_empty() { "/" } else { base_path };
    let key = json!({ "type": "http", "scheme": "bearer", "description": "An API key." });
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tollgate",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
        },
        "servers": [{ "url": server }],
        "paths": paths,
        "components": {
            "schemas": schemas(SCHEMAS, "the interface"),
            "headers": headers(),
            "securitySchemes": { "key": key },
        },
    });
    document.to_string()
}

impl Answer {
    fn has_tag(&self) -> bool {
        matches!(self, Answer::Document(_) | Answer::Page)
    }
}

impl Operation {
    fn is_open(&self) -> bool {
        // The path's own answer decides, so that the document cannot say otherwise.
        Route::at("", self.path).is_ok_and(|route| route.is_public())
    }

    fn json(&self) -> Value {
        let parameters = self.parameters.iter().map(Parameter::json);
        let parameters: Vec<Value> = parameters.chain(self.tag_parameter()).collect();
        let mut operation = json!({
            "summary": self.summary,
            "operationId": self.path.trim_matches('/').replace(['/', '.'], "_").replace(['{', '}'], ""),
            "parameters": parameters,
            "responses": self.responses(),
            "security": if self.is_open() { json!([]) } else { json!([{ "key": [] }]) },
        });
        if let Some(schema) = self.body {
            takes(&mut operation, schema);
        }
        operation
    }

    fn tag_parameter(&self) -> Option<Value> {
        let tag = json!({
            "name": "if-none-match", "in": "header", "schema": { "type": "string" },
            "description": "An entity tag: 304 when nothing has changed.",
        });
        self.ok.has_tag().then_some(tag)
    }

    fn responses(&self) -> Map<String, Value> {
        let own: &[u16] = if self.is_open() { &[] } else { &[401, 403, 429] };
        let mut responses = Map::new();
        responses.insert("200".to_owned(), self.ok());
        if self.ok.has_tag() {
            let headers = self.header_names(match self.ok {
                Answer::Page => &PAGE,
                _ => &["etag", "cache-control"],
            });
            responses.insert(
                "304".to_owned(),
                json!({ "description": "Nothing has changed.", "headers": headers }),
            );
        }
        let mut statuses: Vec<u16> = [&[400, 431, 500, 503][..], own, self.also].concat();
        statuses.sort_unstable();
        statuses.dedup();
        for status in statuses {
            responses.insert(status.to_string(), self.refusal(status));
        }
        responses
    }

    fn ok(&self) -> Value {
        let events = || json!({ "schema": reference("schemas", "ChatCompletionEvents") });
        let content = match self.ok {
            Answer::Json(schema) | Answer::Document(schema) => content(schema),
            Answer::Events => json!({ "text/event-stream": events() }),
            Answer::Page => json!({ HTML: { "schema": { "type": "string" } } }),
            Answer::Either => {
                let mut both = content("ChatCompletion");
                if let Some(both) = both.as_object_mut() {
                    both.insert("text/event-stream".to_owned(), events());
                }
                both
            }
        };
        let headers: &[&str] = match self.ok {
            Answer::Document(_) => &["etag", "cache-control"],
            Answer::Page => &PAGE,
            _ if self.body.is_some() => &["cache-control", "idempotency-replayed", "x-original-request-id"],
            _ => &["cache-control"],
        };
        json!({ "description": "Done.", "content": content, "headers": self.header_names(headers) })
    }

    fn refusal(&self, status: u16) -> Value {
        let headers: &[&str] = match status {
            401 => &["cache-control", "x-should-retry", "www-authenticate"],
            402 | 409 | 429 | 503 => &["cache-control", "x-should-retry", "retry-after"],
            _ => &["cache-control", "x-should-retry"],
        };
        refusal(meaning(status), self.header_names(headers))
    }

    /// These headers, and those of every answer.
    fn header_names(&self, names: &[&str]) -> Value {
        let rates: &[&str] = if self.is_open() { &[] } else { &RATES };
        header_references(names.iter().chain(&EVERYWHERE).chain(rates))
    }
}

const SCHEMAS: &str = include_str!("schemas.yaml");
const ABOUT: &str = "An LLM gateway on prepaid credit. Every path answers OPTIONS (CORS), every GET also HEAD; other methods get 405 with \
                     Allow. Each answer has an x-request-id; errors have one shape.";
