//! `holdfast lock` among other programs: under `timeout` and `nohup`, in pipes, nested, killed, and with
//! children that do not want to end.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{
    CommandFixture, PATIENCE, Terminal, data, ends, eventually, finished, is_gone, is_running,
    json_lines, output, run, signal, text, words,
};

/// Writes its process id to `pid` when it is ready, and does not mind SIGTERM.
const STUBBORN: &str = "trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done";

#[tokio::test(flavor = "multi_thread")]
async fn under_timeout_the_command_ends_and_nothing_is_left_behind() {
    let fixture = CommandFixture::start().await;
    let held =
        output(fixture.shell("timeout 1 $HF lock a -- sh -c 'echo $$ > pid; exec sleep 60'")).await;
    assert_eq!(held.status.code(), Some(124), "{held:?}");
    assert!(fixture.is_free("a").await, "the lock outlived the command that held it");
    assert!(is_gone(fixture.number_in("pid").await));

    // While it waits: the place in the queue goes with it, at once.
    let mut holder = fixture.holdfast(&["lock", "a", "--", "sleep", "60"]).spawn().unwrap();
    eventually("it holds", PATIENCE, || async {
        (fixture.cluster.client().status("a").await.holder_count == 1).then_some(())
    })
    .await;
    let waited = output(fixture.shell("timeout 1 $HF lock a -- touch never")).await;
    assert_eq!(waited.status.code(), Some(124), "{waited:?}");
    assert_eq!(fixture.cluster.client().status("a").await.waiter_count, 0);
    assert!(!fixture.path("never").exists());
    signal(&holder, Signal::TERM);
    assert_eq!(holder.wait().unwrap().code(), Some(128 + 15));

    // One that does not end is killed, and we with it.
    let script =
        format!("timeout -k 0.5 0.5 $HF lock b -- sh -c \"{}\"", STUBBORN.replace('$', "\\$"));
    let killed = output(fixture.shell(&script)).await;
    // `timeout` ends in the same way as what it has killed.
    assert_eq!(killed.status.signal(), Some(9), "{killed:?}");
    ends(fixture.number_in("pid").await).await;
    fixture.becomes_free("b").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn under_nohup_a_hangup_ends_neither_the_wait_nor_the_command() {
    let fixture = CommandFixture::start().await;
    let script = "trap 'touch heard' USR1; echo $$ > pid; while :; do sleep 0.05; done";
    let mut nohup = fixture.shell("exec nohup $HF lock a -- sh -c \"$SCRIPT\"");
    let process = nohup.env("SCRIPT", script).spawn().unwrap();
    let child = fixture.number_in("pid").await;
    signal(&process, Signal::HUP);
    // Signals of one process are heard in order, so this one shows what became of the other.
    signal(&process, Signal::USR1);
    fixture.appears("heard").await;
    assert!(is_running(&process) && !is_gone(child));

    let mut waiting = fixture.shell("exec nohup $HF lock a -- touch ran");
    let waiting = waiting.spawn().unwrap();
    fixture.has_waiter("a").await;
    signal(&waiting, Signal::HUP);
    signal(&process, Signal::TERM);
    let ended = finished(process).await;
    assert_eq!(ended.status.code(), Some(128 + 15), "{ended:?}");
    let waited = finished(waiting).await;
    assert!(waited.status.success() && fixture.path("ran").exists(), "{waited:?}");

    // Without nohup the command hears of it; the tests themselves may run under it.
    let script =
        "exec env --default-signal=HUP $HF lock a -- sh -c 'echo $$ > pid2; exec sleep 60'";
    let plain = fixture.shell(script).spawn().unwrap();
    fixture.number_in("pid2").await;
    signal(&plain, Signal::HUP);
    assert_eq!(finished(plain).await.status.code(), Some(128 + 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_pipe_stdin_and_stdout_are_the_commands_alone() {
    let fixture = CommandFixture::start().await;
    let piped = output(fixture.shell("echo hello | $HF lock a -- cat | tr a-z A-Z")).await;
    assert_eq!((text(&piped.stdout), text(&piped.stderr)), ("HELLO\n".into(), String::new()));
    // A reader that goes ends the writer, as it would without us.
    let cut = output(fixture.shell("$HF lock a -- yes | head -1; echo ${PIPESTATUS[0]}")).await;
    assert_eq!(text(&cut.stdout), "y\n141\n", "{cut:?}");
    assert_eq!(text(&cut.stderr), "");
    assert!(fixture.is_free("a").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_ignores_term_is_killed_after_the_grace() {
    let fixture = CommandFixture::start().await;
    let lock =
        fixture.holdfast(&["lock", "a", "--grace", "400ms", "--", "sh", "-c", STUBBORN]).spawn();
    let process = lock.unwrap();
    let child = fixture.number_in("pid").await;
    let broken = Instant::now();
    fixture.break_lock("a").await;
    let ended = finished(process).await;
    assert_eq!(ended.status.code(), Some(79), "{ended:?}");
    assert!(broken.elapsed() >= Duration::from_millis(400), "after {:?}", broken.elapsed());
    assert!(text(&ended.stderr).contains("operator broke the lock"), "{ended:?}");
    assert!(is_gone(child));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_command_has_forked_ends_with_it() {
    let fixture = CommandFixture::start().await;
    // The worker takes some of the grace; the shell that started it does not.
    let worker =
        "trap 'sleep 0.2; touch cleaned; exit' TERM; touch ready; while :; do sleep 0.02; done";
    let script = format!("sh -c \"{worker}\" & sleep 300 & echo $! > pid; wait");
    let process = fixture.holdfast(&["lock", "a", "--", "sh", "-c", &script]).spawn().unwrap();
    let forked = fixture.number_in("pid").await;
    fixture.appears("ready").await;
    fixture.break_lock("a").await;
    assert_eq!(finished(process).await.status.code(), Some(79));
    assert!(is_gone(forked));
    assert!(fixture.path("cleaned").exists(), "the worker was not given the grace");

    // One that the shell left behind and that ignores TERM.
    std::fs::remove_file(fixture.path("pid")).unwrap();
    let script = format!("sh -c \"{}\" & sleep 300", STUBBORN.replace('$', "\\$"));
    let args = ["lock", "a", "--grace", "200ms", "--", "sh", "-c", &script];
    let process = fixture.holdfast(&args).spawn().unwrap();
    let forked = fixture.number_in("pid").await;
    fixture.break_lock("a").await;
    assert_eq!(finished(process).await.status.code(), Some(79));
    ends(forked).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_with_9_it_takes_the_command_and_its_children_along() {
    let fixture = CommandFixture::start().await;
    let script = "trap '' TERM HUP INT; (sleep 300 & echo $! > forked); echo $$ > pid; sleep 300";
    let process = fixture.holdfast(&["lock", "a", "--", "sh", "-c", script]).spawn().unwrap();
    let (child, forked) = (fixture.number_in("pid").await, fixture.number_in("forked").await);
    assert!(!is_gone(child) && !is_gone(forked));
    signal(&process, Signal::KILL);
    ends(child).await;
    ends(forked).await;
    fixture.becomes_free("a").await;
    drop(process);
}

#[tokio::test(flavor = "multi_thread")]
async fn nested_each_command_sees_the_lock_around_it_and_all_end_with_the_outermost() {
    let fixture = CommandFixture::start().await;
    let reported = "echo $HOLDFAST_LOCK $HOLDFAST_TOKEN $HOLDFAST_FENCE $HOLDFAST_TOKENS";
    let script = format!(
        "$HF lock outer -- sh -c '{reported}; $HF lock inner -- sh -c \"{}\"; {reported}'",
        reported.replace('$', "\\$")
    );
    let nested = output(fixture.shell(&script)).await;
    let lines: Vec<Vec<String>> = text(&nested.stdout)
        .lines()
        .map(|line| line.split(' ').map(str::to_owned).collect())
        .collect();
    let [before, inside, after] = lines.as_slice() else { panic!("{nested:?}") };
    assert_eq!(before, after);
    assert_eq!((&*before[0], &*inside[0]), ("outer", "inner"));
    for line in [before, inside] {
        let fence: holdfast_proto::Fence = line[2].parse().unwrap();
        assert_eq!((fence.number().to_string(), &line[3]), (line[1].clone(), &line[1]));
    }
    assert_ne!(before[1], inside[1]);

    let lock = "exec $HF lock outer --grace 300ms -- $HF lock inner -- sh -c \"$SCRIPT\"";
    for how in ["killed", "broken"] {
        let _ = std::fs::remove_file(fixture.path("pid"));
        let process = fixture.shell(lock).env("SCRIPT", STUBBORN).spawn().unwrap();
        let child = fixture.number_in("pid").await;
        match how {
            "killed" => signal(&process, Signal::KILL),
            _ => fixture.break_lock("outer").await,
        }
        ends(child).await;
        fixture.becomes_free("inner").await;
        fixture.becomes_free("outer").await;
        drop(process);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_that_were_inherited_never_show_through() {
    let fixture = CommandFixture::start().await;
    let names =
        ["LOCK", "TOKEN", "FENCE", "TOKENS", "FENCES"].map(|name| format!("HOLDFAST_{name}"));
    for how in [&["a"][..], &["a", "--shared"], &["a", "--permits", "2"], &["--all", "a,b"]] {
        let mut lock = fixture.holdfast(&[&["lock"], how, &["--", "env"]].concat());
        lock.envs(names.iter().map(|name| (name, "stale")));
        let reported = output(lock).await;
        let environment = text(&reported.stdout);
        for name in &names {
            let line = environment.lines().find(|line| line.starts_with(&format!("{name}=")));
            let value =
                line.unwrap_or_else(|| panic!("{how:?}: no {name}")).split_once('=').unwrap().1;
            assert!(!value.contains("stale"), "{how:?}: {name}={value}");
            // A permit is not fenceable, and that must not let another fence through.
            let is_empty = how.contains(&"--permits") && name.contains("FENCE");
            assert_eq!(value.is_empty(), is_empty, "{how:?}: {name}={value}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_ended_after_the_loss_does_not_count_as_done() {
    let fixture = CommandFixture::start().await;
    // Our companion asks it to end, as we stand still, and kills it when the lease is over, whatever the grace is.
    let script = "trap '' TERM; echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done; exit 0";
    let args = ["lock", "a", "--ttl", "500ms", "--grace", "60s", "--", "sh", "-c", script];
    let process = fixture.holdfast(&args).spawn().unwrap();
    let child = fixture.number_in("pid").await;
    signal(&process, Signal::STOP);
    fixture.becomes_free("a").await;
    std::fs::write(fixture.path("go"), "").unwrap();
    ends(child).await;
    signal(&process, Signal::CONT);
    let ended = finished(process).await;
    assert_eq!(ended.status.code(), Some(79), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_has_the_exit_code_that_was_asked_for_and_nothing_else_has() {
    let fixture = CommandFixture::start().await;
    let cluster = &fixture.cluster;
    data(cluster, 0, &["acquire", "a", "--ttl", "60s"]).await;
    words(cluster, 75, &["lock", "a", "--wait", "0s", "--", "true"]).await;
    let said = words(cluster, 3, &["lock", "a", "--wait", "0s", "-E", "3", "--", "true"]).await;
    assert!(said.contains("is held by"), "{said}");
    words(
        cluster,
        0,
        &["lock", "a", "--wait", "100ms", "--conflict-exit-code", "0", "--", "false"],
    )
    .await;
    words(cluster, 1, &["lock", "b", "-E", "3", "--", "false"]).await;
    words(cluster, 64, &["lock", "b", "-E", "256", "--", "true"]).await;
    words(cluster, 0, &["lock", "b", "--tier", "correctness", "--", "true"]).await;
    words(cluster, 0, &["lock", "a", "--tier", "efficiency", "--", "true"]).await;
    words(cluster, 64, &["lock", "b", "--tier", "none", "--", "true"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_hears_on_its_own_descriptor_what_becomes_of_the_lock() {
    let fixture = CommandFixture::start().await;
    let reported = |file: &str| {
        let lines = json_lines(&std::fs::read(fixture.path(file)).unwrap());
        lines
            .into_iter()
            .map(|line| (line["event"].as_str().unwrap().to_owned(), line))
            .collect::<Vec<_>>()
    };
    let kinds = |story: &[(String, serde_json::Value)]| {
        story.iter().map(|(kind, _)| kind.clone()).collect::<Vec<_>>().join(" ")
    };
    // The command does not inherit it, so nothing but our words can be there.
    let script = "$HF lock --all a,b --status-fd 3 -- sh -c 'echo mine >&3; exit 7' 3>story";
    let ended = output(fixture.shell(script)).await;
    assert!(text(&ended.stderr).contains("Bad file descriptor"), "{ended:?}");
    let script = "$HF lock --all a,b --status-fd 3 -- sh -c 'exit 7' 3>story";
    assert_eq!(output(fixture.shell(script)).await.status.code(), Some(7));
    let story = reported("story");
    assert_eq!(kinds(&story), "held started released ended");
    let locks = &story[0].1["locks"];
    assert_eq!((&locks[0]["name"], &locks[1]["name"]), (&"a".into(), &"b".into()));
    assert!(locks[0]["token"].as_str() > Some("0") && locks[1]["fence"].is_string(), "{locks}");
    assert_eq!(story[3].1["exit_code"], 7);

    // What others write to the same file stays, before us and after us.
    let script =
        "exec 3>shared; echo one >&3; $HF lock a --status-fd 3 -- true; echo two >&3; cat shared";
    let shared = text(&output(fixture.shell(script)).await.stdout);
    let lines: Vec<&str> = shared.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[5]), (6, "one", "two"), "{shared}");
    assert!(lines[1].contains("held") && lines[4].contains("ended"), "{shared}");

    // Behind a client: its place is told; then that it got it, and lost it.
    let first = fixture.holdfast(&["lock", "a", "--", "sleep", "60"]).spawn().unwrap();
    eventually("it holds", PATIENCE, || async { (!fixture.is_free("a").await).then_some(()) })
        .await;
    let script = "exec $HF lock a --status-fd 3 -- sh -c 'echo $$ > pid; exec sleep 60' 3>story2";
    let second = fixture.shell(script).spawn().unwrap();
    eventually("its place is told", PATIENCE, || async {
        (std::fs::read(fixture.path("story2")).ok()?.contains(&b'\n')).then_some(())
    })
    .await;
    signal(&first, Signal::TERM);
    finished(first).await;
    fixture.number_in("pid").await;
    fixture.break_lock("a").await;
    assert_eq!(finished(second).await.status.code(), Some(79));
    let story = reported("story2");
    assert_eq!(kinds(&story), "waiting held started lost ended");
    assert_eq!(story[0].1["position"], 1);
    assert_eq!(story[4].1["exit_code"], 79);

    let nowhere = run(&fixture.cluster, &["lock", "a", "--status-fd", "77", "--", "true"]).await;
    assert_eq!(nowhere.status.code(), Some(64), "{nowhere:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_at_a_terminal_sees_the_place_in_line_and_no_other_client_does() {
    let fixture = CommandFixture::start().await;
    data(&fixture.cluster, 0, &["acquire", "a", "--ttl", "60s", "--reason", "month end"]).await;
    let mut terminal = Terminal::start(&fixture.cluster, "lock a --wait 1500ms -- true");
    assert_eq!(terminal.ended().await, 75);
    let seen = terminal.shown();
    assert!(seen.contains("waiting for a for") && seen.contains("place 1 for"), "{seen:?}");
    assert!(seen.contains("a is held by holdfast acquire"), "{seen:?}");
    let piped = run(&fixture.cluster, &["lock", "a", "--wait", "1500ms", "--", "true"]).await;
    assert_eq!(piped.status.code(), Some(75));
    let words = text(&piped.stderr);
    assert!(!words.contains('\r') && !words.contains("waiting for a for"), "{words:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_a_terminal_the_keyboard_is_the_commands() {
    let fixture = CommandFixture::start().await;
    let script = "lock a -- sh -c 'read line; echo \"got $line\"'";
    let mut terminal = Terminal::start(&fixture.cluster, script);
    eventually("it holds", PATIENCE, || async { (!fixture.is_free("a").await).then_some(()) })
        .await;
    terminal.press(b"hello\n");
    assert_eq!(terminal.ended().await, 0);
    assert!(terminal.shown().contains("got hello"), "{}", terminal.shown());

    let script = "lock a -- sh -c 'echo started; exec sleep 60'";
    let mut terminal = Terminal::start(&fixture.cluster, script);
    terminal.shows("started").await;
    // Control-Z would leave a lock held by a command that stands still.
    terminal.press(b"\x1a");
    terminal.shows("is not suspended").await;
    terminal.press(b"\x03");
    assert_eq!(terminal.ended().await, 128 + 2);
    assert!(fixture.is_free("a").await);
}
