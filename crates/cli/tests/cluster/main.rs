//! What only real processes can show: nodes that are killed, frozen, restarted and wiped, clients
//! that vanish, bytes that no client of ours would send.
//!
//! One binary, because linking several would take longer than running them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod acquire_all;
mod acquire_command;
mod addresses;
mod advise_ttl;
mod audit;
mod backup;
mod bad_input;
mod bad_input_of_modes;
mod bank;
mod bench;
mod blocking;
mod circuit;
mod cluster_health;
mod command_line;
mod dashboard;
mod demo;
mod disconnection;
mod efficiency;
mod efficiency_alone;
mod efficiency_cut_off;
mod efficiency_redis;
mod elect_command;
mod election;
mod expiry;
mod fairness;
mod guide_commands;
mod help_examples;
mod interventions;
mod json_shapes;
mod kafka;
mod lease_end;
mod library_examples;
mod limits;
mod live;
mod lock_command;
mod looking;
mod membership;
mod metrics;
mod modes;
mod newcomers;
mod past;
mod paused;
mod prometheus;
mod promises;
mod reasons;
mod recovery;
mod replacement;
mod restore_tokens;
mod secure;
mod servers;
mod storm;
mod strangers;
mod supervision;
mod support;
mod surface;
mod survival;
mod systemd;
mod tokens;
mod tracing;
mod unread;
mod upgrade;
mod wallet;
mod watching;
mod why;
