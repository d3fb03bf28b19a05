//! Who has signed something that lies in a file.

use rustls::crypto::ring::default_provider;

/// Whether the content was signed with this key, by any of the algorithms that TLS accepts here. The key says which it can
/// be: with one of another kind no signature is good.
pub(crate) fn is_signed_by(public_key: &[u8], content: &[u8], signature: &[u8]) -> bool {
    let algorithms = default_provider().signature_verification_algorithms.all;
    algorithms.iter().any(|one| one.verify_signature(public_key, content, signature).is_ok())
}
