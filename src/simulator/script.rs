//! What a request asks the simulation to do: the words after `simulate:`. The module's documentation describes each.

use std::time::Duration;

use super::refusal::{HELP, Refusal};

/// The words of one request, read. The default is a provider without faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Script {
    /// Instead of an answer, this status (and its `Retry-After`).
    pub(super) refuse: Option<(u16, Option<u64>)>,
    /// The pause before the first byte and before each token, instead of the configured ones.
    pub(super) pace: Option<Duration>,
    pub(super) trouble: Option<Trouble>,
    pub(super) usage: UsageReport,
    pub(super) terminator: Terminator,
    /// The length of the answer in tokens, instead of the usual text's.
    pub(super) tokens: Option<usize>,
}

/// What happens to the answer on its way. In a stream it happens when `after` events have been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    Stall { after: usize },
    Cut { after: usize },
    ErrorEvent { after: usize },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum UsageReport {
    #[default]
    True,
    Absurd,
    Missing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Terminator {
    #[default]
    Done,
    Missing,
}

impl Script {
    /// The script of a request, from its model's name and its text; the second value is the text without its script.
    /// An unknown word or a number out of range is a 400; a status that was asked for is returned as its refusal.
    pub(super) fn of<'t>(model: &str, text: &'t str) -> Result<(Self, &'t str), Refusal> {
        let mut script = Script::default();
        if let Some(words) = model.strip_prefix(PREFIX) {
            script.add(words)?;
        }
        let mut spoken = text;
        if let Some(rest) = text.trim_start().strip_prefix(PREFIX) {
            let (words, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            script.add(words)?;
            spoken = after.trim_start();
        }
        match script.refuse {
            Some((status, retry_after)) => Err(Refusal::simulated(status, retry_after)),
            None => Ok((script, spoken)),
        }
    }

    fn add(&mut self, words: &str) -> Result<(), Refusal> {
        words.split('+').try_for_each(|word| self.add_word(word))
    }

    fn add_word(&mut self, word: &str) -> Result<(), Refusal> {
        let unknown = || Refusal::invalid(None, format!("Unknown request `{PREFIX}{word}`. {HELP}"));
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.parse::<u32>().map_err(|_| unknown())?)),
            None => (word, None),
        };
        let events = |default: usize| value.map_or(default, |count| usize::try_from(count).unwrap_or(usize::MAX));
        match (name, value) {
            ("stall", _) => self.trouble = Some(Trouble::Stall { after: events(0) }),
            ("cut", _) => {
                self.trouble = Some(Trouble::Cut {
                    after: events(TROUBLE_AFTER),
                })
            }
            ("error-event", _) => {
                self.trouble = Some(Trouble::ErrorEvent {
                    after: events(TROUBLE_AFTER),
                })
            }
            ("slow", _) => {
                let pause = value.map_or(SLOW_PAUSE, |ms| Duration::from_millis(u64::from(ms)));
                self.pace = Some(pause.min(SLOW_PAUSE_MAX));
            }
            ("no-usage", None) => self.usage = UsageReport::Missing,
            ("bad-usage", None) => self.usage = UsageReport::Absurd,
            ("no-done", None) => self.terminator = Terminator::Missing,
            ("tokens", _) => self.tokens = Some(events(TOKENS).min(TOKENS_MAX)),
            (status, _) => match status.parse::<u16>() {
                Ok(status @ 400..=599) => self.refuse = Some((status, value.map(u64::from))),
                _ => return Err(unknown()),
            },
        }
        Ok(())
    }
}

/// Whether a model's name is a script and not a name.
pub(super) fn is_script(model: &str) -> bool {
    model.starts_with(PREFIX)
}
const TROUBLE_AFTER: usize = 3;
const SLOW_PAUSE: Duration = Duration::from_millis(250);
const SLOW_PAUSE_MAX: Duration = Duration::from_secs(60);
const TOKENS: usize = 1_000;
const TOKENS_MAX: usize = 200_000;

const PREFIX: &str = "simulate:";

#[cfg(test)]
mod tests {
    use super::*;

    fn script(words: &str) -> Script {
        Script::of("m", words).unwrap().0
    }

    #[test]
    fn words_are_read_from_the_model_and_from_the_text() {
        let (read, spoken) = Script::of("simulate:no-usage", " simulate:cut=4+no-done  Hello there").unwrap();
        let expected = Script {
            trouble: Some(Trouble::Cut { after: 4 }),
            usage: UsageReport::Missing,
            terminator: Terminator::Missing,
            ..Script::default()
        };
        assert_eq!((read, spoken), (expected, "Hello there"));
        assert_eq!(
            Script::of("gpt", "to simulate:429").unwrap(),
            (Script::default(), "to simulate:429")
        );
    }

    #[test]
    fn numbers_have_defaults_and_limits() {
        assert_eq!(script("simulate:stall").trouble, Some(Trouble::Stall { after: 0 }));
        assert_eq!(script("simulate:cut").trouble, Some(Trouble::Cut { after: 3 }));
        assert_eq!(
            script("simulate:error-event=1").trouble,
            Some(Trouble::ErrorEvent { after: 1 })
        );
        assert_eq!(script("simulate:slow=5").pace, Some(Duration::from_millis(5)));
        assert_eq!(script("simulate:slow=4000000000").pace, Some(SLOW_PAUSE_MAX));
        assert_eq!(script("simulate:tokens=4000000000").tokens, Some(TOKENS_MAX));
    }

    #[test]
    fn unknown_words_are_refused() {
        for word in [
            "",
            "x",
            "cut=",
            "cut=-1",
            "cut=x",
            "399",
            "600",
            "no-usage=1",
            "cut+",
            "429=99999999999",
        ] {
            assert_eq!(
                Script::of("m", &format!("simulate:{word}")).unwrap_err().status,
                400,
                "{word}"
            );
        }
        assert_eq!(Script::of("m", "simulate:502").unwrap_err().status, 502);
    }

    #[test]
    fn every_word_is_documented() {
        let docs = include_str!("mod.rs");
        for word in HELP
            .split([' ', ','])
            .filter(|word| word.contains('-') || ["stall", "cut", "slow", "tokens"].contains(word))
        {
            assert!(docs.contains(&format!("| `simulate:{word}` |")), "{word}");
            script(&format!("simulate:{word}"));
        }
    }
}
