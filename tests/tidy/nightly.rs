//! What is shipped is what the long modes try, and each of them runs.

fn read(file: &str) -> String {
    std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

/// Money that wraps around is worse than a call that fails. What is shipped is no debug build, so its profile has to say so, and the long
/// modes kill that one.
#[test]
fn what_is_shipped_checks_its_arithmetic_and_is_what_is_killed() {
    let manifest = read("Cargo.toml");
    let (_, profile) = manifest.split_once("\n[profile.release]\n").unwrap();
    let (profile, _) = profile.split_once("\n[").unwrap();
    assert!(
        profile.lines().any(|line| line == "overflow-checks = true"),
        "{profile}"
    );
    let nightly = read("tests/nightly");
    assert!(nightly.contains("value TOLLGATE_NIGHTLY_PROFILE release dev\n"));
    assert!(nightly.contains("faults() { tests --cargo-profile \"$TOLLGATE_NIGHTLY_PROFILE\" --features failpoints "));
}

/// A mode that no job runs is tried by nobody.
#[test]
fn each_long_mode_runs_in_a_job() {
    let (nightly, workflow) = (read("tests/nightly"), read(".github/workflows/nightly.yml"));
    let modes = nightly.lines().find_map(|line| line.strip_prefix("all=(")).unwrap();
    let mut modes: Vec<&str> = modes.trim_end_matches(')').split_whitespace().collect();
    let (_, matrix) = workflow.split_once("        mode:\n").unwrap();
    let jobs = matrix.lines().map_while(|line| line.strip_prefix("          - "));
    let mut run: Vec<&str> = jobs.flat_map(str::split_whitespace).collect();
    modes.sort_unstable();
    run.sort_unstable();
    assert_eq!(modes, run);
}

/// One that names what is gone fails the long mode, hours later.
#[test]
fn each_survivor_names_a_function_that_has_what_is_changed() {
    let survivors = read("tests/mutants/survivors.txt");
    for line in survivors.lines().filter(|line| !line.starts_with('#')) {
        let (mutant, _) = line.rsplit_once(" | ").unwrap();
        let (file, what) = mutant.split_once(": ").unwrap();
        let (change, function) = match what.rsplit_once(" in ") {
            Some((change, function)) => (change, function.split(" [").next().unwrap()),
            // All of it is replaced.
            None => {
                let named = what.strip_prefix("replace ").unwrap();
                ("", named.split(" -> ").next().unwrap().split(" with ").next().unwrap())
            }
        };
        let name = function.rsplit("::").next().unwrap();
        let source = read(file);
        let lines: Vec<&str> = source.lines().collect();
        if !name.contains(char::is_alphanumeric) {
            // An operator outside all functions.
            let mut constants = lines.iter().filter(|text| text.starts_with("const "));
            assert!(constants.any(|text| text.contains(&format!(" {name} "))), "{line}");
            continue;
        }
        let is_head = |line: &str| {
            let line = line.trim_start();
            line.contains(&format!("fn {name}(")) || line.contains(&format!("fn {name}<"))
        };
        let has_change = lines
            .iter()
            .enumerate()
            .filter(|(_, line)| is_head(line))
            .any(|(at, head)| {
                let indent = &head[..head.len() - head.trim_start().len()];
                let end = lines[at..]
                    .iter()
                    .position(|line| *line == format!("{indent}}}"))
                    .unwrap_or(0);
                let function = lines[at..=at + end].join("\n");
                let (signature, body) = function.split_once('{').unwrap_or((&function, ""));
                let operator = change
                    .strip_prefix("delete ")
                    .or_else(|| change.strip_prefix("replace ")?.split(" with ").next())
                    .filter(|operator| !operator.contains(char::is_alphanumeric));
                match operator {
                    Some("!") => body.contains('!'),
                    Some(operator) => body.contains(&format!(" {operator} ")),
                    None => !change.is_empty() || signature.contains(" -> ") == what.contains(" -> "),
                }
            });
        assert!(has_change, "{line}");
    }
}
