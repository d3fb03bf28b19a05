//! `holdfast completions`: what a shell needs to complete our arguments.

use std::process::ExitCode;

use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;

use crate::exit::Problem;
use crate::output;

/// Prints a script that completes commands and options in a shell.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast completions bash > ~/.local/share/bash-completion/completions/holdfast
  holdfast completions zsh > ~/.zfunc/_holdfast
  holdfast completions fish > ~/.config/fish/completions/holdfast.fish")]
pub(crate) struct CompletionsArgs {
    shell: ShellArg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ShellArg {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn run(args: &CompletionsArgs, mut command: Command) -> Result<ExitCode, Problem> {
    let shell = match args.shell {
        ShellArg::Bash => Shell::Bash,
        ShellArg::Zsh => Shell::Zsh,
        ShellArg::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "holdfast", &mut script);
    output::data_to_stdout(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
