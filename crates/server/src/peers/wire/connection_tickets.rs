//! Which node is at the other end of a connection: the one to which a welcome gave the ticket, while its exchange lasts.
//! A ticket opens one wire, and goes with each action that the node forwards.

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_replica::NodeId;

use crate::peers::peer_socket::Shown;

pub(in crate::peers) const TICKET_BYTES: usize = 16;

/// No other node can guess it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionTicket(pub(in crate::peers) [u8; TICKET_BYTES]);

impl ConnectionTicket {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for ConnectionTicket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConnectionTicket")
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionTickets {
    issued: Arc<Mutex<BTreeMap<ConnectionTicket, Issued>>>,
    last_number: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Issued {
    to: NodeId,
    number: u64,
    /// Once it is open: by this the end of the exchange ends it.
    wire: Option<TcpStream>,
}

/// Of one exchange. When it is dropped, so is the wire.
#[derive(Debug)]
pub(in crate::peers) struct Held {
    tickets: ConnectionTickets,
    pub(in crate::peers) ticket: ConnectionTicket,
}

impl Held {
    /// The one to whom the ticket was given has opened a wire.
    pub(in crate::peers) fn was_used(&self) -> bool {
        self.tickets.lock().get(&self.ticket).is_some_and(|issued| issued.wire.is_some())
    }
}

impl ConnectionTickets {
    /// Fails if the system has no randomness.
    pub(in crate::peers) fn issue(&self, to: NodeId) -> Result<Held, getrandom::Error> {
        let mut bytes = [0; TICKET_BYTES];
        getrandom::fill(&mut bytes)?;
        let ticket = ConnectionTicket(bytes);
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        self.lock().insert(ticket, Issued { to, number, wire: None });
        Ok(Held { tickets: self.clone(), ticket })
    }

    /// The node that the ticket was issued to, and its number, which is higher than that of any issued before. None if
    /// the ticket was not issued, or to another node, or was used before.
    pub(in crate::peers) fn show(
        &self,
        ticket: ConnectionTicket,
        by: &Shown,
        wire: TcpStream,
    ) -> Option<(NodeId, u64)> {
        let mut tickets = self.lock();
        let is_good = |issued: &&mut Issued| issued.wire.is_none() && by.may_be(issued.to);
        let issued = tickets.get_mut(&ticket).filter(is_good)?;
        issued.wire = Some(wire);
        Some((issued.to, issued.number))
    }

    /// The node that has this ticket now, if it is the one that shows it.
    pub(crate) fn holder(&self, ticket: &[u8], by: &Shown) -> Option<NodeId> {
        let ticket = ConnectionTicket(ticket.try_into().ok()?);
        self.lock().get(&ticket).map(|issued| issued.to).filter(|node| by.may_be(*node))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ConnectionTicket, Issued>> {
        self.issued.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let issued = self.tickets.lock().remove(&self.ticket);
        if let Some(wire) = issued.and_then(|issued| issued.wire) {
            // If it is gone already, all the better.
            let _ = wire.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_connection_ticket_opens_one_wire_which_ends_with_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let dial = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let tickets = ConnectionTickets::default();
        let held = tickets.issue(NodeId(2)).unwrap();
        let (mut dialled, other) = (dial(), dial());
        assert_eq!(
            tickets.show(held.ticket, &Shown::Nothing, listener.accept().unwrap().0),
            Some((NodeId(2), 1))
        );
        assert_eq!(tickets.show(held.ticket, &Shown::Nothing, other), None, "used before");
        assert_eq!(tickets.holder(held.ticket.as_bytes(), &Shown::Nothing), Some(NodeId(2)));
        assert_eq!(tickets.holder(&[0; 3], &Shown::Nothing), None);
        let ticket = held.ticket;
        drop(held);
        assert_eq!(
            tickets.holder(ticket.as_bytes(), &Shown::Nothing),
            None,
            "the exchange has ended"
        );
        assert_eq!(dialled.read(&mut [0]).unwrap(), 0, "the wire has ended");
        assert!(tickets.lock().is_empty());
        assert_eq!(
            tickets.show(ConnectionTicket([0; TICKET_BYTES]), &Shown::Nothing, dialled),
            None,
            "never issued"
        );
    }
}
