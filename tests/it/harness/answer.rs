//! What a client got: a whole answer, or a stream of events.

use std::collections::HashMap;

use bytes::Bytes;
use reqwest::header::HeaderMap;
use rust_decimal::Decimal;
use serde_json::Value;
use serde_json::value::RawValue;

use super::within;

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A stream of server-sent events on its way.
pub struct Events {
    pub status: u16,
    pub headers: HeaderMap,
    response: reqwest::Response,
    unread: String,
}

impl Answer {
    /// Reads a whole answer; it must end cleanly.
    pub async fn read(response: reqwest::Response) -> Answer {
        Answer {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response.bytes().await.unwrap(),
        }
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("{error}: {} {:?}", self.status, self.text()),
        }
    }

    /// The value of a header, empty when there is none.
    pub fn header(&self, name: &str) -> &str {
        header(&self.headers, name)
    }

    /// Checks for a 200, and passes on.
    #[track_caller]
    pub fn ok(self) -> Answer {
        assert_eq!(self.status, 200, "{}", self.text());
        check_request_id(&self.headers);
        self
    }

    /// Checks the shape of an error, and gives its `error` object.
    #[track_caller]
    pub fn error(&self, status: u16, kind: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), "application/json");
        check_request_id(&self.headers);
        let body = self.json();
        let error = &body["error"];
        assert_eq!(body.as_object().unwrap().len(), 1, "only `error` stands in {body}");
        assert_eq!(error["code"], status, "7: error.code equals the HTTP status in {body}");
        assert_eq!(error["type"], kind, "{body}");
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{body}");
        for key in error.as_object().unwrap().keys() {
            assert!(
                ["code", "message", "type", "param", "metadata"].contains(&key.as_str()),
                "{key} in {body}"
            );
        }
        assert!(
            !self.text().contains(super::reply::UPSTREAM_SECRET),
            "the upstream's words came through: {body}"
        );
        error.clone()
    }

    /// The number at the top of the body's object, exactly as it is written there.
    #[track_caller]
    pub fn number(&self, key: &str) -> String {
        number(self.text(), key)
    }
}

impl Events {
    /// Sends a request; the head of its answer has come when this returns.
    pub async fn of(request: reqwest::RequestBuilder) -> Events {
        let response = within("the head of a stream", request.send()).await.unwrap();
        Events {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            response,
            unread: String::new(),
        }
    }

    /// Checks for a stream of events.
    #[track_caller]
    pub fn ok(self) -> Events {
        assert_eq!(self.status, 200);
        assert_eq!(header(&self.headers, "content-type"), "text/event-stream");
        check_request_id(&self.headers);
        self
    }

    /// What follows `data: ` in the next event, or nothing at the stream's clean end.
    pub async fn next(&mut self) -> Option<String> {
        loop {
            if let Some((event, rest)) = self.unread.split_once("\n\n") {
                let event = event.strip_prefix("data: ").unwrap_or(event).to_owned();
                self.unread = rest.to_owned();
                return Some(event);
            }
            match within("the next event", self.response.chunk()).await.unwrap() {
                Some(bytes) => self.unread.push_str(std::str::from_utf8(&bytes).unwrap()),
                None => {
                    assert_eq!(self.unread, "", "the stream ended within an event");
                    return None;
                }
            }
        }
    }

    /// The next event as JSON.
    pub async fn next_json(&mut self) -> Value {
        let event = self.next().await.unwrap();
        serde_json::from_str(&event).unwrap_or_else(|error| panic!("{error}: {event}"))
    }

    /// All events until the clean end.
    pub async fn rest(mut self) -> Vec<String> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

/// The contents of a stream's chunks, joined.
pub fn deltas(events: &[String]) -> String {
    events
        .iter()
        .filter_map(|event| serde_json::from_str::<Value>(event).ok())
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
        .collect()
}

/// The value of a header, empty when there is none.
pub fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).map_or("", |value| value.to_str().unwrap())
}

/// A number of a JSON object, exactly as it is written there.
#[track_caller]
pub fn number(json: &str, key: &str) -> String {
    let object: HashMap<String, Box<RawValue>> = serde_json::from_str(json).unwrap();
    let text = object.get(key).unwrap_or_else(|| panic!("no {key} in {json}")).get();
    assert!(
        text.parse::<Decimal>().is_ok(),
        "{key} is no plain decimal number in {json}"
    );
    text.to_owned()
}

/// Every answer has an `x-request-id`, a UUID of version 7.
#[track_caller]
pub fn check_request_id(headers: &HeaderMap) {
    let id = header(headers, "x-request-id");
    let version = uuid::Uuid::parse_str(id).map(|id| id.get_version_num());
    assert_eq!(version, Ok(7), "x-request-id: {id:?}");
}
