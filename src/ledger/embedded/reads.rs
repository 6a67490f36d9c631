//! Commands that only read: answered from memory, or by connections of their own to the file, on the thread of whoever asks. The ledger's
//! thread writes out what is queued before, and nothing more: what operators read delays neither debits nor what operators do.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use tokio::sync::oneshot;

use super::audit::Moment;
use super::command::{Command, Commands};
use super::credits::CreditQuery;
use super::receipts;
use super::reports::Reports;
use super::shared::{EmbeddedAccount, Shared};
use super::{Embedded, stopped};
use crate::clock::monotonic;
use crate::ledger::acts::number_before;
use crate::ledger::admin::accounts::{AccountOp, AccountView};
use crate::ledger::admin::events::EventOp;
use crate::ledger::admin::operators::OperatorOp;
use crate::ledger::admin::{AdminError, AdminOp, AdminReply, AuditReport, ReceiptQuery};
use crate::ledger::query::{KeyedRow, UsageQuery};
use crate::ledger::sqlite::Reader;
use crate::ledger::{KeyRecord, STOPPED, StoreError};
use crate::pure::ids::{AccountId, KeyDigest};

/// What a command reads of the file needs.
#[derive(Clone, Debug)]
pub(super) struct Reads {
    shared: Arc<Shared>,
    commands: Commands,
    reports: Reports,
    path: PathBuf,
}

impl Embedded {
    /// What a command that only reads is answered; nothing for one that the ledger's thread runs.
    pub(super) async fn read_beside(&self, op: &AdminOp) -> Option<Result<AdminReply, AdminError>> {
        let op = read_alone(op)?;
        if let Some(answer) = self.shared.answer_from_memory(op) {
            return Some(answer);
        }
        let (reads, op) = (self.reads(), op.clone());
        let read = tokio::task::spawn_blocking(move || reads.answer_from_file(&op)).await;
        Some(read.unwrap_or_else(|_| Err(stopped())))
    }

    /// The same for a thread that is on no runtime.
    pub(super) fn read_beside_blocking(&self, op: &AdminOp) -> Option<Result<AdminReply, AdminError>> {
        let op = read_alone(op)?;
        let answer = self.shared.answer_from_memory(op);
        Some(answer.unwrap_or_else(|| self.reads().answer_from_file(op)))
    }

    fn reads(&self) -> Reads {
        Reads {
            shared: Arc::clone(&self.shared),
            commands: self.commands.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            reports: self.reports.clone(),
            path: self.path.clone(),
        }
    }
}

/// A command that only reads, whoever gives it.
fn read_alone(op: &AdminOp) -> Option<&AdminOp> {
    let op = match op {
        AdminOp::By(acted) => &acted.op,
        op => op,
    };
    op.only_reads().then_some(op)
}

impl Shared {
    /// What memory knows by itself; nothing for what the file has to say.
    fn answer_from_memory(&self, op: &AdminOp) -> Option<Result<AdminReply, AdminError>> {
        Some(match op {
            AdminOp::AccountShow { account } => self.found(account).map(|cell| {
                let mut view = self.account_view(&cell);
                view.keys = self.keys_of(&cell);
                AdminReply::Account(view)
            }),
            AdminOp::AccountList => Ok(AdminReply::Accounts {
                accounts: self.all_accounts(),
            }),
            AdminOp::KeyShow { key } => {
                let record = self.key_named(key).ok_or(AdminError::NoKey);
                record.map(|record| AdminReply::Key(KeyRecord::clone(&record)))
            }
            AdminOp::KeyList { account } => self.found(account).map(|cell| AdminReply::Keys {
                keys: self.keys_of(&cell),
                account_status: Some(cell.record.load().terms.status),
            }),
            AdminOp::KeySpent { account, key, reset } => self.found(account).map(|cell| {
                let now = self.clock.now();
                let mut state = cell.state();
                state.expire(now);
                state.spent(key, reset.period(now.day())).into()
            }),
            AdminOp::Account(AccountOp::Page(query)) => Ok(AdminReply::AccountPage(self.account_page(query))),
            AdminOp::Account(AccountOp::Stopped { accounts }) => Ok(AdminReply::Accounts {
                accounts: self.stopped(accounts),
            }),
            AdminOp::Operator(OperatorOp::List) => Ok(AdminReply::Operators {
                operators: self.operators.all(),
            }),
            AdminOp::Operator(OperatorOp::Find { digest }) => {
                let digest = KeyDigest::from_hex(digest);
                let found = digest.and_then(|digest| self.operators.find(&digest));
                Ok(AdminReply::Operators {
                    operators: found.into_iter().collect(),
                })
            }
            _ => return None,
        })
    }

    fn found(&self, account: &AccountId) -> Result<Arc<EmbeddedAccount>, AdminError> {
        let accounts = self.accounts.read().unwrap_or_else(PoisonError::into_inner);
        let cell = accounts.get(account).cloned();
        cell.ok_or_else(|| AdminError::NoAccount(account.clone()))
    }

    fn all_accounts(&self) -> Vec<AccountView> {
        let cells: Vec<Arc<EmbeddedAccount>> = {
            let accounts = self.accounts.read().unwrap_or_else(PoisonError::into_inner);
            accounts.values().cloned().collect()
        };
        cells.iter().map(|cell| self.account_view(cell)).collect()
    }
}

impl Reads {
    /// What the file says, every settlement made before the call included. Blocks.
    fn answer_from_file(&self, op: &AdminOp) -> Result<AdminReply, AdminError> {
        match op {
            AdminOp::Usage { account, key, period } => {
                let rows = self.usage(&UsageQuery::of_period(account.clone(), key.clone(), *period))?;
                Ok(AdminReply::Usage {
                    rows: KeyedRow::without_keys(rows),
                })
            }
            AdminOp::UsageOf(query) => self.usage(query).map(|rows| AdminReply::UsageOf { rows }),
            AdminOp::EndUsers(query) => {
                self.shared.found(&query.account)?;
                let today = self.shared.clock.now().day();
                let usage = self.of_now(|reader| reader.end_users(query, today))?;
                Ok(AdminReply::EndUsers { usage })
            }
            AdminOp::Receipts(query) => self.receipts(query),
            AdminOp::Audit => self.audit().map(AdminReply::Audit),
            AdminOp::Operator(OperatorOp::Log(query)) => {
                let before = number_before(query)?;
                // What is logged is in the file at once.
                let page = self.reports.read_for_operators(|reader| reader.acts(query, before));
                Ok(AdminReply::Acts(page?))
            }
            AdminOp::Event(EventOp::Count) => {
                let count = self.of_now(Reader::event_count)?;
                Ok(AdminReply::EventCount(count))
            }
            op => match CreditQuery::asked(op) {
                Some(query) => self.credits(&query),
                None => Err(AdminError::Invalid("a command that reads nothing".to_owned())),
            },
        }
    }

    fn usage(&self, query: &UsageQuery) -> Result<Vec<KeyedRow>, AdminError> {
        self.shared.found(&query.account)?;
        let today = self.shared.clock.now().day();
        Ok(self.of_now(|reader| reader.usage(query, today))?)
    }

    fn credits(&self, query: &CreditQuery) -> Result<AdminReply, AdminError> {
        if let Some(account) = query.account() {
            self.shared.found(account)?;
        }
        query.check()?;
        self.flush()?;
        Ok(self.reports.read_for_operators(|reader| query.read(reader))?)
    }

    /// Where one call is asked for that is only just ending, that is waited for.
    fn receipts(&self, query: &ReceiptQuery) -> Result<AdminReply, AdminError> {
        let cell = self.shared.found(&query.account)?;
        let asked = monotonic();
        loop {
            // Before the receipts are read: a settlement that comes between is among them.
            let standing = receipts::standing(&cell, query);
            let page = self.of_now(|reader| reader.page(query))?;
            match receipts::answer(page, standing, asked.elapsed()) {
                Ok(page) => return Ok(AdminReply::Receipts(page)),
                Err(()) => std::thread::sleep(receipts::ASK_AGAIN),
            }
        }
    }

    /// Reads what is committed, and what was queued until now.
    fn of_now<T>(&self, what: impl FnOnce(&Reader) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.flush()?;
        self.reports.read_for_operators(what)
    }

    /// Brings what is queued into the file.
    fn flush(&self) -> Result<(), StoreError> {
        let (written, is_written) = oneshot::channel();
        self.tell(Command::Flush(written))?;
        is_written.blocking_recv().map_err(|_| gone())?
    }

    fn audit(&self) -> Result<AuditReport, AdminError> {
        let report = self.moment(Moment::over(&self.path)?)?.report()?;
        let today = report.at.day();
        self.reports.witnessed(report, today)
    }

    /// Asks the ledger's thread for a moment of which the file and memory both tell.
    fn moment(&self, moment: Moment) -> Result<Moment, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.tell(Command::Moment(Box::new(moment), reply))?;
        answer.blocking_recv().map_err(|_| gone())?.map(|moment| *moment)
    }

    fn tell(&self, command: Command) -> Result<(), StoreError> {
        self.commands.send(command).map_err(|_| gone())
    }
}

fn gone() -> StoreError {
    StoreError::Unavailable(STOPPED.to_owned())
}
