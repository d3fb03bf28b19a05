use std::net::Ipv4Addr;
use std::sync::Weak;

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::*;

const REQUEST_TIMEOUT: Duration = Duration::from_millis(200);

fn limits() -> PortLimits {
    PortLimits {
        connections_max: 8,
        idle_max: 6,
        idle_per_address_max: 4,
        unfinished_max: 5,
        unfinished_per_address_max: 4,
        unfinished_per_connection_max: 3,
        bytes_max: 400,
        bytes_per_address_max: 300,
        bytes_per_connection_max: 200,
        unwritten_max: 3_000,
        unwritten_per_address_max: 2_500,
        unwritten_per_connection_max: 2_000,
        request_timeout: REQUEST_TIMEOUT,
        ..PortLimits::of_http()
    }
}

fn port() -> Arc<Connections> {
    Connections::new(limits(), Descriptors::without_limit())
}

fn address(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

/// After all that are there have had their grace.
fn admit(port: &Arc<Connections>, address: IpAddr) -> Result<OpenConnection, NoRoom> {
    port.try_admit(address, Instant::now() + port.limits.grace)
}

fn is_closing(open: &OpenConnection) -> bool {
    open.connection().is_closing.load(Ordering::Acquire)
}

fn answered(open: &OpenConnection) -> Arc<Call> {
    let call = open.connection().begin_call().unwrap();
    call.is_whole();
    call
}

#[test]
fn silent_connections_of_one_address_close_each_other_and_no_others() {
    let port = port();
    let mut silent: Vec<OpenConnection> = Vec::new();
    for _ in 0..100 {
        silent.push(admit(&port, address(1)).unwrap());
        silent.retain(|open| !is_closing(open));
    }
    assert_eq!(port.used().idle, 4);
    assert_eq!(silent.len(), 4, "the latest");
    let other = admit(&port, address(2)).unwrap();
    assert!(!is_closing(&other));
    assert_eq!((port.used().connections, port.used().gave_way), (5, 96));
    drop((silent, other));
    assert_eq!(PortUse { gave_way: 0, ..port.used() }, PortUse::default());
    assert!(port.lock().addresses.is_empty());
}

#[test]
fn connections_in_use_never_give_way_and_the_one_too_many_is_closed() {
    let port = port();
    let open: Vec<OpenConnection> = (0..8)
        .map(|_| {
            let open = admit(&port, address(1)).unwrap();
            let session = open.connection().begin_session();
            session.is_whole();
            std::mem::forget(session);
            open
        })
        .collect();
    assert_eq!(port.used().idle, 0);
    assert_eq!(admit(&port, address(2)).err(), Some(NoRoom::AtAll));
    assert_eq!(port.used().rejected, 1);
    assert!(open.iter().all(|open| !is_closing(open)));
}

#[test]
fn a_new_connection_has_time_for_its_first_request_before_it_gives_way() {
    let port = port();
    let open: Vec<OpenConnection> = (0..4).map(|_| admit(&port, address(1)).unwrap()).collect();
    let refused = port.try_admit(address(1), Instant::now()).err();
    assert!(matches!(refused, Some(NoRoom::Yet(left)) if left <= port.limits.grace), "{refused:?}");
    assert!(!open.iter().any(is_closing));
    assert!(admit(&port, address(1)).is_ok());
    assert!(is_closing(&open[0]));
}

#[test]
fn connections_that_are_closed_have_to_go_before_many_more_are_closed_for_others() {
    let port = port();
    let mut open: Vec<OpenConnection> = Vec::new();
    let refused = loop {
        match admit(&port, address(1)) {
            Ok(connection) => open.push(connection),
            Err(no_room) => break no_room,
        }
    };
    assert_eq!(refused, NoRoom::Yet(CLOSING_PAUSE));
    assert_eq!(open.iter().filter(|open| is_closing(open)).count(), CLOSING_MAX);
    open.retain(|open| !is_closing(open));
    assert!(admit(&port, address(1)).is_ok());
}

#[test]
fn connections_without_any_request_are_closed_first() {
    let port = port();
    let asked = admit(&port, address(1)).unwrap();
    drop(answered(&asked));
    let silent: Vec<OpenConnection> = (0..4).map(|_| admit(&port, address(1)).unwrap()).collect();
    assert!(!is_closing(&asked) && is_closing(&silent[0]));
}

#[test]
fn a_connection_is_idle_until_its_request_is_whole_and_after_its_answer() {
    let port = port();
    let open = admit(&port, address(1)).unwrap();
    let call = open.connection().begin_call().unwrap();
    assert_eq!((port.used().idle, port.used().unfinished), (1, 1));
    call.is_whole();
    assert_eq!((port.used().idle, port.used().unfinished), (0, 0));
    drop(call);
    assert_eq!(port.used().idle, 1);
}

#[test]
fn idle_connections_have_their_time() {
    let port = port();
    let [silent, asked, asking] = [1, 2, 3].map(|last| admit(&port, address(last)).unwrap());
    drop(answered(&asked));
    let _call = answered(&asking);
    let now = Instant::now();
    port.close_timed_out(now + Duration::from_secs(9));
    assert!(![&silent, &asked, &asking].into_iter().any(is_closing));
    port.close_timed_out(now + Duration::from_secs(11));
    assert!(is_closing(&silent) && !is_closing(&asked));
    port.close_timed_out(now + Duration::from_secs(3_600));
    assert!(is_closing(&asked) && !is_closing(&asking), "one in use stays");
    assert_eq!(port.used().timed_out, 2);
}

#[test]
fn requests_that_are_being_answered_are_limited_for_each_address_and_probes_are_not() {
    let limits = PortLimits { calls_per_address_max: 2, ..limits() };
    let port = Connections::new(limits, Descriptors::without_limit());
    let open = [1, 1, 2].map(|last| admit(&port, address(last)).unwrap());
    let calls = [answered(&open[0]), answered(&open[1])];
    for of_address in &open[..2] {
        let refused = of_address.connection().begin_call().err();
        assert_eq!(refused, Some(TooMuch::CallsOfAddress { max: 2 }));
        assert!(of_address.connection().begin_probe().is_ok(), "a probe is answered at once");
    }
    assert!(open[2].connection().begin_call().is_ok(), "another address has its own");
    drop(calls);
    assert!(open[0].connection().begin_call().is_ok());
}

#[test]
fn unfinished_requests_are_limited_for_each_connection_address_and_port() {
    let port = port();
    let open = [1, 1, 2].map(|last| admit(&port, address(last)).unwrap());
    let begin = |open: &OpenConnection| open.connection().begin_call();
    let mut calls: Vec<Arc<Call>> = (0..3).map(|_| begin(&open[0]).unwrap()).collect();
    assert_eq!(begin(&open[0]).unwrap_err(), TooMuch::UnfinishedOfConnection { max: 3 });
    calls.push(begin(&open[1]).unwrap());
    assert_eq!(begin(&open[1]).unwrap_err(), TooMuch::UnfinishedOfAddress { max: 4 });
    calls.push(begin(&open[2]).unwrap());
    assert_eq!(begin(&open[2]).unwrap_err(), TooMuch::UnfinishedOfPort { max: 5 });
    calls.clear();
    assert_eq!(port.used().unfinished, 0);
    assert_eq!(port.used().refused_requests, 3);
}

#[test]
fn an_idle_connection_whose_requests_are_refused_again_and_again_is_closed() {
    let port = port();
    let [idle, in_use] = [1, 2].map(|last| admit(&port, address(last)).unwrap());
    let _call = answered(&in_use);
    let _idle_calls: Vec<Arc<Call>> =
        (0..3).map(|_| idle.connection().begin_call().unwrap()).collect();
    let _calls: Vec<Arc<Call>> =
        (0..2).map(|_| in_use.connection().begin_call().unwrap()).collect();
    for _ in 0..REFUSED_MAX {
        assert!(!is_closing(&idle));
        assert!(in_use.connection().begin_call().is_err());
        assert!(idle.connection().begin_call().is_err());
    }
    assert!(is_closing(&idle) && !is_closing(&in_use));
}

#[test]
fn bytes_are_limited_for_each_connection_address_and_port_and_come_back() {
    let port = port();
    let open = [1, 1, 2].map(|last| admit(&port, address(last)).unwrap());
    let calls = open.each_ref().map(|open| open.connection().begin_call().unwrap());
    calls[0].take_bytes(200).unwrap();
    assert_eq!(calls[0].take_bytes(1), Err(TooMuch::BytesOfConnection { max: 200 }));
    calls[1].take_bytes(100).unwrap();
    assert_eq!(calls[1].take_bytes(1), Err(TooMuch::BytesOfAddress { max: 300 }));
    calls[2].take_bytes(100).unwrap();
    assert_eq!(calls[2].take_bytes(1), Err(TooMuch::BytesOfPort { max: 400 }));
    calls[0].give_back(150);
    calls[2].take_bytes(100).unwrap();
    drop(calls);
    assert_eq!(port.used().bytes, 0);
}

#[test]
fn all_addresses_of_a_network_of_ipv6_count_as_one() {
    let counted = |text: &str| counted_as(text.parse().unwrap());
    assert_eq!(counted("2001:db8:1:2:3:4:5:6"), counted("2001:db8:1:2::9"));
    assert_ne!(counted("2001:db8:1:2::9"), counted("2001:db8:1:3::9"));
    assert_eq!(counted("::ffff:10.0.0.1"), address(1));
}

fn message(length: u32, bytes: usize) -> Vec<u8> {
    let mut message = vec![0];
    message.extend(length.to_be_bytes());
    message.extend(vec![7; bytes]);
    message
}

type Pieces = mpsc::Sender<Result<Frame<Bytes>, std::io::Error>>;

fn body(
    open: &OpenConnection,
    shape: Shape,
) -> (Pieces, RequestBody<impl hyper::body::Body<Data = Bytes, Error = std::io::Error>>) {
    let (pieces, received) = mpsc::channel(16);
    let call = open.connection().begin_call().unwrap();
    (pieces, RequestBody::new(StreamBody::new(ReceiverStream::new(received)), call, shape))
}

async fn send(pieces: &Pieces, bytes: &[u8]) {
    pieces.send(Ok(Frame::data(Bytes::copy_from_slice(bytes)))).await.unwrap();
}

const MESSAGE: Shape = Shape::Message { bytes_max: 1_000 };

#[tokio::test]
async fn a_message_is_passed_on_whole_and_counted_as_it_arrives() {
    let port = port();
    let open = admit(&port, address(1)).unwrap();
    let (pieces, mut body) = body(&open, MESSAGE);
    let whole = message(100, 100);
    send(&pieces, &whole[..8]).await;
    tokio::select! {
        biased;
        frame = body.frame() => panic!("{frame:?}"),
        () = std::future::ready(()) => {}
    }
    assert_eq!(port.used().bytes, 8, "not what it claims");
    assert_eq!(port.used().unfinished, 1);
    send(&pieces, &whole[8..]).await;
    let given = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(given, whole);
    drop(pieces);
    assert!(body.frame().await.is_none());
    assert_eq!((port.used().unfinished, port.used().idle), (0, 0));
    assert_eq!(port.used().bytes, 105, "until it is answered");
    drop(body);
    assert_eq!((port.used().bytes, port.used().idle), (0, 1));
}

#[tokio::test]
async fn a_message_that_claims_or_has_too_many_bytes_is_refused() {
    let port = port();
    let open = admit(&port, address(1)).unwrap();
    for (sent, words) in [(message(1_001, 3), "1001 bytes"), (message(900, 300), "connection")] {
        let (pieces, mut body) = body(&open, MESSAGE);
        send(&pieces, &sent).await;
        let status = body.frame().await.unwrap().unwrap_err();
        assert!(status.message().contains(words), "{status:?}");
        assert!(status.metadata().contains_key(holdfast_proto::failure::REASON_KEY));
    }
    assert_eq!((port.used().bytes, port.used().unfinished), (0, 0));
}

#[tokio::test]
async fn a_request_that_does_not_come_whole_ends_at_its_deadline() {
    let port = port();
    let open = admit(&port, address(1)).unwrap();
    for shape in [MESSAGE, Shape::Session { bytes_max: 1_000 }, Shape::Bytes] {
        let (pieces, mut body) = body(&open, shape);
        send(&pieces, &message(100, 10)).await;
        let begun = tokio::time::Instant::now();
        let status = loop {
            match body.frame().await.unwrap() {
                Ok(_) => {}
                Err(status) => break status,
            }
        };
        assert!(begun.elapsed() >= REQUEST_TIMEOUT, "{shape:?}");
        assert!(status.message().contains("within 200ms"), "{status:?}");
    }
    assert_eq!(port.used().bytes, 0);
}

#[tokio::test]
async fn between_the_messages_of_a_stream_there_is_no_hurry_and_nothing_counts() {
    let port = port();
    let open = admit(&port, address(1)).unwrap();
    let (pieces, mut body) = body(&open, Shape::Session { bytes_max: 1_000 });
    send(&pieces, &[message(10, 10), message(20, 20)].concat()).await;
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().len(), 40);
    let next = tokio::time::timeout(2 * REQUEST_TIMEOUT, body.frame()).await;
    assert!(next.is_err(), "{next:?}");
    assert_eq!(port.used().bytes, 0);
    assert_eq!(port.used().unfinished, 1, "no session is open");
}

#[tokio::test]
async fn a_connection_whose_answers_are_not_written_gets_no_more_of_them() {
    let port = port();
    let open = admit(&port, address(1)).unwrap();
    let call = answered(&open);
    let pieces = (0..9).map(|_| Ok::<_, std::io::Error>(Frame::data(Bytes::from(vec![7; 1_000]))));
    let mut body = ResponseBody::new(StreamBody::new(tokio_stream::iter(pieces)), call);
    let first = body.frame().await.unwrap().unwrap();
    let _second = body.frame().await.unwrap().unwrap();
    assert_eq!(port.used().unwritten, 2_000);
    let mut third = Box::pin(body.frame());
    assert!(std::future::poll_fn(|cx| Poll::Ready(third.as_mut().poll(cx).is_pending())).await);
    drop(first);
    let _third = third.await.unwrap().unwrap();
    assert_eq!(port.used().unwritten, 2_000);
}

#[test]
fn a_closed_connection_leaves_no_state() {
    let port = port();
    let open = admit(&port, address(1)).unwrap();
    let connection: Weak<Connection> = Arc::downgrade(open.connection());
    let call = answered(&open);
    call.take_bytes(100).unwrap();
    drop(open);
    assert_eq!(port.used(), PortUse::default(), "though its call has not ended");
    drop(call);
    assert_eq!(port.used(), PortUse::default());
    assert!(connection.upgrade().is_none());
}
