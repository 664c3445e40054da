//! A way to a server on which less and less comes through.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// How often a thread that can do nothing looks whether it can.
const LOOK: Duration = Duration::from_millis(10);

/// What comes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Traffic {
    /// Everything.
    Flows,
    /// Nothing, without a word: as when a cable is pulled. It comes when the cable is back.
    Silent,
    /// What the server is asked, and nothing of what it answers.
    OneWay,
    /// Nothing: connections end, and new ones with them.
    Refused,
}

#[derive(Debug)]
struct Signal(AtomicU8);

impl Signal {
    fn is(&self, traffic: Traffic) -> bool {
        self.0.load(Ordering::SeqCst) == traffic as u8
    }

    fn stops(&self, is_answer: bool) -> bool {
        self.is(Traffic::Silent) || is_answer && self.is(Traffic::OneWay)
    }
}

/// A relay of TCP connections on loopback. See [the module](self).
#[derive(Debug)]
pub struct Road {
    port: u16,
    signal: Arc<Signal>,
    ended: Arc<AtomicU8>,
    listener: Option<JoinHandle<()>>,
}

impl Road {
    /// A way to what listens at `server`, a port of this machine.
    pub fn to(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a port");
        listener.set_nonblocking(true).expect("a socket");
        let port = listener.local_addr().expect("it is bound").port();
        let signal = Arc::new(Signal(AtomicU8::new(Traffic::Flows as u8)));
        let ended = Arc::new(AtomicU8::new(0));
        let (shared, ends) = (Arc::clone(&signal), Arc::clone(&ended));
        let listener = thread::spawn(move || {
            while ends.load(Ordering::SeqCst) == 0 {
                match listener.accept() {
                    Ok((client, _)) => carry(client, server, &shared),
                    Err(_) => thread::sleep(LOOK),
                }
            }
        });
        Self {
            port,
            signal,
            ended,
            listener: Some(listener),
        }
    }

    /// Where it begins.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on this comes through.
    pub fn set(&self, traffic: Traffic) {
        self.signal.0.store(traffic as u8, Ordering::SeqCst);
    }
}

impl Drop for Road {
    fn drop(&mut self) {
        self.set(Traffic::Refused);
        self.ended.store(1, Ordering::SeqCst);
        if let Some(listener) = self.listener.take() {
            drop(listener.join());
        }
    }
}

fn carry(client: TcpStream, server: u16, signal: &Arc<Signal>) {
    if signal.is(Traffic::Refused) {
        return;
    }
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) else {
        return;
    };
    let ends = [&client, &server].map(|end| end.try_clone().expect("a socket can be shared"));
    let [client_too, server_too] = ends;
    for (from, to, is_answer) in [(client, server_too, false), (server, client_too, true)] {
        let signal = Arc::clone(signal);
        thread::spawn(move || {
            pass(&from, &to, &signal, is_answer);
            for end in [from, to] {
                drop(end.shutdown(Shutdown::Both));
            }
        });
    }
}

/// Passes bytes on until an end closes or the road is closed.
fn pass(mut from: &TcpStream, mut to: &TcpStream, signal: &Signal, is_answer: bool) {
    let timeout = from.set_read_timeout(Some(LOOK));
    timeout.expect("a timeout that is not zero");
    let mut bytes = vec![0; 64 << 10];
    while !signal.is(Traffic::Refused) {
        if signal.stops(is_answer) {
            thread::sleep(LOOK);
            continue;
        }
        match from.read(&mut bytes) {
            Ok(count @ 1..) => {
                while signal.stops(is_answer) {
                    thread::sleep(LOOK);
                }
                if to.write_all(&bytes[..count]).is_err() {
                    return;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Ok(0) | Err(_) => return,
        }
    }
}
