//! How many files this process may have open, and how many connections of clients that is enough for.
//!
//! At that limit the kernel gives out no connection, and whoever waits for one waits until another is closed. So no more connections are
//! taken than it is enough for: at that number an idle one makes room for a new one ([`connections`](super::connections)).

use super::admin_connections::{ADMIN_MAX, OPERATORS_MAX};
use crate::config::{Config, ConfigError};

/// How many files a gateway may have open, and how many of them are none of a call's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenFiles {
    limit: u64,
    own: u64,
}

impl OpenFiles {
    /// Of this process, whose limit was raised as far as it may be.
    pub(crate) fn now(config: &Config) -> OpenFiles {
        OpenFiles::of(config, limits().rlim_cur)
    }

    /// Of a gateway that is started from here: it raises its limit as far as it may.
    pub(crate) fn of_start(config: &Config) -> OpenFiles {
        OpenFiles::of(config, limits().rlim_max)
    }

    fn of(config: &Config, limit: u64) -> OpenFiles {
        let operators = config.operator.as_ref().map_or(0, |_| count(OPERATORS_MAX));
        let threads = count(config.threads).saturating_mul(THREAD_FILES);
        let own = [threads, count(ADMIN_MAX), operators]
            .into_iter()
            .fold(OWN_FILES, u64::saturating_add);
        OpenFiles { limit, own }
    }

    /// Most connections of clients at once, each with one to a provider.
    pub(crate) fn connections(self) -> usize {
        let left = self.limit.saturating_sub(self.own) / CONNECTION_FILES;
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    /// What is to be told where the limit is not enough for `connections_max`, and the gateway takes fewer.
    ///
    /// # Errors
    /// Where it is not enough for the few connections without which none starts.
    pub(crate) fn suffice(self, config: &Config) -> Result<Option<ConfigError>, ConfigError> {
        let (wanted, most, limit) = (config.connections_max, self.connections(), self.limit);
        if most >= wanted {
            return Ok(None);
        }
        let least = wanted.min(CONNECTIONS_MIN);
        if most < least {
            let needs = self.needs(least);
            return Err(config.mistake(format!(
                "connections_max: a gateway needs {needs} open files for {least} connections, and may have {limit}: {RAISE}"
            )));
        }
        let needs = self.needs(wanted);
        Ok(Some(config.mistake(format!(
            "connections_max: {wanted} connections need {needs} open files, and a gateway may have {limit} here: it takes {most} at most; \
             {RAISE}, or set connections_max lower"
        ))))
    }

    /// How many open files so many connections need.
    fn needs(self, connections: usize) -> u64 {
        self.own
            .saturating_add(count(connections).saturating_mul(CONNECTION_FILES))
    }
}

/// The limit of open files, and how far this process may raise it. As good as none where the kernel does not tell.
fn limits() -> libc::rlimit {
    let mut files = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the call writes the struct, which lives until it returns.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut files) } != 0 {
        log::warn!(
            "the limit of open files is not known: {}",
            std::io::Error::last_os_error()
        );
    }
    files
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Of the process: its logs, the ledger with its readers, the journal, the listeners, the runtimes of what runs beside the requests, and what
/// commands, an upgrade, refreshes, webhooks and traces open for a moment. Without traffic it has about 44.
const OWN_FILES: u64 = 64;
/// Of a worker thread: its runtime and its listener, 4 in all, and its connections to Redis.
const THREAD_FILES: u64 = 8;
/// Of a connection of a client: itself, and the one to the provider that answers.
const CONNECTION_FILES: u64 = 2;
/// With fewer connections than this, or than `connections_max` where that is less, none starts.
const CONNECTIONS_MIN: usize = 16;
/// How to mend it.
const RAISE: &str = "raise the limit (LimitNOFILE= of a systemd unit, --ulimit nofile= of a container, else ulimit -n)";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(Path::new("t.yaml"), text, &|_| None).unwrap()
    }

    #[test]
    fn each_connection_needs_two_files_beside_those_of_the_gateway() {
        let plain = config("threads: 2");
        for (limit, most) in [
            (0, 0),
            (144, 0),
            (145, 0),
            (146, 1),
            (200, 28),
            (1024, 440),
            (20_144, 10_000),
        ] {
            assert_eq!(OpenFiles::of(&plain, limit).connections(), most, "{limit}");
        }
        assert_eq!(OpenFiles::of(&config("threads: 12"), 1024).connections(), 400);
        assert_eq!(OpenFiles::of(&plain, u64::MAX).suffice(&plain), Ok(None));
        let operators = config("threads: 2\noperator_listen: 127.0.0.1:9091");
        assert_eq!(OpenFiles::of(&operators, 1024).connections(), 312);
    }

    #[test]
    fn a_limit_that_is_too_low_is_told_with_both_numbers_and_how_to_raise_it() {
        let config = config("threads: 2\nconnections_max: 1000");
        let told = |limit| OpenFiles::of(&config, limit).suffice(&config);
        assert_eq!(told(2144), Ok(None));
        for (limit, numbers) in [
            (2143, ["2144 open files", "2143 here", "takes 999 at most"]),
            (176, ["2144 open files", "176 here", "takes 16 at most"]),
        ] {
            let line = told(limit).unwrap().unwrap().to_string();
            for part in numbers
                .into_iter()
                .chain(["connections_max: ", "LimitNOFILE=", "ulimit -n"])
            {
                assert!(line.contains(part), "{limit}: {line}");
            }
        }
        for limit in [175, 40, 0] {
            let line = told(limit).unwrap_err().to_string();
            for part in ["needs 176 open files for 16", "LimitNOFILE=", "ulimit -n"] {
                assert!(line.contains(part), "{limit}: {line}");
            }
            assert!(line.contains(&format!("may have {limit}:")), "{line}");
        }
    }

    /// Whoever wants fewer connections than others need at least gets those.
    #[test]
    fn a_small_connections_max_needs_few_files() {
        let config = config("threads: 2\nconnections_max: 1");
        assert_eq!(OpenFiles::of(&config, 146).suffice(&config), Ok(None));
        assert!(OpenFiles::of(&config, 145).suffice(&config).is_err());
    }

    #[test]
    fn a_start_has_what_this_process_may_raise_its_limit_to() {
        let config = config("threads: 2");
        assert!(OpenFiles::of_start(&config).connections() >= OpenFiles::now(&config).connections());
    }
}
