//! Secrets that a gateway cannot do without and commands can: those of webhooks and of Stripe's messages, and the address of the ledger.

use super::variable::not_set;
use super::{Config, Store, webhooks};

/// What keeps a gateway from starting, and a reload from being taken: what is not set, or cannot be what it is to be. Each problem begins
/// with its key.
pub(crate) fn problems(config: &Config) -> Vec<String> {
    let mut problems = webhooks::problems(&config.webhooks);
    if let Some(Err(problem)) = config.stripe.as_ref().map(|hook| hook.secret()) {
        problems.push(format!("stripe.secret_env: {problem}"));
    }
    if let Store::Missing(variable) = &config.store {
        problems.push(format!("store_env: {}", not_set(variable)));
    }
    problems
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn of(text: &str) -> Vec<String> {
        let environment = |name: &str| match name {
            "SET" => Some("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned()),
            "SHORT" => Some("whsec_short".to_owned()),
            _ => None,
        };
        let listener = "operator_listen: 127.0.0.1:1\n";
        problems(&Config::parse(Path::new("t.yaml"), &format!("{listener}{text}"), &environment).unwrap())
    }

    #[test]
    fn stripes_secret_keeps_a_gateway_from_starting_when_it_is_not_set_or_can_be_guessed() {
        let not_set = "stripe.secret_env: the environment variable UNSET is not set, or empty";
        assert_eq!(of("stripe: { secret_env: UNSET }"), [not_set]);
        let short = "stripe.secret_env: the secret in SHORT has fewer than 16 bytes: it is none of Stripe's";
        assert_eq!(of("stripe: { secret_env: SHORT }"), [short]);
        assert_eq!(of("stripe: { secret_env: SET }"), [""; 0]);
    }

    #[test]
    fn all_that_are_missing_are_told() {
        let webhook = "webhooks: [ { url: 'https://x.example', secret_env: FIRST } ]";
        let text = format!("{webhook}\nstripe: {{ secret_env: SECOND }}\nstore_env: THIRD");
        let told = of(&text);
        let keys = ["webhooks[0].secret_env", "stripe.secret_env", "store_env"];
        for ((problem, key), variable) in told.iter().zip(keys).zip(["FIRST", "SECOND", "THIRD"]) {
            assert_eq!(*problem, format!("{key}: {}", not_set(variable)));
        }
        assert_eq!(told.len(), 3, "{told:?}");
    }
}
