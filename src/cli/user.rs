//! Who types: in whose name the log has what commands do.

use crate::config::environment;
use crate::ledger::admin::operators::Actor;
use crate::pure::operator::Role;

/// Who gives the commands of this program: the user that the process has from the system. What the environment says is only added, for
/// whoever types can set it.
pub(super) fn this_user() -> Actor {
    let [status, users] = ["/proc/self/status", "/etc/passwd"].map(|path| std::fs::read(path).unwrap_or_default());
    let [status, users] = [&status, &users].map(|bytes| String::from_utf8_lossy(bytes));
    Actor {
        id: CLI.to_owned(),
        name: name_of(uid_of(&status), &users, &environment),
        role: Role::Admin,
        address: None,
    }
}

/// The number of the real user of a process, from its status as `/proc` has it: the first of four.
fn uid_of(status: &str) -> Option<u32> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    numbers.split_whitespace().next()?.parse().ok()
}

/// The user's name in `/etc/passwd`, or else the number; behind it another name that the environment has.
fn name_of(uid: Option<u32>, users: &str, environment: &dyn Fn(&str) -> Option<String>) -> String {
    let known = uid.and_then(|uid| user_of(uid, users));
    let mut name = match (known, uid) {
        (Some(known), _) => log_name(known),
        (None, Some(uid)) => format!("uid {uid}"),
        (None, None) => "unknown".to_owned(),
    };
    let other = |variable: &str| {
        let said = log_name(environment(variable)?.trim());
        (!said.is_empty() && said != name).then(|| format!(" ({variable} {said})"))
    };
    let added = ["SUDO_USER", "USER", "LOGNAME"].into_iter().find_map(other);
    name.push_str(&added.unwrap_or_default());
    name
}

/// The first name of this number: a line is `name:password:number:` and more.
fn user_of(uid: u32, users: &str) -> Option<&str> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let number: u32 = fields.nth(1)?.parse().ok()?;
        (number == uid).then_some(name)
    })
}

/// A name as the log takes it.
fn log_name(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect()
}

/// The operator's id under which this program's commands are logged.
const CLI: &str = "cli";
/// The longest name of a user: the system's are at most this long.
const NAME_CHARS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0:root:/root:/bin/sh\n:x:7:\nbad\ncarol:x:1000:1000::/:/bin/sh\nsame:x:1000:\n";

    fn name(uid: Option<u32>, variables: &[(&str, &str)]) -> String {
        name_of(uid, USERS, &|asked: &str| {
            let found = variables.iter().find(|(name, _)| *name == asked);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_name_is_the_systems_and_what_the_environment_says_is_added() {
        type Case<'a> = (Option<u32>, &'a [(&'a str, &'a str)], &'a str);
        let cases: [Case<'_>; 8] = [
            (Some(1000), &[], "carol"),
            (Some(1000), &[("USER", "carol"), ("LOGNAME", "carol")], "carol"),
            (Some(1000), &[("USER", "anna")], "carol (USER anna)"),
            (
                Some(1000),
                &[("SUDO_USER", " \n"), ("LOGNAME", "anna")],
                "carol (LOGNAME anna)",
            ),
            (
                Some(0),
                &[("USER", "root"), ("SUDO_USER", "carol")],
                "root (SUDO_USER carol)",
            ),
            (Some(7), &[], "uid 7"),
            (Some(1001), &[("USER", "carol")], "uid 1001 (USER carol)"),
            (None, &[("USER", "car\nol")], "unknown (USER carol)"),
        ];
        for (uid, variables, expected) in cases {
            assert_eq!(name(uid, variables), expected, "{uid:?} {variables:?}");
        }
        let long = "x".repeat(1_000);
        assert_eq!(
            name(Some(0), &[("USER", long.as_str())]),
            format!("root (USER {})", "x".repeat(32))
        );
    }

    #[test]
    fn the_number_is_that_of_the_real_user() {
        let status = "Name:\ttollgate\nUid:\t1000\t0\t7\t7\nGid:\t1\t2\t3\t4\n";
        assert_eq!(uid_of(status), Some(1000));
        for status in ["", "Uid:\n", "Uid:\tx\n", "Gid:\t1\t1\t1\t1\n"] {
            assert_eq!(uid_of(status), None, "{status:?}");
        }
        // What a process makes is its user's.
        let made = tempfile::tempdir().unwrap();
        let own = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(made.path()).unwrap());
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        assert_eq!(uid_of(&status), Some(own));
    }
}
