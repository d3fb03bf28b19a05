//! What commands do to the table: a file for each verb, and files for what several verbs share.
//!
//! Verbs: [`acquire`], [`release`], [`renew`], [`convert`], [`cancel`], [`abandon`], [`transfer`], [`proclaim`],
//! [`session`], [`intervene`] with [`break_holds`], [`freeze`] and [`set_permits`], [`tick`], [`publish`], [`slot_moves`]
//! with [`move_out`] and [`move_in`]. Shared:
//! [`dedup`] carries out a request once; [`ownership`] says in
//! which slots, [`admission`] what may be granted, [`room`] what the limits allow;
//! [`enqueue`], [`promotion`] and [`teardown`] begin and end waits and holds; [`deadlock`] and [`ages`] keep waits from
//! lasting for ever.

mod abandon;
mod access;
mod acquire;
mod admission;
mod ages;
mod apply;
mod break_holds;
mod cancel;
mod convert;
mod deadlock;
mod dedup;
mod enqueue;
mod freeze;
mod intervene;
mod invariants;
mod move_in;
mod move_out;
mod ownership;
mod proclaim;
mod promotion;
mod publish;
mod release;
mod renew;
pub(crate) mod restore;
mod room;
mod session;
mod set_permits;
pub(crate) mod slot_moves;
mod teardown;
mod tick;
mod transfer;
