//! A wire that can be cut without a word: connections stay open and nothing passes.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) struct Proxy {
    address: String,
    passes: watch::Sender<bool>,
    /// Connections of an earlier count are broken.
    breaks: watch::Sender<u64>,
}

impl Proxy {
    pub(crate) async fn to(target: String) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (passes, open) = watch::channel(true);
        let (breaks, breaking) = watch::channel(0);
        let target: Arc<str> = target.into();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&*target).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let mut breaking = breaking.clone();
                breaking.mark_unchanged();
                for pump in [
                    tokio::spawn(pump(from_client, to_server, open.clone(), breaking.clone())),
                    tokio::spawn(pump(from_server, to_client, open.clone(), breaking.clone())),
                ] {
                    let mut breaking = breaking.clone();
                    tokio::spawn(async move {
                        if breaking.changed().await.is_ok() {
                            pump.abort();
                        }
                    });
                }
            }
        });
        Proxy { address, passes, breaks }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Nothing passes any more, in either direction, and no client is told.
    pub(crate) fn cut(&self) {
        self.passes.send_replace(false);
    }

    /// What was held up comes now.
    pub(crate) fn heal(&self) {
        self.passes.send_replace(true);
    }

    /// Ends every connection that there is; new ones can be made.
    pub(crate) fn break_connections(&self) {
        self.breaks.send_modify(|breaks| *breaks += 1);
    }
}

async fn pump(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut passes: watch::Receiver<bool>,
    breaking: watch::Receiver<u64>,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if passes.wait_for(|passes| *passes).await.is_err() {
            break;
        }
        // Of a connection that was broken before the wire was healed nothing more passes.
        if breaking.has_changed().unwrap_or(true) {
            return;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            break;
        }
    }
    // While the wire is cut the end of one side is not told to the other either.
    let _ = passes.wait_for(|passes| *passes).await;
}
