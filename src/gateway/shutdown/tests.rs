//! Ends, waits and late requests of [`Lifecycle`].

use std::sync::mpsc;

use super::*;

#[test]
fn nothing_under_way_is_the_end_and_what_comes_after_it_is_late() {
    let life = Lifecycle::new();
    life.begin_stop();
    assert!(life.wait_idle(Duration::ZERO));
    let late = life.enter();
    assert!(late.is_late());
    assert_eq!(life.in_flight(), 1);
    drop(late);
    assert!(life.wait_idle(Duration::ZERO), "the end is told again");
    assert!(life.enter().is_late());
}

#[test]
fn an_act_is_waited_for_and_is_no_request() {
    let life = Lifecycle::new();
    life.begin_stop();
    let (act, request) = (life.enter_act(), life.enter());
    assert_eq!(life.in_flight(), 1);
    drop(request);
    assert_eq!(life.in_flight(), 0);
    assert!(!life.wait_idle(Duration::from_millis(1)));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| life.wait_idle(Duration::from_secs(60)));
        drop(act);
        assert!(waits.join().unwrap());
    });
    assert!(life.enter_act().is_late());
    assert_eq!(life.in_flight(), 0);
}

#[test]
fn a_request_that_outlives_the_wait_is_not_the_end() {
    let life = Lifecycle::new();
    life.begin_stop();
    let request = life.enter();
    assert!(!life.wait_idle(Duration::from_millis(1)));
    assert!(!life.enter().is_late(), "requests are still taken");
    drop(request);
    assert!(life.wait_idle(Duration::ZERO));
}

#[test]
fn a_connection_that_stays_silent_is_waited_for_only_so_long() {
    let life = Lifecycle::new();
    life.begin_stop();
    let began = monotonic();
    let _silent = life.connect();
    assert!(life.wait_idle(Duration::from_secs(60)));
    assert!(began.elapsed() >= SILENT_MAX);
}

#[test]
fn a_silent_connection_is_not_waited_for_beyond_the_limit() {
    let life = Lifecycle::new();
    life.begin_stop();
    let _silent = life.connect();
    assert!(life.wait_idle(Duration::ZERO));
    assert!(life.enter().is_late());
}

#[test]
fn what_comes_after_a_cut_is_late_and_what_runs_is_waited_for() {
    let life = Lifecycle::new();
    life.begin_stop();
    let (_connection, running) = (life.connect(), life.enter());
    life.cut_now();
    let late = life.enter();
    assert!(late.is_late() && !running.is_late());
    assert_eq!(life.in_flight(), 2);
    assert!(!life.wait_idle(Duration::ZERO), "they are being told");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| life.wait_idle(Duration::from_secs(60)));
        drop(running);
        drop(late);
        assert!(waits.join().unwrap());
    });
}

/// A request comes on a connection that is silent when the wait begins: it is waited for as well.
#[test]
fn what_comes_on_an_open_connection_is_waited_for() {
    let life = Lifecycle::new();
    life.begin_stop();
    let (connection, before) = (life.connect(), life.enter());
    let (told, end) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| told.send(life.wait_idle(Duration::from_secs(60))).unwrap());
        let after = life.enter();
        drop(before);
        drop(connection);
        assert!(!after.is_late());
        assert_eq!(end.try_recv(), Err(mpsc::TryRecvError::Empty), "it runs");
        drop(after);
        assert!(end.recv().unwrap());
    });
}

#[test]
fn the_last_connections_end_ends_the_wait() {
    let life = Lifecycle::new();
    life.begin_stop();
    let (connection, request) = (life.connect(), life.enter());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| life.wait_idle(Duration::from_secs(60)));
        drop(request);
        drop(connection);
        assert!(waits.join().unwrap());
    });
    assert_eq!(life.connections.load(Ordering::SeqCst), 0);
}

/// Whoever serves operators holds what tells them of the end until all who have asked are answered.
#[test]
fn operators_who_have_asked_are_answered_before_the_end() {
    let life = Lifecycle::new();
    let mut serves = life.operators_end();
    assert!(!life.is_end_for_operators());
    let (told, ended) = mpsc::sync_channel(1);
    std::thread::scope(|scope| {
        let life = &life;
        scope.spawn(move || {
            life.end_operators(Duration::from_secs(60));
            told.send(()).unwrap();
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let is_told = runtime.block_on(serves.wait_for(|ends| *ends)).map(|ends| *ends);
        assert!(is_told.unwrap());
        let early = ended.recv_timeout(ENDED_EVERY);
        assert_eq!(
            early,
            Err(mpsc::RecvTimeoutError::Timeout),
            "somebody is being answered"
        );
        drop(serves);
        ended.recv().unwrap();
    });
    assert!(life.is_end_for_operators());
}
