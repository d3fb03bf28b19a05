//! `holdfast access`, and commands and programs that prove by a token who they are.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use holdfast_client::Client;
use holdfast_proto::AccessToken;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Cluster, PATIENCE, eventually, holdfast, json, output, text};

const DENIED: i32 = 77;

/// A cluster that demands credentials, and the files with the tokens of its users.
pub(crate) struct Secured {
    pub(crate) cluster: Cluster,
    dir: TempDir,
}

impl Secured {
    /// With an administrator, whose token is in the file `admin`.
    pub(crate) async fn start(nodes: u64) -> Secured {
        let cluster = Cluster::start_demanding(nodes).await;
        let secured = Secured { cluster, dir: tempfile::tempdir().unwrap() };
        let mut bootstrap = holdfast();
        bootstrap.args([
            "access",
            "bootstrap",
            "--config",
            &secured.cluster.config_path(1),
            "--to",
        ]);
        bootstrap.arg(secured.token_file("admin"));
        let made = output(bootstrap).await;
        assert!(made.status.success(), "{made:?}");
        secured
    }

    pub(crate) fn token_file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn secret(&self, name: &str) -> String {
        std::fs::read_to_string(self.token_file(name)).unwrap().trim().to_owned()
    }

    pub(crate) fn command(&self, user: &str, args: &[&str]) -> Command {
        let mut command = holdfast();
        command.env("HOLDFAST_ENDPOINTS", self.cluster.endpoints());
        command.env("HOLDFAST_AUTH_FILE", self.token_file(user)).args(args);
        command
    }

    pub(crate) async fn run(&self, user: &str, args: &[&str]) -> Output {
        output(self.command(user, args)).await
    }

    pub(crate) async fn done(&self, user: &str, args: &[&str]) -> String {
        let output = self.run(user, args).await;
        assert!(output.status.success(), "{args:?}: {output:?}");
        text(&output.stdout)
    }

    pub(crate) async fn data(&self, user: &str, args: &[&str]) -> Value {
        let output = self.run(user, &[args, &["--output", "json"]].concat()).await;
        assert!(output.status.success(), "{args:?}: {output:?}");
        json(&output)
    }

    pub(crate) async fn denied(&self, user: &str, args: &[&str]) -> String {
        let output = self.run(user, args).await;
        assert_eq!(output.status.code(), Some(DENIED), "{args:?}: {output:?}");
        text(&output.stderr)
    }

    /// A user whose token is in the file `name`.
    pub(crate) async fn user(&self, name: &str, role: &str) {
        let (principal, file) = (format!("token:{name}"), self.token_file(name));
        let file = file.to_str().unwrap();
        self.done("admin", &["access", "user", "create", &principal, "--role", role, "--to", file])
            .await;
    }

    pub(crate) async fn client(&self, name: &str) -> Client {
        let builder =
            Client::builder().auth_file(self.token_file(name)).ttl(Duration::from_secs(5));
        builder.connect(&self.cluster.endpoints()).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_that_may_not_read_is_told_that_the_holder_cannot_be_shown() {
    let secured = Secured::start(1).await;
    let allow = ["--allow", "exclusive:e/*", "--allow", "connect"];
    secured.done("admin", &[&["access", "role", "create", "blind"], &allow[..]].concat()).await;
    secured.user("worker", "blind").await;
    let held = secured.client("worker").await.lock("e/1").acquire().await.unwrap();
    let busy = secured.run("worker", &["lock", "e/1", "--wait", "0s", "--", "true"]).await;
    let words = text(&busy.stderr);
    assert_eq!(busy.status.code(), Some(75), "{words}");
    assert!(words.contains("e/1 is not free") && words.contains("the verb read"), "{words}");
    held.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_shows_its_token_and_without_a_good_one_says_what_is_missing() {
    let secured = Secured::start(3).await;
    secured.user("worker", "user").await;
    let locks = ["lock", "a", "--", "true"];
    for verb in [&locks[..], &["elect", "e", "--", "true"], &["status", "a"], &["ls"]] {
        secured.done("worker", verb).await;
        let mut without = secured.command("worker", verb);
        without.env_remove("HOLDFAST_AUTH_FILE");
        let refused = output(without).await;
        assert_eq!(refused.status.code(), Some(DENIED), "{verb:?}: {refused:?}");
        let words = text(&refused.stderr);
        assert!(words.contains("--auth-file") && words.contains("HOLDFAST_AUTH_FILE"), "{words}");
    }
    // An option, and a context of the configuration file.
    let file = secured.token_file("worker");
    let mut by_option = secured.command("nowhere", &["status", "a"]);
    by_option.env_remove("HOLDFAST_AUTH_FILE").arg("--auth-file").arg(&file);
    assert!(output(by_option).await.status.success());
    let config = secured.dir.path().join("config.toml");
    let endpoints = secured.cluster.endpoints();
    let context = format!(
        "context = \"c\"\n[contexts.c]\nendpoints = \"{endpoints}\"\nauth_file = \"worker\"\n"
    );
    std::fs::write(&config, context).unwrap();
    let mut by_context = holdfast();
    by_context.env("HOLDFAST_CONFIG", &config).args(["status", "a"]);
    assert!(output(by_context).await.status.success());

    // Files that cannot be used.
    assert!(secured.denied("nowhere", &["status", "a"]).await.contains("cannot read the token"));
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    for verb in [&["status", "a"][..], &locks] {
        assert!(secured.denied("worker", verb).await.contains("chmod 600"));
    }
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    // A token that the cluster does not know, and one that may not.
    let unknown = secured.token_file("unknown");
    std::fs::copy(&file, &unknown).unwrap();
    std::fs::write(&unknown, AccessToken::random().unwrap().to_secret_text()).unwrap();
    for verb in [&["status", "a"][..], &locks] {
        let words = secured.denied("unknown", verb).await;
        assert!(words.contains("not known") && words.contains("administrator"), "{words}");
    }
    let words = secured.denied("worker", &["access", "user", "list"]).await;
    assert!(words.contains("token:worker"), "{words}");

    for name in ["admin", "worker"] {
        let secret = &secured.secret(name)[21..];
        for node in secured.cluster.ids() {
            assert!(!secured.cluster.log_of(node).contains(secret), "node {node} logs a token");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_outlives_the_rotation_of_its_token_and_a_killed_holder_frees_its_lock() {
    let mut secured = Secured::start(3).await;
    secured.user("worker", "user").await;
    let client = secured.client("worker").await;
    let guard = client.lock("kept").acquire().await.unwrap();
    let token = guard.token().unwrap();

    // A new token takes the place of the old one, which is revoked. Then the leader dies.
    let new = secured.token_file("new");
    let create = ["access", "token", "create", "token:worker", "--to", new.to_str().unwrap()];
    secured.data("admin", &create).await;
    let tokens = secured.data("admin", &["access", "token", "list"]).await;
    let old = &secured.secret("worker")[4..20];
    assert!(tokens["tokens"].as_array().unwrap().iter().any(|token| token["id"] == old));
    let short = secured.token_file("short");
    let create = ["access", "token", "create", "token:worker", "--expires", "24h", "--to"];
    secured.data("admin", &[&create[..], &[short.to_str().unwrap()]].concat()).await;
    let soon = secured.data("admin", &["access", "token", "list", "--within", "25h"]).await;
    let ids: Vec<_> = soon["tokens"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
    assert_eq!(ids, [&secured.secret("short")[4..20]]);
    assert_eq!(soon["tokens"][0]["has_ended"], false);
    let none = secured.done("admin", &["access", "token", "list", "--within", "23h"]).await;
    assert_eq!(none, "no token has ended or ends within 23h\n");
    std::fs::rename(&new, secured.token_file("worker")).unwrap();
    secured.done("admin", &["access", "token", "revoke", old]).await;
    let leader = eventually("there is a leader", PATIENCE, async || {
        let shown = secured.data("admin", &["cluster", "status"]).await;
        shown["groups"][0]["leader"].as_u64().filter(|leader| *leader > 0)
    })
    .await;
    secured.cluster.kill(leader);
    let held = eventually("the session goes on", PATIENCE, async || {
        let status = client.status("kept").await.ok()?;
        status.holders.first().map(|holder| holder.token)
    })
    .await;
    assert_eq!(held, token);
    guard.release().await.unwrap();
    client.close().await.unwrap();

    let holding = ["lock", "killed", "--ttl", "60s", "--", "sleep", "600"];
    let mut holder = secured.command("worker", &holding).spawn().unwrap();
    let count = async || {
        let shown = secured.run("worker", &["status", "killed", "--output", "json"]).await;
        shown.status.success().then(|| json(&shown)["holder_count"].as_u64().unwrap())
    };
    eventually("it holds", PATIENCE, async || count().await.filter(|count| *count == 1)).await;
    holder.kill().unwrap();
    holder.wait().unwrap();
    let within = Duration::from_secs(20);
    eventually("it is free", within, async || count().await.filter(|count| *count == 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_applies_a_policy_and_sees_which_rule_decides() {
    let secured = Secured::start(1).await;
    let again = output({
        let mut again = holdfast();
        again.args(["access", "bootstrap", "--config", &secured.cluster.config_path(1)]);
        again
    })
    .await;
    assert_eq!(again.status.code(), Some(DENIED), "{again:?}");
    let whoami = secured.data("admin", &["access", "whoami"]).await;
    assert_eq!(
        (&whoami["principal"], &whoami["mode"]),
        (&"token:admin".into(), &"required".into())
    );

    let policy = secured.dir.path().join("policy.toml");
    let path = policy.to_str().unwrap();
    let shown = secured.done("admin", &["access", "show"]).await;
    std::fs::write(&policy, &shown).unwrap();
    assert_eq!(secured.done("admin", &["access", "diff", path]).await, "nothing differs\n");
    let billing = "[[roles.billing.rules]]\nverbs = [\"read\", \"exclusive\"]\npattern = \"billing/*\"\n\
                   [[roles.billing.rules]]\nverbs = [\"connect\"]\n";
    let users = "\"token:billing\" = [\"billing\"]\n\"token:admin\" = [\"admin\"]\n";
    std::fs::write(&policy, format!("{billing}[users]\n{users}")).unwrap();
    let differs = secured.run("admin", &["access", "diff", path]).await;
    assert_eq!(differs.status.code(), Some(1), "{differs:?}");
    assert!(text(&differs.stdout).contains("+ user token:billing has role billing"), "{differs:?}");
    secured.done("admin", &["access", "apply", path]).await;
    assert_eq!(secured.done("admin", &["access", "diff", path]).await, "nothing differs\n");

    let can = async |verb: &str, name: &str| {
        let asked = ["access", "can", "token:billing", verb, name, "--output", "json"];
        let told = secured.run("admin", &asked).await;
        let shown = json(&told);
        assert_eq!(shown["is_allowed"] == true, told.status.success(), "{told:?}");
        (shown["is_allowed"] == true, shown["reason"].as_str().unwrap().to_owned())
    };
    let (is_allowed, reason) = can("exclusive", "billing/a").await;
    assert!(!is_allowed && reason.contains("has no token that counts"), "{reason}");
    let file = secured.token_file("billing");
    let create = ["access", "token", "create", "token:billing", "--to", file.to_str().unwrap()];
    secured.done("admin", &create).await;
    let (is_allowed, reason) = can("exclusive", "billing/a").await;
    assert!(is_allowed && reason.contains("the role billing allows"), "{reason}");
    let (is_allowed, reason) = can("break", "billing/a").await;
    assert!(!is_allowed && reason.contains("no role of token:billing"), "{reason}");

    // What is told is what happens.
    secured.done("billing", &["lock", "billing/a", "--", "true"]).await;
    secured.denied("billing", &["lock", "other", "--", "true"]).await;
    let broken = ["break", "billing/a", "--token", "1", "--reason", "x"];
    secured.denied("billing", &broken).await;

    // Taken from it, its sessions included.
    let holding = secured.client("billing").await;
    let guard = holding.lock("billing/held").acquire().await.unwrap();
    let revoke = ["access", "user", "revoke", "token:billing", "--end-sessions"];
    secured.done("admin", &revoke).await;
    let status = secured.data("admin", &["status", "billing/held"]).await;
    assert_eq!(status["holder_count"], 0, "{status}");
    drop(guard);
    secured.denied("billing", &["status", "billing/a"]).await;
    let users = secured.data("admin", &["access", "user", "list"]).await;
    let mut billing = users["users"].as_array().unwrap().iter();
    let billing = billing.find(|user| user["principal"] == "token:billing").unwrap();
    assert_eq!(billing["is_banned"], true);

    let allow = ["--allow", "read:b/*", "--allow", "connect"];
    secured.done("admin", &[&["access", "role", "create", "r"][..], &allow].concat()).await;
    let roles = secured.done("admin", &["access", "role", "list"]).await;
    assert!(roles.contains("b/*") && roles.contains("built-in"), "{roles}");
    secured.done("admin", &["access", "user", "create", "cert:x", "--role", "r"]).await;
    secured.done("admin", &["access", "role", "delete", "r"]).await;
    let wrong = secured.run("admin", &["access", "role", "delete", "admin"]).await;
    assert_eq!(wrong.status.code(), Some(64), "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_who_is_locked_out_gets_in_by_a_stopped_node() {
    let mut secured = Secured::start(3).await;
    secured.user("worker", "user").await;
    secured.user("second", "admin").await;
    let config = secured.cluster.config_path(2);
    let file = secured.token_file("rescue");
    let reset = |flag: &str| {
        let mut reset = holdfast();
        reset.args(["access", "reset", "--config", &config, "--to"]).arg(&file);
        if !flag.is_empty() {
            reset.arg(flag);
        }
        output(reset)
    };
    assert_eq!(reset("").await.status.code(), Some(64));
    let running = reset("--i-am-locked-out").await;
    assert_eq!(running.status.code(), Some(75), "{running:?}");
    assert!(!file.exists());
    secured.cluster.terminate(2).await;
    let done = reset("--i-am-locked-out").await;
    assert!(done.status.success(), "{done:?}");
    secured.cluster.launch(2);
    let users = eventually("the new administrator is let in", PATIENCE, async || {
        let listed = secured.run("rescue", &["access", "user", "list", "--output", "json"]).await;
        listed.status.success().then(|| json(&listed))
    })
    .await;
    let roles_of = |name: &str| {
        let users = users["users"].as_array().unwrap();
        let user = users.iter().find(|user| user["principal"] == name).unwrap();
        user["roles"].clone()
    };
    assert_eq!(roles_of("token:admin"), serde_json::json!(["admin"]));
    assert_eq!(roles_of("token:second"), serde_json::json!([]));
    assert_eq!(roles_of("token:worker"), serde_json::json!(["user"]));
    for old in ["admin", "second"] {
        secured.denied(old, &["access", "user", "list"]).await;
    }
    secured.done("worker", &["lock", "a", "--", "true"]).await;
    // The next start changes nothing.
    let kept = secured.cluster.data_dir(2).join("access-reset.toml");
    eventually("the node forgets it", PATIENCE, async || (!kept.exists()).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_asks_no_caller_who_it_is_has_no_administrators_and_says_how_to_get_one() {
    let cluster = Cluster::start(1).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.token");
    let create = ["access", "user", "create", "token:x", "--role", "user", "--to"];
    let create = [&create[..], &[file.to_str().unwrap()]].concat();
    for args in [&["access", "show"][..], &["access", "user", "list"], &create] {
        let mut asked = holdfast();
        asked.env("HOLDFAST_ENDPOINTS", cluster.endpoints()).args(args);
        let refused = output(asked).await;
        assert_eq!(refused.status.code(), Some(DENIED), "{args:?}: {refused:?}");
        let words = text(&refused.stderr);
        let says = |what: &str| words.contains(what);
        assert!(says("auth.mode") && says("access bootstrap"), "{args:?}: {words}");
    }
    assert!(!file.exists(), "a token that the cluster does not know is of no use");
    let mut bootstrap = holdfast();
    bootstrap.args(["access", "bootstrap", "--config", &cluster.config_path(1)]);
    let refused = output(bootstrap).await;
    assert!(text(&refused.stderr).contains("auth.mode"), "{refused:?}");
    let mut whoami = holdfast();
    whoami.env("HOLDFAST_ENDPOINTS", cluster.endpoints()).args(["access", "whoami"]);
    let told = output(whoami).await;
    assert!(text(&told.stdout).contains("off: every client may do everything"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_one_prefix_uses_it_and_hears_which_verb_is_missing_elsewhere() {
    let secured = Secured::start(1).await;
    let allow = ["--allow", "read,exclusive:billing/*", "--allow", "connect"];
    let role = [&["access", "role", "create", "billing"][..], &allow].concat();
    secured.done("admin", &role).await;
    secured.user("billing", "billing").await;
    let freeze = |prefix| ["freeze", prefix, "--for", "1m", "--reason", "a test"];
    secured.done("admin", &freeze("billing/frozen/")).await;
    secured.done("admin", &freeze("secret/")).await;
    let listed = secured.data("billing", &["ls", "billing/"]).await;
    assert!(listed["locks"].as_array().unwrap().is_empty(), "{listed}");
    let freezes = secured.done("billing", &["freezes"]).await;
    assert!(freezes.contains("billing/frozen/") && !freezes.contains("secret/"), "{freezes}");
    for (args, what) in [
        (&["lock", "other", "--", "true"][..], "exclusive for \"other\""),
        (&["lock", "--shared", "billing/a", "--", "true"], "shared for \"billing/a\""),
        (&["ls"], "read for all names"),
        (&["cluster", "status"], "cluster-read"),
        // A denial is not an outage.
        (&["top", "billing/"], "cluster-read"),
    ] {
        let words = secured.denied("billing", args).await;
        assert!(words.contains(what), "{args:?}: {words}");
    }
    let allow = ["--allow", "read:billing/*", "--allow", "connect,cluster-read"];
    let role = [&["access", "role", "create", "watcher"][..], &allow].concat();
    secured.done("admin", &role).await;
    secured.user("watcher", "watcher").await;
    let top = secured.done("watcher", &["top", "billing/"]).await;
    assert!(top.contains("leads in term") && top.contains("median"), "{top}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_is_given_to_users_that_there_are_and_a_jwt_needs_no_user() {
    let secured = Secured::start(1).await;
    let typing_error = ["access", "user", "grant", "token:wroker", "admin"];
    let refused = secured.run("admin", &typing_error).await;
    let words = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(64), "{words}");
    assert!(words.contains("no user token:wroker") && words.contains("user create"), "{words}");
    let users = secured.done("admin", &["access", "user", "list"]).await;
    assert!(!users.contains("wroker"), "{users}");
    secured.user("worker", "user").await;
    secured.done("admin", &["access", "user", "grant", "token:worker", "reader"]).await;
    secured.done("admin", &["access", "user", "grant", "jwt:issuer:alice", "reader"]).await;
    // Who was revoked is known, and may act again.
    secured.done("admin", &["access", "user", "revoke", "token:worker"]).await;
    secured.done("admin", &["access", "user", "grant", "token:worker", "user"]).await;
    let missing = secured.run("admin", &["access", "role", "delete", "nothing"]).await;
    let words = text(&missing.stderr);
    assert_eq!(missing.status.code(), Some(64), "{words}");
    assert!(words.contains("no role nothing") && words.contains("role list"), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_that_takes_nothing_or_the_last_administrator_is_refused() {
    let secured = Secured::start(1).await;
    secured.user("worker", "user").await;
    let refused = async |args: &[&str]| {
        let output = secured.run("admin", args).await;
        assert_eq!(output.status.code(), Some(64), "{args:?}: {output:?}");
        text(&output.stderr)
    };
    let words = refused(&["access", "user", "revoke", "token:nope"]).await;
    assert!(words.contains("no user token:nope") && words.contains("user list"), "{words}");
    let words = refused(&["access", "user", "revoke", "token:worker", "--role", "admin"]).await;
    assert!(words.contains("does not have the role admin"), "{words}");
    let words = refused(&["access", "user", "revoke", "token:admin"]).await;
    assert!(words.contains("no administrator would be left"), "{words}");
    let policy = secured.dir.path().join("policy.toml");
    std::fs::write(&policy, "[users]\n\"token:worker\" = [\"user\"]\n").unwrap();
    let words = refused(&["access", "apply", policy.to_str().unwrap()]).await;
    assert!(words.contains("no administrator would be left"), "{words}");
    // With a second one it may go.
    secured.user("second", "admin").await;
    secured.done("second", &["access", "user", "revoke", "token:admin"]).await;
    secured.denied("admin", &["access", "user", "list"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_that_would_lock_itself_out_is_told_and_has_to_force_it() {
    let secured = Secured::start(1).await;
    secured.user("second", "admin").await;
    let own = secured.secret("second")[4..20].to_owned();
    let refused = async |args: &[&str]| {
        let output = secured.run("second", args).await;
        assert_eq!(output.status.code(), Some(64), "{args:?}: {output:?}");
        text(&output.stderr)
    };
    let revoke = ["access", "user", "revoke", "token:second", "--role", "admin"];
    for args in [&revoke[..], &revoke[..4]] {
        let words = refused(args).await;
        assert!(words.contains("nothing was changed: you are token:second"), "{words}");
        assert!(words.contains("Only token:admin could"), "{words}");
    }
    let words = refused(&["access", "token", "revoke", &own]).await;
    assert!(words.contains("is the token that this command shows"), "{words}");
    // Nothing was changed, and the token of another user may be revoked.
    let whoami = secured.data("second", &["access", "whoami"]).await;
    assert_eq!(whoami["roles"], serde_json::json!(["admin"]));
    secured.user("third", "reader").await;
    let third = secured.secret("third")[4..20].to_owned();
    secured.done("second", &["access", "token", "revoke", &third]).await;

    // A role is as good as what it allows.
    let create = ["access", "role", "create", "ops", "--allow"];
    secured.done("admin", &[&create[..], &["access,connect"]].concat()).await;
    secured.done("admin", &["access", "user", "grant", "token:second", "ops"]).await;
    let revoked = secured.done("second", &revoke).await;
    assert!(revoked.contains("its roles are now ops"), "{revoked}");
    for args in [
        &["access", "role", "delete", "ops"][..],
        &[&create[..], &["connect", "--replace"]].concat(),
    ] {
        assert!(refused(args).await.contains("you are token:second"));
    }
    let forced = secured.done("second", &["access", "role", "delete", "ops", "--force"]).await;
    assert!(forced.contains("took it from token:second"), "{forced}");
    secured.denied("second", &["access", "user", "list"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_user_can_do_is_told_as_the_nodes_decide_it() {
    let secured = Secured::start(1).await;
    let allow = ["--allow", "read,exclusive:e/*"];
    secured.done("admin", &[&["access", "role", "create", "silent"], &allow[..]].concat()).await;
    secured.user("worker", "silent").await;
    let can = async |verb: &str, name: &str| {
        let output = secured.run("admin", &["access", "can", "token:worker", verb, name]).await;
        (output.status.code(), text(&output.stdout))
    };
    let (code, words) = can("exclusive", "e/1").await;
    assert_eq!(code, Some(DENIED), "{words}");
    assert!(words.contains("allows connect"), "{words}");
    for verb in [&["lock", "e/1", "--", "true"][..], &["acquire", "e/1"]] {
        assert!(secured.denied("worker", verb).await.contains("the verb connect"));
    }
    assert_eq!(can("read", "e/1").await.0, Some(0));
    secured.done("worker", &["status", "e/1"]).await;

    let connect = ["access", "role", "create", "talks", "--allow", "connect"];
    secured.done("admin", &connect).await;
    let granted =
        secured.done("admin", &["access", "user", "grant", "token:worker", "talks"]).await;
    assert!(
        granted.starts_with("granted talks to token:worker; its roles are now silent, talks"),
        "{granted}"
    );
    let (code, words) = can("exclusive", "e/1").await;
    assert_eq!(code, Some(0), "{words}");
    assert!(words.contains("the role talks allows connect"), "{words}");
    secured.done("worker", &["lock", "e/1", "--", "true"]).await;

    // Its sessions are shown with its name, and a change of the policy that ends them is told in the history.
    let client = secured.client("worker").await;
    let _held = client.lock("e/2").acquire().await.unwrap();
    let sessions = secured.data("admin", &["sessions"]).await;
    assert_eq!(sessions["sessions"][0]["principal"], "token:worker", "{sessions}");
    assert!(secured.done("admin", &["sessions"]).await.contains("token:worker"));
    let revoke = ["access", "user", "revoke", "token:worker", "--end-sessions"];
    secured.done("admin", &revoke).await;
    let history = secured.data("admin", &["history", "e/2"]).await;
    let last = history["events"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["event"], &last["by"]), (&"killed".into(), &"token:admin".into()), "{last}");
    assert!(last["detail"].as_str().unwrap().contains("token:worker loses everything"), "{last}");
    let (code, words) = can("exclusive", "e/1").await;
    assert_eq!((code, words.contains("everything was taken")), (Some(DENIED), true), "{words}");
}
