//! Who a caller is, by the credential that it shows; and the sessions that are its own.

use std::time::Duration;

use holdfast_core::command::OpenSession;
use holdfast_core::{Command, Identity, PublicSessionId, SessionId, TokenId};
use holdfast_proto::decode::operation::Opening;
use holdfast_proto::failure::{not_now, refused};
use holdfast_proto::v1::{Failure, Reason};
use holdfast_proto::{AccessToken, same_digest};
use holdfast_replica::GroupId;
use holdfast_service::{
    Admitted, AuthMode, Caller, Credential, Method, Service, ShownToken, token_is_over,
};
use tokio::time::sleep;

use super::Rpc;
use crate::shard::unix_ms;

/// An operator may set the wall clock meanwhile.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(3600);

/// What begins with something else is a JWT, if the node takes them.
const TOKEN_PREFIX: &str = "hft_";

/// The caller whose credential this is. What is shown has to be right, also where nothing is demanded.
pub(crate) fn authenticate(
    service: &Service,
    caller: Caller,
    method: Method,
    credential: &str,
) -> Result<Caller, Failure> {
    let shown_by = caller.clone();
    let known = known_caller(service, caller, credential);
    known.inspect_err(|failure| service.note_denial(&shown_by, method, failure))
}

fn known_caller(service: &Service, caller: Caller, credential: &str) -> Result<Caller, Failure> {
    if let Some(verify) = service.jwts().filter(|_| !credential.starts_with(TOKEN_PREFIX)) {
        let (identity, credential) = verify(credential)?;
        return Ok(caller.authenticated(identity, credential));
    }
    let token: AccessToken =
        credential.parse().map_err(|error| refused(Reason::Unauthenticated, format!("{error}")))?;
    let (identity, credential) = identity_of(service, shown(&token))?;
    Ok(caller.authenticated(identity, credential))
}

/// What is left of a token that a client has shown.
pub(crate) fn shown(token: &AccessToken) -> ShownToken {
    ShownToken { id: TokenId(token.id), digest: token.digest() }
}

/// Whose token it is, by the policy of this moment.
pub(crate) fn identity_of(
    service: &Service,
    token: ShownToken,
) -> Result<(Identity, Credential), Failure> {
    let unknown = || {
        let words = "the token is not known; it may have been revoked. Ask an administrator for another one";
        // A node that does not lead may not have applied yet what makes the token known.
        not_now(Reason::Unauthenticated, words)
    };
    if let Some(identity) = service.bootstrap_identity(&token.digest) {
        return Ok((identity, Credential::Bootstrap));
    }
    let access = service.policy().access();
    let record = access.token(token.id).ok_or_else(unknown)?;
    if !same_digest(&token.digest, &record.digest) {
        return Err(unknown());
    }
    if record.expires_at_unix_ms.is_some_and(|expires_at| expires_at <= unix_ms()) {
        return Err(token_is_over());
    }
    Ok((Identity::of(record.principal.clone()), Credential::Token(token)))
}

impl Rpc {
    /// The same for the client port: the leader has the last word.
    pub(super) fn authenticate(
        &self,
        caller: Caller,
        method: Method,
        credential: &str,
    ) -> Result<Caller, Failure> {
        authenticate(self.door.service(), caller, method, credential).map_err(|failure| {
            // A client keeps its session until the leader has denied it. A single call is told at once, unless the
            // leader may know a newer token.
            match method == Method::Session || failure.retryable {
                true => self.denial_of_this_node(failure),
                false => failure,
            }
        })
    }

    /// Checks by the policy whether the caller may have a session.
    pub(super) fn admit_session<T>(
        &self,
        caller: &Caller,
        method: Method,
        action: T,
    ) -> Result<Admitted<T>, Failure> {
        let admitted = self.door.admit(caller, method, action);
        admitted.map_err(|failure| self.denial_of_this_node(failure))
    }

    /// The denial of a node that does not lead is not final: its policy or its keys may be old, or its clock wrong.
    fn denial_of_this_node(&self, failure: Failure) -> Failure {
        let is_denial = matches!(
            failure.reason(),
            Reason::Unauthenticated | Reason::PermissionDenied | Reason::CredentialExpired
        );
        let leadership = self.door.leadership(GroupId::FIRST);
        match (is_denial, leadership.is_here) {
            (false, _) => failure,
            (true, true) => Failure { retryable: false, ..failure },
            (true, false) => {
                let leader = self.membership.client_address(leadership.leader);
                Failure { retryable: true, leader, ..failure }
            }
        }
    }
}

impl Rpc {
    /// Waits for the end of the credential that the caller has shown, and says so. Never ends if the credential has no end.
    pub(super) async fn credential_end(&self, caller: &Caller) -> Failure {
        while let Some(left) = self.door.service().credential_left(caller) {
            if left.is_zero() {
                return token_is_over();
            }
            sleep(left.min(LOOK_AGAIN_AFTER)).await;
        }
        std::future::pending().await
    }

    /// The caller comes with a session, and this node carries out what it asks for.
    pub(super) fn note_login(&self, caller: &Caller, opening: &Opening) {
        let Some(audit) = &self.audit else { return };
        let session = opening.session;
        let id = holdfast_proto::SessionId::from_bytes(session.0.to_be_bytes());
        if let Some(id) = id {
            let public = PublicSessionId(id.public_number());
            let group = self.membership.groups.with_number(opening.group);
            let group = group.unwrap_or(GroupId::FIRST);
            audit.logged_in(caller, group, session, public, !opening.resumed);
        }
    }
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
        // By any mode's leader: only administrators change the policy.
        Command::ChangeAccess(change) => change.identity = Some(Box::new(caller_identity.clone())),
        // What is recorded is who did it, and not what the caller says.
        Command::Intervene(intervention) => {
            intervention.by = caller_identity.principal.as_str().into();
            intervention.identity = checked_as();
        }
        _ => {}
    }
}
