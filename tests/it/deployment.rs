//! What conf/ is deployed by: the systemd unit, and the scripts of the Debian package, run with commands in place of the system's.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

const UNIT: &str = include_str!("../../conf/systemd/tollgate.service");
const GUIDE: &str = include_str!("../../conf/README.md");

/// The values of a key in a section of the unit.
fn values(section: &str, key: &str) -> Vec<&'static str> {
    let mut current = "";
    let mut found = Vec::new();
    for line in UNIT.lines() {
        if line.starts_with('[') {
            current = line;
        } else if current == section
            && let Some(value) = line.strip_prefix(key).and_then(|rest| rest.strip_prefix('='))
        {
            found.push(value);
        }
    }
    found
}

/// Systemd's own limit would end the restarts six seconds into an outage of Redis, for good.
#[test]
fn the_unit_is_started_again_for_as_long_as_it_takes() {
    assert_eq!(values("[Unit]", "StartLimitIntervalSec"), ["0"]);
    assert_eq!(values("[Service]", "Restart"), ["always"]);
    assert_eq!(values("[Service]", "RestartSec"), ["2"]);
}

/// Where journald may drop lines, those of the access log make it drop the ones about money.
#[test]
fn the_journal_drops_no_line_of_the_unit() {
    assert_eq!(values("[Service]", "LogRateLimitIntervalSec"), ["0"]);
}

/// In a user namespace of its own the capability to listen below port 1024 counts for nothing.
#[test]
fn the_units_advice_on_low_ports_opens_them() {
    assert_eq!(values("[Service]", "PrivateUsers"), ["yes"]);
    let comments = UNIT.lines().filter_map(|line| line.strip_prefix("# "));
    let comments = comments.collect::<Vec<&str>>().join(" ");
    assert!(
        comments.contains("add CAP_NET_BIND_SERVICE to both lines, and set PrivateUsers=no"),
        "{comments}"
    );
}

/// A user that systemd makes up has no id outside of the unit, and its folder is closed to everybody there.
#[test]
fn commands_beside_the_service_run_as_its_user_with_its_environment() {
    assert_eq!(values("[Service]", "DynamicUser"), [""; 0]);
    let [user] = values("[Service]", "User").try_into().unwrap();
    let [folder] = values("[Service]", "StateDirectory").try_into().unwrap();
    let [environment] = values("[Service]", "EnvironmentFile").try_into().unwrap();
    let environment = environment.trim_start_matches('-');
    let makes = format!("systemd-sysusers --inline 'u {user} - Tollgate /var/lib/{folder}'");
    let runs =
        format!("systemd-run --quiet --pipe --uid={user} -p EnvironmentFile={environment} tollgate account list");
    for (name, text) in [("the unit", UNIT), ("the guide", GUIDE)] {
        for command in [&makes, &runs] {
            assert!(text.contains(command), "{name} does not say: {command}");
        }
        let others = text
            .lines()
            .filter(|line| line.contains("systemd-run") && !line.contains(&runs));
        assert_eq!(others.collect::<Vec<&str>>(), [""; 0], "{name}");
    }
}

/// Versions of systemd before 252 know no `--kill-whom`.
#[test]
fn the_guide_upgrades_by_a_command_that_every_systemd_knows() {
    for text in [UNIT, GUIDE] {
        assert!(text.contains("systemctl kill --kill-who=main --signal=USR2 tollgate"));
        assert!(!text.contains("--kill-whom"));
    }
}

/// A systemd whose unit has another main process once it was told of an upgrade.
const TAKES_OVER: &str =
    "case \"$*\" in show*) printf MainPID=; grep -c USR2 \"${0%/*}/../systemctl.log\" || : ;; esac";

/// A machine with systemd, as far as the package's scripts see it: each command is one of this test's own.
struct Machine {
    folder: TempDir,
}

impl Machine {
    /// `systemctl` is this shell script, whose arguments are kept.
    fn with(systemctl: &str) -> Machine {
        let machine = Machine {
            folder: TempDir::new().unwrap(),
        };
        for folder in ["bin", "systemd"] {
            fs::create_dir(machine.path(folder)).unwrap();
        }
        let kept = machine.path("systemctl.log").display().to_string();
        machine.command("systemctl", &format!("echo \"$@\" >>'{kept}'\n{systemctl}"));
        for name in ["getent", "adduser", "install"] {
            machine.command(name, "exit 0");
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, name: &str, script: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs a script of the package, as dpkg does: what it says, and what systemd was told.
    fn run(&self, script: &str, arguments: &[&str]) -> (String, Vec<String>) {
        let output = self.output(script, arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{script} {arguments:?}: {said}");
        let told = fs::read_to_string(self.path("systemctl.log")).unwrap_or_default();
        (said, told.lines().map(str::to_owned).collect())
    }

    fn output(&self, script: &str, arguments: &[&str]) -> Output {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("conf/debian");
        let text = fs::read_to_string(folder.join(script)).unwrap();
        let systemd = self.path("systemd").display().to_string();
        assert!(text.contains("/run/systemd/system"), "{script}");
        let text = text.replace("/run/systemd/system", &systemd);
        let data = self.path("data").display().to_string();
        fs::write(self.path(script), text.replace("/var/lib/tollgate", &data)).unwrap();
        let search = format!("{}:/usr/bin:/bin", self.path("bin").display());
        Command::new("sh")
            .arg(self.path(script))
            .args(arguments)
            .env("PATH", search)
            .output()
            .unwrap()
    }
}

/// What dpkg calls, with the script's arguments.
const CALLS: [(&str, &[&str]); 4] = [
    ("postinst", &["configure", "0.1.0-1"]),
    ("prerm", &["remove"]),
    ("postrm", &["remove"]),
    ("postrm", &["purge"]),
];

#[test]
fn an_upgrade_of_the_package_is_told_to_every_version_of_systemd() {
    // One of before 252.
    let machine = Machine::with(&format!(
        "case \"$*\" in *--kill-whom*) echo \"unrecognized option\" >&2; exit 1 ;; esac\n{TAKES_OVER}"
    ));
    let (said, told) = machine.run("postinst", &["configure", "0.1.0-1"]);
    let expected = [
        "daemon-reload",
        "--quiet is-active tollgate",
        "show --property=MainPID tollgate",
        "kill --kill-who=main --signal=USR2 tollgate",
        "show --property=MainPID tollgate",
    ];
    assert_eq!((said.as_str(), told), ("", expected.map(str::to_owned).to_vec()));
}

/// The package was configured without a word, and only the log knew that the new binary had refused.
#[test]
fn a_version_before_that_runs_on_is_told_and_leaves_the_package_configured() {
    let machine = Machine::with("case \"$*\" in show*) echo MainPID=7 ;; esac");
    let pauses = machine.path("pauses");
    machine.command("sleep", &format!("echo \"$1\" >>'{}'", pauses.display()));
    let (said, told) = machine.run("postinst", &["configure", "0.1.0-1"]);
    assert_eq!(said, "tollgate: the version before runs on: journalctl -u tollgate\n");
    let asked = told.iter().filter(|command| command.starts_with("show ")).count();
    let seconds: f64 = fs::read_to_string(pauses)
        .unwrap()
        .lines()
        .map(|pause| pause.parse::<f64>().unwrap())
        .sum();
    assert!(
        asked > 10 && (5.0..30.0).contains(&seconds),
        "{asked} times, {seconds} s"
    );
}

/// It took the folder from a gateway that runs as another user, whose paid calls were 503 from then on.
#[test]
fn an_upgrade_of_the_package_leaves_a_data_folder_that_is_there_as_it_is() {
    for is_there in [true, false] {
        let machine = Machine::with(TAKES_OVER);
        let made = machine.path("made");
        machine.command("install", &format!("echo \"$@\" >>'{}'", made.display()));
        if is_there {
            fs::create_dir(machine.path("data")).unwrap();
        }
        machine.run("postinst", &["configure", "0.1.0-1"]);
        let made = fs::read_to_string(made).unwrap_or_default();
        let expected = format!("-d -o tollgate -g tollgate -m 700 {}\n", machine.path("data").display());
        assert_eq!(made, if is_there { "" } else { expected.as_str() });
    }
}

/// Its removal had disabled it, and it stayed off without a word.
#[test]
fn a_package_that_is_installed_again_says_how_to_start_it() {
    for (enabled, expected) in [(1, true), (0, false)] {
        let machine = Machine::with(&format!(
            "case \"$*\" in *is-active*) exit 3 ;; *is-enabled*) exit {enabled} ;; esac"
        ));
        let output = machine.output("postinst", &["configure", "0.1.0-1"]);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{said}");
        assert_eq!(said.contains("systemctl enable --now tollgate"), expected, "{said}");
    }
}

#[test]
fn a_systemd_that_refuses_leaves_the_package_configured_and_is_told() {
    for (script, arguments) in CALLS {
        let machine = Machine::with("case \"$*\" in *is-active*) exit 0 ;; *) exit 1 ;; esac");
        let (said, told) = machine.run(script, arguments);
        assert!(
            said.contains("tollgate: ") && said.contains("systemctl "),
            "{script}: {said}"
        );
        // Nobody needs to know of which process that is which could not be told of the upgrade.
        let is_told = |command: &&String| !command.contains("is-active") && !command.starts_with("show ");
        let refused = told.iter().filter(is_told).count();
        assert_eq!(said.lines().count(), refused, "{script}: {said}");
    }
}
