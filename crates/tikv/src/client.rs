//! Trips to the cluster, each of which has a deadline, and a client that is made anew when one failed.
//!
//! The client waits for a PD that is silent for ever, and remembers where regions were: so whatever fails but for a key that
//! somebody else put, the next trip begins with a new client.

use std::{fmt::Display, sync::Arc, time::Duration};

use penstock_base::clock;
use penstock_fileset::engine::{EngineError, EngineResult};
use tikv_client::{
    CheckLevel, Config, Error, Snapshot, Timestamp, TimestampExt, Transaction, TransactionClient,
    TransactionOptions, transaction::HeartbeatOption,
};
use tokio::sync::Mutex;

use crate::address::TikvAddress;

/// How long a trip may take, and how long the making of a client.
pub(crate) const TRIP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long what a failed commit left is tried to be taken away. Locks that stay are waited out by who meets them.
const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(3);
/// How long one request to one server may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);
/// Bytes in the longest answer.
const ANSWER_MAX: usize = 64 << 20;
/// Letters of an error that are told.
const TOLD_MAX: usize = 300;

/// What came of a commit, as far as the client knows.
#[derive(Debug)]
pub(crate) enum Committed {
    /// It says so, which is to be looked at.
    Perhaps,
    /// Somebody else put a key since the transaction began: nothing was made.
    Conflict,
    /// Nobody knows.
    Unknown(EngineError),
}

/// See the module.
pub(crate) struct Client {
    address: TikvAddress,
    pub(crate) place: String,
    made: Mutex<Option<Arc<TransactionClient>>>,
}

impl Client {
    pub(crate) fn new(address: &TikvAddress) -> Self {
        Self {
            place: format!("{}/{}", address.servers.join(","), address.prefix),
            address: address.clone(),
            made: Mutex::default(),
        }
    }

    /// Another one, which shares nothing with this one, for another runtime.
    pub(crate) fn another(&self) -> Self {
        Self::new(&self.address)
    }

    pub(crate) async fn get(&self) -> EngineResult<Arc<TransactionClient>> {
        let mut made = self.made.lock().await;
        if let Some(client) = made.as_ref() {
            return Ok(Arc::clone(client));
        }
        let servers = self.address.servers.clone();
        let connect = TransactionClient::new_with_config(servers, self.config());
        let client = clock::deadline(TRIP_TIMEOUT, Box::pin(connect)).await;
        let client = client
            .map_err(|_| self.failure("no connection within 10 s"))?
            .map_err(|error| self.failure(error))?;
        Ok(Arc::clone(made.insert(Arc::new(client))))
    }

    fn config(&self) -> Config {
        let config = Config::default()
            .with_timeout(REQUEST_TIMEOUT)
            .with_grpc_max_decoding_message_size(ANSWER_MAX);
        let tls = &self.address.tls;
        match (&tls.ca, &tls.cert, &tls.key) {
            (Some(ca), Some(cert), Some(key)) => config.with_security(ca, cert, key),
            _ => config,
        }
    }

    /// Waits for an answer until the deadline of a trip.
    pub(crate) async fn trip<T>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send,
    ) -> EngineResult<T> {
        let done = clock::deadline(TRIP_TIMEOUT, Box::pin(work)).await;
        let failed = match done {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => self.failure(error),
            Err(_) => self.failure("no answer within 10 s"),
        };
        self.forget().await;
        Err(failed)
    }

    /// The next trip begins with a new client.
    async fn forget(&self) {
        self.made.lock().await.take();
    }

    /// The latest moment of the cluster.
    pub(crate) async fn now(&self) -> EngineResult<Timestamp> {
        let client = self.get().await?;
        self.trip(client.current_timestamp()).await
    }

    /// A transaction, which is refused where somebody else puts one of its keys meanwhile.
    pub(crate) async fn begin(&self) -> EngineResult<Transaction> {
        let client = self.get().await?;
        let options = TransactionOptions::new_optimistic()
            .try_one_pc()
            .drop_check(CheckLevel::None)
            .heartbeat_option(HeartbeatOption::NoHeartbeat);
        self.trip(client.begin_with_options(options)).await
    }

    /// All keys as they are at a moment.
    pub(crate) async fn at(&self, moment: &Timestamp) -> EngineResult<Snapshot> {
        let options = TransactionOptions::new_optimistic().drop_check(CheckLevel::None);
        Ok(self.get().await?.snapshot(moment.clone(), options))
    }

    /// Tries to make what a transaction put.
    pub(crate) async fn commit(&self, transaction: &mut Transaction) -> Committed {
        let committed = clock::deadline(TRIP_TIMEOUT, Box::pin(transaction.commit())).await;
        let failed = match committed {
            Ok(Ok(_)) => return Committed::Perhaps,
            Ok(Err(error)) if is_conflict(&error) => return Committed::Conflict,
            Ok(Err(error)) => self.failure(error),
            Err(_) => self.failure("no answer within 10 s"),
        };
        self.roll_back(transaction).await;
        self.forget().await;
        Committed::Unknown(failed)
    }

    /// Takes away what is left of a transaction whose commit failed.
    pub(crate) async fn roll_back(&self, transaction: &mut Transaction) {
        let rollback = Box::pin(transaction.rollback());
        let _ = clock::deadline(ROLLBACK_TIMEOUT, rollback).await;
    }

    pub(crate) fn failure(&self, what: impl Display) -> EngineError {
        let mut told = what.to_string();
        if let Some((end, _)) = told.char_indices().nth(TOLD_MAX) {
            told.truncate(end);
        }
        EngineError::Database(format!("{}: {told}", self.place))
    }
}

/// Whether TiKV refused a key since somebody else put it later.
fn is_conflict(error: &Error) -> bool {
    match error {
        Error::KeyError(error) => error.conflict.is_some(),
        Error::ExtractedErrors(errors) | Error::MultipleKeyErrors(errors) => {
            errors.iter().any(is_conflict)
        }
        _ => false,
    }
}

/// Milliseconds since 1970 as the cluster counts them.
pub(crate) fn milliseconds(moment: &Timestamp) -> i64 {
    moment.physical
}

/// The moment so long before another one.
pub(crate) fn before(moment: &Timestamp, age: Duration) -> Timestamp {
    let mut earlier = Timestamp::from_version(moment.version());
    earlier.physical -= age.as_millis() as i64;
    earlier
}
