//! One connection to one node, tuned so that a silent peer is noticed within seconds.

use std::time::Duration;

use holdfast_proto::v1::lock_service_client::LockServiceClient;
use tonic::transport::{Channel, Endpoint};

pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
pub(crate) const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(2);

/// More than the 16 MiB that a node sends at most. A frame that is not taken would be sent again on
/// every new stream.
pub(crate) const RESPONSE_BYTES_MAX: usize = 17 * 1024 * 1024;

pub(crate) async fn connect(
    address: &str,
) -> Result<LockServiceClient<Channel>, tonic::transport::Error> {
    Ok(lock_service(open(address).await?))
}

pub(crate) fn lock_service(channel: Channel) -> LockServiceClient<Channel> {
    LockServiceClient::new(channel).max_decoding_message_size(RESPONSE_BYTES_MAX)
}

pub(crate) async fn open(address: &str) -> Result<Channel, tonic::transport::Error> {
    Endpoint::from_shared(format!("http://{address}"))?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .connect()
        .await
}

/// Nothing listens there.
pub(crate) fn is_refusal(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source())
        .filter_map(|error| error.downcast_ref::<std::io::Error>())
        .any(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

/// The innermost cause: the outer ones only say "transport error".
pub(crate) fn innermost_cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
