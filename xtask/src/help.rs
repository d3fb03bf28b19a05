//! `cargo xtask help`: what there is.

pub(crate) const USAGE: &str = "\
Usage: cargo xtask <verb> [options]

Verbs:
  book                      Build the documentation as a site, into target/book, with mdBook.
  chaos [--minutes M] [--seed S] [--nodes N] [--groups G]
                            Run real nodes and clients under faults and judge what they saw.
  compare [--only w1,w2] [--peers etcd,redis] [--quick]
                            Compare Holdfast with etcd, ZooKeeper and Redis under the same loads, in one
                            run; docs/performance/method.md. On Debian, as root, that installs etcd-server,
                            zookeeper and redis-server by apt-get.
  conformance [LIBRARY...] [--only NAME]
                            Try whether client libraries follow docs/protocol.md, on a real cluster
                            with faults, and whether the suite catches drivers that misbehave.
  go [ARGUMENTS...]         Check, lint and test sdks/go, and write its reference into target/go-doc. The
                            arguments are passed on to `go test`. On Debian, as root, that installs
                            golang-go, protobuf-compiler, postgresql and redis-server by apt-get.
  java [ARGUMENTS...]       Check the format of sdks/java, test it and build its reference. The arguments
                            are passed on to Maven. On Debian, as root, that installs
                            openjdk-17-jdk-headless, maven, postgresql and redis-server by apt-get.
  lint [--advisories] [--record-api]
                            Check formatting, clippy, documentation, Markdown, the shape of the
                            workspace, the compatibility of the client API and third-party
                            dependencies. With --advisories, also check those against the advisory
                            database, which is fetched over the network. With --record-api, only
                            write additions to the client API down.
  python [ARGUMENTS...]     Lint, type check and test sdks/python, in an environment of its own under
                            target. The arguments are passed on to pytest. On Debian, as root, that
                            installs python3-venv, postgresql and redis-server by apt-get.
  screenshots               Take pictures of the dashboard again, into docs/screenshots. Needs chromium,
                            chromium-driver and some font, such as fonts-dejavu-core.
  stories [--only NAME] [--list] [--release]
                            Play what goes wrong with locks on real clusters, and check how each
                            story ends. docs/stories has a page for each. On Debian, as root, that installs
                            faketime by apt-get, as `chaos` does, for wall clocks that jump.
  test [--fast] [-- <arguments>...]
                            Set up what the tests need and run those of the whole workspace. With
                            --fast, run only the tests that start no node and no server. On
                            Debian, as root, that installs postgresql, redis-server, prometheus, chromium and
                            chromium-driver by apt-get.
                            The arguments are passed on to `cargo test`.
  typescript [ARGUMENTS...]
                            Lint, type check, document and test sdks/typescript. The arguments are
                            passed on to `node --test`. On Debian, as root, that installs nodejs, npm,
                            postgresql and redis-server by apt-get. If Node.js is older than 20,
                            that installs a newer one by npm, into target/tools.
  upgrade --from PATH       Upgrade a cluster of an older binary to this build, node by node and under
                            load, and check that nothing is lost; docs/versions.md.
  help                      Print this text.

Examples:
  cargo xtask chaos --minutes 3 --seed 7
  cargo xtask compare --only w1 --peers holdfast,redis
  cargo xtask lint
  cargo xtask stories --only pause
  cargo xtask upgrade --from ../holdfast-0.1.0/holdfast
  cargo xtask test
  cargo xtask test --fast
  cargo xtask test -- a_late_release           only the tests with this in their name
  cargo xtask test -- -- --nocapture           after a second `--`: for the test harness

Exit codes: 0 success, 1 a check or a test failed, 64 wrong usage.
";

pub(crate) fn run() {
    print!("{USAGE}");
}
