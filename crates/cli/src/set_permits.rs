//! `holdfast set-permits`: how many permits a semaphore has.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::exit::Problem;
use crate::global::Global;
use crate::intervention::ReasonArgs;
use crate::name;
use crate::one_shot;
use crate::output::{self, Show};

/// Sets the number of permits of a semaphore.
///
/// The number stays set until --forget. Clients that ask for a permit state this number, or 0 for the number that is
/// set. Additional permits go to waiting clients at once. Fewer permits take none away from their holders.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 set; 75 the semaphore is in use, so its number cannot be forgotten.

Examples:
  holdfast set-permits gpu 8 --reason 'two more machines'
  holdfast lock gpu --permits 0 -- ./train.sh
  holdfast set-permits gpu --forget --reason 'clients state their own number again'"
)]
pub(crate) struct SetPermitsArgs {
    /// The semaphore's name.
    #[arg(value_parser = name::parse)]
    name: String,
    /// The number of permits, 1 to 1,000,000.
    #[arg(value_name = "N", allow_negative_numbers = true, required_unless_present = "forget", conflicts_with = "forget",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    permits: Option<u32>,
    /// Removes the number. Possible while no client holds a permit.
    #[arg(long)]
    forget: bool,
    #[command(flatten)]
    reason: ReasonArgs,
}

#[derive(Debug, Serialize)]
struct PermitsSet {
    name: String,
    /// Null if it was forgotten.
    permits: Option<u32>,
}

impl Show for PermitsSet {
    fn to_table(&self) -> String {
        match self.permits {
            Some(permits) => format!("{} has {permits} permits\n", self.name),
            None => format!("{} has as many permits as its users state\n", self.name),
        }
    }
}

pub(crate) async fn run(args: SetPermitsArgs, global: &Global) -> Result<ExitCode, Problem> {
    let calls = one_shot::calls(global)?;
    calls.set_permits(&args.reason.why(), &args.name, args.permits).await?;
    output::show(global.output, &PermitsSet { name: args.name, permits: args.permits })
}
