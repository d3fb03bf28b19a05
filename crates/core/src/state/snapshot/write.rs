//! How the table is written: what is small first, then sessions, then locks.

use alloc::vec::Vec;

use super::{
    DEFERRED_PREFIX, DEFERRED_QUEUE, END, NEXT, VERSION, VERSION_OF_PUBLICATION, VERSION_USUAL,
    hold, session, wait,
};
use crate::model::codec::Sink;
use crate::model::id::SessionId;
use crate::model::name::LockName;
use crate::model::rules_version::RulesVersion;
use crate::model::time::LogicalTime;
use crate::state::deferred::Promotion;
use crate::state::ended_sessions::End;
use crate::state::lock::Lock;
use crate::state::session::Session;
use crate::state::snapshot_map::Written;
use crate::state::table::LockTable;

impl LockTable {
    pub(super) fn write_all(&self, sink: &mut impl Sink) {
        self.write_head(sink);
        let mut entry = Vec::new();
        for (id, session) in self.sessions.iter() {
            session.write(id, &mut entry);
            sink.put(&entry);
            entry.clear();
        }
        sink.u8(END);
        for (name, lock) in self.locks.iter() {
            lock.write(name, &mut entry);
            sink.put(&entry);
            entry.clear();
        }
        sink.u8(END);
    }

    /// What is small.
    pub(super) fn write_head(&self, sink: &mut impl Sink) {
        let version = match (self.rules, self.publication) {
            (RulesVersion::ONE, None) => VERSION_USUAL,
            (RulesVersion::ONE, Some(_)) => VERSION_OF_PUBLICATION,
            _ => VERSION,
        };
        sink.u8(version);
        if version == VERSION {
            self.rules.encode(sink);
        }
        sink.varint(self.now.as_ms());
        sink.varint(self.applied_index.0);
        sink.varint(self.last_token);
        sink.count(self.ended.len());
        let mut last = LogicalTime::ZERO;
        for (id, end, at) in self.ended.iter() {
            id.encode(sink);
            sink.u8(u8::from(end == End::Closed));
            if version == VERSION {
                // Times rise, so their differences are short.
                sink.varint(at.since(last).as_ms());
                last = at;
            }
        }
        sink.count(self.permits.len());
        for (name, limit) in &self.permits {
            sink.bytes(name.as_bytes());
            sink.varint(u64::from(*limit));
        }
        sink.count(self.freezes.len());
        for (prefix, freeze) in self.freezes.iter() {
            sink.bytes(prefix.as_bytes());
            sink.varint(freeze.until.as_ms());
            sink.bytes(freeze.by.as_bytes());
            sink.bytes(freeze.reason.as_bytes());
        }
        if version == VERSION {
            sink.varint(self.table_limits.bytes);
            sink.varint(self.table_limits.locks);
            sink.u8(u8::from(self.publication.is_some()));
        }
        if let Some(publication) = self.publication {
            publication.write(sink);
        }
        if self.rules >= RulesVersion::THREE {
            self.write_deferred(sink);
        }
        if self.rules >= RulesVersion::FOUR {
            self.access.write(sink, self.rules);
        }
        if self.rules >= RulesVersion::SEVEN {
            self.ownership.write(sink);
        }
        if self.rules >= RulesVersion::TEN {
            self.moves.write(sink);
        }
    }

    fn write_deferred(&self, sink: &mut impl Sink) {
        sink.count(self.deferred.iter().count());
        for promotion in self.deferred.iter() {
            match promotion {
                Promotion::Queue { name, passed } => {
                    sink.u8(DEFERRED_QUEUE);
                    sink.bytes(name.as_bytes());
                    sink.optional(passed.map(|ticket| ticket.0));
                }
                Promotion::Prefix { prefix, passed } => {
                    sink.u8(DEFERRED_PREFIX);
                    sink.bytes(prefix.as_bytes());
                    sink.u8(u8::from(passed.is_some()));
                    if let Some(passed) = passed {
                        sink.bytes(passed.as_bytes());
                    }
                }
            }
        }
    }
}

impl Written<SessionId> for Session {
    fn write(&self, id: &SessionId, bytes: &mut Vec<u8>) {
        bytes.u8(NEXT);
        id.encode(bytes);
        session::write(self, bytes);
        bytes.count(self.waits.len());
        for (request, wait) in self.waits.iter() {
            bytes.varint(request.0);
            wait::write(wait, bytes);
        }
    }
}

/// A lock that is only awaited is known by those who wait.
impl Written<LockName> for Lock {
    fn write(&self, name: &LockName, bytes: &mut Vec<u8>) {
        if self.holder_count() == 0 && self.closed_until().is_none() {
            return;
        }
        bytes.u8(NEXT);
        bytes.bytes(name.as_bytes());
        bytes.optional(self.closed_until().map(LogicalTime::as_ms));
        bytes.count(self.holder_count());
        for hold in self.holds() {
            hold::write(hold, bytes);
        }
    }
}
