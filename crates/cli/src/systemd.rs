//! What systemd is told about a node that it started with `Type=notify`: that it has started, that it stops, and,
//! if a watchdog watches, that its loop still turns. Without systemd, nothing.

use std::env;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use holdfast_server::Liveness;
use tokio::time::sleep;

pub(crate) const READY: &str = "READY=1";
pub(crate) const STOPPING: &str = "STOPPING=1";
const ALIVE: &str = "WATCHDOG=1";

/// The socket on which systemd listens, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Systemd {
    socket: Option<UnixDatagram>,
    /// Half of what the watchdog allows.
    watchdog_interval: Option<Duration>,
}

impl Systemd {
    pub(crate) fn from_environment() -> Systemd {
        let Some(address) = env::var_os("NOTIFY_SOCKET") else { return Systemd::default() };
        match connect(address.as_bytes()) {
            Ok(socket) => {
                let value = |name| env::var(name).ok();
                let interval = watchdog_interval(
                    value("WATCHDOG_USEC"),
                    value("WATCHDOG_PID"),
                    std::process::id(),
                );
                Systemd { socket: Some(socket), watchdog_interval: interval }
            }
            Err(error) => {
                tracing::warn!(%error, "NOTIFY_SOCKET is set, and no process answers there");
                Systemd::default()
            }
        }
    }

    /// For as long as it is awaited. Once the node's loop stands still the watchdog hears nothing, and acts.
    pub(crate) async fn reassure(&self, node: Liveness) {
        let Some(interval) = self.watchdog_interval else { return std::future::pending().await };
        loop {
            if node.is_turning() {
                self.tell(ALIVE);
            }
            sleep(interval).await;
        }
    }

    pub(crate) fn tell(&self, state: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(state.as_bytes())
        {
            tracing::warn!(%error, "cannot send {state} to systemd");
        }
    }
}

/// A path, or a name without one if it begins with `@`.
fn connect(address: &[u8]) -> io::Result<UnixDatagram> {
    let address = match address.strip_prefix(b"@") {
        Some(name) => without_path(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(address))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(target_os = "linux")]
fn without_path(name: &[u8]) -> io::Result<SocketAddr> {
    <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn without_path(_: &[u8]) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}

fn watchdog_interval(usec: Option<String>, pid: Option<String>, me: u32) -> Option<Duration> {
    let is_mine = pid.is_none_or(|pid| pid.parse() == Ok(me));
    let usec: u64 = usec?.parse().ok().filter(|usec| *usec > 1 && is_mine)?;
    Some(Duration::from_micros(usec / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_is_for_the_process_that_it_names() {
        let interval = |usec: &str, pid: Option<&str>| {
            watchdog_interval(Some(usec.to_owned()), pid.map(str::to_owned), 7)
        };
        assert_eq!(interval("3000000", None), Some(Duration::from_millis(1_500)));
        assert_eq!(interval("3000000", Some("7")), Some(Duration::from_millis(1_500)));
        assert_eq!(interval("3000000", Some("8")), None);
        assert_eq!(interval("0", None), None);
        assert_eq!(interval("soon", None), None);
        assert_eq!(watchdog_interval(None, None, 7), None);
    }
}
