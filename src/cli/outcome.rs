//! What a run of the program leaves, and how it is written. Where an answer with a secret cannot be written, what it is the secret of is
//! revoked again: it would work, and nobody would have it.

use std::fs::{File, Metadata};
use std::io::{Error, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

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
        let told = written(stdout, &self.stdout);
        self.ended(told, stderr)
    }

    /// The same with this process's own outputs. An answer with a secret that goes to the null device is not written: nobody can read it.
    pub fn write_out(self) -> u8 {
        let told = match self.stdout.is_empty() {
            true => Ok(()),
            false => standard_output().and_then(|mut stdout| {
                if self.made.is_some() && is_null_device(&stdout) {
                    return Err(Error::other(UNREAD));
                }
                written(&mut stdout, &self.stdout)
            }),
        };
        self.ended(told, &mut std::io::stderr())
    }

    /// Tells what is to be told beside the answer, and gives the exit status.
    fn ended(self, told: std::io::Result<()>, stderr: &mut impl Write) -> u8 {
        let problem = match (told, self.made) {
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

/// Standard output as a file: `Stdout` itself takes a descriptor that cannot be written to for one to which all was written.
fn standard_output() -> std::io::Result<File> {
    std::io::stdout().as_fd().try_clone_to_owned().map(File::from)
}

/// Whether what is written there is thrown away. A standard output that was closed is the null device too: it is opened so before `main`.
fn is_null_device(file: &File) -> bool {
    let device = |metadata: Metadata| metadata.file_type().is_char_device().then(|| metadata.rdev());
    let null = std::fs::metadata(NULL_DEVICE).ok().and_then(device);
    let this = file.metadata().ok().and_then(device);
    null.is_some() && this == null
}

const NULL_DEVICE: &str = "/dev/null";
const UNREAD: &str = "standard output is closed or /dev/null, where nobody can read it";
