//! All prices of a model: by side, by kind of token, and for long prompts. What they come to is rounded by [`super::money`] alone.

mod kinds;
mod table;

pub use self::kinds::KindPrices;
pub use self::table::{LongPromptRow, PriceRow, PriceTable};
