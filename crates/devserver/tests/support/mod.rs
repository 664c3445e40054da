//! A tiny HTTP client: one connection, requests written out, answers read whole.

#![allow(dead_code)]

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(field, _)| field.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The text of the first element of that name.
    pub(crate) fn element(&self, name: &str) -> Option<String> {
        elements(&self.text(), name).into_iter().next()
    }

    pub(crate) fn elements(&self, name: &str) -> Vec<String> {
        elements(&self.text(), name)
    }

    pub(crate) fn etag(&self) -> String {
        self.header("etag").expect("a tag").to_owned()
    }
}

pub(crate) fn elements(text: &str, name: &str) -> Vec<String> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let pieces = text.split(&open).skip(1);
    pieces
        .filter_map(|piece| piece.split_once(&close))
        .map(|(text, _)| text.to_owned())
        .collect()
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a listening server");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Self {
            stream: BufReader::new(stream),
        }
    }

    pub(crate) fn send(&mut self, head: &str, body: &[u8]) -> io::Result<()> {
        let mut bytes = head
            .trim_end()
            .replace("\r\n", "\n")
            .replace('\n', "\r\n")
            .into_bytes();
        bytes.extend_from_slice(b"\r\n\r\n");
        bytes.extend_from_slice(body);
        self.stream.get_mut().write_all(&bytes)
    }

    /// A request with a host and a length, and its answer.
    pub(crate) fn request(&mut self, line: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        self.try_request(line, headers, body).expect("an answer")
    }

    pub(crate) fn try_request(
        &mut self,
        line: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Answer> {
        let mut head = format!("{line} HTTP/1.1\nHost: localhost\n");
        if !body.is_empty() || line.starts_with('P') {
            head.push_str(&format!("Content-Length: {}\n", body.len()));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\n"));
        }
        self.send(&head, body)?;
        self.receive(line.starts_with("HEAD"))
    }

    pub(crate) fn receive(&mut self, is_head: bool) -> io::Result<Answer> {
        loop {
            let line = self.line()?;
            let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
            let status: u16 = status.ok_or(io::ErrorKind::InvalidData)?;
            let mut headers = Vec::new();
            loop {
                let line = self.line()?;
                if line.is_empty() {
                    break;
                }
                let (name, value) = line.split_once(':').ok_or(io::ErrorKind::InvalidData)?;
                headers.push((name.to_owned(), value.trim().to_owned()));
            }
            if status == 100 {
                continue;
            }
            let mut answer = Answer {
                status,
                headers,
                body: Vec::new(),
            };
            let length = answer
                .header("content-length")
                .map_or(0, |text| text.parse().expect("a number"));
            if !is_head {
                answer.body.resize(length, 0);
                self.stream.read_exact(&mut answer.body)?;
            }
            return Ok(answer);
        }
    }

    /// One line without its end.
    pub(crate) fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    pub(crate) fn read_to_end(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.stream.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn get(&mut self, target: &str) -> Answer {
        self.request(&format!("GET {target}"), &[], b"")
    }

    pub(crate) fn put(&mut self, target: &str, body: &[u8]) -> Answer {
        self.request(&format!("PUT {target}"), &[], body)
    }

    pub(crate) fn delete(&mut self, target: &str) -> Answer {
        self.request(&format!("DELETE {target}"), &[], b"")
    }
}
