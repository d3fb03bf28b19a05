//! The list of verbs.

use clap::{ColorChoice, CommandFactory, Parser, Subcommand};

use crate::cert::CertVerb;
use crate::cluster::ClusterVerb;
use crate::fence::FenceVerb;
use crate::global::GlobalArgs;
use crate::snapshot::SnapshotVerb;
use crate::{
    acquire, advise_ttl, bench, check_token, demo, dev, elect, exec_child, history, lock, ls,
    observe, recover, release, renew, server, status, watch,
};
use crate::{
    break_lock, completions, freeze, kill_session, man, reopen, set_permits, thaw, top, transfer,
    who, why,
};

const EXIT_CODES: &str = "\
Exit codes:
  64  wrong usage
  69  the cluster is unavailable: no node answers, or there is no leader
  75  the lock is busy or frozen, the wait is over, or to wait would be a deadlock
  77  denied
  79  the lock is lost, or is not held as the arguments say
  With `lock` and `elect` otherwise the command's own (128+N if signal N ended it).

Examples:
  holdfast dev
  holdfast lock nightly-report --wait 10m -- ./report.sh
  holdfast why nightly-report
  holdfast history nightly-report
  holdfast break nightly-report --reason 'hung since yesterday'
  holdfast ls billing/ --output json
  holdfast --endpoints 10.0.0.1:7420,10.0.0.2:7420 cluster status";

/// With the commit that it was built from; see `build.rs`.
pub(crate) const VERSION: &str = env!("HOLDFAST_VERSION");

/// Options of all verbs that mean nothing to these: they are taken, and not shown.
const HIDDEN: [(&str, &[&str]); 9] = [
    ("demo", CLUSTER),
    ("dev", ALL),
    ("server", ALL),
    ("lock", &["output"]),
    ("elect", &["output"]),
    ("fence", ALL),
    ("cert", CLUSTER),
    ("completions", ALL),
    ("man", ALL),
];
const CLUSTER: &[&str] = &["endpoints", "ca", "cert", "key", "verify", "context"];
const ALL: &[&str] = &["endpoints", "ca", "cert", "key", "verify", "context", "output"];

/// A distributed lock service: locks, leader election and semaphores with fencing tokens.
#[derive(Debug, Parser)]
#[command(
    name = "holdfast",
    version = VERSION,
    color = ColorChoice::Never,
    after_help = EXIT_CODES,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What [`Cli`] is parsed with.
pub(crate) fn command() -> clap::Command {
    let shown = Cli::command();
    HIDDEN.into_iter().fold(shown.clone(), |command, (verb, ids)| {
        let hidden = shown
            .get_arguments()
            .filter(|arg| ids.contains(&arg.get_id().as_str()))
            .map(|arg| arg.clone().hide(true));
        command.mut_subcommand(verb, |verb| verb.args(hidden))
    })
}

/// What people see of it: without the verbs that only this program itself uses.
pub(crate) fn shown() -> clap::Command {
    let (shown, all) = (Cli::command(), command());
    let verbs = all.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    let without_verbs = clap::Command::new("holdfast")
        .version(VERSION)
        .about(shown.get_about().cloned().unwrap_or_default())
        .after_help(shown.get_after_help().cloned().unwrap_or_default())
        .args(shown.get_arguments().cloned());
    without_verbs.subcommands(verbs)
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Dev(dev::DevArgs),
    Demo(demo::DemoArgs),
    Server(server::ServerArgs),
    Lock(lock::LockArgs),
    Elect(elect::ElectArgs),
    Observe(observe::ObserveArgs),
    Acquire(acquire::AcquireArgs),
    Release(release::ReleaseArgs),
    Renew(renew::RenewArgs),
    CheckToken(check_token::CheckTokenArgs),
    AdviseTtl(advise_ttl::AdviseTtlArgs),
    Bench(bench::BenchArgs),
    Status(status::StatusArgs),
    Why(why::WhyArgs),
    Ls(ls::LsArgs),
    Watch(watch::WatchArgs),
    Top(top::TopArgs),
    History(history::HistoryArgs),
    Who(who::WhoArgs),
    /// Lists the sessions of the cluster: owner, age, TTL, and how many locks each holds.
    #[command(after_help = "Examples:
  holdfast sessions
  holdfast sessions --output json")]
    Sessions,
    Break(break_lock::BreakArgs),
    Transfer(transfer::TransferArgs),
    Freeze(freeze::FreezeArgs),
    Thaw(thaw::ThawArgs),
    Reopen(reopen::ReopenArgs),
    /// Lists the freezes: prefix, operator, reason, and when each ends.
    #[command(after_help = "Examples:
  holdfast freezes
  holdfast freezes --output json")]
    Freezes,
    SetPermits(set_permits::SetPermitsArgs),
    KillSession(kill_session::KillSessionArgs),
    /// Shows and changes the cluster: status, members, leader, limits.
    #[command(after_help = "Examples:
  holdfast cluster status
  holdfast cluster status --check
  holdfast cluster add --id 4 --peer-address 10.0.0.4:7421 --client-address 10.0.0.4:7420 \\
    --http-address 10.0.0.4:7422 > node-4.toml
  holdfast cluster replace 2 --id 5 --peer-address 10.0.0.5:7421 --client-address 10.0.0.5:7420 \\
    --http-address 10.0.0.5:7422 > node-5.toml
  holdfast cluster remove 3
  holdfast cluster transfer --to 1")]
    Cluster {
        #[command(subcommand)]
        verb: ClusterVerb,
    },
    /// Saves a backup of the cluster, inspects it, or restores it.
    #[command(after_help = "Examples:
  holdfast snapshot save locks.holdfast
  holdfast snapshot inspect locks.holdfast
  holdfast snapshot restore locks.holdfast --config node-1.toml")]
    Snapshot {
        #[command(subcommand)]
        verb: SnapshotVerb,
    },
    Recover(recover::RecoverArgs),
    /// Prints what a database needs to check fencing tokens.
    #[command(after_help = "Examples:
  holdfast fence sql > holdfast_fence.sql")]
    Fence {
        #[command(subcommand)]
        verb: FenceVerb,
    },
    /// Makes and shows the certificates of a cluster.
    #[command(after_help = "Examples:
  holdfast cert ca --cluster prod
  holdfast cert node --id 1 --host locks-1.example.com
  holdfast cert client billing
  holdfast cert revoke certs/client-billing.pem
  holdfast cert show certs/node-1.pem")]
    Cert {
        #[command(subcommand)]
        verb: CertVerb,
    },
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
    #[command(name = "exec-child", hide = true)]
    ExecChild(exec_child::ExecChildArgs),
    /// Ends the command and the session of the program that started it, when that program is dead.
    #[command(hide = true)]
    Companion,
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;
    use crate::global::Format;

    #[test]
    fn the_arguments_fit_together() {
        command().debug_assert();
    }

    #[test]
    fn an_option_that_is_hidden_is_still_taken_in_both_places() {
        for line in ["holdfast --output json lock a -- b", "holdfast lock a --output json -- b"] {
            let matches = command().try_get_matches_from(line.split(' ')).unwrap();
            let cli = Cli::from_arg_matches(&matches).unwrap();
            assert_eq!(cli.global.output, Format::Json, "{line}");
        }
        let mut command = command();
        command.build();
        for (verb, has_endpoints) in [("dev", false), ("lock", true), ("ls", true)] {
            let help = command.find_subcommand_mut(verb).unwrap().render_help().to_string();
            assert_eq!(help.contains("--endpoints"), has_endpoints, "{help}");
        }
    }

    #[test]
    fn every_verb_that_is_shown_has_examples() {
        fn check(command: &clap::Command) {
            if command.is_hide_set() {
                return;
            }
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Examples:"), "{}", command.get_name());
            command.get_subcommands().for_each(check);
        }
        check(&command());
    }
}
