//! A load on an object server: how much it moves, and what that costs the server.
//!
//! `load http://127.0.0.1:9000 get|put SIZE CONNECTIONS SECONDS`. GET expects the object
//! `bench/load` of at least 1 GiB (`--fill bench/load:1:1GiB`) and reads ranges of SIZE at
//! aligned places; PUT sends bodies of SIZE to a few keys, so that memory is used again.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::{
    env,
    error::Error,
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use penstock_devserver::{Counters, parse_bytes};

/// Bytes of the object that GETs read from.
const OBJECT: u64 = 1 << 30;
/// Keys that each connection writes in turn.
const KEYS: u64 = 4;
/// Bytes read or written at a time.
const STEP: usize = 256 << 10;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

struct Load {
    address: String,
    put: bool,
    size: u64,
    time: Duration,
}

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    fn new(address: &str) -> Outcome<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: vec![7; STEP],
        })
    }

    /// Reads an answer and returns what of its body came with the head, and its length.
    fn head(&mut self) -> Outcome<(usize, u64)> {
        let mut filled = 0;
        loop {
            let count = self.stream.read(&mut self.buffer[filled..])?;
            if count == 0 {
                return Err("the connection ended".into());
            }
            filled += count;
            let Some(end) = self.buffer[..filled]
                .windows(4)
                .position(|four| four == b"\r\n\r\n")
            else {
                continue;
            };
            let head = std::str::from_utf8(&self.buffer[..end])?;
            if !head.starts_with("HTTP/1.1 2") {
                return Err(head.to_owned().into());
            }
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("Content-Length: "));
            return Ok((filled - end - 4, length.unwrap_or("0").parse()?));
        }
    }

    fn get(&mut self, target: &str, range: Option<(u64, u64)>) -> Outcome<u64> {
        let range = range
            .map(|(first, last)| format!("Range: bytes={first}-{last}\r\n"))
            .unwrap_or_default();
        write!(
            self.stream,
            "GET {target} HTTP/1.1\r\nHost: localhost\r\n{range}\r\n"
        )?;
        let (came, length) = self.head()?;
        let mut missing = length - came as u64;
        while missing > 0 {
            let limit = missing.min(STEP as u64) as usize;
            let count = self.stream.read(&mut self.buffer[..limit])?;
            if count == 0 {
                return Err("the body ended early".into());
            }
            missing -= count as u64;
        }
        Ok(length)
    }

    fn put(&mut self, target: &str, size: u64) -> Outcome<u64> {
        let head =
            format!("PUT {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n");
        self.stream.write_all(head.as_bytes())?;
        let mut missing = size;
        while missing > 0 {
            let step = missing.min(STEP as u64) as usize;
            self.stream.write_all(&self.buffer[..step])?;
            missing -= step as u64;
        }
        self.head()?;
        Ok(size)
    }
}

impl Load {
    /// One connection's work: bytes and requests.
    fn run(&self, index: u64) -> Outcome<(u64, u64)> {
        let mut connection = Connection::new(&self.address)?;
        let end = Instant::now() + self.time;
        let (mut bytes, mut requests) = (0, 0);
        let slots = OBJECT / self.size;
        while Instant::now() < end {
            bytes += if self.put {
                connection.put(
                    &format!("/bench/put/{index}/{}", requests % KEYS),
                    self.size,
                )?
            } else {
                let first = (index * 7919 + requests) % slots * self.size;
                connection.get("/bench/load", Some((first, first + self.size - 1)))?
            };
            requests += 1;
        }
        Ok((bytes, requests))
    }
}

fn counters(address: &str) -> Outcome<Counters> {
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "GET /-/counters HTTP/1.1\r\nConnection: close\r\n\r\n"
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let body = text.split_once("\r\n\r\n").ok_or("no answer")?.1;
    Ok(serde_json::from_str(body)?)
}

fn main() -> Outcome<()> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [url, verb, size, connections, seconds] = arguments.as_slice() else {
        return Err("load URL get|put SIZE CONNECTIONS SECONDS".into());
    };
    let load = Load {
        address: url.trim_start_matches("http://").to_owned(),
        put: verb == "put",
        size: parse_bytes(size)?,
        time: Duration::from_secs_f64(seconds.parse()?),
    };
    let before = counters(&load.address)?;
    let start = Instant::now();
    let (mut bytes, mut requests) = (0, 0);
    thread::scope(|scope| -> Outcome<()> {
        let work: Vec<_> = (0..connections.parse()?)
            .map(|index| {
                scope.spawn({
                    let load = &load;
                    move || load.run(index)
                })
            })
            .collect();
        for handle in work {
            let (some, more) = handle.join().map_err(|_| "a thread panicked")??;
            bytes += some;
            requests += more;
        }
        Ok(())
    })?;
    let took = start.elapsed().as_secs_f64();
    let cpu = counters(&load.address)?.cpu_seconds - before.cpu_seconds;
    let gib = bytes as f64 / (1u64 << 30) as f64;
    println!(
        "{verb} {size} x{connections}: {:.2} GB/s, {:.0} requests/s, server {:.3} CPU s/GiB, {:.1} us/request",
        bytes as f64 / took / 1e9,
        requests as f64 / took,
        cpu / gib,
        cpu / requests as f64 * 1e6,
    );
    Ok(())
}
