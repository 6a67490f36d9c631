//! All prices of a model: by side, by kind of token, for long prompts, by the tier that a provider serves a call by, and for a call. What they
//! come to is rounded by [`super::money`] alone.

mod asks;
mod hold;
mod kinds;
mod rows;
mod table;

pub use self::asks::{Asks, CacheWrites};
pub use self::hold::HoldPrices;
pub use self::kinds::KindPrices;
pub use self::rows::{LongPromptRow, PriceRow, PriceRows};
pub use self::table::{PriceTable, Served, is_usual_tier};
