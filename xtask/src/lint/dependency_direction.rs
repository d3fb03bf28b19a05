//! Checks that the crates of the workspace depend on each other in one direction only.
//!
//! [`ALLOWED`] is the whole truth: an edge that is not in it is an error, also if only tests or
//! build scripts need it. Caveat: edges that exist on another platform only are not seen.

use std::fmt;

use crate::failure::Failure;
use crate::process;

/// Each crate that may depend on others of the workspace, and on which. `ARCHITECTURE.md` tells why.
const ALLOWED: &[(&str, &[&str])] = &[
    // For its tests.
    ("holdfast-core", &["holdfast-golden"]),
    ("holdfast-replica", &["holdfast-core"]),
    ("holdfast-engine", &["holdfast-core", "holdfast-replica", "holdfast-wal"]),
    ("holdfast-proto", &["holdfast-core", "holdfast-fence"]),
    ("holdfast-dashboard", &["holdfast-proto"]),
    ("holdfast-service", &["holdfast-core", "holdfast-proto"]),
    ("holdfast-jwt", &["holdfast-core", "holdfast-proto", "holdfast-service"]),
    (
        "holdfast-server",
        &[
            // Its tests lay wires that can be cut.
            "holdfast-cluster-kit",
            "holdfast-core",
            "holdfast-dashboard",
            "holdfast-engine",
            "holdfast-jwt",
            "holdfast-proto",
            "holdfast-replica",
            "holdfast-service",
            "holdfast-spans",
            "holdfast-tls",
            "holdfast-wal",
        ],
    ),
    ("holdfast-spans", &["holdfast-tls"]),
    ("holdfast-browser", &["holdfast-client"]),
    ("holdfast-client-core", &["holdfast-golden", "holdfast-proto"]),
    ("holdfast-lease-clock", &["holdfast-client-core"]),
    ("holdfast-redis-locks", &["holdfast-client-core", "holdfast-fence", "holdfast-lease-clock"]),
    (
        "holdfast-client",
        &[
            "holdfast-client-core",
            "holdfast-lease-clock",
            "holdfast-proto",
            "holdfast-redis-locks",
            "holdfast-tls",
        ],
    ),
    ("holdfast-bench", &["holdfast-client", "holdfast-cluster-kit", "holdfast-proto"]),
    ("holdfast-compare", &["holdfast-bench", "holdfast-client", "holdfast-cluster-kit"]),
    (
        "holdfast",
        &[
            "holdfast-bench",
            "holdfast-browser",
            "holdfast-client",
            "holdfast-cluster-kit",
            "holdfast-core",
            "holdfast-fence",
            "holdfast-proto",
            "holdfast-server",
            "holdfast-spans",
            "holdfast-tls",
        ],
    ),
    (
        "holdfast-sim",
        &[
            "holdfast-client-core",
            "holdfast-core",
            "holdfast-engine",
            "holdfast-proto",
            "holdfast-replica",
            "holdfast-service",
            "holdfast-wal",
        ],
    ),
    (
        "holdfast-chaos",
        &[
            "holdfast-client",
            "holdfast-cluster-kit",
            "holdfast-core",
            "holdfast-proto",
            "holdfast-sim",
        ],
    ),
    (
        "holdfast-conformance",
        &[
            "holdfast-client",
            "holdfast-client-core",
            "holdfast-cluster-kit",
            "holdfast-fence",
            "holdfast-proto",
            "holdfast-tls",
        ],
    ),
    (
        "holdfast-stories",
        &["holdfast-client", "holdfast-cluster-kit", "holdfast-fence", "holdfast-proto"],
    ),
];

pub(crate) fn check() -> Result<(), Failure> {
    // One level below each member, every line led by its depth: `0holdfast v0.1.0 (…)`. Without
    // `--no-dedupe`, a member already seen below another would be listed without its dependencies.
    let tree = process::read(&mut process::cargo([
        "tree",
        "--workspace",
        "--locked",
        "--all-features",
        "--edges=normal,build,dev",
        "--depth=1",
        "--no-dedupe",
        "--prefix=depth",
    ]))?;

    let forbidden = forbidden_edges(&tree);
    if forbidden.is_empty() {
        return Ok(());
    }
    let complaints: Vec<_> =
        forbidden.iter().map(|edge| format!("{edge} is not an allowed dependency")).collect();
    Err(Failure::Failed(format!(
        "{}\nxtask: the table of those allowed is in {}",
        complaints.join("\nxtask: "),
        file!()
    )))
}

#[derive(Debug, PartialEq, Eq)]
struct Edge<'a> {
    from: &'a str,
    to: &'a str,
}

impl fmt::Display for Edge<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.from, self.to)
    }
}

fn forbidden_edges(tree: &str) -> Vec<Edge<'_>> {
    let mut edges = workspace_edges(tree);
    edges.retain(|edge| !is_allowed(edge));
    edges
}

fn is_allowed(edge: &Edge<'_>) -> bool {
    ALLOWED.iter().any(|(from, allowed)| *from == edge.from && allowed.contains(&edge.to))
}

/// The edges between members of the workspace; those to third-party crates are left out, and so is
/// that of a crate to itself, by which its tests turn on its own features.
fn workspace_edges(tree: &str) -> Vec<Edge<'_>> {
    let members: Vec<&str> = tree.lines().filter_map(|line| name_at_depth('0', line)).collect();
    let mut edges = Vec::new();
    let mut from = None;
    for line in tree.lines() {
        if let Some(member) = name_at_depth('0', line) {
            from = Some(member);
        } else if let (Some(from), Some(to)) = (from, name_at_depth('1', line))
            && members.contains(&to)
            && from != to
        {
            edges.push(Edge { from, to });
        }
    }
    edges
}

/// The name of a crate cannot begin with a digit, so the depth ends where the name begins.
fn name_at_depth(depth: char, line: &str) -> Option<&str> {
    line.strip_prefix(depth)?.split(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_read_from_the_tree_and_third_party_crates_left_out() {
        let tree = "0holdfast v0.1.0 (/r/crates/cli)\n\
                    1clap v4.6.7\n\
                    1holdfast-server v0.1.0 (/r/crates/server)\n\
                    \n\
                    0holdfast-core v0.1.0 (/r/crates/core)\n\
                    \n\
                    0holdfast-server v0.1.0 (/r/crates/server)\n\
                    1holdfast-core v0.1.0 (/r/crates/core)\n\
                    1holdfast-server v0.1.0 (/r/crates/server) (*)\n\
                    1serde_derive v1.0.229 (proc-macro)\n\
                    1tokio v1.54.1 (*)\n";
        assert_eq!(
            workspace_edges(tree),
            [
                Edge { from: "holdfast", to: "holdfast-server" },
                Edge { from: "holdfast-server", to: "holdfast-core" },
            ]
        );
        assert_eq!(forbidden_edges(tree), []);
    }

    #[test]
    fn an_edge_that_points_up_is_forbidden() {
        let tree = "0holdfast-core v0.1.0 (/r/crates/core)\n\
                    1holdfast-wal v0.1.0 (/r/crates/wal)\n\
                    \n\
                    0holdfast-wal v0.1.0 (/r/crates/wal)\n";
        assert_eq!(forbidden_edges(tree), [Edge { from: "holdfast-core", to: "holdfast-wal" }]);
    }

    #[test]
    fn a_client_knows_the_protocol_and_nothing_behind_it() {
        let from = "holdfast-client";
        assert!(is_allowed(&Edge { from, to: "holdfast-proto" }));
        for to in ["holdfast-core", "holdfast-replica", "holdfast-server", "holdfast-wal"] {
            assert!(!is_allowed(&Edge { from, to }), "{from} -> {to}");
        }
    }

    #[test]
    fn a_crate_that_the_table_does_not_name_depends_on_no_other() {
        for from in
            ["holdfast-core", "holdfast-fence", "holdfast-wal", "xtask", "holdfast-newcomer"]
        {
            assert!(!is_allowed(&Edge { from, to: "holdfast-proto" }), "{from}");
        }
    }

    #[test]
    fn the_allowed_edges_have_no_cycle() {
        fn reaches(from: &str, goal: &str) -> bool {
            let below = ALLOWED.iter().filter(|(name, _)| *name == from).flat_map(|(_, to)| *to);
            below.into_iter().any(|to| *to == goal || reaches(to, goal))
        }
        for (name, _) in ALLOWED {
            assert!(!reaches(name, name), "{name} can reach itself");
        }
    }
}
