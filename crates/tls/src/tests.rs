//! Handshakes between both ends, in memory: who gets in, and what the others are told.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use rustls_pki_types::ServerName;
use rustls_pki_types::pem::PemObject;
use tempfile::TempDir;

use crate::*;

mod records;

const CLUSTER: &str = "test";
const PROTOCOLS: &[&[u8]] = &[ALPN_GRPC, ALPN_FRAMED];

struct Files(TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    fn trust(&self, authority: &Authority) -> TrustFiles {
        TrustFiles::load(&self.write("ca.pem", authority.certificate_pem()), None).unwrap()
    }
}

/// As it would be loaded, but for the checks of the files: also one that is over.
fn identity(issued: &Issued) -> Identity {
    let details = Details::of_pem(issued.certificate_pem.as_bytes()).unwrap();
    Identity {
        chain: vec![PemObject::from_pem_slice(issued.certificate_pem.as_bytes()).unwrap()],
        key: PemObject::from_pem_slice(issued.key_pem.as_bytes()).unwrap(),
        ends_at: details.not_after,
        details,
    }
}

fn authority() -> Authority {
    Authority::create(CLUSTER, Validity::AUTHORITY).unwrap()
}

fn node(authority: &Authority, id: u64) -> Identity {
    let hosts = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    identity(&authority.issue_node(id, &hosts, Validity::LEAF).unwrap())
}

fn client(authority: &Authority, name: &str) -> Identity {
    identity(&authority.issue_client(name, Validity::LEAF).unwrap())
}

struct Met {
    client: ClientConnection,
    server: ServerConnection,
}

/// Passes bytes between the two until both are through, or one of them has refused.
fn meet(client: ClientConfig, server: ServerConfig, host: &str) -> Result<Met, String> {
    let host = ServerName::try_from(host.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(client), host).unwrap();
    let mut server = ServerConnection::new(Arc::new(server)).unwrap();
    for _ in 0..10 {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        server.read_tls(&mut &*bytes).unwrap();
        server.process_new_packets().map_err(|error| format!("node: {}", explain(&error)))?;
        let mut bytes = Vec::new();
        server.write_tls(&mut bytes).unwrap();
        client.read_tls(&mut &*bytes).unwrap();
        client.process_new_packets().map_err(|error| format!("client: {}", explain(&error)))?;
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok(Met { client, server })
}

/// A client with this certificate, at node 1 of the cluster.
fn at_client_port(ca: &Authority, own: Option<&Identity>) -> Result<Met, String> {
    let files = Files::new();
    let trust = files.trust(ca);
    let server = server_config(&node(ca, 1), CLUSTER, Some(trust.clone()), PROTOCOLS).unwrap();
    let verify = Verify::Cluster(CLUSTER.to_owned());
    let client = client_config(verify, trust, own, &[ALPN_FRAMED]).unwrap();
    meet(client, server, "anywhere.example")
}

/// One that dials node 3 with this certificate, and what it finds there.
fn at_peer_port(ca: &Authority, dials: &Identity, there: &Identity) -> Result<Met, String> {
    let files = Files::new();
    let server = peer_server_config(there, CLUSTER, files.trust(ca)).unwrap();
    let client = peer_client_config(dials, CLUSTER, 3, files.trust(ca), ALPN_PEER).unwrap();
    meet(client, server, "node-3.example")
}

fn refused(met: Result<Met, String>) -> String {
    match met {
        Ok(_) => panic!("it got in"),
        Err(words) => words,
    }
}

#[test]
fn a_client_gets_in_with_its_certificate_or_without_one_and_the_node_knows_its_name() {
    let ca = authority();
    let mut met = at_client_port(&ca, Some(&client(&ca, "billing"))).unwrap();
    let name = name_in(met.server.peer_certificates()).unwrap();
    assert_eq!(name.to_string(), "holdfast://test/client/billing");
    assert_eq!(met.server.alpn_protocol(), Some(ALPN_FRAMED));
    assert_eq!(met.server.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
    met.client.writer().write_all(b"hello").unwrap();
    let mut bytes = Vec::new();
    met.client.write_tls(&mut bytes).unwrap();
    assert!(!bytes.windows(5).any(|five| five == b"hello"), "it went in the clear");
    met.server.read_tls(&mut &*bytes).unwrap();
    met.server.process_new_packets().unwrap();
    let mut heard = [0; 5];
    met.server.reader().read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello");

    let met = at_client_port(&ca, None).unwrap();
    assert_eq!(name_in(met.server.peer_certificates()), None);
}

#[test]
fn at_the_client_port_only_clients_of_this_cluster_get_in() {
    let (ca, other) = (authority(), authority());
    let words = refused(at_client_port(&ca, Some(&client(&other, "billing"))));
    assert!(words.contains("an authority that is not trusted here"), "{words}");
    let words = refused(at_client_port(&ca, Some(&node(&ca, 2))));
    assert!(words.contains("holdfast://test/node/2"), "{words}");
    let words = refused(at_client_port(
        &ca,
        Some(&identity(&ca.issue_client("late", Validity::days(0)).unwrap())),
    ));
    assert!(words.contains("is over"), "{words}");
}

#[test]
fn a_client_trusts_nodes_of_its_cluster_only() {
    let (files, ca, other) = (Files::new(), authority(), authority());
    let trust = files.trust(&ca);
    let ask = |there: &Identity, verify: Verify, host: &str| {
        let server = server_config(there, CLUSTER, None, PROTOCOLS).unwrap();
        meet(client_config(verify, trust.clone(), None, PROTOCOLS).unwrap(), server, host)
    };
    let cluster = || Verify::Cluster(CLUSTER.to_owned());
    ask(&node(&ca, 7), cluster(), "moved.example").unwrap();
    let words = refused(ask(&node(&other, 1), cluster(), "localhost"));
    assert!(words.contains("an authority that is not trusted here"), "{words}");
    // A client's certificate makes no server, whichever authority signed it.
    refused(ask(&client(&ca, "billing"), cluster(), "localhost"));
    let words = refused(ask(&node(&ca, 1), Verify::Cluster("prod".to_owned()), "localhost"));
    assert!(words.contains("a node of cluster 'prod'"), "{words}");

    ask(&node(&ca, 1), Verify::Host, "localhost").unwrap();
    ask(&node(&ca, 1), Verify::Host, "127.0.0.1").unwrap();
    let words = refused(ask(&node(&ca, 1), Verify::Host, "elsewhere.example"));
    assert!(words.contains("not for the host that was dialled"), "{words}");
}

#[test]
fn between_nodes_each_is_who_its_certificate_says() {
    let (ca, other) = (authority(), authority());
    let met = at_peer_port(&ca, &node(&ca, 2), &node(&ca, 3)).unwrap();
    let dialled = name_in(met.server.peer_certificates()).unwrap();
    assert_eq!(dialled.subject(), &Subject::Node(2));

    let words = refused(at_peer_port(&ca, &node(&ca, 2), &node(&ca, 1)));
    assert!(words.contains("holdfast://test/node/1: wanted node 3"), "{words}");
    let words = refused(at_peer_port(&ca, &client(&ca, "billing"), &node(&ca, 3)));
    assert!(words.contains("holdfast://test/client/billing: wanted a node"), "{words}");
    let words = refused(at_peer_port(&ca, &node(&other, 2), &node(&ca, 3)));
    assert!(words.contains("an authority that is not trusted here"), "{words}");

    // A peer without a certificate.
    let files = Files::new();
    let server = peer_server_config(&node(&ca, 3), CLUSTER, files.trust(&ca)).unwrap();
    let verify = Verify::Cluster(CLUSTER.to_owned());
    let bare = client_config(verify, files.trust(&ca), None, &[ALPN_PEER]).unwrap();
    refused(meet(bare, server, "node-3.example"));
}

#[test]
fn a_node_of_another_cluster_of_the_same_authority_is_refused() {
    // One authority can sign for one cluster only, because its own name says which.
    let ca = authority();
    let issued = ca.issue_node(3, &[], Validity::LEAF).unwrap();
    assert_eq!(issued.name.cluster(), CLUSTER);
    let files = Files::new();
    let server = peer_server_config(&identity(&issued), "prod", files.trust(&ca)).unwrap();
    let client =
        peer_client_config(&node(&ca, 2), CLUSTER, 3, files.trust(&ca), ALPN_PEER).unwrap();
    let words = refused(meet(client, server, "node-3.example"));
    assert!(words.contains("a node of cluster 'prod'"), "{words}");
}

#[test]
fn a_revoked_certificate_is_refused_and_the_others_are_not() {
    let (files, ca) = (Files::new(), authority());
    let (good, bad) = (client(&ca, "good"), client(&ca, "bad"));
    let list = ca.revoke(std::slice::from_ref(&bad.details.serial), 1, Validity::LEAF).unwrap();
    let crl = files.write("crl.pem", &list);
    let ca_file = files.write("ca.pem", ca.certificate_pem());
    let trust = TrustFiles::load(&ca_file, Some(&crl)).unwrap();
    let ask = |own: &Identity| {
        let server = server_config(&node(&ca, 1), CLUSTER, Some(trust.clone()), PROTOCOLS).unwrap();
        let verify = Verify::Cluster(CLUSTER.to_owned());
        let client = client_config(verify, files.trust(&ca), Some(own), PROTOCOLS).unwrap();
        meet(client, server, "localhost")
    };
    ask(&good).unwrap();
    let words = refused(ask(&bad));
    assert!(words.contains("is revoked"), "{words}");
}

#[test]
fn a_list_that_is_continued_has_what_stood_in_it_before() {
    let (files, ca) = (Files::new(), authority());
    let gone = [client(&ca, "first"), client(&ca, "second")];
    let mut list: Option<String> = None;
    for one in &gone {
        let serials = [one.details.serial.clone()];
        list = Some(ca.revoke_also(list.as_deref(), &serials, Validity::LEAF).unwrap());
    }
    let crl = files.write("crl.pem", &list.unwrap());
    let ca_file = files.write("ca.pem", ca.certificate_pem());
    let check = Check::clients(CLUSTER, TrustFiles::load(&ca_file, Some(&crl)).unwrap());
    let now = rustls_pki_types::UnixTime::now();
    for one in &gone {
        let error = check.verify(&one.chain, now).unwrap_err();
        assert!(explain(&error).contains("is revoked"), "{error}");
    }
    check.verify(&client(&ca, "third").chain, now).unwrap();
    let broken = ca.revoke_also(Some("no list"), &[], Validity::LEAF);
    assert!(matches!(broken, Err(AuthorityError::List)), "{broken:?}");
}

#[test]
fn every_list_of_an_authority_counts() {
    let (files, ca) = (Files::new(), authority());
    let gone = [client(&ca, "first"), client(&ca, "second")];
    let lists = gone.iter().zip(1..).map(|(one, number)| {
        ca.revoke(std::slice::from_ref(&one.details.serial), number, Validity::LEAF).unwrap()
    });
    let crl = files.write("crl.pem", &lists.collect::<String>());
    let ca_file = files.write("ca.pem", ca.certificate_pem());
    let check = Check::clients(CLUSTER, TrustFiles::load(&ca_file, Some(&crl)).unwrap());
    let now = rustls_pki_types::UnixTime::now();
    for one in &gone {
        let error = check.verify(&one.chain, now).unwrap_err();
        assert!(explain(&error).contains("is revoked"), "{error}");
    }
    check.verify(&client(&ca, "third").chain, now).unwrap();
}

#[test]
fn several_authorities_are_trusted_while_one_follows_the_other() {
    let (files, old, new) = (Files::new(), authority(), authority());
    let both = format!("{}{}", old.certificate_pem(), new.certificate_pem());
    let trust = TrustFiles::load(&files.write("both.pem", &both), None).unwrap();
    for ca in [&old, &new] {
        let server = peer_server_config(&node(ca, 3), CLUSTER, trust.clone()).unwrap();
        let client =
            peer_client_config(&node(&old, 2), CLUSTER, 3, trust.clone(), ALPN_GRPC).unwrap();
        meet(client, server, "node-3.example").unwrap();
    }
}

#[test]
fn a_list_of_one_authority_says_nothing_of_the_certificates_of_another() {
    let (files, old, new) = (Files::new(), authority(), authority());
    let both = format!("{}{}", old.certificate_pem(), new.certificate_pem());
    let both = files.write("both.pem", &both);
    let (gone_old, gone_new) = (client(&old, "gone"), client(&new, "gone"));
    let list = |ca: &Authority, gone: &Identity| {
        ca.revoke(std::slice::from_ref(&gone.details.serial), 1, Validity::LEAF).unwrap()
    };
    let (old_list, new_list) = (list(&old, &gone_old), list(&new, &gone_new));
    let now = rustls_pki_types::UnixTime::now();
    for lists in
        [old_list.clone(), format!("{old_list}{new_list}"), format!("{new_list}{old_list}")]
    {
        let crl = files.write("crl.pem", &lists);
        let check = Check::clients(CLUSTER, TrustFiles::load(&both, Some(&crl)).unwrap());
        for ca in [&old, &new] {
            check.verify(&client(ca, "stays").chain, now).unwrap();
        }
        let error = check.verify(&gone_old.chain, now).unwrap_err();
        assert!(explain(&error).contains("is revoked"), "{error}");
        let is_listed = lists.contains(&new_list);
        assert_eq!(check.verify(&gone_new.chain, now).is_err(), is_listed);
    }
}

#[test]
fn an_authority_knows_what_it_has_signed() {
    let (old, new) = (authority(), authority());
    let issued = old.issue_client("billing", Validity::LEAF).unwrap();
    assert!(old.has_signed(issued.certificate_pem.as_bytes()));
    assert!(!new.has_signed(issued.certificate_pem.as_bytes()), "of the authority before");
    assert!(!old.has_signed(b"no certificate"));
    let common_name =
        |ca: &Authority| Details::of_pem(ca.certificate_pem().as_bytes()).unwrap().common_name;
    assert_ne!(common_name(&old), common_name(&new));
}

#[test]
fn what_is_no_tls_is_refused_at_once() {
    let ca = authority();
    let config = server_config(&node(&ca, 1), CLUSTER, None, PROTOCOLS).unwrap();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x16; 64], &[0; 64], &[0xff; 20_000]] {
        let mut server = ServerConnection::new(Arc::new(config.clone())).unwrap();
        let mut rest = bytes;
        let refused = loop {
            let read = server.read_tls(&mut rest);
            let (Ok(taken), Ok(_)) = (read, server.process_new_packets()) else { break true };
            if taken == 0 {
                break false;
            }
        };
        assert!(refused, "{:02x?}", &bytes[..2]);
    }
}

#[test]
fn files_are_checked_before_they_are_used() {
    let (files, ca) = (Files::new(), authority());
    let issued = ca.issue_node(1, &[], Validity::LEAF).unwrap();
    let certificate = files.write("node.pem", &issued.certificate_pem);
    let key = files.write("node-key.pem", &issued.key_pem);
    let loaded = load_identity(&certificate, &key).unwrap();
    assert_eq!(loaded.details.name.as_ref(), Some(&issued.name));
    assert!((363..=365).contains(&loaded.details.days_left(time::OffsetDateTime::now_utc())));

    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(load_identity(&certificate, &key), Err(FileError::KeyIsReadable { .. })));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    load_identity(&certificate, &key).unwrap();

    let other = ca.issue_node(2, &[], Validity::LEAF).unwrap();
    let wrong = files.write("other-key.pem", &other.key_pem);
    assert!(matches!(load_identity(&certificate, &wrong), Err(FileError::OtherKey { .. })));
    assert!(matches!(load_identity(&key, &key), Err(FileError::Certificate { .. })));
    assert!(matches!(load_identity(&certificate, &certificate), Err(FileError::NoKey { .. })));
    let over = ca.issue_node(1, &[], Validity::days(0)).unwrap();
    let over = files.write("over.pem", &over.certificate_pem);
    assert!(matches!(load_identity(&over, &key), Err(FileError::Expired { .. })));
    let wrong = TrustFiles::load(&certificate, None);
    assert!(matches!(wrong, Err(FileError::Authority { .. })), "{wrong:?}");
    let ca_file = files.write("ca.pem", ca.certificate_pem());
    let wrong = TrustFiles::load(&ca_file, Some(&certificate));
    assert!(matches!(wrong, Err(FileError::Revoked { .. })), "{wrong:?}");
    // It would have no effect.
    let foreign = authority().revoke(&[vec![1]], 1, Validity::LEAF).unwrap();
    let foreign = TrustFiles::load(&ca_file, Some(&files.write("crl.pem", &foreign)));
    assert!(matches!(foreign, Err(FileError::ForeignList { .. })), "{foreign:?}");
    let missing = files.0.path().join("missing.pem");
    assert!(matches!(load_identity(&missing, &key), Err(FileError::Io { .. })));
}

#[test]
fn an_identity_ends_with_the_first_certificate_of_its_chain() {
    let files = Files::new();
    let leaf = authority().issue_node(1, &[], Validity::days(30)).unwrap();
    let key = files.write("key.pem", &leaf.key_pem);
    let ends_with = |others: &[&str]| {
        let chain = [&[leaf.certificate_pem.as_str()], others].concat().concat();
        load_identity(&files.write("chain.pem", &chain), &key).unwrap().ends_at
    };
    let alone = ends_with(&[]);
    let short = Authority::create(CLUSTER, Validity::days(3)).unwrap();
    let long = authority();
    assert_eq!(ends_with(&[long.certificate_pem()]), alone);
    let first = ends_with(&[long.certificate_pem(), short.certificate_pem()]);
    assert_eq!((alone - first).whole_days(), 27);
}

#[test]
fn an_authority_is_loaded_with_its_own_key_and_signs_nothing_that_outlives_it() {
    let ca = authority();
    let again = Authority::load(ca.certificate_pem(), ca.key_pem()).unwrap();
    assert_eq!(again.cluster(), CLUSTER);
    at_peer_port(&ca, &node(&again, 2), &node(&ca, 3)).unwrap();
    let other = authority();
    let mixed = Authority::load(ca.certificate_pem(), other.key_pem());
    assert!(matches!(mixed, Err(AuthorityError::OtherKey)), "{mixed:?}");
    let leaf = ca.issue_client("billing", Validity::LEAF).unwrap();
    let wrong = Authority::load(&leaf.certificate_pem, &leaf.key_pem);
    assert!(matches!(wrong, Err(AuthorityError::NotAnAuthority { .. })), "{wrong:?}");
    let long = ca.issue_client("billing", Validity::days(4_000));
    assert!(matches!(long, Err(AuthorityError::TooLong { .. })), "{long:?}");
    let host = ca.issue_node(1, &["not a host".to_owned()], Validity::LEAF);
    assert!(matches!(host, Err(AuthorityError::Host(_))), "{host:?}");
}
