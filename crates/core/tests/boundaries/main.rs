//! Where exactly a rule begins to hold: the last value that is taken and the first that is not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is a test")]

mod deadlines;
mod grace;
mod limits;
mod memory;
mod queries;
mod tokens;
#[path = "../world/mod.rs"]
mod world;

use holdfast_core::command::HoldRef;
use holdfast_core::{FenceToken, Limits, RequestId, Span};
use world::{World, lock_name};

/// Alice and Bob, for ten minutes.
fn world() -> World {
    with_limits(Limits::default())
}

fn with_limits(limits: Limits) -> World {
    let mut world = World::new(limits);
    world.open("alice", 600_000);
    world.open("bob", 600_000);
    world
}

/// The first hold of all.
fn wallet() -> HoldRef {
    HoldRef { name: lock_name("wallet"), token: FenceToken(1), acquire: RequestId(1) }
}

fn just_over(span: Span) -> Span {
    Span::from_ms(span.as_ms() + 1)
}

fn just_under(span: Span) -> Span {
    Span::from_ms(span.as_ms() - 1)
}
