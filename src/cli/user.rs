//! Who types: in whose name the log has what commands do.

use crate::config::environment;
use crate::ledger::admin::operators::Actor;
use crate::pure::operator::Role;

/// Who gives the commands of this program: the user that the environment names, else the number that the system knows.
pub(super) fn this_user() -> Actor {
    let named = |name| environment(name).filter(|user| !user.trim().is_empty());
    let name = ["SUDO_USER", "USER", "LOGNAME"].into_iter().find_map(named);
    let name = name.unwrap_or_else(|| {
        let own = std::fs::metadata("/proc/self");
        own.map_or_else(
            |_| "unknown".to_owned(),
            |own| format!("uid {}", std::os::unix::fs::MetadataExt::uid(&own)),
        )
    });
    Actor {
        id: CLI.to_owned(),
        name: name.chars().filter(|c| !c.is_control()).take(USER_CHARS_MAX).collect(),
        role: Role::Admin,
        address: None,
    }
}

/// The operator's id under which this program's commands are logged.
const CLI: &str = "cli";
const USER_CHARS_MAX: usize = 64;
