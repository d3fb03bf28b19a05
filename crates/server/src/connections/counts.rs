//! What the connections of a port have taken, by connection, by address and together; and which of them are idle.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::limits::TooMuch;
use super::{Connection, PortLimits};

/// What was counted, for `/metrics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortUse {
    pub(crate) connections: usize,
    pub(crate) idle: usize,
    pub(crate) unfinished: usize,
    pub(crate) bytes: usize,
    pub(crate) unwritten: usize,
    /// Connections that were closed as soon as they came.
    pub(crate) rejected: u64,
    /// Idle ones that made room for others.
    pub(crate) gave_way: u64,
    /// Idle ones that had their time.
    pub(crate) timed_out: u64,
    /// Requests that were refused or broken off because of a limit.
    pub(crate) refused_requests: u64,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) used: PortUse,
    last_number: u64,
    /// Closed, and not yet dropped by their tasks, which takes a moment.
    pub(super) closing: usize,
    pub(super) connections: HashMap<u64, Entry>,
    pub(super) addresses: HashMap<IpAddr, Address>,
}

#[derive(Debug, Default)]
pub(super) struct Address {
    pub(super) connections: usize,
    pub(super) calls: usize,
    pub(super) unfinished: usize,
    pub(super) bytes: usize,
    pub(super) unwritten: usize,
    /// Those first that never had a request, and among them those that have been idle for longest.
    pub(super) idle: BTreeMap<(bool, u64), u64>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) connection: Arc<Connection>,
    pub(super) calls: usize,
    pub(super) unfinished: usize,
    pub(super) bytes: usize,
    pub(super) unwritten: usize,
    /// What another node has said to the client and no answer was made of. It counts for the address and the port.
    pub(super) relayed: usize,
    /// Requests that were refused because of a limit.
    pub(super) refused: usize,
    /// Who waits until some of it is written.
    pub(super) writers: Vec<Waker>,
    /// Its key among the idle ones of its address.
    pub(super) idle: Option<(bool, u64)>,
    pub(super) idle_since: Instant,
    pub(super) had_request: bool,
}

/// Why a connection is not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// There may be room after this time.
    Yet(Duration),
    AtAll,
}

impl Entry {
    /// Whether a request may begin. Answers to changes are made in any case, and watches leave them room.
    pub(super) fn check_unread_at_begin(&self, limits: &PortLimits) -> Result<(), TooMuch> {
        if self.unwritten / 2 < limits.unwritten_per_connection_max {
            return Ok(());
        }
        Err(TooMuch::UnreadOfConnection { bytes: self.unwritten })
    }
}

impl State {
    /// Whether more may be made for the client of a connection: of answers to reads, of watches. One that has read
    /// everything gets more in any case.
    pub(super) fn check_unread(&self, number: u64, limits: &PortLimits) -> Result<(), TooMuch> {
        let Some(entry) = self.connections.get(&number) else { return Ok(()) };
        let (bytes, address) = (entry.unwritten, entry.connection.address);
        let of_address = self.addresses.get(&address).map_or(0, |of| of.unwritten);
        if bytes >= limits.unwritten_per_connection_max {
            Err(TooMuch::UnreadOfConnection { bytes })
        } else if bytes > 0 && of_address >= limits.unwritten_per_address_max {
            Err(TooMuch::UnreadOfAddress { bytes: of_address })
        } else if bytes > 0 && self.used.unwritten >= limits.unwritten_max {
            Err(TooMuch::UnreadOfPort { bytes: self.used.unwritten })
        } else {
            Ok(())
        }
    }

    pub(super) fn change_unwritten(&mut self, number: u64, change: impl Fn(usize) -> usize) {
        let Some(entry) = self.connections.get_mut(&number) else { return };
        let (before, address) = (entry.unwritten, entry.connection.address);
        entry.unwritten = change(before);
        let after = entry.unwritten;
        self.change_unwritten_of(address, before, after);
    }

    pub(super) fn change_relayed(&mut self, number: u64, change: impl Fn(usize) -> usize) {
        let Some(entry) = self.connections.get_mut(&number) else { return };
        let (before, address) = (entry.relayed, entry.connection.address);
        entry.relayed = change(before);
        let after = entry.relayed;
        self.change_unwritten_of(address, before, after);
    }

    fn change_unwritten_of(&mut self, address: IpAddr, before: usize, after: usize) {
        self.used.unwritten = self.used.unwritten - before + after;
        if let Some(of) = self.addresses.get_mut(&address) {
            of.unwritten = of.unwritten - before + after;
        }
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// A new one, which is idle.
    pub(super) fn add(&mut self, connection: Arc<Connection>) {
        let (number, address) = (connection.number, connection.address);
        self.used.connections += 1;
        self.addresses.entry(address).or_default().connections += 1;
        let entry = Entry {
            connection,
            calls: 0,
            unfinished: 0,
            bytes: 0,
            unwritten: 0,
            relayed: 0,
            refused: 0,
            writers: Vec::new(),
            idle: None,
            idle_since: Instant::now(),
            had_request: false,
        };
        self.connections.insert(number, entry);
        self.set_idle(number);
    }

    /// An idle one of the address with the most of them. A new one has the time `grace` for its first request.
    pub(super) fn close_idle(&mut self, now: Instant, grace: Duration) -> Result<(), NoRoom> {
        let most = self.addresses.iter().max_by_key(|(_, of)| of.idle.len());
        match most.map(|(address, _)| *address) {
            Some(address) => self.close_idle_of(address, now, grace),
            None => Err(NoRoom::AtAll),
        }
    }

    pub(super) fn close_idle_of(
        &mut self,
        address: IpAddr,
        now: Instant,
        grace: Duration,
    ) -> Result<(), NoRoom> {
        let first = self.addresses.get(&address).and_then(|of| of.idle.first_key_value());
        let number = first.map(|(_, number)| *number).ok_or(NoRoom::AtAll)?;
        let is_new = self.connections.get(&number).filter(|entry| !entry.had_request);
        if let Some(entry) = is_new {
            let age = now.saturating_duration_since(entry.idle_since);
            if let Some(left) = grace.checked_sub(age).filter(|left| !left.is_zero()) {
                return Err(NoRoom::Yet(left));
            }
        }
        self.used.gave_way += 1;
        self.close(number);
        Ok(())
    }

    /// It counts no more from here on. Its task ends it.
    pub(super) fn close(&mut self, number: u64) {
        if let Some(entry) = self.remove(number) {
            self.closing += 1;
            entry.connection.close();
        }
    }

    /// The same, because of what its other end has shown.
    pub(super) fn close_denied(&mut self, number: u64) {
        if let Some(entry) = self.connections.get(&number) {
            entry.connection.is_denied.store(true, Ordering::Release);
        }
        self.close(number);
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Entry> {
        self.set_used(number);
        let entry = self.connections.remove(&number)?;
        let address = entry.connection.address;
        self.used.connections -= 1;
        self.used.unfinished -= entry.unfinished;
        self.used.bytes -= entry.bytes;
        self.used.unwritten -= entry.unwritten + entry.relayed;
        if let Some(of) = self.addresses.get_mut(&address) {
            of.connections -= 1;
            of.calls -= entry.calls;
            of.unfinished -= entry.unfinished;
            of.bytes -= entry.bytes;
            of.unwritten -= entry.unwritten + entry.relayed;
            if of.connections == 0 {
                self.addresses.remove(&address);
            }
        }
        Some(entry)
    }

    fn set_idle(&mut self, number: u64) {
        let stamp = self.next_number();
        let Some(entry) = self.connections.get_mut(&number) else { return };
        let key = (entry.had_request, stamp);
        if entry.idle.is_none() {
            entry.idle = Some(key);
            entry.idle_since = Instant::now();
            self.used.idle += 1;
            if let Some(of) = self.addresses.get_mut(&entry.connection.address) {
                of.idle.insert(key, number);
            }
        }
    }

    fn set_used(&mut self, number: u64) {
        let Some(entry) = self.connections.get_mut(&number) else { return };
        if let Some(key) = entry.idle.take() {
            self.used.idle -= 1;
            if let Some(of) = self.addresses.get_mut(&entry.connection.address) {
                of.idle.remove(&key);
            }
        }
    }

    pub(super) fn begin_use(&mut self, number: u64) {
        let Some(entry) = self.connections.get_mut(&number) else { return };
        entry.calls += 1;
        entry.had_request = true;
        if let Some(of) = self.addresses.get_mut(&entry.connection.address) {
            of.calls += 1;
        }
        self.set_used(number);
    }

    pub(super) fn end_use(&mut self, number: u64) {
        let Some(entry) = self.connections.get_mut(&number) else { return };
        entry.calls -= 1;
        let is_idle = entry.calls == 0;
        if let Some(of) = self.addresses.get_mut(&entry.connection.address) {
            of.calls -= 1;
        }
        if is_idle {
            self.set_idle(number);
        }
    }
}
