//! A Redis server of one's own.

use std::fs::File;
use std::process::{Child, Command, Stdio};

use redis::aio::MultiplexedConnection;
use tempfile::TempDir;

use super::start::{find_program, free_port, not_installed, until_it_answers};

/// Another server may take the port between looking for it and using it.
const START_ATTEMPTS_MAX: usize = 5;

pub(crate) struct RedisServer {
    directory: TempDir,
    port: u16,
    durability: Durability,
    process: Option<Child>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// An append-only file, synced with every write.
    Always,
    /// Memory alone.
    None,
}

impl RedisServer {
    /// None if Redis is not installed.
    pub(crate) async fn start(durability: Durability) -> Option<RedisServer> {
        if find_program("redis-server", Vec::new()).is_none() {
            not_installed("Redis", "redis-server");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let mut server = RedisServer { directory, port: 0, durability, process: None };
        server.launch().await;
        Some(server)
    }

    /// On the data that there is, and where it was before unless another process has taken the port.
    pub(crate) async fn launch(&mut self) {
        let log = self.directory.path().join("log");
        for attempt in 0..START_ATTEMPTS_MAX {
            if self.port == 0 || attempt > 0 {
                self.port = free_port();
            }
            let output = File::options().create(true).append(true).open(&log).unwrap();
            let append_only = if self.durability == Durability::Always { "yes" } else { "no" };
            let mut process = Command::new(find_program("redis-server", Vec::new()).unwrap())
                .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", ""])
                .args(["--appendonly", append_only, "--appendfsync", "always"])
                .current_dir(self.directory.path())
                .stdin(Stdio::null())
                .stdout(output)
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let client = self.client();
            let answer = || async {
                let mut connection = client.get_multiplexed_async_connection().await.ok()?;
                // While it reads its file it takes connections and answers no commands.
                redis::cmd("PING").query_async::<String>(&mut connection).await.ok()
            };
            let answered = until_it_answers(&mut process, &log, answer).await.is_some();
            self.process = Some(process);
            if answered {
                return;
            }
            self.process = None;
        }
        panic!("{}", std::fs::read_to_string(log).unwrap());
    }

    /// `kill -9`.
    pub(crate) fn crash(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    pub(crate) async fn connect(&self) -> MultiplexedConnection {
        self.client().get_multiplexed_async_connection().await.unwrap()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    fn client(&self) -> redis::Client {
        redis::Client::open(self.url()).unwrap()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.crash();
    }
}
