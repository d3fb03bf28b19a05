//! How long the longest queue is, found out a little at a time: a large table is not looked through in one go.

use holdfast_core::LockTable;

/// Locks per look. A table of so many is known exactly; half a million take 25 s with ten looks a second, as a leader has them.
const LOCKS_PER_LOOK: usize = 2_000;

#[derive(Debug, Default)]
pub(super) struct LongestQueue {
    /// The lock that was looked at last; none at the beginning of the table.
    after: Option<String>,
    so_far: usize,
    /// When the table was gone through before.
    before: usize,
}

impl LongestQueue {
    /// Looks at some more of the table, and tells what is known: no queue that stood for two rounds is missed.
    pub(super) fn look(&mut self, table: &LockTable) -> u64 {
        if table.waiter_count() == 0 {
            *self = LongestQueue::default();
            return 0;
        }
        let (longest, next) = table.longest_queue(self.after.as_deref(), LOCKS_PER_LOOK);
        self.so_far = self.so_far.max(longest);
        self.after = next;
        if self.after.is_none() {
            self.before = std::mem::take(&mut self.so_far);
        }
        self.before.max(self.so_far) as u64
    }
}

#[cfg(test)]
mod tests {
    use holdfast_core::command::{Acquire, Call, Mode, OpenSession, Owner, Terms};
    use holdfast_core::{
        ActorId, Command, Limits, LockName, LogIndex, LogicalTime, PublicSessionId, RequestId,
        SessionId, Span,
    };

    use super::*;

    const HOLDER: u64 = 0;

    struct Scene {
        table: LockTable,
        requests: u64,
    }

    impl Scene {
        fn set(sessions: u64) -> Scene {
            let mut scene = Scene { table: LockTable::new(Limits::default()), requests: 0 };
            for number in 0..=sessions {
                let (session, public) = (SessionId(number.into()), PublicSessionId(number));
                let (ttl, owner) = (Span::from_secs(60), Owner::default());
                let open = OpenSession {
                    session,
                    public,
                    stream: None,
                    ttl,
                    linger: ttl,
                    owner,
                    identity: None,
                };
                scene.apply(Command::OpenSession(open));
            }
            scene
        }

        fn apply(&mut self, command: Command) {
            self.requests += 1;
            let index = LogIndex(self.requests);
            let _ = self.table.apply(index, LogicalTime::ZERO, command, &mut Vec::new());
        }

        fn acquire(&mut self, session: u64, lock: usize) {
            let request = RequestId(self.requests);
            let session = SessionId(session.into());
            let call = Call { session, request, acked_through: RequestId(0) };
            let terms = Terms { wait: Span::from_secs(30), ..Terms::default() };
            let name = LockName::new(&format!("lock/{lock:05}")).unwrap();
            let (actor, mode) = (ActorId(1), Mode::Exclusive);
            self.apply(Command::Acquire(Acquire { call, actor, name, mode, terms }));
        }
    }

    #[test]
    fn the_longest_queue_is_found_anywhere_and_forgotten_when_it_ends() {
        let mut scene = Scene::set(3);
        let mut longest = LongestQueue::default();
        assert_eq!(longest.look(&scene.table), 0);
        let last = LOCKS_PER_LOOK + 5;
        for lock in 0..=last {
            scene.acquire(HOLDER, lock);
        }
        scene.acquire(1, 3);
        for session in 1..=3 {
            scene.acquire(session, last);
        }
        assert_eq!(longest.look(&scene.table), 1, "the first part has one who waits");
        assert_eq!(longest.look(&scene.table), 3);
        assert_eq!(longest.look(&scene.table), 3, "it is remembered while the next round goes on");
        for session in 2..=3 {
            scene.apply(Command::CloseSession { session: SessionId(session) });
        }
        let told: Vec<u64> = (0..4).map(|_| longest.look(&scene.table)).collect();
        assert_eq!(told.last(), Some(&1), "{told:?}");
        scene.apply(Command::CloseSession { session: SessionId(1) });
        assert_eq!(longest.look(&scene.table), 0);
    }
}
