//! The simulated provider: an OpenAI-compatible upstream on loopback, for `tollgate demo` and the tests. No language model answers here.
//!
//! It behaves as a real provider does where a gateway can tell the difference: streams come token by token, usage is counted with a real
//! tokenizer, refusals have the provider's shape and words, response headers carry what a gateway must not pass on. Every answer says that
//! it is simulated (`system_fingerprint`, the ids, the text, the header `x-simulated`).
//!
//! `POST /v1/chat/completions`, `POST /v1/embeddings`, `GET /v1/models`; the `/v1` may be left out. HTTP/1.1, and HTTP/2 in clear text.
//!
//! # Tool calls
//!
//! With `tools`, the answer is a tool call when `tool_choice` is `required` or names a function, or when the last message is the user's and
//! contains the word "weather".
//!
//! # Faults on request
//!
//! A model named `simulate:WORD`, or a last user message (for embeddings: a first input) that begins with it, chooses how the answer goes.
//! Words are joined with `+`, as in `simulate:no-usage+cut=4 Hello`; one that is not known is a 400 that lists them. Over HTTP/2 a cut
//! resets the stream, so that events which are still queued for it are lost as well.
//!
//! | Word | Effect |
//! |---|---|
//! | `simulate:STATUS` | any status 400 to 599 as an error, such as `simulate:429`; `simulate:429=7` sends `Retry-After: 7` (429 has 1 by itself) |
//! | `simulate:stall` | no answer at all; `simulate:stall=K`: nothing more after K events of a stream. The connection stays open |
//! | `simulate:cut` | the connection is dropped after 3 events, or `simulate:cut=K`; 0 is before the first byte. A whole answer stops half way |
//! | `simulate:error-event` | an error event after 3 events (`=K`), then the end without `[DONE]`; a whole answer is a 200 with an error in it |
//! | `simulate:slow` | 250 ms before the first byte and before each token, or `simulate:slow=MS` |
//! | `simulate:no-usage` | usage is not reported, even if asked for |
//! | `simulate:bad-usage` | a negative, a fractional and an absurd number are reported |
//! | `simulate:no-done` | the stream ends cleanly, but without `[DONE]` |
//! | `simulate:tokens` | an answer of 1000 tokens, or `simulate:tokens=N` |

mod chat;
mod embeddings;
mod exchange;
mod refusal;
mod reply;
mod request;
mod script;
#[cfg(test)]
mod tests;
mod tokens;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Method};
use pingora::apps::{HttpPersistentSettings, HttpServerApp, HttpServerOptions, ReusedHttpStream, ServerApp};
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::protocols::l4::stream::Stream as L4Stream;
use pingora::server::ShutdownWatch;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use exchange::{Exchange, Halt};
use refusal::Refusal;
use script::Script;

/// How a simulated provider behaves.
#[derive(Clone)]
pub struct Options {
    /// The pause before each token of a stream. Tests use zero.
    pub event_pause: Duration,
    /// The pause before the first byte of an answer.
    pub first_byte_pause: Duration,
    /// When set, every request must carry `Authorization: Bearer <credential>`, or it is refused with 401.
    pub credential: Option<String>,
    /// The model names that are served, any other being a 404. Empty: every name is served.
    pub models: Vec<String>,
    /// The largest request body; a longer one is refused with 413.
    pub body_bytes_max: usize,
    /// Told what arrives and how each exchange ends.
    pub observer: Option<Observer>,
}

/// Receives [`Observation`]s, in order for each exchange. It is called on the connection's task: it must not block.
pub type Observer = Arc<dyn Fn(Observation) + Send + Sync>;

/// What a simulated provider saw.
#[derive(Clone, Debug)]
pub enum Observation {
    /// A request that was read to its end; its credential has been accepted.
    Received {
        /// Method of the request.
        method: Method,
        /// Path and query as they arrived.
        target: String,
        /// All headers as they arrived.
        headers: HeaderMap,
        /// The body as it arrived.
        body: Bytes,
    },
    /// The end of an exchange, also of one that was refused.
    Ended {
        /// How many SSE events were sent, `[DONE]` included. Zero for a whole answer.
        events: usize,
        /// How it ended.
        ending: Ending,
    },
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The answer was sent to its end; it may have been an error.
    Complete,
    /// The connection was dropped on request.
    Cut,
    /// The client went away before the end.
    ClientGone,
}

/// The provider itself. [`serve`] runs it on a listener; as a Pingora `HttpServerApp` it also fits in a Pingora service.
pub struct SimulatedProvider {
    options: Options,
    server_options: HttpServerOptions,
    /// Numbers the exchanges, so that ids are unique.
    exchanges: AtomicU64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            event_pause: Duration::from_millis(20),
            first_byte_pause: Duration::from_millis(80),
            credential: None,
            models: Vec::new(),
            body_bytes_max: BODY_BYTES_MAX,
            observer: None,
        }
    }
}

/// Serves connections of `listener` until `shutdown` turns true or its sender is gone. Then open connections are dropped, not drained.
pub async fn serve(listener: TcpListener, options: Options, mut shutdown: watch::Receiver<bool>) {
    let provider = Arc::new(SimulatedProvider::new(options));
    let connection_shutdown = shutdown.clone();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = turned_true(&mut shutdown) => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(provider.clone(), stream, connection_shutdown.clone()));
                }
                Err(error) => {
                    // Out of descriptors, as a rule: a pause lets connections end instead of spinning.
                    log::warn!("simulated provider: accept failed: {error}");
                    tokio::time::sleep(ACCEPT_RETRY_PAUSE).await;
                }
            },
        }
    }
    connections.shutdown().await;
}

impl SimulatedProvider {
    /// A provider with these options.
    pub fn new(options: Options) -> Self {
        let mut server_options = HttpServerOptions::default();
        server_options.h2c = true;
        SimulatedProvider {
            options,
            server_options,
            exchanges: AtomicU64::new(1),
        }
    }

    async fn answer(&self, exchange: &mut Exchange) -> Result<(), Halt> {
        let path = exchange.path();
        let route = Route::of(&exchange.session().req_header().method, &path)?;
        self.authorize(exchange)?;
        let body = exchange.read_body(self.options.body_bytes_max).await?;
        if let Some(observer) = &self.options.observer {
            observer(exchange.received(body.clone()));
        }
        match route {
            Route::Chat => {
                let plan = plan(body, chat::Plan::new).await?;
                self.check_model(&plan.model)?;
                self.before_first_byte(exchange, &plan.script).await?;
                plan.perform(exchange, &self.options).await
            }
            Route::Embeddings => {
                let plan = plan(body, embeddings::Plan::new).await?;
                self.check_model(&plan.model)?;
                self.before_first_byte(exchange, &plan.script).await?;
                plan.perform(exchange).await
            }
            Route::Models => {
                exchange
                    .whole(&Script::default(), self.model_list(exchange.created))
                    .await
            }
        }
    }

    fn authorize(&self, exchange: &Exchange) -> Result<(), Refusal> {
        let Some(credential) = &self.options.credential else {
            return Ok(());
        };
        let presented = exchange.session().get_header_bytes(http::header::AUTHORIZATION);
        match presented.split_at_checked(BEARER.len()) {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case(BEARER) && rest == credential.as_bytes() => Ok(()),
            Some(_) => Err(Refusal::wrong_key()),
            None => Err(Refusal::no_key()),
        }
    }

    fn check_model(&self, model: &str) -> Result<(), Refusal> {
        let models = &self.options.models;
        if models.is_empty() || script::is_script(model) || models.iter().any(|known| known == model) {
            return Ok(());
        }
        Err(Refusal::unknown_model(model))
    }

    fn model_list(&self, created: u64) -> serde_json::Value {
        let listed =
            |id: &str| serde_json::json!({"id": id, "object": "model", "created": created, "owned_by": "simulated"});
        let data: Vec<_> = if self.options.models.is_empty() {
            MODELS_LISTED.iter().map(|id| listed(id)).collect()
        } else {
            self.options.models.iter().map(|id| listed(id)).collect()
        };
        serde_json::json!({"object": "list", "data": data})
    }

    async fn before_first_byte(&self, exchange: &mut Exchange, script: &Script) -> Result<(), Halt> {
        exchange.check_trouble(script).await?;
        exchange
            .pause(script.pace.unwrap_or(self.options.first_byte_pause))
            .await
    }
}

#[async_trait]
impl HttpServerApp for SimulatedProvider {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        match session.read_request().await {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => {
                log::debug!("simulated provider: unreadable request: {error}");
                return None;
            }
        }
        let keepalive = session.get_keepalive().filter(|_| !*shutdown.borrow());
        session.set_keepalive(keepalive.map(|_| KEEPALIVE_SECONDS));
        session.set_read_timeout(Some(IO_TIMEOUT));
        session.set_write_timeout(Some(IO_TIMEOUT));

        let number = self.exchanges.fetch_add(1, Ordering::Relaxed);
        let mut exchange = Exchange::new(session, number, unix_seconds());
        let mut result = self.answer(&mut exchange).await;
        if let Err(Halt::Refused(refusal)) = &result {
            result = exchange.refuse(refusal).await;
        }
        let ending = match result {
            Ok(()) => Ending::Complete,
            Err(Halt::Cut) => Ending::Cut,
            // The others have been dealt with before: what is left of them is an answer that could not be sent.
            Err(Halt::Gone | Halt::Over | Halt::Refused(_)) => Ending::ClientGone,
        };
        if let Some(observer) = &self.options.observer {
            observer(Observation::Ended {
                events: exchange.events,
                ending,
            });
        }
        let mut session = exchange.into_session();
        if ending != Ending::Complete {
            session.shutdown().await;
            return None;
        }
        let settings = HttpPersistentSettings::for_session(&session);
        let reusable = session.finish().await.ok().flatten()?;
        Some(ReusedHttpStream::from_reusable_stream(reusable, settings))
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.server_options)
    }
}

enum Route {
    Chat,
    Embeddings,
    Models,
}

impl Route {
    fn of(method: &Method, path: &str) -> Result<Self, Refusal> {
        let (route, allowed) = match path.strip_prefix("/v1").unwrap_or(path) {
            "/chat/completions" => (Route::Chat, Method::POST),
            "/embeddings" => (Route::Embeddings, Method::POST),
            "/models" => (Route::Models, Method::GET),
            _ => return Err(Refusal::unknown_path(method, path)),
        };
        if *method == allowed {
            Ok(route)
        } else {
            Err(Refusal::wrong_method(method, allowed))
        }
    }
}

/// Parses a body and computes its answer; on another thread when the body is long, since all of its text is tokenized.
async fn plan<P: Send + 'static>(body: Bytes, new: fn(&[u8]) -> Result<P, Refusal>) -> Result<P, Refusal> {
    if body.len() <= BODY_BYTES_INLINE {
        return new(&body);
    }
    match tokio::task::spawn_blocking(move || new(&body)).await {
        Ok(result) => result,
        Err(error) => {
            log::error!("simulated provider: an answer failed: {error}");
            Err(Refusal::simulated(500, None))
        }
    }
}

async fn connection(provider: Arc<SimulatedProvider>, stream: TcpStream, shutdown: ShutdownWatch) {
    if let Err(error) = stream.set_nodelay(true) {
        log::debug!("simulated provider: no TCP_NODELAY: {error}");
    }
    let mut next: Option<Stream> = Some(Box::new(L4Stream::from(stream)));
    while let Some(stream) = next {
        next = provider.process_new(stream, &shutdown).await;
    }
}

async fn turned_true(shutdown: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone; nobody could ask for a shutdown any more.
    let _ = shutdown.wait_for(|stop| *stop).await;
}

fn unix_seconds() -> u64 {
    crate::clock::wall()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |age| age.as_secs())
}

/// What a list of models shows when every name is served.
const MODELS_LISTED: [&str; 2] = ["simulated-chat", "simulated-embedding"];
const BEARER: &[u8] = b"Bearer ";
const BODY_BYTES_MAX: usize = 64 << 20;
const BODY_BYTES_INLINE: usize = 64 << 10;
const CONNECTIONS_MAX: usize = 20_000;
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(10);
const KEEPALIVE_SECONDS: u64 = 75;
const IO_TIMEOUT: Duration = Duration::from_secs(60);
