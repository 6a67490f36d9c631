//! What the listener of operators answers from.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::Semaphore;

use super::sessions::Sessions;
use super::stripe_events::StripeEvents;
use crate::clock::Clock;
use crate::gateway::access::auth_throttle::AuthThrottle;
use crate::gateway::snapshot::Snapshot;
use crate::ledger::Ledger;
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::server::admin::Admin;

/// The state of the operator's API; `serve` answers connections from it.
pub struct OperatorApi {
    /// Knows configuration, ledger and figures.
    pub(super) admin: Arc<Admin>,
    /// Failures of operators are their own: wrong keys of clients keep no operator out.
    pub(super) throttle: AuthThrottle,
    pub(super) sessions: Sessions,
    /// Stripe's messages that came off the clock, or told of a dispute.
    pub(super) stripe_events: StripeEvents,
    /// A place for each request, until its answer is written.
    pub(super) exchanges: Semaphore,
    /// Places for commands that run: one whose client has gone comes to its end all the same.
    pub(super) running: Running,
    pub(super) times: Times,
}

impl OperatorApi {
    /// Over what the admin listener of the same gateway answers from.
    pub fn new(admin: Arc<Admin>) -> OperatorApi {
        OperatorApi {
            admin,
            throttle: AuthThrottle::new(),
            sessions: Sessions::default(),
            stripe_events: StripeEvents::default(),
            exchanges: Semaphore::new(EXCHANGES_MAX as usize),
            running: Running::default(),
            times: Times::default(),
        }
    }

    /// The same with other times for the parts of an exchange.
    #[must_use]
    pub fn within(self, times: Times) -> OperatorApi {
        OperatorApi { times, ..self }
    }

    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        self.admin.snapshot.load_full()
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.admin.ledger
    }

    /// Runs a command on the ledger. In a box of its own type: what it needs of a store is deep, and not to be part of each endpoint.
    pub(super) fn run(&self, op: AdminOp) -> BoxFuture<'static, Result<AdminReply, AdminError>> {
        let ledger = self.admin.ledger.clone();
        Box::pin(async move { ledger.run(op).await })
    }

    /// Returns once every request is answered and no command runs. No other request begins while this waits, nor while what it returns is kept.
    pub(super) async fn idle(&self) -> impl Sized + use<'_> {
        // An error: nobody waits for places any more.
        let all = self.exchanges.acquire_many(EXCHANGES_MAX).await;
        // Commands whose clients have gone.
        drop(self.running.acts.acquire_many(ACTS_MAX).await);
        drop(self.running.reads.acquire_many(READS_MAX).await);
        all
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.admin.clock
    }
}

/// Places for commands. Those of acts are for acts, and for what has to be looked up before one in another's name: what operators read,
/// however much and by however many, keeps nobody from acting.
pub(super) struct Running {
    acts: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    /// An audit reads all there is.
    audits: Arc<Semaphore>,
}

impl Default for Running {
    fn default() -> Running {
        let places = |count: u32| Arc::new(Semaphore::new(count as usize));
        Running {
            acts: places(ACTS_MAX),
            reads: places(READS_MAX),
            audits: places(1),
        }
    }
}

impl Running {
    /// The places of an operator's command.
    pub(super) fn of(&self, op: &AdminOp) -> Arc<Semaphore> {
        Arc::clone(match op {
            AdminOp::Audit => &self.audits,
            op if op.is_act() => &self.acts,
            _ => &self.reads,
        })
    }

    /// Those of acts.
    pub(super) fn of_acts(&self) -> Arc<Semaphore> {
        Arc::clone(&self.acts)
    }
}

/// How long parts of an exchange may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// From the beginning of a connection, or from its last answer, until a head is there.
    pub head: Duration,
    /// From there to the answer.
    pub answer: Duration,
}

impl Default for Times {
    /// A minute each.
    fn default() -> Times {
        Times {
            head: Duration::from_secs(60),
            answer: Duration::from_secs(60),
        }
    }
}

/// Far more than there are connections.
const EXCHANGES_MAX: u32 = 1 << 16;
/// Most acts of operators, and of others in whose name something is done, that run at once.
const ACTS_MAX: u32 = 64;
/// Most reads of theirs.
const READS_MAX: u32 = 8;
