//! A few calls, the gateways that make them, and an account that they reach by messages which may be lost, doubled or late.

use super::*;

/// What may happen in the histories that are explored.
#[derive(Debug)]
pub(super) struct Bounds {
    /// The gateway of each call; a gateway's calls have its numbers in this order.
    pub(super) gateways: &'static [usize],
    /// How many gateways are killed at most.
    pub(super) kills: usize,
    /// How often the store loses its last moments.
    pub(super) losses: u8,
    /// How often an older copy of a dead gateway's journal is put in place of what it left: its machine died, or somebody restored it.
    pub(super) restores: u8,
    pub(super) forgets: bool,
}

/// How far a call has come, as its journal has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Phase {
    /// It has no number yet.
    Unnamed,
    /// Something of its answer was passed on.
    Running,
    /// It has ended, and its debit stands.
    Owed,
    /// Its slot is free.
    Done,
}

/// The call's settlement under its name of the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sent {
    Never,
    /// One copy is on its way.
    Once,
    /// One copy has arrived, and its answer has too.
    Heard,
    /// Sent again: any number of copies are on their way.
    Often,
}

type Name = (usize, u64);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Call {
    phase: Phase,
    name: Option<Name>,
    /// Names that an older copy of the journal may have.
    earlier: Option<Name>,
    sent: Sent,
    /// Copies under the earlier name that were restored and sent.
    restored: bool,
    /// Nobody knows whether it was debited: its journal is kept.
    suspended: bool,
    /// Its machine died before the journal that names it was on the disk: it may be lost.
    excused: bool,
}

/// What a store keeps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Store {
    producers: Vec<Option<Numbers>>,
    forgotten: Option<Birth>,
    debits: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Taken,
    Stale,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    calls: Vec<Call>,
    gateway_of: Vec<usize>,
    alive: Vec<bool>,
    /// When each producer was born: each gateway's first, then those that took their place.
    births: Vec<Birth>,
    /// The producer of the moment of each gateway, and how many numbers each producer has given.
    current: Vec<usize>,
    given: Vec<u64>,
    store: Store,
    /// What the store falls back to when it loses its last moments.
    durable: Store,
    losses: u8,
    restores: u8,
    has_forgotten: bool,
}

impl Store {
    fn settle(&mut self, rules: &Rules, births: &[Birth], call: usize, (producer, number): Name) -> Answer {
        let mut numbers = match &self.producers[producer] {
            Some(numbers) => numbers.clone(),
            None if (rules.is_stale)(births[producer], self.forgotten) => return Answer::Stale,
            None => Numbers::default(),
        };
        if (rules.resolve)(&mut numbers, number) {
            self.debits[call] = (self.debits[call] + 1).min(2);
        }
        self.producers[producer] = Some(numbers);
        Answer::Taken
    }

    fn is_closed(&self, births: &[Birth], (producer, number): Name) -> bool {
        match &self.producers[producer] {
            Some(numbers) => numbers.is_closed(number),
            None => self.forgotten.is_some_and(|latest| births[producer] <= latest),
        }
    }
}

/// What the gateways' clocks say when a producer is made in place of another: behind all that were born before.
const NOW: Birth = Birth(5);
/// Producers that may be made in place of others.
const SPARE: usize = 2;

impl World {
    pub(super) fn new(bounds: &Bounds) -> World {
        let gateways = bounds.gateways.iter().max().map_or(0, |last| last + 1);
        let calls = bounds.gateways.len();
        // The first gateway is the younger one.
        let births: Vec<Birth> = (0..gateways).map(|n| Birth(20 - u32::try_from(n).unwrap())).collect();
        let call = Call {
            phase: Phase::Unnamed,
            name: None,
            earlier: None,
            sent: Sent::Never,
            restored: false,
            suspended: false,
            excused: false,
        };
        let store = Store {
            producers: vec![None; gateways + SPARE],
            forgotten: None,
            debits: vec![0; calls],
        };
        World {
            calls: vec![call; calls],
            gateway_of: bounds.gateways.to_vec(),
            alive: vec![true; gateways],
            births,
            current: (0..gateways).collect(),
            given: vec![0; gateways + SPARE],
            durable: store.clone(),
            store,
            losses: 0,
            restores: 0,
            has_forgotten: false,
        }
    }

    /// Everything that can happen next.
    ///
    /// # Errors
    /// What no step may do.
    pub(super) fn steps(&self, rules: &Rules, bounds: &Bounds) -> Result<Vec<World>, String> {
        let mut next = Vec::new();
        for call in 0..self.calls.len() {
            self.steps_of_gateway(call, bounds, &mut next);
            self.steps_of_messages(rules, call, &mut next);
        }
        let dead = self.alive.iter().filter(|alive| !**alive).count();
        for gateway in (0..self.alive.len()).filter(|gateway| self.alive[*gateway] && dead < bounds.kills) {
            let mut world = self.clone();
            world.alive[gateway] = false;
            next.push(world);
        }
        for world in &next {
            self.step_is_right(rules, world)?;
        }
        if bounds.forgets {
            for producer in 0..self.births.len() {
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
                // What was acknowledged a short while ago is sent again.
                let heard = lost.calls.iter_mut().filter(|call| call.sent == Sent::Heard);
                heard.for_each(|call| call.sent = Sent::Often);
                next.push(lost);
            }
        }
        Ok(next)
    }

    fn name_call(&mut self, at: usize) {
        let producer = self.current[self.gateway_of[at]];
        self.given[producer] += 1;
        let call = &mut self.calls[at];
        call.earlier = call.earlier.or(call.name);
        (call.name, call.sent) = (Some((producer, self.given[producer])), Sent::Never);
    }

    fn steps_of_gateway(&self, at: usize, bounds: &Bounds, next: &mut Vec<World>) {
        let mut to = |change: &dyn Fn(&mut World)| {
            let mut world = self.clone();
            change(&mut world);
            next.push(world);
        };
        let call = &self.calls[at];
        let alive = self.alive[self.gateway_of[at]];
        match (call.phase, alive) {
            (Phase::Unnamed, true) => to(&|world| {
                world.name_call(at);
                world.calls[at].phase = Phase::Running;
            }),
            (Phase::Running, true) => to(&|world| world.calls[at].phase = Phase::Owed),
            (Phase::Owed, true) => match call.sent {
                Sent::Never => to(&|world| world.calls[at].sent = Sent::Once),
                // The answer does not come in time, or says nothing.
                Sent::Once => to(&|world| world.calls[at].sent = Sent::Often),
                Sent::Heard | Sent::Often => {}
            },
            // Another gateway takes the journal over, as often as it likes. It cannot know what was sent.
            (Phase::Running | Phase::Owed, false) => to(&|world| world.calls[at].sent = Sent::Often),
            (Phase::Unnamed | Phase::Done, _) => {}
        }
        if !alive && self.restores < bounds.restores && call.name.is_some() {
            // Any older copy, also of a call whose slot was free.
            for older in [Phase::Unnamed, Phase::Running, Phase::Owed] {
                if older == Phase::Unnamed && call.phase == Phase::Done {
                    continue;
                }
                to(&|world| {
                    world.restores += 1;
                    let call = &mut world.calls[at];
                    if older == Phase::Unnamed {
                        (call.phase, call.excused) = (older, true);
                    } else {
                        call.phase = older;
                        call.restored = call.earlier.is_some();
                    }
                });
            }
        }
        let is_answered =
            |store: &Store| call.suspended || call.name.is_some_and(|name| store.is_closed(&self.births, name));
        if call.phase == Phase::Owed
            && call.sent != Sent::Never
            && (self.store.debits[at] > 0 || self.calls[at].suspended)
            && is_answered(&self.store)
            && is_answered(&self.durable)
        {
            to(&|world| world.calls[at].phase = Phase::Done);
        }
    }

    fn steps_of_messages(&self, rules: &Rules, at: usize, next: &mut Vec<World>) {
        let call = &self.calls[at];
        if let (Some(name), Sent::Once | Sent::Often) = (call.name, call.sent) {
            let mut world = self.clone();
            let answer = world.store.settle(rules, &self.births, at, name);
            match (call.sent, answer) {
                (Sent::Once, Answer::Taken) => {
                    let mut unheard = world.clone();
                    unheard.calls[at].sent = Sent::Often;
                    next.push(unheard);
                    world.calls[at].sent = Sent::Heard;
                }
                (Sent::Once, Answer::Stale) => world.renumber(rules, at, 1),
                (_, Answer::Stale) if self.alive[self.gateway_of[at]] => world.renumber(rules, at, 2),
                (_, Answer::Stale) => world.calls[at].suspended = true,
                (_, Answer::Taken) => {}
            }
            next.push(world);
        }
        if let (true, Some(name)) = (call.restored, call.earlier) {
            let mut world = self.clone();
            world.store.settle(rules, &self.births, at, name);
            next.push(world);
        }
    }

    /// The settlement was stale, and had been sent so often.
    fn renumber(&mut self, rules: &Rules, at: usize, sent: u32) {
        let gateway = self.gateway_of[at];
        let may = (rules.may_renumber)(sent) && self.alive[gateway] && self.births.len() < self.given.len();
        if !may {
            self.calls[at].suspended = true;
            return;
        }
        self.births.push((rules.born)(NOW, self.store.forgotten));
        self.current[gateway] = self.births.len() - 1;
        self.name_call(at);
    }

    fn forget(&self, rules: &Rules, producer: usize, next: &mut Vec<World>) -> Result<(), String> {
        if self.store.producers[producer].is_none() {
            return Ok(());
        }
        if (rules.may_forget)(SILENT_DAYS_MAX) {
            return Err("a producer is forgotten before its time".to_owned());
        }
        if !(rules.may_forget)(SILENT_DAYS_MAX + 1) {
            return Ok(());
        }
        let mut world = self.clone();
        world.has_forgotten = true;
        world.store.producers[producer] = None;
        world.store.forgotten = (rules.forget)(self.store.forgotten, self.births[producer]);
        // What is forgotten has been silent for a month: a store that loses its last moments keeps that.
        world.durable = world.store.clone();
        next.push(world);
        Ok(())
    }

    fn step_is_right(&self, rules: &Rules, next: &World) -> Result<(), String> {
        let newest = next.births.last().filter(|_| next.births.len() > self.births.len());
        if newest.is_some_and(|born| (rules.is_stale)(*born, next.store.forgotten)) {
            return Err("a new producer is stale".to_owned());
        }
        for (at, call) in self.calls.iter().enumerate() {
            if next.store.debits[at] > 1 {
                return Err(format!("call {at} was debited twice"));
            }
            for name in [call.name, call.earlier].into_iter().flatten() {
                if self.store.is_closed(&self.births, name) && !next.store.is_closed(&next.births, name) {
                    return Err(format!("the number of call {at} opened again"));
                }
            }
        }
        Ok(())
    }

    /// Lets everything end in good order from here, and looks whether what has to be billed is.
    pub(super) fn end_is_right(&self, rules: &Rules) -> Result<(), String> {
        let mut end = self.clone();
        for at in 0..end.calls.len() {
            let is_known = end.calls[at].sent == Sent::Heard && end.alive[end.gateway_of[at]];
            let is_owed = matches!(end.calls[at].phase, Phase::Running | Phase::Owed) && !is_known;
            let mut tries = 0;
            while let (true, Some(name)) = (is_owed && tries < 4 && !end.calls[at].suspended, end.calls[at].name) {
                tries += 1;
                if end.store.settle(rules, &end.births, at, name) == Answer::Taken {
                    break;
                }
                let first = end.calls[at].sent == Sent::Never && end.alive[end.gateway_of[at]];
                end.renumber(rules, at, if first { 1 } else { 2 });
            }
        }
        for (at, call) in end.calls.iter().enumerate() {
            let (debits, suspended) = (end.store.debits[at], call.suspended);
            if debits > 1 {
                return Err(format!("call {at} was debited twice"));
            }
            if call.name.is_some() && !call.excused && debits == 0 && !suspended {
                return Err(format!("the debit of call {at} is lost"));
            }
            if call.name.is_none() && debits > 0 {
                return Err(format!("call {at} was debited for nothing"));
            }
            if suspended && !end.has_forgotten {
                return Err(format!("call {at} is suspended although nobody was forgotten"));
            }
        }
        // What a living gateway sends once is never suspended, as long as it may make producers.
        for (at, call) in self.calls.iter().enumerate() {
            let is_fresh = matches!(call.sent, Sent::Never | Sent::Heard) && self.alive[self.gateway_of[at]];
            let has_spare = end.births.len() < end.given.len();
            if is_fresh && has_spare && end.calls[at].suspended {
                return Err(format!("call {at} is suspended although it was never doubtful"));
            }
        }
        Ok(())
    }
}
