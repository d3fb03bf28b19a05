//! Who a caller is, by the credential that it shows; and the sessions that are its own.

use holdfast_core::command::OpenSession;
use holdfast_core::{Command, Identity, PublicSessionId, SessionId, TokenId};
use holdfast_proto::AccessToken;
use holdfast_proto::decode::operation::Opening;
use holdfast_proto::failure::refused;
use holdfast_proto::v1::{Failure, Reason};
use holdfast_service::{AuthMode, Caller, Service};

use crate::shard::unix_ms;

/// The caller whose credential this is. What is shown has to be right, also where nothing is demanded.
pub(crate) fn authenticate(
    service: &Service,
    caller: Caller,
    credential: &str,
) -> Result<Caller, Failure> {
    let identity = identity(service, credential)?;
    Ok(caller.authenticated(identity))
}

fn identity(service: &Service, credential: &str) -> Result<Identity, Failure> {
    let unknown = || {
        let words = "the token is not known; it may have been revoked. Ask an administrator for another one";
        refused(Reason::Unauthenticated, words)
    };
    let token: AccessToken =
        credential.parse().map_err(|error| refused(Reason::Unauthenticated, format!("{error}")))?;
    if let Some(identity) = service.bootstrap_identity(&token.digest()) {
        return Ok(identity);
    }
    let access = service.policy().access();
    let record = access.token(TokenId(token.id)).ok_or_else(unknown)?;
    if !token.has_digest(&record.digest) {
        return Err(unknown());
    }
    if record.expires_at_unix_ms.is_some_and(|expires_at| expires_at <= unix_ms()) {
        let words = "the time of the token is over; ask an administrator for another one";
        return Err(refused(Reason::CredentialExpired, words));
    }
    Ok(Identity::of(record.principal.clone()))
}

/// The credential in the value of an `authorization` header.
pub(crate) fn bearer(value: &[u8]) -> Result<&str, Failure> {
    let text = std::str::from_utf8(value).ok().and_then(|text| {
        let (scheme, credential) = text.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(credential.trim())
    });
    text.ok_or_else(|| {
        let words = "the header authorization is written as: Bearer hft_...";
        refused(Reason::Unauthenticated, words)
    })
}

/// The id by which the lock table knows the caller's session. Sessions of callers without an identity keep theirs.
pub(crate) fn own_session(caller: &Caller, session: SessionId) -> SessionId {
    let secret = holdfast_proto::SessionId::from_bytes(session.0.to_be_bytes());
    match (caller.identity(), secret) {
        (Some(identity), Some(secret)) => {
            let own = secret.of_principal(identity.principal.as_str());
            SessionId(u128::from_be_bytes(own.to_bytes()))
        }
        _ => session,
    }
}

/// The same for the first operation of a stream.
pub(crate) fn bind_opening(service: &Service, caller: &Caller, opening: &mut Opening) {
    bind(service, caller, &mut opening.command);
    opening.session = own_session(caller, opening.session);
}

/// Makes a command of the caller's session one that the lock table knows, and checks.
pub(crate) fn bind(service: &Service, caller: &Caller, command: &mut Command) {
    let Some(caller_identity) = caller.identity() else { return };
    if let Some(session) = command.session_mut() {
        *session = own_session(caller, *session);
    }
    let is_checked = service.mode() == AuthMode::Required;
    let checked_as = || is_checked.then(|| Box::new(caller_identity.clone()));
    match command {
        Command::OpenSession(OpenSession { session, public, identity, .. }) => {
            let own = holdfast_proto::SessionId::from_bytes(session.0.to_be_bytes());
            if let Some(own) = own {
                *public = PublicSessionId(own.public_number());
            }
            *identity = checked_as();
        }
        Command::AttachStream { identity, .. } => *identity = checked_as(),
        // What is recorded is who did it, and not what the caller says.
        Command::Intervene(intervention) => {
            intervention.by = caller_identity.principal.as_str().into();
        }
        _ => {}
    }
}
