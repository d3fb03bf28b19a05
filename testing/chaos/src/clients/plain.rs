//! A client over unary calls: takes locks, writes, gives them back; and now and then forgets to, falls
//! silent for longer than its TTL, or changes its mind while it waits.

use std::time::Duration;

use holdfast_core::LockName;

use super::ClientContext;
use super::calls::Calls;
use super::session::{Over, Session};
use crate::random::Random;

#[derive(Clone, Copy)]
enum ClientStep {
    OwnLock,
    SharedLock,
    Leased,
    Cancel,
    Read,
    Close,
    Forget,
    FallSilent,
}

pub(super) async fn work(number: u64, context: ClientContext, mut random: Random) {
    let Ok(calls) = Calls::to(&context.addresses, number, &context.recorder) else { return };
    let Ok(own) = LockName::new(&format!("own:{number}")) else { return };
    while !context.is_over() {
        let ttl = Duration::from_millis(random.within(2_000..6_000));
        let Ok(mut session) = Session::open(calls.clone(), &context, ttl).await else { continue };
        loop {
            if context.is_over() {
                let _ = session.close().await;
                break;
            }
            let deed = choose(&mut random);
            if let ClientStep::Close = deed {
                let _ = session.close().await;
                break;
            }
            let done = act(deed, &own, &mut session, &context, &mut random).await;
            if done.is_err() {
                break;
            }
            context.pause(Duration::from_millis(random.within(2..25))).await;
        }
    }
}

fn choose(random: &mut Random) -> ClientStep {
    random
        .weighted(&[
            (60, ClientStep::OwnLock),
            (60, ClientStep::SharedLock),
            (12, ClientStep::Leased),
            (12, ClientStep::Cancel),
            (20, ClientStep::Read),
            (2, ClientStep::Close),
            (2, ClientStep::Forget),
            (1, ClientStep::FallSilent),
        ])
        .unwrap_or(ClientStep::OwnLock)
}

async fn act(
    deed: ClientStep,
    own: &LockName,
    session: &mut Session,
    context: &ClientContext,
    random: &mut Random,
) -> Result<(), Over> {
    let shared = context.shared_lock(random).ok_or(Over)?;
    let wait = Duration::from_millis(random.within(0..2_000));
    let work = Duration::from_millis(random.within(0..30));
    match deed {
        ClientStep::OwnLock => {
            if let Some(held) = session.acquire(own, Duration::ZERO, None).await? {
                session.write(&held)?;
                session.release(&held).await?;
            }
        }
        ClientStep::SharedLock => {
            if let Some(held) = session.acquire(&shared, wait, None).await? {
                session.write(&held)?;
                context.pause(work).await;
                session.write(&held)?;
                session.release(&held).await?;
            }
        }
        ClientStep::Leased => {
            let ttl = Duration::from_millis(random.within(300..1_500));
            if let Some(mut held) = session.acquire(&shared, wait, Some(ttl)).await? {
                // What was in the queue for too long is not believed in any more, and given back.
                let _ = session.write(&held);
                session.renew(&mut held, ttl).await?;
                let _ = session.write(&held);
                session.release(&held).await?;
            }
        }
        ClientStep::Cancel => {
            let after = Duration::from_millis(random.within(0..40));
            if let Some(held) = session.acquire_and_cancel(&shared, wait, after).await? {
                session.write(&held)?;
                session.release(&held).await?;
            }
        }
        ClientStep::Read => session.status(if random.once_in(4) { own } else { &shared }).await?,
        ClientStep::Close => {}
        ClientStep::Forget => {
            if let Some(held) = session.acquire(&shared, wait, None).await? {
                session.write(&held)?;
            }
            return Err(Over);
        }
        ClientStep::FallSilent => {
            let held = session.acquire(&shared, wait, None).await?;
            let too_long = session.ttl() + Duration::from_millis(random.within(0..3_000));
            context.pause(too_long).await;
            if let Some(held) = held {
                let _ = session.write(&held);
                session.release(&held).await?;
            }
            session.keep_alive().await?;
        }
    }
    Ok(())
}
