//! `holdfast why`: what is in the way of a lock, how long that may take, and what to do about it.

use std::process::ExitCode;

use clap::Args;
use holdfast_proto::v1;
use serde::Serialize;

use crate::duration::in_words;
use crate::exit::Problem;
use crate::global::Global;
use crate::misuse_hint;
use crate::name;
use crate::obstacle::{self, Obstacle};
use crate::one_shot;
use crate::output::{self, Show};
use crate::status::{Holder, OwnerInfo, Waiter, holder_table, waiter_table};
use crate::text::quoted;

/// Explains why a lock is not free: holder, reason, queue, expected wait, and what to do.
///
/// Also shows which locks the holder itself waits for, and whether the lock is frozen, closed by a lock delay, or
/// reserved for a client that needs several locks at once. The expected wait is computed from recent holds of this
/// lock. Without any it is unknown.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  holdfast why deploy
  holdfast why deploy --output json | jq -r '.obstacles[].next_step'
  holdfast why deploy --output json | jq .estimated_wait_ms")]
pub(crate) struct WhyArgs {
    /// The lock's name.
    #[arg(value_parser = name::parse)]
    name: String,
}

#[derive(Debug, Serialize)]
struct Why {
    name: String,
    /// Nothing is in the way: it would be granted now.
    available: bool,
    /// Null unless some permits are out and some are left: then only a request for a permit is granted.
    of_others: Option<String>,
    /// Null unless it is held in the efficiency tier alone, where it is another lock; then what to do.
    other_tier: Option<String>,
    obstacles: Vec<Obstacle>,
    /// At most 100 of them.
    holders: Vec<Holder>,
    holder_count: u64,
    /// The first 100 at most.
    waiters: Vec<Waiter>,
    waiter_count: u64,
    /// What those in the way wait for themselves; the nearest first.
    chain: Vec<Link>,
    /// There was more of it.
    chain_is_cut: bool,
    /// Locks that are free and yet reserved, for a client that waits for this one at the same time.
    reserved: Vec<Reserved>,
    /// Null if no hold of it ended lately.
    hold_times: Option<HoldTimes>,
    /// For a request that comes now; null if it is not known.
    estimated_wait_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Link {
    /// 1: in the way of this lock; 2: in the way of one of those; and so on.
    depth: u32,
    in_the_way_of: String,
    waits_for: String,
    waiter: Waiter,
    /// Some of those who hold what it waits for.
    holders: Vec<Holder>,
    holder_count: u64,
}

#[derive(Debug, Serialize)]
struct Reserved {
    name: String,
    session: String,
    owner: OwnerInfo,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct HoldTimes {
    holds: u32,
    median_ms: u64,
    longest_ms: u64,
}

impl From<v1::WhyResponse> for Why {
    fn from(answer: v1::WhyResponse) -> Why {
        let status = answer.status.unwrap_or_default();
        let obstacles = obstacle::of(&status);
        Why {
            available: obstacles.is_empty(),
            of_others: obstacle::of_others(&status).filter(|_| obstacles.is_empty()),
            other_tier: None,
            obstacles,
            name: status.name,
            holders: status.holders.into_iter().map(Holder::from).collect(),
            holder_count: status.holder_count,
            waiters: status.waiters.into_iter().map(Waiter::from).collect(),
            waiter_count: status.waiter_count,
            chain: answer.chain.into_iter().map(Link::from).collect(),
            chain_is_cut: answer.chain_is_cut,
            reserved: answer.reserved.into_iter().map(Reserved::from).collect(),
            hold_times: answer.hold_times.map(|times| HoldTimes {
                holds: times.holds,
                median_ms: times.median_ms,
                longest_ms: times.longest_ms,
            }),
            estimated_wait_ms: answer.estimated_wait_ms,
        }
    }
}

impl From<v1::WaitLink> for Link {
    fn from(link: v1::WaitLink) -> Link {
        Link {
            depth: link.depth,
            in_the_way_of: link.in_the_way_of,
            waits_for: link.waits_for,
            waiter: link.waiter.unwrap_or_default().into(),
            holders: link.holders.into_iter().map(Holder::from).collect(),
            holder_count: link.holder_count,
        }
    }
}

impl From<v1::ReservedLock> for Reserved {
    fn from(reserved: v1::ReservedLock) -> Reserved {
        Reserved {
            name: reserved.name,
            session: reserved.public_session_id,
            owner: reserved.owner.into(),
        }
    }
}

impl Show for Why {
    fn to_table(&self) -> String {
        let mut text = String::new();
        if let Some(words) = &self.of_others {
            text += &format!("{} {words}\n", self.name);
        } else if self.available {
            text += &format!("{} is free: nothing is in the way\n", self.name);
            text += &format!("  next: holdfast lock {} -- CMD\n", quoted(&self.name));
        }
        if let Some(words) = &self.other_tier {
            text += &format!("{words}\n");
        }
        for obstacle in &self.obstacles {
            text += &format!("{} {}\n  next: {}\n", self.name, obstacle.words, obstacle.next_step);
        }
        for link in &self.chain {
            text += &format!("{}{}\n", "  ".repeat(link.depth as usize), link.in_words());
        }
        if self.chain_is_cut {
            text += "  and so on\n";
        }
        for reserved in &self.reserved {
            let (name, owner) = (&reserved.name, reserved.owner.in_words());
            text += &format!("{name} is free too, but kept for {owner}, who waits for both\n");
        }
        if !self.available {
            text += &format!("estimate: {}\n", self.estimate_in_words());
        }
        if !self.holders.is_empty() {
            text += &format!("\n{}", holder_table(&self.holders));
        }
        if self.waiter_count > 0 {
            text += &format!("\n{} waiting\n\n{}", self.waiter_count, waiter_table(&self.waiters));
        }
        text
    }
}

impl Why {
    fn estimate_in_words(&self) -> String {
        if let Some(words) = self.end_of_lost_holder() {
            return words;
        }
        let Some(times) = self.hold_times else {
            return "unknown, because no hold of this lock ended lately".to_owned();
        };
        let lately = match times.holds {
            1 => format!("the last hold took {}", in_words(times.median_ms)),
            holds => format!(
                "half of the last {holds} holds took less than {}, the longest {}",
                in_words(times.median_ms),
                in_words(times.longest_ms)
            ),
        };
        match self.estimated_wait_ms {
            Some(0) => format!("at any moment; {lately}"),
            Some(wait_ms) => format!("about {} for a new request; {lately}", in_words(wait_ms)),
            None => format!("unknown while the lock is frozen or closed; {lately}"),
        }
    }
}

impl Why {
    /// What holds of the past took tells nothing about a holder whose client is gone.
    fn end_of_lost_holder(&self) -> Option<String> {
        let [holder] = &self.holders[..] else { return None };
        if holder.connection_lost().is_empty() {
            return None;
        }
        let behind = match self.waiter_count {
            0 => String::new(),
            1 => "; one request is before a new one".to_owned(),
            count => format!("; {count} requests are before a new one"),
        };
        Some(format!("{}{behind}", holder.ends_in_words()))
    }
}

impl Link {
    fn in_words(&self) -> String {
        let Link { in_the_way_of, waits_for, waiter, .. } = self;
        let who = waiter.owner.in_words();
        let since = in_words(waiter.waiting_for_ms);
        let place = waiter.position;
        let by = match self.holders.first() {
            None => format!("it is not held, see `holdfast why {}`", quoted(waits_for)),
            Some(first) if self.holder_count > 1 => {
                let others = self.holder_count - 1;
                format!("held by {} and {others} more", first.owner.in_words())
            }
            Some(first) => {
                let held_for = in_words(first.held_for_ms);
                format!("held by {} for {held_for}{}", first.owner.in_words(), first.because())
            }
        };
        format!(
            "{who}, in the way of {in_the_way_of}, waits for {waits_for} ({since}, place {place}): {by}"
        )
    }
}

pub(crate) async fn run(args: WhyArgs, global: &Global) -> Result<ExitCode, Problem> {
    let calls = one_shot::calls(global)?;
    let mut why = Why::from(calls.why(&args.name).await?);
    if why.holders.is_empty() {
        // Of the other tier only this tells.
        why.other_tier = misuse_hint::only_in_efficiency_tier(&calls.status(&args.name).await?);
    }
    output::show(global.output, &why)
}
