//! What the file knows of the events that refused calls have raised.

use crate::pure::money::Credits;
use crate::pure::time::Month;

/// What was told of an account's refused calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::ledger) struct Told {
    /// That one was refused for lack of credit, since credit came in last.
    pub(in crate::ledger) exhausted: bool,
    /// That one was refused by this month's quota.
    pub(in crate::ledger) quota: Option<(Month, Credits)>,
}
