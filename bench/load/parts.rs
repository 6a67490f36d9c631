//! The scenarios of a steady load: what is sent, how, and for how long.

use std::time::Duration;

use crate::{
    cli::{Options, Scenario},
    client::Shot,
    figures::Unit,
    fleet::Subject,
    lists,
    request::{self, KILOBYTE, Shape},
    script::{Form, Script, Writes},
};

/// One kind of load of a scenario.
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) unit: Unit,
    /// Requests a second; None: each connection sends its next request when it has its answer.
    pub(crate) rate: Option<u32>,
    pub(crate) connections: usize,
    /// Rounds are so many times as long as they are said to be: where less happens in a second, it takes longer to know.
    pub(crate) longer: u32,
    /// The connections begin one after the other over this time, by which the warm-up is longer.
    pub(crate) spread: Duration,
    pub(crate) shots: Shots,
    /// The status of the answers that are measured, where they are refusals: others may come before a limit begins, and are few.
    pub(crate) status: Option<u16>,
    /// What else is sent meanwhile; it is not measured.
    pub(crate) beside: Option<Beside>,
}

/// What is sent beside what is measured.
pub(crate) struct Beside {
    /// Requests a second.
    pub(crate) rate: u32,
    pub(crate) shots: Shots,
    /// Whether it goes where operators work.
    pub(crate) to_operators: bool,
}

/// What is sent to a subject; None where the part does not apply to it.
pub(crate) type Shots = Box<dyn Fn(&Subject) -> Option<Vec<Shot>>>;

/// The parts of a scenario; none of one that is no steady load.
pub(crate) fn of(scenario: Scenario, options: &Options) -> Vec<Part> {
    let (connections, half) = (options.connections, options.connections.div_ceil(2));
    let whole = Shape::Whole { bytes: KILOBYTE };
    match scenario {
        Scenario::Whole => {
            let rate = at_rate(saturated(whole, connections), options.rate);
            vec![saturated(whole, connections), rate]
        }
        Scenario::Big => vec![saturated(Shape::Whole { bytes: 100 * KILOBYTE }, half)],
        Scenario::Embeddings => vec![saturated(Shape::Embeddings, connections)],
        Scenario::StreamPaced => {
            vec![Part {
                name: "20 ms".to_owned(),
                rate: Some(PACED_RATE),
                longer: PACED_LONGER,
                // As many are open when the measure begins as at any later time.
                spread: if options.quick { Duration::ZERO } else { PACED_LENGTH },
                ..streams(PACED, PACED_STREAMS_MAX)
            }]
        }
        Scenario::StreamBurst => bursts(BURST, half, options),
        Scenario::StreamEach => bursts(BURST_EACH, half, options),
        Scenario::StreamForms => [
            (Form::Tools, "tool calls"),
            (Form::Logprobs, "logprobs"),
            (Form::Choices, "two choices"),
        ]
        .into_iter()
        .map(|(form, name)| Part {
            name: name.to_owned(),
            ..streams(Script { form, ..BURST_EACH }, half)
        })
        .collect(),
        Scenario::Mixed => vec![Part {
            shots: Box::new(|subject| Some(request::mixed(subject))),
            ..saturated(Shape::Embeddings, connections)
        }],
        Scenario::Strangers => {
            let part = |name: &str, beside: Option<Beside>| Part {
                shots: Box::new(gateways_only(whole)),
                beside,
                name: name.to_owned(),
                ..at_rate(saturated(whole, connections), options.rate)
            };
            let wrong = Beside {
                rate: WRONG_KEYS_A_SECOND,
                shots: Box::new(|subject| Some(request::wrong_keys(subject))),
                to_operators: false,
            };
            vec![
                part("without wrong keys", None),
                part("100,000 wrong keys a minute", Some(wrong)),
                limited_by_address(connections),
            ]
        }
        Scenario::Denied => DENIED
            .iter()
            .map(|(name, statuses)| denied(name, statuses, connections))
            .collect(),
        Scenario::Webhooks => {
            let posts = |subject: &Subject| Some(subject.operator.as_ref()?.credits(&subject.accounts, POSTS));
            let name = format!("credit posted {ACTS_A_SECOND} times a second");
            at_operators(whole, options, name, Box::new(posts))
        }
        Scenario::Operators => {
            let name = format!("{ACTS_A_SECOND} lists a second");
            at_operators(whole, options, name, Box::new(lists::shots))
        }
        Scenario::All | Scenario::Open | Scenario::Soak | Scenario::Syscalls | Scenario::Instructions => Vec::new(),
    }
}

fn saturated(shape: Shape, connections: usize) -> Part {
    Part {
        name: "saturated".to_owned(),
        unit: Unit::Request,
        rate: None,
        connections,
        longer: 1,
        spread: Duration::ZERO,
        shots: Box::new(move |subject| Some(shape.shots(subject))),
        status: None,
        beside: None,
    }
}

fn at_rate(part: Part, rate: u32) -> Part {
    Part {
        name: format!("{rate} a second"),
        rate: Some(rate),
        longer: RATE_LONGER,
        ..part
    }
}

/// Whole answers at a rate, first alone and then beside what operators do.
fn at_operators(whole: Shape, options: &Options, name: String, shots: Shots) -> Vec<Part> {
    let beside = Beside {
        rate: ACTS_A_SECOND,
        shots,
        to_operators: true,
    };
    let calls = || at_rate(saturated(whole, options.connections), options.rate);
    vec![
        calls(),
        Part {
            name,
            beside: Some(beside),
            ..calls()
        },
    ]
}

fn streams(script: Script, connections: usize) -> Part {
    Part {
        unit: Unit::Event,
        ..saturated(Shape::Stream(script), connections)
    }
}

/// Saturated, and at a rate at which a stream hardly waits for another one: only there is a delay not another word for throughput.
fn bursts(script: Script, connections: usize, options: &Options) -> Vec<Part> {
    let rate = (options.rate / STREAM_RATE_PART).max(1);
    vec![
        streams(script, connections),
        at_rate(streams(script, connections), rate),
    ]
}

/// Nothing for a subject that knows no keys.
fn gateways_only(shape: Shape) -> impl Fn(&Subject) -> Option<Vec<Shot>> {
    move |subject| (!subject.refused.is_empty()).then(|| shape.shots(subject))
}

/// A flood with a key that is refused.
fn denied(name: &'static str, statuses: &'static [u16], connections: usize) -> Part {
    let shots = move |subject: &Subject| {
        let refused = subject.refused.iter().find(|refused| refused.name == name)?;
        let whole = Shape::Whole { bytes: KILOBYTE };
        Some(vec![whole.denied(subject, &refused.key, statuses)])
    };
    Part {
        name: name.to_owned(),
        shots: Box::new(shots),
        status: statuses.first().copied(),
        ..saturated(Shape::Embeddings, connections)
    }
}

/// A flood of wrong keys from an address that has sent too many: the first ones of each minute are refused as such.
fn limited_by_address(connections: usize) -> Part {
    Part {
        name: "wrong keys alone, limited by address".to_owned(),
        shots: Box::new(|subject: &Subject| (!subject.refused.is_empty()).then(|| request::wrong_keys(subject))),
        status: Some(429),
        ..saturated(Shape::Embeddings, connections)
    }
}

/// Keys that are refused, by the names that the gateway's set-up gives them, and how: first what is measured, then what a limit lets pass
/// before it begins. The gateway forgives its address all wrong keys, so that what is measured is what each of them gets by itself.
const DENIED: [(&str, &[u16]); 4] = [
    ("broke", &[402]),
    ("limited", &[429, 200]),
    ("revoked", &[401]),
    ("garbage", &[401]),
];
/// Streams a second: of two seconds each, so 50 are open on average.
const PACED_RATE: u32 = 25;
/// Seven deviations above the average.
const PACED_STREAMS_MAX: usize = 100;
/// A stream that comes at the speed at which it is read.
pub(crate) const PACED: Script = Script {
    pace_ms: 20,
    ..Script::stream(100)
};
/// A stream without pauses, in one write.
pub(crate) const BURST: Script = Script::stream(100);
/// The same with a write for each event.
pub(crate) const BURST_EACH: Script = Script {
    writes: Writes::Each,
    ..BURST
};
/// How long a paced stream takes, and a step of the pace more.
pub(crate) const PACED_LENGTH: Duration = Duration::from_millis((PACED.events as u64 + 1) * PACED.pace_ms as u64);
const PACED_LONGER: u32 = 3;
const RATE_LONGER: u32 = 2;
/// So many times fewer streams than whole answers: they have 100 events each.
const STREAM_RATE_PART: u32 = 20;
/// What operators do, in a second.
const ACTS_A_SECOND: u32 = 20;
/// More than are sent in a round.
const POSTS: usize = 4_000;
/// 100,000 a minute.
const WRONG_KEYS_A_SECOND: u32 = 1667;
