//! Where a node listens and is reached: `host:port`.
//!
//! The host may be a name, because that is what container platforms hand out. It is looked up when
//! the node binds or dials, not when the file is read.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::Deserialize;

/// `127.0.0.1:7420`, `[::1]:7420` or `node-1.example:7420`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Address {
    text: String,
    port: u16,
}

/// Why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not an address: {what}; write host:port, for example 127.0.0.1:7420")]
pub struct AddressError {
    text: String,
    what: &'static str,
}

impl Address {
    pub fn new(text: &str) -> Result<Address, AddressError> {
        let wrong = |what| AddressError { text: text.to_owned(), what };
        let (host, port) = text.rsplit_once(':').ok_or_else(|| wrong("it has no port"))?;
        let port: u16 =
            port.parse().map_err(|_| wrong("the port is not a number from 1 to 65535"))?;
        if port == 0 {
            return Err(wrong("port 0 cannot be dialled"));
        }
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host_is_valid = match bracketed {
            Some(host) => host.parse::<std::net::Ipv6Addr>().is_ok(),
            None => is_host_name(host),
        };
        if !host_is_valid {
            return Err(wrong("the host is neither a name nor an IP address"));
        }
        Ok(Address { text: text.to_owned(), port })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether only this machine can reach it. A name other than `localhost` counts as reachable
    /// from outside, whatever it may mean today.
    pub fn is_loopback(&self) -> bool {
        let host = self.host();
        match host.parse::<IpAddr>() {
            Ok(ip) => ip.is_loopback(),
            Err(_) => host == "localhost",
        }
    }

    /// Whether it means every address of the machine: to listen on, not to dial.
    pub fn is_unspecified(&self) -> bool {
        self.host().parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified())
    }

    /// Of an IPv6 address without the brackets.
    pub(super) fn host(&self) -> &str {
        let host = self.text.rsplit_once(':').map_or("", |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }
}

pub(super) fn is_host_name(host: &str) -> bool {
    let is_allowed = |c: u8| c.is_ascii_alphanumeric() || b".-_".contains(&c);
    !host.is_empty() && host.len() <= 253 && host.bytes().all(is_allowed)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        Address::new(text)
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Address, AddressError> {
        Address::new(&text)
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        Address { text: address.to_string(), port: address.port() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for text in ["127.0.0.1:7420", "[::1]:7420", "localhost:1", "node-1.example:65535"] {
            assert_eq!(Address::new(text).unwrap().to_string(), text);
        }
        for text in
            ["", "7420", ":7420", "host", "host:", "host:0", "host:65536", "a b:1", "::1:7420"]
        {
            let error = Address::new(text).unwrap_err().to_string();
            assert!(error.contains("host:port"), "{error}");
        }
    }

    #[test]
    fn only_loopback_addresses_and_localhost_count_as_loopback() {
        for (text, loopback) in [
            ("127.0.0.1:1", true),
            ("127.8.0.1:1", true),
            ("[::1]:1", true),
            ("localhost:1", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("192.168.0.1:1", false),
            ("localhost.example:1", false),
        ] {
            let address = Address::new(text).unwrap();
            assert_eq!(address.is_loopback(), loopback, "{text}");
            assert_eq!(address.is_unspecified(), ["0.0.0.0:1", "[::]:1"].contains(&text));
        }
    }
}
