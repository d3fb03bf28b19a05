//! Logins at the dashboard, as a browser does them: what the cookie is like, what it opens, and what ends it.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

use holdfast_proto::AccessToken;
use holdfast_proto::v1::access_change::Change;
use holdfast_proto::v1::access_service_client::AccessServiceClient;
use holdfast_proto::v1::{self, Failure, Reason};
use holdfast_server::{AuthMode, bootstrap_token};
use holdfast_tls::{ALPN_GRPC, ALPN_HTTP};
use support::every_method::with;
use support::pki::{Pki, channel_over};
use support::secured::{access_client, bearer, grant, new_token, request};
use support::{Cluster, HttpAnswer, eventually, http_exchange};
use tokio::net::{TcpSocket, TcpStream};
use tonic::transport::Channel;

const FROM_PAGE: &str = "content-type: application/json\r\nholdfast-action: 1\r\n";

/// One node that demands credentials, an administrator, and a user of all locks.
struct Site {
    cluster: Cluster,
    pki: Option<Pki>,
    admin: String,
    user: String,
}

impl Site {
    async fn start(pki: Option<Pki>) -> Site {
        let cluster = Cluster::start_with(1, |config| {
            config.auth.mode = AuthMode::Required;
            config.tls = pki.as_ref().map(|pki| pki.client_tls(1));
        });
        let cluster = cluster.await;
        let bootstrap = bootstrap_token(&cluster.configs[0].data_dir).unwrap().to_secret_text();
        let ((admin, put_admin), (user, put_user)) = (new_token("root"), new_token("worker"));
        let first = [put_admin, grant("root", "admin"), put_user, grant("worker", "user")];
        let site = Site { cluster, pki, admin, user };
        // Rules are adopted a moment after the start.
        eventually("the users are made", async || {
            site.change(&bootstrap, first.to_vec()).await.ok()
        })
        .await;
        eventually("the node knows the user", async || {
            let header = bearer(&site.user);
            let asked = with(v1::WhoAmIRequest {}, Some(("authorization", &*header)));
            site.access().await.who_am_i(asked).await.ok()
        })
        .await;
        site
    }

    async fn access(&self) -> AccessServiceClient<Channel> {
        let address = self.cluster.address(0);
        let Some(pki) = &self.pki else { return access_client(&address).await };
        let socket = pki.dial(&address, None, ALPN_GRPC).await.unwrap();
        AccessServiceClient::new(channel_over(socket).await.unwrap())
    }

    async fn change(&self, token: &str, changes: Vec<Change>) -> Result<(), Reason> {
        let header = bearer(token);
        let asked = with(request(changes), Some(("authorization", &*header)));
        let changed = self.access().await.change_access(asked).await;
        changed.map(drop).map_err(|status| Failure::from_status(&status).reason())
    }

    async fn send(&self, verb: &str, path: &str, headers: &str, body: &str) -> HttpAnswer {
        let address = self.cluster.http_address(0);
        let headers = format!("{headers}content-length: {}\r\n", body.len());
        match &self.pki {
            Some(pki) => {
                let socket = pki.dial(&address, None, ALPN_HTTP).await.unwrap();
                http_exchange(socket, &address, verb, path, &headers, body).await
            }
            None => {
                let socket = TcpStream::connect(&address).await.unwrap();
                http_exchange(socket, &address, verb, path, &headers, body).await
            }
        }
    }

    async fn log_in(&self, token: &str) -> HttpAnswer {
        self.send("POST", "/api/login", FROM_PAGE, &login_body(token)).await
    }

    /// What a browser with this cookie is told when it asks for all locks.
    async fn locks(&self, name: &str, value: &str) -> u16 {
        self.send("GET", "/api/locks", &format!("cookie: a=b; {name}={value}\r\n"), "").await.code
    }

    fn cookie_name(&self) -> &'static str {
        if self.pki.is_some() { "__Host-holdfast" } else { "holdfast" }
    }
}

fn login_body(token: &str) -> String {
    serde_json::json!({ "token": token }).to_string()
}

fn wrong_token() -> String {
    AccessToken::random().unwrap().to_secret_text()
}

/// The name and the value of the cookie that the answer sets, and what else it says about it.
fn cookie_of(answer: &HttpAnswer) -> (String, String, BTreeSet<String>) {
    let mut parts = answer.header("set-cookie").expect("no cookie").split(';').map(str::trim);
    let (name, value) = parts.next().unwrap().split_once('=').unwrap();
    (name.to_owned(), value.to_owned(), parts.map(str::to_owned).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cookie_that_no_script_can_read_stands_for_a_login_until_it_or_its_token_ends() {
    for pki in [None, Some(Pki::new())] {
        let site = Site::start(pki).await;
        let logged_in = site.log_in(&site.user).await;
        assert_eq!(logged_in.code, 200, "{logged_in:?}");
        assert!(logged_in.body.contains("\"token:worker\""), "{logged_in:?}");
        let (name, cookie, attributes) = cookie_of(&logged_in);
        assert_eq!(name, site.cookie_name());
        let mut expected = vec!["Path=/", "HttpOnly", "SameSite=Strict", "Max-Age=43200"];
        expected.extend(site.pki.is_some().then_some("Secure"));
        assert_eq!(attributes, expected.into_iter().map(str::to_owned).collect());
        // It may contain the separator.
        let secret = site.user.splitn(3, '_').nth(2).unwrap();
        assert!(secret.len() > 16 && !cookie.contains(secret), "the cookie has the token");

        assert_eq!(site.send("GET", "/api/locks", "", "").await.code, 401);
        assert_eq!(site.locks(&name, &cookie).await, 200);
        assert_eq!(site.locks(&name, &wrong_token()).await, 401);
        let other_name = if site.pki.is_some() { "holdfast" } else { "__Host-holdfast" };
        assert_eq!(site.locks(other_name, &cookie).await, 401);

        // A page of another site ends no login.
        let with_cookie = format!("cookie: {name}={cookie}\r\n");
        assert_eq!(site.send("POST", "/api/logout", &with_cookie, "").await.code, 403);
        assert_eq!(site.locks(&name, &cookie).await, 200);
        let headers = format!("{with_cookie}{FROM_PAGE}");
        let logged_out = site.send("POST", "/api/logout", &headers, "").await;
        assert_eq!(logged_out.code, 200, "{logged_out:?}");
        let (_, value, attributes) = cookie_of(&logged_out);
        assert!(value.is_empty() && attributes.contains("Max-Age=0"), "{logged_out:?}");
        assert_eq!(site.locks(&name, &cookie).await, 401);

        let (name, cookie, _) = cookie_of(&site.log_in(&site.user).await);
        assert_eq!(site.locks(&name, &cookie).await, 200);
        let id = site.user.split('_').nth(1).unwrap().to_owned();
        site.change(&site.admin, vec![Change::RevokeToken(id)]).await.unwrap();
        eventually("the login has ended with its token", async || {
            (site.locks(&name, &cookie).await == 401).then_some(())
        })
        .await;
        let refused = site.log_in(&site.user).await;
        assert_eq!((refused.code, refused.header("set-cookie")), (401, None), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_does_not_come_from_the_own_page_is_refused() {
    let site = Site::start(None).await;
    let body = login_body(&site.user);
    let address = site.cluster.http_address(0);
    let json = "content-type: application/json\r\n";
    for headers in [
        json.to_owned(),
        format!("{json}holdfast-action: 0\r\n"),
        "content-type: text/plain\r\nholdfast-action: 1\r\n".to_owned(),
        format!("{FROM_PAGE}sec-fetch-site: cross-site\r\n"),
        format!("{FROM_PAGE}origin: http://other.example\r\n"),
    ] {
        let refused = site.send("POST", "/api/login", &headers, &body).await;
        assert_eq!((refused.code, refused.header("set-cookie")), (403, None), "{headers}");
    }
    let headers = format!("{FROM_PAGE}sec-fetch-site: same-origin\r\norigin: http://{address}\r\n");
    assert_eq!(site.send("POST", "/api/login", &headers, &body).await.code, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_with_several_wrong_tokens_has_to_wait_and_logins_go_on() {
    const WRONG_MAX: usize = 5;
    let site = Site::start(None).await;
    let (name, cookie, _) = cookie_of(&site.log_in(&site.user).await);
    for _ in 0..WRONG_MAX {
        let refused = site.log_in(&wrong_token()).await;
        assert_eq!((refused.code, refused.header("set-cookie")), (401, None), "{refused:?}");
    }
    let refused = site.log_in(&site.user).await;
    assert_eq!((refused.code, refused.header("set-cookie")), (429, None), "{refused:?}");
    assert!(refused.body.contains("wait"), "{refused:?}");
    assert_eq!(site.locks(&name, &cookie).await, 200);

    // Another address does not wait.
    let (address, body) = (site.cluster.http_address(0), login_body(&site.user));
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), 0))).unwrap();
    let socket = socket.connect(address.parse().unwrap()).await.unwrap();
    let headers = format!("{FROM_PAGE}content-length: {}\r\n", body.len());
    let answer = http_exchange(socket, &address, "POST", "/api/login", &headers, &body).await;
    assert_eq!(answer.code, 200, "{answer:?}");
}
