//! `operator_listen` and its neighbours: where operators work, by API and by console.

use super::checked::{address, checked_hosts};
use super::raw::Raw;
use super::values::OperatorListener;

/// None where no address is given: then there is no such listener.
pub(super) fn checked(raw: &mut Raw) -> Result<Option<OperatorListener>, String> {
    let (tls, hosts) = (raw.operator_tls.take(), std::mem::take(&mut raw.operator_hosts));
    let Some(text) = &raw.operator_listen else {
        let idle = [("operator_tls", tls.is_some()), ("operator_hosts", !hosts.is_empty())];
        return match idle.into_iter().find(|(_, is_set)| *is_set) {
            Some((key, _)) => Err(format!("{key}: there is no operator_listen that it is for")),
            None => Ok(None),
        };
    };
    Ok(Some(OperatorListener {
        address: address("operator_listen", text)?,
        tls,
        hosts: checked_hosts("operator_hosts", hosts)?,
    }))
}
