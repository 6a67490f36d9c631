//! `operator_listen` and its neighbours: where operators work, by API and by console.

use super::Config;
use super::checked::{address, checked_hosts};
use super::raw::Raw;
use super::values::OperatorListener;

impl Config {
    /// Keeps the listener of operators, and Stripe's hook on it, as they were `before` where they are not named any more: the listener goes on
    /// until the next start, and would else refuse its names and lose payments.
    pub(crate) fn keep_operators_of(&mut self, before: &Config) {
        if self.operator.is_none() && before.operator.is_some() {
            self.operator.clone_from(&before.operator);
            self.stripe.clone_from(&before.stripe);
        }
    }
}

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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_listener_that_is_not_named_any_more_keeps_its_names_and_stripes_hook() {
        let secret = |_: &str| Some("whsec_0123456789abcdef".to_owned());
        let parse = |text: &str| Config::parse(Path::new("t.yaml"), text, &secret).unwrap();
        let listener = "operator_listen: 127.0.0.1:1\noperator_hosts: [ops.example.com]\n";
        let before = parse(&format!("{listener}stripe: {{ secret_env: HOOK }}\n"));
        let mut without = parse("threads: 3");
        without.keep_operators_of(&before);
        assert_eq!((&without.operator, &without.stripe), (&before.operator, &before.stripe));
        assert!(without.stripe.is_some() && without.threads == 3);
        // What is still named is as it says.
        let mut other = parse("operator_listen: 127.0.0.1:1");
        other.keep_operators_of(&before);
        assert!(other.stripe.is_none() && other.operator.is_some_and(|operator| operator.hosts.is_empty()));
    }
}
