//! What moving bytes through a socket costs at least: one connection, one buffer, nothing else.
//!
//! ```text
//! penstock-devserver --bucket b --fill b/big/file:1:4GiB &
//! cargo run --release -p penstock-devserver --example socket_floor -- get 127.0.0.1:9000 /b/big/file 4
//! cargo run --release -p penstock-devserver --example socket_floor -- put 127.0.0.1:9000 /b/copy 4
//! ```
//!
//! It prints the processor time of this program per GiB. A client that also hands the bytes to a
//! kernel, or sums them up, pays for that beside it.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::{
    env, fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
};

/// Bytes in each request.
const PART: usize = 8 << 20;

fn get(stream: &TcpStream, path: &str, start: usize, buffer: &mut [u8]) -> io::Result<()> {
    let range = format!("bytes={start}-{}", start + PART - 1);
    write!(
        &*stream,
        "GET {path} HTTP/1.1\r\nHost: x\r\nRange: {range}\r\n\r\n"
    )?;
    let mut answer = BufReader::with_capacity(1 << 10, stream);
    read_head(&mut answer)?;
    let begun = answer.buffer().len();
    answer.read_exact(&mut buffer[..begun])?;
    answer.into_inner().read_exact(&mut buffer[begun..])
}

fn put(stream: &TcpStream, path: &str, number: usize, buffer: &[u8]) -> io::Result<()> {
    write!(
        &*stream,
        "PUT {path}-{number} HTTP/1.1\r\nHost: x\r\nContent-Length: {PART}\r\n\r\n"
    )?;
    (&*stream).write_all(buffer)?;
    read_head(&mut BufReader::new(stream))
}

fn read_head(answer: &mut impl BufRead) -> io::Result<()> {
    let mut line = String::new();
    answer.read_line(&mut line)?;
    if !line.starts_with("HTTP/1.1 2") {
        return Err(io::Error::other(line));
    }
    while line.trim_end() != "" {
        line.clear();
        answer.read_line(&mut line)?;
    }
    Ok(())
}

/// User and system time of this process, in seconds. A tick is a hundredth (proc(5), `USER_HZ`).
fn processor_seconds() -> io::Result<(f64, f64)> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split(' ').collect();
    let seconds = |field: usize| fields.get(field).and_then(|text| text.parse().ok());
    let ticks = |field| seconds(field).unwrap_or(0.0) / 100.0;
    Ok((ticks(12), ticks(13)))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [method, address, path, gib] = arguments.as_slice() else {
        return Err("usage: socket_floor get|put ADDRESS /BUCKET/KEY GIB".into());
    };
    let gib: usize = gib.parse()?;
    let stream = TcpStream::connect(address)?;
    let mut buffer = vec![1; PART];
    for part in 0..gib * (1 << 30) / PART {
        match method.as_str() {
            "get" => get(&stream, path, part * PART, &mut buffer)?,
            _ => put(&stream, path, part, &buffer)?,
        }
    }
    let (user, system) = processor_seconds()?;
    let each = |seconds: f64| seconds / gib as f64;
    println!(
        "{method}: user {:.3}, system {:.3} s/GiB",
        each(user),
        each(system)
    );
    Ok(())
}
