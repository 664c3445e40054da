//! A client's machine as a server calls it: a port mapper, and the programs that it names, on one port.

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// In place of a status: the connection ends without an answer.
pub const NO_ANSWER: u32 = u32::MAX;

/// A call that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub from: IpAddr,
    /// Program, version and procedure.
    pub which: [u32; 3],
    pub arguments: Vec<u8>,
}

#[derive(Debug, Default)]
struct State {
    calls: Vec<Call>,
    /// What is answered to calls of NLM, the last one for ever.
    statuses: VecDeque<u32>,
}

/// See the module.
pub struct CalledMachine {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    listening: JoinHandle<()>,
}

impl Drop for CalledMachine {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl CalledMachine {
    /// One at an address, that answers so.
    pub async fn new(ip: [u8; 4], statuses: &[u32]) -> Self {
        let listener = TcpListener::bind((IpAddr::from(ip), 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = State {
            statuses: statuses.iter().copied().collect(),
            ..State::default()
        };
        let state = Arc::new(Mutex::new(state));
        let listening = tokio::spawn(accept_all(listener, Arc::clone(&state)));
        Self {
            address,
            state,
            listening,
        }
    }

    /// The calls that came, but those of the port mapper.
    pub fn calls(&self) -> Vec<Call> {
        self.state.lock().unwrap().calls.clone()
    }
}

async fn accept_all(listener: TcpListener, state: Arc<Mutex<State>>) {
    let port = listener.local_addr().unwrap().port();
    loop {
        let (stream, from) = listener.accept().await.unwrap();
        let state = Arc::clone(&state);
        tokio::spawn(async move { answer(stream, (from.ip(), port), &state).await });
    }
}

/// Answers one call.
async fn answer(mut stream: TcpStream, (from, port): (IpAddr, u16), state: &Mutex<State>) {
    let length = stream.read_u32().await.unwrap() & 0x7fff_ffff;
    let mut call = vec![0; length as usize];
    stream.read_exact(&mut call).await.unwrap();
    let word = |index: usize| u32::from_be_bytes(call[4 * index..][..4].try_into().unwrap());
    let call_of = [word(3), word(4), word(5)];
    let arguments = call[40..].to_vec();
    let mut results = vec![word(0), 1, 0, 0, 0, 0];
    match call_of {
        [100_000, 2, 3] => {
            assert_eq!(arguments[8..], [0, 0, 0, 6, 0, 0, 0, 0], "over TCP");
            results.push(port.into());
        }
        which => {
            let mut state = state.lock().unwrap();
            state.calls.push(Call {
                from,
                which,
                arguments,
            });
            let status = match state.statuses.len() {
                0 => None,
                1 => state.statuses.front().copied(),
                _ => state.statuses.pop_front(),
            };
            if status == Some(NO_ANSWER) {
                return;
            }
            results.extend(status.into_iter().flat_map(|status| [0, status]));
        }
    }
    let bytes: Vec<u8> = results.iter().flat_map(|word| word.to_be_bytes()).collect();
    stream.write_all(&super::record(&bytes)).await.unwrap();
}
