//! A client over unary calls: takes locks, writes, gives them back; and now and then forgets to, falls
//! silent for longer than its TTL, or changes its mind while it waits.

use std::time::Duration;

use holdfast_core::LockName;

use super::calls::Calls;
use super::session::{Over, Session};
use super::{Surroundings, shared_lock};
use crate::random::Random;

#[derive(Clone, Copy)]
enum Deed {
    OwnLock,
    SharedLock,
    Leased,
    Cancel,
    Look,
    Close,
    Forget,
    FallSilent,
}

pub(super) async fn work(number: u64, surroundings: Surroundings, mut random: Random) {
    let recorder = &surroundings.recorder;
    let Ok(calls) = Calls::to(&surroundings.addresses, number, recorder) else { return };
    let Ok(own) = LockName::new(&format!("own:{number}")) else { return };
    while !surroundings.is_over() {
        let ttl = Duration::from_millis(random.within(2_000..6_000));
        let Ok(mut session) = Session::open(calls.clone(), recorder, ttl).await else { continue };
        loop {
            if surroundings.is_over() {
                let _ = session.close().await;
                break;
            }
            let deed = choose(&mut random);
            if let Deed::Close = deed {
                let _ = session.close().await;
                break;
            }
            let done = act(deed, &own, &mut session, &surroundings, &mut random).await;
            if done.is_err() {
                break;
            }
            surroundings.pause(Duration::from_millis(random.within(2..25))).await;
        }
    }
}

fn choose(random: &mut Random) -> Deed {
    random
        .weighted(&[
            (60, Deed::OwnLock),
            (60, Deed::SharedLock),
            (12, Deed::Leased),
            (12, Deed::Cancel),
            (20, Deed::Look),
            (2, Deed::Close),
            (2, Deed::Forget),
            (1, Deed::FallSilent),
        ])
        .unwrap_or(Deed::OwnLock)
}

async fn act(
    deed: Deed,
    own: &LockName,
    session: &mut Session,
    surroundings: &Surroundings,
    random: &mut Random,
) -> Result<(), Over> {
    let shared = shared_lock(random).ok_or(Over)?;
    let wait = Duration::from_millis(random.within(0..2_000));
    let work = Duration::from_millis(random.within(0..30));
    match deed {
        Deed::OwnLock => {
            if let Some(held) = session.acquire(own, Duration::ZERO, None).await? {
                session.write(&held)?;
                session.release(&held).await?;
            }
        }
        Deed::SharedLock => {
            if let Some(held) = session.acquire(&shared, wait, None).await? {
                session.write(&held)?;
                surroundings.pause(work).await;
                session.write(&held)?;
                session.release(&held).await?;
            }
        }
        Deed::Leased => {
            let ttl = Duration::from_millis(random.within(300..1_500));
            if let Some(mut held) = session.acquire(&shared, wait, Some(ttl)).await? {
                // What was in the queue for too long is not believed in any more, and given back.
                let _ = session.write(&held);
                session.renew(&mut held, ttl).await?;
                let _ = session.write(&held);
                session.release(&held).await?;
            }
        }
        Deed::Cancel => {
            let after = Duration::from_millis(random.within(0..40));
            if let Some(held) = session.acquire_and_cancel(&shared, wait, after).await? {
                session.write(&held)?;
                session.release(&held).await?;
            }
        }
        Deed::Look => session.status(if random.once_in(4) { own } else { &shared }).await?,
        Deed::Close => {}
        Deed::Forget => {
            if let Some(held) = session.acquire(&shared, wait, None).await? {
                session.write(&held)?;
            }
            return Err(Over);
        }
        Deed::FallSilent => {
            let held = session.acquire(&shared, wait, None).await?;
            let too_long = session.ttl() + Duration::from_millis(random.within(0..3_000));
            surroundings.pause(too_long).await;
            if let Some(held) = held {
                let _ = session.write(&held);
                session.release(&held).await?;
            }
            session.keep_alive().await?;
        }
    }
    Ok(())
}
