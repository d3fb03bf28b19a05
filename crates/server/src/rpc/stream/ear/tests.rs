use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast_proto::v1::{
    AcquireRequest, ClientFrame, KeepAliveRequest, Operation, ReleaseRequest, StatusRequest,
};
use holdfast_service::Protocol;
use proptest::prelude::*;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

use super::super::super::serve::REQUEST_BYTES_MAX;
use super::super::incoming::Next;
use super::super::pen::Broken;
use super::*;
use crate::driver::Ear as _;

/// One of all that a client may send.
fn piece(kind: usize, number: u64) -> Vec<u8> {
    let (name, request_id) = ("wallet".to_owned(), number + 1);
    let efficiency = Tier::Efficiency.into();
    let acquire = || AcquireRequest { name: name.clone(), request_id, ..AcquireRequest::default() };
    let look = || StatusRequest { name: name.clone(), request_id };
    let operations = match kind {
        0 => vec![operation::Kind::Acquire(acquire())],
        1 => vec![
            operation::Kind::Release(ReleaseRequest {
                name: name.clone(),
                request_id,
                token: 1,
                ..ReleaseRequest::default()
            }),
            operation::Kind::Status(look()),
        ],
        2 => vec![operation::Kind::Status(look())],
        3 => vec![operation::Kind::KeepAlive(KeepAliveRequest::default())],
        4 => vec![operation::Kind::Acquire(AcquireRequest { tier: efficiency, ..acquire() })],
        // After a look that is right: a name that cannot be one.
        5 => vec![
            operation::Kind::Status(look()),
            operation::Kind::Acquire(AcquireRequest { name: String::new(), ..acquire() }),
        ],
        // A farewell.
        6 => vec![],
        7 => return vec![1, 0, 0, 0, plain::PING],
        _ => return vec![2, 0, 0, 0, plain::FRAME, 0xff],
    };
    let operations = operations.into_iter().map(|kind| Operation { kind: Some(kind) });
    let frame = ClientFrame { operations: operations.collect(), acked_through: 0 };
    let mut bytes = Vec::new();
    assert!(plain::put(&mut bytes, plain::FRAME, &frame, REQUEST_BYTES_MAX));
    bytes
}

const COMMON: [usize; 3] = [0, 1, 2];
const PING: usize = 7;

struct Client {
    here: WatchedSocket,
    there: TcpStream,
}

fn connected() -> Client {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let here = listener.accept().unwrap().0;
    here.set_nonblocking(true).unwrap();
    Client { here: WatchedSocket::from_std(here), there }
}

/// An ear, where its connection comes back, how many pings it has answered, and its looks.
fn ear() -> (Ear, oneshot::Receiver<Lent>, Arc<AtomicUsize>, Looks) {
    let (pings, looks) = (Arc::new(AtomicUsize::new(0)), Looks::default());
    let counted = Arc::clone(&pings);
    let echo = move || {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    let unread = Unread::new(echo, Broken::default());
    let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    let (back, returning) = oneshot::channel();
    let ear = Ear {
        unread,
        session: SessionId(5),
        caller: Caller::client(Protocol::Framed, None),
        service: Service::default(),
        looks: looks.clone(),
        back,
        _place: place,
    };
    (ear, returning, pings, looks)
}

/// What the task finds in what came back, to the end.
async fn left(lent: Lent) -> Vec<Vec<u8>> {
    let mut frames = lent.into_frames().unwrap();
    let mut seen = Vec::new();
    while let Ok(Next::Frame(Received::Bytes(frame))) = frames.next().await {
        seen.push(frame.to_vec());
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever comes, and however it is cut: all is heard by the driver up to the first piece that is not common, and all
    /// from there on by the task.
    #[test]
    fn nothing_is_lost_between_the_driver_and_the_task(
        kinds in proptest::collection::vec(0_usize..8, 0..30),
        cuts in proptest::collection::vec(1_usize..90, 1..30),
    ) {
        let pieces: Vec<_> = kinds.iter().zip(0..).map(|(kind, n)| piece(*kind, n)).collect();
        let is_of_driver = |kind: &usize| COMMON.contains(kind) || *kind == PING;
        let of_driver = kinds.iter().take_while(|kind| is_of_driver(kind)).count();
        let bytes = pieces.concat();
        let Client { mut here, mut there } = connected();
        let (mut ear, returning, pings, looks) = ear();
        let (mut heard, mut sent, mut cuts) = (Heard::default(), 0, cuts.iter().cycle());
        let mut scratch = [0; 64];
        loop {
            let now = (bytes.len() - sent).min(*cuts.next().unwrap());
            there.write_all(&bytes[sent..sent + now]).unwrap();
            sent += now;
            if now == 0 {
                there.shutdown(std::net::Shutdown::Write).unwrap();
            }
            if ear.hear(&mut here, &mut scratch, &mut heard) == AfterHearing::GiveBack {
                break;
            }
        }
        there.write_all(&bytes[sent..]).unwrap_or_default();
        there.shutdown(std::net::Shutdown::Write).unwrap_or_default();
        Box::new(ear).give_back(here);

        let count = |wanted: &[usize]| {
            kinds[..of_driver].iter().filter(|kind| wanted.contains(kind)).count()
        };
        prop_assert_eq!(heard.operations.len(), count(&[0, 1]));
        prop_assert_eq!(heard.looks.len(), count(&[1, 2]));
        let requests = heard.operations.iter().map(|(request, _)| request.0);
        prop_assert!(requests.is_sorted());
        let under_way = heard.looks.len();
        looks.end(under_way);
        prop_assert_eq!((0..1_000).filter(|_| looks.begin()).count(), 64, "each look was begun once");

        let runtime = Runtime::new().unwrap();
        let found = runtime.block_on(async { left(returning.await.unwrap()).await });
        let expected: Vec<_> = pieces[of_driver..]
            .iter()
            .zip(&kinds[of_driver..])
            .filter(|(_, kind)| **kind != PING)
            .map(|(piece, _)| piece[5..].to_vec())
            .collect();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(pings.load(Ordering::Relaxed), kinds.iter().filter(|kind| **kind == PING).count());
    }

    #[test]
    fn whatever_comes_is_heard_or_left(bytes: Vec<u8>) {
        let Client { mut here, mut there } = connected();
        let (mut ear, _returning, _, _) = ear();
        there.write_all(&bytes).unwrap();
        drop(there);
        while ear.hear(&mut here, &mut [0; 64], &mut Heard::default()) != AfterHearing::GiveBack {}
    }
}

#[test]
fn what_is_no_piece_and_what_is_no_frame_are_left_to_the_task() {
    for bytes in [vec![0xff; 8], piece(8, 0)] {
        let Client { mut here, mut there } = connected();
        let (mut ear, mut returning, _, _) = ear();
        there.write_all(&piece(0, 1)).unwrap();
        there.write_all(&bytes).unwrap();
        let mut heard = Heard::default();
        while ear.hear(&mut here, &mut [0; 64], &mut heard) != AfterHearing::GiveBack {}
        assert_eq!(heard.operations.len(), 1);
        Box::new(ear).give_back(here);
        let runtime = Runtime::new().unwrap();
        let _entered = runtime.enter();
        let mut frames = returning.try_recv().unwrap().into_frames().unwrap();
        let refused = match runtime.block_on(frames.next()) {
            Ok(Next::Frame(mut frame)) => frame.open().is_err(),
            Ok(Next::End(_)) => false,
            Err(_) => true,
        };
        assert!(refused, "{bytes:?}");
    }
}

#[test]
fn a_turn_takes_no_more_of_one_client_than_it_may_and_the_rest_in_the_next() {
    const FRAMES: u64 = 2_000;
    let Client { mut here, there: _there } = connected();
    let (mut ear, _returning, _, _) = ear();
    for number in 0..FRAMES {
        ear.unread.pieces.room().extend_from_slice(&piece(0, number));
    }
    let mut turns = Vec::new();
    loop {
        let mut heard = Heard::default();
        let after = ear.hear(&mut here, &mut [0; 64], &mut heard);
        turns.push(heard.operations.len());
        match after {
            AfterHearing::More => assert!(heard.is_much()),
            AfterHearing::Silence => break,
            AfterHearing::GiveBack => unreachable!("all is common"),
        }
    }
    assert_eq!(turns, [512, 512, 512, 464]);
}

#[test]
fn what_is_long_is_left_to_the_task_before_it_has_come() {
    let Client { mut here, mut there } = connected();
    let (mut ear, _returning, _, _) = ear();
    let announced = u32::try_from(PIECE_BYTES_MAX).unwrap() + 1;
    there.write_all(&announced.to_le_bytes()).unwrap();
    while ear.hear(&mut here, &mut [0; 64], &mut Heard::default()) != AfterHearing::GiveBack {}
    assert!(ear.unread.found.is_none() && ear.unread.pieces.announced().is_some());
}

#[test]
fn too_many_looks_are_left_to_the_task_who_says_so() {
    let Client { mut here, mut there } = connected();
    let (mut ear, _returning, _, looks) = ear();
    while looks.begin() {}
    there.write_all(&piece(2, 0)).unwrap();
    let mut heard = Heard::default();
    while ear.hear(&mut here, &mut [0; 64], &mut heard) != AfterHearing::GiveBack {}
    assert!(heard.looks.is_empty() && !looks.begin());
}
