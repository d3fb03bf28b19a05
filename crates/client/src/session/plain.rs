//! The client's end of a stream without HTTP/2 (see [`holdfast_proto::plain`]): the owner of the stream reads and writes it.
//!
//! A node that says nothing is asked every few seconds whether it is there, because a connection can stand long after its other
//! end has gone.

mod halves;
mod inbound;
mod outbound;

use std::io;
use std::time::{Duration, Instant};

use holdfast_proto::plain;
use holdfast_tls::{Socket, explain_any};
use rustls::AlertDescription;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::connection::Transport;
pub(super) use inbound::PlainInbound;
pub(super) use outbound::PlainOutbound;

/// A node greets at once. A peer that takes longer may be waiting for HTTP.
const GREETING_TIMEOUT: Duration = Duration::from_millis(400);

const NO_GREETING: &str =
    "the node ended the TLS handshake, and does not greet: it may be overloaded";

/// A token is much shorter.
const AUTH_BYTES_MAX: usize = 8 * 1024;

/// None: the peer does not speak this protocol, or does not say so soon.
pub(super) async fn greet(transport: &Transport, address: &str) -> io::Result<Option<Socket>> {
    let mut socket = match transport.open_framed(address).await {
        Err(error) if speaks_other_protocols(&error) => return Ok(None),
        opened => opened?,
    };
    let mut greeting = [0; plain::GREETING.len()];
    let greeted = async {
        socket.write_all(&plain::GREETING).await?;
        socket.flush().await?;
        socket.read_exact(&mut greeting).await
    };
    let patience = transport.greeting_patience();
    match timeout(patience.unwrap_or(GREETING_TIMEOUT), greeted).await {
        Ok(Ok(_)) if greeting == plain::GREETING => {
            show_token(transport, &mut socket).await?;
            Ok(Some(socket))
        }
        Ok(Ok(_)) => Ok(None),
        // A node that does not accept our certificate says so after the handshake.
        Ok(Err(error)) if explain_any(&error).is_some() => Err(error),
        Err(_) if patience.is_some() => Err(io::Error::new(io::ErrorKind::TimedOut, NO_GREETING)),
        Ok(Err(_)) | Err(_) => Ok(None),
    }
}

/// Before the first frame.
async fn show_token(transport: &Transport, socket: &mut Socket) -> io::Result<()> {
    let Some(file) = transport.auth_file() else { return Ok(()) };
    let (mut piece, token) = (Vec::new(), file.to_secret_text());
    plain::put_bytes(&mut piece, plain::AUTH, token.as_bytes(), AUTH_BYTES_MAX);
    socket.write_all(&piece).await?;
    socket.flush().await
}

/// Something between the client and the node, which knows gRPC and no frames.
fn speaks_other_protocols(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(error, Some(rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)))
}

/// Both halves of a connection on which both sides have greeted.
pub(super) fn open(socket: Socket) -> (PlainOutbound, PlainInbound) {
    let (reading, writing) = halves::split(socket);
    let now = Instant::now();
    (PlainOutbound::new(writing, now), PlainInbound::new(reading, now))
}
