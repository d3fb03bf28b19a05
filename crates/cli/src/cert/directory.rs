//! Where the certificates of a cluster lie: its authority, and what that has signed.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::Args;
use holdfast_tls::{Authority, Issued};
use serde::Serialize;

use crate::exit::{Code, Problem};
use crate::output::Show;

const AUTHORITY: &str = "ca";
const LIST: &str = "crl.pem";

/// The list of revoked certificates that was written.
#[derive(Debug, Serialize)]
pub(crate) struct WrittenList {
    revoked: Vec<String>,
    list: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Directory {
    /// The directory of the cluster's certificates. The authority's key is in it: keep it off the nodes.
    #[arg(long, value_name = "DIR", default_value = "certs")]
    dir: PathBuf,
}

/// The files that were written.
#[derive(Debug, Serialize)]
pub(crate) struct Written {
    name: String,
    certificate: PathBuf,
    key: PathBuf,
    #[serde(skip)]
    next: String,
}

impl Directory {
    pub(crate) fn at(dir: PathBuf) -> Directory {
        Directory { dir }
    }

    pub(crate) fn has_authority(&self) -> bool {
        self.authority_paths().0.exists()
    }

    /// Of the certificate and the key.
    pub(crate) fn authority_paths(&self) -> (PathBuf, PathBuf) {
        self.paths(AUTHORITY)
    }

    pub(crate) fn load_authority(&self) -> Result<Authority, Problem> {
        let (certificate, key) = self.paths(AUTHORITY);
        if !certificate.exists() {
            let dir = self.dir.display();
            return Err(Problem::new(
                Code::Usage,
                format!(
                    "there is no authority in {dir}: make one with `holdfast cert ca --cluster NAME --dir {dir}`, or \
                     name its directory with --dir"
                ),
            ));
        }
        Authority::load(&read(&certificate)?, &read(&key)?).map_err(|error| {
            Problem::new(Code::Usage, format!("{}: {error}", certificate.display()))
        })
    }

    pub(crate) fn write_authority(&self, authority: &Authority) -> Result<Written, Problem> {
        let (certificate, key) = self.paths(AUTHORITY);
        // A new authority would make worthless what the old one has signed.
        self.write(&key, authority.key_pem(), false)?;
        self.write(&certificate, authority.certificate_pem(), false)?;
        let dir = self.dir.display();
        let next = format!(
            "next:\n  holdfast cert node --id 1 --host HOST --dir {dir}\n  holdfast cert client NAME --dir {dir}\n"
        );
        let name = format!("the authority of cluster '{}'", authority.cluster());
        Ok(Written { name, certificate, key, next })
    }

    /// With `replace`, files that are there are replaced.
    pub(crate) fn write_issued(
        &self,
        stem: &str,
        issued: &Issued,
        replace: bool,
    ) -> Result<Written, Problem> {
        let (certificate, key) = self.paths(stem);
        self.write(&key, &issued.key_pem, replace)?;
        self.write(&certificate, &issued.certificate_pem, replace)?;
        Ok(Written { name: issued.name.to_string(), certificate, key, next: String::new() })
    }

    /// None if nothing was revoked yet.
    pub(crate) fn read_list(&self) -> Result<Option<String>, Problem> {
        let path = self.dir.join(LIST);
        if path.exists() { read(&path).map(Some) } else { Ok(None) }
    }

    pub(crate) fn write_list(
        &self,
        list: &str,
        revoked: Vec<String>,
    ) -> Result<WrittenList, Problem> {
        let path = self.dir.join(LIST);
        self.write(&path, list, true)?;
        Ok(WrittenList { revoked, list: path })
    }

    /// Of the certificate and the key.
    pub(crate) fn paths(&self, stem: &str) -> (PathBuf, PathBuf) {
        (self.dir.join(format!("{stem}.pem")), self.dir.join(format!("{stem}-key.pem")))
    }

    /// Whole or not at all, and for the owner alone.
    fn write(&self, path: &Path, text: &str, replace: bool) -> Result<(), Problem> {
        let failed = |error: io::Error| {
            let path = path.display();
            let words = match error.kind() {
                io::ErrorKind::AlreadyExists => format!(
                    "{path} is there already, and nothing was written; `holdfast cert node` and `cert client` replace it \
                     with --replace; or use another --dir"
                ),
                _ => format!("cannot write {path}: {error}"),
            };
            Problem::new(Code::Usage, words)
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir).map_err(failed)?;
        if !replace && path.exists() {
            return Err(failed(io::ErrorKind::AlreadyExists.into()));
        }
        let unfinished = path.with_extension("unfinished");
        let write = || -> io::Result<()> {
            let options =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).to_owned();
            let mut file = options.open(&unfinished)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&unfinished, path)
        };
        write().map_err(failed)
    }
}

fn read(path: &Path) -> Result<String, Problem> {
    fs::read_to_string(path).map_err(|error| {
        Problem::new(Code::Usage, format!("cannot read {}: {error}", path.display()))
    })
}

impl Show for Written {
    fn to_table(&self) -> String {
        let Written { name, certificate, key, next } = self;
        format!(
            "{name}\n  certificate {}\n  private key {}\n{next}",
            certificate.display(),
            key.display()
        )
    }
}

impl Show for WrittenList {
    fn to_table(&self) -> String {
        format!(
            "revoked {}\n  list {}\nnext: copy it to the nodes, name it in `crl` of [tls] and [peer_tls], and send them SIGHUP\n",
            self.revoked.join(", "),
            self.list.display()
        )
    }
}
