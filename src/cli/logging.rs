//! The log of the program: to standard error, in the form of a command's errors and warnings where that is JSON.

use std::io::Write;

use super::Command;
use super::output::{Format, error_line, warning_line};
use crate::config::environment;

pub(super) fn start(command: &Command, format: Format) {
    let runs_a_gateway = matches!(command, Command::Serve(_) | Command::Demo(_));
    let level = match runs_a_gateway {
        true => "info,pingora_core=warn",
        false => "warn",
    };
    let mut builder = filtered(environment(env_logger::DEFAULT_FILTER_ENV).as_deref().unwrap_or(level));
    if let Some(style) = environment(env_logger::DEFAULT_WRITE_STYLE_ENV) {
        builder.parse_write_style(&style);
    }
    if format == Format::Json && !runs_a_gateway {
        builder.format(|out, record| {
            let line = json_line(record.level(), &record.args().to_string());
            out.write_all(line.as_bytes())
        });
    }
    // It only fails when a log exists already, as it does in tests; then that one serves.
    drop(builder.try_init());
}

/// The log that is asked for.
fn filtered(asked: &str) -> env_logger::Builder {
    // Not from the environment: what stands there would count beside.
    let mut builder = env_logger::Builder::new();
    builder.parse_filters(&without_heads(asked));
    // Below this level Pingora writes whole heads of requests, with the keys in them, whatever RUST_LOG asks for.
    for module in HEADS {
        builder.filter_module(module, log::LevelFilter::Warn);
    }
    // At any level it writes a head that it cannot read.
    builder.filter_module("pingora_core::apps", log::LevelFilter::Off);
    // It writes an error for each client that leaves while its request is read; what fails of ours is logged by the hooks.
    builder.filter_module("pingora_proxy", log::LevelFilter::Off);
    builder
}

/// What is asked of the log, without what would be more specific than our own word on who writes heads of requests.
fn without_heads(filters: &str) -> String {
    // A pattern for the text stands behind the last directive.
    let (directives, pattern) = match filters.split_once('/') {
        Some((directives, pattern)) => (directives, Some(pattern)),
        None => (filters, None),
    };
    let of_heads = |directive: &&str| {
        let name = directive.trim();
        !HEADS
            .iter()
            .chain(&["pingora_proxy"])
            .any(|module| name.starts_with(module))
    };
    let mut kept = directives.split(',').filter(of_heads).collect::<Vec<_>>().join(",");
    if let Some(pattern) = pattern {
        kept.push('/');
        kept.push_str(pattern);
    }
    kept
}

/// Who writes heads of requests.
const HEADS: [&str; 3] = ["pingora_core", "h2", "rustls"];

/// A line of the log as a program reads it that has asked for JSON.
fn json_line(level: log::Level, message: &str) -> String {
    match level {
        log::Level::Error => error_line(message, Format::Json),
        log::Level::Warn => warning_line(message, Format::Json),
        log::Level::Info | log::Level::Debug | log::Level::Trace => {
            format!("{}\n", serde_json::json!({ "log": { "message": message } }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest name decides, so one of a module within wrote providers' credentials.
    #[test]
    fn no_directive_has_heads_of_requests_written() {
        for (asked, kept) in [
            ("info", "info"),
            ("info,pingora_core::protocols=trace", "info"),
            (
                "debug, pingora_core::apps::http_app=error,h2=trace,tollgate=trace",
                "debug,tollgate=trace",
            ),
            ("pingora_proxy=trace,rustls::client=trace", ""),
            ("info,pingora_core=trace/h2", "info/h2"),
        ] {
            assert_eq!(without_heads(asked), kept, "{asked}");
            let log = filtered(asked).build();
            let is_logged = |target: &str, level| {
                use log::Log as _;
                log.enabled(&log::Metadata::builder().target(target).level(level).build())
            };
            for target in [
                "pingora_core::protocols::http::v1::client",
                "h2::codec",
                "rustls::client::hs",
            ] {
                assert!(!is_logged(target, log::Level::Info), "{asked}: {target}");
            }
            for target in ["pingora_core::apps::http_app", "pingora_proxy::proxy_h1"] {
                assert!(!is_logged(target, log::Level::Error), "{asked}: {target}");
            }
            assert_eq!(
                is_logged("tollgate::server", log::Level::Info),
                kept.contains("info") || kept.contains("debug")
            );
        }
    }

    #[test]
    fn what_is_logged_while_a_command_answers_in_json_is_json_too() {
        for (level, line) in [
            (log::Level::Error, "{\"error\":{\"message\":\"a \\\"b\\\"\"}}\n"),
            (log::Level::Warn, "{\"warning\":{\"message\":\"a \\\"b\\\"\"}}\n"),
            (log::Level::Info, "{\"log\":{\"message\":\"a \\\"b\\\"\"}}\n"),
        ] {
            assert_eq!(json_line(level, "a \"b\""), line);
        }
    }
}
