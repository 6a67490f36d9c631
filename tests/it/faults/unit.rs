//! The systemd unit's own commands, as they stand in its file, run on the real binary with a socket that hears what the service says of
//! itself, as systemd would: start, reload, upgrade under load, stop.

use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::load::{Load, one_call};
use super::process::{BINARY, Ground, Site, journals};
use super::record::Outcome;
use super::upstream::{Pace, Provider};
use crate::harness::eventually;

const UNIT: &str = include_str!("../../../conf/systemd/tollgate.service");
/// How long the service may take to say something.
const SAYS_WITHIN: Duration = Duration::from_secs(30);

/// The service, and what systemd would know of it.
struct Service<'a> {
    site: &'a Site,
    socket: UnixDatagram,
    /// `$MAINPID`.
    main: u32,
    first: Child,
}

/// The values of a key of the unit, in their order.
fn directives(key: &str) -> Vec<&'static str> {
    let values = UNIT
        .lines()
        .filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    values.collect()
}

/// The value of a key that stands in the unit once.
fn directive(key: &str) -> &'static str {
    let [value] = directives(key)[..] else {
        panic!("{key} stands there another time, or not at all")
    };
    value
}

impl<'a> Service<'a> {
    /// Installs the binary, checks and starts it as the unit says; returns when the service says that it is ready.
    fn start(site: &'a Site) -> Service<'a> {
        Service::start_with(site, &[])
    }

    /// The same, with something added to the environment.
    fn start_with(site: &'a Site, environment: &[(&str, &str)]) -> Service<'a> {
        assert_eq!(directive("Type"), "notify");
        std::os::unix::fs::symlink(BINARY, site.path("tollgate")).unwrap();
        let socket = UnixDatagram::bind(site.path("notify")).unwrap();
        socket.set_read_timeout(Some(SAYS_WITHIN)).unwrap();
        pass_credentials(&socket);
        let check = command(site, directive("ExecStartPre"), 0).output().unwrap();
        assert!(check.status.success(), "{check:?}");
        let log = std::fs::File::create(site.path("log")).unwrap();
        let mut command = command(site, directive("ExecStart"), 0);
        let first = command
            .env("NOTIFY_SOCKET", site.path("notify"))
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let main = first.id();
        let service = Service {
            site,
            socket,
            main,
            first,
        };
        assert_eq!(service.says(), "READY=1");
        std::net::TcpStream::connect(("127.0.0.1", site.port)).expect("it takes connections when it says so");
        service
    }

    /// What the service says next. Of another process than the main one systemd would not believe it, which is an error here.
    fn says(&self) -> String {
        let (text, sender) =
            receive(&self.socket).unwrap_or_else(|error| panic!("nothing was said: {error}: {}", self.site.log()));
        assert_eq!(
            (directive("NotifyAccess"), sender),
            ("main", self.main),
            "{text} was said by another process than the main one"
        );
        text
    }

    /// `systemctl reload`.
    fn reload(&self) {
        for line in directives("ExecReload") {
            let output = command(self.site, line, self.main).output().unwrap();
            assert!(output.status.success(), "{line}: {output:?}");
        }
    }

    /// The upgrade as the unit's comment has it: `systemctl kill`, to the main process.
    fn upgrade(&mut self) {
        let mut lines = UNIT.lines().filter_map(|line| line.strip_prefix("#   "));
        let line = lines.find(|line| line.starts_with("systemctl kill ")).unwrap();
        assert!(line.ends_with(" --kill-who=main --signal=USR2 tollgate"), "{line}");
        signal("-USR2", self.main);
        let said = self.says();
        let new = said.strip_prefix("MAINPID=").and_then(|text| text.parse().ok());
        let old = std::mem::replace(&mut self.main, new.unwrap_or_else(|| panic!("{said}")));
        assert_ne!(old, self.main);
        assert_eq!(self.says(), "READY=1");
    }

    /// `systemctl stop`: the signal to every process of the unit.
    fn stop(&mut self) {
        assert_eq!(
            (directive("KillMode"), directive("KillSignal")),
            ("control-group", "SIGTERM")
        );
        if self.first.id() != self.main && self.first.try_wait().unwrap().is_none() {
            signal("-TERM", self.first.id());
        }
        signal("-TERM", self.main);
        assert_eq!(self.says(), "STOPPING=1");
    }

    /// Waits until the first process has ended by itself, and well.
    async fn first_ended(&mut self) {
        let status = eventually("the first process ends", async || self.first.try_wait().unwrap()).await;
        assert!(status.success(), "{status}: {}", self.site.log());
    }

    /// Waits until the main process has ended.
    async fn main_ended(&mut self) {
        eventually("the main process ends", async || {
            drop(self.first.try_wait());
            has_ended(self.main).then_some(())
        })
        .await;
    }
}

impl Drop for Service<'_> {
    fn drop(&mut self) {
        drop(self.first.kill());
        drop(self.first.wait());
        if !has_ended(self.main) {
            signal("-KILL", self.main);
        }
    }
}

/// A command of the unit with this test's places in it.
fn command(site: &Site, line: &str, main: u32) -> Command {
    let mut words = line.split(' ').map(|word| match word {
        "/usr/local/bin/tollgate" => site.path("tollgate").into_os_string(),
        "/etc/tollgate/tollgate.yaml" => site.path("tollgate.yaml").into_os_string(),
        "$MAINPID" => main.to_string().into(),
        word => word.into(),
    });
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    command
}

/// Puts another binary in the old one's place, as `install` does: a new file under the same name. This one says that it was started.
fn install_new(site: &Site) {
    let (marker, new) = (site.path("new-binary-ran"), site.path("tollgate.new"));
    let text = format!("#!/bin/sh\necho \"$@\" >{}\nexec {BINARY} \"$@\"\n", marker.display());
    std::fs::write(&new, text).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(new, site.path("tollgate")).unwrap();
}

pub fn signal(name: &str, process: u32) {
    let sent = Command::new("kill").args([name, &process.to_string()]).status();
    assert!(sent.unwrap().success(), "{name} {process}");
}

/// Whether a process is gone, or waits for its parent to hear of its end.
pub fn has_ended(process: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{process}/stat")) {
        Ok(stat) => stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')),
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// Has the kernel tell who sent what comes.
fn pass_credentials(socket: &UnixDatagram) {
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on)).unwrap();
    // SAFETY: the call reads `on`, which lives until it returns.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PASSCRED,
            (&raw const on).cast(),
            length,
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// The next message, and the process that sent it.
fn receive(socket: &UnixDatagram) -> std::io::Result<(String, u32)> {
    let (mut text, mut control) = ([0u8; 256], [0u64; 16]);
    let mut piece = libc::iovec {
        iov_base: text.as_mut_ptr().cast(),
        iov_len: text.len(),
    };
    // SAFETY: every pattern of bits is a `msghdr`, and zeros are an empty one.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: the call writes into the buffers that `message` names, which live until the end of this function.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let Ok(length) = usize::try_from(received) else {
        return Err(std::io::Error::last_os_error());
    };
    // SAFETY: the kernel has written a header where `message` says, and credentials behind it, when it says so.
    let credentials: libc::ucred = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        assert!(!header.is_null() && (*header).cmsg_type == libc::SCM_CREDENTIALS);
        std::ptr::read_unaligned(libc::CMSG_DATA(header).cast())
    };
    let text = String::from_utf8(text[..length].to_vec()).unwrap();
    Ok((text, u32::try_from(credentials.pid).unwrap()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_units_commands_start_reload_upgrade_under_load_and_stop() {
    let provider = Provider::start(Pace {
        tokens: 20,
        pause: Duration::from_millis(30),
    })
    .await;
    let site = Site::new(Ground::Sqlite, &provider, |_| ());
    let mut service = tokio::task::block_in_place(|| Service::start(&site));

    let reloads = || site.log().matches("reloaded:").count();
    assert_eq!(reloads(), 0);
    service.reload();
    eventually("the files were read again", async || (reloads() == 1).then_some(())).await;

    let mut load = Load::new(&site, 50);
    load.keeps_connections = true;
    let running = load.start(&site);
    eventually("calls run", async || (provider.seen() >= 100).then_some(())).await;
    install_new(&site);
    tokio::task::block_in_place(|| service.upgrade());
    let arguments = std::fs::read_to_string(site.path("new-binary-ran")).unwrap();
    assert!(arguments.starts_with("serve --upgrade --conf "), "{arguments}");
    service.first_ended().await;
    let seen = provider.seen();
    eventually("the new process serves", async || {
        (provider.seen() > seen + 100).then_some(())
    })
    .await;
    load.finish(running).await;
    let others = load
        .record
        .all()
        .filter(|call| !matches!(call.outcome, Outcome::Whole { .. }));
    let others: Vec<_> = others.collect();
    assert!(others.is_empty(), "of {} calls: {others:?}", load.record.all().count());
    load.reconciled(&site, &provider).await;

    tokio::task::block_in_place(|| service.stop());
    service.main_ended().await;
    assert_eq!(
        journals(&site.data_dir(), "journal"),
        0,
        "everything was billed before the end"
    );
}

/// Pingora asks for signals once it has started the services: here half a second later, which must hold up what the service says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_that_comes_as_soon_as_the_service_is_ready_is_heeded() {
    let provider = Provider::start(Pace {
        tokens: 2,
        pause: Duration::ZERO,
    })
    .await;
    let site = Site::new(Ground::Sqlite, &provider, |_| ());
    let late = [("TOLLGATE_STALL_AT", "signals")];
    let mut service = tokio::task::block_in_place(|| Service::start_with(&site, &late));
    let reloads = || site.log().matches("reloaded:").count();
    // Without the check before it, which takes longer than that half second.
    signal("-HUP", service.main);
    eventually("the files were read again", async || (reloads() == 1).then_some(())).await;
    tokio::task::block_in_place(|| service.upgrade());
    signal("-HUP", service.main);
    eventually("the new process read them", async || (reloads() == 2).then_some(())).await;
    service.first_ended().await;
    tokio::task::block_in_place(|| service.stop());
    service.main_ended().await;
}

/// A stop soon after an upgrade: the old process' streams are not cut by the end of the main one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_after_an_upgrade_lets_the_old_process_end_its_calls() {
    let provider = Provider::start(Pace {
        tokens: 70,
        pause: Duration::from_millis(100),
    })
    .await;
    let mut site = Site::new(Ground::Sqlite, &provider, |_| ());
    let mut service = tokio::task::block_in_place(|| Service::start(&site));
    let mut load = Load::new(&site, 1);
    let (client, url, key) = (reqwest::Client::new(), site.base_url(), load.key(0).clone());
    let call = tokio::spawn(async move { one_call(&client, &url, &key, 2).await });
    eventually("the stream runs", async || provider.sent(2).filter(|sent| *sent > 3)).await;
    tokio::task::block_in_place(|| service.upgrade());
    tokio::task::block_in_place(|| service.stop());
    service.main_ended().await;
    let call = call.await.unwrap();
    assert!(
        matches!(call.outcome, Outcome::Whole { .. }),
        "{call:?}: {}",
        site.log()
    );
    service.first_ended().await;
    drop(service);
    site.start(&[]);
    load.record.keep(0, vec![call]);
    load.reconciled(&site, &provider).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_that_fails_leaves_the_service_as_it_was() {
    let provider = Provider::start(Pace {
        tokens: 2,
        pause: Duration::ZERO,
    })
    .await;
    let site = Site::new(Ground::Sqlite, &provider, |_| ());
    let mut service = tokio::task::block_in_place(|| Service::start(&site));
    let conf = std::fs::read_to_string(site.path("tollgate.yaml")).unwrap();
    std::fs::write(site.path("tollgate.yaml"), "lissen: 1\n").unwrap();
    signal("-USR2", service.main);
    eventually("the log says that the new process ended", async || {
        site.log()
            .contains("the process that was to take over has ended")
            .then_some(())
    })
    .await;
    std::fs::remove_file(site.path("tollgate")).unwrap();
    signal("-USR2", service.main);
    eventually("the log says that there is none", async || {
        site.log()
            .contains("cannot be started, this process goes on")
            .then_some(())
    })
    .await;
    std::fs::write(site.path("tollgate.yaml"), conf).unwrap();
    let load = Load::new(&site, 1);
    let call = one_call(&reqwest::Client::new(), &site.base_url(), load.key(0), 2).await;
    assert!(matches!(call.outcome, Outcome::Whole { .. }), "{call:?}");
    tokio::task::block_in_place(|| service.stop());
    service.main_ended().await;
}
