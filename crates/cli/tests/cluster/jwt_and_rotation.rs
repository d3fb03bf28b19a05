//! Clients that show JWTs, and credentials that are replaced while locks are held, at a cluster with TLS.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_client::{Client, LossReason, Tls};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::secured_audit::{AUDIT, appears};
use crate::support::{PATIENCE, eventually, output, text};
use crate::tls_cluster::{TlsCluster, done};

const DENIED: i32 = 77;
const TTL: Duration = Duration::from_secs(3);

/// One that signs with a key of its own.
struct Issuer {
    id: &'static str,
    key: Ed25519KeyPair,
}

impl Issuer {
    fn new(id: &'static str) -> Issuer {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Issuer { id, key: Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap() }
    }

    fn jwk(&self) -> Value {
        let x = base64url(self.key.public_key().as_ref());
        json!({"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": self.id, "x": x})
    }

    fn token(&self, subject: &str, lives: Duration) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let header = json!({"alg": "EdDSA", "kid": self.id});
        let claims = json!({
            "iss": "https://id.example.com", "aud": "holdfast", "sub": subject,
            "exp": (now + lives).as_secs(), "roles": ["locks-user"],
        });
        let message = [header, claims].map(|part| base64url(part.to_string().as_bytes())).join(".");
        let signature = self.key.sign(message.as_bytes());
        format!("{message}.{}", base64url(signature.as_ref()))
    }
}

fn base64url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut written = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| *chunk.get(at).unwrap_or(&0);
        let bits = u32::from_be_bytes([0, byte(0), byte(1), byte(2)]);
        for at in 0..=chunk.len() {
            written.push(char::from(ALPHABET[(bits >> (18 - 6 * at) & 63) as usize]));
        }
    }
    written
}

/// As a program does that replaces credentials: never half a file.
fn put_secret(path: &Path, secret: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, secret).unwrap();
    std::fs::set_permissions(&new, PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::rename(&new, path).unwrap();
}

fn put_keys(path: &Path, issuers: &[&Issuer]) {
    let keys: Vec<Value> = issuers.iter().map(|issuer| issuer.jwk()).collect();
    std::fs::write(path, json!({"keys": keys}).to_string()).unwrap();
}

async fn client(secured: &TlsCluster, credential: &str) -> Client {
    client_with_ttl(secured, credential, TTL).await
}

async fn client_with_ttl(secured: &TlsCluster, credential: &str, ttl: Duration) -> Client {
    let tls = Tls::new(secured.path("certs/ca.pem"));
    let builder = Client::builder().tls(tls).auth_file(secured.path(credential)).ttl(ttl);
    builder.connect(&secured.cluster.endpoints()).await.unwrap()
}

async fn reload(secured: &TlsCluster, line: &str) {
    for id in secured.cluster.ids() {
        let before = secured.cluster.log_of(id).matches(line).count();
        secured.cluster.send(id, Signal::HUP);
        eventually("the node has read its files again", PATIENCE, || {
            let now = secured.cluster.log_of(id).matches(line).count();
            std::future::ready((now > before).then_some(()))
        })
        .await;
    }
}

fn refused(secured: &TlsCluster, credential: &str) -> Command {
    secured.command(credential, &["status", "a"])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_short_lived_jwts_keeps_its_lock_while_jwts_and_keys_are_replaced() {
    const SETTINGS: &str = "[auth.jwt]\nissuer = \"https://id.example.com\"\naudience = \"holdfast\"\n\
        jwks_file = \"{dir}/jwks.json\"\nroles_claim = \"roles\"\nroles_prefix = \"locks-\"\nleeway_s = 0\n";
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = [Issuer::new("first"), Issuer::new("second")];
    put_keys(&dir.path().join("jwks.json"), &[&first]);
    let secured = TlsCluster::start_in(dir, 3, SETTINGS).await;
    let jwt = secured.path("jwt");
    let lives = 2 * TTL;
    put_secret(&jwt, &first.token("billing", lives));
    let whoami = secured.done("jwt", &["access", "whoami", "--output", "json"]).await;
    let whoami: Value = serde_json::from_str(&whoami).unwrap();
    assert_eq!(whoami["principal"], "jwt:https://id.example.com:billing");

    let client = client(&secured, "jwt").await;
    let guard = client.lock("a").acquire().await.unwrap();
    let token = guard.token().unwrap();
    let begun = std::time::Instant::now();
    let mut signer = &first;
    while begun.elapsed() < 5 * lives {
        tokio::time::sleep(TTL / 2).await;
        put_secret(&jwt, &signer.token("billing", lives));
        assert_eq!(guard.token().ok(), Some(token), "the lock is lost after {:?}", begun.elapsed());
        if signer.id == "first" && begun.elapsed() > lives {
            // The issuer's key is replaced: first both are trusted, then the new one alone.
            put_keys(&secured.path("jwks.json"), &[&first, &second]);
            reload(&secured, "SIGHUP: the certificates and keys were read again").await;
            signer = &second;
            put_secret(&jwt, &signer.token("billing", lives));
            put_keys(&secured.path("jwks.json"), &[&second]);
            reload(&secured, "SIGHUP: the certificates and keys were read again").await;
        }
    }
    guard.release().await.unwrap();

    // Another client cannot use the old key, nor a JWT whose time is over.
    put_secret(&secured.path("old"), &first.token("billing", lives));
    let old = output(refused(&secured, "old")).await;
    assert_eq!(old.status.code(), Some(DENIED), "{old:?}");
    assert!(text(&old.stderr).contains("no key of the issuer"), "{old:?}");
    put_secret(&secured.path("over"), &second.token("billing", Duration::ZERO));
    let over = output(refused(&secured, "over")).await;
    assert_eq!(over.status.code(), Some(DENIED), "{over:?}");
    // A wrong file changes nothing.
    std::fs::write(secured.path("jwks.json"), "{}").unwrap();
    reload(&secured, "SIGHUP: the certificates and keys stay as they were").await;
    put_secret(&jwt, &second.token("billing", lives));
    secured.done("jwt", &["lock", "a", "--", "true"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_replaced_and_revoked_takes_no_lock_from_its_user() {
    let secured = TlsCluster::start(3, AUDIT).await;
    secured.user("worker", &["read,exclusive:*", "connect"]).await;
    let client = client(&secured, "worker").await;
    let guard = client.lock("a").acquire().await.unwrap();
    let token = guard.token().unwrap();
    let old = std::fs::read_to_string(secured.path("worker")).unwrap();
    let new = secured.path("worker.next");
    let new = new.to_str().unwrap();
    secured.done("admin", &["access", "token", "create", "token:worker", "--to", new]).await;
    let next = std::fs::read_to_string(new).unwrap();
    let next = format!("token:{}", next.split('_').nth(1).unwrap());
    std::fs::rename(new, secured.path("worker")).unwrap();
    let shown = [("event", "login"), ("credential", &*next), ("method", "ResumeSession")];
    appears(&secured, &shown).await;
    let id = old.split('_').nth(1).unwrap();
    secured.done("admin", &["access", "token", "revoke", id]).await;
    let revoked = std::time::Instant::now();
    while revoked.elapsed() < 3 * TTL {
        tokio::time::sleep(TTL / 6).await;
        assert_eq!(guard.token().ok(), Some(token), "lost {:?} after", revoked.elapsed());
    }
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_token_is_revoked_loses_its_lock_before_the_lease_is_over() {
    let secured = TlsCluster::start(3, AUDIT).await;
    secured.user("worker", &["read,exclusive:*", "connect"]).await;
    let client = client_with_ttl(&secured, "worker", 10 * TTL).await;
    let guard = client.lock("a").acquire().await.unwrap();
    let shown = std::fs::read_to_string(secured.path("worker")).unwrap();
    let id = shown.split('_').nth(1).unwrap();
    secured.done("admin", &["access", "token", "revoke", id]).await;
    // A heartbeat is due after a third of the lease. The followers are not sure that the token is gone; the leader is.
    let reason = tokio::time::timeout(20 * TTL, guard.lost()).await.unwrap();
    assert_eq!(reason, LossReason::Denied);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_warns_in_its_log_before_a_certificate_ends_at_a_reload_and_at_the_start() {
    const READ: &str = "SIGHUP: the certificates and keys were read again";
    let mut secured = TlsCluster::start(1, "").await;
    let (certs, warning) = (secured.path("certs"), "node-1.pem ends in 2 days (");
    let certs = certs.to_str().unwrap().to_owned();
    reload(&secured, READ).await;
    assert!(!secured.cluster.log_of(1).contains(" ends in "), "{}", secured.cluster.log_of(1));

    let warned = async |secured: &TlsCluster, times: usize| {
        eventually("both tables are warned of", PATIENCE, || {
            let log = secured.cluster.log_of(1);
            let warnings = log.lines().filter(|line| line.contains(warning));
            let warnings: Vec<String> = warnings.map(str::to_owned).collect();
            std::future::ready((warnings.len() == 2 * times).then_some(warnings))
        })
        .await
    };
    let issue = ["cert", "node", "--id", "1", "--host", "127.0.0.1", "--days", "3", "--replace"];
    done(&[&issue[..], &["--dir", &certs]].concat()).await;
    reload(&secured, READ).await;
    let warnings = warned(&secured, 1).await;
    for table in ["[tls]", "[peer_tls]"] {
        let line = warnings.iter().find(|line| line.contains(table)).unwrap();
        assert!(line.contains("WARN") && line.contains("`holdfast cert node --id 1`"), "{line}");
    }
    secured.cluster.terminate(1).await;
    secured.cluster.launch(1);
    warned(&secured, 2).await;
}
