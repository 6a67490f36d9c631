//! `tollgate completions` and `tollgate man`: the command line described for shells and for `man`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use super::failure::Failure;
use super::output::{Answer, Format, json_line};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tollgate completions bash > /usr/share/bash-completion/completions/tollgate\n  \
    tollgate completions zsh > ~/.zfunc/_tollgate\n  \
    tollgate completions fish > ~/.config/fish/completions/tollgate.fish")]
pub(super) struct CompletionsArgs {
    /// Which shell
    shell: Shell,
}

pub(super) fn completions(args: &CompletionsArgs, format: Format) -> Result<Answer, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tollgate", &mut script);
    said(script, format)
}

/// The page of the command, with those of its subcommands behind it.
pub(super) fn man(format: Format) -> Result<Answer, Failure> {
    let mut page = Vec::new();
    let mut command = Cli::command();
    command.build();
    let failed = |error: std::io::Error| Failure::new(error.to_string());
    clap_mangen::Man::new(command.clone())
        .render(&mut page)
        .map_err(failed)?;
    for command in command.get_subcommands() {
        let man = clap_mangen::Man::new(command.clone());
        page.extend_from_slice(format!(".SH TOLLGATE {}\n", command.get_name().to_uppercase()).as_bytes());
        man.render_synopsis_section(&mut page).map_err(failed)?;
        man.render_description_section(&mut page).map_err(failed)?;
        if command.get_opts().next().is_some() || command.get_positionals().next().is_some() {
            man.render_options_section(&mut page).map_err(failed)?;
        }
        if command.has_subcommands() {
            man.render_subcommands_section(&mut page).map_err(failed)?;
        }
    }
    let page = String::from_utf8(page).map_err(|error| Failure::new(error.to_string()))?;
    said(page.lines().map(by_its_words).collect::<String>().into_bytes(), format)
}

/// A line of the page. A subcommand is named as it is typed: it has no page of its own, which `tollgate-key(1)` would be.
fn by_its_words(line: &str) -> String {
    match line.strip_suffix("(1)").filter(|line| line.starts_with("tollgate\\-")) {
        Some(name) => format!("\\fB{}\\fR\n", name.replace("\\-", " ")),
        None => format!("{line}\n"),
    }
}

fn said(text: Vec<u8>, format: Format) -> Result<Answer, Failure> {
    let text = String::from_utf8(text).map_err(|error| Failure::new(error.to_string()))?;
    let text = match format {
        Format::Text => text,
        Format::Json => json_line(&serde_json::json!({ "text": text }))?,
    };
    Ok(Answer {
        text,
        ..Answer::default()
    })
}
