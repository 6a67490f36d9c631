//! What can be wrong with money.

/// What can be wrong with an amount, a price or a markup.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    /// The text is not a plain decimal number.
    #[error("{0:?} is not a decimal number such as \"10.50\"")]
    NotDecimal(String),
    /// More decimals than the type can hold exactly.
    #[error("{text:?} has more than {max} decimals")]
    TooPrecise {
        /// The offending text.
        text: String,
        /// How many decimals are held.
        max: u32,
    },
    /// Below zero where only zero or more makes sense.
    #[error("{0:?} is negative")]
    Negative(String),
    /// Beyond what the type can hold.
    #[error("{0} is beyond the range of +-9.2 million credits")]
    OutOfRange(String),
    /// A price of a credit or more.
    #[error(
        "a price of {0} for one token is too high: prices are per token and below 1, \"0.15\" per million tokens is \"0.00000015\""
    )]
    PriceTooHigh(String),
    /// A markup that is none.
    #[error("a markup of {0} cannot be: it must be at least 1, which is the provider's own price, and below 100")]
    NoMarkup(String),
}
