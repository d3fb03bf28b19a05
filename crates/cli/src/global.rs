//! The options that every verb takes.

use clap::{Args, ValueEnum};

const GLOBAL_OPTIONS: &str = "Global options";

#[derive(Debug, Args)]
pub(crate) struct Global {
    /// One or more nodes of the cluster, host:port, separated by commas. The command finds the others.
    #[arg(
        long,
        global = true,
        env = "HOLDFAST_ENDPOINTS",
        default_value = "127.0.0.1:7420",
        value_name = "LIST",
        help_heading = GLOBAL_OPTIONS
    )]
    pub(crate) endpoints: String,
    /// The format of the data on stdout.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t = Format::Table,
        value_name = "FORMAT",
        help_heading = GLOBAL_OPTIONS
    )]
    pub(crate) output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// For programs: JSON.
    Json,
}
