//! A few calls, the gateways that make them, and an account that they reach by messages which may be lost, doubled or late.

use super::*;

/// What may happen in the histories that are explored.
#[derive(Debug)]
pub(super) struct Bounds {
    /// The producer of each call; a producer's calls have its numbers in this order.
    pub(super) producers: &'static [usize],
    /// How many gateways are killed at most.
    pub(super) kills: usize,
    /// How often the store loses its last moments.
    pub(super) losses: u8,
    /// How often a gateway's machine dies, and leaves an older journal than it had.
    pub(super) machine_deaths: usize,
    pub(super) forgets: bool,
}

/// How far a call has come, as its journal has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Phase {
    /// It has no number yet.
    None,
    /// Its reserve is on its way.
    Asked,
    Running,
    /// It ends with a debit.
    Owed,
    /// It ends without.
    GivenBack,
    /// Its slot is free.
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Call {
    phase: Phase,
    /// Messages that were sent stay on their way: each may arrive never, once or again.
    debit_sent: bool,
    release_sent: bool,
    /// Its reserve was on a connection of before the store's loss, and will not arrive any more.
    reserve_gone: bool,
    /// Its machine died before its last phase was on the disk: what nobody knows of may be lost, but not doubled.
    excused: bool,
}

/// What a store keeps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Store {
    producers: Vec<Option<Numbers>>,
    forgotten: Option<Birth>,
    calls: Vec<AtStore>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct AtStore {
    held: bool,
    debits: u8,
    suspended: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    calls: Vec<Call>,
    /// Producer and number of each call.
    names: Vec<(usize, u64)>,
    alive: Vec<bool>,
    machine_died: Vec<bool>,
    store: Store,
    /// What the store falls back to when it loses its last moments.
    durable: Store,
    losses: u8,
}

impl Store {
    /// The producer's numbers, unless it was forgotten.
    fn load(&self, rules: &Rules, producer: usize) -> Option<Numbers> {
        match &self.producers[producer] {
            Some(numbers) => Some(numbers.clone()),
            None => (!(rules.is_stale)(birth(producer), self.forgotten)).then(Numbers::default),
        }
    }

    fn resolve(&mut self, rules: &Rules, call: usize, (producer, number): (usize, u64), debit: bool) {
        let Some(mut numbers) = self.load(rules, producer) else {
            self.calls[call].suspended |= debit;
            return;
        };
        let applied = (rules.resolve)(&mut numbers, number);
        self.producers[producer] = Some(numbers);
        if applied {
            let call = &mut self.calls[call];
            call.held = false;
            call.debits = (call.debits + u8::from(debit)).min(2);
        }
    }

    fn is_closed(&self, (producer, number): (usize, u64)) -> bool {
        match &self.producers[producer] {
            Some(numbers) => numbers.is_closed(number),
            None => self.forgotten.is_some_and(|latest| birth(producer) <= latest),
        }
    }
}

/// The first producer is the younger one.
fn birth(producer: usize) -> Birth {
    Birth(20 - u32::try_from(producer).unwrap())
}

impl World {
    pub(super) fn new(bounds: &Bounds) -> World {
        let producers = bounds.producers.iter().max().map_or(0, |last| last + 1);
        let name = |at: usize, producer: usize| {
            let before = bounds.producers[..at].iter().filter(|other| **other == producer);
            (producer, u64::try_from(before.count()).unwrap() + 1)
        };
        let names: Vec<_> = bounds
            .producers
            .iter()
            .enumerate()
            .map(|(at, p)| name(at, *p))
            .collect();
        let call = Call {
            phase: Phase::None,
            debit_sent: false,
            release_sent: false,
            reserve_gone: false,
            excused: false,
        };
        let store = Store {
            producers: vec![None; producers],
            forgotten: None,
            calls: vec![AtStore::default(); names.len()],
        };
        World {
            calls: vec![call; names.len()],
            names,
            alive: vec![true; producers],
            machine_died: vec![false; producers],
            durable: store.clone(),
            store,
            losses: 0,
        }
    }

    /// Everything that can happen next.
    ///
    /// # Errors
    /// What no step may do.
    pub(super) fn steps(&self, rules: &Rules, bounds: &Bounds) -> Result<Vec<World>, String> {
        let mut next = Vec::new();
        for call in 0..self.calls.len() {
            self.steps_of_gateway(call, &mut next);
            self.steps_of_messages(rules, call, &mut next);
        }
        for producer in 0..self.alive.len() {
            self.steps_of_producer(rules, producer, bounds, &mut next);
        }
        for world in &next {
            self.step_is_right(world)?;
        }
        if bounds.forgets {
            for producer in 0..self.alive.len() {
                self.forget(rules, producer, &mut next)?;
            }
        }
        if bounds.losses == 0 {
            next.iter_mut().for_each(|world| world.durable = world.store.clone());
        } else if self.durable != self.store {
            let mut kept = self.clone();
            kept.durable = kept.store.clone();
            next.push(kept);
            if self.losses < bounds.losses {
                let mut lost = self.clone();
                lost.store = lost.durable.clone();
                lost.losses += 1;
                let asked = lost.calls.iter_mut().filter(|call| call.phase != Phase::None);
                asked.for_each(|call| call.reserve_gone = true);
                next.push(lost);
            }
        }
        Ok(next)
    }

    fn steps_of_gateway(&self, at: usize, next: &mut Vec<World>) {
        let (producer, number) = self.names[at];
        let mut to = |change: &dyn Fn(&mut Call)| {
            let mut world = self.clone();
            change(&mut world.calls[at]);
            next.push(world);
        };
        let phase = self.calls[at].phase;
        let alive = self.alive[producer];
        match phase {
            Phase::None if alive => {
                let before = |(other, (p, n)): (&Call, &(usize, u64))| {
                    *p == producer && *n < number && other.phase == Phase::None
                };
                if !self.calls.iter().zip(&self.names).any(before) {
                    to(&|call| call.phase = Phase::Asked);
                }
            }
            Phase::Asked if alive => to(&give_back),
            Phase::Running if alive => {
                to(&owe);
                to(&give_back);
            }
            // Another gateway takes the journal over, as often as it likes.
            Phase::Asked | Phase::GivenBack if !alive => to(&|call| call.release_sent = true),
            Phase::Running | Phase::Owed if !alive => to(&|call| call.debit_sent = true),
            _ => {}
        }
        if self.machine_died[producer] && !self.calls[at].excused {
            for older in [Phase::None, Phase::Asked, Phase::Running] {
                if older < phase {
                    to(&|call| (call.phase, call.excused) = (older, true));
                }
            }
        }
        let ended = match phase {
            Phase::Owed | Phase::GivenBack => true,
            Phase::Asked | Phase::Running => !alive,
            Phase::None | Phase::Done => false,
        };
        // The slot is freed once the store cannot lose it any more.
        let sent = self.calls[at].debit_sent || self.calls[at].release_sent;
        let is_answered = |store: &Store| {
            let stored = &store.calls[at];
            store.is_closed(self.names[at])
                && (store.producers[producer].is_some() || stored.suspended || !self.calls[at].debit_sent)
        };
        if ended && sent && is_answered(&self.store) && is_answered(&self.durable) {
            to(&|call| call.phase = Phase::Done);
        }
    }

    fn steps_of_messages(&self, rules: &Rules, at: usize, next: &mut Vec<World>) {
        let call = &self.calls[at];
        let (producer, number) = self.names[at];
        if !call.reserve_gone && (call.phase != Phase::None || call.excused) {
            self.reserve(rules, at, next);
        }
        for (sent, debit) in [(call.debit_sent, true), (call.release_sent, false)] {
            if sent {
                let mut world = self.clone();
                world.store.resolve(rules, at, (producer, number), debit);
                next.push(world);
            }
        }
        if self.store.calls[at].held {
            let mut world = self.clone();
            world.store.calls[at].held = false;
            if let Some(numbers) = &mut world.store.producers[producer] {
                (rules.expire)(numbers, number);
            }
            next.push(world);
        }
    }

    /// A reserve arrives, perhaps late or once more. Its answer may not arrive.
    fn reserve(&self, rules: &Rules, at: usize, next: &mut Vec<World>) {
        let (producer, number) = self.names[at];
        let Some(mut numbers) = self.store.load(rules, producer) else {
            return;
        };
        if (rules.is_closed)(&numbers, number) {
            return;
        }
        let waits = self.alive[producer] && self.calls[at].phase == Phase::Asked;
        let mut granted = self.clone();
        let mut met = numbers.clone();
        (rules.grant)(&mut met, number);
        granted.store.producers[producer] = Some(met);
        granted.store.calls[at].held = true;
        next.push(granted.clone());
        if waits {
            granted.calls[at].phase = Phase::Running;
            next.push(granted);
        }
        if self.store.calls[at].held {
            return; // The same grant again.
        }
        let mut denied = self.clone();
        let is_closed = (rules.deny)(&mut numbers, number);
        denied.store.producers[producer] = Some(numbers);
        next.push(denied.clone());
        if waits {
            if is_closed {
                denied.calls[at].phase = Phase::Done;
            } else {
                give_back(&mut denied.calls[at]);
            }
            next.push(denied);
        }
    }

    fn steps_of_producer(&self, rules: &Rules, producer: usize, bounds: &Bounds, next: &mut Vec<World>) {
        let mine = || (0..self.calls.len()).filter(|at| self.names[*at].0 == producer);
        if !self.alive[producer] {
            let is_whole = mine().all(|at| matches!(self.calls[at].phase, Phase::None | Phase::Done));
            let mut world = self.clone();
            if let Some(numbers) = world.store.producers[producer].as_mut().filter(|_| is_whole) {
                (rules.retire)(numbers);
                next.push(world);
            }
            return;
        }
        let beyond = u64::try_from(mine().count()).unwrap() + 1;
        let unresolved = mine().find(|at| self.calls[*at].phase != Phase::Done);
        let floor = unresolved.map_or(beyond, |at| self.names[at].1);
        let mut world = self.clone();
        if let Some(numbers) = &mut world.store.producers[producer] {
            (rules.floor)(numbers, floor);
            next.push(world);
        }
        if self.alive.iter().filter(|alive| !**alive).count() >= bounds.kills {
            return;
        }
        let mut world = self.clone();
        world.alive[producer] = false;
        next.push(world.clone());
        if self.machine_died.iter().filter(|died| **died).count() < bounds.machine_deaths {
            world.machine_died[producer] = true;
            next.push(world);
        }
    }

    fn forget(&self, rules: &Rules, producer: usize, next: &mut Vec<World>) -> Result<(), String> {
        let Some(numbers) = &self.store.producers[producer] else {
            return Ok(());
        };
        if (rules.may_forget)(numbers, SILENT_DAYS_MAX) {
            return Err("a producer is forgotten before its time".to_owned());
        }
        if !(rules.may_forget)(numbers, SILENT_DAYS_MAX + 1) {
            return Ok(());
        }
        if !numbers.open().is_empty() {
            return Err("a producer is forgotten with an open number".to_owned());
        }
        let mut world = self.clone();
        world.store.producers[producer] = None;
        world.store.forgotten = (rules.forget)(self.store.forgotten, birth(producer));
        next.push(world);
        Ok(())
    }

    fn step_is_right(&self, next: &World) -> Result<(), String> {
        for at in 0..self.calls.len() {
            let (before, after) = (&self.store.calls[at], &next.store.calls[at]);
            if after.debits > 1 {
                return Err(format!("call {at} was debited twice"));
            }
            let was_closed = self.store.is_closed(self.names[at]);
            if was_closed && !next.store.is_closed(self.names[at]) {
                return Err(format!("the number of call {at} opened again"));
            }
            if was_closed && !before.held && after.held {
                return Err(format!("call {at} holds credit under a closed number"));
            }
        }
        Ok(())
    }

    /// Lets everything end in good order from here, and looks whether what has to be billed is.
    pub(super) fn end_is_right(&self, rules: &Rules) -> Result<(), String> {
        let mut end = self.clone();
        for at in 0..end.calls.len() {
            match end.calls[at].phase {
                Phase::Asked | Phase::GivenBack => give_back(&mut end.calls[at]),
                Phase::Running | Phase::Owed => owe(&mut end.calls[at]),
                Phase::None if end.alive[end.names[at].0] => give_back(&mut end.calls[at]),
                Phase::None | Phase::Done => continue,
            }
            for (sent, debit) in [(end.calls[at].debit_sent, true), (end.calls[at].release_sent, false)] {
                if sent {
                    end.store.resolve(rules, at, end.names[at], debit);
                }
            }
        }
        for (at, (call, stored)) in end.calls.iter().zip(&end.store.calls).enumerate() {
            let must_be_paid = call.debit_sent && !call.release_sent && !call.excused;
            if must_be_paid && stored.debits != 1 && !stored.suspended {
                return Err(format!("the debit of call {at} is lost"));
            }
            if !call.debit_sent && stored.debits != 0 || stored.debits > 1 {
                return Err(format!("call {at} was debited for nothing"));
            }
        }
        for (producer, numbers) in end.store.producers.iter_mut().enumerate() {
            let Some(numbers) = numbers else { continue };
            if !end.alive[producer] {
                (rules.retire)(numbers);
            } else if self.losses > 0 {
                // A refusal that the store has lost: its producer is done with the number.
                (rules.floor)(numbers, 1 + u64::try_from(end.names.len()).unwrap());
            }
            if !numbers.open().is_empty() {
                return Err("a number stays open for ever".to_owned());
            }
        }
        Ok(())
    }
}

fn owe(call: &mut Call) {
    call.phase = Phase::Owed;
    call.debit_sent = true;
}

fn give_back(call: &mut Call) {
    call.phase = Phase::GivenBack;
    call.release_sent = true;
}
