//! The store's address, taken apart: one Redis, a cluster, or a master that Sentinels name.
//!
//! `redis://[user:password@]host[:port][/db]`, `redis+cluster://[user:password@]host[:port],…`,
//! `redis+sentinel://[user:password@]host[:port],…/master[/db]`; with `rediss` in place of `redis` over TLS.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, IntoConnectionInfo, Pipeline, RedisResult, TlsCertificates, Value};

use crate::ledger::StoreError;

/// Where Redis is. `Debug` shows neither user nor password.
pub(super) struct Address {
    form: Form,
    pub(super) nodes: Vec<String>,
    pub(super) login: Option<(String, String)>,
    pub(super) tls: Option<TlsCertificates>,
    pub(super) secure: bool,
    connect_timeout: Duration,
    /// How often its master was replaced by another that the Sentinels name.
    replaced: AtomicU64,
}

enum Form {
    One { db: i64 },
    Cluster,
    Sentinel { master: String, db: i64 },
}

/// A connection to one server that many calls share. Cloning is cheap.
#[derive(Clone)]
pub(super) struct Connection(MultiplexedConnection);

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.nodes.join(","))
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

impl Address {
    /// Reads an address. `ca` is a PEM text of the authorities that are trusted in place of the system's.
    ///
    /// # Errors
    /// When the text is no address; the message shows no password.
    pub(super) fn parse(text: &str, ca: Option<Vec<u8>>, connect_timeout: Duration) -> Result<Address, StoreError> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("it has no scheme"))?;
        let (family, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        let secure = match family {
            "redis" => false,
            "rediss" => true,
            _ => return Err(wrong("its scheme is not redis or rediss")),
        };
        let (login, rest) = match rest.rsplit_once('@') {
            None => (None, rest),
            Some((login, rest)) => {
                let (user, password) = login
                    .split_once(':')
                    .ok_or_else(|| wrong("its login is not user:password"))?;
                (Some((unescaped(user)?, unescaped(password)?)), rest)
            }
        };
        let mut parts = rest.trim_end_matches('/').split('/');
        let own_port = if kind == "sentinel" { 26_379 } else { 6379 };
        let nodes = parts
            .next()
            .unwrap_or_default()
            .split(',')
            .map(|node| host_port(node, own_port));
        let nodes = nodes.collect::<Result<Vec<String>, StoreError>>()?;
        let form = match kind {
            "" => Form::One {
                db: database(parts.next())?,
            },
            "cluster" => Form::Cluster,
            "sentinel" => {
                let master = parts.next().filter(|name| !name.is_empty());
                Form::Sentinel {
                    master: master.ok_or_else(|| wrong("it names no master"))?.to_owned(),
                    db: database(parts.next())?,
                }
            }
            _ => return Err(wrong("it is neither redis://, redis+cluster:// nor redis+sentinel://")),
        };
        if parts.next().is_some() || (matches!(form, Form::One { .. }) && nodes.len() != 1) {
            return Err(wrong("it has too many parts"));
        }
        Ok(Address {
            form,
            nodes,
            login,
            secure,
            tls: ca.map(|root| TlsCertificates {
                client_tls: None,
                root_cert: Some(root),
            }),
            connect_timeout,
            replaced: AtomicU64::new(0),
        })
    }

    /// One server of the cluster that this is the address of.
    pub(super) fn node_of(&self, node: &str) -> Address {
        Address {
            form: Form::One { db: 0 },
            nodes: vec![node.to_owned()],
            login: self.login.clone(),
            tls: self.tls.clone(),
            secure: self.secure,
            connect_timeout: self.connect_timeout,
            replaced: AtomicU64::new(0),
        }
    }

    /// Whether it is this one server's.
    pub(super) fn is_node(&self, node: &str) -> bool {
        matches!(self.nodes.as_slice(), [own] if own == node)
    }

    /// The servers that it names.
    pub(super) fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// Makes a connection, driven by the runtime that this is called on: to the Redis, or to the master that Sentinels name.
    pub(super) async fn connect(&self) -> RedisResult<Connection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE_MAX)
            .set_write_backpressure_boundary(64 << 10);
        let client = self.client().await?;
        let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Connection(connection))
    }

    /// A client for connections to one server: the Redis, or the master that Sentinels name. Those of a cluster have addresses of their own
    /// ([`Address::node_of`]).
    pub(super) async fn client(&self) -> RedisResult<Client> {
        let db = match &self.form {
            Form::Sentinel { master, db } => return self.master(master, *db).await,
            Form::One { db } => *db,
            Form::Cluster => 0,
        };
        self.node(self.nodes.first().map_or("", String::as_str), db)
    }

    /// Whether Sentinels say where the server is.
    pub(super) fn has_sentinels(&self) -> bool {
        matches!(self.form, Form::Sentinel { .. })
    }

    /// The Sentinels name another master than before: no call is sent on a connection that was begun before this.
    pub(super) fn master_was_replaced(&self) {
        self.replaced.fetch_add(1, Ordering::AcqRel);
    }

    /// How often that was so.
    pub(super) fn replaced(&self) -> u64 {
        self.replaced.load(Ordering::Acquire)
    }

    /// Whether this is a cluster, whose nodes are told apart by the slot of a key.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.form, Form::Cluster)
    }

    fn node(&self, node: &str, db: i64) -> RedisResult<Client> {
        let scheme = if self.secure { "rediss" } else { "redis" };
        let info = format!("{scheme}://{node}/{db}").into_connection_info()?;
        let mut redis = info.redis_settings().clone();
        if let Some((user, password)) = &self.login {
            if !user.is_empty() {
                redis = redis.set_username(user);
            }
            redis = redis.set_password(password);
        }
        let info = info.set_redis_settings(redis);
        match &self.tls {
            Some(certificates) if self.secure => Client::build_with_tls(info, certificates.clone()),
            _ => Client::open(info),
        }
    }
}

impl Connection {
    /// Sends one command and waits for its answer. An error that Redis answers is an error.
    pub(super) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        self.answer(command).await?.extract_error()
    }

    /// Sends one command and waits for its answer, which may be an error that Redis says.
    pub(super) async fn answer(&mut self, command: &Cmd) -> RedisResult<Value> {
        self.0.send_packed_command(command).await
    }

    /// Sends commands together and waits for their answers, in order. An error that Redis answers to one of them stands in its place.
    pub(super) async fn send_all(&mut self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        self.0.send_packed_commands(commands, 0, commands.len()).await
    }

    /// Sends one command to a server that takes over the slot of its key, which serves it only so.
    pub(super) async fn send_asking(&mut self, command: &Cmd) -> RedisResult<Value> {
        let mut together = redis::pipe();
        together.cmd("ASKING").add_command(command.clone());
        let last = self.send_all(&together).await?.pop().unwrap_or(Value::Nil);
        last.extract_error()
    }
}

fn wrong(what: &str) -> StoreError {
    StoreError::Unavailable(format!("the store's address cannot be used: {what}"))
}

fn host_port(node: &str, own_port: u16) -> Result<String, StoreError> {
    let has_port = match node.rsplit_once(':') {
        Some(("", _)) => return Err(wrong("it names no host")),
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            port.parse::<u16>().map_err(|_| wrong("a port is not a number"))?;
            true
        }
        _ => false,
    };
    match (node.is_empty(), has_port) {
        (true, _) => Err(wrong("it names no host")),
        (false, true) => Ok(node.to_owned()),
        (false, false) => Ok(format!("{node}:{own_port}")),
    }
}

fn database(part: Option<&str>) -> Result<i64, StoreError> {
    match part {
        None | Some("") => Ok(0),
        Some(number) => number.parse().map_err(|_| wrong("its database is not a number")),
    }
}

/// Undoes `%xx`, so that a password may hold any character.
fn unescaped(text: &str) -> Result<String, StoreError> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, plain) = part.split_at_checked(2).ok_or_else(|| wrong("a % escapes nothing"))?;
        let [byte] = crate::pure::ids::unhex::<1>(digits).ok_or_else(|| wrong("a % escapes nothing"))?;
        bytes.push(byte);
        bytes.extend_from_slice(plain.as_bytes());
    }
    String::from_utf8(bytes).map_err(|_| wrong("its login is not UTF-8"))
}

/// Commands that may wait to be written to one connection.
const PIPELINE_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::redis_server::RedisServer;
    use crate::ledger::tests::rig::block_on;

    fn parse(text: &str) -> Result<Address, StoreError> {
        Address::parse(text, None, Duration::from_secs(1))
    }

    #[test]
    fn an_address_names_a_host_and_its_port_is_a_number() {
        assert_eq!(parse("redis://[::1]").unwrap().nodes, ["[::1]:6379"]);
        assert_eq!(parse("redis://[::1]:7000").unwrap().nodes, ["[::1]:7000"]);
        for (text, told) in [
            ("redis://", "it names no host"),
            ("redis://:7000", "it names no host"),
            ("redis+cluster://a:1,:2", "it names no host"),
            ("redis://a:b", "a port is not a number"),
            ("redis://a:65536", "a port is not a number"),
        ] {
            let error = parse(text).err().map(|error| error.to_string());
            assert!(
                error.as_ref().is_some_and(|error| error.contains(told)),
                "{text}: {error:?}"
            );
        }
    }

    #[test]
    fn addresses_of_every_form() {
        assert_eq!(parse("redis://localhost").unwrap().nodes, ["localhost:6379"]);
        assert_eq!(parse("rediss://u:p%40x@[::1]:7000/3").unwrap().login.unwrap().1, "p@x");
        assert_eq!(parse("redis+cluster://a:1,b:2").unwrap().nodes, ["a:1", "b:2"]);
        let sentinel = parse("redis+sentinel://a,b:2/mymaster/1").unwrap();
        assert_eq!(sentinel.nodes, ["a:26379", "b:2"]);
        assert!(matches!(sentinel.form, Form::Sentinel { ref master, db: 1 } if master == "mymaster"));
        for bad in [
            "localhost",
            "http://a",
            "redis://",
            "redis://a,b",
            "redis://a:x",
            "redis+sentinel://a",
            "redis://a/x",
            "redis://a/1/2",
            "redis+disk://a",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        let address = parse("redis://user:hunter2@localhost").unwrap();
        assert!(!format!("{address:?}").contains("hunter2"));
    }

    #[test]
    fn a_cluster_is_told_from_one_redis() {
        assert!(parse("redis+cluster://a:1,b:2").unwrap().is_cluster());
        assert!(!parse("redis://a:1").unwrap().is_cluster());
        assert!(!parse("redis+sentinel://a/mymaster").unwrap().is_cluster());
    }

    #[test]
    fn an_authority_is_nothing_to_a_redis_without_tls() {
        let authority = Some(b"an authority".to_vec());
        let address = Address::parse("redis://a:1", authority, Duration::from_secs(1)).unwrap();
        assert!(address.node("a:1", 0).is_ok());
    }

    #[test]
    fn a_connection_shows_that_it_is_one() {
        let server = RedisServer::start();
        let address = parse(&server.url()).unwrap();
        let connection = block_on(address.connect()).unwrap();
        assert_eq!(format!("{connection:?}"), "Connection");
    }
}
