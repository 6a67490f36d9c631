//! What a run of the program leaves, and how it is written. Where an answer with a secret cannot be written, what it is the secret of is
//! revoked again: it would work, and nobody would have it.

use std::io::{Error, ErrorKind, Write};

use super::ledger::ask;
use super::made::{Made, same};
use super::output::{Format, error_line};

/// What a run of the program leaves to be written, and how it ends.
#[derive(Debug, Default)]
pub struct Outcome {
    /// For standard output.
    pub stdout: String,
    /// For standard error.
    pub stderr: String,
    /// The exit status: 0, 1 for an error or a failed check, 2 for wrong usage.
    pub status: u8,
    /// How an error is told.
    pub(super) format: Format,
    /// What has its secret in `stdout` and nowhere else.
    pub(super) made: Option<Box<Made>>,
}

impl Outcome {
    /// Writes it, and gives the exit status, which is not 0 where the answer could not be written. A reader that has gone is no error then,
    /// unless the answer has a secret.
    pub fn write(self, stdout: &mut impl Write, stderr: &mut impl Write) -> u8 {
        let problem = match (written(stdout, &self.stdout), self.made) {
            (Ok(()), _) => None,
            (Err(error), Some(made)) => Some(taken_back(*made, &error)),
            // A reader that has gone, such as `head`, has read what it wanted.
            (Err(error), None) if error.kind() == ErrorKind::BrokenPipe => None,
            (Err(error), None) => Some(unwritten(&error)),
        };
        let status = self.status.max(u8::from(problem.is_some()));
        let told = problem.map_or_else(String::new, |problem| error_line(&problem, self.format));
        // Where the errors cannot be written either, only the exit status is left to say so.
        drop(written(stderr, &(told + &self.stderr)));
        status
    }
}

/// Revokes what nobody was given the secret of, and says what became of it.
fn taken_back(made: Made, error: &Error) -> String {
    let Made {
        config,
        id,
        revoke,
        typed,
        next,
    } = made;
    let unwritten = unwritten(error);
    let same = same(&config);
    match ask(&config, revoke) {
        Ok(_) => {
            format!(
                "{unwritten}; {id} was made, and is revoked again, for its secret stands in that answer alone; {next}"
            )
        }
        Err(failure) => format!(
            "{unwritten}; {id} was made, its secret stands in that answer alone, and it cannot be revoked ({failure}): \
             do it with `{typed} {id}` and the same {same}; {next}"
        ),
    }
}

fn unwritten(error: &Error) -> String {
    format!("cannot write the answer: {error}")
}

fn written(to: &mut impl Write, text: &str) -> std::io::Result<()> {
    to.write_all(text.as_bytes())?;
    to.flush()
}
