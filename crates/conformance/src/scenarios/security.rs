//! TLS, and callers that must prove who they are.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::locks::TTL;
use crate::driver::Reply;
use crate::finding::{Checked, ensure, violation};
use crate::stage::{Stage, ms};

const LONG_TTL: Duration = Duration::from_secs(30);

/// A client with a certificate and one with a token are served; clients without a right credential are not.
pub(super) async fn tls(stage: &mut Stage<'_>) -> Checked {
    stage.cluster.command(&["access", "user", "create", "cert:alice", "--role", "user"]).await?;
    let mut request = stage.connect_request("by-certificate", TTL);
    request["cert"] = json!(stage.cluster.file("client-alice.pem"));
    request["key"] = json!(stage.cluster.file("client-alice-key.pem"));
    stage.driver.ok(request).await?;
    let token = create_user(stage, "bob", "user").await?;
    let mut request = stage.connect_request("by-token", TTL);
    request["auth_file"] = json!(token);
    stage.driver.ok(request).await?;
    for client in ["by-certificate", "by-token"] {
        stage.acquire(json!({"client": client, "name": client})).await?;
        stage.release(client, "released").await?;
        stage.close(client).await?;
    }
    stage.driver.err(stage.connect_request("anonymous", TTL), "unauthenticated").await?;
    let mut request = stage.connect_request("wrong", TTL);
    let made_up = stage.cluster.file("made-up.token");
    write_secret(&made_up, &format!("hft_{}_{}", "0".repeat(16), "A".repeat(43)))?;
    request["auth_file"] = json!(made_up);
    stage.driver.err(request, "unauthenticated").await?;
    for missing in ["ca", "auth_file"] {
        let mut request = stage.connect_request("missing", TTL);
        request[missing] = json!(stage.cluster.file("there-is-no-such-file"));
        stage.driver.err(request, "invalid").await?;
    }
    plaintext(stage).await
}

/// A client that speaks plaintext is told that this does not work.
async fn plaintext(stage: &Stage<'_>) -> Checked {
    let request = json!({
        "op": "connect", "as": "plain", "endpoints": stage.cluster.endpoints(), "ttl_ms": ms(TTL),
        "request_timeout_ms": 3000,
    });
    match stage.driver.call(request).await? {
        Reply::Err(error) if is_kind(&error, &["unauthenticated", "unavailable"]) => Ok(()),
        other => violation(format!("plaintext to a node that speaks TLS: {other}")),
    }
}

/// The policy allows some names alone.
pub(super) async fn permission_denied(stage: &mut Stage<'_>) -> Checked {
    let allowed = format!("read,exclusive:{}*", stage.name("mine/"));
    let create = ["access", "role", "create", "mine", "--allow", &allowed, "--allow", "connect"];
    stage.cluster.command(&create).await?;
    connect_user(stage, "carol", "mine", TTL).await?;
    stage.acquire(json!({"client": "c", "name": "mine/a"})).await?;
    let request =
        json!({"op": "acquire", "client": "c", "name": stage.name("other"), "as": "other"});
    stage.driver.err(request, "permission_denied").await?;
    let names = [stage.name("mine/b"), stage.name("other")];
    let request = json!({"op": "acquire_all", "client": "c", "names": names, "as": "both"});
    stage.driver.err(request, "permission_denied").await?;
    stage.held("mine/a", "mine/a").await?;
    let request = json!({"op": "watch", "client": "c", "prefix": stage.name("other"), "as": "w"});
    // A library may ask for the stream at once, or when the program wants to have the first item.
    match stage.driver.call(request).await? {
        Reply::Ok(_) => {
            let next = json!({"op": "next", "watch": "w"});
            stage.driver.err(next, "permission_denied").await?;
        }
        refused => drop(refused.err("a watch of others' locks", "permission_denied")?),
    }
    stage.close("c").await
}

/// A broken connection costs nothing with TLS, too.
pub(super) async fn tls_broken(stage: &mut Stage<'_>) -> Checked {
    connect_user(stage, "dave", "user", LONG_TTL).await?;
    let token = stage.acquire(json!({"client": "c", "name": "a"})).await?;
    for round in 0..3 {
        stage.cluster.network.break_clients();
        let name = format!("b{round}");
        stage.acquire(json!({"client": "c", "name": name, "wait_ms": 5000})).await?;
        let now = stage.held("a", "a").await?;
        ensure(now == token, || format!("the token became {now}"))?;
    }
    stage.close("c").await
}

/// Nodes whose certificate another authority signed get neither a credential nor a request.
pub(super) async fn tls_wrong_authority(stage: &mut Stage<'_>) -> Checked {
    let token = create_user(stage, "erin", "user").await?;
    for cluster in ["conformance", "another"] {
        let dir = stage.cluster.file(&format!("authority-{cluster}"));
        let to = dir.display().to_string();
        stage.cluster.command(&["cert", "ca", "--cluster", cluster, "--dir", &to]).await?;
        let mut request = stage.connect_request("c", TTL);
        request["ca"] = json!(dir.join("ca.pem"));
        request["auth_file"] = json!(token);
        request["request_timeout_ms"] = json!(3000);
        stage.driver.err(request, "unauthenticated").await?;
    }
    Ok(())
}

/// The time of the client's token is over while its stream is open: the node ends the stream, its hold ends within the
/// TTL, and a new token lets it in again.
pub(super) async fn credential_expired(stage: &mut Stage<'_>) -> Checked {
    let ttl = Duration::from_secs(4);
    let (file, end) = connect_for_a_moment(stage, "frank", ttl).await?;
    stage.acquire(json!({"client": "c", "name": "a"})).await?;
    await_end_of_credential(stage, end, ttl).await?;
    refused_acquire(stage).await?;
    // Until then the client may resume its session, in which the lock is held, though its guard is lost.
    stage.cluster.audit.wait_for_event("expired", &stage.name("a")).await?;
    replace_token(stage, "frank", &file).await?;
    stage
        .acquire_again(json!({"client": "c", "name": "a", "wait_ms": 10_000, "as": "next"}))
        .await?;
    stage.lost("a", "a", "").await?;
    stage.close("c").await
}

/// The time of the client's token is over, and its file has the next one a moment later. All nodes deny the client
/// meanwhile, and the hold lives on.
pub(super) async fn credential_late(stage: &mut Stage<'_>) -> Checked {
    let (file, end) = connect_for_a_moment(stage, "ivan", LONG_TTL).await?;
    let token = stage.acquire(json!({"client": "c", "name": "a"})).await?;
    tokio::time::sleep_until((end + Duration::from_millis(500)).into()).await;
    replace_token(stage, "ivan", &file).await?;
    stage.acquire_again(json!({"client": "c", "name": "b", "wait_ms": 10_000})).await?;
    let now = stage.held("a", "a").await?;
    ensure(now == token, || format!("the token became {now}"))?;
    stage.release("a", "released").await?;
    stage.close("c").await
}

/// Everything is taken from the client's user: its heartbeats are refused, so its hold ends within the TTL.
pub(super) async fn credential_revoked(stage: &mut Stage<'_>) -> Checked {
    let ttl = Duration::from_secs(6);
    connect_user(stage, "grace", "user", ttl).await?;
    stage.acquire(json!({"client": "c", "name": "a"})).await?;
    stage.cluster.command(&["access", "user", "revoke", "token:grace"]).await?;
    await_end_of_credential(stage, Instant::now(), ttl).await?;
    refused_acquire(stage).await?;
    // The client need not be able to close its session.
    stage.driver.call(json!({"op": "close", "client": "c"})).await.map(drop)
}

/// The token in the file is replaced, and the old one revoked: the hold lives on.
pub(super) async fn credential_rotated(stage: &mut Stage<'_>) -> Checked {
    let file = connect_user(stage, "heidi", "user", LONG_TTL).await?;
    let token = stage.acquire(json!({"client": "c", "name": "a"})).await?;
    let old = std::fs::read_to_string(&file)?;
    replace_token(stage, "heidi", &file).await?;
    let old = old.split('_').nth(1).unwrap_or_default();
    stage.cluster.command(&["access", "token", "revoke", old]).await?;
    stage.cluster.network.break_clients();
    stage.acquire_again(json!({"client": "c", "name": "b", "wait_ms": 10_000})).await?;
    let now = stage.held("a", "a").await?;
    ensure(now == token, || format!("the token became {now}"))?;
    stage.release("a", "released").await?;
    stage.close("c").await
}

/// From `end` on no request of the client is carried out: its guard gives no token a lease later.
async fn await_end_of_credential(stage: &Stage<'_>, end: Instant, ttl: Duration) -> Checked {
    let bound = end + ttl.mul_f64(0.98);
    loop {
        let pending = stage.driver.send(json!({"op": "token", "guard": "a"})).await?;
        let asked = pending.asked.at;
        match stage.token_of("a", pending).await? {
            Ok(_) if asked > bound => {
                return violation(format!(
                    "a token {:?} after the lease that was left when the credential ended",
                    asked - bound
                ));
            }
            Ok(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(_) => return Ok(()),
        }
    }
}

/// A library whose session is still to be resumed cannot tell this from nodes that do not serve.
async fn refused_acquire(stage: &Stage<'_>) -> Checked {
    let request = json!({"op": "acquire", "client": "c", "name": stage.name("b"), "as": "b"});
    match stage.driver.call(request).await? {
        Reply::Err(error)
            if is_kind(
                &error,
                &["unauthenticated", "permission_denied", "unavailable", "lost"],
            ) =>
        {
            Ok(())
        }
        other => violation(format!("an acquire after the credential ended: {other}")),
    }
}

fn is_kind(error: &Value, kinds: &[&str]) -> bool {
    error["kind"].as_str().is_some_and(|kind| kinds.contains(&kind))
}

/// A client `c` of a new user. Returns the file with its token, and when the time of that is over.
async fn connect_for_a_moment(
    stage: &Stage<'_>,
    user: &str,
    ttl: Duration,
) -> Checked<(PathBuf, Instant)> {
    let lasting = create_user(stage, user, "user").await?;
    let file = stage.cluster.file(&format!("{user}-short.token"));
    // The token lives for longer than this driver needs to take a lock on this machine.
    let began = Instant::now();
    let mut warm = stage.connect_request("warm", ttl);
    warm["auth_file"] = json!(lasting);
    stage.driver.ok(warm).await?;
    stage.acquire(json!({"client": "warm", "name": "warm"})).await?;
    let valid = Duration::from_secs(3) + 4 * began.elapsed();
    stage.close("warm").await?;
    let expires = format!("{}ms", ms(valid));
    create_token(stage, user, &file, &["--expires", &expires]).await?;
    let end = Instant::now() + valid;
    let mut request = stage.connect_request("c", ttl);
    request["auth_file"] = json!(file);
    stage.driver.ok(request).await?;
    Ok((file, end))
}

/// A client `c` of a new user. Returns the file with its token.
async fn connect_user(
    stage: &Stage<'_>,
    user: &str,
    role: &str,
    ttl: Duration,
) -> Checked<PathBuf> {
    let token = create_user(stage, user, role).await?;
    let mut request = stage.connect_request("c", ttl);
    request["auth_file"] = json!(token);
    stage.driver.ok(request).await?;
    Ok(token)
}

/// Returns the file with the token of a new user.
async fn create_user(stage: &Stage<'_>, user: &str, role: &str) -> Checked<PathBuf> {
    let file = stage.cluster.file(&format!("{}-{user}.token", stage.prefix));
    let (principal, to) = (format!("token:{user}"), file.display().to_string());
    let create = ["access", "user", "create", &principal, "--role", role, "--to", &to];
    stage.cluster.command(&create).await?;
    Ok(file)
}

async fn create_token(stage: &Stage<'_>, user: &str, to: &Path, options: &[&str]) -> Checked {
    let (principal, to) = (format!("token:{user}"), to.display().to_string());
    let create = ["access", "token", "create", &principal, "--to", &to];
    stage.cluster.command(&[&create, options].concat()).await.map(drop)
}

/// As an operator does: the new token is written into another file, which then takes the name of the old one.
async fn replace_token(stage: &Stage<'_>, user: &str, file: &Path) -> Checked {
    let new = file.with_extension("new");
    create_token(stage, user, &new, &[]).await?;
    Ok(std::fs::rename(new, file)?)
}

fn write_secret(file: &Path, text: &str) -> Checked {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(file)?;
    Ok(file.write_all(text.as_bytes())?)
}
