//! Ports for nodes.
//!
//! Each is given once, and none is among those that systems give to outgoing connections: a node that was down
//! must find its ports free when it comes back, whatever other tests do meanwhile; and a connection to it that is tried
//! again and again would one day get that very port, and be connected to itself.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::TcpListener;
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

const PORTS: Range<u16> = 15_000..32_000;

/// It begins anywhere: other programs that test may run at the same time.
static NEXT: LazyLock<AtomicU64> =
    LazyLock::new(|| AtomicU64::new(RandomState::new().build_hasher().finish() >> 16));

/// So many that differ.
pub fn free_ports(count: usize) -> Vec<u16> {
    (0..count).map(|_| free_port()).collect()
}

pub fn free_port() -> u16 {
    free_base_port(1)
}

/// The first of so many in a row.
pub fn free_base_port(count: u16) -> u16 {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let room = u64::from(PORTS.end - PORTS.start - count);
    loop {
        let at = NEXT.fetch_add(count.into(), Ordering::Relaxed) % room;
        let base = PORTS.start + at as u16;
        if (base..base + count).all(is_free) {
            return base;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_are_none_of_outgoing_connections() {
        let ports: std::collections::BTreeSet<u16> = free_ports(15).into_iter().collect();
        assert_eq!(ports.len(), 15);
        assert!(ports.iter().all(|port| PORTS.contains(port)), "{ports:?}");
    }
}
