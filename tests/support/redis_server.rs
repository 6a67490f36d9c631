//! Redis servers for tests: real processes on free ports, each with a folder of its own, gone when dropped.
//!
//! It uses nothing of the crate, so that unit tests and the integration binary can both have it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) use ports::free_port;

mod ports;

/// A running redis-server.
#[derive(Debug)]
pub(crate) struct RedisServer {
    port: u16,
    folder: tempfile::TempDir,
    settings: Vec<String>,
    process: Option<Child>,
}

impl RedisServer {
    /// Starts a server that keeps nothing on disk.
    pub(crate) fn start() -> RedisServer {
        RedisServer::start_with(&["--save", "", "--appendonly", "no"])
    }

    /// Starts a server with these settings, as redis-server's command line takes them.
    pub(crate) fn start_with(settings: &[&str]) -> RedisServer {
        (0..20)
            .find_map(|_| RedisServer::start_at(free_port(), settings))
            .expect("redis-server starts")
    }

    /// Starts a server on this port; none when another has it.
    pub(crate) fn start_at(port: u16, settings: &[&str]) -> Option<RedisServer> {
        let mut server = RedisServer {
            port,
            folder: tempfile::tempdir().expect("a folder for redis-server"),
            settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
            process: None,
        };
        server.launch().then_some(server)
    }

    /// Its port on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Its process.
    pub(crate) fn process_id(&self) -> u32 {
        self.process.as_ref().expect("redis-server runs").id()
    }

    /// Its address.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its folder.
    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Stops it as a debugger would: connections stay, nothing is answered.
    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
    }

    /// Kills it, as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("redis-server can be killed");
            process.wait().expect("redis-server has ended");
        }
    }

    /// Starts it again after a kill, on the same port with what its folder has.
    pub(crate) fn restart(&mut self) {
        self.kill();
        assert!(self.launch(), "redis-server does not start again");
    }

    /// Sends one command of plain words, and gives back the lines of its answer.
    pub(crate) fn ask(&self, command: &str) -> Vec<String> {
        ask(self.port, command)
    }

    fn launch(&mut self) -> bool {
        let process = Command::new("redis-server")
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--dir"])
            .arg(self.folder.path())
            .args(&self.settings)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match process {
            Ok(process) => self.process = Some(process),
            Err(error) => panic!("redis-server cannot be started: {error}"),
        }
        until("redis-server answers or ends", || self.answers() || self.has_ended());
        !self.has_ended() && self.is_the_one_that_answers()
    }

    /// Another test may have been given the same port: its server answers there until this one ends for want of the port.
    fn is_the_one_that_answers(&self) -> bool {
        is_process(self.port, self.process_id())
    }

    fn answers(&self) -> bool {
        answers(self.port)
    }

    fn has_ended(&mut self) -> bool {
        match &mut self.process {
            Some(process) => !matches!(process.try_wait(), Ok(None)),
            None => true,
        }
    }

    fn signal(&self, signal: &str) {
        let process = self.process.as_ref().expect("redis-server runs");
        let sent = Command::new("kill").args([signal, &process.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill {signal}");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends one command of plain words to the server on a port of 127.0.0.1, and gives back the lines of its answer.
pub(crate) fn ask(port: u16, command: &str) -> Vec<String> {
    try_ask(port, command).expect("redis-server listens and reads")
}

fn try_ask(port: u16, command: &str) -> std::io::Result<Vec<String>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(format!("{command}\r\n").as_bytes())?;
    // It answers, and closes the connection for its part.
    stream.shutdown(Shutdown::Write)?;
    Ok(BufReader::new(stream).lines().map_while(Result::ok).collect())
}

/// Whether it is this process that answers on a port of 127.0.0.1.
pub(crate) fn is_process(port: u16, id: u32) -> bool {
    let line = format!("process_id:{id}");
    try_ask(port, "INFO server").is_ok_and(|lines| lines.contains(&line))
}

/// Whether a server answers on a port of 127.0.0.1.
pub(crate) fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
        return false;
    };
    let mut answer = [0u8; 5];
    let asked = stream
        .set_read_timeout(Some(Duration::from_secs(1)))
        .and_then(|()| stream.write_all(b"PING\r\n"))
        .and_then(|()| stream.read_exact(&mut answer));
    asked.is_ok() && &answer == b"+PONG"
}

/// Waits until something is so, and fails the test when it is not within a minute: a fail-over on a busy machine takes a third of it.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "not so after a minute: {what}"
        );
        // Sleeps: between two looks.
        std::thread::sleep(Duration::from_millis(5));
    }
}
