//! An HTTP client of one protocol version that knows the gateway's address and a key.

use std::net::SocketAddr;

use reqwest::header::AUTHORIZATION;
use reqwest::{Method, RequestBuilder};

use super::answer::{Answer, Events};
use super::within;

/// The client.
#[derive(Clone)]
pub struct Client {
    /// What it sends as its key; empty for none.
    pub key: String,
    http: reqwest::Client,
    base: String,
    base_path: String,
}

impl Client {
    /// Over HTTP/1.1.
    pub fn http1(address: SocketAddr) -> Client {
        Client::new(reqwest::Client::builder().http1_only(), address)
    }

    /// Over HTTP/2 in clear text, with prior knowledge.
    pub fn h2c(address: SocketAddr) -> Client {
        Client::new(reqwest::Client::builder().http2_prior_knowledge(), address)
    }

    /// Over HTTP/1.1, to a service with this base path.
    pub fn below(address: SocketAddr, base_path: &str) -> Client {
        let base_path = base_path.to_owned();
        Client {
            base_path,
            ..Client::http1(address)
        }
    }

    /// The same client with another key, or with none when it is empty.
    pub fn with_key(&self, key: &str) -> Client {
        let key = key.to_owned();
        Client { key, ..self.clone() }
    }

    fn new(builder: reqwest::ClientBuilder, address: SocketAddr) -> Client {
        Client {
            key: String::new(),
            http: builder.no_proxy().build().unwrap(),
            base: format!("http://{address}"),
            base_path: "/api/v1".to_owned(),
        }
    }

    /// A request with the client's key; `path` is relative to the service's base address unless it begins with `//`.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = match path.strip_prefix('/').filter(|rest| rest.starts_with('/')) {
            Some(absolute) => format!("{}{absolute}", self.base),
            None => format!("{}{}{path}", self.base, self.base_path),
        };
        let request = self.http.request(method, url);
        if self.key.is_empty() {
            request
        } else {
            request.header(AUTHORIZATION, format!("Bearer {}", self.key))
        }
    }

    /// Whether anybody answers at all.
    pub async fn listens(&self) -> bool {
        self.http.get(&self.base).send().await.is_ok()
    }

    /// A GET with the client's key.
    pub async fn get(&self, path: &str) -> Answer {
        ask(self.request(Method::GET, path)).await
    }

    /// A POST of JSON with the client's key.
    pub async fn post(&self, path: &str, body: impl Into<reqwest::Body>) -> Answer {
        ask(self.post_request(path, body)).await
    }

    /// The same, not yet sent.
    pub fn post_request(&self, path: &str, body: impl Into<reqwest::Body>) -> RequestBuilder {
        self.request(Method::POST, path)
            .header("content-type", "application/json")
            .body(body)
    }

    /// A POST of JSON whose answer is read event by event; the head of the answer has come when this returns.
    pub async fn stream(&self, path: &str, body: impl Into<reqwest::Body>) -> Events {
        Events::of(self.post_request(path, body)).await
    }
}

/// Sends a request and reads its whole answer.
pub async fn ask(request: RequestBuilder) -> Answer {
    within("an answer", async { Answer::read(request.send().await.unwrap()).await }).await
}
