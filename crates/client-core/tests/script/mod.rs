//! Reads a script, drives a session with it, and writes down what comes out.
//!
//! ```text
//! client ENDPOINTS [ttl=T] [linger=T] [group=N] [lazy]    connected   unreachable   refused   disconnected [reason=R] [leader=A]
//! WHO acquire NAME [wait=T] [ttl=T] [efficiency]  WHO release | drop | renew [ttl=T] | convert | transfer NAME
//! WHO abandons    status NAME    close    blocked    wait
//! WHO token NAME                                  what the guard says now
//! route NAME...                                   in which group a request for these locks is carried out
//! hears ITEM; ITEM; …                             one frame; see `hears.rs`
//! ```

mod server_frames;
mod text;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use holdfast_client_core::connect_errors::Contact;
use holdfast_client_core::error::Rejection;
use holdfast_client_core::groups::{GroupId, Routes};
use holdfast_client_core::hold::Hold;
use holdfast_client_core::lease::LocalTime;
use holdfast_client_core::session::{Config, Output, Request, SessionMachine, Settings, Success};
use holdfast_proto::SessionId;
use holdfast_proto::v1::{self, Failure, Mode, Owner, Reason};

/// How long callers wait, beyond the wait for the lock.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn replay(script: &str) -> String {
    let mut world = World::default();
    holdfast_golden::replay(script, |line, output| {
        world.run(line);
        output.push_str(&std::mem::take(&mut world.transcript));
    })
}

#[derive(Default)]
struct World {
    session: Option<SessionMachine<String>>,
    now: Duration,
    is_connected: bool,
    is_blocked: bool,
    calls: BTreeMap<String, u64>,
    /// By who holds it and its name.
    holds: BTreeMap<(String, String), Arc<Hold>>,
    /// What the sessions have learned of the groups.
    routes: Routes,
    sessions: Arc<std::sync::atomic::AtomicU8>,
    transcript: String,
}

impl World {
    fn run(&mut self, line: &str) {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        if words[0] == "at" {
            let at = duration(words[1]);
            self.advance(at);
            words.drain(..2);
        }
        match words[..] {
            ["client", endpoints, ..] => self.start(endpoints, &words[2..]),
            ["wait"] => {}
            ["route", ref names @ ..] => {
                let member =
                    |name: &&str| v1::Member { name: (*name).to_owned(), ..Default::default() };
                let members = names.iter().map(member).collect();
                let request = v1::AcquireAllRequest { members, ..Default::default() };
                let transcript = match self.routes.group_of(&Request::AcquireAll(request)) {
                    Ok(group) => format!("in group {group}"),
                    Err(several) => format!("rejected: {}", Rejection::from(several)),
                };
                self.tell(&transcript);
            }
            [who, "token", name] => {
                let hold = self.holds.get(&(who.to_owned(), name.to_owned()));
                let transcript = match hold.map(|hold| hold.token(LocalTime(self.now))) {
                    Some(Ok(token)) => format!("token {token}"),
                    Some(Err(lost)) => format!("lost: {}", lost.reason),
                    None => "has no guard".to_owned(),
                };
                self.tell(&format!("{who}: {name} {transcript}"));
            }
            _ => self.input(&words),
        }
        self.settle();
    }

    fn input(&mut self, words: &[&str]) {
        let now = LocalTime(self.now);
        let Some(session) = &mut self.session else { panic!("there is no client yet") };
        match *words {
            ["connected"] => {
                let is_wanted = session.handle_connected(now);
                // The connection before is left first.
                self.settle();
                self.is_connected = is_wanted;
            }
            ["unreachable"] => session.handle_connect_failed(now, "no route", Contact::NotMade),
            ["refused"] => session.handle_connect_failed(now, "refused", Contact::Refused),
            ["denied"] => session.handle_connect_failed(now, "not trusted", Contact::Denied),
            ["disconnected", ..] => {
                let reason = option(words, "reason").map_or(Reason::Unspecified, reason);
                let leader = option(words, "leader").unwrap_or_default().to_owned();
                let message = "the stream ended".to_owned();
                let reason = reason.into();
                session.handle_disconnected(
                    now,
                    Failure { reason, message, leader, retryable: true, ..Failure::default() },
                );
            }
            ["blocked"] => self.is_blocked = true,
            ["close"] => session.handle_close(now, Some("program".to_owned())),
            ["hears", ..] => {
                let frame = server_frames::frame(&words[1..].join(" "), self.now);
                session.handle_frame(now, frame);
            }
            [who, "abandons"] => session.handle_abandoned(now, self.calls[who]),
            [who, "drop", name] => {
                if let Some(hold) = self.holds.remove(&(who.to_owned(), name.to_owned())) {
                    session.handle_request(now, Request::Release { hold }, None, now);
                }
            }
            [who, verb, name, ..] => {
                let wait = option(words, "wait").map_or(Duration::ZERO, duration);
                let Some(request) = self.request(who, verb, name, words, wait) else {
                    return self.tell(&format!("{who}: {name} has no guard"));
                };
                let waits_until = LocalTime(self.now + wait + REQUEST_TIMEOUT);
                let caller = Some(who.to_owned());
                let Some(session) = &mut self.session else { return };
                let call = session.handle_request(now, request, caller, waits_until);
                self.calls.insert(who.to_owned(), call);
            }
            _ => panic!("what is {words:?}?"),
        }
    }

    fn request(
        &self,
        who: &str,
        verb: &str,
        name: &str,
        words: &[&str],
        wait: Duration,
    ) -> Option<Request> {
        let ttl = option(words, "ttl").map(duration);
        let key = (who.split('\'').next().unwrap().to_owned(), name.to_owned());
        let hold = || self.holds.get(&key).map(Arc::clone);
        Some(match verb {
            "acquire" => Request::Acquire(v1::AcquireRequest {
                name: name.to_owned(),
                wait_ms: ms(wait),
                ttl_ms: ttl.map(ms),
                tier: match words.contains(&"efficiency") {
                    true => v1::Tier::Efficiency.into(),
                    false => v1::Tier::Correctness.into(),
                },
                ..Default::default()
            }),
            "status" => Request::Status { name: name.to_owned() },
            "release" => Request::Release { hold: hold()? },
            "renew" => Request::Renew { hold: hold()?, ttl },
            "convert" => {
                let policy = v1::Policy::Detect;
                Request::Convert { hold: hold()?, mode: Mode::Shared, wait, policy }
            }
            "transfer" => Request::Transfer { hold: hold()?, to: "bob".to_owned() },
            verb => panic!("what is {verb}?"),
        })
    }

    fn start(&mut self, endpoints: &str, words: &[&str]) {
        let ttl = option(words, "ttl").map_or(Duration::from_secs(30), duration);
        let linger = option(words, "linger").map(duration);
        let number = Arc::clone(&self.sessions);
        let config = Config {
            settings: Settings { ttl, linger, owner: Owner::default() },
            group: GroupId::from_wire(option(words, "group").map_or(0, |it| it.parse().unwrap())),
            endpoints: endpoints.parse().unwrap(),
            opens_at_once: !words.contains(&"lazy"),
            waits_for_rates: !words.contains(&"impatient"),
            jitter_seed: 1,
            session_ids: Box::new(move || {
                let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
                SessionId::from_bytes([number; 16])
            }),
        };
        (self.is_connected, self.is_blocked) = (false, false);
        server_frames::set_terms(ttl, linger.unwrap_or(ttl));
        self.session = Some(SessionMachine::new(config, LocalTime(self.now)).unwrap());
    }

    /// Wakes the session at each of its timeouts.
    fn advance(&mut self, until: Duration) {
        while let Some(session) = &mut self.session
            && let Some(LocalTime(at)) = session.next_timeout()
            && at <= until
        {
            self.now = at.max(self.now);
            session.handle_timeout(LocalTime(self.now));
            session.handle_quiet(LocalTime(self.now));
            self.settle();
        }
        self.now = until;
    }

    /// Does what the session wants, and writes it down.
    fn settle(&mut self) {
        let Some(mut session) = self.session.take() else { return };
        while let Some(output) = session.poll_output() {
            if let Output::Disconnect { .. } = output {
                (self.is_connected, self.is_blocked) = (false, false);
            }
            match &output {
                Output::ConnectivityChanged => {
                    let transcript = text::circuit(session.circuit());
                    if !transcript.is_empty() {
                        self.tell(transcript);
                    }
                    continue;
                }
                Output::EndpointsLearned => {
                    if let Some(map) = session.map() {
                        self.routes.learn(map);
                    }
                    continue;
                }
                Output::Completed { caller, outcome: Ok(Success::Granted(holds)) } => {
                    for hold in holds {
                        let key = (caller.clone(), hold.name.clone());
                        self.holds.insert(key, Arc::clone(hold));
                    }
                }
                _ => {}
            }
            let transcript = text::output(&output, LocalTime(self.now));
            self.tell(&transcript);
        }
        // A connection has room unless the script says otherwise.
        while self.is_connected && !self.is_blocked {
            let Some(frame) = session.poll_frame(LocalTime(self.now)) else { break };
            let transcript = text::frame(&frame.decode().unwrap());
            self.tell(&transcript);
        }
        if self.is_blocked && session.has_frame() {
            session.handle_blocked(LocalTime(self.now));
        }
        self.session = Some(session);
    }

    fn tell(&mut self, transcript: &str) {
        let _ = writeln!(self.transcript, "{:>7.3}  {transcript}", self.now.as_secs_f64());
    }
}

fn option<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn duration(text: &str) -> Duration {
    let (number, unit_ms) = match text.strip_suffix("ms") {
        Some(number) => (number, 1.0),
        None => (text.strip_suffix('s').expect("a unit: s or ms"), 1_000.0),
    };
    Duration::from_secs_f64(number.parse::<f64>().unwrap() * unit_ms / 1_000.0)
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap()
}

fn reason(text: &str) -> Reason {
    Reason::from_str_name(&format!("REASON_{}", text.to_uppercase())).expect("a reason")
}
