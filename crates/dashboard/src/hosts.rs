//! By which names a browser may reach the dashboard.
//!
//! A site can let a name of its own point at this node. To the browser the dashboard is then a part of that site, and
//! the site's scripts read whatever it shows. But the browser says by which name it has asked, and no script can make
//! it lie. So a request by a name that is not the node's gets nothing. An address is no name, and belongs to no site.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::api_error::ApiError;

/// The names of the nodes, as they are configured, and those that people have added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    names: BTreeSet<String>,
    is_any: bool,
}

impl Hosts {
    /// Names without ports; `*` stands for all there are.
    pub fn new(names: impl IntoIterator<Item = impl AsRef<str>>) -> Hosts {
        let mut hosts = Hosts::default();
        for name in names {
            match name.as_ref() {
                "*" => hosts.is_any = true,
                name => drop(hosts.names.insert(plain(name))),
            }
        }
        hosts
    }

    fn know(&self, host: &str) -> bool {
        let host = plain(host);
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_address = address.unwrap_or(&host).parse::<IpAddr>().is_ok();
        self.is_any || is_address || host == "localhost" || self.names.contains(&host)
    }
}

/// Names are the same in capitals, and with the dot of the root behind them.
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// Lets through who has asked by a name that is known. One that names none is no browser.
pub(crate) async fn known_only(
    State(hosts): State<Arc<Hosts>>,
    request: Request,
    next: Next,
) -> Response {
    let asked = request.uri().authority().cloned().map(Ok).or_else(|| {
        let header = request.headers().get(HOST)?;
        Some(Authority::try_from(header.as_bytes()))
    });
    match asked {
        Some(Ok(asked)) if !hosts.know(asked.host()) => unknown(asked.host()).into_response(),
        Some(Err(_)) => ApiError::bad_request("the Host header is not a name").into_response(),
        Some(Ok(_)) | None => next.run(request).await,
    }
}

fn unknown(name: &str) -> ApiError {
    let words = format!(
        "this node does not know itself as '{name}'; if it is reached by that name, add it to the \
         node's configuration: hosts = [\"{name}\"] under [http]"
    );
    ApiError::new(StatusCode::MISDIRECTED_REQUEST, "unknown_host", words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_known_names_are_answered_and_no_other_name_is() {
        let hosts = Hosts::new(["node-1.example", "Locks.Example."]);
        for known in [
            "127.0.0.1",
            "10.1.2.3",
            "[::1]",
            "localhost",
            "LOCALHOST",
            "node-1.example",
            "NODE-1.example.",
            "locks.example",
        ] {
            assert!(hosts.know(known), "{known}");
        }
        for unknown in [
            "evil.example",
            "node-1.example.evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "node-1",
            "",
            "*",
        ] {
            assert!(!hosts.know(unknown), "{unknown}");
        }
    }

    #[test]
    fn a_star_stands_for_all() {
        assert!(Hosts::new(["*"]).know("evil.example"));
        assert!(!Hosts::default().know("evil.example"));
    }
}
