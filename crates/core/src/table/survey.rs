//! Looking through many locks for the few that matter: those with the longest queues, those held longest,
//! those with some text in their names.
//!
//! A large table is gone through in parts, so that nobody waits for long who wants a lock meanwhile. What a
//! part shows is true of the moment in which it was looked at. Locks are met in the order of their names, so
//! of two with the same rank the first comes first, and a later part need only tell what ranks higher than
//! the last of those that are wanted.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Bound;

use super::LockTable;
use super::query::LockSummary;
use super::resource::Resource;
use crate::command::Mode;
use crate::id::PublicSessionId;

/// What is looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    pub prefix: String,
    /// Somewhere in the name; capital and small letters of ASCII are the same.
    pub contains: String,
    /// One of its holders.
    pub holder: Option<PublicSessionId>,
    /// Held exclusively, by somebody who shows something with it.
    pub only_with_value: bool,
    pub rank: Rank,
}

/// What makes a lock come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Its name alone.
    #[default]
    Name,
    QueueLength,
    HoldAge,
}

/// What was found in one part of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SurveyPart {
    /// In order of names, with their ranks.
    pub found: Vec<(u64, LockSummary)>,
    /// How many there are, those included that do not rank high enough.
    pub matched: usize,
    /// Go on after this name. None: that was all.
    pub next: Option<String>,
}

/// How much of it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    pub after: Option<&'a str>,
    pub locks_max: usize,
    /// Only what ranks higher. None: everything.
    pub above: Option<u64>,
    /// It ends when so many are found.
    pub found_max: usize,
}

impl LockTable {
    /// Looks through one part of the table.
    pub fn survey(&self, survey: &Survey, part: Part<'_>) -> SurveyPart {
        let prefix = survey.prefix.as_str();
        let start = match part.after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let mut told = SurveyPart::default();
        let under = self.resources.from(start).take_while(|(name, _)| name.starts_with(prefix));
        for (looked_at, (name, resource)) in under.enumerate() {
            if looked_at == part.locks_max || told.found.len() == part.found_max {
                return told;
            }
            told.next = Some(String::from(name.as_str()));
            let matches = contains(name, &survey.contains)
                && self.is_held_by(resource, survey.holder)
                && (!survey.only_with_value || has_value(resource));
            if !matches {
                continue;
            }
            told.matched += 1;
            let rank = survey.rank.of(resource);
            if part.above.is_none_or(|above| rank > above) {
                told.found.push((rank, self.summary(name, resource)));
            }
        }
        told.next = None;
        told
    }

    fn is_held_by(&self, resource: &Resource, holder: Option<PublicSessionId>) -> bool {
        let Some(holder) = holder else { return true };
        resource.holds().any(|hold| {
            self.sessions.get(&hold.session).is_some_and(|session| session.public == holder)
        })
    }
}

impl Rank {
    fn of(self, resource: &Resource) -> u64 {
        match self {
            Rank::Name => 0,
            Rank::QueueLength => resource.waiter_count() as u64,
            // The earlier the higher; what nobody holds has no age.
            Rank::HoldAge => {
                resource.holds().next().map_or(0, |hold| u64::MAX - hold.granted_at.as_ms())
            }
        }
    }
}

fn contains(name: &str, text: &str) -> bool {
    let (name, text) = (name.as_bytes(), text.as_bytes());
    text.is_empty() || name.windows(text.len()).any(|part| part.eq_ignore_ascii_case(text))
}

fn has_value(resource: &Resource) -> bool {
    let mut holds = resource.holds();
    holds.next().is_some_and(|hold| hold.mode == Mode::Exclusive && !hold.metadata().is_empty())
}
