//! Where a database is: `postgres://USER@HOST[:PORT]/DATABASE[?sslmode=MODE&sslrootcert=FILE&host=DIRECTORY]`.

use std::{fmt, path::PathBuf};

use percent_encoding::percent_decode_str;

/// The port where none is said.
const PORT: u16 = 5432;

/// What of TLS is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TlsMode {
    /// None.
    Disable,
    /// If the server has it; whoever it is.
    Prefer,
    /// Always; whoever the server is, unless a root certificate is named.
    Require,
    /// Always, with a server whose certificate somebody trusted vouches for.
    VerifyCa,
    /// The same, and the certificate is for this host.
    VerifyFull,
}

/// Where the server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Tcp(String),
    /// The directory of its socket.
    Unix(PathBuf),
}

/// The address of a database. There is no password in it.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresAddress {
    pub(super) place: Place,
    pub(super) port: u16,
    pub(super) database: String,
    pub(super) user: String,
    pub(super) tls: TlsMode,
    pub(super) root_certificate: Option<PathBuf>,
    text: String,
}

impl PostgresAddress {
    /// Reads a URL. Fails with what is wrong with it, and does not repeat what could be a password.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix("postgres://");
        let rest = rest.or_else(|| text.strip_prefix("postgresql://"));
        let rest = rest.ok_or("it begins with postgres://")?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = place
            .split_once('/')
            .ok_or("it names no database: postgres://USER@HOST/DATABASE")?;
        let (user, host) = authority
            .rsplit_once('@')
            .ok_or("it names no user: postgres://USER@HOST/DATABASE")?;
        if user.contains(':') {
            return Err(NO_PASSWORD.to_owned());
        }
        let (host, port) = host_and_port(host)?;
        let mut address = Self {
            tls: usual_mode(&host),
            place: Place::Tcp(host),
            port,
            database: decoded(database)?,
            user: decoded(user)?,
            root_certificate: None,
            text: text.to_owned(),
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            address.set(name, decoded(value)?)?;
        }
        address.check()?;
        Ok(address)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), String> {
        match name {
            "sslmode" => self.tls = mode(&value)?,
            "sslrootcert" => self.root_certificate = Some(PathBuf::from(value)),
            "host" if value.starts_with('/') => {
                self.place = Place::Unix(PathBuf::from(value));
                self.tls = TlsMode::Disable;
            }
            "password" | "passfile" => return Err(NO_PASSWORD.to_owned()),
            _ => return Err(format!("it says `{name}`, which is not understood")),
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        match &self.place {
            Place::Tcp(host) if host.is_empty() => {
                Err("it names no host: postgres://USER@HOST/DATABASE".to_owned())
            }
            _ if self.user.is_empty() => Err("it names no user".to_owned()),
            _ if self.database.is_empty() => Err("it names no database".to_owned()),
            _ => Ok(()),
        }
    }

    /// The host as a file of passwords names it.
    pub(super) fn host(&self) -> String {
        match &self.place {
            Place::Tcp(host) => host.clone(),
            Place::Unix(directory) => directory.display().to_string(),
        }
    }
}

const NO_PASSWORD: &str = "a password in it would be seen by everybody who sees the command line: \
                           use --engine-password-file, PGPASSFILE or PGPASSWORD";

impl fmt::Display for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or("its host lacks a `]`")?;
            (host, rest.strip_prefix(':'))
        }
        None => match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = port.map_or(Ok(PORT), str::parse);
    let port = port.map_err(|_| "its port is no number up to 65535")?;
    Ok((decoded(host)?, port))
}

/// Who is not on this machine has to show who it is.
fn usual_mode(host: &str) -> TlsMode {
    match host {
        "localhost" | "127.0.0.1" | "::1" | "" => TlsMode::Prefer,
        _ => TlsMode::VerifyFull,
    }
}

fn mode(text: &str) -> Result<TlsMode, String> {
    Ok(match text {
        "disable" => TlsMode::Disable,
        "prefer" => TlsMode::Prefer,
        "require" => TlsMode::Require,
        "verify-ca" => TlsMode::VerifyCa,
        "verify-full" => TlsMode::VerifyFull,
        _ => {
            return Err(
                "its sslmode is none of disable, prefer, require, verify-ca, verify-full"
                    .to_owned(),
            );
        }
    })
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
    fn an_address_says_where_who_and_how() {
        let address = PostgresAddress::parse("postgres://me@db.example:6000/files").unwrap();
        assert_eq!(address.place, Place::Tcp("db.example".to_owned()));
        assert_eq!((address.port, address.tls), (6000, TlsMode::VerifyFull));
        let address =
            PostgresAddress::parse("postgresql://a%40b@[::1]/files?sslmode=require").unwrap();
        assert_eq!(address.user, "a@b");
        assert_eq!((address.host().as_str(), address.port), ("::1", 5432));
        assert_eq!(address.tls, TlsMode::Require);
        let address = PostgresAddress::parse("postgres://me@/files?host=/run/postgresql").unwrap();
        assert_eq!(address.place, Place::Unix("/run/postgresql".into()));
    }

    #[test]
    fn a_password_in_an_address_is_refused_and_not_repeated() {
        for text in [
            "postgres://me:hunter2@host/files",
            "postgres://me@host/files?password=hunter2",
        ] {
            let error = PostgresAddress::parse(text).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "mysql://me@host/files",
            "postgres://host/files",
            "postgres://me@host",
            "postgres://me@host/",
            "postgres://me@/files",
            "postgres://me@host:port/files",
            "postgres://me@host/files?sslmode=maybe",
            "postgres://me@host/files?options=-c",
        ] {
            assert!(PostgresAddress::parse(text).is_err(), "{text}");
        }
    }
}
