//! What a process that has handed the ledger over and whose calls run on says to its successor now and then: it asks which of their accounts
//! were stopped, so that calls that are to end then do, and tells which idempotency keys are free.

use std::path::Path;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use super::owner::Owner;
use super::shared::{EmbeddedAccount, Shared};
use crate::ledger::admin::accounts::AccountOp;
use crate::ledger::admin::{AdminOp, AdminReply};
use crate::ledger::control_socket;
use crate::pure::ids::AccountId;

/// Looks until the ledger is this process' again, or nobody has it any more.
pub(super) fn watch(shared: &Arc<Shared>, path: &Path) {
    let (shared, path) = (Arc::downgrade(shared), path.to_owned());
    let work = move || watch_until_the_end(&shared, &path);
    if let Err(error) = std::thread::Builder::new().name("stops".to_owned()).spawn(work) {
        log::error!("calls of accounts that are stopped at the new process run on here: {error}");
    }
}

fn watch_until_the_end(shared: &Weak<Shared>, path: &Path) {
    loop {
        std::thread::sleep(LOOK_EVERY);
        match shared.upgrade() {
            Some(shared) if shared.owner.now() != Owner::This => {
                look(&shared, path);
                tell_freed(&shared, path);
            }
            Some(_) | None => return,
        }
    }
}

fn look(shared: &Shared, path: &Path) {
    let socket = control_socket::socket_path(path);
    for cells in running(shared).chunks(ASKED_AT_ONCE) {
        let accounts: Vec<AccountId> = cells.iter().map(|cell| cell.record.load().id.clone()).collect();
        let asked = control_socket::ask(&socket, &AdminOp::Account(AccountOp::Stopped { accounts }));
        let stopped = match asked {
            Ok(AdminReply::Accounts { accounts }) => accounts,
            Ok(_) => return log::error!("the new process answers something else than which accounts are stopped"),
            // It may not listen yet; the next look asks again.
            Err(error) => return log::debug!("the new process does not say which accounts are stopped: {error}"),
        };
        for view in stopped {
            let found = cells.iter().find(|cell| cell.record.load().id == view.record.id);
            if let Some(cell) = found.filter(|_| shared.owner.now() == Owner::Successor) {
                cell.set_record(view.record);
            }
        }
    }
}

/// Tells the successor which keys are free, for their calls came to nothing since it has the ledger. Should the ledger come back, what it has
/// not heard is written here.
pub(super) fn tell_freed(shared: &Shared, path: &Path) {
    let socket = control_socket::socket_path(path);
    while shared.owner.now() == Owner::Successor {
        let calls = shared.idempotency.freed(TOLD_AT_ONCE);
        if calls.is_empty() {
            return;
        }
        let op = AdminOp::KeysFreed { calls: calls.clone() };
        match control_socket::ask(&socket, &op) {
            Ok(_) => shared.idempotency.are_free(&calls),
            // It may not listen yet; the next look tells it.
            Err(error) => return log::debug!("the new process does not hear which idempotency keys are free: {error}"),
        }
    }
}

/// Accounts with calls that are to end when they are stopped.
fn running(shared: &Shared) -> Vec<Arc<EmbeddedAccount>> {
    let accounts = shared.accounts.read().unwrap_or_else(PoisonError::into_inner);
    let runs = accounts.values().filter(|cell| cell.stoppable.runs());
    runs.cloned().collect()
}

const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Of so many the names fit in a line of the socket.
const ASKED_AT_ONCE: usize = 1_000;
/// And of so many the keys.
const TOLD_AT_ONCE: usize = 1_000;

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;
    use crate::ledger::cover::Cover;
    use crate::ledger::tests::rig::Rig;

    #[test]
    fn a_ledger_that_is_this_process_again_is_looked_after_no_more() {
        let rig = Rig::embedded();
        let crate::ledger::Ledger::Embedded(store) = &rig.ledger else {
            panic!("another store");
        };
        // A call runs of which a successor would be asked.
        let (account, cover) = (rig.caller("1").account.id.clone(), Arc::new(Cover::of(None)));
        store.place(&account).unwrap().ends_when_stopped(&cover);
        let (shared, path) = (Arc::downgrade(&store.shared), store.path().to_owned());
        let socket = control_socket::socket_path(&path);
        let listener = UnixListener::bind(&socket).unwrap();
        let (ended, tells) = std::sync::mpsc::channel();
        let asked = ended.clone();
        std::thread::spawn(move || {
            drop(listener.accept());
            let _ = asked.send("it asks");
        });
        std::thread::spawn(move || {
            watch_until_the_end(&shared, &path);
            let _ = ended.send("it ended");
        });
        assert_eq!(tells.recv(), Ok("it ended"));
        drop(UnixStream::connect(&socket)); // So that nobody listens any more.
    }
}
