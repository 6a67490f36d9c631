//! Fetches a provider's list of models from time to time, and imports it into the catalogue's file, which the reloader then reads.
//!
//! Nobody looks at what comes before it is in force, so what looks like a mistake is refused: the old prices stay, and a log line and a
//! metric say so.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::BytesMut;
use http::header;
use pingora::connectors::http::Connector;
use pingora::http::RequestHeader;
use pingora::protocols::http::client::HttpSession;

use crate::clock::monotonic;
use crate::config::Refresh;
use crate::config::import::{Import, Write, import};
use crate::gateway::media_type::JSON;
use crate::gateway::snapshot::Snapshot;
use crate::gateway::upstream::providers::Upstream;
use crate::net::dns::Unreached;
use crate::net::error_text::ErrorText;
use crate::net::final_head::final_head;
use crate::pure::import::NEW_AND_FREE;
use crate::pure::request_body::ResponseMode;
use crate::telemetry::{Refreshed, Telemetry};

/// Starts refreshing, on a thread of its own, until the snapshot is gone. The plan is read anew each time.
///
/// # Errors
/// When the thread cannot be started.
pub(crate) fn watch(snapshot: &Arc<ArcSwap<Snapshot>>, telemetry: &Arc<Telemetry>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (snapshot, telemetry) = (Arc::downgrade(snapshot), Arc::clone(telemetry));
    let work = move || {
        let (mut last, mut failures, mut left_out) = (None, 0usize, Vec::new());
        while let Some(snapshot) = Weak::upgrade(&snapshot).map(|snapshot| snapshot.load_full()) {
            if let Some(plan) = &snapshot.config.catalogue_refresh {
                let wait = wait_after(failures, plan.every);
                let due = last.is_none_or(|at: std::time::Instant| at.elapsed() >= wait);
                if due {
                    last = Some(monotonic());
                    let refreshed = runtime.block_on(refresh(&snapshot, plan));
                    tell(&refreshed, &mut left_out, &telemetry);
                    failures = match refreshed {
                        Ok(_) => 0,
                        Err(_) => failures.saturating_add(1),
                    };
                }
            }
            drop(snapshot);
            std::thread::sleep(LOOK_EVERY);
        }
    };
    let thread = std::thread::Builder::new().name("refresh".to_owned());
    thread.spawn(work).map(|_| ())
}

/// How long the next refresh waits after so many in a row that failed: a short outage must not cost a whole interval.
fn wait_after(failures: usize, every: Duration) -> Duration {
    let Some(last) = failures.checked_sub(1) else {
        return every;
    };
    let [.., longest] = RETRY_AFTER;
    RETRY_AFTER.get(last).copied().unwrap_or(longest).min(every)
}

/// Fetches and imports once.
async fn refresh(snapshot: &Snapshot, plan: &Refresh) -> Result<Import, String> {
    let upstream = snapshot.upstreams.get(&plan.provider);
    let upstream = upstream.ok_or_else(|| format!("the provider {} is off", plan.provider))?;
    let list = tokio::time::timeout(FETCH_MAX, fetch(upstream)).await;
    let list = list.map_err(|_| format!("{} did not answer in {FETCH_MAX:?}", plan.provider))??;
    let source = PathBuf::from(format!("{}/models", upstream.provider.base_url.authority));
    import(&snapshot.config, &plan.rules, &source, &list, Write::UnlessDoubtful).map_err(|error| error.to_string())
}

/// `left_out` has the new models that cost nothing and were told of the last time: they are told once, and not each time.
fn tell(refreshed: &Result<Import, String>, left_out: &mut Vec<String>, telemetry: &Telemetry) {
    for note in refreshed.iter().flat_map(|import| &import.notes) {
        log::warn!("the catalogue's refresh: {note}");
    }
    if let Ok(import) = refreshed {
        for line in no_longer_sold(import).iter().take(MODELS_LOGGED_MAX) {
            log::warn!("the catalogue's refresh: {line}");
        }
        let new = new_and_free(import);
        if !new.is_empty() && new != *left_out {
            let models: Vec<&str> = new.iter().take(MODELS_LOGGED_MAX).map(String::as_str).collect();
            log::info!(
                "the catalogue's refresh left out {} new models that cost nothing, import them by hand if that is right: {}",
                new.len(),
                models.join(", ")
            );
        }
        *left_out = new;
    }
    match refreshed {
        Ok(import) if import.written => log::info!("the catalogue was refreshed: {}", import.changes.summary()),
        Ok(_) => log::debug!("the catalogue is as it was"),
        Err(error) => log::error!("the catalogue was not refreshed, the old one stays: {error}"),
    }
    telemetry.refreshed(match refreshed {
        Ok(import) if import.own == 0 => Refreshed::Whole,
        Ok(_) => Refreshed::Part,
        Err(_) => Refreshed::Failed,
    });
}

/// Why models that were sold are not any more, though the list has them.
fn no_longer_sold(import: &Import) -> Vec<String> {
    let removed = import.skipped.iter();
    let removed = removed.filter(|skipped| import.changes.removed.contains(&skipped.model));
    // A reason may have words of the list.
    let lines = removed.map(|skipped| {
        format!(
            "{} is not sold any more: {}",
            skipped.model,
            skipped.reason.escape_debug()
        )
    });
    lines.collect()
}

/// The models that wait for somebody to look at them.
fn new_and_free(import: &Import) -> Vec<String> {
    let new = import.skipped.iter().filter(|skipped| skipped.reason == NEW_AND_FREE);
    new.map(|skipped| skipped.model.clone()).collect()
}

/// The answer of the provider's `/models`.
async fn fetch(upstream: &Upstream) -> Result<String, String> {
    let said = |error: Box<pingora::Error>| format!("{}: {}", upstream.provider.name, ErrorText(&error));
    let mut session = connected(upstream).await?;
    let path = format!("{}/models", upstream.provider.base_url.path);
    let request = http::Request::get(&path).body(());
    let (mut parts, ()) = request.map_err(|error| format!("{path}: {error}"))?.into_parts();
    parts.headers = upstream.parts.headers(ResponseMode::Whole).clone();
    parts.headers.remove(header::CONTENT_TYPE);
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::ACCEPT, JSON);
    let request = RequestHeader::from(parts);
    session.write_request_header(Box::new(request)).await.map_err(said)?;
    session.finish_request_body().await.map_err(said)?;
    final_head(&mut session).await.map_err(said)?;
    let status = session.response_header().map(|header| header.status.as_u16());
    if status != Some(200) {
        return Err(format!("{} answered {}", upstream.provider.name, status.unwrap_or(0)));
    }
    let mut body = BytesMut::new();
    while let Some(chunk) = session.read_response_body().await.map_err(said)? {
        if body.len().saturating_add(chunk.len()) > LIST_BYTES_MAX {
            return Err(format!(
                "the list of {} is longer than {LIST_BYTES_MAX} bytes",
                upstream.provider.name
            ));
        }
        body.extend_from_slice(&chunk);
    }
    String::from_utf8(body.to_vec()).map_err(|_| format!("the list of {} is not UTF-8", upstream.provider.name))
}

/// A connection to the first address of the provider that takes one.
async fn connected(upstream: &Upstream) -> Result<HttpSession<()>, String> {
    let (connector, addresses) = (Connector::new(None), &upstream.host.addresses);
    let mut failed = format!("{} has no known address", upstream.provider.name);
    let mut unreached = Unreached::default();
    while let Some(address) = addresses.pick(&mut unreached) {
        match connector.get_http_session(&upstream.peer_at(address)).await {
            Ok((session, _)) => {
                if unreached.has(!address.is_ipv6()) {
                    addresses.reached(address.is_ipv6());
                }
                return Ok(session);
            }
            Err(error) => {
                failed = format!("{}: {}", upstream.provider.name, ErrorText(&error));
                unreached.note(address.is_ipv6());
            }
        }
    }
    Err(failed)
}

/// Between refreshes that fail, one after the other; then always the last.
const RETRY_AFTER: [Duration; 3] = [
    Duration::from_secs(60),
    Duration::from_secs(5 * 60),
    Duration::from_secs(15 * 60),
];
/// Models that the log names after one refresh.
const MODELS_LOGGED_MAX: usize = 100;
const LOOK_EVERY: Duration = Duration::from_secs(1);
const FETCH_MAX: Duration = Duration::from_secs(60);
const LIST_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::catalogue::changes::Changes;
    use crate::pure::import::Skipped;

    #[test]
    fn the_log_says_why_a_model_is_not_sold_any_more_and_which_new_ones_cost_nothing() {
        let skipped = [
            ("a/gone", "its price is not fixed"),
            ("a/odd", "it answers with \u{1b}[2J"),
            ("a/never", "a rule leaves it out"),
            ("a/own", "the catalogue has an entry of its own"),
            ("a/free", NEW_AND_FREE),
        ];
        let skipped = skipped.map(|(model, reason)| Skipped {
            model: model.to_owned(),
            reason: reason.to_owned(),
        });
        let removed = ["a/gone", "a/odd", "a/left"].map(str::to_owned).to_vec();
        let import = Import {
            changes: Changes {
                removed,
                ..Changes::default()
            },
            skipped: skipped.to_vec(),
            notes: Vec::new(),
            models: 7,
            own: 1,
            written: true,
        };
        assert_eq!(
            no_longer_sold(&import),
            [
                "a/gone is not sold any more: its price is not fixed",
                "a/odd is not sold any more: it answers with \\u{1b}[2J",
            ]
        );
        assert_eq!(new_and_free(&import), ["a/free"]);
    }

    #[test]
    fn a_refresh_that_failed_is_tried_again_sooner_than_the_next_is_due() {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        let day = minutes(1_440);
        let waits = [0, 1, 2, 3, 4, 99].map(|failures| wait_after(failures, day));
        assert_eq!(waits, [1_440, 1, 5, 15, 15, 15].map(minutes));
        let waits = [0, 1, 2, 3, 4].map(|failures| wait_after(failures, minutes(3)));
        assert_eq!(waits, [3, 1, 3, 3, 3].map(minutes), "and never later");
    }
}
