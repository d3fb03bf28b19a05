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
mod bank_transfers;
mod bench;
mod blocking;
mod broken_connections;
mod client_without_cluster;
mod cluster_health;
mod command_line;
mod common_mistakes;
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
mod full_disk;
mod guide_commands;
mod help_and_tables;
mod help_examples;
mod history_and_who;
mod interventions;
mod json_shapes;
mod kafka;
mod known_client_bugs;
mod lease_end;
mod library_examples;
mod limits;
mod live;
mod lock_command;
mod membership;
mod messages;
mod metrics;
mod modes;
mod node_failures;
mod not_serving_reasons;
mod postgres_transfers;
mod prometheus;
mod recovery;
mod rejected_peers;
mod replacement;
mod restore_tokens;
mod secure;
mod servers;
mod status_on_session_stream;
mod stopped_holder;
mod supervision;
mod support;
mod systemd;
mod tokens;
mod tracing;
mod upgrade;
mod waiting_without_terminal;
mod watchers_that_do_not_read;
mod watching;
mod why;
