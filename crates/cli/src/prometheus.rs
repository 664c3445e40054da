//! A tiny HTTP server for Prometheus: `GET /metrics` and nothing else.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use penstock_base::{clock, metrics::Registry};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinHandle,
};
use tracing::{debug, warn};

use crate::failure::{Failure, Outcome};

/// Clients that are served at once; others wait to be accepted.
const CLIENTS_MAX: usize = 8;

/// How long a client may take altogether.
const CLIENT_DEADLINE: Duration = Duration::from_secs(5);

/// Bytes in the longest request head.
const REQUEST_SIZE_MAX: u64 = 8192;

/// The media type of the text exposition format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A listening endpoint. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Exporter {
    accepting: JoinHandle<()>,
}

impl Exporter {
    /// Listens on `address`.
    pub(crate) async fn start(address: SocketAddr, registry: Arc<Registry>) -> Outcome<Self> {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            Failure::new(
                format!("cannot listen on `{address}` for metrics: {error}"),
                "give --metrics-address another port",
            )
        })?;
        Ok(Self {
            accepting: tokio::spawn(accept(listener, registry)),
        })
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, registry: Arc<Registry>) {
    let places = Arc::new(Semaphore::new(CLIENTS_MAX));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let registry = Arc::clone(&registry);
                tokio::spawn(async move {
                    let served = clock::deadline(CLIENT_DEADLINE, serve(stream, &registry)).await;
                    if let Ok(Err(error)) = served {
                        debug!(%error, "a metrics client went away");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                warn!(%error, "cannot accept a metrics client");
                clock::sleep(CLIENT_DEADLINE).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, registry: &Registry) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let target = read_target(&mut stream).await?;
    let answer = match target.as_deref() {
        Some("/metrics") => answer("200 OK", TEXT_FORMAT, &registry.prometheus()),
        Some(_) => answer("404 Not Found", "text/plain", "metrics are at /metrics\n"),
        None => answer("405 Method Not Allowed", "text/plain", "only GET\n"),
    };
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

/// Reads the whole head, so that closing does not reset the connection; returns what is asked
/// for, or nothing when it is not a GET.
async fn read_target(stream: &mut BufReader<TcpStream>) -> io::Result<Option<String>> {
    let mut head = stream.take(REQUEST_SIZE_MAX);
    let mut first = String::new();
    head.read_line(&mut first).await?;
    let mut line = String::from("more");
    while !line.trim().is_empty() {
        line.clear();
        head.read_line(&mut line).await?;
    }
    let mut words = first.split_whitespace();
    let is_get = words.next() == Some("GET");
    let target = words.next().filter(|_| is_get);
    Ok(target.map(|target| target.split('?').next().unwrap_or(target).to_owned()))
}

fn answer(status: &str, media_type: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use penstock_base::metrics::table;

    use super::*;

    async fn ask(request: &str) -> String {
        let registry = Registry::new();
        registry.counter(&table::OBJECT_RETRIES, &[]).add(3);
        let probe = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = probe.local_addr().expect("bound");
        drop(probe);
        let _exporter = Exporter::start(address, registry).await.expect("listens");
        let mut stream = TcpStream::connect(address).await.expect("connects");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answered");
        answer
    }

    #[tokio::test]
    async fn serves_metrics() {
        let answer = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(
            answer.ends_with("\npenstock_object_retries_total 3\n"),
            "{answer}"
        );
    }

    #[tokio::test]
    async fn serves_nothing_else() {
        let answer = ask("GET /secrets HTTP/1.1\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
        let answer = ask("POST /metrics HTTP/1.1\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    }
}
