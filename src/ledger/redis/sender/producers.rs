//! Producers that have been silent for long are forgotten, by whoever meets their accounts.

use super::Settler;
use crate::ledger::redis::script::{self, EvalMode};

impl Settler {
    /// Forgets the producers of long ago in the accounts that were met. It can wait, and it does no harm when it fails.
    pub(super) async fn forget_producers(&mut self) {
        if self.met.is_empty() {
            return;
        }
        let Some((mut connection, number)) = self.connection().await else {
            return;
        };
        let clock = self.shared.now_text();
        let today = self.shared.options.clock.now().day().0;
        for account in std::mem::take(&mut self.met) {
            let [name, _] = account.keys();
            let mut command = script::FORGET.call(EvalMode::Text, &[name]);
            command.arg(&clock).arg(today);
            match tokio::time::timeout(self.shared.options.timeout, connection.send(&command)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => log::debug!("producers of {} are kept: {error}", account.id()),
                Err(_) => return self.line.give_up(number),
            }
        }
    }
}
