//! The compose file, as far as it can be tried without a builder of images: its rights, the credentials that it passes, the command that
//! writes the configuration; and the health checks.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_yaml_ng::Value;

use crate::harness::operator::Process;
use crate::harness::{Reply, Upstream};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
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
    let dockerfile = std::fs::read_to_string(root().join("conf/docker/Dockerfile")).unwrap();
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

    let dockerfile = std::fs::read_to_string(root().join("conf/docker/Dockerfile")).unwrap();
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

/// It is run as the container's shell runs it; in place of the service, the configuration that it wrote is checked.
#[test]
fn the_command_of_the_gateways_container_writes_a_configuration_that_is_read() {
    let compose = compose();
    let command = compose["services"]["tollgate"]["command"]
        .as_str()
        .unwrap()
        .replace("$$", "$");
    let script = command
        .strip_prefix("sh -c \"")
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap();
    let script = script.replace("\\\"", "\"");
    assert!(script.contains("exec tollgate serve "), "{script}");
    let shipped = root().join("conf/tollgate.yaml");
    let script = script
        .replace("/etc/tollgate/tollgate.yaml", shipped.to_str().unwrap())
        .replace(
            "exec tollgate serve",
            &format!("exec {} check", env!("CARGO_BIN_EXE_tollgate")),
        );
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("conf");
    std::fs::create_dir(&conf).unwrap();
    std::fs::copy(root().join("conf/catalogue.yaml"), conf.join("catalogue.yaml")).unwrap();
    let mut run = Command::new("sh");
    run.args(["-c", &script])
        .env("REDIS_PASSWORD", "Secret5")
        .current_dir(folder.path());
    let output = run.output().unwrap();
    let written = std::fs::read_to_string(folder.path().join("tollgate.yaml")).unwrap();
    assert!(written.contains("store: redis://:Secret5@redis:6379/0\n"), "{written}");
    assert!(written.contains("\nadmin_listen: 0.0.0.0:9090\n"), "{written}");
    // On this machine there is no Redis of that name, and perhaps no free port: nothing else is wrong.
    let said = String::from_utf8(output.stderr).unwrap();
    let is_expected = |line: &str| ["store: ", "listen: "].iter().any(|key| line.contains(key));
    assert!(said.lines().all(is_expected) && !said.contains("Secret5"), "{said}");
    assert!(
        String::from_utf8(output.stdout).unwrap().contains("ledger: Redis"),
        "{said}"
    );
    assert_private(&folder.path().join("tollgate.yaml"));
}

fn assert_private(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "it has a password in it");
}
