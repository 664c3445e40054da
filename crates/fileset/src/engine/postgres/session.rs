//! One connection to the database.

use std::{error::Error as _, time::Duration};

use bytes::Bytes;
use futures_util::future;
use penstock_base::{Secret, clock};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, Error, Statement, config::SslMode, error::SqlState};

use super::{
    address::{Place, PostgresAddress, TlsMode},
    statements::Statements,
    tls::Tls,
};
use crate::engine::{EngineError, EngineResult};

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a trip may take until the connection is given up.
const TRIP_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the server may work on a statement: who gave it up by then does not find it at work.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(50);
/// A server that does not answer is dead.
const SILENCE: Duration = Duration::from_secs(15);

/// Whom to connect to.
#[derive(Clone)]
pub(super) struct Connector {
    config: Config,
    tls: Tls,
    pub(super) statements: Statements,
    /// As it is told.
    pub(super) place: String,
}

impl Connector {
    /// Reads the certificates that are trusted; blocks on the disk.
    pub(super) fn new(
        address: &PostgresAddress,
        password: Option<&Secret>,
        identity: u64,
    ) -> EngineResult<Self> {
        let mut config = Config::new();
        match &address.place {
            Place::Tcp(host) => config.host(host),
            Place::Unix(directory) => config.host_path(directory),
        };
        config
            .port(address.port)
            .dbname(&address.database)
            .user(&address.user)
            .application_name("penstock")
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_user_timeout(SILENCE)
            .keepalives_idle(SILENCE)
            .keepalives_interval(SILENCE / 3)
            .keepalives_retries(3)
            .ssl_mode(match address.tls {
                TlsMode::Disable => SslMode::Disable,
                TlsMode::Prefer => SslMode::Prefer,
                TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => SslMode::Require,
            });
        if let Some(password) = password {
            config.password(password.expose());
        }
        Ok(Self {
            config,
            tls: Tls::new(address).map_err(EngineError::Database)?,
            statements: Statements::new(identity),
            place: format!("{}:{}", address.host(), address.port),
        })
    }

    /// A connection.
    pub(super) async fn connect(&self) -> EngineResult<Session> {
        let connected = Box::pin(self.config.connect(self.tls.clone()));
        let connected = clock::deadline(CONNECT_TIMEOUT, connected).await;
        let connected = connected.map_err(|_| self.failure("no connection within 10 s"))?;
        let (client, connection) = connected.map_err(|error| self.told(&error))?;
        let task = tokio::spawn(async move {
            // Whoever uses the connection is told.
            let _ = connection.await;
        });
        let session = Session {
            client,
            task,
            connector: self.clone(),
        };
        session.set_up().await?;
        Ok(session)
    }

    fn failure(&self, text: &str) -> EngineError {
        EngineError::Database(format!("{}: {text}", self.place))
    }

    /// What an error is to whoever uses the engine.
    fn told(&self, error: &Error) -> EngineError {
        let Some(said) = error.as_db_error() else {
            let cause = error.source().map(ToString::to_string);
            let text = cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"));
            return self.failure(&text);
        };
        let text = format!("{} ({})", said.message(), said.code().code());
        let code = said.code();
        if *code == SqlState::DISK_FULL {
            EngineError::Full(format!("{}: {text}", self.place))
        } else if *code == SqlState::DATA_CORRUPTED || *code == SqlState::INDEX_CORRUPTED {
            EngineError::Corrupt(format!("{}: {text}", self.place))
        } else if *code == SqlState::UNDEFINED_TABLE || *code == SqlState::INVALID_SCHEMA_NAME {
            self.failure("there is no such file system in it")
        } else {
            self.failure(&text)
        }
    }
}

/// A connection. It ends when it is dropped.
pub(super) struct Session {
    client: Client,
    task: JoinHandle<()>,
    connector: Connector,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Who may write, and what was written last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) epoch: i64,
    pub(super) sequence: i64,
}

/// Some rows, and the owner when they were read or later.
pub(super) type Page = (Vec<(Bytes, Bytes)>, Owner);

impl Session {
    /// What is acknowledged is durable, whatever the server's file says, and the planner, which knows nothing of a
    /// table that grows from nothing, does not walk over all of it.
    async fn set_up(&self) -> EngineResult<()> {
        let statement_timeout = STATEMENT_TIMEOUT.as_millis();
        let needed =
            format!("SET synchronous_commit = on; SET statement_timeout = {statement_timeout}");
        self.all(&needed).await?;
        let wanted = "SET enable_seqscan = off; SET enable_bitmapscan = off";
        if let Err(error) = self.all(wanted).await {
            tracing::debug!(%error, "the database has no such planner");
        }
        Ok(())
    }

    /// Whether the connection is still one.
    pub(super) fn is_alive(&self) -> bool {
        !self.client.is_closed()
    }

    async fn trip<T>(&self, work: impl Future<Output = Result<T, Error>>) -> EngineResult<T> {
        match clock::deadline(TRIP_TIMEOUT, work).await {
            Ok(done) => done.map_err(|error| self.connector.told(&error)),
            Err(_) => {
                // Nobody uses it any more.
                self.task.abort();
                Err(self.connector.failure("no answer within 60 s"))
            }
        }
    }

    /// Statements without parameters.
    pub(super) async fn all(&self, statements: &str) -> EngineResult<()> {
        self.trip(self.client.batch_execute(statements)).await
    }

    /// What a setting of the server is, if it has it.
    pub(super) async fn setting(&self, name: &str) -> Option<String> {
        let show = format!("SHOW {name}");
        let rows = self.trip(self.client.query(&show, &[])).await.ok()?;
        rows.first()?.try_get(0).ok()
    }

    async fn prepared(&self, statement: &str) -> EngineResult<Statement> {
        self.trip(self.client.prepare(statement)).await
    }

    /// Whether the tables of the file system are there.
    pub(super) async fn has_schema(&self) -> EngineResult<bool> {
        let there = self.connector.statements.is_there();
        let row = self.trip(self.client.query_opt(&there, &[])).await?;
        Ok(row.is_some())
    }

    /// Begins an epoch. `None` if another machine has the file system.
    pub(super) async fn claim(&self, claim: &str, holder: i64) -> EngineResult<Option<Owner>> {
        let row = self.trip(self.client.query_opt(claim, &[&holder])).await?;
        let Some(row) = row else {
            return Ok(None);
        };
        let version: i32 = row.get(2);
        if version != super::statements::VERSION {
            let text =
                format!("its tables have version {version}: use the penstock that made them");
            return Err(self.connector.failure(&text));
        }
        Ok(Some(Owner {
            epoch: row.get(0),
            sequence: row.get(1),
        }))
    }

    /// Who may write.
    pub(super) async fn owner(&self) -> EngineResult<Owner> {
        let owner = self.connector.statements.owner();
        let row = self.trip(self.client.query_one(&owner, &[])).await?;
        Ok(Owner {
            epoch: row.get(0),
            sequence: row.get(1),
        })
    }
}

/// A connection that reads.
pub(super) struct Reader {
    pub(super) session: Session,
    read: Statement,
    owner: Statement,
}

impl Reader {
    pub(super) async fn connect(connector: &Connector) -> EngineResult<Self> {
        let session = connector.connect().await?;
        Ok(Self {
            read: session.prepared(&connector.statements.read()).await?,
            owner: session.prepared(&connector.statements.owner()).await?,
            session,
        })
    }

    /// The first keys of a range, at most so many, in one trip.
    pub(super) async fn page(&self, start: &[u8], end: &[u8], count: i64) -> EngineResult<Page> {
        let client = &self.session.client;
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 3] = [&start, &end, &count];
        let rows = client.query(&self.read, &parameters);
        let owner = client.query_one(&self.owner, &[]);
        // In this order: what was read before the owner was asked for is the owner's.
        let (rows, owner) = self.session.trip(future::try_join(rows, owner)).await?;
        let rows = rows.iter().map(|row| {
            let bytes = |index| Bytes::copy_from_slice(row.get::<_, &[u8]>(index));
            (bytes(0), bytes(1))
        });
        let owner = Owner {
            epoch: owner.get(0),
            sequence: owner.get(1),
        };
        Ok((rows.collect(), owner))
    }
}

/// Changes that are made at once.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) deletes: Vec<Bytes>,
    pub(super) keys: Vec<Bytes>,
    pub(super) values: Vec<Bytes>,
}

/// The connection that writes.
pub(super) struct Writer {
    pub(super) session: Session,
    write: Statement,
}

impl Writer {
    pub(super) async fn connect(connector: &Connector) -> EngineResult<Self> {
        let session = connector.connect().await?;
        Ok(Self {
            write: session.prepared(&connector.statements.write()).await?,
            session,
        })
    }

    /// Makes changes behind `before`, and says whether they were made.
    pub(super) async fn write(&self, before: Owner, batch: &Batch) -> EngineResult<bool> {
        let [deletes, keys, values] = [&batch.deletes, &batch.keys, &batch.values]
            .map(|all| all.iter().map(|bytes| &**bytes).collect::<Vec<&[u8]>>());
        let next = before.sequence + 1;
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 6] = [
            &before.epoch,
            &before.sequence,
            &next,
            &deletes,
            &keys,
            &values,
        ];
        let row = self.session.client.query_one(&self.write, &parameters);
        let row = self.session.trip(row).await?;
        Ok(row.get(0))
    }
}
