//! A model's targets, and the one that is tried next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest as _, Sha256};

use super::circuit_breaker::{Admitted, Breaker};
use super::providers::Upstream;
use crate::clock::Clock;
use crate::config::{Credential, Provider};
use crate::pure::catalogue::{Model, Target};
use crate::pure::rendezvous::{self, Draw, hash_of};

/// A target that can be tried.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Position among the model's targets.
    pub(crate) index: usize,
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) breaker: Arc<Breaker>,
    /// The upstream's name of the model.
    pub(crate) model: Arc<str>,
    /// 0 for a target without one.
    weight: u64,
    /// The [`fingerprint`] of what it is asked with.
    credential: u64,
}

impl Candidate {
    /// Whether its last answer, to whichever model of the catalogue, refused the gateway's own credential: the one that is configured now.
    pub(crate) fn refuses_credential(&self) -> bool {
        self.breaker.refuses_credential(self.credential)
    }

    /// The configuration that it is of comes into force: from now on its target is asked with this credential.
    pub(crate) fn comes_into_force(&self) {
        self.breaker.asks_with(self.credential);
    }

    /// Notes what an answer says of the credential; whether that is new.
    pub(crate) fn note_credential_refused(&self, refused: bool) -> bool {
        self.breaker.note_credential_refused(self.credential, refused)
    }
}

/// A model's targets, each with its upstream and breaker.
#[derive(Debug)]
pub(crate) struct Candidates {
    all: Vec<Candidate>,
    /// Calls so far, for the targets that share them by weight.
    turn: AtomicU64,
}

impl Candidates {
    /// All of them, in the catalogue's order.
    pub(crate) fn all(&self) -> &[Candidate] {
        &self.all
    }

    /// Those of a model.
    pub(crate) fn of(upstreams: &BTreeMap<String, Arc<Upstream>>, model: &Model) -> Candidates {
        let candidate = |(index, target): (usize, &Target)| {
            let upstream = Arc::clone(upstreams.get(&target.provider)?);
            let breaker = upstream.breaker(&target.model);
            Some(Candidate {
                index,
                credential: fingerprint(&upstream.provider),
                upstream,
                breaker,
                model: Arc::from(target.model.as_str()),
                weight: target.weight.map_or(0, |weight| u64::from(weight.get())),
            })
        };
        Candidates {
            all: model.targets.iter().enumerate().filter_map(candidate).collect(),
            turn: AtomicU64::new(0),
        }
    }

    /// Whether two or more share the calls by their weights.
    pub(crate) fn are_shared(&self) -> bool {
        self.all.iter().filter(|candidate| candidate.weight > 0).count() > 1
    }

    /// The next target: one of the weighted, that of the conversation or else by its share, else the first, that was not tried and whose breaker admits the call. When
    /// none of those that are left does, the one that closes first. Who asks has to try it: another call may be waiting for what
    /// becomes of it.
    pub(crate) fn next(
        &self,
        tried: &[usize],
        conversation: Option<u64>,
        clock: &Clock,
    ) -> Option<(&Candidate, Admitted)> {
        let untried = || self.all.iter().filter(|candidate| !tried.contains(&candidate.index));
        let mut weighted: Vec<&Candidate> = untried().filter(|candidate| candidate.weight > 0).collect();
        let choose = |weighted: &[_]| match conversation {
            Some(conversation) => of_conversation(weighted, conversation),
            None => self.share(weighted),
        };
        while let Some(chosen) = choose(&weighted) {
            if let Some(admitted) = chosen.breaker.admit(clock) {
                return Some((chosen, admitted));
            }
            weighted.retain(|candidate| candidate.index != chosen.index);
        }
        let mut in_order = untried().filter(|candidate| candidate.weight == 0);
        in_order
            .find_map(|candidate| Some((candidate, candidate.breaker.admit(clock)?)))
            .or_else(|| {
                let first = untried().min_by_key(|candidate| candidate.breaker.open_until())?;
                Some((first, first.breaker.admit_anyway(clock)))
            })
    }

    /// One of these by its weight: turns are spread evenly, so that no run of calls goes to one of them.
    fn share<'c>(&self, weighted: &[&'c Candidate]) -> Option<&'c Candidate> {
        let total: u64 = weighted.iter().map(|candidate| candidate.weight).sum();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        // The turn's place between 0 and 1, as a fraction of 2^64, times the total.
        let place = u128::from(turn.wrapping_mul(GOLDEN_RATIO));
        let mut point = u64::try_from(place.saturating_mul(u128::from(total)) >> 64).ok()?;
        weighted.iter().copied().find(|candidate| {
            let within = point < candidate.weight;
            point = point.saturating_sub(candidate.weight);
            within
        })
    }
}

/// The target of a conversation: the same at every gateway.
fn of_conversation<'c>(weighted: &[&'c Candidate], conversation: u64) -> Option<&'c Candidate> {
    // Hashes of names are not kept: a call carries its candidate, and few have a use for them.
    let target = |candidate: &&Candidate| Draw {
        identity: hash_of(&[&candidate.upstream.name, &candidate.model]),
        weight: candidate.weight,
    };
    let chosen = rendezvous::choose(conversation, weighted.iter().map(target))?;
    weighted.get(chosen).copied()
}

/// Tells what a provider is asked with from what it was asked with before a reload: its credential, and the headers, which may have one.
/// Never 0.
fn fingerprint(provider: &Provider) -> u64 {
    let mut digest = Sha256::new();
    let mut add = |text: &str| {
        digest.update(text.as_bytes());
        // Stands in no header.
        digest.update([0]);
    };
    if let Credential::Bearer(text) = &provider.credential {
        add(text);
    }
    for (name, value) in &provider.headers {
        add(name);
        add(value);
    }
    let digest: [u8; 32] = digest.finalize().into();
    let [a, b, c, d, e, f, g, h, ..] = digest;
    u64::from_be_bytes([a, b, c, d, e, f, g, h]).max(1)
}

/// 2^64 divided by the golden ratio: its multiples spread over the numbers evenly.
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests;
