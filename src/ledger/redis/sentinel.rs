//! Which master the Sentinels name.

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{Client, ConnectionAddr, ErrorKind, RedisError, RedisResult, TlsMode};

use super::url::Address;

impl Address {
    /// The client of the master that the Sentinels name now. All are asked at once, and the first in their order that names one is believed;
    /// those that have said nothing within [`SENTINEL_MAX`] are passed over as soon as another has.
    pub(super) async fn master(&self, master: &str, db: i64) -> RedisResult<Client> {
        let asked = self.nodes.iter().enumerate().map(|(place, sentinel)| {
            let answer: BoxFuture<'_, (usize, RedisResult<Client>)> =
                Box::pin(async move { (place, self.master_of(sentinel, master, db).await) });
            answer
        });
        let mut asked: FuturesUnordered<_> = asked.collect();
        let mut answers = Answers::of(self.nodes.len());
        let mut patience = pin!(tokio::time::sleep(SENTINEL_MAX));
        while answers.first(patience.is_elapsed()).is_none() {
            tokio::select! {
                answer = asked.next() => match answer {
                    Some((place, answer)) => answers.take(place, answer),
                    None => break,
                },
                () = &mut patience, if !patience.is_elapsed() => {}
            }
        }
        answers.best()
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

/// What the Sentinels have said, in their order.
struct Answers(Vec<Option<RedisResult<Client>>>);

impl Answers {
    fn of(sentinels: usize) -> Answers {
        Answers((0..sentinels).map(|_| None).collect())
    }

    fn take(&mut self, place: usize, answer: RedisResult<Client>) {
        if let Some(place) = self.0.get_mut(place) {
            *place = Some(answer);
        }
    }

    /// The place of the first that names a master; none while one before it may still say something, unless that `is_late`.
    fn first(&self, is_late: bool) -> Option<usize> {
        let mut said = self
            .0
            .iter()
            .enumerate()
            .filter(|(_, answer)| !is_late || answer.is_some());
        let (place, first) = said.find(|(_, answer)| !matches!(answer, Some(Err(_))))?;
        first.is_some().then_some(place)
    }

    /// The first that names a master, or why none does: what a master itself said, if one was named.
    fn best(self) -> RedisResult<Client> {
        let mut why = None;
        for answer in self.0.into_iter().flatten() {
            let error = match answer {
                Ok(client) => return Ok(client),
                Err(error) => error,
            };
            let by_master = !error.is_io_error() && error.kind() != ErrorKind::MasterNameNotFoundBySentinel;
            if why.is_none() || by_master {
                why = Some(error);
            }
        }
        Err(why.unwrap_or_else(|| RedisError::from((ErrorKind::Io, "no Sentinel answers"))))
    }
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

/// How long a Sentinel may keep others from being believed.
const SENTINEL_MAX: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

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
    fn the_first_sentinel_that_names_a_master_is_believed() {
        let client = |number: u16| Client::open(format!("redis://127.0.0.1:{number}")).unwrap();
        let down = || RedisError::from(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
        let unknown = || RedisError::from((ErrorKind::MasterNameNotFoundBySentinel, "none of that name"));
        let wrong = || RedisError::from((ErrorKind::AuthenticationFailed, "WRONGPASS"));
        let mut answers = Answers::of(3);
        assert_eq!((answers.first(false), answers.first(true)), (None, None));
        answers.take(1, Ok(client(2)));
        assert_eq!(
            (answers.first(false), answers.first(true)),
            (None, Some(1)),
            "the first is silent"
        );
        answers.take(0, Err(down()));
        assert_eq!(answers.first(false), Some(1), "the first is down");
        answers.take(2, Ok(client(3)));
        assert_eq!(answers.first(true), Some(1), "in their order");
        answers.take(0, Ok(client(1)));
        assert_eq!(answers.first(true), Some(0));
        assert!(
            answers
                .best()
                .unwrap()
                .get_connection_info()
                .addr()
                .to_string()
                .ends_with(":1")
        );

        let mut answers = Answers::of(3);
        for (place, error) in [wrong(), unknown(), down()].into_iter().enumerate() {
            answers.take(place, Err(error));
            assert_eq!(answers.first(true), None);
        }
        assert_eq!(answers.best().unwrap_err().kind(), ErrorKind::AuthenticationFailed);
        let mut answers = Answers::of(2);
        answers.take(1, Err(unknown()));
        assert_eq!(
            answers.best().unwrap_err().kind(),
            ErrorKind::MasterNameNotFoundBySentinel
        );
        assert!(Answers::of(2).best().unwrap_err().is_io_error());
    }
}
