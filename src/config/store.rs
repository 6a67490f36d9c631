//! `store:` and `store_env:`: where the ledger is, in the file or in an environment variable.

use std::path::Path;

use super::{Store, variable};

/// What was written, checked; `environment` gives the address that a variable holds. No error shows an address.
pub(super) fn checked(
    store: Option<&str>,
    store_env: Option<&str>,
    data_dir: &Path,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Store, String> {
    match (store, store_env) {
        (Some(_), Some(_)) => Err("store_env: there is store too: only one of the two can name the ledger".to_owned()),
        (Some(text), None) => parse(text).map_err(|problem| format!("store: {problem}")),
        (None, Some(name)) => of_variable(name, environment).map_err(|problem| format!("store_env: {problem}")),
        (None, None) => Ok(Store::Sqlite(data_dir.join("ledger.db"))),
    }
}

fn of_variable(name: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<Store, String> {
    let name = variable::checked(name.to_owned())?;
    let address = environment(&name).map(|text| text.trim().to_owned());
    match address.filter(|address| !address.is_empty()) {
        Some(address) => parse(&address).map_err(|problem| format!("the address in {name} cannot be used: {problem}")),
        None => Ok(Store::Missing(name)),
    }
}

fn parse(text: &str) -> Result<Store, String> {
    if let Some(path) = text.strip_prefix("sqlite://").filter(|path| !path.is_empty()) {
        let extension = Path::new(path).extension();
        if extension.is_some_and(|extension| extension == "lock" || extension == "control") {
            return Err(
                "a ledger's file cannot end in .lock or .control: so do its lock and its control socket".to_owned(),
            );
        }
        return Ok(Store::Sqlite(path.into()));
    }
    if REDIS.iter().any(|scheme| text.starts_with(scheme)) {
        return Ok(Store::Redis(text.to_owned()));
    }
    // The rest may have a password in it.
    let is_scheme = |scheme: &&str| scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    let scheme = text.split_once("://").map(|(scheme, _)| scheme).filter(is_scheme);
    Err(format!(
        "{} is not sqlite://PATH or one of {}…",
        scheme.unwrap_or("it"),
        REDIS.join("… ")
    ))
}

/// Whether the address of a Redis has a password in it.
pub(super) fn has_password(address: &str) -> bool {
    let login = address.rsplit_once('@').map(|(before, _)| before);
    let login = login.and_then(|before| before.split_once("://"));
    let password = login.and_then(|(_, login)| login.split_once(':'));
    password.is_some_and(|(_, password)| !password.is_empty())
}

const REDIS: [&str; 6] = [
    "redis://",
    "rediss://",
    "redis+cluster://",
    "rediss+cluster://",
    "redis+sentinel://",
    "rediss+sentinel://",
];

#[cfg(test)]
mod tests {
    use crate::config::{Config, Store, mistakes, secrets};

    const ADDRESS: &str = "rediss://gateway:hunter2@redis.example.com:6380/0";

    fn environment(name: &str) -> Option<String> {
        match name {
            "SET" => Some(format!(" {ADDRESS}\n")),
            "FILE" => Some("sqlite:///var/lib/tollgate/ledger.db".to_owned()),
            "EMPTY" => Some(" ".to_owned()),
            "WRONG" => Some("http://gateway:hunter2@redis.example.com".to_owned()),
            _ => None,
        }
    }

    fn parse(text: &str) -> Result<Config, String> {
        let path = std::path::Path::new("t.yaml");
        Config::parse(path, text, &environment).map_err(|error| error.to_string())
    }

    #[test]
    fn the_address_of_the_ledger_may_stand_in_the_environment() {
        let store = |text: &str| parse(text).unwrap().store;
        assert_eq!(store("store_env: SET"), Store::Redis(ADDRESS.to_owned()));
        assert_eq!(parse("store_env: SET").unwrap().store_env.as_deref(), Some("SET"));
        assert_eq!(
            store("store_env: FILE"),
            Store::Sqlite("/var/lib/tollgate/ledger.db".into())
        );
        assert_eq!(store("data_dir: d"), Store::Sqlite("d/ledger.db".into()));
    }

    /// As a secret of a webhook: commands that ask no ledger, such as that of a catalogue, do without.
    #[test]
    fn an_address_that_is_not_set_keeps_a_gateway_from_starting() {
        for variable in ["UNSET", "EMPTY"] {
            let config = parse(&format!("store_env: {variable}")).unwrap();
            assert_eq!(config.store, Store::Missing(variable.to_owned()));
            let missing = format!("store_env: the environment variable {variable} is not set, or empty");
            assert_eq!(secrets::problems(&config), [missing]);
        }
        assert_eq!(secrets::problems(&parse("store_env: SET").unwrap()), [""; 0]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_without_the_address() {
        for (text, says) in [
            (
                "store: \"redis://:hunter2@127.0.0.1\"\nstore_env: SET\n",
                "t.yaml:2: store_env: there is store too",
            ),
            (
                "\nstore_env: \"redis://:hunter2@127.0.0.1\"\n",
                "t.yaml:2: store_env: it must be the name of an environment variable",
            ),
            (
                "\nstore_env: WRONG\n",
                "t.yaml:2: store_env: the address in WRONG cannot be used: http is not sqlite://PATH or one of redis://…",
            ),
            (
                "\nstore: \":hunter2@127.0.0.1://\"\n",
                "t.yaml:2: store: it is not sqlite://PATH",
            ),
            (
                "\nstore: \"sqlite://data/ledger.lock\"\n",
                "t.yaml:2: store: a ledger's file cannot end in .lock or .control",
            ),
            (
                "\nstore: \"sqlite://data/ledger.control\"\n",
                "t.yaml:2: store: a ledger's file cannot end in .lock or .control",
            ),
        ] {
            let told = parse(text).expect_err(text);
            assert!(told.starts_with(says) && !told.contains("hunter2"), "{told}");
            let all = mistakes::of_config(std::path::Path::new("t.yaml"), text, &environment);
            let told: Vec<String> = all.iter().map(ToString::to_string).collect();
            assert!(
                told.len() == 1 && told[0].starts_with(says) && !told[0].contains("hunter2"),
                "{told:?}"
            );
        }
    }

    #[test]
    fn a_configuration_shows_no_password_of_its_store() {
        for text in ["store_env: SET".to_owned(), format!("store: {ADDRESS:?}")] {
            let shown = format!("{:?}", parse(&text).unwrap());
            assert!(
                shown.contains("store: Redis(…)") && !shown.contains("hunter2"),
                "{shown}"
            );
        }
    }

    #[test]
    fn a_password_is_told_from_a_name_and_from_none() {
        for (address, has_one) in [
            ("redis://:secret@127.0.0.1", true),
            (ADDRESS, true),
            ("redis+sentinel://user:a@b@10.0.0.1,10.0.0.2/mymaster", true),
            ("redis://user:@127.0.0.1", false),
            ("redis://user@127.0.0.1", false),
            ("redis://127.0.0.1:6379/0", false),
            ("redis://[::1]:6379", false),
        ] {
            assert_eq!(super::has_password(address), has_one, "{address}");
        }
    }
}
