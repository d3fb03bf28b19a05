//! The listening sockets of a node.

use std::io;

use tokio::net::{TcpListener, TcpSocket, lookup_host};

/// How many connections may wait until the node accepts them; the system's own limit (`net.core.somaxconn`) may be lower.
/// The system drops what comes beyond that, and the caller tries again after a second. With the usual 128 a burst of
/// connections made probes wait that long.
const WAITING_CONNECTIONS_MAX: u32 = 4_096;

/// Listens on the first address of the host that is free.
pub(crate) async fn listen(address: &str) -> io::Result<TcpListener> {
    let mut failure = io::Error::new(io::ErrorKind::InvalidInput, "the host has no address");
    for address in lookup_host(address).await? {
        let listened = || {
            let socket =
                if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            // A node that starts again soon gets its port back.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            socket.listen(WAITING_CONNECTIONS_MAX)
        };
        match listened() {
            Ok(listener) => return Ok(listener),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_burst_of_connections_that_are_not_accepted_yet_makes_no_caller_wait() {
        let listener = listen("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(500));
        let connected: Vec<io::Result<TcpStream>> = (0..300).map(connect).collect();
        assert!(connected.iter().all(Result::is_ok), "{connected:?}");
    }

    #[tokio::test]
    async fn an_address_in_use_is_an_error_of_its_own() {
        let first = listen("127.0.0.1:0").await.unwrap();
        let again = listen(&first.local_addr().unwrap().to_string()).await;
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
