//! What only real processes can show: nodes that are killed, frozen, restarted and wiped, clients
//! that vanish, bytes that no client of ours would send.
//!
//! One binary, because linking several would take longer than running them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod acquire_all;
mod backup;
mod bad_input;
mod bad_input_of_modes;
mod bank;
mod command_line;
mod disconnection;
mod expiry;
mod fairness;
mod interventions;
mod membership;
mod modes;
mod recovery;
mod replacement;
mod servers;
mod strangers;
mod support;
mod survival;
mod wallet;
