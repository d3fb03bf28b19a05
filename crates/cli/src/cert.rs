//! `holdfast cert`: the certificates of a cluster. No node is asked.

mod ca;
mod client;
mod directory;
mod node;
mod revoke;
mod show;

use std::process::ExitCode;

use clap::Subcommand;

pub(crate) use self::directory::Directory;
use crate::exit::Problem;
use crate::global::Global;

#[derive(Debug, Subcommand)]
pub(crate) enum CertVerb {
    Ca(ca::CaArgs),
    Node(node::NodeArgs),
    Client(client::ClientArgs),
    Revoke(revoke::RevokeArgs),
    Show(show::ShowArgs),
}

pub(crate) fn run(verb: CertVerb, global: &Global) -> Result<ExitCode, Problem> {
    match verb {
        CertVerb::Ca(args) => ca::run(args, global),
        CertVerb::Node(args) => node::run(args, global),
        CertVerb::Client(args) => client::run(args, global),
        CertVerb::Revoke(args) => revoke::run(args, global),
        CertVerb::Show(args) => show::run(args, global),
    }
}
