//! A node that does not lead passes everything on, which costs a hop and the work of another node. So a session
//! that lasts goes to the leader itself, once there is a connection: until then it is served where it is, and if
//! the leader cannot be reached from here it stays.

use std::time::Duration;

use tokio::time::sleep;

use super::super::dial::{Connection, dial};

/// One command under one lock is served before it would pay to move.
const SETTLING_TIME: Duration = Duration::from_millis(250);

/// A leader that takes the connection and then says nothing costs a second or two. A session that could end of that
/// stays where it is.
pub(super) const LEASE_SPAN_MIN: Duration = Duration::from_secs(6);

/// A node to which there is a connection.
#[derive(Debug)]
pub(super) struct Dialled {
    pub(super) address: String,
    pub(super) connection: Connection,
}

/// Never ready if there is nothing to dial, or nobody to be reached.
pub(super) async fn dial_later(leader: Option<String>) -> Dialled {
    if let Some(address) = leader {
        sleep(SETTLING_TIME).await;
        match dial(&address).await {
            Ok(connection) => return Dialled { address, connection },
            Err(error) => {
                tracing::debug!(address, %error, "the leader cannot be reached from here")
            }
        }
    }
    std::future::pending().await
}
