//! What a node writes can be read by its own user alone, whatever the umask of the process is.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod support;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use holdfast_proto::v1::{OpenSessionRequest, ReleaseRequest, acquire_response};
use nix::sys::stat::{Mode, umask};
use support::every_method::with;
use support::secured::{Secured, bearer};
use support::{Client, acquire, eventually, new_session};

/// The least that a configuration may have.
const SNAPSHOT_EVERY_ENTRIES: u64 = 100;
const GROUP_AND_OTHERS: u32 = 0o077;

/// The modes of all files and directories in the directory, and its own.
fn modes(directory: &Path) -> BTreeMap<PathBuf, u32> {
    let mode = |path: &Path| std::fs::metadata(path).ok().map(|data| data.permissions().mode());
    let mut found: BTreeMap<PathBuf, u32> =
        mode(directory).map(|mode| (directory.to_owned(), mode)).into_iter().collect();
    // Files come and go.
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(modes(&path));
        } else {
            found.extend(mode(&path).map(|mode| (path, mode)));
        }
    }
    found
}

/// Enough for a snapshot.
async fn fill_log(client: &mut Client, token: &str) {
    let header = bearer(token);
    let header = Some(("authorization", &*header));
    let session_id = new_session();
    let open =
        OpenSessionRequest { session_id: session_id.clone(), ttl_ms: 60_000, ..Default::default() };
    client.open_session(with(open, header)).await.unwrap();
    for request_id in (2..2 + 2 * SNAPSHOT_EVERY_ENTRIES).step_by(2) {
        let asked = acquire(&session_id, request_id, "a", 0);
        let taken = client.acquire(with(asked, header)).await.unwrap().into_inner();
        let Some(acquire_response::Outcome::Granted(grant)) = taken.outcome else {
            unreachable!("it is free")
        };
        let release = ReleaseRequest {
            session_id: session_id.clone(),
            request_id: request_id + 1,
            name: "a".into(),
            token: grant.token,
            ..Default::default()
        };
        client.release(with(release, header)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_user_of_a_node_can_read_what_is_in_its_data_directory() {
    // Of the modes that a node asks for, nothing is taken. No other test runs in this process.
    umask(Mode::empty());
    let secured =
        Secured::start_with(|config| config.snapshot_every_entries = SNAPSHOT_EVERY_ENTRIES).await;
    fill_log(&mut secured.cluster.client(0).await, &secured.admin).await;
    for config in &secured.cluster.configs {
        let found = eventually("the node has all kinds of files", async || {
            let found = modes(&config.data_dir);
            let has = |end: &str| found.keys().any(|path| path.to_str().unwrap().ends_with(end));
            let kinds = ["identity.toml", "founders.toml", "bootstrap", "LOCK", ".seg", ".snap"];
            kinds.iter().all(|end| has(end)).then_some(found)
        })
        .await;
        for (path, mode) in found {
            assert_eq!(mode & GROUP_AND_OTHERS, 0, "{}: {mode:o}", path.display());
        }
    }
}
