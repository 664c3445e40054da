//! Databases that hold the metadata of filesets: which one, and with whose password.
//!
//! A password is in the environment or in a file of this user's, never in an address, which stands on command lines, in
//! records and in labels.

use std::{
    io,
    path::{Path, PathBuf},
};

use penstock_base::Secret;
use penstock_fileset::engine::{PostgresAddress, password_in};

use crate::{
    environment::Environment,
    failure::{Failure, Outcome},
    secret_file,
};

/// Where a database is.
#[derive(Debug, Clone)]
pub(crate) enum Address {
    Postgres(PostgresAddress),
    #[cfg(feature = "tikv")]
    Tikv(penstock_tikv::TikvAddress),
}

/// The address of a database, if that is one.
pub(crate) fn address(text: &str) -> Outcome<Address> {
    if text.starts_with("tikv://") {
        return tikv_address(text);
    }
    let address = PostgresAddress::parse(text).map_err(|why| {
        Failure::usage(
            format!("--engine names no database: {why}"),
            "say postgres://USER@HOST[:PORT]/DATABASE or tikv://PD1,PD2/PREFIX",
        )
    });
    Ok(Address::Postgres(address?))
}

#[cfg(feature = "tikv")]
fn tikv_address(text: &str) -> Outcome<Address> {
    let address = penstock_tikv::TikvAddress::parse(text).map_err(|why| {
        Failure::usage(
            format!("--engine names no cluster: {why}"),
            "say tikv://PD1[:PORT],PD2[:PORT]/PREFIX",
        )
    });
    Ok(Address::Tikv(address?))
}

#[cfg(not(feature = "tikv"))]
fn tikv_address(_text: &str) -> Outcome<Address> {
    Err(Failure::usage(
        "this penstock was built without TiKV",
        "build it with `cargo build --release -p penstock-cli --features tikv`",
    ))
}

/// Where passwords come from, as PostgreSQL's own programs have it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Passwords {
    given: Option<Secret>,
    /// A file with a line for each database.
    file: Option<PathBuf>,
}

impl Passwords {
    /// As the environment says: PGPASSWORD, PGPASSFILE or `.pgpass` at home.
    pub(crate) fn of(environment: &Environment) -> Self {
        let named = environment.variable("PGPASSFILE").map(PathBuf::from);
        let home = environment.directory("HOME");
        Self {
            given: environment.variable("PGPASSWORD").map(Secret::new),
            file: named.or_else(|| home.map(|home| home.join(".pgpass"))),
        }
    }

    /// The password for a database; `own` is a file that holds it and nothing else.
    pub(crate) fn find(
        &self,
        address: &PostgresAddress,
        own: Option<&Path>,
    ) -> Outcome<Option<Secret>> {
        if let Some(path) = own {
            let text = private_text(path)?.ok_or_else(|| absent(path))?;
            return Ok(Some(Secret::new(text.trim_end_matches(['\r', '\n']))));
        }
        if let Some(given) = &self.given {
            return Ok(Some(given.clone()));
        }
        let text = self.file.as_deref().map(private_text).transpose()?;
        Ok(text.flatten().and_then(|text| password_in(&text, address)))
    }
}

fn absent(path: &Path) -> Failure {
    Failure::new(
        format!("{}: there is no such file", path.display()),
        "write the password of the database there",
    )
}

/// What a file says that nobody else may read, if it is there.
fn private_text(path: &Path) -> Outcome<Option<String>> {
    let utf8 = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let read = secret_file::read(path, u64::MAX);
    let read = read.and_then(|(text, mode)| Ok((String::from_utf8(text).map_err(utf8)?, mode)));
    match read {
        Ok((_, mode)) if mode & 0o077 != 0 => Err(Failure::new(
            format!("{}: others may read the password in it", path.display()),
            "chmod 600 that file",
        )),
        Ok((text, _)) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::new(
            format!("{}: {error}", path.display()),
            "see to that file",
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    fn written(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        (directory, path)
    }

    #[test]
    fn a_file_of_its_own_comes_before_the_environment_and_that_before_pgpass() {
        let address = PostgresAddress::parse("postgres://me@host/files").unwrap();
        let (_own, own) = written("one\n", 0o600);
        let (_all, all) = written("*:*:*:me:three\n", 0o600);
        let all = all.display().to_string();
        let both = Environment::of(&[("PGPASSWORD", "two"), ("PGPASSFILE", &all)]);
        let found = |environment: &Environment, own: Option<&Path>| {
            let found = Passwords::of(environment).find(&address, own).unwrap();
            found.map(|secret| secret.expose().to_owned())
        };
        assert_eq!(found(&both, Some(&own)).as_deref(), Some("one"));
        assert_eq!(found(&both, None).as_deref(), Some("two"));
        let file = Environment::of(&[("PGPASSFILE", &all)]);
        assert_eq!(found(&file, None).as_deref(), Some("three"));
        assert_eq!(found(&Environment::of(&[]), None), None);
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let address = PostgresAddress::parse("postgres://me@host/files").unwrap();
        let (_directory, path) = written("hunter2", 0o644);
        let refused = Passwords::default().find(&address, Some(&path));
        assert!(!format!("{:?}", refused.unwrap_err()).contains("hunter2"));
    }

    #[test]
    fn a_password_in_an_address_is_not_repeated() {
        let refused = address("postgres://me:hunter2@host/files").unwrap_err();
        assert!(!format!("{refused:?}").contains("hunter2"));
    }

    #[test]
    fn a_cluster_is_an_address_where_it_is_built_in() {
        let address = address("tikv://localhost/files");
        assert_eq!(address.is_ok(), cfg!(feature = "tikv"), "{address:?}");
    }
}
