//! All who can look at a cluster while it works: the dashboard in a browser, a client that scrapes metrics, a watcher.
//! (The audit file is the nodes' own.)

use std::time::Duration;

use holdfast_bench::{Cluster, Outcome};
use holdfast_client::unary::Unary;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const SCRAPE_INTERVAL: Duration = Duration::from_secs(1);

/// They look until this is dropped.
#[derive(Debug)]
pub(crate) struct Observers {
    _looking: JoinSet<()>,
}

impl Observers {
    pub(crate) async fn of(cluster: &Cluster) -> Outcome<Observers> {
        let mut looking = JoinSet::new();
        let mut watch = Unary::new(&cluster.endpoints)?.watch("");
        watch.next().await?;
        looking.spawn(async move { while watch.next().await.is_ok() {} });
        for address in &cluster.http {
            let mut live = ask(address, "/api/live", "text/event-stream").await?;
            looking.spawn(async move {
                let mut bytes = vec![0; 64 * 1024];
                while live.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
            });
            let address = address.clone();
            looking.spawn(async move {
                loop {
                    tokio::time::sleep(SCRAPE_INTERVAL).await;
                    let Ok(mut page) = ask(&address, "/metrics", "text/plain").await else {
                        continue;
                    };
                    let _ = page.read_to_end(&mut Vec::new()).await;
                }
            });
        }
        Ok(Observers { _looking: looking })
    }
}

/// What the node answers is left to be read.
async fn ask(address: &str, path: &str, accept: &str) -> Outcome<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: {address}\r\naccept: {accept}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut status = [0; 12];
    stream.read_exact(&mut status).await?;
    if status != *b"HTTP/1.1 200" {
        let status = String::from_utf8_lossy(&status).into_owned();
        return Err(format!("{address}{path} answers '{status}'").into());
    }
    Ok(stream)
}
