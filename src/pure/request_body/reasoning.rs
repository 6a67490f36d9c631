//! What a request says of reasoning: the budget that it gives it, and whether it asks for any.

use super::scan::{Fault, Kind, Scanner, Value};
use super::{RequestBody, fold, prompt, text};

/// What a request's settings of reasoning come to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reasoning {
    /// What they need at least, in completion tokens of a choice; 0 when they need nothing.
    demanded: u64,
    /// They ask for some.
    is_asked: bool,
}

impl Reasoning {
    /// Reads the object of settings that comes next: `budget` is the member that the maximum has to exceed.
    pub(super) fn read(&mut self, scan: &mut Scanner<'_>, bytes: &[u8], budget: &'static str) -> Result<(), Fault> {
        let mut object = scan.open_object()?;
        while let Some(key) = scan.next_key(&mut object)? {
            let key = text::name(key, bytes);
            let is_budget = *key == *budget.as_bytes();
            if !is_budget {
                let [kind, effort, enabled] = SETTINGS;
                fold::check(&key, &[budget, kind, effort, enabled])?;
            }
            let value = scan.value()?;
            if is_budget || key.is_one_of(&SETTINGS) {
                self.note(value, bytes);
            }
            if let Some(tokens) = prompt::plain_integer(value, bytes).filter(|_| is_budget) {
                self.demanded = self.demanded.max(u64::from(tokens).saturating_add(1));
            }
        }
        Ok(())
    }

    /// A setting that says whether, or how much, the model is to reason.
    pub(super) fn note(&mut self, value: Value, bytes: &[u8]) {
        self.is_asked |= asks(value, bytes);
    }
}

impl RequestBody {
    /// The fewest completion tokens of one choice with which an upstream takes the request: one more than the budget that it gives to
    /// reasoning (`thinking.budget_tokens`, `reasoning.max_tokens`). 0 when it gives none.
    pub fn demanded_tokens(&self) -> u64 {
        self.reasoning.demanded
    }

    /// Whether it asks for reasoning: by such a budget above 0, by an effort other than `none` (`reasoning_effort`, `reasoning.effort`), or
    /// by switching it on (`thinking.type`, `reasoning.enabled`). A model may do that where nobody sees it.
    pub fn asks_reasoning(&self) -> bool {
        self.reasoning.is_asked
    }
}

/// Whether a setting asks for reasoning: it is none of the values that switch it off.
fn asks(value: Value, bytes: &[u8]) -> bool {
    match value.kind {
        Kind::Null | Kind::False => false,
        Kind::Number => prompt::plain_integer(value, bytes) != Some(0),
        Kind::Text(_) => value.text().is_none_or(|text| !text::name(text, bytes).is_one_of(&OFF)),
        Kind::True | Kind::Object | Kind::Array => true,
    }
}

/// The field of the request itself that says how much a model is to reason.
pub(super) const REASONING_EFFORT: &str = "reasoning_effort";
/// What says so in an object of settings, beside its budget.
const SETTINGS: [&str; 3] = ["type", "effort", "enabled"];
/// The values that ask for none.
const OFF: [&str; 2] = ["none", "disabled"];
