//! Checks names of locks before the cluster is asked: a mistake ends with 64, also without a cluster.

use std::collections::BTreeSet;

use holdfast_core::{LockName, NameError};

use crate::exit::{Code, Problem};
use crate::text;

/// One of a list. Who writes a space behind the comma means the name without it, and would lock another.
pub(crate) fn parse_of_list(text: &str) -> Result<String, String> {
    if text != text.trim() && !LockName::is_blank(text) {
        return Err(format!(
            "'{text}' begins or ends with a space; write nothing but a comma between two names"
        ));
    }
    parse_new(text)
}

/// Of a lock that may not exist yet. What exists can be looked at and broken, whatever its name.
pub(crate) fn parse_new(text: &str) -> Result<String, String> {
    if !text.is_empty() && LockName::is_blank(text) {
        return Err("a name must not be blank; is a variable unset?".to_owned());
    }
    parse(text).map_err(|error| error.to_string())
}

/// All names that begin so, as a policy writes it or without the `*` at its end. A `*` that stands elsewhere would
/// match nothing but itself.
pub(crate) fn parse_prefix(text: &str) -> Result<String, String> {
    let prefix = text.strip_suffix('*').unwrap_or(text);
    match prefix.contains('*') {
        false => Ok(prefix.to_owned()),
        true => {
            Err("a * stands for the rest of a name, and only at its end: write PREFIX or 'PREFIX*'"
                .to_owned())
        }
    }
}

/// The same where an empty prefix would do harm: it may be a variable that is not set.
pub(crate) fn parse_prefix_to_freeze(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        let words = "it is empty, which would freeze everything; is a variable unset? '*' freezes everything";
        return Err(words.to_owned());
    }
    parse_prefix(text)
}

/// To take a lock twice would wait for oneself.
pub(crate) fn check_once_each(names: &[String]) -> Result<(), Problem> {
    let mut seen = BTreeSet::new();
    match names.iter().find(|name| !seen.insert(*name)) {
        None => Ok(()),
        Some(twice) => Err(Problem::new(
            Code::Usage,
            format!("--all names {} twice; name each lock once", text::quoted(twice)),
        )),
    }
}

/// By the same rule as the nodes.
pub(crate) fn parse(text: &str) -> Result<String, NameError> {
    LockName::new(text).map(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_written_with_a_star_at_its_end_or_without() {
        for (text, prefix) in
            [("billing/*", "billing/"), ("billing/", "billing/"), ("*", ""), ("", "")]
        {
            assert_eq!(parse_prefix(text).as_deref(), Ok(prefix));
        }
        for text in ["*/billing", "a**", "a*b*"] {
            assert!(parse_prefix(text).unwrap_err().contains("only at its end"), "{text}");
        }
    }

    #[test]
    fn everything_is_frozen_by_a_star_and_not_by_a_variable_that_is_not_set() {
        assert_eq!(parse_prefix_to_freeze("*").as_deref(), Ok(""));
        assert_eq!(parse_prefix_to_freeze("billing/*").as_deref(), Ok("billing/"));
        for text in ["", " "] {
            assert!(parse_prefix_to_freeze(text).unwrap_err().contains("is a variable unset?"));
        }
    }

    #[test]
    fn a_name_of_which_nothing_can_be_seen_is_refused_for_a_new_lock_only() {
        for text in ["", " ", "\u{3000}", "\u{200b}", " \u{feff}"] {
            assert!(parse_new(text).is_err() && parse_of_list(text).is_err(), "{text:?}");
        }
        assert_eq!(parse(" ").as_deref(), Ok(" "));
        assert_eq!(parse_new(" a").as_deref(), Ok(" a"));
        assert!(parse_of_list(" a").unwrap_err().contains("begins or ends with a space"));
    }
}
