//! How large messages on the client port can be.

/// A frame of a session.
pub(super) const REQUEST_BYTES_MAX: usize = 4 * 1024 * 1024;
/// A call of any other kind. The largest that there can be has 256 names of 512 bytes, or 4,096 session ids.
pub(super) const CALL_BYTES_MAX: usize = 512 * 1024;
pub(super) const RESPONSE_BYTES_MAX: usize = 16 * 1024 * 1024;
