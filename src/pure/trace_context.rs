//! W3C Trace Context: the two headers by which a request says which trace it belongs to.
//!
//! After the recommendation of 23 November 2021 (<https://www.w3.org/TR/trace-context-1/>): what is malformed is as if it were not there.
//! The gateway reads the headers of its clients here, and writes those for its upstreams.

use std::fmt;

/// A trace's id: 16 bytes, not all of them 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// A span's id within its trace: 8 bytes, not all of them 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

/// What `traceparent` says: the trace, the span that asks, and whether it is recorded there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The span that asks.
    pub span: SpanId,
    /// Whether it is recorded. Of the header's flags the only one that the recommendation names; the others are not passed on.
    pub sampled: bool,
}

impl TraceId {
    /// An id; nothing for zeros.
    pub fn new(bytes: [u8; 16]) -> Option<TraceId> {
        (bytes != [0; 16]).then_some(TraceId(bytes))
    }

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl SpanId {
    /// The id of the span of this number in the request of this id. Two of a request never have the same; those of two requests of one trace
    /// have it as rarely as random ones.
    pub fn of_request(request: [u8; 16], number: u32) -> SpanId {
        let [a, b, c, d, e, f, g, h, rest @ ..] = request;
        let (high, low) = (u64::from_be_bytes([a, b, c, d, e, f, g, h]), u64::from_be_bytes(rest));
        // Splitmix64: a sequence without repetition, from a start that the whole of the request's id decides.
        let start = mixed(high).wrapping_add(low);
        let step = u64::from(number).wrapping_add(1).wrapping_mul(GOLDEN_RATIO);
        match mixed(start.wrapping_add(step)) {
            0 => SpanId([0xff; 8]),
            id => SpanId(id.to_be_bytes()),
        }
    }

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0
    }
}

impl TraceContext {
    /// Reads a `traceparent`. None for one that is malformed, has an id of zeros, or is of the version that is forbidden. Of a later version
    /// the part that this one knows is read, as the recommendation asks (section 3.2.4).
    pub fn parse(text: &[u8]) -> Option<TraceContext> {
        let (known, rest) = text.split_at_checked(TEXT_BYTES)?;
        let [version, trace, span, flags] = fields(known)?;
        let [version] = bytes_of::<1>(version)?;
        let fits = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.first().is_none_or(|next| *next == b'-'),
        };
        let [flags] = bytes_of::<1>(flags)?;
        let (trace, span) = (bytes_of::<16>(trace)?, bytes_of::<8>(span)?);
        if !fits || span == [0; 8] {
            return None;
        }
        Some(TraceContext {
            trace: TraceId::new(trace)?,
            span: SpanId(span),
            sampled: flags & SAMPLED != 0,
        })
    }
}

impl fmt::Display for TraceContext {
    /// `traceparent`, in version 00.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TraceContext { trace, span, sampled } = self;
        write!(f, "00-{trace}-{span}-{:02x}", u8::from(*sampled))
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceId({self})")
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpanId({self})")
    }
}

/// Whether the values of a request's `tracestate` headers, in their order, are one list that can be passed on: well-formed (section 3.3.1),
/// of at most 32 members, and no longer than [`STATE_BYTES_MAX`].
pub fn is_state<'a>(headers: impl IntoIterator<Item = &'a [u8]>) -> bool {
    let (mut members, mut bytes) = (0usize, 0usize);
    for header in headers {
        bytes = bytes.saturating_add(header.len()).saturating_add(1);
        for member in header.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if member.is_empty() {
                continue;
            }
            members = members.saturating_add(1);
            if !is_member(member) {
                return false;
            }
        }
    }
    (1..=MEMBERS_MAX).contains(&members) && bytes <= STATE_BYTES_MAX
}

/// The longest `tracestate` that is passed on, in bytes. The recommendation asks for 512.
pub const STATE_BYTES_MAX: usize = 2048;

/// `key=value`.
fn is_member(member: &[u8]) -> bool {
    let Some(at) = member.iter().position(|byte| *byte == b'=') else {
        return false;
    };
    let (key, value) = (member.get(..at), member.get(at.saturating_add(1)..));
    is_key(key.unwrap_or_default()) && is_value(value.unwrap_or_default())
}

/// `vendor`, or `tenant@vendor`.
fn is_key(key: &[u8]) -> bool {
    let is_part = |part: &[u8], bytes_max: usize, digit_first: bool| {
        let first = part
            .first()
            .is_some_and(|byte| byte.is_ascii_lowercase() || (digit_first && byte.is_ascii_digit()));
        let rest = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/".contains(byte);
        first && part.len() <= bytes_max && part.iter().all(rest)
    };
    match key.iter().position(|byte| *byte == b'@') {
        None => is_part(key, 256, false),
        Some(at) => {
            let (tenant, vendor) = (key.get(..at), key.get(at.saturating_add(1)..));
            is_part(tenant.unwrap_or_default(), 241, true) && is_part(vendor.unwrap_or_default(), 14, false)
        }
    }
}

/// 1 to 256 printable characters but `,` and `=`, the last no space.
fn is_value(value: &[u8]) -> bool {
    let is_character = |byte: &u8| matches!(byte, 0x20..=0x7e) && !b",=".contains(byte);
    (1..=256).contains(&value.len()) && value.iter().all(is_character) && value.last() != Some(&b' ')
}

/// The four fields of a `traceparent` of [`TEXT_BYTES`].
fn fields(text: &[u8]) -> Option<[&[u8]; 4]> {
    let dashes = [2, 35, 52].iter().all(|at| text.get(*at) == Some(&b'-'));
    let fields = [
        text.get(..2)?,
        text.get(3..35)?,
        text.get(36..52)?,
        text.get(53..TEXT_BYTES)?,
    ];
    dashes.then_some(fields)
}

/// Bytes of lower-case hexadecimal digits.
fn bytes_of<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte.wrapping_sub(b'0')),
        b'a'..=b'f' => Some(byte.wrapping_sub(b'a').wrapping_add(10)),
        _ => None,
    };
    let mut bytes = [0; N];
    let mut pairs = digits.chunks_exact(2);
    for byte in &mut bytes {
        let [high, low] = pairs.next()? else { return None };
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// 2^64 divided by the golden ratio, odd: the step of Splitmix64.
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
/// Length of a `traceparent` of version 00.
const TEXT_BYTES: usize = 55;
const SAMPLED: u8 = 1;
/// Section 3.3.1.1: at most so many members.
const MEMBERS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn a_traceparent_reads_as_it_is_written() {
        for (flags, sampled) in [("00", false), ("01", true)] {
            let text = format!("00-{TRACE}-{SPAN}-{flags}");
            let context = TraceContext::parse(text.as_bytes()).unwrap();
            assert_eq!(context.sampled, sampled);
            assert_eq!(context.to_string(), text);
            assert_eq!(crate::pure::ids::hex(&context.trace.to_bytes()), TRACE);
            assert_eq!(crate::pure::ids::hex(&context.span.to_bytes()), SPAN);
            assert_eq!(
                (context.trace.to_string(), context.span.to_string()),
                (TRACE.into(), SPAN.into())
            );
        }
    }

    #[test]
    fn flags_that_are_not_known_are_dropped_and_later_versions_are_read_as_far_as_this_one_goes() {
        for (text, sampled) in [
            (format!("00-{TRACE}-{SPAN}-ff"), true),
            (format!("00-{TRACE}-{SPAN}-02"), false),
            (format!("cc-{TRACE}-{SPAN}-01"), true),
            (format!("cc-{TRACE}-{SPAN}-01-what-the-future-brings"), true),
            (format!("01-{TRACE}-{SPAN}-08-"), false),
        ] {
            let context = TraceContext::parse(text.as_bytes()).unwrap();
            assert_eq!(
                context.to_string(),
                format!("00-{TRACE}-{SPAN}-0{}", u8::from(sampled)),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_malformed_is_none() {
        let good = format!("00-{TRACE}-{SPAN}-01");
        for text in [
            String::new(),
            "00".to_owned(),
            format!("{good}-"),
            format!("{good}0"),
            format!("{good} "),
            format!(" {good}"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("cc-{TRACE}-{SPAN}-01x"),
            format!("0-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{SPAN}-0A"),
            format!("0x-{TRACE}-{SPAN}-01"),
            format!("+0-{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-+1"),
            format!("00-{TRACE}_{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{}é-{SPAN}-01", &TRACE[2..]),
        ] {
            assert_eq!(TraceContext::parse(text.as_bytes()), None, "{text:?}");
        }
        // One byte of a good one changed: what still reads is of the same shape.
        for at in 0..good.len() {
            for byte in 0..=255u8 {
                let mut bytes = good.clone().into_bytes();
                bytes[at] = byte;
                let shape = bytes.iter().enumerate().all(|(at, byte)| match at {
                    2 | 35 | 52 => *byte == b'-',
                    _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(byte),
                });
                let read = TraceContext::parse(&bytes).is_some();
                assert_eq!(read, shape && !bytes.starts_with(b"ff"), "{at} {byte}");
            }
        }
    }

    #[test]
    fn states() {
        let check = |headers: &[&str], good: bool| {
            let read = is_state(headers.iter().map(|header| header.as_bytes()));
            assert_eq!(read, good, "{headers:?}");
        };
        check(&["rojo=00f067aa0ba902b7"], true);
        check(&["rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"], true);
        check(&["rojo=1 , congo=a b", "", "fw529a3039@dt=FfAAAA;1;2"], true);
        check(&["a=1,,b=2,"], true);
        check(&["0tenant@x=1"], true);
        for bad in [
            "", ",", "a", "=1", "a=", "A=1", "0a=1", "a=1=2", "a=é", "a@=1", "@a=1", "a@b@c=1", "a=\u{7f}", "a b=1",
        ] {
            check(&[bad], false);
            check(&["fine=1", bad], bad.trim_matches(',').is_empty());
        }
        check(&[&format!("{}=1", "a".repeat(256))], true);
        check(&[&format!("{}=1", "a".repeat(257))], false);
        check(&[&format!("a={}", "1".repeat(256))], true);
        check(&[&format!("a={}", "1".repeat(257))], false);
        let members = |count: usize| (0..count).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join(",");
        check(&[&members(32)], true);
        check(&[&members(33)], false);
        let long: Vec<String> = (0..9).map(|n| format!("k{n}={}", "1".repeat(250))).collect();
        check(&[&long[..8].join(",")], true);
        check(&[&long.join(",")], false);
        check(&[], false);
    }

    #[test]
    fn the_spans_of_requests_differ() {
        let mut seen = std::collections::HashSet::new();
        for request in 0..100u128 {
            let id = (0x019a_0000_0001_7000_8000_0000_0000_0000 + request).to_be_bytes();
            for number in 0..20 {
                assert!(seen.insert(SpanId::of_request(id, number)), "{request} {number}");
            }
        }
    }

    #[test]
    fn ids_are_mixed_as_splitmix64_mixes() {
        // The first outputs of its reference implementation from seed 0.
        assert_eq!(mixed(GOLDEN_RATIO), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mixed(GOLDEN_RATIO.wrapping_mul(2)), 0x6e78_9e6a_a1b9_65f4);
    }
}
