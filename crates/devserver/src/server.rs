//! A running server: its listener, its threads, and their end.

use std::{
    collections::BTreeMap,
    fmt, io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use crate::{
    connection, counters::Counters, faults::FaultPlan, service::Service, settings::Settings,
    store::Data, sync, system,
};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// Handlers need little; bodies are on the heap.
const STACK_SIZE: usize = 512 << 10;
/// How long [`Server::stop`] waits for handlers.
const STOP_MAX: Duration = Duration::from_secs(10);

/// An object server that runs in threads of this process until it is stopped or dropped.
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: Option<JoinHandle<()>>,
}

/// What the listener and the handlers share.
struct Shared {
    service: Service,
    listener: TcpListener,
    open: Mutex<OpenConnections>,
    /// Told whenever a connection ends.
    ended: Condvar,
}

/// The connections that are being served, to end them when the server stops.
#[derive(Default)]
struct OpenConnections {
    next: u64,
    streams: BTreeMap<u64, Arc<TcpStream>>,
}

impl Server {
    /// Starts a server with nothing in it but what the settings ask for.
    ///
    /// # Errors
    /// The address cannot be listened on, the directory cannot be read, or memory is exhausted.
    pub fn start(settings: Settings) -> io::Result<Self> {
        Self::start_with(Data::new(), settings)
    }

    /// Starts a server on data that was there before, such as what [`Server::stop`] returned.
    /// With the address of a server that was stopped it takes that one's place.
    ///
    /// # Errors
    /// As for [`Server::start`].
    pub fn start_with(data: Data, settings: Settings) -> io::Result<Self> {
        if settings.prepared_memory > 0 {
            data.prepare_memory(settings.prepared_memory)?;
        }
        for bucket in &settings.buckets {
            data.create_bucket(bucket);
        }
        if let Some(directory) = &settings.directory {
            data.load(directory)?;
        }
        for fill in &settings.fills {
            data.fill(fill)?;
        }
        for crowd in &settings.crowds {
            data.add_crowd(crowd)?;
        }
        let listener = TcpListener::bind(settings.address)?;
        system::set_backlog(&listener, BACKLOG)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            service: Service::new(data, settings),
            listener,
            open: Mutex::default(),
            ended: Condvar::new(),
        });
        let accepting = std::thread::Builder::new()
            .name("devserver-accept".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || accept_all(&shared)
            })?;
        Ok(Self {
            shared,
            address,
            accepting: Some(accepting),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The endpoint for clients: `http://127.0.0.1:12345`, or `https://` with an identity.
    pub fn url(&self) -> String {
        let is_secure = self.settings().identity.is_some();
        let scheme = if is_secure { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The faults, to be set at any time.
    pub fn faults(&self) -> &FaultPlan {
        &self.shared.service.faults
    }

    /// What was counted since the start or the last reset.
    pub fn counters(&self) -> Counters {
        self.shared.service.counters.snapshot()
    }

    /// Begins counting anew.
    pub fn reset_counters(&self) {
        self.shared.service.counters.reset();
    }

    /// The buckets, to look into or change without HTTP.
    pub fn data(&self) -> &Data {
        &self.shared.service.data
    }

    /// The settings that it was started with.
    pub fn settings(&self) -> &Settings {
        &self.shared.service.settings
    }

    /// Ends all connections at once, as a crash would, and returns the data. Requests that
    /// were not answered may or may not have been carried out.
    pub fn stop(mut self) -> Data {
        self.end();
        self.shared.service.data.clone()
    }

    /// Waits until the server is stopped, which only another thread can do.
    pub fn wait(mut self) {
        if let Some(accepting) = self.accepting.take() {
            // A panic there ends the wait just as well.
            let _ = accepting.join();
        }
    }

    fn end(&mut self) {
        let Some(accepting) = self.accepting.take() else {
            return;
        };
        self.shared.service.stop.set();
        if let Err(error) = system::stop_listening(&self.shared.listener) {
            tracing::warn!(%error, "the listener could not be woken");
        }
        if accepting.join().is_err() {
            tracing::warn!("the listener panicked");
        }
        self.shared.end_connections();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

fn accept_all(shared: &Arc<Shared>) {
    while !shared.service.stop.is_set() {
        match shared.listener.accept() {
            Ok((stream, _)) => shared.admit(stream),
            Err(_) if shared.service.stop.is_set() => {}
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                // Out of descriptors, most likely: give others the time to close theirs.
                let _ = shared.service.stop.pause(Duration::from_millis(50));
            }
        }
    }
}

impl Shared {
    /// Serves a connection in a thread of its own, if there may be one more.
    fn admit(self: &Arc<Self>, stream: TcpStream) {
        self.service.counters.connected();
        let stream = Arc::new(stream);
        let Some(id) = self.register(&stream) else {
            tracing::warn!("too many connections; one is refused");
            let answer = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n\
                          Connection: close\r\nContent-Length: 0\r\n\r\n";
            // The client is told as far as that goes; it finds the connection closed otherwise.
            let _ = io::Write::write_all(&mut &*stream, answer.as_bytes());
            return;
        };
        let handler = std::thread::Builder::new()
            .name("devserver-connection".to_owned())
            .stack_size(STACK_SIZE);
        let shared = Arc::clone(self);
        let spawned = handler.spawn(move || {
            let _ended = Ended {
                shared: &shared,
                id,
            };
            if let Err(error) = connection::serve(&shared.service, &stream) {
                tracing::debug!(%error, "a connection broke");
            }
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread for a connection");
            self.unregister(id);
        }
    }

    fn register(&self, stream: &Arc<TcpStream>) -> Option<u64> {
        let mut open = sync::lock(&self.open);
        if open.streams.len() >= self.service.settings.connections_max {
            return None;
        }
        let id = open.next;
        open.next += 1;
        open.streams.insert(id, Arc::clone(stream));
        Some(id)
    }

    fn unregister(&self, id: u64) {
        sync::lock(&self.open).streams.remove(&id);
        self.ended.notify_all();
    }

    fn end_connections(&self) {
        let open = sync::lock(&self.open);
        for stream in open.streams.values() {
            // A crash does not say goodbye. What fails here is closed already.
            let _ = system::reset_on_close(stream);
            let _ = stream.shutdown(Shutdown::Both);
        }
        let waited = self
            .ended
            .wait_timeout_while(open, STOP_MAX, |open| !open.streams.is_empty());
        let open = waited.unwrap_or_else(PoisonError::into_inner).0;
        if !open.streams.is_empty() {
            tracing::warn!(left = open.streams.len(), "connections did not end in time");
        }
    }
}

/// Takes a connection off the list when its thread ends, however it ends.
struct Ended<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.shared.unregister(self.id);
    }
}
