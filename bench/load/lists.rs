//! What operators list and search: how long it takes, one request after the other.

use crate::{
    client::{Arrived, Connection, Listener, Shot},
    common::{Result, say},
    fleet::Subject,
    measured::Listed,
    operator::{self, Operator},
    process::monotonic_ns,
    report::Report,
};

/// Asks each subject for each kind of list.
pub(crate) fn run(subjects: &[Subject], quick: bool, report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let times = if quick { TIMES_QUICK } else { TIMES };
    for subject in subjects {
        let Some(operator) = &subject.operator else { continue };
        for (what, path) in kinds(subject) {
            let shot = operator.shot("GET", &path, "");
            let mut ms = runtime.block_on(timed(operator, &shot, times))?;
            ms.sort_unstable_by(f64::total_cmp);
            let at = |share: f64| ms[((ms.len() - 1) as f64 * share) as usize];
            let listed = Listed {
                subject: subject.name.clone(),
                what: what.to_owned(),
                requests: times,
                p50_ms: at(0.5),
                p99_ms: at(0.99),
                max_ms: at(1.0),
            };
            say(&format!(
                "operators {what:<24} {:<36} p50 {:.1} ms, longest {:.1} ms",
                listed.subject, listed.p50_ms, listed.max_ms
            ));
            report.listed.push(listed);
        }
    }
    Ok(())
}

/// All kinds of lists, to be sent beside calls.
pub(crate) fn shots(subject: &Subject) -> Option<Vec<Shot>> {
    let operator = subject.operator.as_ref()?;
    let shot = |(_, path): (_, String)| operator.shot("GET", &path, "");
    Some(kinds(subject).into_iter().map(shot).collect())
}

/// What is asked for, and how.
fn kinds(subject: &Subject) -> [(&'static str, String); 7] {
    let one = subject.accounts.len() / 2;
    let one = operator::account(one);
    [
        ("first page", "/v1/accounts?limit=100".to_owned()),
        ("page in the middle", format!("/v1/accounts?limit=100&after={one}")),
        ("search, some found", "/v1/accounts?limit=100&search=777".to_owned()),
        ("search, one found", format!("/v1/accounts?limit=100&search={one}")),
        ("search, none found", "/v1/accounts?limit=100&search=nobody".to_owned()),
        ("one account", format!("/v1/accounts/{one}")),
        ("entries of credit", format!("/v1/accounts/{one}/credits")),
    ]
}

/// The times of a request, in milliseconds.
async fn timed(operator: &Operator, shot: &Shot, times: usize) -> Result<Vec<f64>> {
    let mut connection = Connection::open(operator.address).await?;
    let mut all = Vec::with_capacity(times);
    for _ in 0..times {
        let begun = monotonic_ns();
        connection.exchange(shot, &mut Nobody).await?;
        all.push((monotonic_ns() - begun) as f64 / 1e6);
    }
    Ok(all)
}

/// There are no events to hear of.
struct Nobody;

impl Listener for Nobody {
    fn events(&mut self, _: &Arrived<'_>) -> std::ops::ControlFlow<()> {
        std::ops::ControlFlow::Continue(())
    }
}

const TIMES: usize = 300;
const TIMES_QUICK: usize = 3;
