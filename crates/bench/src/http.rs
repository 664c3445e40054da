//! Requests to a server on this machine, one per connection: the development server's own ones,
//! and whole objects or pieces of them. Unsigned, so for nothing else.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

/// How long a server on this machine may take to say something.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Bytes of an answer's head.
const HEAD_MAX: u64 = 64 << 10;

/// An answer whose body is yet to be read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) length: u64,
    pub(crate) body: io::Take<BufReader<TcpStream>>,
}

impl Answer {
    /// The whole body as text, or the status as an error.
    pub(crate) fn text(mut self) -> io::Result<String> {
        let mut text = String::new();
        self.body.read_to_string(&mut text)?;
        if self.status / 100 != 2 {
            let why = format!("status {}: {}", self.status, text.trim());
            return Err(io::Error::other(why));
        }
        Ok(text)
    }
}

/// One request to `http://HOST:PORT`.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) url: &'a str,
    pub(crate) path: &'a str,
    pub(crate) body: &'a str,
    /// First byte and length of what is wanted; all of it otherwise.
    pub(crate) range: Option<(u64, u64)>,
}

impl<'a> Request<'a> {
    pub(crate) fn new(method: &'a str, url: &'a str, path: &'a str) -> Self {
        Self {
            method,
            url,
            path,
            body: "",
            range: None,
        }
    }

    /// Sends it and reads the head of the answer.
    pub(crate) fn send(&self) -> io::Result<Answer> {
        let host = authority(self.url)?;
        let mut stream = connect(host)?;
        let range = match self.range {
            Some((first, length)) if length > 0 => {
                format!("Range: bytes={first}-{}\r\n", first + length - 1)
            }
            _ => String::new(),
        };
        let head = format!(
            "{} {} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{range}Content-Length: {}\r\n\r\n{}",
            self.method,
            escaped(self.path),
            self.body.len(),
            self.body
        );
        stream.write_all(head.as_bytes())?;
        let has_body = self.method != "HEAD";
        read_head(BufReader::with_capacity(256 << 10, stream), has_body)
    }
}

/// `HOST:PORT` of an URL.
pub(crate) fn authority(url: &str) -> io::Result<&str> {
    let rest = url
        .strip_prefix("http://")
        .ok_or_else(|| io::Error::other(format!("`{url}` is not a plain http:// URL")))?;
    Ok(rest.split('/').next().unwrap_or(rest))
}

fn connect(host: &str) -> io::Result<TcpStream> {
    let address = host
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| io::Error::other(format!("`{host}` has no address")))?;
    let stream = TcpStream::connect_timeout(&address, SILENCE_MAX)?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    Ok(stream)
}

fn read_head(mut reader: BufReader<TcpStream>, has_body: bool) -> io::Result<Answer> {
    let mut lines = Vec::new();
    let mut head = (&mut reader).take(HEAD_MAX);
    loop {
        let mut line = String::new();
        if head.read_line(&mut line)? == 0 {
            return Err(io::Error::other("the server closed the connection"));
        }
        if line.trim_end().is_empty() {
            break;
        }
        lines.push(line.trim_end().to_ascii_lowercase());
    }
    let status = lines
        .first()
        .and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let status = status.ok_or_else(|| io::Error::other("the answer is not HTTP"))?;
    let length = lines
        .iter()
        .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok())
        .unwrap_or(0);
    Ok(Answer {
        status,
        length,
        body: reader.take(if has_body { length } else { 0 }),
    })
}

/// A path with everything but plain characters and slashes as `%XX`.
fn escaped(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                text.push(char::from(byte));
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_devserver::{Server, Settings};

    #[test]
    fn pieces_of_objects_and_the_servers_own_requests() {
        let server = Server::start(Settings::with_bucket("b")).expect("starts");
        server
            .data()
            .put("b", "a b/c", b"0123456789")
            .expect("stored");
        let url = server.url();
        let mut request = Request::new("GET", &url, "/b/a b/c");
        assert_eq!(
            request.send().expect("an answer").text().expect("good"),
            "0123456789"
        );
        request.range = Some((3, 4));
        assert_eq!(
            request.send().expect("an answer").text().expect("good"),
            "3456"
        );
        let head = Request::new("HEAD", &url, "/b/a b/c")
            .send()
            .expect("an answer");
        assert_eq!((head.status, head.length), (200, 10));
        let missing = Request::new("GET", &url, "/b/none")
            .send()
            .expect("an answer");
        assert!(missing.text().is_err());
        let counters = Request::new("GET", &url, "/-/counters")
            .send()
            .expect("an answer");
        assert!(counters.text().expect("good").contains("requests"));
    }

    #[test]
    fn only_plain_http_is_spoken() {
        assert_eq!(authority("http://a:1/b").expect("valid"), "a:1");
        assert!(authority("https://a").is_err());
    }
}
