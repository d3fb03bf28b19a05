//! `holdfast cluster limits`: how large the lock table is, and how large it may become.

use std::process::ExitCode;

use clap::Args;
use holdfast_proto::v1;
use serde::Serialize;

use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::intervention;
use crate::one_shot;
use crate::output::{self, Show};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Shows the size and the limits of the lock table, or sets the limits.
///
/// At a limit, the cluster refuses requests that would add a lock, a wait or a session. Releases, renewals, heartbeats
/// and operators' commands continue. The holds, waits and answers of one session may use a quarter of the bytes. A limit
/// below the present size removes nothing.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 shown or set; 64 a limit is invalid; 69 a node of the cluster runs a build that is
too old.

Examples:
  holdfast cluster limits
  holdfast cluster limits --bytes 2GiB --locks 2000000 --reason 'the new shop needs more'"
)]
pub(crate) struct LimitsArgs {
    /// How many bytes the lock table may take: 64KiB to 3GiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "reason")]
    bytes: Option<u64>,
    /// How many locks there may be: 1 to 100000000.
    #[arg(long, value_name = "N", allow_negative_numbers = true, requires = "reason",
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    locks: Option<u64>,
    /// Why you do this. Recorded in the history, with your user name and host.
    #[arg(long, value_name = "TEXT", value_parser = intervention::parse_reason)]
    reason: Option<String>,
}

#[derive(Debug, Serialize)]
struct Limits {
    /// Of several groups, the fullest. Each has these limits for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<u32>,
    locks: u64,
    locks_limit: u64,
    bytes: u64,
    bytes_limit: u64,
    /// No limit holds before the cluster follows the rules that know them.
    are_in_force: bool,
}

impl Show for Limits {
    fn to_table(&self) -> String {
        let of_group = self.group.map(|group| {
            format!("Each group has these limits for itself. The fullest is group {group}:\n")
        });
        let mut table = of_group.unwrap_or_default();
        table += &format!(
            "       {:>12} {:>12} {:>6}\nlocks  {:>12} {:>12} {:>5}%\nbytes  {:>12} {:>12} {:>5}%\n",
            "used",
            "limit",
            "",
            self.locks,
            self.locks_limit,
            percent(self.locks, self.locks_limit),
            size(self.bytes),
            size(self.bytes_limit),
            percent(self.bytes, self.bytes_limit),
        );
        if !self.are_in_force {
            table.push_str(
                "The limits are not in force: a node of the cluster runs an older build. Upgrade all nodes.\n",
            );
        }
        table
    }
}

pub(super) async fn run(args: LimitsArgs, global: &Global) -> Result<ExitCode, Problem> {
    let calls = one_shot::calls(global)?;
    match (&args.reason, args.bytes, args.locks) {
        (Some(_), None, None) => {
            let words = "--reason sets nothing by itself; give --bytes or --locks as well";
            return Err(Problem::new(Code::Usage, words.to_owned()));
        }
        (Some(reason), bytes, locks) => {
            calls.set_limits(&intervention::why(reason), bytes, locks).await?
        }
        (None, ..) => {}
    }
    let status = calls.cluster_status().await?;
    let are_several = status.groups.len() > 1;
    let group = fullest(&status.groups).ok_or_else(|| {
        let words = "the node has no group of the lock table; ask another node by --endpoints";
        Problem::new(Code::Unavailable, words.to_owned())
    })?;
    output::show(
        global.output,
        &Limits {
            group: are_several.then_some(group.group),
            locks: group.locks,
            locks_limit: group.locks_limit,
            bytes: group.table_bytes,
            bytes_limit: group.table_bytes_limit,
            are_in_force: group.rules_version >= 2,
        },
    )
}

/// The first of those that are equally full.
fn fullest(groups: &[v1::GroupStatus]) -> Option<&v1::GroupStatus> {
    let share = |used: u64, limit: u64| u128::from(used) * 1_000_000_000 / u128::from(limit.max(1));
    groups.iter().rev().max_by_key(|group| {
        let locks = share(group.locks, group.locks_limit);
        locks.max(share(group.table_bytes, group.table_bytes_limit))
    })
}

fn percent(used: u64, limit: u64) -> u64 {
    used.saturating_mul(100) / limit.max(1)
}

fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "" | "B" => 1,
        "KiB" | "K" => KIB,
        "MiB" | "M" => MIB,
        "GiB" | "G" => GIB,
        _ => return Err("write a size as 65536, 512MiB or 2GiB".to_owned()),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    match bytes {
        Some(bytes) if (64 * KIB..=3 * GIB).contains(&bytes) => Ok(bytes),
        Some(_) => Err("the lock table may take 64KiB to 3GiB".to_owned()),
        None => Err("write a size as 65536, 512MiB or 2GiB".to_owned()),
    }
}

fn size(bytes: u64) -> String {
    let (unit_bytes, unit) = match bytes {
        0..KIB => return format!("{bytes} B"),
        KIB..MIB => (KIB, "KiB"),
        MIB..GIB => (MIB, "MiB"),
        _ => (GIB, "GiB"),
    };
    let tenths = bytes.saturating_mul(10) / unit_bytes;
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        assert_eq!(parse_size("65536"), Ok(65_536));
        assert_eq!(parse_size("512MiB"), Ok(512 * MIB));
        assert_eq!(parse_size("2G"), Ok(2 * GIB));
        for wrong in ["", "GiB", "1.5GiB", "2GB", "-1", "1KiB", "4GiB", "99999999999999999999GiB"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_shown_with_one_digit() {
        assert_eq!(size(512), "512 B");
        assert_eq!(size(1 << 30), "1.0 GiB");
        assert_eq!(size(300 * MIB + 512 * KIB), "300.5 MiB");
    }

    #[test]
    fn of_several_groups_the_fullest_is_shown_even_if_all_have_much_room() {
        let group = |group, locks, table_bytes| v1::GroupStatus {
            group,
            locks,
            table_bytes,
            locks_limit: 1_000_000,
            table_bytes_limit: GIB,
            ..Default::default()
        };
        let fullest = |groups: &[v1::GroupStatus]| fullest(groups).map(|group| group.group);
        assert_eq!(fullest(&[group(1, 2, 0), group(2, 3, 0), group(3, 0, 0)]), Some(2));
        assert_eq!(fullest(&[group(1, 2, 0), group(2, 0, 5 * MIB)]), Some(2));
        assert_eq!(fullest(&[group(1, 0, 0), group(2, 0, 0)]), Some(1));
        assert_eq!(fullest(&[]), None);
    }
}
