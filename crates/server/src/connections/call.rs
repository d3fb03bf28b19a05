//! One request: what it counts for, from its first byte to the end of its answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Connection;
use super::counts::State;
use super::limits::TooMuch;

/// A request, from its first byte to the end of its answer.
#[derive(Debug)]
pub(crate) struct Call {
    connection: Arc<Connection>,
    counted: Mutex<Counted>,
}

#[derive(Debug)]
struct Counted {
    bytes: usize,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Counted among the unfinished ones.
    Unfinished,
    /// A session on a framed connection that is not open yet. The idle time of the connection ends it.
    NotOpen,
    /// Its connection is in use.
    Whole,
}

/// Bytes of a request that are kept after they were decoded. They count until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldBytes {
    call: Arc<Call>,
    bytes: usize,
}

impl Call {
    pub(super) fn new(connection: &Arc<Connection>, stage: Stage) -> Arc<Call> {
        let counted = Mutex::new(Counted { bytes: 0, stage });
        Arc::new(Call { connection: Arc::clone(connection), counted })
    }

    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// More of the request has come.
    pub(crate) fn take_bytes(&self, bytes: usize) -> Result<(), TooMuch> {
        let (port, limits) = (&self.connection.port, &self.connection.port.limits);
        let mut state = port.lock();
        let state = &mut *state;
        let Some(entry) = state.connections.get_mut(&self.connection.number) else { return Ok(()) };
        let of = state.addresses.entry(self.connection.address).or_default();
        let too_much = if entry.bytes + bytes > limits.bytes_per_connection_max {
            Some(TooMuch::BytesOfConnection { max: limits.bytes_per_connection_max })
        } else if of.bytes + bytes > limits.bytes_per_address_max {
            Some(TooMuch::BytesOfAddress { max: limits.bytes_per_address_max })
        } else if state.used.bytes + bytes > limits.bytes_max {
            Some(TooMuch::BytesOfPort { max: limits.bytes_max })
        } else {
            None
        };
        if let Some(too_much) = too_much {
            state.used.refused_requests += 1;
            return Err(too_much);
        }
        entry.bytes += bytes;
        of.bytes += bytes;
        state.used.bytes += bytes;
        self.counted().bytes += bytes;
        Ok(())
    }

    /// The same for bytes that are kept until the guard is dropped.
    pub(crate) fn hold_bytes(self: &Arc<Self>, bytes: usize) -> Result<HeldBytes, TooMuch> {
        self.take_bytes(bytes)?;
        Ok(HeldBytes { call: Arc::clone(self), bytes })
    }

    /// So many bytes are in use no more.
    pub(crate) fn give_back(&self, bytes: usize) {
        let mut state = self.connection.port.lock();
        self.give_back_to(&mut state, bytes);
    }

    fn give_back_to(&self, state: &mut State, bytes: usize) {
        let mut counted = self.counted();
        let bytes = bytes.min(counted.bytes);
        counted.bytes -= bytes;
        let Some(entry) = state.connections.get_mut(&self.connection.number) else { return };
        entry.bytes -= bytes;
        state.used.bytes -= bytes;
        if let Some(of) = state.addresses.get_mut(&self.connection.address) {
            of.bytes -= bytes;
        }
    }

    /// The request has arrived whole, or its session is open: its connection is in use.
    pub(crate) fn is_whole(&self) {
        let mut state = self.connection.port.lock();
        let before = std::mem::replace(&mut self.counted().stage, Stage::Whole);
        if before == Stage::Unfinished {
            self.end_unfinished(&mut state);
        }
        if before != Stage::Whole {
            state.begin_use(self.connection.number);
        }
    }

    /// It was broken off because of a limit.
    pub(crate) fn is_refused(&self) {
        self.connection.port.lock().used.refused_requests += 1;
    }

    fn end_unfinished(&self, state: &mut State) {
        let Some(entry) = state.connections.get_mut(&self.connection.number) else { return };
        entry.unfinished -= 1;
        state.used.unfinished -= 1;
        if let Some(of) = state.addresses.get_mut(&self.connection.address) {
            of.unfinished -= 1;
        }
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let port = Arc::clone(&self.connection.port);
        let mut state = port.lock();
        self.give_back_to(&mut state, usize::MAX);
        let stage = self.counted().stage;
        match stage {
            Stage::Whole => state.end_use(self.connection.number),
            Stage::Unfinished => self.end_unfinished(&mut state),
            Stage::NotOpen => {}
        }
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.call.give_back(self.bytes);
    }
}
