//! JSON Web Tokens: who a caller is, by the signature of an issuer that the operator trusts.
//!
//! The issuer's public keys are in a file, a JSON Web Key Set. The node asks no other machine. Parsing and the checks of
//! claims are `jsonwebtoken`'s, signatures are `ring`'s (`signatures`).
//!
//! # Invariants
//!
//! * The algorithm is one of those that the configuration lists, and fits the key. None of them is symmetric, so a public
//!   key is never taken for a secret.
//! * A token says who issued it, for whom, and until when. One that does not is refused.
//! * A token has at most `TOKEN_BYTES_MAX` bytes, the file `FILE_BYTES_MAX` and `KEYS_MAX` keys.

mod signatures;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use holdfast_core::{CLAIMED_ROLES_MAX, Identity, Principal, RoleName};
use holdfast_proto::failure::refused;
use holdfast_proto::v1::{Failure, Reason};
use holdfast_service::{Credential, token_is_over};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde::Deserialize;
use serde_json::{Map, Value};

const TOKEN_BYTES_MAX: usize = 8 * 1024;
const FILE_BYTES_MAX: u64 = 256 * 1024;
const KEYS_MAX: usize = 64;
/// What the audit shows of the names of keys and tokens.
const ID_CHARACTERS_MAX: usize = 100;
const LEEWAY_S_MAX: u64 = 300;
const LIFETIME_S_MIN: u64 = 60;

/// JSON Web Tokens that an issuer signs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JwtConfig {
    /// The claim `iss` of each token. Principals are `jwt:ISSUER:NAME`.
    pub issuer: String,
    /// One of the values in the claim `aud`.
    pub audience: String,
    /// The issuer's public keys, as a JSON Web Key Set. It is read again on SIGHUP.
    pub jwks_file: PathBuf,
    /// What a token may be signed with. Others are refused.
    #[serde(default = "algorithms_by_default")]
    pub algorithms: Vec<String>,
    /// The claim that names the principal.
    #[serde(default = "name_claim_by_default")]
    pub name_claim: String,
    /// The claim with the names of roles: a list, or a text with spaces. Without it a token names no roles.
    #[serde(default)]
    pub roles_claim: Option<String>,
    /// Only roles that begin so count, and are known without it. Needed with `roles_claim`: a group `admin` of the issuer
    /// is not meant for this cluster.
    #[serde(default)]
    pub roles_prefix: String,
    /// By so much the clocks of issuer and node may differ.
    #[serde(default = "leeway_s_by_default")]
    pub leeway_s: u64,
    /// A token that ends later than this from now is refused. A key that was stolen and removed is of use no longer than
    /// this.
    #[serde(default = "max_lifetime_s_by_default")]
    pub max_lifetime_s: u64,
}

fn algorithms_by_default() -> Vec<String> {
    ["RS256", "ES256", "EdDSA"].map(str::to_owned).into()
}

fn name_claim_by_default() -> String {
    "sub".to_owned()
}

fn leeway_s_by_default() -> u64 {
    30
}

fn max_lifetime_s_by_default() -> u64 {
    24 * 60 * 60
}

/// Why the node cannot take JWTs.
#[derive(Debug, thiserror::Error)]
pub enum JwtError {
    #[error("[auth.jwt] cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("[auth.jwt] {} cannot be used: {words}", path.display())]
    Unusable { path: PathBuf, words: String },
    #[error("[auth.jwt] {words}")]
    Setting { words: String },
    #[error("[auth.jwt] was added or removed; that needs a restart of the node, not SIGHUP")]
    NeedsRestart,
}

/// The keys of the issuer, and what tokens have to say. Replaced as a whole.
#[derive(Debug)]
pub struct JwtKeys(RwLock<Arc<KeySet>>);

#[derive(Debug)]
pub struct KeySet {
    settings: JwtConfig,
    /// Those that a token may be signed with.
    algorithms: Vec<Algorithm>,
    keys: Vec<Key>,
}

#[derive(Debug)]
struct Key {
    id: Option<String>,
    key: DecodingKey,
    /// Of those that are allowed, the ones that fit the key.
    algorithms: Vec<Algorithm>,
}

/// The keys as the files say now. Nothing has changed yet.
pub fn checked_again(
    now: Option<&JwtKeys>,
    settings: Option<&JwtConfig>,
) -> Result<Option<KeySet>, JwtError> {
    match (now, settings) {
        (None, None) => Ok(None),
        (Some(_), Some(settings)) => KeySet::load(settings).map(Some),
        _ => Err(JwtError::NeedsRestart),
    }
}

impl JwtKeys {
    pub fn load(settings: &JwtConfig) -> Result<JwtKeys, JwtError> {
        signatures::install();
        Ok(JwtKeys(RwLock::new(Arc::new(KeySet::load(settings)?))))
    }

    /// A caller that is known already stays so until its token ends.
    pub fn replace(&self, keys: KeySet) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }

    /// Whose token it is. The words of a refusal do not repeat the token.
    pub fn verify(&self, token: &str) -> Result<(Identity, Credential), Failure> {
        let keys = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        keys.verify(token)
    }
}

impl KeySet {
    fn load(settings: &JwtConfig) -> Result<KeySet, JwtError> {
        let path = &settings.jwks_file;
        let unreadable = |source| JwtError::Unreadable { path: path.clone(), source };
        let unusable = |words: String| JwtError::Unusable { path: path.clone(), words };
        // Looked at before it is opened: to open a pipe waits for its writer.
        let metadata = std::fs::metadata(path).map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(unusable("it is not a file".to_owned()));
        }
        #[cfg(unix)]
        if std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o022 != 0 {
            let words =
                "others than its owner may write it, and so decide who is let in: chmod go-w";
            return Err(unusable(words.to_owned()));
        }
        let mut text = Vec::new();
        let file = File::open(path).map_err(unreadable)?;
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(unreadable)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(unusable(format!("a key set has at most {FILE_BYTES_MAX} bytes")));
        }
        KeySet::of(settings, &text)
    }

    fn of(settings: &JwtConfig, text: &[u8]) -> Result<KeySet, JwtError> {
        let setting = |words: String| JwtError::Setting { words };
        let unusable =
            |words: String| JwtError::Unusable { path: settings.jwks_file.clone(), words };
        for (name, value) in [
            ("issuer", &settings.issuer),
            ("audience", &settings.audience),
            ("name_claim", &settings.name_claim),
        ] {
            if value.is_empty() {
                return Err(setting(format!("{name} is empty")));
            }
        }
        if settings.leeway_s > LEEWAY_S_MAX {
            return Err(setting(format!("leeway_s is at most {LEEWAY_S_MAX}")));
        }
        if settings.max_lifetime_s < LIFETIME_S_MIN {
            return Err(setting(format!("max_lifetime_s is at least {LIFETIME_S_MIN}")));
        }
        if settings.roles_claim.is_some() && settings.roles_prefix.is_empty() {
            let words = "roles_claim needs roles_prefix: without it every group of the issuer that has the name of a \
                         role, such as `admin`, would be that role";
            return Err(setting(words.to_owned()));
        }
        let algorithms = settings.algorithms.iter().map(|name| algorithm(name));
        let algorithms = algorithms.collect::<Result<Vec<_>, _>>().map_err(setting)?;
        if algorithms.is_empty() {
            return Err(setting("algorithms is empty".to_owned()));
        }
        let set: JwkSet = serde_json::from_slice(text)
            .map_err(|error| unusable(format!("it is no JSON Web Key Set: {error}")))?;
        if set.keys.len() > KEYS_MAX {
            let words = format!("it has {} keys; at most {KEYS_MAX} are used", set.keys.len());
            return Err(unusable(words));
        }
        let mut keys = Vec::new();
        for jwk in &set.keys {
            keys.extend(Key::of(jwk, &algorithms).map_err(unusable)?);
        }
        if keys.is_empty() {
            let words = "none of its keys is a public key for a signature with one of `algorithms`";
            return Err(unusable(words.to_owned()));
        }
        let ids: BTreeSet<_> = keys.iter().map(|key| &key.id).collect();
        if ids.len() < keys.len() {
            return Err(unusable("two of its keys have the same `kid`, or none".to_owned()));
        }
        Ok(KeySet { settings: settings.clone(), algorithms, keys })
    }

    fn verify(&self, token: &str) -> Result<(Identity, Credential), Failure> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(wrong(format!("a JWT has at most {TOKEN_BYTES_MAX} bytes")));
        }
        let header = decode_header(token).map_err(|error| explain(&error))?;
        if !self.algorithms.contains(&header.alg) {
            return Err(wrong(format!(
                "the JWT is signed with {:?}, which is not allowed",
                header.alg
            )));
        }
        let key = match &header.kid {
            Some(id) => self.keys.iter().find(|key| key.id.as_ref() == Some(id)),
            // Without a name there must be no choice.
            None => self.keys.first().filter(|_| self.keys.len() == 1),
        };
        let unknown = || wrong("no key of the issuer that this node knows has signed the JWT");
        let key = key.filter(|key| key.algorithms.contains(&header.alg)).ok_or_else(unknown)?;
        let mut validation = Validation::new(header.alg);
        validation.leeway = self.settings.leeway_s;
        validation.validate_nbf = true;
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.set_issuer(&[&self.settings.issuer]);
        validation.set_audience(&[&self.settings.audience]);
        let claims = decode::<Map<String, Value>>(token, &key.key, &validation);
        let claims = claims.map_err(|error| explain(&error))?.claims;
        let identity = self.identity(&claims)?;
        let ends_at_s = claims.get("exp").and_then(Value::as_f64).unwrap_or(0.0).max(0.0);
        let until_s = (ends_at_s as u64).saturating_add(self.settings.leeway_s);
        let longest = self.settings.max_lifetime_s + self.settings.leeway_s;
        if until_s > unix_s().saturating_add(longest) {
            return Err(wrong(format!(
                "the JWT is valid for longer than this cluster accepts ({} s): ask the issuer for a shorter one, or \
                 raise max_lifetime_s",
                self.settings.max_lifetime_s
            )));
        }
        let id = [header.kid.as_deref(), claims.get("jti").and_then(Value::as_str)];
        let id: Vec<String> = id.into_iter().flatten().map(shown).collect();
        let until_unix_ms = until_s.saturating_mul(1_000);
        Ok((identity, Credential::Jwt { id: id.join("/").into(), until_unix_ms }))
    }

    fn identity(&self, claims: &Map<String, Value>) -> Result<Identity, Failure> {
        let JwtConfig { issuer, name_claim, roles_claim, .. } = &self.settings;
        let name = claims.get(name_claim).and_then(Value::as_str).unwrap_or_default();
        let principal = Principal::parse(&format!("jwt:{issuer}:{name}"));
        let principal = principal.map_err(|error| {
            wrong(format!("the JWT's claim `{}` names no principal: {error}", shown(name_claim)))
        })?;
        let mut identity = Identity::of(principal);
        let Some(claim) = roles_claim else { return Ok(identity) };
        let listed: Vec<&str> = match claims.get(claim) {
            Some(Value::Array(roles)) => roles.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(roles)) => roles.split_whitespace().collect(),
            _ => Vec::new(),
        };
        // Groups that have nothing to do with this cluster are no error.
        let own = listed.iter().filter_map(|role| role.strip_prefix(&*self.settings.roles_prefix));
        identity.claimed = own.filter_map(|role| RoleName::parse(role).ok()).collect();
        if identity.claimed.len() > CLAIMED_ROLES_MAX {
            return Err(wrong(format!(
                "the JWT names {} roles; at most {CLAIMED_ROLES_MAX} count: set roles_prefix",
                identity.claimed.len()
            )));
        }
        Ok(identity)
    }
}

impl Key {
    /// None if it is for something else: a set may have keys for encryption, or of kinds that are not known here.
    fn of(jwk: &Jwk, allowed: &[Algorithm]) -> Result<Option<Key>, String> {
        let id = jwk.common.key_id.clone();
        let named = || shown(id.as_deref().unwrap_or("without `kid`"));
        let is_for_signatures =
            matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature));
        if matches!(jwk.algorithm, AlgorithmParameters::OctetKey(_)) {
            return Err(format!(
                "the key {} is a secret (kty `oct`): a node takes public keys only",
                named()
            ));
        }
        let fitting = signatures::fitting(jwk);
        let stated = jwk.common.key_algorithm.map(|stated| stated.to_string());
        let fits = |algorithm: &Algorithm| {
            let name = format!("{algorithm:?}");
            fitting.contains(algorithm) && stated.as_ref().is_none_or(|stated| *stated == name)
        };
        let algorithms: Vec<_> = allowed.iter().copied().filter(fits).collect();
        if !is_for_signatures || algorithms.is_empty() {
            return Ok(None);
        }
        let key = DecodingKey::from_jwk(jwk)
            .map_err(|error| format!("the key {} is damaged: {error}", named()))?;
        Ok(Some(Key { id, key, algorithms }))
    }
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn algorithm(name: &str) -> Result<Algorithm, String> {
    let known = signatures::ALGORITHMS.iter().find(|known| format!("{known:?}") == name);
    known.copied().ok_or_else(|| {
        let known: Vec<String> =
            signatures::ALGORITHMS.iter().map(|known| format!("{known:?}")).collect();
        format!("algorithms has {name:?}; it is a list of {}", known.join(", "))
    })
}

/// A text of others, for messages and the audit.
fn shown(text: &str) -> String {
    let shown = text.chars().take(ID_CHARACTERS_MAX);
    shown.map(|char| if char.is_ascii_graphic() { char } else { '?' }).collect()
}

fn wrong(words: impl Into<String>) -> Failure {
    refused(Reason::Unauthenticated, words.into())
}

fn explain(error: &jsonwebtoken::errors::Error) -> Failure {
    match error.kind() {
        ErrorKind::ExpiredSignature => token_is_over(),
        ErrorKind::InvalidSignature => wrong("the signature of the JWT is wrong"),
        ErrorKind::InvalidIssuer => wrong("the JWT is of another issuer"),
        ErrorKind::InvalidAudience => wrong("the JWT is for another audience"),
        ErrorKind::ImmatureSignature => wrong("the JWT is not valid yet (`nbf`)"),
        ErrorKind::MissingRequiredClaim(claim) => {
            wrong(format!("the JWT has no claim `{}`", shown(claim)))
        }
        ErrorKind::InvalidClaimFormat(claim) => {
            wrong(format!("the JWT's claim `{}` has a wrong form", shown(claim)))
        }
        _ => wrong(
            "what was shown is neither a token (hft_...) nor a JWT that this node can check: three parts of base64url, \
             signed with one of the algorithms that its configuration lists",
        ),
    }
}

#[cfg(test)]
mod tests;
