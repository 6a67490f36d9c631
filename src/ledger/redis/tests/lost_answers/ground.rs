//! A server, and a way to it on which an answer is lost.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redis::{Arg, Cmd};

use crate::ledger::Ledger;
use crate::ledger::admin::operators::{Act, ActQuery, Actor, OperatorOp, OperatorRecord};
use crate::ledger::admin::{AccountView, Acted, AdminError, AdminOp, AdminReply};
use crate::ledger::redis::RedisLedger;
use crate::ledger::redis::link::Link;
use crate::ledger::redis::script::{EvalMode, Script};
use crate::ledger::redis::tests::{node, patient};
use crate::ledger::tests::redis_server::RedisServer;
use crate::ledger::tests::rig::{block_on, redis_of, run};
use crate::pure::ids::{KeyId, Tier};
use crate::pure::operator::Role;

/// What is to be lost: of the next command that has these bytes in it, the answer.
#[derive(Default)]
struct Loss {
    of: Mutex<Option<Vec<u8>>>,
    lost: AtomicUsize,
    is_over: AtomicBool,
}

impl Loss {
    fn takes(&self, sent: &[u8]) -> bool {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        let has = |bytes: &Vec<u8>| sent.windows(bytes.len()).any(|part| part == bytes.as_slice());
        let is_taken = of.as_ref().is_some_and(has);
        if is_taken {
            *of = None;
        }
        is_taken
    }
}

/// A server, and two ledgers on it: one that reaches it, and one whose answers can be lost.
pub(super) struct Ground {
    pub(super) direct: Ledger,
    pub(super) lossy: Ledger,
    way: Way,
    _server: RedisServer,
}

/// A way to a server on which answers are lost.
pub(in crate::ledger::redis) struct Way {
    loss: Arc<Loss>,
    port: u16,
}

impl Ground {
    /// With the account `acme`.
    pub(super) fn new() -> Ground {
        let server = RedisServer::start();
        let direct = node(&server, patient());
        let way = Way::to(&server);
        let lossy = Ledger::Redis(RedisLedger::connect(&way.url(), patient()).unwrap());
        run(&direct, create("acme")).unwrap();
        Ground {
            direct,
            lossy,
            way,
            _server: server,
        }
    }

    /// Runs a command in anna's name, and loses the answer to this script's next run.
    pub(super) fn run(&self, script: &'static Script, op: AdminOp) -> Result<AdminReply, AdminError> {
        let actor = Actor {
            id: "op_1".to_owned(),
            name: "anna".to_owned(),
            role: Role::Admin,
            address: None,
        };
        self.losing(script, || run(&self.lossy, AdminOp::By(Box::new(Acted { actor, op }))))
    }

    pub(super) fn losing<T>(&self, script: &'static Script, asked: impl FnOnce() -> T) -> T {
        let call = script.call(EvalMode::Hash, &[]);
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(second(&script.by_text(&call)));
        block_on(redis_of(&self.direct).shared.command(&Link::default(), load)).unwrap();
        self.losing_answer_to(second(&call), asked)
    }

    /// As [`Way::losing_answer_to`].
    pub(super) fn losing_answer_to<T>(&self, bytes: Vec<u8>, asked: impl FnOnce() -> T) -> T {
        self.way.losing_answer_to(bytes, asked)
    }

    /// The acts, newest first.
    pub(super) fn acts(&self) -> Vec<Act> {
        let query = ActQuery {
            limit: 100,
            ..ActQuery::default()
        };
        match run(&self.direct, AdminOp::Operator(OperatorOp::Log(query))).unwrap() {
            AdminReply::Acts(page) => page.acts,
            other => panic!("{other:?}"),
        }
    }

    /// The one act that there is, which went well.
    pub(super) fn only_act(&self) -> Act {
        let mut acts = self.acts();
        assert_eq!(acts.len(), 1, "{acts:?}");
        let act = acts.remove(0);
        assert_eq!(act.error, None);
        act
    }

    pub(super) fn account(&self, name: &str) -> AccountView {
        let account = name.parse().unwrap();
        match run(&self.direct, AdminOp::AccountShow { account }).unwrap() {
            AdminReply::Account(view) => view,
            other => panic!("{other:?}"),
        }
    }

    /// The account's keys, and whether each is revoked, those that are not first.
    pub(super) fn keys(&self) -> Vec<(KeyId, bool)> {
        let keys = self.account("acme").keys.into_iter();
        let mut keys: Vec<_> = keys.map(|key| (key.id, key.revoked.is_some())).collect();
        keys.sort_by_key(|(_, is_revoked)| *is_revoked);
        keys
    }

    pub(super) fn operators(&self) -> Vec<OperatorRecord> {
        match run(&self.direct, AdminOp::Operator(OperatorOp::List)).unwrap() {
            AdminReply::Operators { operators } => operators,
            other => panic!("{other:?}"),
        }
    }
}

impl Way {
    pub(in crate::ledger::redis) fn to(server: &RedisServer) -> Way {
        let (loss, listener) = (Arc::new(Loss::default()), TcpListener::bind("127.0.0.1:0").unwrap());
        let (port, to, losing) = (listener.local_addr().unwrap().port(), server.port(), Arc::clone(&loss));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if losing.is_over.load(Ordering::SeqCst) {
                    break;
                }
                if let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", to))) {
                    carry(&client, &server, &losing);
                }
            }
        });
        Way { loss, port }
    }

    pub(in crate::ledger::redis) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Loses the answer to the next command that has these bytes in it.
    pub(in crate::ledger::redis) fn losing_answer_to<T>(&self, bytes: Vec<u8>, asked: impl FnOnce() -> T) -> T {
        *self.loss.of.lock().unwrap() = Some(bytes);
        let before = self.loss.lost.load(Ordering::SeqCst);
        let answered = asked();
        assert_eq!(self.loss.lost.load(Ordering::SeqCst), before + 1, "an answer was lost");
        answered
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.loss.is_over.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(("127.0.0.1", self.port))); // So that nobody listens any more.
    }
}

/// Carries a connection's bytes both ways, until one side ends it or an answer is to be lost.
fn carry(client: &TcpStream, server: &TcpStream, loss: &Arc<Loss>) {
    let is_lost = Arc::new(AtomicBool::new(false));
    let ways = [(client, server, true), (server, client, false)];
    for (from, to, is_sent) in ways.map(|(from, to, is_sent)| (handle(from), handle(to), is_sent)) {
        let (loss, is_lost) = (Arc::clone(loss), Arc::clone(&is_lost));
        std::thread::spawn(move || {
            let (mut from, mut to, mut bytes) = (from, to, vec![0; 1 << 16]);
            while let Ok(length) = from.read(&mut bytes) {
                if length == 0 {
                    break;
                }
                if is_sent && loss.takes(&bytes[..length]) {
                    // Before the command is on its way: its answer comes later.
                    is_lost.store(true, Ordering::SeqCst);
                }
                if !is_sent && is_lost.load(Ordering::SeqCst) {
                    loss.lost.fetch_add(1, Ordering::SeqCst);
                    break;
                }
                if to.write_all(&bytes[..length]).is_err() {
                    break;
                }
            }
            for side in [&from, &to] {
                drop(side.shutdown(Shutdown::Both));
            }
        });
    }
}

fn handle(stream: &TcpStream) -> TcpStream {
    stream.try_clone().unwrap()
}

/// The second word of a command: a script's hash, or its text.
fn second(call: &Cmd) -> Vec<u8> {
    match call.args_iter().nth(1) {
        Some(Arg::Simple(bytes)) => bytes.to_vec(),
        _ => panic!("a call of a script"),
    }
}

pub(super) fn create(name: &str) -> AdminOp {
    AdminOp::AccountCreate {
        account: name.parse().unwrap(),
        tier: Tier::Pro,
        quota_pico: None,
        terms: Default::default(),
    }
}
