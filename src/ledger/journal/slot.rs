//! One slot: what must be known of a call when its process has died, at fixed places in mapped memory.
//!
//! A slot has one owner at a time, the call's [`Entry`](super::Entry). The intent is written before the slot's state says that there is one,
//! the debit before the state says that one is owed; each has a checksum, and the counters carry theirs in the same word. So whatever
//! a kill or a bad disk leaves behind is either read as it was written or refused. What the disk does not read at all is an error before it
//! is mapped ([`file`](super::file)).

mod text;

use self::text::{debit_bytes, id_salt, intent_bytes, read_debit, read_intent};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use super::prompt_place::PromptPlace;
use crate::pure::ids::{AccountId, KeyId, RequestId};
use crate::pure::money::{Credits, Pricing};
use crate::pure::numbers::{Birth, CallNumber, ProducerId};
use crate::pure::request_body::{Endpoint, PromptLimits};
use crate::pure::spend::EndUser;
use crate::pure::time::Timestamp;
use crate::pure::usage::{CompletionTokens, PromptTokens, Usage};

/// Bytes from one slot to the next.
pub(super) const SLOT_BYTES: usize = 512;

/// A slot as it lies in the file. Everything is little-endian, as on every machine that this is built for.
#[repr(C, align(64))]
pub(super) struct Slot {
    state: AtomicU32,
    /// When the call came, in seconds since 1970. Only read for metrics, so it has no check; 0 in journals of before it was written.
    since_secs: AtomicU32,
    /// Completion tokens that were passed on, or that the provider reported, with their check.
    delivered: AtomicU64,
    /// Prompt tokens that the provider reported, with their check.
    prompt: AtomicU64,
    /// What is held, in 10^-12 credit; 0 until it is granted, and once it is given back. Below 0: nothing any more, for the store acknowledged
    /// the debit so many milliseconds after 1970, and may still lose it. Only read from a living process, and for how long that is, so it has
    /// no check.
    held: AtomicI64,
    intent: UnsafeCell<[u8; INTENT_BYTES]>,
    debit: UnsafeCell<[u8; DEBIT_BYTES]>,
    /// The call's name: its producer, and its number with their check; 0 until it has one, and in journals of before there were names.
    producer: AtomicU64,
    number: AtomicU64,
}

// SAFETY: the cells are written only by the slot's one owner, before a release store of `state`; another thread reads them only when it
// has taken the slot over, which is ordered by the lock of the free list or by the start of the process.
unsafe impl Sync for Slot {}

const INTENT_BYTES: usize = 392;
const DEBIT_BYTES: usize = 72;

/// The states. No flipped byte turns one into another.
mod state {
    pub(super) const FREE: u32 = 0;
    pub(super) const HELD: u32 = 0x1111_a5a5;
    pub(super) const ANSWERED: u32 = 0x2222_5a5a;
    pub(super) const OWED: u32 = 0x4444_c3c3;
}

/// What a call is about to do: enough to bill or release it without its process, its catalogue or its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent<'a> {
    /// The request, and its hold.
    pub id: RequestId,
    /// Who pays.
    pub account: &'a AccountId,
    /// The key that asks.
    pub key: &'a KeyId,
    /// The model's id; at most [`MODEL_BYTES_MAX`] bytes.
    pub model: &'a str,
    /// The list prices that the call was admitted with.
    pub pricing: Pricing,
    /// What bounds its prompt.
    pub limits: PromptLimits,
    /// At most so many bytes of its request are text. By them its prompt is estimated where that is not kept.
    pub text_bytes: u64,
    /// Where it came in.
    pub endpoint: Endpoint,
    /// Under whose limit it counts beside its key's.
    pub end_user: Option<EndUser>,
}

/// An exact debit with the number under which the store knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NumberedDebit {
    pub(super) number: CallNumber,
    pub(super) usage: Usage,
    pub(super) cost: Credits,
}

/// What was found in a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) id: RequestId,
    pub(super) account: AccountId,
    pub(super) key: KeyId,
    pub(super) model: String,
    pub(super) pricing: Pricing,
    pub(super) limits: PromptLimits,
    pub(super) endpoint: Endpoint,
    pub(super) end_user: Option<EndUser>,
    pub(super) place: PromptPlace,
    pub(super) stage: FoundStage,
}

/// How far its call had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoundStage {
    /// Nothing is owed: nothing of an answer was passed on, or the hold was given back.
    Held {
        /// None when it has no name yet.
        number: Option<CallNumber>,
    },
    /// An answer had begun.
    Answered {
        delivered: CompletionTokens,
        /// As the provider reported it.
        prompt: Option<PromptTokens>,
        /// None in journals of before there were names.
        number: Option<CallNumber>,
    },
    /// It was over, and its debit stood.
    Owed(NumberedDebit),
}

/// Why a slot is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("its state is none")]
    State,
    #[error("its intent is damaged")]
    Intent,
    #[error("its counters are damaged")]
    Counters,
    #[error("its debit is damaged")]
    Debit,
    #[error("its number is damaged")]
    Number,
}

impl Slot {
    /// Writes an intent into a free slot.
    ///
    /// # Safety
    /// The slot is the caller's: it was claimed, and no other thread writes or reads its cells until it is free again.
    pub(super) unsafe fn hold(&self, intent: &Intent<'_>, place: PromptPlace) {
        let text = intent_bytes(intent, place);
        // SAFETY: the caller owns the slot, so nobody else touches the cell.
        unsafe { *self.intent.get() = text };
        self.set_since(Some(intent.id.time()));
        self.delivered.store(checked(0, intent.id), Ordering::Relaxed);
        self.prompt.store(NOT_REPORTED, Ordering::Relaxed);
        self.number.store(UNNAMED, Ordering::Relaxed);
        self.held.store(0, Ordering::Relaxed);
        self.state.store(state::HELD, Ordering::Release);
    }

    /// The store has granted this.
    pub(super) fn granted(&self, amount: Credits) {
        self.held.store(amount.pico(), Ordering::Release);
    }

    /// The store has granted more; never lowers what is held. Nothing where the call's owner has given it back meanwhile.
    pub(super) fn raised(&self, amount: Credits) {
        let (word, to) = (&self.held, amount.pico());
        let held = word.load(Ordering::Acquire);
        if held > 0 && held < to {
            let _ = word.compare_exchange(held, to, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// What is held.
    pub(super) fn held(&self) -> Credits {
        Credits::from_pico(self.held.load(Ordering::Acquire).max(0))
    }

    /// When the store acknowledged the debit, which it may still lose; none for a call of which that is not said.
    pub(super) fn kept_since(&self) -> Option<Timestamp> {
        let held = self.held.load(Ordering::Acquire);
        let is_kept = held < 0 && self.state.load(Ordering::Acquire) != state::FREE;
        is_kept.then(|| Timestamp(held.saturating_neg()))
    }

    /// Writes when the store acknowledged the debit; none when that is in doubt.
    pub(super) fn keep_since(&self, since: Option<Timestamp>) {
        let held = since.map_or(0, |since| since.0.max(1).saturating_neg());
        self.held.store(held, Ordering::Release);
    }

    /// When the call came that stands here; none when the slot is free. Anybody may ask.
    pub(super) fn since(&self) -> Option<Timestamp> {
        if self.state.load(Ordering::Acquire) == state::FREE {
            return None;
        }
        let secs = self.since_secs.load(Ordering::Relaxed);
        (secs > 0).then(|| Timestamp(i64::from(secs).saturating_mul(1000)))
    }

    /// Whether a call stands here that owes nothing yet, and was not given back. Anybody may ask.
    pub(super) fn runs(&self) -> bool {
        match self.state.load(Ordering::Acquire) {
            state::ANSWERED => true,
            // One that was given back with its name stays until that is closed.
            state::HELD => self.number.load(Ordering::Acquire) == UNNAMED,
            _ => false,
        }
    }

    /// Whether its end is known to the store, and it stays all the same.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.since_secs.load(Ordering::Relaxed) == 0
    }

    /// From when on its end is unknown to the store; none for one whose end is known.
    pub(super) fn set_since(&self, since: Option<Timestamp>) {
        let secs = since.map_or(0, |since| since.0.div_euclid(1000));
        self.since_secs
            .store(u32::try_from(secs).unwrap_or(0), Ordering::Relaxed);
    }

    /// An answer's first byte is about to be passed on.
    pub(super) fn answered(&self) {
        self.state.store(state::ANSWERED, Ordering::Release);
    }

    /// Tokens that are about to be passed on, in all.
    pub(super) fn deliver(&self, tokens: CompletionTokens, id: RequestId) {
        self.delivered.store(checked(tokens.0, id), Ordering::Release);
    }

    /// The provider's report of the prompt.
    pub(super) fn report_prompt(&self, tokens: PromptTokens, id: RequestId) {
        self.prompt.store(checked(tokens.0, id), Ordering::Release);
    }

    /// Writes the call's name, in place of the one that it may have. The caller owns the slot.
    pub(super) fn name(&self, number: CallNumber, id: RequestId) {
        self.number.store(UNNAMED, Ordering::Release);
        self.producer.store(number.producer.0, Ordering::Release);
        self.number.store(checked_number(number, id), Ordering::Release);
    }

    /// The call's name; none when it has none yet.
    fn named(&self, id: RequestId) -> Result<Option<CallNumber>, Refused> {
        let word = self.number.load(Ordering::Acquire);
        if word == UNNAMED {
            return Ok(None);
        }
        let producer = ProducerId(self.producer.load(Ordering::Acquire));
        let number = CallNumber::new(producer, word >> NUMBER_CHECK_BITS);
        if checked_number(number, id) == word {
            Ok(Some(number))
        } else {
            Err(Refused::Number)
        }
    }

    /// Writes the exact debit, of a call that has its name already when `is_named`.
    ///
    /// # Safety
    /// As [`Slot::hold`].
    pub(super) unsafe fn owe(&self, debit: &NumberedDebit, id: RequestId, is_named: bool) {
        let text = debit_bytes(debit, id);
        // A debit that gets another number: while it is written, the counters say what is owed.
        if self.state.load(Ordering::Relaxed) == state::OWED {
            self.deliver(debit.usage.completion, id);
            self.report_prompt(debit.usage.prompt, id);
            self.state.store(state::ANSWERED, Ordering::Release);
        }
        if !is_named {
            self.name(debit.number, id);
        }
        // SAFETY: the caller owns the slot, so nobody else touches the cell.
        unsafe { *self.debit.get() = text };
        self.state.store(state::OWED, Ordering::Release);
    }

    /// The call's hold is given back, whatever was passed on of its answer: whoever finds it here bills nothing. Its name stays. It
    /// says first that nothing is held, so that whoever reads here that a call with a name owes nothing finds that.
    pub(super) fn given_back(&self) {
        self.granted(Credits::ZERO);
        self.state.store(state::HELD, Ordering::Release);
    }

    /// Stores in one of its words what stands there, so that its page counts as changed. No other thread's store is lost or torn by it. Anybody may.
    pub(super) fn dirty(&self) {
        // For a 0 that the compiler knows it may leave the store out.
        self.delivered.fetch_or(std::hint::black_box(0), Ordering::Relaxed);
    }

    /// Frees the slot.
    pub(super) fn free(&self) {
        self.state.store(state::FREE, Ordering::Release);
    }

    /// Reads a slot of another process. None when it is free.
    ///
    /// # Errors
    /// When what stands in it is damaged, or is being written by a process that lives.
    ///
    /// # Safety
    /// No thread of this process writes to the slot meanwhile: it lies in the journal of a process that has died or of another that lives,
    /// or its one owner asks.
    pub(super) unsafe fn read(&self) -> Result<Option<Found>, Refused> {
        let state = self.state.load(Ordering::Acquire);
        if state == state::FREE {
            return Ok(None);
        }
        if ![state::HELD, state::ANSWERED, state::OWED].contains(&state) {
            return Err(Refused::State);
        }
        // SAFETY: as the caller promises, nobody here writes to the cell; of what another process writes meanwhile the checks tell.
        let intent = unsafe { *self.intent.get() };
        let mut found = read_intent(&intent).ok_or(Refused::Intent)?;
        found.stage = match state {
            state::ANSWERED => {
                let delivered = unchecked(self.delivered.load(Ordering::Acquire), found.id).ok_or(Refused::Counters)?;
                let prompt = match self.prompt.load(Ordering::Acquire) {
                    NOT_REPORTED => None,
                    word => Some(PromptTokens(unchecked(word, found.id).ok_or(Refused::Counters)?)),
                };
                FoundStage::Answered {
                    delivered: CompletionTokens(delivered),
                    prompt,
                    number: self.named(found.id)?,
                }
            }
            state::OWED => {
                // SAFETY: as above.
                let debit = unsafe { *self.debit.get() };
                let mut debit = read_debit(&debit, found.id).ok_or(Refused::Debit)?;
                if self.named(found.id)? != Some(debit.number) {
                    debit.number.born = Birth::default(); // Of before there were names: its producer says nothing of its birth.
                }
                FoundStage::Owed(debit)
            }
            _ => FoundStage::Held {
                number: self.named(found.id)?,
            },
        };
        Ok(Some(found))
    }
}

/// A count with its check in one word, so that one store writes both. Counts beyond 2^32 are kept as that many less one.
fn checked(count: u64, id: RequestId) -> u64 {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    u64::from(count) << 32 | u64::from(check(count, id))
}

fn unchecked(word: u64, id: RequestId) -> Option<u64> {
    let [count, found] = [word >> 32, word & u64::from(u32::MAX)].map(|half| u32::try_from(half).unwrap_or(0));
    (check(count, id) == found).then_some(u64::from(count))
}

/// Never 0, so that no word of zeros is believed.
fn check(count: u32, id: RequestId) -> u32 {
    let [.., a, b, c, d] = *id.as_bytes();
    let salt = u32::from_le_bytes([a, b, c, d]);
    (count ^ salt)
        .wrapping_mul(0x9e37_79b1)
        .rotate_left(15)
        .wrapping_mul(0x85eb_ca77)
        | 1
}

/// A number with its check in one word. Never 0: numbers count from 1.
fn checked_number(number: CallNumber, id: RequestId) -> u64 {
    let mut hasher = crc32fast::Hasher::new_with_initial(id_salt(id));
    hasher.update(&number.producer.0.to_le_bytes());
    hasher.update(&number.number.to_le_bytes());
    number.number << NUMBER_CHECK_BITS | u64::from(hasher.finalize() >> (32 - NUMBER_CHECK_BITS))
}

const NOT_REPORTED: u64 = 0;
const UNNAMED: u64 = 0;
/// The rest is the number: a million million calls of one account by one producer.
const NUMBER_CHECK_BITS: u32 = 24;

/// Longest model id that a slot takes, in bytes.
pub const MODEL_BYTES_MAX: usize = 200;
const ACCOUNT_BYTES_MAX: usize = 64;
const KEY_BYTES_MAX: usize = 32;
/// The kind of its limit's reset, and its id; zeros when there is none, and in journals of before there were limits.
const END_USER_BYTES: usize = 12;

const _: () = assert!(size_of::<Slot>() == SLOT_BYTES);
const _: () = assert!(
    4 + 16 + 1 + 32 + 16 + 12 + 1 + ACCOUNT_BYTES_MAX + 1 + KEY_BYTES_MAX + 1 + MODEL_BYTES_MAX + END_USER_BYTES
        <= INTENT_BYTES
);
const _: () = assert!(4 + 5 * 8 <= DEBIT_BYTES);
