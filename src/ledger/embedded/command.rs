//! What the ledger's thread is told.

use std::sync::{Arc, mpsc};

use tokio::sync::oneshot;

use super::audit::Moment;
use super::shared::EmbeddedAccount;
use crate::ledger::StoreError;
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::ledger::events::Refused;
use crate::ledger::idempotency::call::{Found, KeyedCall};
use crate::pure::idempotency::Record;
use crate::pure::time::Day;

/// The way to the thread.
#[expect(
    clippy::disallowed_types,
    reason = "what waits is bounded by calls and commands: each has at most one there, and debits have a queue of their own"
)]
pub(super) type Commands = mpsc::Sender<Command>;

/// What the thread is told.
#[derive(Debug)]
pub(super) enum Command {
    /// A debit stands in an empty queue: commit it with those that follow within the window.
    Commit,
    /// So many debits are queued that they are committed now.
    Full,
    /// An operator's command.
    Admin {
        op: AdminOp,
        reply: oneshot::Sender<Result<AdminReply, AdminError>>,
    },
    /// A call was refused in a way that is told.
    Refused {
        cell: Arc<EmbeddedAccount>,
        refused: Refused,
    },
    /// Commit now, and say so.
    Flush(oneshot::Sender<Result<(), StoreError>>),
    /// Commit, and say what is there at that moment.
    Moment(Box<Moment>, oneshot::Sender<Result<Box<Moment>, StoreError>>),
    /// Give a call its idempotency key, or say what is known of that.
    FindKey(Box<KeyedCall>, oneshot::Sender<Result<Found, StoreError>>),
    /// Say what is known of a call's idempotency key, which nobody takes.
    KnownKey(Box<KeyedCall>, oneshot::Sender<Result<Option<Record>, StoreError>>),
    /// Write what waits of idempotency keys.
    WriteKeys,
    /// Forget the producers that have been silent for long on this day.
    ForgetProducers(Day),
    /// Commit, give up the file and its lock, say so, and end. When the file cannot be written, nothing changes.
    HandOver(oneshot::Sender<Result<(), StoreError>>),
    /// Commit and end.
    Close,
}
