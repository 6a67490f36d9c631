//! One connection of operators: request after request, each with a time for its head and another for its answer. Heads are read here and not
//! by Pingora's own application, which writes one that is broken into the log, with the token in it.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use http::{Response, Version, header};
use pingora::ErrorType;
use pingora::apps::{HttpPersistentSettings, HttpServerApp, ReusedHttpStream};
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;

use super::answer::Answer;
use super::exchange::{self, Came};
use super::state::OperatorApi;
use super::under_way::UnderWay;
use crate::net::head_limit::HeadLimit;
use crate::pure::error::ApiError;
use crate::pure::error::operator::OperatorError;
use crate::server::admin_connections::AdminConnectionPermit;

/// One connection.
pub(super) struct Connection {
    pub(super) api: Arc<OperatorApi>,
    pub(super) peer: IpAddr,
    pub(super) is_tls: bool,
    pub(super) limit: Arc<HeadLimit>,
    pub(super) permit: AdminConnectionPermit,
}

#[async_trait]
impl HttpServerApp for Connection {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        _shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        self.limit.begin();
        let times = self.api.times;
        match tokio::time::timeout(times.head, session.read_request()).await.ok()? {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => {
                // What else the error says is the head as it came.
                log::debug!("an operator's request cannot be read: {}", error.etype().as_str());
                self.refuse(
                    &mut session,
                    &OperatorError::bad("The head of the request cannot be read."),
                )
                .await;
                return None;
            }
        }
        let Ok(exchange) = self.api.exchanges.try_acquire() else {
            // Another process has taken over: nothing was begun, and the client finds it when it connects again.
            self.refuse(&mut session, &OperatorError::Api(ApiError::STOPPING)).await;
            return None;
        };
        if self.api.admin.life.is_end_for_operators() {
            session.set_keepalive(None);
        }
        let under_way = UnderWay::default();
        let request = session.req_header();
        let is_chunked = request.headers.contains_key(header::TRANSFER_ENCODING);
        // Whoever stands in front may have seen another end of such a request.
        if is_chunked || request.version != Version::HTTP_11 {
            session.set_keepalive(None);
        }
        let came = Came {
            peer: self.peer,
            is_tls: self.is_tls,
            is_misframed: self.limit.head_came(is_chunked).is_err(),
            permit: &self.permit,
            under_way: &under_way,
        };
        let answered = tokio::time::timeout(times.answer, exchange::respond(&self.api, &mut session, came)).await;
        let written = match answered {
            // Its secret would go to nobody.
            Ok(_) if under_way.has_secret() && has_left(&mut session).await => None,
            Ok(response) => write(&mut session, response).await,
            Err(_) => {
                let late = "It takes too long. What was begun comes to its end: see /v1/log.";
                self.refuse(&mut session, &OperatorError::Ledger(late.to_owned())).await;
                None
            }
        };
        if written.is_none() {
            under_way.take_back(&self.api.sessions, self.api.ledger()).await;
            return None;
        }
        drop((under_way, exchange));
        self.permit.answered();
        let settings = HttpPersistentSettings::for_session(&session);
        // What is left of a body that nobody read is read first.
        let finished = tokio::time::timeout(times.answer, session.finish()).await.ok()?;
        let stream = finished.ok()??;
        Some(ReusedHttpStream::from_reusable_stream(stream, settings))
    }
}

impl Connection {
    /// Answers with an error, after which the connection ends.
    async fn refuse(&self, session: &mut ServerSession, error: &OperatorError) {
        session.set_keepalive(None);
        let id = self.api.clock().request_id().to_string();
        write(session, Answer::refusal(error).finished(&id, false)).await;
        session.shutdown().await;
    }
}

/// Whether the client has ended its side: one that wants its answer keeps that open until it has it.
async fn has_left(session: &mut ServerSession) -> bool {
    // An end that has come is known here once tokio has looked at its sockets: before others have their turn, on a busy machine, it may not have.
    tokio::task::yield_now().await;
    let next = {
        let mut next = pin!(session.read_body_or_idle(true));
        poll_fn(|context| Poll::Ready(next.as_mut().poll(context))).await
    };
    match next {
        Poll::Pending => false,
        // It says more already, of which a byte is gone: what it asks behind this is not answered.
        Poll::Ready(Err(error)) if *error.etype() == ErrorType::ConnectError => {
            session.set_keepalive(None);
            false
        }
        Poll::Ready(_) => true,
    }
}

/// None when it was not taken. What was taken may still be lost on its way, of which nothing is known here.
async fn write(session: &mut ServerSession, response: Response<Vec<u8>>) -> Option<()> {
    let (head, body) = response.into_parts();
    let written = async {
        session.write_response_header(Box::new(head.into())).await?;
        match body.is_empty() {
            true => Ok(()),
            false => session.write_response_body(body.into(), true).await,
        }
    };
    let written: Result<(), Box<pingora::Error>> = written.await;
    if let Err(error) = &written {
        log::debug!("an answer to an operator was not taken: {}", error.etype().as_str());
    }
    written.ok()
}
