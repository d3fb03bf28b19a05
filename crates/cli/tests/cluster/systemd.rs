//! What a node tells systemd, over a real socket.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Cluster, PATIENCE, holdfast};

fn heard(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 256];
    let length = socket.recv(&mut bytes).expect("nothing is said");
    String::from_utf8(bytes[..length].to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_says_when_it_has_started_that_it_lives_and_that_it_stops() {
    let mut cluster = Cluster::start(1).await;
    cluster.terminate(1).await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut node = holdfast()
        .args(["server", "--config", &cluster.config_path(1)])
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", Duration::from_millis(100).as_micros().to_string())
        .spawn()
        .unwrap();
    assert_eq!(heard(&socket), "READY=1");
    assert_eq!(heard(&socket), "WATCHDOG=1");
    assert_eq!(heard(&socket), "WATCHDOG=1");
    kill_process(Pid::from_child(&node), Signal::TERM).unwrap();
    while heard(&socket) != "STOPPING=1" {}
    assert!(node.wait().unwrap().success());
}
