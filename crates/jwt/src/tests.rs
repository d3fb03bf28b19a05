use std::time::{SystemTime, UNIX_EPOCH};

use proptest::prelude::*;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::json;

use super::*;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn base64url(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let padded = [chunk[0], *chunk.get(1).unwrap_or(&0), *chunk.get(2).unwrap_or(&0)];
        let bits = u32::from_be_bytes([0, padded[0], padded[1], padded[2]]);
        for at in 0..=chunk.len() {
            text.push(char::from(ALPHABET[(bits >> (18 - 6 * at) & 63) as usize]));
        }
    }
    text
}

/// Who signs: an Ed25519 key `ed`, and a P-256 key `ec`.
struct Issuer {
    ed: Ed25519KeyPair,
    ec: EcdsaKeyPair,
}

impl Issuer {
    fn new() -> Issuer {
        let random = SystemRandom::new();
        let ed = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let scheme = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let ec = EcdsaKeyPair::generate_pkcs8(scheme, &random).unwrap();
        Issuer {
            ed: Ed25519KeyPair::from_pkcs8(ed.as_ref()).unwrap(),
            ec: EcdsaKeyPair::from_pkcs8(scheme, ec.as_ref(), &random).unwrap(),
        }
    }

    fn jwks(&self) -> Value {
        let (ed, ec) = (self.ed.public_key().as_ref(), self.ec.public_key().as_ref());
        json!({"keys": [
            {"kty": "OKP", "crv": "Ed25519", "kid": "ed", "use": "sig", "x": base64url(ed)},
            {"kty": "EC", "crv": "P-256", "kid": "ec", "alg": "ES256",
             "x": base64url(&ec[1..33]), "y": base64url(&ec[33..])},
            {"kty": "EC", "crv": "P-256", "kid": "secret messages", "use": "enc",
             "x": base64url(&ec[1..33]), "y": base64url(&ec[33..])},
        ]})
    }

    fn signed(&self, header: &Value, claims: &Value) -> String {
        let message = format!(
            "{}.{}",
            base64url(header.to_string().as_bytes()),
            base64url(claims.to_string().as_bytes())
        );
        let signature = match header["alg"].as_str() {
            Some("ES256") => {
                let signed = self.ec.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
                signed.as_ref().to_vec()
            }
            _ => self.ed.sign(message.as_bytes()).as_ref().to_vec(),
        };
        format!("{message}.{}", base64url(&signature))
    }

    fn token(&self, claims: &Value) -> String {
        self.signed(&json!({"alg": "EdDSA", "kid": "ed"}), claims)
    }

    fn keys(&self) -> KeySet {
        signatures::install();
        KeySet::of(&settings(), self.jwks().to_string().as_bytes()).unwrap()
    }
}

fn settings() -> JwtConfig {
    JwtConfig {
        issuer: "https://id.example.com".into(),
        audience: "holdfast".into(),
        jwks_file: "jwks.json".into(),
        algorithms: ["ES256", "EdDSA"].map(str::to_owned).into(),
        name_claim: "sub".into(),
        roles_claim: Some("groups".into()),
        roles_prefix: "locks-".into(),
        leeway_s: 30,
        max_lifetime_s: 3_600,
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn claims() -> Value {
    json!({
        "iss": "https://id.example.com", "aud": ["other", "holdfast"], "sub": "billing",
        "exp": now_s() + 300, "jti": "7", "groups": ["locks-user", "staff", "locks-No Role"],
    })
}

fn with(field: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[field] = value;
    claims
}

fn refusal(keys: &KeySet, token: &str) -> (Reason, String) {
    let failure = keys.verify(token).unwrap_err();
    (failure.reason(), failure.message)
}

#[test]
fn a_jwt_of_the_issuer_names_its_principal_and_the_roles_that_begin_with_the_prefix() {
    let issuer = Issuer::new();
    let keys = issuer.keys();
    for (alg, kid) in [("EdDSA", "ed"), ("ES256", "ec")] {
        let claims = claims();
        let token = issuer.signed(&json!({"alg": alg, "kid": kid, "typ": "JWT"}), &claims);
        let (identity, credential) = keys.verify(&token).unwrap();
        assert_eq!(identity.principal.as_str(), "jwt:https://id.example.com:billing");
        let roles: Vec<String> = identity.claimed.iter().map(RoleName::to_string).collect();
        assert_eq!(roles, ["user"]);
        assert_eq!(credential.to_string(), format!("jwt:{kid}/7"));
        let Credential::Jwt { until_unix_ms, .. } = credential else { panic!("{credential:?}") };
        assert_eq!(until_unix_ms, (claims["exp"].as_u64().unwrap() + 30) * 1_000);
    }
}

#[test]
fn every_wrong_claim_header_and_signature_is_refused_with_its_reason() {
    let issuer = Issuer::new();
    let keys = issuer.keys();
    let of = |claims: &Value| refusal(&keys, &issuer.token(claims));
    let without = |field: &str| {
        let mut claims = claims();
        claims.as_object_mut().unwrap().remove(field);
        claims
    };
    let (reason, _) = of(&with("exp", json!(now_s() - 31)));
    assert_eq!(reason, Reason::CredentialExpired);
    keys.verify(&issuer.token(&with("exp", json!(now_s() - 20)))).unwrap();
    for (claims, words) in [
        (without("exp"), "`exp`"),
        (without("iss"), "`iss`"),
        (without("aud"), "`aud`"),
        (without("sub"), "`sub`"),
        (with("sub", json!("")), "`sub`"),
        (with("sub", json!("a\nb")), "`sub`"),
        (with("sub", json!("a".repeat(300))), "`sub`"),
        (with("iss", json!("https://evil.example.com")), "issuer"),
        (with("aud", json!("other")), "audience"),
        (with("nbf", json!(now_s() + 100)), "nbf"),
        (with("exp", json!("tomorrow")), "exp"),
        (with("exp", json!(now_s() + 3_700)), "max_lifetime_s"),
        (
            with("groups", json!((0..40).map(|n| format!("locks-r{n}")).collect::<Vec<_>>())),
            "roles",
        ),
    ] {
        let (reason, said) = of(&claims);
        assert!(said.contains(words), "{claims}: {said}");
        assert_eq!(reason, Reason::Unauthenticated, "{claims}");
    }
    let (ec, ed) = (issuer.ec.public_key().as_ref(), issuer.ed.public_key().as_ref());
    for header in [
        json!({"alg": "none", "kid": "ed"}),
        json!({"alg": "EdDSA", "kid": "ec"}),
        json!({"alg": "ES256", "kid": "ed"}),
        json!({"alg": "RS256", "kid": "ed"}),
        json!({"alg": "EdDSA", "kid": "secret messages"}),
        json!({"alg": "EdDSA", "kid": "unknown"}),
        json!({"alg": "EdDSA"}),
        // The keys in the token are not those of the issuer.
        json!({"alg": "EdDSA", "jwk": {"kty": "OKP", "crv": "Ed25519", "x": base64url(ed)}}),
    ] {
        assert!(keys.verify(&issuer.signed(&header, &claims())).is_err(), "{header}");
    }
    // The public key as a secret.
    for secret in [ec, ed] {
        let message = format!(
            "{}.{}",
            base64url(br#"{"alg":"HS256","kid":"ed"}"#),
            base64url(claims().to_string().as_bytes())
        );
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
        let tag = ring::hmac::sign(&key, message.as_bytes());
        let token = format!("{message}.{}", base64url(tag.as_ref()));
        assert!(refusal(&keys, &token).1.contains("HS256"));
    }
    let other = Issuer::new();
    assert!(refusal(&keys, &other.token(&claims())).1.contains("signature"));
    let long = issuer.token(&with("sub", json!("a".repeat(TOKEN_BYTES_MAX))));
    assert!(refusal(&keys, &long).1.contains("bytes"));
}

#[test]
fn a_key_set_that_cannot_work_is_refused_with_a_reason() {
    signatures::install();
    let good = Issuer::new().jwks();
    let of = |settings: &JwtConfig, set: &Value| {
        KeySet::of(settings, set.to_string().as_bytes()).unwrap_err().to_string()
    };
    let secret = json!({"keys": [{"kty": "oct", "kid": "s", "k": "c2VjcmV0"}]});
    assert!(of(&settings(), &secret).contains("public keys only"));
    let twice = json!({"keys": [good["keys"][0], good["keys"][0]]});
    assert!(of(&settings(), &twice).contains("same `kid`"));
    let many = json!({"keys": vec![good["keys"][0].clone(); KEYS_MAX + 1]});
    assert!(of(&settings(), &many).contains("at most"));
    assert!(of(&settings(), &json!({"keys": []})).contains("none of its keys"));
    assert!(of(&settings(), &json!([1])).contains("no JSON Web Key Set"));
    for algorithm in ["none", "HS256", "rs256", ""] {
        let wrong = JwtConfig { algorithms: vec![algorithm.into()], ..settings() };
        assert!(of(&wrong, &good).contains("it is a list of RS256"), "{algorithm}");
    }
    let only_rsa = JwtConfig { algorithms: vec!["RS256".into()], ..settings() };
    assert!(of(&only_rsa, &good).contains("none of its keys"));
    assert!(of(&JwtConfig { leeway_s: 301, ..settings() }, &good).contains("leeway_s"));
    assert!(of(&JwtConfig { max_lifetime_s: 59, ..settings() }, &good).contains("max_lifetime_s"));
    let no_prefix = JwtConfig { roles_prefix: String::new(), ..settings() };
    assert!(of(&no_prefix, &good).contains("roles_prefix"));
    assert!(of(&JwtConfig { issuer: String::new(), ..settings() }, &good).contains("issuer"));
}

fn cases() -> u32 {
    std::env::var("FUZZ_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// Whatever is shown: a refusal, or the token as it was issued.
    #[test]
    fn a_jwt_that_is_damaged_is_refused(
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4u8), 1..4),
    ) {
        thread_local! {
            static GOOD: (KeySet, String, Identity) = {
                let issuer = Issuer::new();
                let (keys, token) = (issuer.keys(), issuer.token(&claims()));
                let identity = keys.verify(&token).unwrap().0;
                (keys, token, identity)
            };
        }
        GOOD.with(|(keys, token, identity)| {
            let mut bytes = token.clone().into_bytes();
            for (at, byte, kind) in cuts {
                let at = at.index(bytes.len().max(1));
                match kind {
                    _ if bytes.is_empty() => {}
                    0 => bytes[at] = byte,
                    1 => { bytes.remove(at); }
                    2 => bytes.insert(at, byte),
                    _ => bytes.truncate(at),
                }
            }
            let text = String::from_utf8_lossy(&bytes);
            // The last characters of a part have bits that mean nothing.
            match keys.verify(&text) {
                Ok((found, _)) => prop_assert_eq!(&found, identity),
                Err(failure) => prop_assert!(!failure.message.contains(&token[60..])),
            }
            Ok(())
        })?;
    }

    /// A header and claims of any kind, rightly signed: no crash, and no principal but that of a good name.
    #[test]
    fn claims_of_any_kind_are_refused_or_name_a_principal(
        header in "\\PC{0,60}", claims in "\\PC{0,200}", text in "\\PC{0,300}",
    ) {
        thread_local! {
            static ISSUER: (Issuer, KeySet) = { let issuer = Issuer::new(); let keys = issuer.keys(); (issuer, keys) };
        }
        ISSUER.with(|(issuer, keys)| {
            let header = serde_json::from_str(&header).unwrap_or_else(|_| json!({"alg": "EdDSA", "kid": "ed", "x": header}));
            let claims = serde_json::from_str(&claims).unwrap_or_else(|_| with("sub", json!(claims)));
            if let Ok((identity, _)) = keys.verify(&issuer.signed(&header, &claims)) {
                prop_assert!(identity.principal.as_str().starts_with("jwt:https://id.example.com:"));
            }
            prop_assert!(keys.verify(&text).is_err());
            Ok(())
        })?;
    }

    #[test]
    fn a_damaged_key_set_is_an_error_or_a_set_of_public_keys(
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..5),
    ) {
        thread_local! {
            static GOOD: Vec<u8> = { signatures::install(); Issuer::new().jwks().to_string().into_bytes() };
        }
        GOOD.with(|good| {
            let mut bytes = good.clone();
            for (at, byte, replaces) in cuts {
                let at = at.index(bytes.len());
                if replaces { bytes[at] = byte } else { bytes.insert(at, byte) }
            }
            if let Ok(keys) = KeySet::of(&settings(), &bytes) {
                prop_assert!(!keys.keys.is_empty());
            }
            Ok(())
        })?;
    }
}
