//! A cluster of one node, on a free port, for the time of a check.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Stdio};

use crate::failure::Failure;
use crate::process;

pub(crate) struct DevCluster {
    pub(crate) endpoint: String,
    node: Child,
}

impl DevCluster {
    /// Returns when the node serves.
    pub(crate) fn start(holdfast: &Path) -> Result<DevCluster, Failure> {
        let failed = |words: &dyn std::fmt::Display| {
            Failure::Failed(format!("`holdfast dev` did not start: {words}"))
        };
        let port = free_port().map_err(|error| failed(&error))?;
        let mut command = process::program(holdfast);
        command.args(["dev", "--nodes", "1", "--no-http", "--port", &port.to_string()]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let node = command.spawn().map_err(|error| failed(&error))?;
        let mut cluster = DevCluster { endpoint: format!("127.0.0.1:{port}"), node };
        let stdout = cluster.node.stdout.take().ok_or_else(|| failed(&"it has no output"))?;
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        match lines.any(|line| line == "ready") {
            true => Ok(cluster),
            false => Err(failed(&"it ended before it was ready")),
        }
    }
}

impl Drop for DevCluster {
    fn drop(&mut self) {
        let _ = self.node.kill();
        let _ = self.node.wait();
    }
}

/// The next port is that of peers.
fn free_port() -> std::io::Result<u16> {
    loop {
        let client = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = client.local_addr()?.port();
        if port < u16::MAX && TcpListener::bind((Ipv4Addr::LOCALHOST, port + 1)).is_ok() {
            return Ok(port);
        }
    }
}
