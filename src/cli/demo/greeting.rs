//! What the demo says once its gateway answers: one line of JSON, or lines to paste.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;

use crate::cli::failure::Failure;
use crate::cli::output::{Format, json_line, shell_word};
use crate::clock::monotonic;

/// Everything one needs to call the demo.
#[derive(Serialize)]
pub(super) struct Greeting {
    pub(super) base_url: String,
    pub(super) key: String,
    pub(super) account: &'static str,
    /// The generated configuration.
    pub(super) conf: PathBuf,
    /// Where the gateway is seen at work.
    pub(super) status_page: String,
    /// Where operators work.
    pub(super) console: String,
    /// With which they sign in there.
    pub(super) operator_token: String,
    /// Where who has the key sees its money.
    pub(super) wallet: String,
    /// Why there is no day of calls, or not the whole of it, though one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) traffic: Option<&'static str>,
    #[serde(skip)]
    pub(super) model: String,
    #[serde(skip)]
    pub(super) simulated: bool,
    /// By an option, whatever credentials there are.
    #[serde(skip)]
    pub(super) is_asked_for: bool,
}

impl Greeting {
    /// Writes the greeting to standard output as soon as the gateway answers at `address`; nothing when it stops before.
    pub(super) fn when_healthy(&self, address: SocketAddr, health: &str, stopped: &AtomicBool, format: Format) {
        let started = monotonic();
        while !is_healthy(address, health) {
            if stopped.load(Ordering::Relaxed) {
                return;
            }
            if started.elapsed() > START_WAIT_MAX {
                log::error!("the gateway does not answer at {address}{health}");
                return;
            }
            std::thread::sleep(POLL_PAUSE);
        }
        match self.written(format) {
            Ok(text) => write(&text),
            Err(failure) => log::error!("{failure}"),
        }
    }

    pub(super) fn written(&self, format: Format) -> Result<String, Failure> {
        match format {
            Format::Json => json_line(self),
            Format::Text => Ok(self.text()),
        }
    }

    fn text(&self) -> String {
        let Greeting {
            base_url,
            key,
            account,
            conf,
            status_page,
            console,
            operator_token,
            wallet,
            traffic,
            model,
            simulated,
            is_asked_for,
        } = self;
        let tollgate = program();
        let conf = shell_word(&conf.display().to_string());
        let provider = match simulated {
            // Then nobody looks at these variables.
            true if *is_asked_for => {
                "Answers come from a simulated provider, not from a language model, as it was asked for."
            }
            true => {
                "Answers come from a simulated provider, not from a language model.\n\
                     For a real one, stop this and set OPENAI_API_KEY or OPENROUTER_API_KEY."
            }
            false => "Answers come from the real provider, whose price you pay.",
        };
        let traffic = traffic.map_or_else(String::new, |told| format!("traffic   {told}\n"));
        let body = format!(
            r#"{{"model":"{model}","stream":true,"messages":[{{"role":"user","content":"Tell me a short story."}}]}}"#
        );
        format!(
            "\n\
             Tollgate is running. {provider}\n\
             \n\
             base URL  {base_url}  (also for OpenAI clients)\n\
             key       {key}\n\
             account   {account}, tier pro, prepaid credit\n\
             status    {status_page}\n\
             console   {console}  (sign in with {operator_token})\n\
             wallet    {wallet}  (open it with the key)\n\
             {traffic}\n\
             A streamed completion:\n\
             \n\
             curl -N {base_url}/llm/chat/stream \\\n  \
               -H 'Authorization: Bearer {key}' \\\n  \
               -H 'Content-Type: application/json' \\\n  \
               -d '{body}'\n\
             \n\
             What it cost: the balance, today's usage by model, and the models with their prices:\n\
             \n\
             curl {base_url}/llm/balance -H 'Authorization: Bearer {key}'\n\
             \n\
             curl {base_url}/llm/usage -H 'Authorization: Bearer {key}'\n\
             \n\
             curl '{base_url}/llm/public/models?per_page=5'\n\
             \n\
             The operator's side, in another terminal:\n\
             \n\
             export TOLLGATE_CONF={conf}\n\
             {tollgate} account show {account}\n\
             {tollgate} top\n\
             \n\
             Ctrl-C stops it. Key, balance and usage are kept for the next start.\n\n"
        )
    }
}

/// One bare request: the gateway speaks, and not just some listener on its port.
fn is_healthy(address: SocketAddr, path: &str) -> bool {
    let asked = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&address, ANSWER_WAIT_MAX)?;
        stream.set_read_timeout(Some(ANSWER_WAIT_MAX))?;
        stream.set_write_timeout(Some(ANSWER_WAIT_MAX))?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut status = String::new();
        BufReader::new(stream).read_line(&mut status)?;
        Ok(status.starts_with("HTTP/1.1 200"))
    };
    asked().unwrap_or(false)
}

fn write(text: &str) {
    let mut stdout = std::io::stdout();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => log::error!("cannot write the greeting: {error}"),
        _ => {}
    }
}

/// This program as it was called, for lines to paste.
fn program() -> String {
    let called = std::env::args_os().next().map(PathBuf::from);
    let path = called.filter(|path| path.components().count() > 1);
    path.map_or_else(|| "tollgate".to_owned(), |path| shell_word(&path.display().to_string()))
}

const START_WAIT_MAX: Duration = Duration::from_secs(60);
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(2);
const POLL_PAUSE: Duration = Duration::from_millis(20);
