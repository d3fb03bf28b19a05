//! What people see of the program: options, tables and words.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{
    CommandFixture, PATIENCE, data, eventually, finished, holdfast, output, run, signal, text,
    words,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_held_for_the_least_time_though_its_command_ended() {
    let fixture = CommandFixture::start().await;
    let begun = Instant::now();
    let mut first = fixture
        .holdfast(&["lock", "cron", "--hold-at-least", "2s", "--", "sh", "-c", "touch ran; exit 3"])
        .spawn()
        .unwrap();
    fixture.appears("ran").await;
    // The other host is a little late, and must find the lock held.
    let second = ["lock", "cron", "--wait", "0s", "-E", "0", "--quiet", "--", "touch", "ran-twice"];
    let late = output(fixture.holdfast(&second)).await;
    assert_eq!((late.status.code(), late.stderr.len()), (Some(0), 0), "{late:?}");
    assert!(!fixture.path("ran-twice").exists());
    let code = tokio::task::spawn_blocking(move || first.wait().unwrap().code()).await.unwrap();
    assert_eq!(code, Some(3), "the exit code is the command's");
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(fixture.is_free("cron").await, "it is released at the end, not left to expire");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_the_rest_of_the_least_time() {
    let fixture = CommandFixture::start().await;
    let args = ["lock", "cron", "--hold-at-least", "10m", "--", "sh", "-c", "touch ran; exit 3"];
    let process = fixture.holdfast(&args).spawn().unwrap();
    fixture.appears("ran").await;
    eventually("its command has ended", PATIENCE, || async {
        let children = format!("/proc/{0}/task/{0}/children", process.id());
        let children = std::fs::read_to_string(children).unwrap_or_default();
        let runs_sh = children.split_whitespace().any(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name.trim() == "sh")
        });
        (!runs_sh).then_some(())
    })
    .await;
    signal(&process, Signal::TERM);
    let ended = finished(process).await;
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    fixture.becomes_free("cron").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_least_time_fits_into_the_most() {
    let fixture = CommandFixture::start().await;
    let args = ["lock", "a", "--hold-at-least", "2m", "--max-hold", "1m30s", "--", "true"];
    let said = words(&fixture.cluster, 64, &args).await;
    assert!(said.contains("--hold-at-least 2m is longer than --max-hold 90s"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_lock_says_nothing_that_its_exit_code_tells() {
    let fixture = CommandFixture::start().await;
    let holder = fixture.holdfast(&["lock", "a", "--", "sleep", "60"]).spawn().unwrap();
    eventually("it holds", PATIENCE, || async {
        (fixture.cluster.client().status("a").await.holder_count == 1).then_some(())
    })
    .await;
    for verb in [&["lock", "a", "--wait", "0s"][..], &["elect", "a", "--wait", "300ms"]] {
        let reported = run(&fixture.cluster, &[verb, &["--", "true"]].concat()).await;
        assert_eq!(reported.status.code(), Some(75), "{reported:?}");
        assert!(text(&reported.stderr).contains("held by"), "{reported:?}");
        let quiet = run(&fixture.cluster, &[verb, &["--quiet", "--", "true"]].concat()).await;
        assert_eq!((quiet.status.code(), quiet.stderr.len()), (Some(75), 0), "{quiet:?}");
    }
    signal(&holder, Signal::TERM);
    finished(holder).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_command_and_election_are_in_the_tables() {
    let fixture = CommandFixture::start().await;
    let lock = ["lock", "a", "--owner", "billing team", "--", "sleep", "60"];
    let elect = ["elect", "b", "--value", "box:80", "--", "sleep", "60"];
    let holders = [&lock[..], &elect].map(|args| fixture.holdfast(args).spawn().unwrap());
    for name in ["a", "b"] {
        eventually("it is held", PATIENCE, || async {
            (fixture.cluster.client().status(name).await.holder_count == 1).then_some(())
        })
        .await;
    }
    let shown = async |args: &[&str]| text(&run(&fixture.cluster, args).await.stdout);
    let status = shown(&["status", "a"]).await;
    for word in ["COMMAND", "billing team@", "sleep", "RENEWED", " ago "] {
        assert!(status.contains(word), "{word}: {status}");
    }
    assert!(!status.contains("election"), "{status}");
    let listed = shown(&["ls"]).await;
    for word in ["COMMAND", "billing team@", "sleep", "exclusive, election", "holdfast elect@"] {
        assert!(listed.contains(word), "{word}: {listed}");
    }
    let sessions = shown(&["sessions"]).await;
    for word in ["COMMAND", "billing team@", "sleep", "30.0s"] {
        assert!(sessions.contains(word), "{word}: {sessions}");
    }
    // No client renews what a script has taken.
    data(&fixture.cluster, 0, &["acquire", "c", "--ttl", "1m30s", "--owner", "deploy"]).await;
    let status = shown(&["status", "c"]).await;
    assert!(
        status.contains("deploy@") && status.contains("1m") && status.contains("not connected"),
        "{status}"
    );
    for holder in holders {
        signal(&holder, Signal::TERM);
        finished(holder).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blank_name_is_a_mistake_before_and_at_the_cluster() {
    let fixture = CommandFixture::start().await;
    for args in [
        &["lock", " ", "--", "true"][..],
        &["lock", "--all", "a, ", "--", "true"],
        &["elect", "\u{3000}", "--", "true"],
        &["acquire", " \u{200b}"],
    ] {
        let said = words(&fixture.cluster, 64, args).await;
        assert!(said.contains("blank"), "{args:?}: {said}");
    }
    let session = fixture.cluster.client().open(Duration::from_secs(60)).await;
    let refused = session.acquire(" ", Duration::ZERO).await.unwrap_err();
    let failure = holdfast_proto::v1::Failure::from_status(&refused);
    assert_eq!(failure.reason(), holdfast_proto::v1::Reason::InvalidName, "{failure:?}");
    assert!(failure.message.contains("blank"), "{failure:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_migration_for_postgres_is_printed_without_a_cluster() {
    let mut fence = holdfast();
    fence.args(["fence", "sql", "--endpoints", "127.0.0.1:1"]);
    let printed = output(fence).await;
    assert!(printed.status.success(), "{printed:?}");
    let sql = text(&printed.stdout);
    assert_eq!(sql, holdfast_fence::postgres::MIGRATION);
    assert!(sql.contains("holdfast.check_fence"), "{sql}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_version_names_the_commit() {
    let mut version = holdfast();
    version.arg("--version");
    let reported = text(&output(version).await.stdout);
    let (program, commit) = reported.trim().split_once(" (").unwrap();
    assert_eq!(program, concat!("holdfast ", env!("CARGO_PKG_VERSION")));
    let commit = commit.strip_suffix(')').unwrap();
    let is_commit = commit.len() >= 7 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(is_commit || commit == "unknown commit", "{reported}");
    let mut git = std::process::Command::new("git");
    git.args(["-C", env!("CARGO_MANIFEST_DIR"), "ls-files", "--error-unmatch", "build.rs"]);
    if git.output().is_ok_and(|output| output.status.success()) {
        assert!(is_commit, "in a checkout the commit is known: {reported}");
    }
}
