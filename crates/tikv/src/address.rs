//! Where a cluster is: `tikv://PD[:PORT][,PD[:PORT]...]/PREFIX[?ca=FILE&cert=FILE&key=FILE][&tls=off][&gc=off]`.

use std::{fmt, path::PathBuf};

use percent_encoding::percent_decode_str;

/// The port of PD where none is said.
const PORT: u16 = 2379;
/// Letters in the longest prefix.
const PREFIX_MAX: usize = 64;

/// The files that TLS needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) ca: Option<PathBuf>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

/// The address of a cluster: its PD servers, and the prefix of all keys that Penstock has in it.
#[derive(Clone, PartialEq, Eq)]
pub struct TikvAddress {
    pub(crate) servers: Vec<String>,
    pub(crate) prefix: String,
    pub(crate) tls: TlsFiles,
    /// Nobody else collects the garbage of the cluster.
    pub(crate) collects_garbage: bool,
    text: String,
}

impl TikvAddress {
    /// Whether a text names a cluster, well or not.
    pub fn is_one(text: &str) -> bool {
        text.starts_with("tikv://")
    }

    /// Reads a URL. Fails with what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rest = text
            .strip_prefix("tikv://")
            .ok_or("it begins with tikv://")?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (servers, prefix) = place.split_once('/').ok_or(NO_PREFIX)?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if prefix.is_empty() || prefix.len() > PREFIX_MAX || !prefix.bytes().all(is_plain) {
            return Err(NO_PREFIX.to_owned());
        }
        let mut address = Self {
            servers: servers.split(',').map(server).collect::<Result<_, _>>()?,
            prefix: prefix.to_owned(),
            tls: TlsFiles::default(),
            collects_garbage: true,
            text: text.to_owned(),
        };
        let mut is_open = false;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let file = || decoded(value).map(PathBuf::from).map(Some);
            match (name, value) {
                ("ca", _) => address.tls.ca = file()?,
                ("cert", _) => address.tls.cert = file()?,
                ("key", _) => address.tls.key = file()?,
                ("tls", "off") => is_open = true,
                ("gc", "off") => address.collects_garbage = false,
                _ => return Err(format!("it says `{pair}`, which is not understood")),
            }
        }
        address.check(is_open)?;
        Ok(address)
    }

    /// Names and attributes cross a network in the clear only where that was said.
    fn check(&self, is_open: bool) -> Result<(), String> {
        let TlsFiles { ca, cert, key } = &self.tls;
        let named = [ca, cert, key].into_iter().flatten().count();
        match (named, is_open) {
            (3, false) | (0, true) => Ok(()),
            (0, false) if self.servers.iter().all(|server| is_here(server)) => Ok(()),
            (0, false) => Err(
                "it is not on this machine: say ?ca=FILE&cert=FILE&key=FILE for TLS, or \
                 ?tls=off where nobody listens"
                    .to_owned(),
            ),
            (_, true) => Err("it names certificates and says tls=off".to_owned()),
            _ => Err("TLS needs all of ca=FILE, cert=FILE and key=FILE".to_owned()),
        }
    }
}

const NO_PREFIX: &str =
    "it names no prefix of up to 64 letters, digits, `-` and `_`: tikv://PD1,PD2/PREFIX";

impl fmt::Display for TikvAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for TikvAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A server as HOST:PORT.
fn server(text: &str) -> Result<String, String> {
    let host = text.rsplit_once(']').map_or(text, |(_, port)| port);
    let (_, port) = host.rsplit_once(':').unwrap_or((host, ""));
    let is_named = !text.is_empty() && !text.starts_with(':') && !text.contains(['@', '/']);
    match (is_named, port) {
        (false, _) => Err("it names no PD server: tikv://PD1,PD2/PREFIX".to_owned()),
        (true, "") => Ok(format!("{}:{PORT}", text.trim_end_matches(':'))),
        (true, port) => port
            .parse::<u16>()
            .map(|_| text.to_owned())
            .map_err(|_| "its port is no number up to 65535".to_owned()),
    }
}

fn is_here(server: &str) -> bool {
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

fn decoded(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded = decoded.map_err(|_| "it is not UTF-8")?;
    Ok(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_where_and_how() {
        let address = TikvAddress::parse("tikv://localhost,[::1]:99,127.0.0.1:1/files").unwrap();
        let servers = ["localhost:2379", "[::1]:99", "127.0.0.1:1"];
        assert_eq!(address.servers, servers);
        assert_eq!(address.prefix, "files");
        assert!(address.collects_garbage);
        let tls = "tikv://pd.example/files?ca=/c%20a&cert=/cert&key=/key&gc=off";
        let address = TikvAddress::parse(tls).unwrap();
        assert_eq!(address.tls.ca, Some("/c a".into()));
        assert!(!address.collects_garbage);
        assert!(TikvAddress::parse("tikv://pd.example/files?tls=off").is_ok());
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "postgres://pd/files",
            "tikv://localhost",
            "tikv://localhost/",
            "tikv://localhost/a/b",
            "tikv:///files",
            "tikv://localhost,/files",
            "tikv://me@localhost/files",
            "tikv://localhost:port/files",
            "tikv://pd.example/files",
            "tikv://localhost/files?ca=/ca",
            "tikv://localhost/files?ca=/a&cert=/b&key=/c&tls=off",
            "tikv://localhost/files?tls=on",
        ] {
            assert!(TikvAddress::parse(text).is_err(), "{text}");
        }
    }
}
