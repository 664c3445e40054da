//! Calls in datagrams, each with an answer in one.
//!
//! A datagram that is too long, or that comes while too many are under way, is lost as any may be: whoever hears nothing
//! asks again.

use std::sync::Arc;

use bytes::Bytes;
use penstock_base::clock;
use tokio::{net::UdpSocket, sync::Semaphore};
use tracing::warn;

use super::{Answering, Greeting, Peer, Work};
use crate::{
    limits::{DATAGRAM_MAX, DATAGRAMS_MAX, RECEIVE_PAUSE},
    protocol::rpc::{Call, CallError, Reply, Transport},
};

/// Answers the datagrams that come to a socket, for ever.
pub(crate) async fn serve_datagrams(socket: UdpSocket, greeting: Greeting) {
    let socket = Arc::new(socket);
    let places = Arc::new(Semaphore::new(DATAGRAMS_MAX));
    // One byte more shows which are longer.
    let mut buffer = vec![0; DATAGRAM_MAX + 1];
    loop {
        let (length, address) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                warn!(%error, "cannot receive datagrams");
                clock::sleep(RECEIVE_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            continue;
        };
        let peer = Peer {
            address,
            local: None,
            transport: Transport::Datagram,
        };
        let Some(answering) = greeting(peer).filter(|_| length <= DATAGRAM_MAX) else {
            continue;
        };
        let message = Bytes::copy_from_slice(&buffer[..length]);
        let socket = Arc::clone(&socket);
        tokio::spawn(async move {
            if let Some(reply) = answer(message, &*answering).await {
                let datagram = reply.into_datagram();
                if datagram.len() <= DATAGRAM_MAX {
                    // One that cannot be sent is lost.
                    let _ = socket.send_to(&datagram, address).await;
                }
            }
            drop(place);
        });
    }
}

async fn answer(message: Bytes, answering: &dyn Answering) -> Option<Reply> {
    let call = match Call::decode(message) {
        Ok(call) => call,
        Err(error) => {
            answering.refused();
            return match error {
                CallError::Malformed => None,
                CallError::Refused(refused) => Some(Reply::refused(refused)),
            };
        }
    };
    match answering.begin(call, None).0 {
        Work::Done(reply) => Some(reply),
        Work::Looks(answer) | Work::Changes(answer) => answer.await,
    }
}
