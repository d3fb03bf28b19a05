//! What is told to those who look.

use holdfast_core::command::{AcquireAll, Member, Mode, Policy, Terms};
use holdfast_core::{ActorId, Command, LockSearch, SearchRange, Span};

use crate::world::lock_name;
use crate::{wallet, world};

#[test]
fn acquires_and_conversions_can_wait_and_nothing_else() {
    let mut world = world();
    let call = world.call("alice", 7);
    let acquire = world.acquiring("alice", 7, "wallet", 0);
    let members = Box::new([Member { name: lock_name("wallet"), mode: Mode::Exclusive }]);
    let (actor, terms) = (ActorId(0), Terms::default());
    let all = AcquireAll { call, actor, members, terms };
    let (to, wait, policy) = (Mode::Shared, Span::ZERO, Policy::Wait);
    let waiting = [
        Command::Acquire(acquire),
        Command::AcquireAll(all),
        Command::Convert { call, hold: wallet(), to, wait, policy },
    ];
    assert_eq!(waiting.map(|command| command.wait()), [Some(call); 3]);
    assert_eq!(Command::Release { call, hold: wallet() }.wait(), None);
}

#[test]
fn a_lock_search_begins_at_its_prefix() {
    let mut world = world();
    world.acquire("alice", 1, "bank", 0);
    world.acquire("alice", 2, "eu/keys", 0);
    let search = LockSearch { prefix: "eu/".to_owned(), ..LockSearch::default() };
    let range = SearchRange { after: Some("asia"), locks_max: 9, above: None, found_max: 9 };
    assert_eq!(world.table.search_locks(&search, range).matched, 1);
}

#[test]
fn a_converting_holder_is_not_counted_as_its_own_blocker() {
    let mut world = world();
    for who in ["alice", "bob"] {
        let mut acquire = world.acquiring(who, 1, "wallet", 0);
        acquire.mode = Mode::Shared;
        world.apply(Command::Acquire(acquire));
    }
    let call = world.call("alice", 2);
    let (to, wait, policy) = (Mode::Exclusive, Span::from_secs(9), Policy::Wait);
    world.apply(Command::Convert { call, hold: wallet(), to, wait, policy });
    let why = world.table.why(&lock_name("wallet"), 9);
    assert_eq!((why.chain.len(), why.chain[0].holder_count), (1, 1));
}
