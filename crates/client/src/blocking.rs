//! The client for programs without tokio: the same, but every call blocks its thread.
//!
//! ```no_run
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use holdfast_client::blocking::Client;
//!
//! let client = Client::connect("127.0.0.1:7420")?;
//! let guard = client.lock("wallet:user_123").wait(Duration::from_secs(10)).acquire()?;
//! let token = guard.token()?;
//! # let _ = token;
//! guard.release()?;
//! # Ok(())
//! # }
//! ```
//!
//! A thread of its own keeps the session alive, whatever the threads of the program do. Each thread of the
//! program is an actor, unless it says otherwise.
//!
//! Nothing cancels blocking work when a lock is lost. Who works for long asks [`Guard::token`] again before
//! each write, or looks at [`Guard::is_valid_for`] before each step.

mod block_on;
mod guard;
mod request;

use std::sync::Arc;

use crate::efficiency::EfficiencyStatus;
use crate::error::{CloseError, ConnectError};
use crate::lock_all::Member;
use crate::{Circuit, ClientBuilder};
use block_on::Background;

pub use guard::{Guard, GuardAll};
pub use request::{LockAllRequest, LockRequest};

/// One session with the cluster; see [`crate::Client`]. Clones share it. It is closed when the last clone and
/// the last guard are gone.
#[derive(Debug, Clone)]
pub struct Client {
    client: crate::Client,
    background: Arc<Background>,
}

impl Client {
    /// As [`crate::Client::connect`].
    pub fn connect(endpoints: &str) -> Result<Client, ConnectError> {
        Client::connect_with(crate::Client::builder(), endpoints)
    }

    /// With other settings than the default ones.
    pub fn connect_with(builder: ClientBuilder, endpoints: &str) -> Result<Client, ConnectError> {
        let background = Background::start().map_err(|_| ConnectError::NoThread)?;
        let client = background.block_on(builder.connect(endpoints))?;
        background.keep(client.clone());
        Ok(Client { client, background: Arc::new(background) })
    }

    /// As [`crate::Client::lock`].
    pub fn lock(&self, name: impl Into<String>) -> LockRequest {
        LockRequest::new(self.client.lock(name), Arc::clone(&self.background))
    }

    /// As [`crate::Client::lock_all`].
    pub fn lock_all<M: Into<Member>>(
        &self,
        members: impl IntoIterator<Item = M>,
    ) -> LockAllRequest {
        LockAllRequest::new(self.client.lock_all(members), Arc::clone(&self.background))
    }

    /// As [`crate::Client::circuit`].
    pub fn circuit(&self) -> Circuit {
        self.client.circuit()
    }

    /// As [`crate::Client::efficiency`].
    pub fn efficiency(&self) -> EfficiencyStatus {
        self.client.efficiency()
    }

    /// As [`crate::Client::close`].
    pub fn close(self) -> Result<(), CloseError> {
        self.background.block_on(self.client.close())
    }
}
