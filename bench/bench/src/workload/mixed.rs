//! W5: what a busy application does. Of all acquires four fifths are for a lock of the client's own, the others for one of
//! a hundred hot ones, and one in twenty of all takes two of those at one moment.

use std::sync::Arc;
use std::time::Instant;

use super::{Running, Timed, own_name};
use crate::{Length, Locks, Outcome, PREFIX, Servers, Turn};

const HOT_NAMES: u64 = 100;
const PERCENT_ALL: u64 = 5;
const PERCENT_HOT: u64 = 20;

enum Wanted {
    Own,
    Hot(u64),
    All(u64, u64),
}

/// Counts operations; what takes several locks is one acquire and one release.
pub async fn mixed<L: Locks>(
    clients: &[Arc<L>],
    length: Length,
    servers: &Servers,
) -> Outcome<Turn> {
    let timed = Timed::beginning_now(length)?;
    let mut running = Running::new(timed.window);
    running.all_do(clients, &timed, lock_mixed);
    let (_, cores) = running.end(servers).await?;
    timed.turn(cores)
}

async fn lock_mixed<L: Locks>(client: Arc<L>, number: usize, timed: Timed) -> Outcome {
    let own = own_name(number);
    let mut dice = Dice(number as u64);
    while timed.window.is_open() {
        match dice.wanted() {
            Wanted::Own => {
                timed.lock_once(&*client, number, &own).await?;
            }
            Wanted::Hot(hot) => {
                timed.lock_once(&*client, number, &hot_name(hot)).await?;
            }
            Wanted::All(one, other) => {
                let names = [hot_name(one.min(other)), hot_name(one.max(other))];
                lock_all_once(&timed, &*client, number, &names).await?;
            }
        }
    }
    Ok(())
}

async fn lock_all_once<L: Locks>(
    timed: &Timed,
    client: &L,
    number: usize,
    names: &[String],
) -> Outcome {
    let asked = Instant::now();
    let held = client.acquire_all(names).await?;
    let granted = Instant::now();
    for held in held {
        client.release(held).await?;
    }
    timed.acquires.note(number, asked, granted);
    timed.releases.note(number, granted, Instant::now());
    Ok(())
}

fn hot_name(number: u64) -> String {
    format!("{PREFIX}hot/{number:02}")
}

/// The same sequence for the same client in every run and for every service (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }

    fn wanted(&mut self) -> Wanted {
        let percent = self.below(100);
        let one = self.below(HOT_NAMES);
        if percent < PERCENT_ALL {
            Wanted::All(one, (one + 1 + self.below(HOT_NAMES - 1)) % HOT_NAMES)
        } else if percent < PERCENT_HOT {
            Wanted::Hot(one)
        } else {
            Wanted::Own
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mixture_is_as_it_is_told() {
        let mut dice = Dice(7);
        let (mut own, mut all) = (0, 0);
        for _ in 0..10_000 {
            match dice.wanted() {
                Wanted::Own => own += 1,
                Wanted::Hot(_) => {}
                Wanted::All(one, other) => {
                    assert_ne!(one, other);
                    all += 1;
                }
            }
        }
        assert!((7_800..8_200).contains(&own), "{own}");
        assert!((400..600).contains(&all), "{all}");
    }
}
