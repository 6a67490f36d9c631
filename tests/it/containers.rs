//! The image and the compose file, as far as they can be tried without a builder of images: rights, credentials, configuration, logs, the time
//! of a stop; and the health checks.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_yaml_ng::Value;

use crate::harness::operator::Process;
use crate::harness::{Reply, Upstream};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn dockerfile() -> String {
    std::fs::read_to_string(root().join("conf/docker/Dockerfile")).unwrap()
}

fn guide() -> String {
    std::fs::read_to_string(root().join("conf/README.md")).unwrap()
}

fn compose() -> Value {
    let text = std::fs::read_to_string(root().join("conf/docker/compose.yaml")).unwrap();
    let mut compose: Value = serde_yaml_ng::from_str(&text).unwrap();
    compose.apply_merge().unwrap();
    compose
}

#[test]
fn no_container_has_more_rights_than_it_needs_and_redis_is_the_gateways_alone() {
    let compose = compose();
    for (name, service) in compose["services"].as_mapping().unwrap() {
        assert_eq!(service["read_only"], Value::from(true), "{name:?}");
        assert_eq!(service["cap_drop"][0], Value::from("ALL"), "{name:?}");
        assert_eq!(
            service["security_opt"][0],
            Value::from("no-new-privileges:true"),
            "{name:?}"
        );
        if let Some(image) = service["image"].as_str() {
            let (_, version) = image.split_once(':').unwrap();
            assert!(version != "latest" && version.contains('.'), "{image} is not pinned");
        }
    }
    let redis = &compose["services"]["redis"];
    assert_eq!(redis["user"], Value::from("redis"));
    assert_eq!(redis["networks"].as_sequence().unwrap(), &[Value::from("ledger")]);
    assert!(redis["ports"].is_null());
    assert_eq!(compose["networks"]["ledger"]["internal"], Value::from(true));
    let command: Vec<&str> = redis["command"]
        .as_sequence()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect();
    for words in [
        ["--requirepass", "${REDIS_PASSWORD}"],
        ["--appendonly", "yes"],
        ["--maxmemory-policy", "noeviction"],
    ] {
        assert!(command.windows(2).any(|pair| pair == words), "{words:?}");
    }
    let dockerfile = dockerfile();
    let user = dockerfile.rfind("\nUSER tollgate\n").unwrap();
    assert!(user < dockerfile.rfind("\nENTRYPOINT ").unwrap());
}

#[test]
fn each_shipped_provider_can_be_given_its_credential() {
    let text = std::fs::read_to_string(root().join("conf/tollgate.yaml")).unwrap();
    let conf: Value = serde_yaml_ng::from_str(&text).unwrap();
    let compose = compose();
    let environment = compose["services"]["tollgate"]["environment"].as_mapping().unwrap();
    let providers = conf["providers"].as_mapping().unwrap();
    assert!(providers.len() >= 7);
    for (name, provider) in providers {
        let variable = &provider["api_key_env"];
        assert!(variable.is_string(), "{name:?}");
        assert!(environment.keys().any(|key| key == variable), "{name:?}: {variable:?}");
    }
}

/// What the image and the compose file ask, beside a gateway that serves on though its file has got a mistake.
#[tokio::test]
async fn a_gateway_that_serves_is_healthy_whatever_has_become_of_its_configuration() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let process = Process::start(&upstream, |_| ()).await;
    let conf = std::fs::read_to_string(process.path("tollgate.yaml")).unwrap();
    let conf: Value = serde_yaml_ng::from_str(&conf).unwrap();
    let admin = conf["admin_listen"].as_str().unwrap();
    std::fs::write(process.path("tollgate.yaml"), "marcup: \"2\"\n").unwrap();

    let dockerfile = dockerfile();
    let check = dockerfile
        .lines()
        .find_map(|line| line.strip_prefix("HEALTHCHECK ")?.split_once(" CMD "));
    let (_, of_the_image) = check.unwrap();
    let of_the_image: Vec<String> = serde_json::from_str(of_the_image).unwrap();
    let of_compose = compose()["services"]["tollgate"]["healthcheck"]["test"].clone();
    let of_compose: Vec<String> = serde_yaml_ng::from_value(of_compose).unwrap();
    let of_compose = of_compose.strip_prefix(&["CMD".to_owned()]).unwrap().to_vec();
    for words in [of_the_image, of_compose] {
        let words: Vec<String> = words.iter().map(|word| word.replace("127.0.0.1:9090", admin)).collect();
        assert_eq!(words[0], "tollgate");
        let asked = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(&words[1..])
            .current_dir(process.path("."))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&asked.stderr);
        assert!(asked.status.success(), "{words:?}: {said}");
    }
}

/// What the build stage makes of the shipped configuration, as its shell does with these arguments: `tollgate check` reads it.
#[test]
fn the_configuration_that_compose_builds_is_read_and_has_no_password() {
    let dockerfile = dockerfile();
    let script = dockerfile.split("\nRUN ").find(|step| step.starts_with("sed -e "));
    let (script, _) = script.unwrap().split_once("> tollgate.yaml\n").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    let script = format!("{script} > tollgate.yaml")
        .replace("/etc/tollgate/", &format!("{place}/"))
        .replace("/var/lib/tollgate", &format!("{place}/data"))
        .replace(
            "conf/tollgate.yaml",
            root().join("conf/tollgate.yaml").to_str().unwrap(),
        );
    std::fs::copy(root().join("conf/catalogue.yaml"), folder.path().join("catalogue.yaml")).unwrap();
    let compose = compose();
    let gateway = &compose["services"]["tollgate"];
    let arguments = gateway["build"]["args"].as_mapping().unwrap();
    let arguments = arguments
        .iter()
        .map(|(name, value)| (name.as_str().unwrap(), value.as_str().unwrap()));
    let arguments: Vec<(&str, &str)> = arguments.collect();
    for (name, _) in &arguments {
        assert!(dockerfile.contains(&format!("\nARG {name}=")), "{name}");
    }
    let written = Command::new("sh")
        .args(["-ec", &script])
        .envs(arguments)
        .current_dir(folder.path())
        .status();
    assert!(written.unwrap().success(), "{script}");
    let written = std::fs::read_to_string(folder.path().join("tollgate.yaml")).unwrap();
    for line in [
        "store_env: TOLLGATE_STORE",
        "listen: 0.0.0.0:8080",
        "admin_listen: 0.0.0.0:9090",
    ] {
        assert!(written.lines().any(|written| written == line), "{line}: {written}");
    }
    let address = gateway["environment"]["TOLLGATE_STORE"].as_str().unwrap();
    let address = address.replace("${REDIS_PASSWORD:?set it to letters and digits}", "Secret5");
    assert_eq!(address, "redis://:Secret5@redis:6379/0");
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["check", "--conf", "tollgate.yaml"])
        .env("TOLLGATE_STORE", address)
        .current_dir(folder.path())
        .output()
        .unwrap();
    // On this machine there is no Redis of that name, and perhaps no free port: nothing else is wrong.
    let said = String::from_utf8(output.stderr).unwrap();
    let is_expected = |line: &str| ["store_env: ", "listen: "].iter().any(|key| line.contains(key));
    assert!(said.lines().all(is_expected) && !said.contains("Secret5"), "{said}");
    assert!(
        String::from_utf8(output.stdout).unwrap().contains("ledger: Redis"),
        "{said}"
    );
}

/// It was written anew at each start, and what an operator had changed was gone; no import could write the catalogue.
#[test]
fn configuration_and_catalogue_are_in_a_volume_that_the_gateway_may_write() {
    let compose = compose();
    let gateway = &compose["services"]["tollgate"];
    let volumes = gateway["volumes"].as_sequence().unwrap();
    assert!(volumes.contains(&Value::from("conf:/etc/tollgate")), "{volumes:?}");
    assert!(compose["volumes"].get("conf").is_some());
    let dockerfile = dockerfile();
    let made = dockerfile
        .find("\nRUN install -d -o tollgate -g tollgate -m 755 /etc/tollgate\n")
        .unwrap();
    let copies = dockerfile
        .match_indices("\nCOPY ")
        .map(|(at, _)| (at, dockerfile[at + 1..].lines().next().unwrap()));
    let copies: Vec<(usize, &str)> = copies.filter(|(_, line)| line.contains(" /etc/tollgate/")).collect();
    assert_eq!(copies.len(), 2, "{copies:?}");
    for (at, line) in copies {
        assert!(at > made && line.contains(" --chown=tollgate:tollgate "), "{line}");
    }
    let command = "CMD [\"serve\", \"--conf\", \"/etc/tollgate/tollgate.yaml\"]";
    assert!(dockerfile.lines().any(|line| line == command));
}

/// An earlier version's image, and the volume that it filled, have `store: sqlite://…`: the gateway was healthy, and all keys got 401.
#[test]
fn compose_builds_the_image_each_time_and_starts_nothing_on_another_ledger() {
    let compose = compose();
    let gateway = &compose["services"]["tollgate"];
    assert_eq!(gateway["pull_policy"], Value::from("build"));
    // With an entrypoint of its own the image's command is none.
    let command: Vec<String> = serde_yaml_ng::from_value(gateway["command"].clone()).unwrap();
    let dockerfile = dockerfile();
    let of_the_image = dockerfile.lines().find_map(|line| line.strip_prefix("CMD ")).unwrap();
    assert_eq!(command, serde_json::from_str::<Vec<String>>(of_the_image).unwrap());

    let entrypoint: Vec<String> = serde_yaml_ng::from_value(gateway["entrypoint"].clone()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("tollgate.yaml");
    let place = conf.to_str().unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap();
    let programs = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let start = || {
        let words = entrypoint.iter().map(|word| word.replace("$$", "$"));
        let words: Vec<String> = words
            .map(|word| word.replace("/etc/tollgate/tollgate.yaml", place))
            .collect();
        Command::new(&words[0])
            .args(&words[1..])
            .args(["check", "--help"])
            .env("PATH", &programs)
            .output()
            .unwrap()
    };
    let is_refused = |what: &str| {
        let refused = start();
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && refused.stdout.is_empty(), "{what}: {said}");
        assert!(said.contains("\"store_env: TOLLGATE_STORE\""), "{what}: {said}");
    };
    is_refused("no file");
    for text in [
        "store: sqlite:///var/lib/tollgate/ledger.db\n",
        "# store_env: TOLLGATE_STORE\nstore: sqlite:///var/lib/tollgate/ledger.db\n",
        "store_env: TOLLGATE_STORE_OF_TESTS\n",
    ] {
        std::fs::write(&conf, text).unwrap();
        is_refused(text);
    }
    for text in [
        "data_dir: data\nstore_env: TOLLGATE_STORE\n",
        "store_env:   \"TOLLGATE_STORE\"   # Redis\n",
        "store_env: 'TOLLGATE_STORE'\r\n",
    ] {
        std::fs::write(&conf, text).unwrap();
        let started = start();
        assert!(
            started.status.success(),
            "{text}: {}",
            String::from_utf8_lossy(&started.stderr)
        );
        let said = String::from_utf8(started.stdout).unwrap();
        assert!(said.contains("tollgate check"), "{text}: {said}");
        assert_eq!(std::fs::read_to_string(&conf).unwrap(), text);
    }
}

/// `docker cp` keeps a file's owner on the host, and an import refuses to replace a catalogue that is another user's.
#[test]
fn what_is_documented_writes_a_file_as_the_containers_user_and_in_one_step() {
    let compose = std::fs::read_to_string(root().join("conf/docker/compose.yaml")).unwrap();
    for (name, text) in [("compose.yaml", compose), ("the guide", guide())] {
        let copies: Vec<&str> = text.split("compose.yaml cp ").skip(1).collect();
        assert!(!copies.is_empty(), "{name}");
        for copy in copies {
            assert!(
                copy.starts_with("tollgate:/etc/tollgate/"),
                "{name} copies into the container"
            );
        }
        let mut files = Vec::new();
        for (at, _) in text.match_indices("-c 'cat >") {
            let command = text[..at].trim_end_matches([' ', '#', '\n']);
            let is_run = command.ends_with(" run --rm -T --no-deps --entrypoint sh tollgate \\");
            let is_executed = command.ends_with(" exec -T tollgate \\\n    sh")
                || command.ends_with(" exec -T tollgate \\\n#     sh");
            assert!(is_run || is_executed, "{name}: {command}");
            let (script, rest) = text[at + "-c '".len()..].split_once('\'').unwrap();
            let file = rest.strip_prefix(" <").and_then(|rest| rest.lines().next()).unwrap();
            writes_in_one_step(script, file);
            files.push((is_run, file));
        }
        assert!(files.contains(&(false, "catalogue.yaml")), "{name}: {files:?}");
        assert!(files.contains(&(true, "tollgate.yaml")), "{name}: {files:?}");
        // Elsewhere none is left out, for the reader would take the one of another file.
        assert!(!text.contains("-c '…'"), "{name}");
    }
}

/// This script, as a container's shell runs it, writes its input to this file of /etc/tollgate, and to no other.
fn writes_in_one_step(script: &str, file: &str) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("tollgate");
    std::fs::create_dir(&place).unwrap();
    let files = ["tollgate.yaml", "catalogue.yaml", "import.yaml"];
    assert!(files.contains(&file), "{file}");
    for name in files {
        std::fs::write(place.join(name), "old").unwrap();
    }
    let new = folder.path().join("new");
    std::fs::write(&new, "new").unwrap();
    let before = File::open(place.join(file)).unwrap();
    let script = script.replace("/etc/", &format!("{}/", folder.path().display()));
    let written = Command::new("sh")
        .args(["-c", &script])
        .stdin(File::open(&new).unwrap())
        .status();
    assert!(written.unwrap().success(), "{script}");
    for name in files {
        let expected = if name == file { "new" } else { "old" };
        let text = std::fs::read_to_string(place.join(name)).unwrap();
        assert_eq!(text, expected, "{name}, and {file} was to be written: {script}");
    }
    // Who had opened the old one still reads all of it.
    let after = std::fs::metadata(place.join(file)).unwrap();
    assert_ne!(after.ino(), before.metadata().unwrap().ino(), "{script}");
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), files.len(), "{script}");
}

/// Each `up` builds the image: an edit of a document or of a test had it compile all anew.
#[test]
fn the_image_compiles_anew_only_where_what_it_is_built_from_has_changed() {
    let dockerfile = dockerfile();
    let (before, _) = dockerfile.split_once("\nRUN cargo build ").unwrap();
    let copies = before.lines().filter_map(|line| line.strip_prefix("COPY "));
    let mut copied: Vec<&str> = copies
        .flat_map(|copy| copy.rsplit_once(' ').unwrap().0.split(' '))
        .collect();
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let targets = manifest
        .lines()
        .filter_map(|line| line.strip_prefix("path = \"")?.strip_suffix('"'));
    let targets: Vec<&str> = targets.filter(|path| !path.starts_with("src/")).collect();
    assert!(targets.len() >= 6, "{targets:?}");
    let mut expected = vec!["Cargo.toml", "Cargo.lock", "src"];
    // `cli::demo` holds them.
    expected.extend(["conf/tollgate.yaml", "conf/catalogue.yaml"]);
    expected.extend(targets);
    expected.sort_unstable();
    copied.sort_unstable();
    assert_eq!(copied, expected);
}

/// Docker's json-file keeps all, and the gateway writes a line for each request.
#[test]
fn what_docker_keeps_of_the_logs_is_bounded() {
    for (name, service) in compose()["services"].as_mapping().unwrap() {
        let logging = &service["logging"];
        assert_eq!(logging["driver"], Value::from("json-file"), "{name:?}");
        // Docker takes nothing but text here.
        for option in ["max-size", "max-file"] {
            assert!(logging["options"][option].is_string(), "{name:?}: {option}");
        }
    }
    for (name, text) in [("the image", dockerfile()), ("the guide", guide())] {
        let runs: Vec<&str> = text.split("docker run --read-only").skip(1).collect();
        assert!(!runs.is_empty(), "{name}");
        for run in runs {
            let (command, _) = run.split_once(" tollgate\n").unwrap();
            for option in ["--log-driver json-file ", "--log-opt max-size=", "--log-opt max-file="] {
                assert!(command.contains(option), "{name} has no {option}");
            }
        }
    }
}

/// Who is killed before has its running calls billed by the next start, and leaves their clients with a broken connection.
#[test]
fn docker_waits_for_longer_than_a_stop_takes() {
    let shipped = std::fs::read_to_string(root().join("conf/tollgate.yaml")).unwrap();
    let seconds = |key: &str| {
        let prefix = format!("# {key}: ");
        let value = shipped.lines().find_map(|line| line.strip_prefix(&prefix));
        value.unwrap().parse::<u64>().unwrap()
    };
    let takes = seconds("drain_seconds") + seconds("unready_seconds") + 30;
    let compose = compose();
    let grace = compose["services"]["tollgate"]["stop_grace_period"].as_str().unwrap();
    let mut waits = vec![grace.strip_suffix('s').unwrap().parse::<u64>().unwrap()];
    for text in [dockerfile(), guide()] {
        let (_, value) = text.split_once(" --stop-timeout ").unwrap();
        waits.push(value.split_whitespace().next().unwrap().parse().unwrap());
    }
    assert!(
        waits.iter().all(|wait| *wait >= takes),
        "{waits:?}, and a stop takes {takes}"
    );
}
