//! From host names to addresses.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use penstock_base::{
    Mutex,
    clock::{self, Instant},
};

use super::Origin;

/// How long addresses are used before they are asked for again. Stores give theirs out with a
/// life of a few seconds, to move load.
const ANSWER_AGE_MAX: Duration = Duration::from_secs(10);

/// Names that are remembered. A mount talks to one or two.
const NAMES_MAX: usize = 64;

/// Resolves names and hands their addresses out in turn.
#[derive(Debug, Default)]
pub(super) struct Resolver {
    answers: Mutex<HashMap<String, Answer>>,
    turn: AtomicUsize,
}

#[derive(Debug, Clone)]
struct Answer {
    addresses: Vec<IpAddr>,
    asked: Instant,
}

impl Resolver {
    /// All addresses of the origin, beginning with another one each time.
    pub(super) async fn addresses(&self, origin: &Origin) -> io::Result<Vec<SocketAddr>> {
        let mut addresses = match origin.host.parse() {
            Ok(address) => vec![address],
            Err(_) => self.lookup(&origin.host).await?,
        };
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % addresses.len();
        addresses.rotate_left(turn);
        let with_port = |address| SocketAddr::new(address, origin.port);
        Ok(addresses.into_iter().map(with_port).collect())
    }

    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let known = self.answers.lock().get(host).cloned();
        if let Some(answer) = &known
            && answer.asked.elapsed() < ANSWER_AGE_MAX
        {
            return Ok(answer.addresses.clone());
        }
        match (ask(host).await, known) {
            (Ok(addresses), _) => {
                self.remember(host, addresses.clone());
                Ok(addresses)
            }
            // A name server that is down should not stop what works.
            (Err(_), Some(answer)) => Ok(answer.addresses),
            (Err(error), None) => Err(error),
        }
    }

    fn remember(&self, host: &str, addresses: Vec<IpAddr>) {
        let mut answers = self.answers.lock();
        if answers.len() >= NAMES_MAX {
            answers.clear();
        }
        let asked = clock::now();
        answers.insert(host.to_owned(), Answer { addresses, asked });
    }
}

async fn ask(host: &str) -> io::Result<Vec<IpAddr>> {
    let mut addresses: Vec<IpAddr> = tokio::net::lookup_host((host, 0))
        .await?
        .map(|address| address.ip())
        .collect();
    addresses.dedup();
    if addresses.is_empty() {
        return Err(io::Error::other("the name has no address"));
    }
    Ok(addresses)
}
