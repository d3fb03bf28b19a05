//! Where the programs of others are: where we were told, or where Debian puts them.

use std::env;
use std::path::{Path, PathBuf};

use clap::Args;
use holdfast_bench::Outcome;

/// Debian's package keeps the class path in the jar.
const ZOOKEEPER_JAR: &str = "/usr/share/java/zookeeper.jar";
const ZOOKEEPER_LOGGING: &str = "/etc/zookeeper/conf";

#[derive(Debug, Args)]
pub(crate) struct Programs {
    /// The program `etcd`; that in PATH by default.
    #[arg(long, value_name = "FILE")]
    etcd: Option<PathBuf>,
    /// The program `redis-server`; that in PATH by default.
    #[arg(long, value_name = "FILE")]
    redis: Option<PathBuf>,
    /// An unpacked release of ZooKeeper, with `lib` and `conf`; that of Debian by default.
    #[arg(long, value_name = "DIRECTORY")]
    zookeeper: Option<PathBuf>,
}

impl Programs {
    pub(crate) fn etcd(&self) -> Outcome<PathBuf> {
        given_or_found(self.etcd.as_deref(), "etcd", "etcd-server")
    }

    pub(crate) fn redis(&self) -> Outcome<PathBuf> {
        given_or_found(self.redis.as_deref(), "redis-server", "redis-server")
    }

    /// The virtual machine, and the class path.
    pub(crate) fn zookeeper(&self) -> Outcome<(PathBuf, String)> {
        let java = given_or_found(None, "java", "default-jre-headless")?;
        if let Some(release) = &self.zookeeper {
            let release = release.display();
            return Ok((java, format!("{release}/conf:{release}/lib/*")));
        }
        if !Path::new(ZOOKEEPER_JAR).is_file() {
            return Err(not_installed("ZooKeeper", "zookeeper"));
        }
        Ok((java, format!("{ZOOKEEPER_LOGGING}:{ZOOKEEPER_JAR}")))
    }
}

fn given_or_found(given: Option<&Path>, program: &str, package: &str) -> Outcome<PathBuf> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let found =
        env::split_paths(&path).map(|directory| directory.join(program)).find(|it| it.is_file());
    found.ok_or_else(|| not_installed(program, package))
}

fn not_installed(what: &str, package: &str) -> Box<dyn std::error::Error + Send + Sync> {
    format!("{what} is not installed; on Debian, `apt-get install {package}` does it, and `cargo xtask compare` as root too; \
             or leave it out with --peers")
    .into()
}
