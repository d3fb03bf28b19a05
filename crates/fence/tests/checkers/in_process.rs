//! The map of marks under real threads.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use holdfast_fence::in_process::HighWaterMarks;
use holdfast_fence::{Claim, HighWaterMark};

use crate::meeting::{Dice, MEETINGS, Meeting, Write, claim, judge, meetings};

const THREADS: usize = 4;

/// A way to write, and what is written: the value, and beside it the history, in two steps.
type Writer<'a> = dyn Fn(&Claim, &dyn Fn()) -> bool + Sync + 'a;

#[derive(Default)]
struct Resource {
    value: AtomicI64,
    history: Mutex<Vec<Write>>,
    acknowledged: Mutex<HashSet<Write>>,
}

/// All threads begin each meeting at the same moment; complaints come back.
fn let_them_meet(meetings: &[Meeting], writer: &Writer<'_>) -> Vec<String> {
    let resources: Vec<Resource> = meetings.iter().map(|_| Resource::default()).collect();
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (resources, start) = (&resources, &start);
            scope.spawn(move || {
                for (meeting, resource) in meetings.iter().zip(resources) {
                    start.wait();
                    if let Some(write) = meeting.writes.get(number) {
                        write_once(&meeting.resource, *write, resource, writer);
                    }
                }
            });
        }
    });
    let complaint = |resource: &Resource| {
        let history = resource.history.lock().unwrap();
        let stored = (!history.is_empty()).then(|| resource.value.load(Ordering::SeqCst));
        judge(&history, stored, &resource.acknowledged.lock().unwrap()).err()
    };
    resources.iter().filter_map(complaint).collect()
}

fn write_once(name: &str, write: Write, resource: &Resource, writer: &Writer<'_>) {
    let passed = writer(&claim(name, write.token), &|| {
        resource.value.store(write.value, Ordering::SeqCst);
        thread::yield_now();
        resource.history.lock().unwrap().push(write);
    });
    if passed {
        resource.acknowledged.lock().unwrap().insert(write);
    }
}

#[test]
fn accepted_tokens_never_go_back_and_the_last_accepted_write_stays() {
    let marks = HighWaterMarks::new(MEETINGS);
    let meetings = meetings("in-process", MEETINGS, &mut Dice(7));
    let complaints = let_them_meet(&meetings, &|claim, write| marks.write(claim, write).is_ok());
    assert_eq!(complaints, [""; 0]);
}

#[test]
fn to_check_and_then_to_write_is_caught() {
    let marks = HighWaterMarks::new(MEETINGS);
    let meetings = meetings("naive", MEETINGS, &mut Dice(7));
    let complaints = let_them_meet(&meetings, &|claim, write| {
        let passed = marks.check(claim).is_ok();
        thread::yield_now();
        if passed {
            write();
        }
        passed
    });
    assert!(!complaints.is_empty(), "the test cannot tell a fence from none");
}

#[test]
fn a_late_write_is_refused_after_a_restart_too() {
    let before = HighWaterMarks::new(MEETINGS);
    let meetings = meetings("restarted", 1_000, &mut Dice(11));
    let mut late = Vec::new();
    for meeting in &meetings {
        let (first, rest) = meeting.writes.split_first().unwrap();
        before.check(&claim(&meeting.resource, first.token)).unwrap();
        late.extend(rest.iter().map(|write| (claim(&meeting.resource, write.token), first.token)));
    }
    let kept = meetings.iter().map(|meeting| {
        (
            meeting.resource.clone(),
            HighWaterMark::from_token(before.highest(&meeting.resource).token()),
        )
    });
    let after = HighWaterMarks::restored(MEETINGS, kept).unwrap();
    let mut highest = std::collections::HashMap::new();
    for (claim, seen) in late {
        let highest = highest.entry(claim.resource().to_owned()).or_insert(seen);
        assert_eq!(after.check(&claim).is_ok(), claim.token() >= *highest);
        *highest = claim.token().max(*highest);
    }
}
