//! The log of the program: to standard error, in the form of a command's errors and warnings where that is JSON.

use std::io::Write;

use super::Command;
use super::output::{Format, error_line, warning_line};

pub(super) fn start(command: &Command, format: Format) {
    let runs_a_gateway = matches!(command, Command::Serve(_) | Command::Demo(_));
    let level = match runs_a_gateway {
        true => "info,pingora_core=warn",
        false => "warn",
    };
    let filter = env_logger::Env::default().default_filter_or(level);
    let mut builder = env_logger::Builder::from_env(filter);
    // Below this level Pingora writes whole heads of requests, with the keys in them, whatever RUST_LOG asks for.
    for module in ["pingora_core", "h2", "rustls"] {
        builder.filter_module(module, log::LevelFilter::Warn);
    }
    // At any level it writes a head that it cannot read.
    builder.filter_module("pingora_core::apps", log::LevelFilter::Off);
    // It writes an error for each client that leaves while its request is read; what fails of ours is logged by the hooks.
    builder.filter_module("pingora_proxy", log::LevelFilter::Off);
    if format == Format::Json && !runs_a_gateway {
        builder.format(|out, record| {
            let line = json_line(record.level(), &record.args().to_string());
            out.write_all(line.as_bytes())
        });
    }
    // It only fails when a log exists already, as it does in tests; then that one serves.
    drop(builder.try_init());
}

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
