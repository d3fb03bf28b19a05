//! What is played. Level 1 has no faults, level 2 has.

mod faults;
mod groups;
mod idle;
mod locks;
mod members;
mod security;
mod watching;

use std::fmt;
use std::pin::Pin;

use crate::cluster::Ground;
use crate::finding::Checked;
use crate::stage::Stage;

pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) level: Level,
    /// On which cluster.
    pub(crate) ground: Ground,
    /// What not every language has.
    pub(crate) needs: Option<&'static str>,
    play: for<'s, 'a> fn(&'s mut Stage<'a>) -> Playing<'s>,
}

type Playing<'s> = Pin<Box<dyn Future<Output = Checked> + 's>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Locks,
    Faults,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Locks => "L1",
            Level::Faults => "L2",
        })
    }
}

macro_rules! scenarios {
    ($($name:literal $level:ident $(on $ground:ident)? $($needs:literal)? => $play:path;)*) => {
        &[$(Scenario {
            name: $name,
            level: Level::$level,
            ground: [$(Ground::$ground,)? Ground::Plain][0],
            needs: [$(Some($needs),)? None][0],
            play: |stage| Box::pin($play(stage)),
        },)*]
    };
}

pub(crate) const SCENARIOS: &[Scenario] = scenarios! {
    "exclusive" Locks => locks::exclusive;
    "busy-and-timed-out" Locks => locks::busy_and_timed_out;
    "queue" Locks => locks::queue;
    "shared" Locks => locks::shared;
    "permits" Locks => locks::permits;
    "reentrant" Locks => locks::reentrant;
    "acquire-all" Locks => locks::acquire_all;
    "convert" Locks => locks::convert;
    "deadlock" Locks => locks::deadlock;
    "died" Locks => locks::died;
    "rejected" Locks => locks::rejected;
    "broken" Locks => locks::broken_by_operator;
    "session-killed" Locks => locks::session_killed;
    "transfer" Locks => locks::transfer;
    "own-ttl" Locks => locks::own_ttl;
    "renew" Locks => locks::renew;
    "auto-renew" Locks "auto_renew" => locks::auto_renew;
    "election" Locks => locks::election;
    "efficiency" Locks => locks::efficiency;
    "close" Locks => locks::close;
    "unavailable" Locks => locks::unavailable;
    "idle" Locks => idle::idle;
    "watch" Locks => watching::watch;
    "observe" Locks => watching::observe;
    "groups-locks" Locks on Divided => groups::locks;
    "groups-acquire-all" Locks on Divided => groups::acquire_all;
    "groups-waits" Locks on Divided => groups::waits;
    "groups-losses" Locks on Divided => groups::losses;
    "groups-efficiency" Locks on Divided => groups::efficiency;
    "groups-close" Locks on Divided => groups::close;
    "groups-idle" Locks on Divided => groups::idle;
    "groups-unconnected" Locks on Divided => groups::unconnected;
    "groups-watch" Locks on Divided => groups::watch;
    "tls" Locks on Secure => security::tls;
    "permission-denied" Locks on Secure => security::permission_denied;
    "connection-broken" Faults => faults::connection_broken;
    "short-cut" Faults => faults::short_cut;
    "cut-off" Faults => faults::cut_off;
    "answer-lost-acquire" Faults => faults::answer_lost_acquire;
    "answer-lost-release" Faults => faults::answer_lost_release;
    "requests-cut" Faults => faults::requests_cut;
    "leader-killed" Faults => faults::leader_killed;
    "leader-moved" Faults => faults::leader_moved;
    "stopped-past-ttl" Faults => faults::stopped_past_ttl;
    "cancel-leaves-no-waiter" Faults "cancel" => faults::cancel_leaves_no_waiter;
    "cancel-races-grant" Faults "cancel" => faults::cancel_races_grant;
    "broken-while-away" Faults => faults::broken_while_away;
    "fork" Faults "fork" => faults::fork;
    "blocked-loop" Faults "block" => faults::blocked_loop;
    "watch-resumes" Faults => watching::watch_resumes;
    "observe-resumes" Faults => watching::observe_resumes;
    "members-changed" Faults on Growing => members::members_changed;
    "groups-cancel" Faults on Divided "cancel" => groups::faults::cancel;
    "groups-connection-broken" Faults on Divided => groups::faults::connection_broken;
    "groups-cut-off" Faults on Divided => groups::faults::cut_off;
    "groups-stopped-past-ttl" Faults on Divided => groups::faults::stopped_past_ttl;
    "groups-answer-lost-acquire" Faults on Divided => groups::faults::answer_lost_acquire;
    "groups-answer-lost-release" Faults on Divided => groups::faults::answer_lost_release;
    "groups-broken-while-away" Faults on Divided => groups::faults::broken_while_away;
    "groups-leader-moved" Faults on Divided => groups::faults::leader_moved;
    "groups-leader-killed" Faults on Divided => groups::faults::leader_killed;
    "groups-fork" Faults on Divided "fork" => groups::faults::fork;
    "tls-broken" Faults on Secure => security::tls_broken;
    "tls-wrong-authority" Faults on Secure => security::tls_wrong_authority;
    "credential-expired" Faults on Secure => security::credential_expired;
    "credential-late" Faults on Secure => security::credential_late;
    "credential-revoked" Faults on Secure => security::credential_revoked;
    "credential-rotated" Faults on Secure => security::credential_rotated;
};

pub(crate) async fn play(scenario: &Scenario, stage: &mut Stage<'_>) -> Checked {
    (scenario.play)(stage).await
}
