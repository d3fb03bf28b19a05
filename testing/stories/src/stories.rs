//! All stories, in the order in which they are told.

mod circular_wait;
mod clock_jump;
mod crash_mid_work;
mod cut_off;
mod dies_in_queue;
mod holder_dies;
mod leader_failover;
mod many_waiters;
mod pause;
mod short_ttl;
mod split;
mod two_sites;
mod wrong_owner;

use crate::story::Story;

pub(crate) const ALL: &[Story] = &[
    holder_dies::STORY,
    pause::STORY,
    cut_off::STORY,
    leader_failover::STORY,
    clock_jump::STORY,
    many_waiters::STORY,
    circular_wait::STORY,
    split::STORY,
    two_sites::STORY,
    wrong_owner::STORY,
    crash_mid_work::STORY,
    short_ttl::STORY,
    dies_in_queue::STORY,
];
