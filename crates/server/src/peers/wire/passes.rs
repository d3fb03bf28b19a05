//! Who may open a wire: the one to whom a welcome gave the pass, once, while its exchange lasts.

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_replica::NodeId;

pub(in crate::peers) const PASS_BYTES: usize = 16;

/// Nobody else guesses it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::peers) struct Pass(pub(in crate::peers) [u8; PASS_BYTES]);

impl std::fmt::Debug for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pass")
    }
}

#[derive(Clone, Debug, Default)]
pub(in crate::peers) struct Passes {
    issued: Arc<Mutex<BTreeMap<Pass, Issued>>>,
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
    passes: Passes,
    pub(in crate::peers) pass: Pass,
}

impl Held {
    /// The one to whom the pass was given has opened a wire.
    pub(in crate::peers) fn was_used(&self) -> bool {
        self.passes.lock().get(&self.pass).is_some_and(|issued| issued.wire.is_some())
    }
}

impl Passes {
    /// Fails if the system has no randomness.
    pub(in crate::peers) fn issue(&self, to: NodeId) -> Result<Held, getrandom::Error> {
        let mut bytes = [0; PASS_BYTES];
        getrandom::fill(&mut bytes)?;
        let pass = Pass(bytes);
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        self.lock().insert(pass, Issued { to, number, wire: None });
        Ok(Held { passes: self.clone(), pass })
    }

    /// Who showed the pass, and its number, which is higher than that of any issued before. None: nobody has this
    /// one, or has used it before.
    pub(in crate::peers) fn show(&self, pass: Pass, wire: TcpStream) -> Option<(NodeId, u64)> {
        let mut passes = self.lock();
        let issued = passes.get_mut(&pass).filter(|issued| issued.wire.is_none())?;
        issued.wire = Some(wire);
        Some((issued.to, issued.number))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Pass, Issued>> {
        self.issued.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let issued = self.passes.lock().remove(&self.pass);
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
    fn a_pass_opens_one_wire_which_ends_with_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let dial = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let passes = Passes::default();
        let held = passes.issue(NodeId(2)).unwrap();
        let (mut dialled, other) = (dial(), dial());
        assert_eq!(passes.show(held.pass, listener.accept().unwrap().0), Some((NodeId(2), 1)));
        assert_eq!(passes.show(held.pass, other), None, "used before");
        drop(held);
        assert_eq!(dialled.read(&mut [0]).unwrap(), 0, "the wire has ended");
        assert!(passes.lock().is_empty());
        assert_eq!(passes.show(Pass([0; PASS_BYTES]), dialled), None, "never issued");
    }
}
