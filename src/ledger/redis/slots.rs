//! A cluster's slots: which one a key has, whose it is by `CLUSTER SLOTS`, and where a redirection points to.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use redis::{Arg, Cmd, ErrorKind, RedisError, ServerErrorKind, Value};

use super::reply;
use crate::ledger::StoreError;

/// Where a server says that a command has to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Elsewhere {
    /// The slot belongs to this node now.
    Moved(u16, String),
    /// This once to this node, after `ASKING`: the slot is moving.
    Ask(String),
    /// Here, in a moment: some of its keys have moved and some have not.
    Later,
}

/// Whose the slots are, as one server sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    /// The first and last slot of a range, and its master.
    pub(super) ranges: BTreeSet<(u16, u16, String)>,
    /// All servers, masters and replicas.
    pub(super) nodes: BTreeSet<String>,
}

impl Elsewhere {
    /// What an answer of the server `asked` says, when it is a redirection.
    pub(super) fn of(error: &RedisError, asked: &str) -> Option<Elsewhere> {
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::TryAgain) => Some(Elsewhere::Later),
            ErrorKind::Server(kind @ (ServerErrorKind::Ask | ServerErrorKind::Moved)) => {
                let (node, slot) = error.redirect_node()?;
                let (host, port) = node.rsplit_once(':').filter(|(host, _)| *host != UNKNOWN)?;
                let node = node_name(host, port.parse().ok()?, asked);
                Some(match kind {
                    ServerErrorKind::Ask => Elsewhere::Ask(node),
                    _ => Elsewhere::Moved(slot, node),
                })
            }
            _ => None,
        }
    }
}

impl Layout {
    /// Reads the answer of the server `asked` to `CLUSTER SLOTS`.
    ///
    /// # Errors
    /// When it has another form.
    pub(super) fn read(answer: &Value, asked: &str) -> Result<Layout, StoreError> {
        let mut layout = Layout::default();
        for range in reply::list(answer)? {
            let [first, last, nodes @ ..] = reply::list(range)? else {
                return Err(reply::corrupt("a range of slots"));
            };
            let (first, last) = (slot(first)?, slot(last)?);
            for (at, node) in nodes.iter().enumerate() {
                let [host, port, ..] = reply::list(node)? else {
                    return Err(reply::corrupt("a server of a cluster"));
                };
                let host = reply::optional_text(host)?.unwrap_or_default();
                let port = u16::try_from(reply::integer(port)?).map_err(|_| reply::corrupt("a port"))?;
                if host == UNKNOWN {
                    continue;
                }
                let node = node_name(host, port, asked);
                if at == 0 {
                    layout.ranges.insert((first, last, node.clone()));
                }
                layout.nodes.insert(node);
            }
        }
        Ok(layout)
    }
}

/// The slot of a key, by its hash tag.
pub(super) fn slot_of(key: &[u8]) -> u16 {
    let place_of = |bytes: &'_ [u8], mark: u8| bytes.iter().position(|byte| *byte == mark);
    let tag = place_of(key, b'{')
        .and_then(|open| key.get(open.saturating_add(1)..))
        .and_then(|rest| rest.get(..place_of(rest, b'}')?))
        .filter(|tag| !tag.is_empty());
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// The smallest number that as a hash tag (`{…}`) gives a key this slot, which is below [`SLOTS`].
pub(super) fn tag_of(slot: u16) -> u32 {
    static TAGS: OnceLock<Vec<u32>> = OnceLock::new();
    let tags = TAGS.get_or_init(|| {
        let mut tags = vec![None; usize::from(SLOTS)];
        let (mut missing, mut tag) = (tags.len(), 0u32);
        // Each slot has one below 109,758: a test looks at all.
        while missing > 0 {
            let slot = usize::from(slot_of(tag.to_string().as_bytes()));
            if let Some(place) = tags.get_mut(slot).filter(|place| place.is_none()) {
                *place = Some(tag);
                missing -= 1;
            }
            tag += 1;
        }
        tags.into_iter().flatten().collect()
    });
    tags.get(usize::from(slot)).copied().unwrap_or_default()
}

/// The slot of a command's first key; none when it has no key.
pub(super) fn slot_of_command(command: &Cmd) -> Option<u16> {
    let argument = |at: usize| match command.args_iter().nth(at) {
        Some(Arg::Simple(bytes)) => Some(bytes),
        _ => None,
    };
    match argument(0)? {
        b"EVAL" | b"EVALSHA" => argument(3).map(slot_of),
        _ => argument(1).map(slot_of),
    }
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        let [high, _] = crc.to_be_bytes();
        let entry = CRC.get(usize::from(high ^ byte)).copied().unwrap_or_default();
        (crc << 8) ^ entry
    })
}

fn slot(value: &Value) -> Result<u16, StoreError> {
    let slot = u16::try_from(reply::integer(value)?).ok().filter(|slot| *slot < SLOTS);
    slot.ok_or_else(|| reply::corrupt("a slot"))
}

/// A server's name as the configuration writes it. One without a host has that of the server that named it.
fn node_name(host: &str, port: u16, asked: &str) -> String {
    let own_host = asked.rsplit_once(':').map_or(asked, |(host, _)| host);
    let host = if host.is_empty() { own_host } else { host };
    if host.contains(':') && !host.starts_with('[') {
        return format!("[{host}]:{port}");
    }
    format!("{host}:{port}")
}

/// The host of a server of which the others do not know yet where it is.
const UNKNOWN: &str = "?";

/// The slots of a cluster.
pub(super) const SLOTS: u16 = 16_384;

/// CRC-16/XMODEM by bytes.
static CRC: [u16; 256] = crc_table();

#[expect(
    clippy::indexing_slicing,
    reason = "the index is below 256, and the compiler runs it"
)]
const fn crc_table() -> [u16; 256] {
    let mut table = [0u16; 256];
    let mut byte: u16 = 0;
    while byte < 256 {
        let mut crc = byte << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot_of(b"123456789"), 0x31c3);
        assert_eq!(slot_of(b"tg1:{acme}:keys"), slot_of(b"acme"));
        assert_eq!(slot_of(b"a{}b"), crc16(b"a{}b") % SLOTS);
        assert_eq!(slot_of(b"a{b"), crc16(b"a{b") % SLOTS);
        assert_eq!(slot_of(b"a{b}{c}"), slot_of(b"b"));
    }

    #[test]
    fn each_slot_has_a_tag() {
        for slot in 0..SLOTS {
            let key = format!("tg1:confirm:{{{}}}", tag_of(slot));
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
        // No smaller one has this slot.
        assert_eq!(tag_of(slot_of(b"0")), 0);
        assert_eq!((0..SLOTS).map(tag_of).max(), Some(109_757));
    }

    #[test]
    fn a_command_has_the_slot_of_its_first_key() {
        let mut get = redis::cmd("GET");
        get.arg("{a}1");
        assert_eq!(slot_of_command(&get), Some(slot_of(b"a")));
        let mut script = redis::cmd("EVALSHA");
        script.arg("hash").arg(2).arg("{a}1").arg("{a}2").arg("{b}");
        assert_eq!(slot_of_command(&script), Some(slot_of(b"a")));
        assert_eq!(slot_of_command(&redis::cmd("TIME")), None);
    }

    #[test]
    fn a_layout_names_masters_and_all_servers() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host: Value, port| Value::Array(vec![host, Value::Int(port), text("id")]);
        let range =
            |first, last, nodes: Vec<Value>| Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat());
        let answer = Value::Array(vec![
            range(0, 8191, vec![node(text("::1"), 1), node(Value::Nil, 2)]),
            range(8192, 16_383, vec![node(text(""), 3), node(text("?"), 4)]),
        ]);
        let layout = Layout::read(&answer, "host:9").unwrap();
        let ranges = [(0, 8191, "[::1]:1".to_owned()), (8192, 16_383, "host:3".to_owned())];
        assert_eq!(layout.ranges, ranges.into());
        assert_eq!(layout.nodes, ["[::1]:1", "host:2", "host:3"].map(str::to_owned).into());
        assert!(Layout::read(&Value::Array(vec![range(0, 16_384, vec![])]), "h:1").is_err());
    }

    #[test]
    fn redirections_say_where_to() {
        let of = |text: &str| {
            let error = redis::parse_redis_value(text.as_bytes()).unwrap().extract_error();
            Elsewhere::of(&error.unwrap_err(), "own:1")
        };
        assert_eq!(of("-MOVED 5 a:2\r\n"), Some(Elsewhere::Moved(5, "a:2".to_owned())));
        assert_eq!(of("-MOVED 5 :2\r\n"), Some(Elsewhere::Moved(5, "own:2".to_owned())));
        assert_eq!(of("-ASK 5 ::1:2\r\n"), Some(Elsewhere::Ask("[::1]:2".to_owned())));
        assert_eq!(of("-MOVED 5 ?:2\r\n"), None);
        assert_eq!(of("-TRYAGAIN some\r\n"), Some(Elsewhere::Later));
        assert_eq!(of("-CLUSTERDOWN some\r\n"), None);
    }
}
