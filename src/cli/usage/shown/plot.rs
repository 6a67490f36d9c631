//! The days as bars, in the shades of their models.

use super::UsageShown;
use crate::cli::output::{Align, Table, counted};
use crate::pure::credit_sum::CreditSum;

impl UsageShown {
    /// The models that have a shade of their own: those that cost most.
    fn shaded(&self) -> Vec<&str> {
        let dear = self.by_model.iter().filter(|line| line.sums.cost > CreditSum::ZERO);
        dear.take(SHADES.len() - 1).map(|line| line.model.as_str()).collect()
    }

    /// Which shade stands for which model.
    pub(super) fn legend(&self) -> String {
        let shaded = self.shaded();
        let mut lines = String::new();
        for (model, shade) in shaded.iter().zip(SHADES) {
            lines.push_str(&format!("{shade} {model}\n"));
        }
        let dear = self
            .by_model
            .iter()
            .filter(|line| line.sums.cost > CreditSum::ZERO)
            .count();
        if dear > shaded.len() {
            let others = u64::try_from(dear - shaded.len()).unwrap_or(u64::MAX);
            lines.push_str(&format!("{} {}\n", SHADES[SHADES.len() - 1], counted(others, "other")));
        }
        lines
    }

    /// A day's bar: as long as its cost is to `most`, in the shades of its models.
    fn day_bar(&self, day: &str, most: i128) -> String {
        let shaded = self.shaded();
        let mut parts = [0i128; SHADES.len()];
        for (model, cost) in self.spending.get(day).into_iter().flatten() {
            let shade = shaded
                .iter()
                .position(|known| known == model)
                .unwrap_or(SHADES.len() - 1);
            parts[shade] = parts[shade].saturating_add(*cost);
        }
        let (mut drawn, mut sum) = (String::new(), 0i128);
        for (part, shade) in parts.iter().zip(SHADES) {
            let from = bar_length(sum, most);
            sum = sum.saturating_add(*part);
            drawn.extend(std::iter::repeat_n(shade, bar_length(sum, most).saturating_sub(from)));
        }
        drawn
    }

    pub(super) fn day_table(&self) -> Table {
        let mut table = Table::new(&[
            ("DAY", Align::Left),
            ("REQUESTS", Align::Right),
            ("TOKENS", Align::Right),
            ("COST", Align::Point),
            ("", Align::Left),
        ]);
        let most = self.by_day.iter().map(|line| line.sums.cost.pico()).max().unwrap_or(0);
        for line in &self.by_day {
            let sums = &line.sums;
            table.row(vec![
                line.day.clone(),
                sums.requests.to_string(),
                sums.tokens.to_string(),
                sums.cost.to_string(),
                self.day_bar(&line.day, most),
            ]);
        }
        table
    }
}

/// The length that is to [`BAR_MAX`] as `value` is to `most`; what is above 0 shows.
fn bar_length(value: i128, most: i128) -> usize {
    if value <= 0 || most <= 0 {
        return 0;
    }
    let length = value.saturating_mul(BAR_MAX) / most;
    usize::try_from(length.clamp(1, BAR_MAX)).unwrap_or(0)
}

/// From the dearest model to all the others.
const SHADES: [char; 4] = ['█', '▓', '▒', '░'];
const BAR_MAX: i128 = 24;
