//! `holdfast cert revoke`

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use holdfast_tls::{Details, Validity};

use super::directory::Directory;
use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::output;

/// Adds certificates to the list of those that no longer count.
///
/// The list is `crl.pem` in the directory of the authority. Copy it to the nodes, name it in `crl` of `[tls]` and `[peer_tls]`, and
/// send the nodes SIGHUP: they close the connections of these certificates.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast cert revoke certs/client-billing.pem
  holdfast cert revoke certs/node-3.pem --dir certs")]
pub(crate) struct RevokeArgs {
    /// Files with the certificates.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    directory: Directory,
}

pub(crate) fn run(args: RevokeArgs, global: &Global) -> Result<ExitCode, Problem> {
    let authority = args.directory.load_authority()?;
    let mut revoked = Vec::new();
    for file in &args.files {
        let wrong =
            |words: String| Problem::new(Code::Usage, format!("{}: {words}", file.display()));
        let text = fs::read(file).map_err(|error| wrong(error.to_string()))?;
        let details = Details::of_pem(&text).map_err(|error| wrong(error.to_string()))?;
        // Its cluster is not enough: an authority before this one may have signed it.
        if !authority.has_signed(&text) {
            return Err(wrong("this authority has not signed it".to_owned()));
        }
        revoked.push(details);
    }
    let serials: Vec<Vec<u8>> = revoked.iter().map(|details| details.serial.clone()).collect();
    let before = args.directory.read_list()?;
    let list = authority
        .revoke_also(before.as_deref(), &serials, Validity::AUTHORITY)
        .map_err(|error| Problem::new(Code::Usage, error.to_string()))?;
    let names = revoked.iter().filter_map(|details| Some(details.name.as_ref()?.to_string()));
    output::hand_over(global.output, &args.directory.write_list(&list, names.collect())?)
}
