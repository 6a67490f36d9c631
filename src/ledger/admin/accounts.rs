//! Commands about accounts as a business has them: their terms, and pages of many.

use serde::{Deserialize, Serialize};

use crate::ledger::terms::TermsChange;
use crate::ledger::{AccountRecord, Figures, KeyRecord};
use crate::pure::ids::AccountId;

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "account_op")]
pub enum AccountOp {
    /// Changes an account's terms. Answers [`super::AdminReply::Account`].
    Terms {
        /// Whose.
        account: AccountId,
        /// How.
        change: TermsChange,
    },
    /// A page of accounts in the order of their names. Answers [`super::AdminReply::AccountPage`].
    Page(AccountQuery),
    /// Which of these accounts may not call. Answers [`super::AdminReply::Accounts`] with those.
    Stopped {
        /// Whose names.
        accounts: Vec<AccountId>,
    },
}

/// Which accounts are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AccountQuery {
    /// Only those after this name: the page before said it in `next`.
    pub after: Option<AccountId>,
    /// The most that are given: 1 to [`ACCOUNTS_MAX`], else the nearest.
    pub limit: u32,
    /// Only those whose name has this text in it, whatever the case of its ASCII letters.
    pub search: Option<String>,
}

/// Accounts, in the order of their names, without their keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AccountPage {
    /// The accounts.
    pub accounts: Vec<AccountView>,
    /// What the next page is after; none when this was the last.
    pub next: Option<AccountId>,
}

impl AccountQuery {
    /// The most accounts of the page.
    pub(in crate::ledger) fn limit(&self) -> usize {
        usize::try_from(self.limit.clamp(1, ACCOUNTS_MAX)).unwrap_or(usize::MAX)
    }

    /// What names are looked for.
    pub(in crate::ledger) fn search(&self) -> Search {
        let text = self.search.as_deref().unwrap_or_default();
        Search {
            text: text.to_ascii_lowercase(),
            name: String::new(),
        }
    }
}

/// Looks for a text in names, whatever the case.
pub(in crate::ledger) struct Search {
    text: String,
    /// A name in lower case: room for each, which is used again.
    name: String,
}

impl Search {
    /// Whether a name has the text in it.
    pub(in crate::ledger) fn finds(&mut self, id: &AccountId) -> bool {
        if self.text.is_empty() {
            return true;
        }
        self.name.clear();
        self.name.push_str(id.as_str());
        self.name.make_ascii_lowercase();
        self.name.contains(&self.text)
    }
}

impl AccountPage {
    /// A page after which there are more, or not.
    pub(in crate::ledger) fn of(accounts: Vec<AccountView>, has_more: bool) -> AccountPage {
        let last = accounts.last().filter(|_| has_more);
        let next = last.map(|last| last.record.id.clone());
        AccountPage { accounts, next }
    }
}

/// An account for showing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AccountView {
    /// Its facts.
    pub record: AccountRecord,
    /// Its figures.
    pub figures: Figures,
    /// Number of open holds: its calls at once.
    pub open_holds: u64,
    /// Its keys; empty in a list.
    pub keys: Vec<KeyRecord>,
}

/// Checks the name of an account that is not there yet. Those of earlier versions may have another, and keep it.
///
/// # Errors
/// For what is no name in a path: clients resolve `.` and `..` before they send an address, so such an account could not be asked for.
pub(in crate::ledger) fn check_new_name(name: &AccountId) -> Result<(), String> {
    let is_good = !matches!(name.as_str(), "." | "..");
    let why = || "no account is named . or .., for no client can ask for such a path".to_owned();
    is_good.then_some(()).ok_or_else(why)
}

/// The most accounts of one page.
pub const ACCOUNTS_MAX: u32 = 200;
