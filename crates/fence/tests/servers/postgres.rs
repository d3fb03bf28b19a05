//! A PostgreSQL server of one's own.

use std::fs::File;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

use super::start::{find_program, free_port, not_installed, until_it_answers};

/// Another server may take the port between looking for it and using it.
const START_ATTEMPTS_MAX: usize = 5;

pub(crate) struct PostgresServer {
    directory: TempDir,
    port: u16,
    /// PostgreSQL refuses to run as root.
    account: Option<User>,
    process: Option<Child>,
}

impl PostgresServer {
    /// None if PostgreSQL is not installed.
    pub(crate) async fn start() -> Option<PostgresServer> {
        let directory = tempfile::tempdir().unwrap();
        let account = geteuid().is_root().then(|| {
            let find = |name| User::from_name(name).ok().flatten();
            find("postgres").or_else(|| find("nobody")).expect("an account that is not root")
        });
        if let Some(account) = &account {
            let (uid, gid) = (account.uid.as_raw(), account.gid.as_raw());
            chown(directory.path(), Some(uid), Some(gid)).unwrap();
        }
        let mut server = PostgresServer { directory, port: 0, account, process: None };
        let Some(mut initdb) = server.program("initdb") else {
            not_installed("PostgreSQL", "postgresql");
            return None;
        };
        initdb.args(["-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8"]);
        let output = initdb.args(["--locale=C", "-D"]).arg(server.data()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        server.launch().await;
        Some(server)
    }

    /// On the data that there is.
    pub(crate) async fn launch(&mut self) {
        for _ in 0..START_ATTEMPTS_MAX {
            self.port = free_port();
            let log = self.directory.path().join("log");
            let output = File::options().create(true).append(true).open(&log).unwrap();
            let mut postgres = self.program("postgres").unwrap();
            // The tests crash the server, not the machine: what it wrote is kept by the system.
            postgres
                .args(["-c", "fsync=off"])
                .args(["-p", &self.port.to_string(), "-c", "listen_addresses=127.0.0.1"])
                .args(["-c", "unix_socket_directories=", "-c", "max_connections=60", "-D"])
                .arg(self.data())
                .stdout(Stdio::null())
                .stderr(output);
            let mut process = postgres.spawn().unwrap();
            let config = self.connection();
            let connect = || async { tokio_postgres::connect(&config, NoTls).await.ok() };
            let answered = until_it_answers(&mut process, &log, connect).await.is_some();
            self.process = Some(process);
            if answered {
                return;
            }
            self.process = None;
        }
        panic!("{}", std::fs::read_to_string(self.directory.path().join("log")).unwrap());
    }

    /// Ends at once, without writing down what only memory has: the next start recovers from the log.
    pub(crate) fn crash(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = kill(Pid::from_raw(process.id() as i32), Signal::SIGQUIT);
            let _ = process.wait();
        }
    }

    pub(crate) async fn connect(&self) -> Client {
        let (client, connection) =
            tokio_postgres::connect(&self.connection(), NoTls).await.unwrap();
        // It ends with an error if the server crashes; the client notices by itself.
        tokio::spawn(async move { drop(connection.await) });
        client
    }

    fn connection(&self) -> String {
        format!(
            "host=127.0.0.1 port={} user=postgres dbname=postgres connect_timeout=10",
            self.port
        )
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn program(&self, name: &str) -> Option<Command> {
        let mut command = Command::new(find_program(name, debian_directories())?);
        command.stdin(Stdio::null()).current_dir(self.directory.path());
        if let Some(account) = &self.account {
            command.uid(account.uid.as_raw()).gid(account.gid.as_raw());
        }
        Some(command)
    }
}

/// Debian keeps the server's programs out of PATH, those of each version in a directory of its own.
fn debian_directories() -> Vec<PathBuf> {
    let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") else { return Vec::new() };
    let mut directories: Vec<_> =
        versions.flatten().map(|version| version.path().join("bin")).collect();
    directories.sort();
    directories.reverse();
    directories
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.crash();
    }
}
