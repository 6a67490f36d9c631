//! A measure with another load beside it, which is not measured. It begins before the measure and ends behind its last mark: threads that
//! ended before would take their counts with them, and what they did would be taken for the doing of others.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
};

use crate::{
    common::Result,
    drive::{self, Outcome, Plan},
};

/// Runs `plan` as [`drive::run`] does, and `beside` for as long, whatever length it has, which must be longer.
pub(crate) fn run<M>(
    plan: Plan,
    beside: Option<Plan>,
    mark: impl Fn() -> M,
    mut watch: impl FnMut(),
) -> Result<Outcome<M>> {
    let is_over = Arc::new(AtomicBool::new(false));
    let beside = beside.map(|plan| start(plan, Arc::clone(&is_over))).transpose()?;
    let outcome = drive::run(plan, mark, || {
        watch();
        ControlFlow::Continue(())
    });
    is_over.store(true, Relaxed);
    if let Some(beside) = beside {
        let beside = beside.join().map_err(|_| "the load beside panicked")??;
        if let Some((kind, n)) = beside.tally.errors.first_key_value() {
            return Err(format!("{n} wrong answers to what was sent beside: {kind}").into());
        }
    }
    outcome
}

fn start(plan: Plan, is_over: Arc<AtomicBool>) -> Result<JoinHandle<Result<Outcome<()>>>> {
    let until_over = move || match is_over.load(Relaxed) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    // Its own threads have the same name.
    let thread = thread::Builder::new().name(NAME.to_owned());
    Ok(thread.spawn(move || drive::run(plan, || (), until_over))?)
}

/// Of its threads.
pub(crate) const NAME: &str = "beside";
