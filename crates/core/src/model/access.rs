//! Who may do what, as data: principals, verbs, patterns of names, roles, and the policy, which has all of them. What
//! it allows to an identity is compiled by `state/access.rs`.

pub(crate) mod change;
pub(crate) mod identity;
pub(crate) mod pattern;
pub(crate) mod policy;
pub(crate) mod principal;
pub(crate) mod quota;
pub(crate) mod role;
mod session_endings;
pub(crate) mod verb;
