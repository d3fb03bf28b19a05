//! Writes down what the clients asked and were told, as the checkers want to know it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use holdfast_core::{FenceToken, LockName, RequestId, SessionId};
use holdfast_proto::v1;
use holdfast_sim::history::{ClientOperation, History, Input, Output, RealTime, StoreWrite};

/// Shared by all clients of a run.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    started: Instant,
    record: Arc<Mutex<Record>>,
}

/// An operation that was begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun(usize);

#[derive(Debug, Default)]
struct Record {
    operations: Vec<ClientOperation>,
    writes: Vec<StoreWrite>,
    /// The highest token that the protected resource has seen, by name.
    store: BTreeMap<LockName, FenceToken>,
    /// Reads name sessions by what may be shown of them. Who that is may be known only later.
    reads: Vec<(Begun, Read)>,
    by_public_id: BTreeMap<String, SessionId>,
    by_note: BTreeMap<String, SessionId>,
}

#[derive(Debug)]
struct Read {
    at: RealTime,
    last_sent: RealTime,
    status: v1::StatusResponse,
}

impl Recorder {
    pub(crate) fn new() -> Recorder {
        Recorder { started: Instant::now(), record: Arc::default() }
    }

    pub(crate) fn now(&self) -> RealTime {
        RealTime(self.started.elapsed().as_micros() as u64)
    }

    /// A session that chooses its own id.
    pub(crate) fn knows_public_id(&self, public_id: String, session: SessionId) {
        self.record().by_public_id.insert(public_id, session);
    }

    /// A session whose id only the client library knows: it shows itself by its owner's note.
    pub(crate) fn knows_note(&self, note: String, session: SessionId) {
        self.record().by_note.insert(note, session);
    }

    pub(crate) fn begin(&self, session: SessionId, request: RequestId, input: Input) -> Begun {
        self.begin_at(self.now(), session, request, input)
    }

    /// For what began without a call: at `invoked`, or later.
    pub(crate) fn begin_at(
        &self,
        invoked: RealTime,
        session: SessionId,
        request: RequestId,
        input: Input,
    ) -> Begun {
        let mut record = self.record();
        record.operations.push(ClientOperation {
            session,
            request,
            input,
            invoked,
            returned: None,
            last_sent: invoked,
        });
        Begun(record.operations.len() - 1)
    }

    pub(crate) fn finish(&self, begun: Begun, last_sent: RealTime, output: Output) {
        let now = self.now();
        if let Some(operation) = self.record().operations.get_mut(begun.0) {
            operation.returned = Some((now, output));
            operation.last_sent = last_sent;
        }
    }

    pub(crate) fn finish_read(
        &self,
        begun: Begun,
        last_sent: RealTime,
        status: v1::StatusResponse,
    ) {
        let read = Read { at: self.now(), last_sent, status };
        self.record().reads.push((begun, read));
    }

    /// A write to the protected resource, if `believed` still gives a token. It is asked when nothing
    /// stands between the answer and the write but this process's own pauses.
    pub(crate) fn write<E>(
        &self,
        session: SessionId,
        name: &LockName,
        believed: impl FnOnce() -> Result<FenceToken, E>,
    ) -> Result<(), E> {
        let mut record = self.record();
        let looked = self.now();
        let token = believed()?;
        let highest = record.store.entry(name.clone()).or_insert(token);
        let accepted = token >= *highest;
        *highest = token.max(*highest);
        let (at, name) = (self.now(), name.clone());
        record.writes.push(StoreWrite {
            at,
            session,
            name,
            token,
            accepted,
            believed: looked,
            clock_stood_still: false,
        });
        Ok(())
    }

    /// All that was recorded. Call it when the clients have stopped.
    pub(crate) fn history(&self) -> History {
        let mut record = self.record();
        let reads = std::mem::take(&mut record.reads);
        for (begun, read) in reads {
            let holder = read.status.holders.first().map(|holder| {
                let session = record.session_of(holder);
                (session, FenceToken(holder.token))
            });
            let output = Output::Status { holder, waiters: read.status.waiter_count };
            if let Some(operation) = record.operations.get_mut(begun.0) {
                operation.returned = Some((read.at, output));
                operation.last_sent = read.last_sent;
            }
        }
        History {
            operations: record.operations.clone(),
            writes: record.writes.clone(),
            end: self.now(),
            ..History::default()
        }
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Record {
    /// An unknown holder is a session of its own, and a violation for the checkers to find.
    fn session_of(&self, holder: &v1::Holder) -> SessionId {
        let note = holder.owner.as_ref().map_or("", |owner| owner.note.as_str());
        let known = self.by_public_id.get(&holder.public_session_id);
        let known = known.or_else(|| self.by_note.get(note)).copied();
        known.unwrap_or_else(|| {
            let public = u64::from_str_radix(&holder.public_session_id, 16).unwrap_or_default();
            SessionId(u128::from(public))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(recorder: &Recorder, token: u64) {
        let name = LockName::new("wallet").unwrap();
        let believed = || Ok::<_, ()>(FenceToken(token));
        recorder.write(SessionId(1), &name, believed).unwrap();
    }

    #[test]
    fn the_store_refuses_a_token_that_is_lower_than_one_it_has_seen() {
        let recorder = Recorder::new();
        for token in [5, 5, 7, 6, 7] {
            written(&recorder, token);
        }
        let accepted: Vec<bool> = recorder.history().writes.iter().map(|w| w.accepted).collect();
        assert_eq!(accepted, [true, true, true, false, true]);
    }

    #[test]
    fn a_read_names_the_session_that_was_made_known_after_it() {
        let recorder = Recorder::new();
        let name = LockName::new("wallet").unwrap();
        let begun = recorder.begin(SessionId(9), RequestId(1), Input::Status { name });
        let owner = v1::Owner { note: "library 1".into(), ..Default::default() };
        let holder = v1::Holder { owner: Some(owner), token: 3, ..Default::default() };
        let status = v1::StatusResponse { holders: vec![holder], ..Default::default() };
        recorder.finish_read(begun, recorder.now(), status);
        recorder.knows_note("library 1".into(), SessionId(4));
        let history = recorder.history();
        let Some((_, Output::Status { holder, .. })) = &history.operations[0].returned else {
            panic!("not a read: {:?}", history.operations[0]);
        };
        assert_eq!(*holder, Some((SessionId(4), FenceToken(3))));
    }
}
