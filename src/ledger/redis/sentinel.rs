//! Which master the Sentinels name.

use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{Client, ConnectionAddr, ErrorKind, RedisError, RedisResult, TlsMode};

use super::url::Address;

impl Address {
    /// The client of the master that the Sentinels name now. They are asked in their order, each when the one before it has failed or has said
    /// nothing for [`SENTINEL_MAX`]; the first that names a master that leads is believed.
    pub(super) async fn master(&self, master: &str, db: i64) -> RedisResult<Client> {
        let (mut others, mut asked, mut why) = (self.nodes.iter(), FuturesUnordered::new(), None);
        loop {
            match others.next() {
                Some(sentinel) => {
                    let answer: BoxFuture<'_, RedisResult<Client>> = Box::pin(self.master_of(sentinel, master, db));
                    asked.push(answer);
                }
                None if asked.is_empty() => return Err(why.unwrap_or_else(no_sentinel)),
                None => {}
            }
            match tokio::time::timeout(SENTINEL_MAX, asked.next()).await {
                Ok(Some(Ok(client))) => return Ok(client),
                Ok(Some(Err(error))) => why = Some(weightier(why, error)),
                Ok(None) | Err(_) => {}
            }
        }
    }

    /// The client of the master that one Sentinel names. Nothing is kept of the asking: a connection to a Sentinel would belong to the
    /// runtime that asked first.
    async fn master_of(&self, sentinel: &str, master: &str, db: i64) -> RedisResult<Client> {
        let address = sentinel_address(sentinel, self.secure);
        let mut builder =
            SentinelClientBuilder::new(address, master, SentinelServerType::Master)?.set_client_to_redis_db(db);
        if let Some((user, password)) = &self.login {
            if !user.is_empty() {
                builder = builder.set_client_to_redis_username(user);
            }
            builder = builder.set_client_to_redis_password(password);
        }
        if self.secure {
            builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
            if let Some(certificates) = &self.tls {
                builder = builder
                    .set_client_to_redis_certificates(certificates.clone())
                    .set_client_to_sentinel_certificates(certificates.clone());
            }
        }
        builder.build()?.async_get_client().await
    }
}

/// Of two errors that to be told: what a master itself said, if one was named, else the first.
fn weightier(first: Option<RedisError>, then: RedisError) -> RedisError {
    let by_master =
        |error: &RedisError| !error.is_io_error() && error.kind() != ErrorKind::MasterNameNotFoundBySentinel;
    match first {
        Some(first) if by_master(&first) || !by_master(&then) => first,
        _ => then,
    }
}

fn no_sentinel() -> RedisError {
    RedisError::from((ErrorKind::Io, "no Sentinel answers"))
}

/// Where a Sentinel is; none when its port is no number, which [`host_port`] has seen to.
fn sentinel_address(node: &str, is_secure: bool) -> Option<ConnectionAddr> {
    let (host, port) = node.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = port.parse().ok()?;
    Some(match is_secure {
        false => ConnectionAddr::Tcp(host, port),
        true => ConnectionAddr::TcpTls {
            host,
            port,
            insecure: false,
            tls_params: None,
        },
    })
}

/// How long a Sentinel may keep others from being asked.
const SENTINEL_MAX: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::rig::block_on;

    #[test]
    fn a_node_of_ipv6_stands_in_brackets_and_is_reached_without() {
        for (node, host, port) in [("[::1]:26379", "::1", 26_379), ("a:1", "a", 1)] {
            let Some(ConnectionAddr::Tcp(found, at)) = sentinel_address(node, false) else {
                panic!("{node}");
            };
            assert_eq!((found.as_str(), at), (host, port));
        }
        assert!(matches!(
            sentinel_address("a:1", true),
            Some(ConnectionAddr::TcpTls { insecure: false, .. })
        ));
    }

    #[test]
    fn what_a_master_said_is_told_before_what_keeps_a_sentinel_from_naming_one() {
        let down = || RedisError::from(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
        let unknown = || RedisError::from((ErrorKind::MasterNameNotFoundBySentinel, "none of that name"));
        let wrong = || RedisError::from((ErrorKind::AuthenticationFailed, "WRONGPASS"));
        assert!(weightier(None, down()).is_io_error());
        assert!(weightier(Some(down()), unknown()).is_io_error(), "the first");
        for (first, then) in [
            (down(), wrong()),
            (wrong(), down()),
            (unknown(), wrong()),
            (wrong(), unknown()),
        ] {
            assert_eq!(weightier(Some(first), then).kind(), ErrorKind::AuthenticationFailed);
        }
    }

    #[test]
    fn a_sentinel_that_is_slow_is_waited_for_where_there_is_no_other() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis+sentinel://{}/mymaster", silent.local_addr().unwrap());
        let address = Address::parse(&url, None, Duration::from_secs(1)).unwrap();
        let asked = block_on(async { tokio::time::timeout(3 * SENTINEL_MAX, address.master("mymaster", 0)).await });
        let early = no_sentinel().to_string();
        assert!(!matches!(asked, Ok(Err(error)) if error.to_string() == early));
    }
}
