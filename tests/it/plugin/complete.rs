//! A mounted plugin forwards every hook that Pingora has: one that was forgotten would run Pingora's default on a host's requests.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

/// The names of the functions in a Rust text, between two lines.
fn functions(text: &str, from: &str) -> BTreeSet<String> {
    let (_, body) = text.split_once(from).unwrap();
    let (body, _) = body.split_once("\n}").unwrap();
    let mut is_optional = false;
    let mut names = BTreeSet::new();
    for line in body.lines().map(str::trim_start) {
        if line.starts_with('#') {
            // What a feature adds that is not switched on is no hook here.
            is_optional |= line.starts_with("#[cfg(feature");
            continue;
        }
        let line = line.strip_prefix("async ").unwrap_or(line);
        if let Some(rest) = line.strip_prefix("fn ")
            && !is_optional
        {
            names.insert(rest.split(['(', '<']).next().unwrap().to_owned());
        }
        is_optional = false;
    }
    names
}

#[test]
fn a_mounted_plugin_forwards_every_hook() {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let proxy = packages
        .iter()
        .find(|package| package["name"] == "pingora-proxy")
        .unwrap();
    let manifest = std::path::Path::new(proxy["manifest_path"].as_str().unwrap());
    let theirs = std::fs::read_to_string(manifest.with_file_name("src/proxy_trait.rs")).unwrap();
    let theirs = functions(&theirs, "pub trait ProxyHttp {");
    let ours = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/gateway/mount.rs")).unwrap();
    let ours = functions(&ours, "ProxyHttp for Mounted<H>");
    assert!(theirs.len() > 35, "{theirs:?}");
    assert_eq!(ours, theirs);
}
