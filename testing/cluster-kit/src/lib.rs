//! A cluster of `holdfast server` processes on loopback, for programs that try it out or break it.
//!
//! - [`Addresses`], [`Nodes`]: the processes. They can be killed, frozen, stopped and started again.
//! - [`Network`], [`Wire`]: what lies between them, if it is to be cut, slowed down or broken.
//! - [`free_port`]: ports that nodes get.
//! - [`WallClocks`]: wall clocks that jump, where libfaketime is installed.
//!
//! It knows nothing of what the nodes do: who uses it brings a client along.

mod network;
mod nodes;
mod ports;
mod wall_clock;
mod wire;

pub use network::Network;
pub use nodes::{Addresses, Nodes, Plan};
pub use ports::{free_base_port, free_port, free_ports};
pub use wall_clock::WallClocks;
pub use wire::Wire;
