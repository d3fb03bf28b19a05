//! Writers with different tokens who meet at one resource, and what must be true afterwards.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Mutex;

use holdfast_fence::{Accepts, Claim, Fence, Guarantee, TOKEN_LIMIT, admit};
use tokio::sync::Notify;

/// So many for each checker.
pub(crate) const MEETINGS: usize = 10_000;

pub(crate) fn claim(resource: &str, token: u64) -> Claim {
    let fence = Fence::new(Guarantee::Linearizable, resource, token).unwrap();
    admit(fence, resource, Accepts::Linearizable).unwrap()
}

/// One write that a holder wants to make. No two have the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Write {
    pub(crate) token: u64,
    pub(crate) value: i64,
}

/// A resource, and the writes that meet at it.
#[derive(Clone, Debug)]
pub(crate) struct Meeting {
    pub(crate) resource: String,
    pub(crate) writes: Vec<Write>,
}

/// Two to four writes each, under tokens that are near each other, of all sizes.
pub(crate) fn meetings(prefix: &str, count: usize, dice: &mut Dice) -> Vec<Meeting> {
    let mut value = 0;
    let mut meeting = |number: usize| {
        // Above 2^53 a double does not tell neighbours apart; there tokens are after a restore.
        let base = [1, 9, 99_999, (1 << 53) - 1, 1 << 60, TOKEN_LIMIT - 5][dice.roll(6) as usize];
        let write = |_| {
            value += 1;
            Write { token: base + dice.roll(4), value }
        };
        Meeting {
            resource: format!("{prefix}/{number}"),
            writes: (0..2 + number % 3).map(write).collect(),
        }
    };
    (0..count).map(&mut meeting).collect()
}

/// The writes of all meetings, in an order in which those of one meeting are near each other, but not in a row.
/// Of every third meeting one comes at the very end, when the store has been restarted.
pub(crate) fn mixed(meetings: &[Meeting], dice: &mut Dice) -> Vec<(String, Write)> {
    let mut meetings: Vec<&Meeting> = meetings.iter().collect();
    dice.shuffle(&mut meetings);
    let (mut writes, mut late) = (Vec::new(), Vec::new());
    for together in meetings.chunks(4) {
        let start = writes.len();
        for meeting in together {
            writes.extend(meeting.writes.iter().map(|write| (meeting.resource.clone(), *write)));
            if dice.roll(3) == 0 {
                late.extend(writes.pop());
            }
        }
        dice.shuffle(&mut writes[start..]);
    }
    writes.extend(late);
    writes
}

/// What the writers of a server share: what is left to write, and what was acknowledged.
pub(crate) struct Work {
    left: Mutex<VecDeque<(String, Write)>>,
    acknowledged: Mutex<HashMap<String, HashSet<Write>>>,
    /// Told when no more than this is left.
    crash_at: usize,
    time_to_crash: Notify,
}

impl Work {
    pub(crate) fn new(writes: Vec<(String, Write)>) -> Work {
        Work {
            crash_at: writes.len() / 2,
            left: Mutex::new(writes.into()),
            acknowledged: Mutex::default(),
            time_to_crash: Notify::new(),
        }
    }

    pub(crate) fn next(&self) -> Option<(String, Write)> {
        let mut left = self.left.lock().unwrap();
        let next = left.pop_front();
        if left.len() == self.crash_at {
            self.time_to_crash.notify_one();
        }
        next
    }

    pub(crate) fn acknowledge(&self, name: String, write: Write) {
        self.acknowledged.lock().unwrap().entry(name).or_default().insert(write);
    }

    pub(crate) async fn half_done(&self) {
        self.time_to_crash.notified().await;
    }

    pub(crate) fn acknowledged(&self, name: &str) -> HashSet<Write> {
        self.acknowledged.lock().unwrap().get(name).cloned().unwrap_or_default()
    }
}

/// Judges one resource. `accepted`: in the order in which the store carried them out.
pub(crate) fn judge(
    accepted: &[Write],
    stored: Option<i64>,
    acknowledged: &HashSet<Write>,
) -> Result<(), String> {
    if let Some(pair) = accepted.windows(2).find(|pair| pair[1].token < pair[0].token) {
        return Err(format!("token {} was let in after {}", pair[1].token, pair[0].token));
    }
    if stored != accepted.last().map(|write| write.value) {
        return Err(format!("{stored:?} is stored, {:?} was written last", accepted.last()));
    }
    match acknowledged.iter().find(|write| !accepted.contains(write)) {
        Some(lost) => Err(format!("{lost:?} was acknowledged, and is not there")),
        None => Ok(()),
    }
}

/// A small generator of its own: real threads and servers make each run differ anyway.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.roll(at as u64 + 1) as usize);
        }
    }
}

#[test]
fn the_judge_objects_to_what_a_fence_must_prevent() {
    let write = |token, value| Write { token, value };
    let none = HashSet::new();
    let rising = [write(1, 10), write(2, 20), write(2, 21)];
    assert_eq!(judge(&rising, Some(21), &HashSet::from(rising)), Ok(()));
    assert_eq!(judge(&[], None, &none), Ok(()));
    assert!(judge(&[write(2, 20), write(1, 10)], Some(10), &none).is_err());
    assert!(judge(&rising, Some(20), &none).is_err());
    assert!(judge(&rising, None, &none).is_err());
    assert!(judge(&rising, Some(21), &HashSet::from([write(3, 30)])).is_err());
}
