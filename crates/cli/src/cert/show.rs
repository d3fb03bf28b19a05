//! `holdfast cert show`

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use holdfast_tls::Details;
use serde::Serialize;

use crate::exit::{Code, Problem};
use crate::global::Global;
use crate::output::{self, Show};

const SECONDS_PER_DAY: i64 = 86_400;

/// Shows what stands in certificates, and for how long they are valid.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast cert show certs/*.pem
  holdfast cert show certs/node-1.pem --output json | jq '.certificates[0].days_left'")]
pub(crate) struct ShowArgs {
    /// Files with certificates; private keys in them are passed over.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Certificates {
    certificates: Vec<Certificate>,
}

#[derive(Debug, Serialize)]
struct Certificate {
    file: PathBuf,
    /// Null if it was not made for Holdfast.
    name: Option<String>,
    subject: String,
    issuer: String,
    is_authority: bool,
    hosts: Vec<String>,
    not_before_unix_s: i64,
    not_after_unix_s: i64,
    /// Below zero once it is over.
    days_left: i64,
    serial: String,
    fingerprint_sha256: String,
}

pub(crate) fn run(args: ShowArgs, global: &Global) -> Result<ExitCode, Problem> {
    let mut certificates = Vec::new();
    for file in &args.files {
        certificates.extend(read(file)?);
    }
    if certificates.is_empty() {
        let words = "there is no certificate in these files, only private keys";
        return Err(Problem::new(Code::Usage, words));
    }
    output::show(global.output, &Certificates { certificates })
}

fn read(file: &Path) -> Result<Vec<Certificate>, Problem> {
    let wrong = |words: String| Problem::new(Code::Usage, format!("{}: {words}", file.display()));
    let text = fs::read(file).map_err(|error| wrong(error.to_string()))?;
    let is_key_only = !contains(&text, b"BEGIN CERTIFICATE") && contains(&text, b"PRIVATE KEY");
    if is_key_only {
        return Ok(Vec::new());
    }
    let all = Details::of_all_pem(&text).map_err(|error| wrong(error.to_string()))?;
    Ok(all.into_iter().map(|details| Certificate::of(file, details)).collect())
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

impl Certificate {
    fn of(file: &Path, details: Details) -> Certificate {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let not_after = details.not_after.unix_timestamp();
        Certificate {
            file: file.to_owned(),
            name: details.name.map(|name| name.to_string()),
            subject: details.common_name,
            issuer: details.issuer,
            is_authority: details.is_authority,
            hosts: details.hosts,
            not_before_unix_s: details.not_before.unix_timestamp(),
            not_after_unix_s: not_after,
            days_left: (not_after - i64::try_from(now).unwrap_or(i64::MAX))
                .div_euclid(SECONDS_PER_DAY),
            serial: hex(&details.serial),
            fingerprint_sha256: hex(&details.fingerprint),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl Show for Certificates {
    fn to_table(&self) -> String {
        let mut text = String::new();
        for it in &self.certificates {
            let name = it.name.as_deref().unwrap_or("not made for Holdfast");
            let left = match it.days_left {
                days if days < 0 => format!("over for {} days", -days),
                days => format!("valid for {days} days"),
            };
            let _ = writeln!(text, "{}: {name}, {left}", it.file.display());
            let _ = writeln!(text, "  subject      {}", it.subject);
            let _ = writeln!(text, "  issuer       {}", it.issuer);
            if !it.hosts.is_empty() {
                let _ = writeln!(text, "  hosts        {}", it.hosts.join(", "));
            }
            let _ = writeln!(text, "  serial       {}", it.serial);
            let _ = writeln!(text, "  SHA-256      {}", it.fingerprint_sha256);
        }
        text
    }
}
