//! What a start opens before the first request, and starts beside the requests, in this order: what can fail without anybody missing it
//! comes first, the ledger last.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use super::admin::Admin;
use super::audit_task::Audited;
use super::journal_task::JournalTask;
use super::operator::OperatorApi;
use super::pending_listener::PendingListener;
use super::read_ahead::read_ahead;
use super::refresh;
use super::reload::Reloader;
use super::upgrade::{Start, Step};
use super::webhooks::Webhooks;
use crate::config::Config;
use crate::gateway::Tollgate;
use crate::gateway::state::Books;
use crate::ledger;
use crate::ledger::folder::make_for_unmapped;
use crate::ledger::journal::{self, Journal};
use crate::ledger::{Ledger, ReceiptFiles, StoreError};
use crate::net::dns::Resolver;
use crate::pure::tokens::{self, Encoding};
use crate::telemetry::{access_log, otlp};

/// What cannot be started.
pub type StartError = Box<dyn std::error::Error + Send + Sync>;

/// What is open before the ledger is.
pub(crate) struct Opened {
    journal: Arc<Journal>,
    log: access_log::Writer,
    traces: otlp::Exporter,
    receipts: Option<Arc<ReceiptFiles>>,
    admin: PendingListener,
    operator: Option<PendingListener>,
}

impl Opened {
    /// Deletes the journal again, in which no call stands: the start fails.
    pub(crate) fn leave_no_journal(&self) {
        self.journal.close();
    }
}

/// Opens everything but the ledger: resolves the providers' names, opens access log, traces and journal, and binds `admin_listen` and
/// `operator_listen`. Blocks.
///
/// # Errors
/// When one of them cannot be opened; it may be called again then. Without a journal paid calls are refused until one can be made: a
/// gateway that starts lives with that, one that is to take over does not.
pub(crate) fn open_beside(tollgate: &Tollgate, start: Start) -> Result<Opened, StartError> {
    let snapshot = tollgate.snapshot();
    let (config, telemetry) = (&snapshot.config, tollgate.telemetry());
    Step::Providers.take(|| {
        tollgate.upstreams().resolve(Resolver::system());
        tollgate.upstreams().wait_for_names();
        // Whatever is read from the disk for a first count, no stream should wait for it.
        for table in [Encoding::O200k, Encoding::Cl100k].into_iter().flat_map(tokens::tables) {
            if let Err(error) = read_ahead(table) {
                log::debug!("the tokenizers' tables are not read ahead: {error}");
            }
        }
        Ok::<_, StartError>(())
    })?;
    let (log, traces, receipts) = Step::Logs.take(|| {
        if let Some(folder) = config.own_log_folder() {
            make_for_unmapped(folder).map_err(|error| format!("access_log: {}: {error}", folder.display()))?;
        }
        let log = access_log::Writer::start(telemetry, &config.access_log)?;
        let traces = otlp::Exporter::prepare(telemetry, &config.traces)?;
        let keep_days = config.receipts.files_keep_days;
        let start = |folder: &PathBuf| ReceiptFiles::start(folder, keep_days, tollgate.clock().clone());
        Ok::<_, StartError>((log, traces, config.receipts.files.as_ref().map(start).transpose()?))
    })?;
    let (admin, operator) = Step::Admin.take(|| {
        let operator = config.operator.as_ref();
        let operator = operator.map(|operator| PendingListener::bind("operator_listen", operator.address));
        let admin = PendingListener::bind("admin_listen", config.admin_listen)?;
        Ok::<_, StartError>((admin, operator.transpose()?))
    })?;
    for (key, address) in [Some(&admin), operator.as_ref()]
        .into_iter()
        .flatten()
        .filter_map(PendingListener::taken)
    {
        // In an upgrade the process before has it, most often.
        let level = match start {
            Start::Upgrade => log::Level::Info,
            Start::Fresh => log::Level::Warn,
        };
        log::log!(level, "{key}: {address} is in use; it is tried until it is free");
    }
    let journal = Step::Journal.take(|| {
        let journal = Journal::open(&config.data_dir);
        match start {
            Start::Upgrade if !journal.is_usable() => {
                Err(format!("no journal can be made in {}", config.data_dir.display()).into())
            }
            Start::Upgrade | Start::Fresh => Ok::<_, StartError>(journal),
        }
    })?;
    Ok(Opened {
        journal,
        log,
        traces,
        receipts,
        admin,
        operator,
    })
}

/// Opens the ledger, once the rest is open, and bills what processes that died have left. Blocks.
///
/// # Errors
/// When the ledger is owned by another process, or the store cannot be reached. It may be called again then.
pub(crate) fn open_books<'t>(tollgate: &'t Tollgate, opened: &Opened) -> Result<&'t Books, StoreError> {
    if let Ok(books) = tollgate.books() {
        return Ok(books);
    }
    let journal = Arc::clone(&opened.journal);
    let config = &tollgate.snapshot().config;
    let ledger = Step::Ledger.take(|| open_ledger(config))?;
    if let Some(files) = &opened.receipts {
        ledger.write_receipts_to(files);
    }
    Step::Recovery.take(|| {
        // Nothing is granted before it is known what the calls of the processes before this one hold.
        journal::follow::hold_for_predecessors(&config.data_dir, &ledger);
        if let Ledger::Embedded(embedded) = &ledger {
            // From here on their calls ask here, and none is refused for those of them that have ended.
            journal::follow::read_when_asked(&journal, embedded);
            ledger::control::listen(embedded)?;
        }
        // What a process that died has left is billed before the first call is admitted.
        ledger.recovered(journal::recover::recover_others(&journal, &ledger));
        Ok::<_, StoreError>(())
    })?;
    Ok(tollgate.with_books(Books { ledger, journal }))
}

/// Starts what runs beside the requests, once the books are open: the journal's thread, reload, refresh, audit, webhooks, and the
/// listeners of monitoring and of operators.
/// `clients_at` is where the gateway itself listens for clients, none in a host's server; `reload_requested` asks for a reload.
///
/// # Errors
/// When a thread cannot be started.
pub(crate) fn start_beside(
    tollgate: &Tollgate,
    books: &Books,
    opened: Opened,
    clients_at: Option<SocketAddr>,
    reload_requested: Arc<AtomicBool>,
) -> Result<(), StartError> {
    let Opened {
        mut log,
        mut traces,
        receipts,
        admin: place,
        operator,
        ..
    } = opened;
    let snapshot = tollgate.snapshot();
    if let Some(problem) = snapshot.nothing_on_sale() {
        log::error!("{problem}");
    }
    for warning in &snapshot.warnings {
        log::warn!("{warning}");
    }
    let audited = Arc::new(Audited::new(snapshot.config.audit_every, tollgate.clock().now()));
    let admin = Arc::new(admin(tollgate, books, Arc::clone(&audited), clients_at));
    Arc::clone(&admin).listen(place)?;
    if let Some(place) = operator {
        OperatorApi::new(admin).listen(place)?;
    }
    let telemetry = tollgate.telemetry();
    Reloader::new(tollgate.current(), tollgate.upstreams().clone(), tollgate.environment())
        .observed_by(telemetry)
        .watch(reload_requested)?;
    refresh::watch(tollgate.current(), telemetry)?;
    let mut webhooks = Webhooks::start(tollgate.current(), &books.ledger, tollgate.clock(), telemetry)?;
    let mut journal = JournalTask::start(&books.journal, &books.ledger)?;
    let tracer = traces.take_tracer();
    tollgate.closed_by(Box::new(move |books| {
        journal.stop();
        webhooks.stop();
        books.ledger.close();
        if let Some(receipts) = &receipts {
            receipts.close();
        }
        // After the files: whoever finds debits in it that the store has acknowledged writes no receipts of them.
        match books.ledger.embedded().is_some_and(|embedded| embedded.is_followed()) {
            true => books.journal.close_followed(),
            false => books.journal.close(),
        }
        log.close();
        traces.close();
    }));
    let (ledger, clock) = (books.ledger.clone(), tollgate.clock().clone());
    Audited::watch(&audited, ledger, clock)?;
    // Last: a start that fails before is tried again, and a process has one tracer for its life.
    if tracer.is_some_and(|tracer| !telemetry.trace_by(tracer)) {
        log::error!("traces are sent already");
    }
    Ok(())
}

impl Tollgate {
    /// What an admin listener answers from, for a host that has its own; none before the books are open. It knows of no audit, and not where
    /// the host listens: it is ready until the gateway stops, while its store can be reached.
    pub fn admin(&self) -> Option<Admin> {
        Some(admin(self, self.books().ok()?, Arc::default(), None))
    }

    /// What a listener of operators answers from, for a host that has its own; none before the books are open.
    pub fn operator(&self) -> Option<OperatorApi> {
        self.admin().map(|admin| OperatorApi::new(Arc::new(admin)))
    }
}

fn admin(tollgate: &Tollgate, books: &Books, audited: Arc<Audited>, clients_at: Option<SocketAddr>) -> Admin {
    Admin {
        snapshot: Arc::clone(tollgate.current()),
        ledger: books.ledger.clone(),
        clock: tollgate.clock().clone(),
        life: Arc::clone(tollgate.lifecycle()),
        telemetry: Arc::clone(tollgate.telemetry()),
        audited,
        journal: Arc::clone(&books.journal),
        body_memory: Arc::clone(tollgate.body_memory()),
        started: tollgate.clock().now(),
        series: Mutex::default(),
        clients_at,
        listens: AtomicBool::new(false),
    }
}

/// A command may own the embedded ledger for a moment, also while it changes hands.
fn open_ledger(config: &Config) -> Result<Ledger, StoreError> {
    let started = crate::clock::monotonic();
    loop {
        let new_at = ledger::new_at(config);
        match ledger::open(config) {
            Err(StoreError::Owned(_)) if started.elapsed() < OWNED_MAX => std::thread::sleep(OWNED_PAUSE),
            opened => {
                if let (Ok(_), Some(path)) = (&opened, new_at) {
                    log::warn!("a new, empty ledger was made at {}: there was none", path.display());
                }
                return opened;
            }
        }
    }
}

/// How long another process may own the ledger before that is an error.
const OWNED_MAX: std::time::Duration = std::time::Duration::from_secs(2);
const OWNED_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::ledger::tests::logged::logged;

    #[test]
    fn a_start_tells_that_it_made_a_new_ledger() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data/ledger.db").display().to_string();
        let config = Config::parse(Path::new("t.yaml"), &format!("store: \"sqlite://{path}\""), &|_| None).unwrap();
        for is_new in [true, false] {
            let lines = logged(|| open_ledger(&config).unwrap().close());
            let told = format!("WARN a new, empty ledger was made at {path}: there was none");
            assert_eq!(lines.contains(&told), is_new, "{lines:?}");
        }
    }
}
