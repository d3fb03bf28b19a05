//! Records of a handshake that are cut or damaged on their way: neither side takes them for good ones, and neither breaks.

use proptest::prelude::*;

use super::*;

#[path = "../../../../fuzz/support.rs"]
#[allow(dead_code, clippy::print_stdout, reason = "it is shared by fuzz tests that use more of it")]
mod support;

use support::{cases, damage};

const CASES_USUAL: u32 = 300;

struct Ends {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Ends {
    /// With a certificate at both of them.
    fn new() -> Ends {
        let (files, ca) = (Files::new(), authority());
        let trust = files.trust(&ca);
        let server = server_config(&node(&ca, 1), CLUSTER, Some(trust.clone()), PROTOCOLS).unwrap();
        let verify = Verify::Cluster(CLUSTER.to_owned());
        let own = client(&ca, "billing");
        let client = client_config(verify, trust, Some(&own), &[ALPN_FRAMED]).unwrap();
        Ends { client: Arc::new(client), server: Arc::new(server) }
    }

    fn connect(&self) -> Met {
        let host = ServerName::try_from("localhost").unwrap();
        Met {
            client: ClientConnection::new(Arc::clone(&self.client), host).unwrap(),
            server: ServerConnection::new(Arc::clone(&self.server)).unwrap(),
        }
    }
}

thread_local! {
    static ENDS: Ends = Ends::new();
}

/// What one side sends, as it arrives. False if the other side has refused it.
fn pass(bytes: &[u8], to: &mut rustls::Connection) -> bool {
    let mut left = bytes;
    while !left.is_empty() {
        match to.read_tls(&mut left) {
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
        if to.process_new_packets().is_err() {
            return false;
        }
    }
    true
}

fn sent(from: &mut rustls::Connection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// The same records with one version in their headers: a receiver must not look at it (RFC 8446, section 5.1), so nothing
/// protects it.
fn with_one_version(flight: &[u8]) -> Vec<u8> {
    let (mut bytes, mut start) = (flight.to_vec(), 0);
    while let Some([_, first, second, high, low]) = bytes.get_mut(start..start + 5) {
        (*first, *second) = (3, 3);
        start += 5 + usize::from(u16::from_be_bytes([*high, *low]));
    }
    bytes
}

#[test]
fn a_version_in_the_header_of_a_record_does_not_count() {
    ENDS.with(|ends| {
        let Met { client, server } = ends.connect();
        let (mut client, mut server) =
            (rustls::Connection::Client(client), rustls::Connection::Server(server));
        assert!(pass(&sent(&mut client), &mut server));
        let good = sent(&mut server);
        let mut other = good.clone();
        other[2] = 2;
        assert_eq!(with_one_version(&other), with_one_version(&good));
        assert!(pass(&other, &mut client) && !client.is_handshaking());
    });
}

proptest! {
    #![proptest_config(cases(CASES_USUAL))]

    /// The flight with this number is damaged: the first is the client's hello, the second the node's answer, the third
    /// the client's certificate.
    #[test]
    fn a_damaged_handshake_is_never_completed(flight in 0..3usize, damage in damage()) {
        ENDS.with(|ends| {
            let Met { client, server } = ends.connect();
            let (mut client, mut server) =
                (rustls::Connection::Client(client), rustls::Connection::Server(server));
            for number in 0..3 {
                let (from, to) = match number % 2 {
                    0 => (&mut client, &mut server),
                    _ => (&mut server, &mut client),
                };
                let good = sent(from);
                let bytes = if number == flight { damage.of(&good, &good) } else { good.clone() };
                if bytes == good {
                    prop_assert!(pass(&bytes, to));
                    continue;
                }
                // What follows the whole flight is another record, which has to be refused later at the latest.
                if bytes.starts_with(&good) || with_one_version(&bytes) == with_one_version(&good) {
                    return Ok(());
                }
                let is_accepted = pass(&bytes, to);
                prop_assert!(!is_accepted || to.is_handshaking(), "flight {number}: {bytes:02x?}");
                return Ok(());
            }
            prop_assert!(!client.is_handshaking() && !server.is_handshaking());
            Ok(())
        })?;
    }

    /// A connection that ends in the middle of a record.
    #[test]
    fn a_cut_record_gives_nothing_to_read(cut: prop::sample::Index, said in "[a-z]{1,200}") {
        ENDS.with(|ends| {
            let Met { client, server } = ends.connect();
            let (mut client, mut server) =
                (rustls::Connection::Client(client), rustls::Connection::Server(server));
            for _ in 0..3 {
                prop_assert!(pass(&sent(&mut client), &mut server));
                prop_assert!(pass(&sent(&mut server), &mut client));
            }
            client.writer().write_all(said.as_bytes()).unwrap();
            let record = sent(&mut client);
            let cut = record.get(..cut.index(record.len())).unwrap();
            pass(cut, &mut server);
            let mut read = Vec::new();
            let _ = server.reader().read_to_end(&mut read);
            prop_assert!(read.is_empty(), "{read:?}");
            Ok(())
        })?;
    }
}
