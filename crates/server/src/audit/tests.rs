use holdfast_core::{Event, LogIndex, LogicalTime, PublicSessionId, SessionId};
use holdfast_replica::{Leadership, NodeId};
use serde_json::{Value, json};

use super::*;
use crate::driver::inbox;
use crate::stopping::StopSwitch;

const KEPT: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(20);

fn happen(ring: &EventRing, indexes: impl IntoIterator<Item = u64>) {
    let (session, public) = (SessionId(1), PublicSessionId(1));
    let event = Event::SessionOpened { session, public, owner: Box::default() };
    let at = LogicalTime::ZERO;
    let events = indexes.into_iter().map(|index| (LogIndex(index), at, event.clone()));
    ring.record(&mut events.collect(), 0, None);
}

fn audit(settings: &AuditSettings, events: &Arc<EventRing>) -> Audit {
    led_by(&watch::Sender::new(Leadership::default()), settings, events)
}

fn led_by(
    leadership: &watch::Sender<Leadership>,
    settings: &AuditSettings,
    events: &Arc<EventRing>,
) -> Audit {
    of_members(&watch::Sender::default(), leadership, settings, events)
}

fn of_members(
    members: &watch::Sender<Arc<Membership>>,
    leadership: &watch::Sender<Leadership>,
    settings: &AuditSettings,
    events: &Arc<EventRing>,
) -> Audit {
    let driver = DriverHandle::new(inbox().unwrap().0, leadership.subscribe());
    let (events, metrics) = (Arc::clone(events), Arc::new(Metrics::new()));
    Audit::open(settings, events, driver, members.subscribe(), metrics).unwrap()
}

fn catch_up(audit: &mut Audit) {
    assert!(audit.write().unwrap());
}

#[test]
fn what_the_ring_forgot_is_missing_by_number_and_the_line_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.jsonl");
    let settings = AuditSettings { file: file.clone(), bytes_max: 1 << 20, kept: 1 };
    let events = Arc::new(EventRing::new(KEPT));
    let mut audit = audit(&settings, &events);
    happen(&events, 1..=50);
    catch_up(&mut audit);
    happen(&events, 51..=300);
    catch_up(&mut audit);
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len() as u64, 50 + 1 + KEPT);
    let gap = &lines[50];
    assert_eq!((&gap["event"], &gap["lost"]), (&Value::from("gap"), &Value::from(150)));
    assert_eq!((&gap["after_index"], &gap["index"]), (&Value::from(50), &Value::from(201)));
    assert_eq!(audit.metrics.audit.lost.get(), 1);
    assert_eq!(audit.metrics.audit.lines.get(), 50 + KEPT);
}

#[tokio::test]
async fn a_change_of_leader_has_a_line_though_nothing_else_happens_and_the_rest_comes_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.jsonl");
    let settings = AuditSettings { file: file.clone(), bytes_max: 1 << 20, kept: 1 };
    let events = Arc::new(EventRing::new(KEPT));
    let leadership = watch::Sender::new(Leadership::default());
    let stop = StopSwitch::new();
    let audit = led_by(&leadership, &settings, &events);
    let writing = tokio::spawn(audit.keep_writing(stop.watch()));
    let lines = &|| std::fs::read_to_string(&file).unwrap_or_default().lines().count();
    let written = |count: usize| {
        let written = async move {
            while lines() < count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, written)
    };
    for (term, leader) in [(1, 1), (2, 2), (3, 1)] {
        written(term).await.unwrap();
        let leader = Some(NodeId(leader));
        leadership.send_replace(Leadership { leader, is_here: false, term: term as u64 });
    }
    written(4).await.unwrap();
    happen(&events, 1..=20);
    stop.throw();
    writing.await.unwrap();
    assert_eq!(lines(), 4 + 20);
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text.matches("\"event\":\"leadership\"").count(), 4, "{text}");
}

#[tokio::test]
async fn who_votes_and_learns_has_a_line_when_it_changes_and_not_when_an_address_does() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.jsonl");
    let settings = AuditSettings { file: file.clone(), bytes_max: 1 << 20, kept: 1 };
    let events = Arc::new(EventRing::new(KEPT));
    let (leadership, stop) = (watch::Sender::new(Leadership::default()), StopSwitch::new());
    let members = watch::Sender::<Arc<Membership>>::default();
    let audit = of_members(&members, &leadership, &settings, &events);
    let writing = tokio::spawn(audit.keep_writing(stop.watch()));
    let told = || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["event"] == "membership").collect::<Vec<Value>>()
    };
    let change = |voters: &[u64], learners: &[u64], address: &str| {
        let nodes = |ids: &[u64]| ids.iter().copied().map(NodeId).collect();
        let mut now = Membership::default();
        now.configuration.voters = nodes(voters);
        now.configuration.learners = nodes(learners);
        now.members.entry(NodeId(1)).or_default().peer_address = address.to_owned();
        members.send_replace(Arc::new(now));
    };
    let lines = async |count: usize| {
        let written = async {
            while told().len() < count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, written).await.unwrap();
    };
    change(&[1, 2, 3], &[], "");
    lines(1).await;
    change(&[1, 2, 3], &[], "host-1:7421");
    change(&[1, 2, 3], &[4], "host-1:7421");
    lines(2).await;
    change(&[1, 2, 4], &[], "host-1:7421");
    lines(3).await;
    stop.throw();
    writing.await.unwrap();
    let told: Vec<[Value; 2]> =
        told().iter_mut().map(|line| ["voters", "learners"].map(|key| line[key].take())).collect();
    let [none, four] = [Value::Null, json!([4])];
    assert_eq!(
        told,
        [[json!([1, 2, 3]), none.clone()], [json!([1, 2, 3]), four], [json!([1, 2, 4]), none]]
    );
}

#[test]
fn a_file_that_begins_later_than_the_log_says_so_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.jsonl");
    let settings = AuditSettings { file: file.clone(), bytes_max: 1 << 20, kept: 1 };
    for through in [50, 50, 53, 55] {
        let events = Arc::new(EventRing::new(KEPT));
        let mut audit = audit(&settings, &events);
        // As when a snapshot has stood for the first fifty.
        events.restart_after(50);
        catch_up(&mut audit);
        happen(&events, 51..=through);
        catch_up(&mut audit);
        assert_eq!(audit.metrics.audit.lost.get(), 0, "nobody was too slow");
    }
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1 + 5, "{text}");
    assert_eq!((&lines[0]["event"], &lines[0]["index"]), (&"beginning".into(), &50.into()));
    assert_eq!(lines[1]["index"], Value::from(51));
}

#[tokio::test]
async fn that_a_file_begins_late_stands_before_who_leads() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.jsonl");
    let settings = AuditSettings { file: file.clone(), bytes_max: 1 << 20, kept: 1 };
    let events = Arc::new(EventRing::new(KEPT));
    events.restart_after(50);
    let leadership = watch::Sender::new(Leadership::default());
    let stop = StopSwitch::new();
    stop.throw();
    led_by(&leadership, &settings, &events).keep_writing(stop.watch()).await;
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&Value> = lines.iter().map(|line| &line["event"]).collect();
    assert_eq!(kinds, ["beginning", "leadership"], "though it stops in its first round");
}

#[test]
fn after_a_restart_what_is_in_the_file_is_not_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.jsonl");
    let settings = AuditSettings { file: file.clone(), bytes_max: 1 << 20, kept: 1 };
    for through in [5, 8] {
        let events = Arc::new(EventRing::new(KEPT));
        let mut audit = audit(&settings, &events);
        happen(&events, 1..=through);
        catch_up(&mut audit);
    }
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().count(), 8, "{text}");
    assert!(!text.contains("gap"), "{text}");
}
