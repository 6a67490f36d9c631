//! What a call costs, computed apart from the gateway: (prompt tokens x price + completion tokens x price + price of a call) x markup, rounded
//! once, half to even, at 10^-12 credit.

/// The prices of a model with the markup, in units of 10^-24 credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Price {
    prompt: u128,
    completion: u128,
    request: u128,
}

impl Price {
    /// Of the decimal texts of a catalogue. None of what is none, or is finer than the unit.
    pub(crate) fn of(prompt: &str, completion: &str, request: &str, markup: &str) -> Option<Self> {
        // 10^-18 times 10^-6.
        let markup = decimal(markup, 6)?;
        let price = |text| decimal(text, 18)?.checked_mul(markup);
        Some(Self {
            prompt: price(prompt)?,
            completion: price(completion)?,
            request: price(request)?,
        })
    }

    /// Of so many tokens, in 10^-12 credit. A call without any costs nothing.
    pub(crate) fn cost(&self, prompt: u64, completion: u64) -> u128 {
        if prompt == 0 && completion == 0 {
            return 0;
        }
        half_even(self.request + u128::from(prompt) * self.prompt + u128::from(completion) * self.completion)
    }
}

/// A decimal text in units of 10^-`places`. None of anything else, or when it has more places.
pub(crate) fn decimal(text: &str, places: usize) -> Option<u128> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_number = !whole.is_empty() && (whole.len() == text.len() || !part.is_empty());
    if !is_number || part.len() > places || !whole.bytes().chain(part.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    format!("{whole}{part:0<places$}").parse().ok()
}

fn half_even(units: u128) -> u128 {
    let (whole, rest) = (units / PICO, units % PICO);
    match rest.cmp(&(PICO / 2)) {
        std::cmp::Ordering::Less => whole,
        std::cmp::Ordering::Greater => whole + 1,
        std::cmp::Ordering::Equal => whole + whole % 2,
    }
}

/// Units in 10^-12 credit.
const PICO: u128 = 1_000_000_000_000;
