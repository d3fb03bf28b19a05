//! Who may do what, as data: principals, verbs, patterns of names, roles. The state that decides with them is
//! `state/access.rs`.

pub(crate) mod change;
pub(crate) mod identity;
pub(crate) mod pattern;
pub(crate) mod principal;
pub(crate) mod quota;
pub(crate) mod role;
pub(crate) mod verb;
