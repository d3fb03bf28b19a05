//! Whether the driver gave a token after the hold's true end.

use crate::audit::Event;
use crate::driver::Asked;
use crate::finding::{Checked, ensure, violation};

/// The driver gave this token after it was asked.
#[derive(Debug, Clone)]
pub(crate) struct TokenGiven {
    pub(crate) name: String,
    pub(crate) token: String,
    pub(crate) asked: Asked,
}

/// No token that the driver gave was asked for after the hold's true end.
pub(crate) fn judge_tokens(given: &[TokenGiven], events: &[Event]) -> Checked {
    for TokenGiven { name, token, asked } in given {
        let of_hold =
            || events.iter().filter(|event| event.token == *token && event.names.contains(name));
        // A conversion ends one hold and begins another; a transfer begins that of the next session.
        let begins = |event: &Event| !event.ends_hold() || is_handed_on(event);
        ensure(of_hold().any(begins), || {
            format!("the driver gave the token {token} of {name}, which was never granted")
        })?;
        // Readers share a token: the last of their ends counts.
        let ends = of_hold().filter(|event| event.ends_hold() && event.kind != "converted");
        if let Some(end) = ends.map(|event| event.unix_ms).max()
            && asked.unix_ms > end
        {
            let late = asked.unix_ms - end;
            return violation(format!(
                "the driver gave the token {token} of {name} {late} ms after the hold's end"
            ));
        }
    }
    Ok(())
}

fn is_handed_on(event: &Event) -> bool {
    event.kind == "converted" || event.kind == "transferred"
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn event(kind: &str, unix_ms: u64) -> Event {
        let (names, session) = (vec!["a".to_owned()], "s".to_owned());
        Event { kind: kind.to_owned(), names, session, token: "7".to_owned(), group: 1, unix_ms }
    }

    fn given_at(unix_ms: u64) -> TokenGiven {
        let asked = Asked { at: Instant::now(), unix_ms };
        TokenGiven { name: "a".to_owned(), token: "7".to_owned(), asked }
    }

    #[test]
    fn a_token_is_late_only_if_it_was_asked_for_after_the_end() {
        let events = [event("granted", 100), event("expired", 200)];
        assert!(judge_tokens(&[given_at(150), given_at(200)], &events).is_ok());
        let late = judge_tokens(&[given_at(201)], &events).unwrap_err();
        assert!(late.to_string().contains("1 ms after the hold's end"), "{late}");
    }

    #[test]
    fn readers_share_a_token_until_the_last_of_them_ends() {
        let ends = [event("released", 200), event("released", 300)];
        let events: Vec<Event> = [event("granted", 100)].into_iter().chain(ends).collect();
        assert!(judge_tokens(&[given_at(250)], &events).is_ok());
    }

    #[test]
    fn a_token_that_was_never_granted_is_found() {
        assert!(judge_tokens(&[given_at(150)], &[]).is_err());
    }
}
