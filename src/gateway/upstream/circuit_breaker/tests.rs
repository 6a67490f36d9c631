//! When a breaker opens, and what closes it.

use super::*;
use crate::pure::time::Timestamp;

fn clock() -> Clock {
    Clock::manual(Timestamp(1_000_000))
}

fn account(name: &str) -> AccountId {
    name.parse().unwrap()
}

impl Breaker {
    fn admits(&self, clock: &Clock) -> bool {
        self.admit(clock).is_some()
    }

    /// Answers a call that begins now.
    fn answers(&self, clock: &Clock) {
        self.succeeded(self.admit_anyway(clock), clock);
    }

    /// Fails a call that begins now.
    fn fails(&self, clock: &Clock, retry_after_secs: Option<u64>) {
        self.failed(self.admit_anyway(clock), clock, retry_after_secs);
    }
}

#[test]
fn after_a_pause_one_call_at_a_time_finds_out() {
    let (breaker, clock) = (Breaker::default(), clock());
    for _ in 0..FAILURES_IN_A_ROW {
        assert!(breaker.admits(&clock));
        breaker.fails(&clock, None);
    }
    assert!(!breaker.admits(&clock));
    clock.advance(COOL_DOWN_MS);
    assert!(breaker.admits(&clock), "the first finds out");
    assert!(!breaker.admits(&clock), "the others wait for it");
    breaker.fails(&clock, None);
    assert!(!breaker.admits(&clock), "one failure is enough to open it again");
    clock.advance(COOL_DOWN_MS);
    assert!(breaker.admits(&clock));
    clock.advance(COOL_DOWN_MS);
    assert!(breaker.admits(&clock), "a call that never ends does not keep it open");
    breaker.answers(&clock);
    assert!(breaker.admits(&clock) && breaker.admits(&clock), "closed");
    breaker.fails(&clock, None);
    assert!(breaker.admits(&clock), "and the count begins anew");
}

#[test]
fn usage_that_cannot_be_opens_it_when_three_accounts_have_seen_it() {
    let (breaker, clock) = (Breaker::default(), clock());
    for _ in 0..10 {
        assert!(
            !breaker.implausible(&account("a"), &clock),
            "one account is no witness, however often"
        );
    }
    assert!(!breaker.implausible(&account("b"), &clock));
    clock.advance(DECEIVED_WITHIN_MS);
    assert!(!breaker.implausible(&account("c"), &clock), "the others were long ago");
    assert!(!breaker.implausible(&account("a"), &clock) && breaker.admits(&clock));
    assert!(breaker.implausible(&account("b"), &clock));
    assert!(!breaker.admits(&clock));
    breaker.answers(&clock);
    clock.advance(DECEIVED_PAUSE_MS - 1);
    assert!(!breaker.admits(&clock));
    clock.advance(1);
    assert!(breaker.admits(&clock));
}

/// It was so only once all targets of the catalogue were passed over, those that nobody asked for among them.
#[test]
fn a_provider_is_down_when_none_of_its_targets_that_are_asked_answers() {
    let clock = clock();
    let [used, other, unused] = [(); 3].map(|()| Breaker::default());
    let is_down = || is_provider_down([&used, &other, &unused].into_iter(), &clock);
    let fails = |target: &Breaker| (0..FAILURES_IN_A_ROW).for_each(|_| target.fails(&clock, None));
    assert!(!is_down());
    other.answers(&clock);
    clock.advance(1_000);
    fails(&used);
    assert!(!is_down(), "the other one has answered a moment ago");
    clock.advance(HEARD_WITHIN_MS);
    assert!(!is_down(), "the pause is over");
    used.fails(&clock, None);
    assert!(is_down(), "the other one was not heard of since");
    other.answers(&clock);
    assert!(!is_down());
    for _ in 0..60 {
        clock.advance(COOL_DOWN_MS);
        used.fails(&clock, None);
    }
    assert!(!is_down(), "one model that fails for long is not all of its provider");
    fails(&other);
    assert!(is_down());
    clock.advance(COOL_DOWN_MS);
    other.answers(&clock);
    used.fails(&clock, None);
    assert!(!is_down());
}

/// It answers, or has said when it will.
#[test]
fn a_target_that_is_busy_makes_no_provider_down() {
    let clock = clock();
    let [asked, unused] = [(); 2].map(|()| Breaker::default());
    let is_down = || is_provider_down([&asked, &unused].into_iter(), &clock);
    for _ in 0..FAILURES_IN_A_ROW - 1 {
        asked.fails(&clock, Some(1));
        assert!(!asked.admits(&clock) && !is_down());
        clock.advance(1_000);
    }
    asked.fails(&clock, Some(1));
    assert!(is_down(), "so many in a row are a failure");
    asked.answers(&clock);
    for name in ["a", "b", "c"] {
        asked.implausible(&name.parse().unwrap(), &clock);
    }
    assert!(!asked.admits(&clock) && !is_down());
}

/// A failure of long ago says nothing of whether the others have answered since.
#[test]
fn a_failure_of_long_ago_is_none_of_the_row_that_makes_a_provider_down() {
    let clock = clock();
    let [one, other] = [(); 2].map(|()| Breaker::default());
    one.fails(&clock, None);
    clock.advance(HEARD_WITHIN_MS);
    other.answers(&clock);
    clock.advance(2 * HEARD_WITHIN_MS);
    for _ in 1..FAILURES_IN_A_ROW {
        one.fails(&clock, None);
    }
    assert!(!one.admits(&clock));
    assert!(is_provider_down([&one, &other].into_iter(), &clock));
}

#[test]
fn an_answer_to_an_earlier_call_ends_no_pause() {
    let (breaker, clock) = (Breaker::default(), clock());
    breaker.fails(&clock, Some(30));
    clock.advance(5);
    breaker.answers(&clock);
    clock.advance(29_994);
    assert!(!breaker.admits(&clock));
    clock.advance(1);
    assert!(breaker.admits(&clock));
}

/// Both waits went by the wall clock, which may be set back by hours.
#[test]
fn a_clock_that_is_set_back_lengthens_no_pause() {
    let (breaker, clock) = (Breaker::default(), clock());
    breaker.fails(&clock, Some(10));
    clock.set_by(-3_600_000);
    assert!(!breaker.admits(&clock));
    clock.advance(10_000);
    assert!(breaker.admits(&clock), "its pause is over");
    clock.set_by(-3_600_000);
    clock.advance(COOL_DOWN_MS);
    assert!(
        breaker.admits(&clock),
        "nobody waits for the call that found nothing out"
    );
}

/// Whoever sent a malformed request before each fifth failure kept it closed, and one was enough to close it again.
#[test]
fn a_call_that_was_inconclusive_ends_no_row_and_no_pause_and_lets_the_next_one_find_out() {
    let (breaker, clock) = (Breaker::default(), clock());
    for _ in 0..FAILURES_IN_A_ROW {
        let refused = breaker.admit(&clock).unwrap();
        breaker.inconclusive(refused);
        breaker.fails(&clock, None);
    }
    assert!(!breaker.admits(&clock));
    clock.advance(COOL_DOWN_MS);
    for _ in 0..3 {
        let probe = breaker.admit(&clock).unwrap();
        assert!(!breaker.admits(&clock), "the others wait for it");
        breaker.inconclusive(breaker.admit_anyway(&clock));
        assert!(!breaker.admits(&clock), "another call ends no wait");
        breaker.inconclusive(probe);
        assert_ne!(breaker.open_until(), 0);
    }
    let late = breaker.admit(&clock).unwrap();
    clock.advance(COOL_DOWN_MS);
    let probe = breaker.admit(&clock).unwrap();
    breaker.inconclusive(late);
    assert!(!breaker.admits(&clock), "the place is another's by then");
    breaker.succeeded(probe, &clock);
    assert_eq!(breaker.open_until(), 0);
}

/// A long stream from before an outage closed it while its target failed.
#[test]
fn an_answer_to_a_call_from_before_the_opening_does_not_close_it() {
    let (breaker, clock) = (Breaker::default(), clock());
    let before = breaker.admit(&clock).unwrap();
    for _ in 0..FAILURES_IN_A_ROW {
        breaker.fails(&clock, None);
    }
    clock.advance(COOL_DOWN_MS);
    breaker.succeeded(before, &clock);
    assert_ne!(breaker.open_until(), 0);
    assert!(breaker.admits(&clock) && !breaker.admits(&clock), "one finds out");
    breaker.fails(&clock, None);
    assert!(
        is_provider_down([&breaker].into_iter(), &clock),
        "it is no answer since"
    );
    clock.advance(COOL_DOWN_MS);
    let after = breaker.admit(&clock).unwrap();
    breaker.succeeded(after, &clock);
    assert_eq!(breaker.open_until(), 0);
    // Of the next outage it is one from before.
    for _ in 0..FAILURES_IN_A_ROW {
        breaker.fails(&clock, None);
    }
    clock.advance(COOL_DOWN_MS);
    breaker.succeeded(after, &clock);
    assert_ne!(breaker.open_until(), 0);
}

/// Five calls in flight that were refused had a provider told of as down that had answered all others.
#[test]
fn answers_to_calls_from_before_an_opening_say_that_the_provider_is_not_down() {
    for retry_after_secs in [None, Some(20)] {
        let (breaker, clock) = (Breaker::default(), clock());
        let is_down = || is_provider_down([&breaker].into_iter(), &clock);
        let calls: Vec<Admitted> = (0..50).map(|_| breaker.admit(&clock).unwrap()).collect();
        let (refused, answered) = calls.split_at(5);
        for call in refused {
            breaker.failed(*call, &clock, retry_after_secs);
        }
        assert_eq!(
            is_down(),
            retry_after_secs.is_none(),
            "one that asks for a pause is busy"
        );
        for call in answered {
            breaker.succeeded(*call, &clock);
        }
        assert!(!is_down(), "{retry_after_secs:?}");
        assert!(!breaker.admits(&clock), "and none of them has closed it");
        for _ in 0..FAILURES_IN_A_ROW {
            clock.advance(20_000);
            let probe = breaker.admit(&clock).unwrap();
            breaker.failed(probe, &clock, None);
        }
        assert!(is_down(), "{retry_after_secs:?}");
        breaker.succeeded(calls[0], &clock);
        assert!(is_down(), "calls that began since fail");
    }
}

/// Each of those that hung opened it for another ten seconds, and what the call found out that probed it closed nothing.
#[test]
fn failures_of_calls_from_before_an_opening_lengthen_no_pause_and_take_no_place() {
    let (breaker, clock) = (Breaker::default(), clock());
    let hung = breaker.admit(&clock).unwrap();
    let opens = || (0..FAILURES_IN_A_ROW).for_each(|_| breaker.fails(&clock, None));
    opens();
    clock.advance(COOL_DOWN_MS - 1);
    breaker.failed(hung, &clock, None);
    clock.advance(1);
    let probe = breaker.admit(&clock).unwrap();
    breaker.failed(hung, &clock, Some(0));
    assert!(!breaker.admits(&clock), "one finds out");
    breaker.succeeded(probe, &clock);
    assert!(breaker.admits(&clock) && breaker.admits(&clock), "closed");
    for _ in 0..FAILURES_IN_A_ROW {
        breaker.failed(hung, &clock, None);
    }
    assert!(breaker.admits(&clock), "they open it no second time");
    // A pause that it asks for counts whenever it asks.
    opens();
    breaker.failed(hung, &clock, Some(30));
    clock.advance(29_999);
    assert!(!breaker.admits(&clock));
    clock.advance(1);
    assert!(breaker.admits(&clock));
}

/// After one that asked for a pause those of all other calls in flight counted for nothing: nobody was told that the provider was down.
#[test]
fn failures_of_calls_in_flight_count_though_one_of_them_asked_for_a_pause() {
    // Of those in flight one is answered, or a call that began since is.
    for is_of_earlier in [true, false] {
        let (breaker, clock) = (Breaker::default(), clock());
        let is_down = || is_provider_down([&breaker].into_iter(), &clock);
        let calls: Vec<Admitted> = (0..50).map(|_| breaker.admit(&clock).unwrap()).collect();
        breaker.failed(calls[0], &clock, Some(5));
        assert!(!is_down(), "it is busy");
        clock.advance(4_999);
        for call in &calls[1..20] {
            breaker.failed(*call, &clock, None);
        }
        assert!(is_down() && !breaker.admits(&clock));
        match is_of_earlier {
            true => breaker.succeeded(calls[20], &clock),
            false => breaker.answers(&clock),
        }
        assert!(!is_down(), "{is_of_earlier}");
        for call in &calls[21..40] {
            breaker.failed(*call, &clock, None);
        }
        assert!(!is_down(), "{is_of_earlier}");
        clock.advance(1);
        let probe = breaker.admit(&clock).unwrap();
        breaker.succeeded(probe, &clock);
        for call in &calls[40..] {
            breaker.failed(*call, &clock, None);
        }
        assert!(breaker.admits(&clock), "it has closed since");
    }
}

/// Each call that hung while the target was passed over had that last ten seconds longer, for two minutes behind its return.
#[test]
fn failures_of_calls_that_began_before_one_that_is_answered_lengthen_no_pause() {
    let (breaker, clock) = (Breaker::default(), clock());
    (0..FAILURES_IN_A_ROW).for_each(|_| breaker.fails(&clock, None));
    let hung = [(); 12].map(|()| {
        clock.advance(COOL_DOWN_MS);
        breaker.admit(&clock).unwrap()
    });
    clock.advance(COOL_DOWN_MS);
    let answered = breaker.admit(&clock).unwrap();
    breaker.failed(hung[0], &clock, None);
    clock.advance(1);
    breaker.succeeded(answered, &clock);
    assert!(!breaker.admits(&clock), "the first one has begun another pause");
    for call in &hung[1..] {
        clock.advance(1);
        breaker.failed(*call, &clock, None);
    }
    clock.advance(COOL_DOWN_MS - 12);
    let probe = breaker.admit(&clock).unwrap();
    breaker.succeeded(probe, &clock);
    assert_eq!(breaker.open_until(), 0);
    for call in hung {
        breaker.failed(call, &clock, None);
    }
    assert!(breaker.admits(&clock), "nor do they open it again");
    breaker.failed(hung[0], &clock, Some(30));
    clock.advance(29_999);
    assert!(!breaker.admits(&clock), "a pause that it asks for counts");
    clock.advance(1);
    assert!(breaker.admits(&clock));
}

/// It kept its place for ten seconds, though the pause that kept its answer from closing the breaker was over before.
#[test]
fn a_call_that_is_answered_within_a_pause_lets_the_next_one_find_out() {
    let (breaker, clock) = (Breaker::default(), clock());
    let earlier = breaker.admit(&clock).unwrap();
    (0..FAILURES_IN_A_ROW).for_each(|_| breaker.fails(&clock, None));
    clock.advance(COOL_DOWN_MS);
    let probe = breaker.admit(&clock).unwrap();
    breaker.failed(earlier, &clock, Some(1));
    clock.advance(500);
    breaker.succeeded(probe, &clock);
    assert_ne!(breaker.open_until(), 0);
    clock.advance(500);
    assert!(breaker.admits(&clock));
}
