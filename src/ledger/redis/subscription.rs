//! The subscription to what other nodes and commands change: at one server, and at another as soon as that one may not hear all of it.
//!
//! In a cluster each server hears what is published at any of them, as long as it belongs to the cluster: so the subscription is at a
//! master that the map names. Elsewhere it is at the server that calls are sent to, or at the master that the Sentinels name: one that was
//! replaced may go on by itself, and answer, and hear nothing.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use redis::{ConnectionAddr, ErrorKind, RedisError, RedisResult, Value};

use super::events;
use super::options::unavailable;
use super::reply;
use super::server_health::{Change, channel, maintenance_key};
use super::shared::Shared;
use super::stops::Stops;
use crate::ledger::StoreError;

/// Where the subscription is.
enum Server {
    /// At a master of a cluster: the number of its shard.
    Master(usize),
    /// At the one server of the address, or at the master that Sentinels named.
    Named(ConnectionAddr),
}

/// Follows what is published, for ever. While it does, what was looked up holds until it is changed.
pub(super) async fn subscribe(shared: Arc<Shared>) {
    let (mut last, mut told) = (None, None);
    loop {
        if let Err(error) = follow(&shared, &mut last).await {
            let text = error.to_string();
            if is_refused(&error) && told.as_ref() != Some(&text) {
                log::warn!(
                    "changes are not heard of, and what was looked up is asked for again each second: the ledger's user needs +@pubsub and \
                     +@connection, and commands by their own names: {text}"
                );
                told = Some(text);
            } else {
                log::debug!("the subscription to changes ended: {text}");
            }
        }
        shared.cache.subscription_ended();
        tokio::time::sleep(SUBSCRIBE_AGAIN).await;
    }
}

/// Whether the server does not let its user subscribe, or keep a subscription: it says so each time.
pub(super) fn is_refused(error: &StoreError) -> bool {
    let text = error.to_string();
    text.contains(NO_PERMISSION) || text.contains("unknown command")
}

/// `last`: where the address led to last.
///
/// # Errors
/// When the subscription ends, or is left.
async fn follow(shared: &Shared, last: &mut Option<ConnectionAddr>) -> Result<(), StoreError> {
    // It is made anew: what spoke against the one before is over.
    shared.cache.subscription_doubted().now_or_never();
    let opened = tokio::time::timeout(CONNECT_WITHIN, open(shared, last)).await;
    let (server, mut sink, mut stream) = opened.map_err(|_| unavailable("no answer"))?.map_err(failed)?;
    // What was said before is not heard any more: everything is read anew.
    shared.cache.doubt_all(shared.now_ms());
    shared.events.doubt();
    let mut maintenance = MaintenanceReader::new(shared);
    let mut stops = Stops::all(shared);
    shared.cache.subscription_lives(shared.now_ms());
    let mut ping_at = crate::clock::monotonic();
    let mut left = pin!(server.until_left(shared));
    loop {
        tokio::select! {
            message = stream.next() => {
                let message = message.ok_or_else(|| unavailable("the connection was closed"))?;
                shared.cache.subscription_lives(shared.now_ms());
                if message.get_channel_name() == events::channel() {
                    shared.events.heard(std::str::from_utf8(message.get_payload_bytes()).unwrap_or_default());
                } else {
                    heard(shared, &mut stops, &mut maintenance, message.get_payload_bytes());
                }
            }
            () = tokio::time::sleep_until(ping_at.into()) => {
                let ping = tokio::time::timeout(PING_WITHIN, sink.ping::<Value>());
                ping.await.map_err(|_| unavailable("no answer"))?.map_err(failed)?;
                shared.cache.subscription_lives(shared.now_ms());
                ping_at = after(PING_EVERY);
            }
            () = stops.step() => {}
            () = maintenance.step() => {}
            why = &mut left => return Err(unavailable(why)),
        }
    }
}

async fn open(shared: &Shared, last: &mut Option<ConnectionAddr>) -> RedisResult<(Server, PubSubSink, PubSubStream)> {
    let (server, connection) = connect(shared, last).await?;
    let (mut sink, stream) = connection.split();
    sink.subscribe(channel()).await?;
    // Whoever may not hear of them looks for them.
    shared.events.hears(sink.subscribe(events::channel()).await.is_ok());
    Ok((server, sink, stream))
}

/// A connection to a server that hears all changes.
async fn connect(shared: &Shared, last: &mut Option<ConnectionAddr>) -> RedisResult<(Server, PubSub)> {
    let shards = &shared.shards;
    if !shards.is_cluster() {
        let address = shards.address();
        let client = address.client().await?;
        let at = client.get_connection_info().addr().clone();
        let before = last.replace(at.clone());
        if let Some(before) = before.filter(|before| *before != at) {
            // It may go on by itself, and answer calls by what it knew.
            log::warn!("the Sentinels name {at} as the master in place of {before}: connections to that are given up");
            address.master_was_replaced();
        }
        return Ok((Server::Named(at), client.get_async_pubsub().await?));
    }
    let mut why = RedisError::from((ErrorKind::Io, "no master of the cluster answers"));
    for shard in shards.masters() {
        let connected = async { shard.address.client().await?.get_async_pubsub().await };
        match tokio::time::timeout(shared.options.timeout.min(MASTER_WITHIN), connected).await {
            Ok(Ok(connection)) => return Ok((Server::Master(shard.number), connection)),
            Ok(Err(error)) => why = error,
            // It is silent, and the next one may not be.
            Err(_) => {}
        }
    }
    Err(why)
}

impl Server {
    /// Waits until this server may not hear all changes any more, and says why.
    async fn until_left(&self, shared: &Shared) -> &'static str {
        let address = shared.shards.address();
        match self {
            Server::Master(number) => {
                while shared.shards.is_master(*number) {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                "its server is no master of the cluster any more"
            }
            Server::Named(_) if !address.has_sentinels() => {
                shared.cache.subscription_doubted().await;
                "another server answers the calls"
            }
            Server::Named(at) => loop {
                drop(tokio::time::timeout(ASK_EVERY, shared.cache.subscription_doubted()).await);
                // Sentinels that do not answer say nothing against it.
                let named = tokio::time::timeout(CONNECT_WITHIN, address.client()).await;
                if let Ok(Ok(client)) = named
                    && client.get_connection_info().addr() != at
                {
                    return "the Sentinels name another master";
                }
            },
        }
    }
}

fn heard(shared: &Shared, stops: &mut Stops<'_>, maintenance: &mut MaintenanceReader<'_>, message: &[u8]) {
    match std::str::from_utf8(message).ok().and_then(Change::parse) {
        Some(Change::Key(digest)) => shared.cache.forget_key(&digest),
        Some(Change::Account(id)) => {
            shared.cache.forget_account(&id);
            if let Some(account) = shared.cache.known_account(&id) {
                stops.add(account);
            }
        }
        Some(Change::Maintenance) => maintenance.switched(),
        // A newer node may say more than this one understands.
        None => {
            shared.cache.forget_all();
            stops.add_all();
        }
    }
}

/// The reading of the maintenance flag: when it is said to be switched, and every now and then, for that may be said unheard.
struct MaintenanceReader<'a> {
    shared: &'a Shared,
    at: Instant,
    reading: Option<BoxFuture<'a, Result<(), StoreError>>>,
}

impl<'a> MaintenanceReader<'a> {
    /// It is read at once.
    fn new(shared: &'a Shared) -> MaintenanceReader<'a> {
        MaintenanceReader {
            shared,
            at: crate::clock::monotonic(),
            reading: None,
        }
    }

    /// It is read at once, also where a reading is under way, which may have come too early.
    fn switched(&mut self) {
        self.at = crate::clock::monotonic();
    }

    /// Goes on until a reading has ended. It may be dropped at any time, and goes on from there.
    async fn step(&mut self) {
        if self.reading.is_none() {
            tokio::time::sleep_until(self.at.into()).await;
            self.at = after(READ_EVERY);
            self.reading = Some(Box::pin(read_maintenance(self.shared)));
        }
        let Some(reading) = &mut self.reading else { return };
        let read = reading.await;
        self.reading = None;
        if let Err(error) = read {
            log::debug!("whether maintenance is on is not known: {error}");
            self.at = self.at.min(after(READ_AGAIN));
        }
    }
}

async fn read_maintenance(shared: &Shared) -> Result<(), StoreError> {
    let switches = shared.maintenance.switches();
    let mut command = redis::cmd("GET");
    command.arg(maintenance_key());
    let value = shared.command(&shared.link(), command).await?;
    let is_on = reply::optional_text(&value)? == Some("on");
    shared.maintenance.was_read(switches, is_on);
    Ok(())
}

pub(super) fn failed(error: RedisError) -> StoreError {
    match error.code() {
        Some(NO_PERMISSION) => unavailable(&format!("{NO_PERMISSION}: {error}")),
        _ => unavailable(&error.to_string()),
    }
}

fn after(pause: Duration) -> Instant {
    crate::clock::monotonic() + pause
}

/// The code of what a user has no right to.
const NO_PERMISSION: &str = "NOPERM";
/// How long the subscription may take to be made; to be connected to one master of many; and the pause after one that has ended.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
const MASTER_WITHIN: Duration = Duration::from_millis(500);
const SUBSCRIBE_AGAIN: Duration = Duration::from_millis(200);
/// How often the subscription is tried for life, and how long it may take to answer.
const PING_EVERY: Duration = Duration::from_millis(200);
const PING_WITHIN: Duration = Duration::from_millis(400);
/// How often the map of a cluster is looked at for its server, and how often Sentinels are asked for the master.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const ASK_EVERY: Duration = Duration::from_millis(500);
/// How often maintenance is read where nothing is heard of it, and how soon again where that failed.
const READ_EVERY: Duration = Duration::from_secs(3);
const READ_AGAIN: Duration = Duration::from_millis(200);
