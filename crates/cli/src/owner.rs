//! Who a session belongs to, as listings show it.
//!
//! The application says which command opened the session: `holdfast lock`, `holdfast elect` or `holdfast acquire`. This
//! is how a listing knows an election from a lock that is held with a reason. A text of `--owner` comes before it, in
//! front of brackets: `billing team (holdfast lock)`.

use clap::Args;
use holdfast_client::Owner;
use holdfast_core::LockName;

/// Of the 256 bytes that a cluster takes, with room for the command.
const TEXT_BYTES_MAX: usize = 200;

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct OwnerArgs {
    /// The owner that listings show, instead of the program's name.
    #[arg(long, value_name = "TEXT", value_parser = parse)]
    owner: Option<String>,
}

impl OwnerArgs {
    /// `command` is `lock`, `elect` or `acquire`; `note` is the program that runs under the lock.
    pub(crate) fn of(&self, command: &str, note: String) -> Owner {
        let application = match &self.owner {
            Some(text) => format!("{text} (holdfast {command})"),
            None => format!("holdfast {command}"),
        };
        let (host, pid) = (holdfast_client::host_name(), std::process::id());
        Owner { application, host, pid, note }
    }
}

fn parse(text: &str) -> Result<String, String> {
    let text = text.trim();
    if LockName::is_blank(text) {
        return Err("must not be blank".to_owned());
    }
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!("must be at most {TEXT_BYTES_MAX} bytes, and this has {}", text.len()));
    }
    match text.chars().find(|c| c.is_control()) {
        Some(_) => Err("must not have control characters, such as the end of a line".to_owned()),
        None => Ok(text.to_owned()),
    }
}

/// The text of `--owner`, or else the application as it is.
pub(crate) fn shown(application: &str) -> &str {
    match application.strip_suffix(')').and_then(|rest| rest.rsplit_once(" (holdfast ")) {
        Some((text, _)) => text,
        None => application,
    }
}

/// Which command of `holdfast` opened the session, if it was one.
pub(crate) fn command(application: &str) -> Option<&str> {
    match application.strip_suffix(')').and_then(|rest| rest.rsplit_once(" (holdfast ")) {
        Some((_, command)) => Some(command),
        None => application.strip_prefix("holdfast "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stands_for_the_application_and_the_command_is_known_with_and_without() {
        let plain = OwnerArgs::default().of("elect", "node.sh".into());
        assert_eq!((shown(&plain.application), plain.note.as_str()), ("holdfast elect", "node.sh"));
        assert_eq!(command(&plain.application), Some("elect"));
        let named = OwnerArgs { owner: Some("billing (EU)".into()) }.of("lock", String::new());
        assert_eq!(shown(&named.application), "billing (EU)");
        assert_eq!(command(&named.application), Some("lock"));
        assert_eq!((shown("worker"), command("worker")), ("worker", None));
    }

    #[test]
    fn what_no_listing_could_show_is_refused() {
        for text in ["", "  ", "\u{200b}", "a\nb", &"x".repeat(201)] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert_eq!(parse(" billing team ").as_deref(), Ok("billing team"));
    }
}
