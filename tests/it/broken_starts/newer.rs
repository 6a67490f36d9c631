//! The same of listeners for operators, webhooks, payments, pages and what else came later.

use std::fs;

use super::{At, Case, case};

/// A secret as webhooks have it.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Where operators work.
pub(super) const WRONG_OPERATORS: [Case; 11] = [
    case(
        "operators at a name",
        At::Conf("operator_listen"),
        "is not an address such as",
        |place| {
            place.add("operator_listen: localhost:9091\n");
        },
    ),
    case(
        "operators at the clients' port",
        At::Conf("operator_listen"),
        "are one port",
        |place| {
            let line = place.conf.lines().next().unwrap().replace("listen", "operator_listen");
            place.add(&format!("{line}\n"));
        },
    ),
    case(
        "operators at an address of another machine",
        At::Conf("operator_listen"),
        "Cannot assign requested address",
        |place| {
            place.add("operator_listen: 192.0.2.1:9091\n");
        },
    ),
    case(
        "a certificate for operators without their address",
        At::Conf("operator_tls"),
        "there is no operator_listen",
        |place| {
            place.add("operator_tls: { cert: cert.pem, key: key.pem }\n");
        },
    ),
    case(
        "names for operators without their address",
        At::Conf("operator_hosts"),
        "there is no operator_listen",
        |place| {
            place.add("operator_hosts: [ops.example.com]\n");
        },
    ),
    case(
        "operators' names with a scheme",
        At::Conf("operator_hosts"),
        "is not a name such as",
        |place| {
            place.add("operator_listen: OPERATORS\noperator_hosts: ['https://ops.example.com']\n");
        },
    ),
    case(
        "operators without a certificate",
        At::Conf("operator_tls"),
        "cert.pem: ",
        |place| {
            place.add("operator_listen: OPERATORS\noperator_tls: { cert: ROOT/cert.pem, key: ROOT/key.pem }\n");
        },
    ),
    case(
        "operators' certificate of another key",
        At::Conf("cert: "),
        "is not the certificate of the key in",
        |place| {
            place.certificates();
            place.add("operator_listen: OPERATORS\noperator_tls:\n  key: ROOT/other.pem\n  cert: ROOT/cert.pem\n");
        },
    ),
    case(
        "operators' certificate in place of the key",
        At::Conf("key: "),
        "no private key in it",
        |place| {
            place.certificates();
            place.add("operator_listen: OPERATORS\noperator_tls:\n  cert: ROOT/cert.pem\n  key: ROOT/cert.pem\n");
        },
    ),
    case(
        "operators' certificate that is none",
        At::Conf("cert: "),
        "no certificate in it",
        |place| {
            place.certificates();
            place.add("operator_listen: OPERATORS\noperator_tls:\n  cert: ROOT/key.pem\n  key: ROOT/key.pem\n");
        },
    ),
    case(
        "operators' certificate without a key",
        At::Conf("operator_tls"),
        "missing field `key`",
        |place| {
            place.add("operator_listen: OPERATORS\noperator_tls: { cert: cert.pem }\n");
        },
    ),
];

/// Who is told of events.
pub(super) const WRONG_WEBHOOKS: [Case; 13] = [
    case(
        "a webhook whose secret is not set",
        At::Conf("secret_env"),
        "the environment variable HOOK is not set, or empty",
        |place| {
            place.add("webhooks:\n- url: https://hooks.example.com/a\n  secret_env: HOOK\n");
        },
    ),
    case(
        "a webhook whose secret is empty",
        At::Conf("secret_env"),
        "the environment variable HOOK is not set, or empty",
        |place| {
            place.environment.push(("HOOK", " "));
            place.add("webhooks:\n- url: https://hooks.example.com/a\n  secret_env: HOOK\n");
        },
    ),
    case(
        "a webhook whose secret is none",
        At::Conf("secret_env"),
        "HOOK is no secret (whsec_",
        |place| {
            place.environment.push(("HOOK", "secret"));
            place.add("webhooks:\n- url: https://hooks.example.com/a\n  secret_env: HOOK\n");
        },
    ),
    case(
        "a webhook whose secret is short",
        At::Conf("secret_env"),
        "it is shorter than 24 bytes",
        |place| {
            place.environment.push(("HOOK", "whsec_AAAA"));
            place.add("webhooks:\n- url: https://hooks.example.com/a\n  secret_env: HOOK\n");
        },
    ),
    case(
        "a webhook with the secret itself",
        At::Conf("secret_env"),
        "what stands here is not shown",
        |place| {
            place.add(&format!(
                "webhooks:\n- url: https://hooks.example.com/a\n  secret_env: {SECRET}\n"
            ));
        },
    ),
    case(
        "a webhook without a secret",
        At::Conf("- url"),
        "missing field `secret_env`",
        |place| {
            place.add("webhooks:\n- url: https://hooks.example.com/a\n");
        },
    ),
    case(
        "a second webhook over plain HTTP",
        At::Conf("http://hooks"),
        "else it is https",
        |place| {
            place.environment.push(("HOOK", SECRET));
            place.add("webhooks:\n- url: https://hooks.example.com/a\n  secret_env: HOOK\n- url: http://hooks.example.com/b\n  secret_env: HOOK\n");
        },
    ),
    case(
        "a webhook in a private network",
        At::Conf("10.0.0.1"),
        "is no address of the internet",
        |place| {
            place.environment.push(("HOOK", SECRET));
            place.add("webhooks:\n- url: https://hooks.example.com/a\n  secret_env: HOOK\n- url: https://10.0.0.1/\n  secret_env: HOOK\n");
        },
    ),
    case("a webhook twice", At::Conf("# again"), "is there before", |place| {
        place.environment.push(("HOOK", SECRET));
        place.add("webhooks:\n- url: https://hooks.example.com/a\n  secret_env: HOOK\n- url: https://hooks.example.com/a # again\n  secret_env: HOOK\n");
    }),
    case(
        "a webhook for an event that there is not",
        At::Conf("events"),
        "did you mean credits.added?",
        |place| {
            place.environment.push(("HOOK", SECRET));
            place.add("webhooks:\n- url: https://hooks.example.com/a\n  secret_env: HOOK\n  events: [credit.added]\n");
        },
    ),
    case(
        "a webhook with an unknown key",
        At::Conf("event: "),
        "did you mean events?",
        |place| {
            place.environment.push(("HOOK", SECRET));
            place.add("webhooks:\n- url: https://hooks.example.com/a\n  secret_env: HOOK\n  event: [credits.added]\n");
        },
    ),
    case(
        "a webhook with a key twice",
        At::Conf("url: https://hooks.example.com/b"),
        "the key url stands there twice",
        |place| {
            place.environment.push(("HOOK", SECRET));
            place.add("webhooks:\n- url: https://hooks.example.com/a\n  secret_env: HOOK\n  url: https://hooks.example.com/b\n");
        },
    ),
    case(
        "a webhook that is no list",
        At::Conf("webhooks"),
        "expected a list",
        |place| {
            place.environment.push(("HOOK", SECRET));
            place.add("webhooks:\n  url: https://hooks.example.com/a\n  secret_env: HOOK\n");
        },
    ),
];

/// Payments.
pub(super) const WRONG_STRIPE: [Case; 7] = [
    case(
        "Stripe without operators",
        At::Conf("stripe"),
        "there is no operator_listen",
        |place| {
            place.environment.push(("HOOK", SECRET));
            place.add("stripe: { secret_env: HOOK }\n");
        },
    ),
    case(
        "Stripe whose secret is not set",
        At::Conf("stripe"),
        "the environment variable HOOK is not set, or empty",
        |place| {
            place.add("operator_listen: OPERATORS\nstripe: { secret_env: HOOK }\n");
        },
    ),
    case(
        "Stripe whose secret is empty",
        At::Conf("stripe"),
        "the environment variable HOOK is not set, or empty",
        |place| {
            place.environment.push(("HOOK", " "));
            place.add("operator_listen: OPERATORS\nstripe: { secret_env: HOOK }\n");
        },
    ),
    case(
        "Stripe whose secret can be guessed",
        At::Conf("stripe"),
        "fewer than 16 bytes",
        |place| {
            place.environment.push(("HOOK", "secret"));
            place.add("operator_listen: OPERATORS\nstripe: { secret_env: HOOK }\n");
        },
    ),
    case(
        "Stripe with the secret itself",
        At::Conf("stripe"),
        "what stands here is not shown",
        |place| {
            place.add(&format!(
                "operator_listen: OPERATORS\nstripe: {{ secret_env: {SECRET} }}\n"
            ));
        },
    ),
    case(
        "Stripe with an unknown key",
        At::Conf("stripe"),
        "did you mean secret_env?",
        |place| {
            place.environment.push(("HOOK", SECRET));
            place.add("operator_listen: OPERATORS\nstripe: { secret: HOOK }\n");
        },
    ),
    case(
        "Stripe with a currency of one's own",
        At::Conf("stripe"),
        "is not a currency's code",
        |place| {
            place.environment.push(("HOOK", SECRET));
            place.add("currency: credits\noperator_listen: OPERATORS\nstripe: { secret_env: HOOK }\n");
        },
    ),
];

/// The wallet, refreshes, providers.
pub(super) const WRONG_PAGES: [Case; 11] = [
    case(
        "a wallet that runs a script",
        At::Conf("wallet"),
        "it must begin with https:// or http://",
        |place| {
            place.add("wallet: { top_up_url: 'javascript:alert(1)' }\n");
        },
    ),
    case("a wallet without a name", At::Conf("wallet"), "wallet.name", |place| {
        place.add("wallet: { name: '' }\n");
    }),
    case(
        "a wallet with an unknown key",
        At::Conf("wallet"),
        "did you mean top_up_url?",
        |place| {
            place.add("wallet: { topup_url: 'https://pay.example.com' }\n");
        },
    ),
    case(
        "a wallet twice",
        At::Conf("name: B"),
        "the key wallet stands there twice",
        |place| {
            place.add("wallet: { name: A }\nwallet: { name: B }\n");
        },
    ),
    case(
        "streams of the suspended that do what there is not",
        At::Conf("suspended_streams"),
        "expected `finish` or `end`",
        |place| {
            place.add("suspended_streams: stop\n");
        },
    ),
    case(
        "answers that are too short to be kept",
        At::Conf("answer_bytes_max"),
        "is not from 1024",
        |place| {
            place.add("idempotency:\n  answer_bytes_max: 1\n");
        },
    ),
    case(
        "rules of a refresh that are not there",
        At::Conf("rules"),
        "No such file",
        |place| {
            place.add("catalogue_refresh:\n  provider: main\n  rules: ROOT/import.yaml\n  every_minutes: 60\n");
        },
    ),
    case(
        "rules of a refresh that are none",
        At::Conf("rules"),
        "import.yaml: ",
        |place| {
            fs::write(place.path("import.yaml"), "rulse: []\n").unwrap();
            place.add("catalogue_refresh:\n  provider: main\n  rules: ROOT/import.yaml\n  every_minutes: 60\n");
        },
    ),
    case(
        "a refresh from nobody",
        At::Conf("provider: openrouter"),
        "is not configured",
        |place| {
            place.add("catalogue_refresh:\n  provider: openrouter\n  rules: ROOT/import.yaml\n  every_minutes: 60\n");
        },
    ),
    case(
        "a provider's authority that is not there",
        At::Conf("ca_file"),
        "No such file",
        |place| {
            place.add("    ca_file: /nowhere/ca.pem\n");
        },
    ),
    case(
        "a provider with the key itself",
        At::Conf("api_key_env"),
        "what stands here is not shown",
        |place| {
            place.add("    api_key_env: sk-0123456789abcdefghij\n");
        },
    ),
];
