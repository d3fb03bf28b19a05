//! Texts about sessions, kept by session. The public id is a digest of the secret one, and to compute it for each event
//! would cost more than all the rest of encoding it.
//!
//! Each session has one place, which it may share with others. The place has the text that was kept last.

use holdfast_core::SessionId;

const PLACES: usize = 1_024;

#[derive(Debug)]
pub(crate) struct SessionTexts {
    places: Vec<Option<(SessionId, Box<str>)>>,
}

impl Default for SessionTexts {
    fn default() -> SessionTexts {
        SessionTexts { places: vec![None; PLACES] }
    }
}

impl SessionTexts {
    pub(crate) fn get(&self, session: SessionId) -> Option<&str> {
        let (owner, text) = self.places.get(place(session))?.as_ref()?;
        (*owner == session).then_some(text)
    }

    pub(crate) fn keep(&mut self, session: SessionId, text: &str) {
        if let Some(there) = self.places.get_mut(place(session)) {
            *there = Some((session, Box::from(text)));
        }
    }

    pub(crate) fn forget(&mut self, session: SessionId) {
        if let Some(there) = self.places.get_mut(place(session))
            && there.as_ref().is_some_and(|(owner, _)| *owner == session)
        {
            *there = None;
        }
    }
}

/// Ids are random. A client that chooses others makes its own events slower to encode, and nothing else.
fn place(session: SessionId) -> usize {
    let mixed = session.0 ^ (session.0 >> 64);
    usize::try_from(mixed % PLACES as u128).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_that_of_its_session_or_none() {
        let (one, other) = (SessionId(5), SessionId(5 + PLACES as u128));
        assert_eq!(place(one), place(other));
        let mut texts = SessionTexts::default();
        assert_eq!(texts.get(one), None);
        texts.keep(one, "one");
        assert_eq!((texts.get(one), texts.get(other)), (Some("one"), None));
        texts.forget(other);
        assert_eq!(texts.get(one), Some("one"));
        texts.keep(other, "other");
        assert_eq!((texts.get(one), texts.get(other)), (None, Some("other")));
        texts.forget(other);
        assert_eq!(texts.get(other), None);
    }
}
